"""
What somebody else puts beside a database: a journal that would change it, files of other users.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.errors import NotSupported
from tableorm_local.engine import Engine, files
from tests.security.test_files import path, reads, refused

__all__ = ["path"]

_SIZE = 8192


def make_journal(path: Path, pages: int, records: Iterable[tuple[int, bytes]] = (), size: int = _SIZE) -> None:
    """Write a journal that gives a file so many pages, of a size, and puts these in place of its own."""
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">iIIII", -1, 0, pages, 512, size)
    content = header.ljust(512, b"\0")
    for number, page in records:
        content += struct.pack(">I", number) + page + struct.pack(">I", sum(page[size - 200 : 0 : -200]))
    path.with_name(path.name + "-journal").write_bytes(content)


@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_a_journal_that_changes_rows(path: Path, mode: str) -> None:
    """A journal beside a file with rows is refused: tableorm writes those by the log alone, and nothing is changed."""
    connection: Any = apsw.Connection(str(path))
    connection.execute(f"PRAGMA journal_mode = {mode}")
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 't1'").get
    connection.close()
    empty = struct.pack(">BHHHB", 10, 0, 0, _SIZE, 0).ljust(_SIZE, b"\0")
    make_journal(path, path.stat().st_size // _SIZE, [(root, empty)])
    error = await refused(path)

    assert isinstance(error, NotSupported)
    assert str(error) == (
        f"the journal beside {str(path)!r} would change it, and tableorm leaves none beside a file with rows; if you "
        f"know the program that made it, let that open the file, otherwise remove {str(path) + '-journal'!r}."
    )
    path.with_name(path.name + "-journal").unlink()
    assert await reads(path) == ["a", "b"]


async def test_a_journal_that_changes_rows_of_a_small_file(path: Path) -> None:
    """So is one beside a file that is smaller than any that tableorm makes, because a tool has packed it."""
    connection: Any = apsw.Connection(str(path))
    for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 512", "VACUUM"):
        connection.execute(statement)
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 't1'").get
    connection.close()
    make_journal(path, path.stat().st_size // 512, [(root, struct.pack(">BHHHB", 10, 0, 0, 512, 0).ljust(512))], 512)
    error = await refused(path)

    assert "would change it" in str(error)


@pytest.mark.parametrize("what", ["queue", "container", "key", "table", "message"])
@pytest.mark.parametrize("in_the_log", [False, True])
async def test_a_journal_beside_a_file_without_tables(tmp_path: Path, what: str, in_the_log: bool) -> None:
    """So is one beside a file that has no row of a table yet, but anything else, also if only its log has that."""
    path = tmp_path / "data.tables"
    engine = Engine(path)
    await engine.open()
    if what == "key":
        await engine.access.key()
    elif what == "container":
        await engine.blobs.create_container("container")
    elif what == "table":
        await engine.create_table("Things")
    else:
        await engine.queues.create_queue("queue")
    if what == "message":
        await engine.queues.put("queue", b"message")
    kept = {each: each.read_bytes() for each in (path, path.with_name("data.tables-wal"))}
    await engine.close()
    for each, content in kept.items() if in_the_log else ():
        each.write_bytes(content)
    path.with_name("data.tables-lock").unlink()
    make_journal(path, 0)
    error = await refused(path)

    assert "would change it" in str(error)


@pytest.mark.parametrize("content", [b"", bytes(512)], ids=["empty", "zeros"])
async def test_a_journal_that_changes_nothing(path: Path, content: bytes) -> None:
    """A journal that other programs have left when they were done is no harm."""
    path.with_name(path.name + "-journal").write_bytes(content)

    assert await reads(path) == ["a", "b"]


async def test_a_journal_of_a_crash(tmp_path: Path) -> None:
    """A crash while a file is made leaves one without tables, and a journal; then it is made anew."""
    path = tmp_path / "data.tables"
    engine = Engine(path)
    await engine.open()
    await engine.close()
    size = path.stat().st_size
    make_journal(path, 0)
    await engine.open()
    await engine.create_table("Things")
    assert await engine.list_tables() == ["Things"]
    await engine.close()

    assert path.stat().st_size > size
    assert not path.with_name("data.tables-journal").exists()


@pytest.mark.parametrize("suffix", ["-lock", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize(("mode", "owner"), [(0o600, 4321), (0o600, 0), (0o660, 4321), (0o600, 1234)])
async def test_a_file_of_another_user(
    path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, mode: int, owner: int
) -> None:
    """
    Files that belong to the database must be of its owner, or of root: another user could change it by them. If others
    may write to it anyway, they may be anybody's.
    """
    path.chmod(mode)
    path.with_name(path.name + suffix).touch(0o600)

    def look(name: str) -> os.stat_result | None:
        if not os.path.lexists(name):
            return None
        status = list(os.lstat(name))
        status[4] = owner if name.endswith(suffix) else 1234
        return os.stat_result(status)

    monkeypatch.setattr(files, "_look_at", look)
    if (mode, owner) == (0o600, 4321):
        error = await refused(path)
        assert "another user" in str(error)
        assert repr(str(path) + suffix) in str(error)
    else:
        assert await reads(path) == ["a", "b"]


async def test_a_file_of_another_user_before_there_is_a_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused too where a database is about to be made, which would be the user's own."""
    path.unlink()
    path.with_name(path.name + "-shm").touch()

    def look(name: str) -> os.stat_result | None:
        status = list(os.lstat(name)) if os.path.lexists(name) else None
        return None if status is None else os.stat_result([*status[:4], 4321, *status[5:]])

    monkeypatch.setattr(files, "_look_at", look)
    assert "another user" in str(await refused(path))
    monkeypatch.setattr(os, "geteuid", lambda: 4321, raising=False)
    engine = Engine(path)
    await engine.open()
    await engine.close()
    assert path.exists()
    path.unlink()
    monkeypatch.delattr(os, "geteuid", raising=False)  # without numbers of users, as on Windows, that of all is 0
    assert "another user" in str(await refused(path))
