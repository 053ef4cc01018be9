"""
Database files made by somebody else whose parts contradict each other: schemas that are no text, pages that belong to
two tables, indexes that say something else than their tables.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

import asyncio
import struct
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.protocol.codes import Fault
from tableorm.stores import Operation, RowQuery, Verb
from tableorm_local.engine import Engine, blob_contents, engine
from tableorm_local.engine.sqlite import connect
from tests.commandline import run_command
from tests.security.test_files import craft, path, refused

__all__ = ["path"]

_NO_TEXT = "CAST(x'7a7aff51' AS TEXT)"  # not UTF-8
_ROWS = "(key BLOB PRIMARY KEY, ts INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID, STRICT"
_UNDECODABLE = {
    "a name that is no UTF-8": (
        "CREATE TABLE zz (key)",
        f"UPDATE sqlite_schema SET name = {_NO_TEXT}, tbl_name = {_NO_TEXT} WHERE name = 'zz'",
    ),
    "a comment that is no UTF-8": (
        "UPDATE sqlite_schema SET sql = sql || CAST(x'2f2aff2a2f' AS TEXT) WHERE name = 't1'",
    ),
    "a name that is bytes": ("UPDATE sqlite_schema SET name = CAST(name AS BLOB) WHERE name = 't1'",),
    "a number of too many digits": (f'CREATE TABLE "gone_{"1" * 5000}" {_ROWS}',),
}


@pytest.mark.parametrize("statements", _UNDECODABLE.values(), ids=_UNDECODABLE)
async def test_a_schema_of_odd_names(path: Path, statements: tuple[str, ...]) -> None:
    """A schema that cannot be decoded, or has names that the engine never makes, is refused, and `open` ends."""
    craft(path, *statements)
    await refused(path)


@pytest.mark.parametrize("error", [MemoryError("all of it"), AssertionError("a mistake of ours")])
async def test_open_raises_whatever_goes_wrong(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """What is raised in the thread that opens the file is raised by `open`, which does not wait for ever."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(engine, "open_file", fail)
    with pytest.raises(type(error), match=str(error)):
        async with asyncio.timeout(5):
            await Engine(path).open()


def _query(path: Path, statement: str) -> Any:
    connection: Any = apsw.Connection(str(path))
    found = connection.execute(statement).get
    connection.close()
    return found


async def _sees(path: Path, public: str) -> bool:
    """Whether a row that is written to "Secrets", made if it is missing, shows in another table."""
    opened = Engine(path, timeout=1.0)
    await opened.open()
    if not await opened.has_table("Secrets"):
        await opened.create_table("Secrets")
    await opened.write("Secrets", Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": "s", "V": "secret"}))
    try:
        return "secret" in [row.get("V") for row in (await opened.query(public, RowQuery())).rows]
    except Fault:
        return False
    finally:
        await opened.close()


async def _share_a_table(path: Path) -> None:
    """Make the table "Things" one with the table "Secrets"."""
    opened = Engine(path)
    await opened.open()
    await opened.create_table("Secrets")
    await opened.close()
    root = _query(path, "SELECT rootpage FROM sqlite_schema WHERE name = 't2'")
    craft(path, f"UPDATE sqlite_schema SET rootpage = {root} WHERE name = 't1'")


async def _share_a_free_page(path: Path) -> None:
    """Make the table "Things" begin at a page that is free, and that the next table gets."""
    craft(path, "CREATE TABLE gap1 (x)", "CREATE TABLE gap2 (x)", "DROP TABLE gap1", "DROP TABLE gap2")
    with path.open("r+b") as file:
        header = file.read(100)
        size, trunk = int.from_bytes(header[16:18], "big"), int.from_bytes(header[32:36], "big")
        file.seek((trunk - 1) * size)
        _, count, leaf = struct.unpack(">III", file.read(12))
        assert count == 1
        file.seek((leaf - 1) * size)
        file.write(struct.pack(">BHHHB", 10, 0, 0, size, 0))
    craft(path, f"UPDATE sqlite_schema SET rootpage = {leaf} WHERE name = 't1'")


async def test_a_table_that_is_another(path: Path) -> None:
    """A file in which two tables begin at one page is refused: what is written to one would be read in the other."""
    await _share_a_table(path)
    error = await refused(path)

    problem = "the table 't2' does not begin at a page of its own"
    assert str(error) == f"{str(path)!r} is damaged ({problem}); restore it from a backup."


async def test_writes_beside_a_damaged_page(path: Path) -> None:
    """A write that meets a damaged page, at which SQLite ends the transaction, fails alone: those with it are done."""
    opened = Engine(path)
    await opened.open()
    await opened.create_table("Whole")
    await opened.close()
    root = _query(path, "SELECT rootpage FROM sqlite_schema WHERE name = 't1'")
    with path.open("r+b") as file:
        file.seek((root - 1) * 8192)
        file.write(b"\xa5" * 8192)
    await opened.open()
    rows = [Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": f"new{number}"}) for number in range(20)]
    asked = [opened.write(table, row) for row in rows for table in ("Whole", "Things")]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    stored = (await opened.query("Whole", RowQuery())).rows
    await opened.close()

    assert sorted(row["odata.etag"] for row in stored) == sorted(map(str, outcomes[::2]))
    assert len(stored) == 20
    assert all("damaged" in str(outcome) for outcome in outcomes[1::2])


async def test_rotating_the_key_checks_every_page(path: Path) -> None:
    """
    `tableorm keys rotate`, for files that others gave you, refuses one in which a table begins at a page that is free:
    the rows of the next table would be read in it. Opening alone does not find that.
    """
    await _share_a_free_page(path)
    before = path.read_bytes()
    done = await asyncio.to_thread(run_command, "keys", "rotate", str(path))

    assert (done.returncode, done.stdout) == (1, "")
    assert "is damaged" in done.stderr
    assert "Restore it from a backup" in done.stderr
    assert path.read_bytes() == before
    assert await _sees(path, "Things")


def _make_phantom(path: Path, index: str, table: str, values: str) -> None:
    """Put a row with the id 5 into an index of a table, but not into the table."""
    kept = f"type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = '{index}'"
    craft(path, f"INSERT INTO {table} VALUES (5, {values})")
    craft(path, f"CREATE TABLE aside AS SELECT {kept}", f"DELETE FROM sqlite_schema WHERE name = '{index}'")
    restore = "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) SELECT * FROM aside"
    craft(path, f"DELETE FROM {table} WHERE id = 5", restore)
    craft(path, "DROP TABLE aside")


async def test_rotating_the_key_compares_indexes(path: Path) -> None:
    """It refuses also a file in which an index says something else than its table."""
    _make_phantom(path, "chunks_by_place", "chunks", "7, 0, x'00'")
    done = await asyncio.to_thread(run_command, "keys", "rotate", str(path))

    assert (done.returncode, done.stdout) == (1, "")
    assert "chunks_by_place" in done.stderr


_WAITING = {
    "messages": "INSERT INTO messages VALUES (1, 1, 0, NULL, 1, 0, 0, x'78')",
    "blobs": "INSERT INTO blobs VALUES (1, 'blob', 77, 4, 5, NULL, CAST('{}' AS BLOB))",
    "settings": "INSERT INTO settings VALUES (2, 'policies', CAST('{}' AS BLOB))",
}


@pytest.mark.parametrize("what", _WAITING)
async def test_rotating_the_key_finds_what_waits_for_an_owner(path: Path, what: str) -> None:
    """
    It refuses also a file in which messages, blobs or settings are of a queue, container or table that is yet to be
    made: they are listed nowhere, and the next one that is made would have them.
    """
    craft(path, _WAITING[what])
    done = await asyncio.to_thread(run_command, "keys", "rotate", str(path))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"it holds {what} of a " in done.stderr


async def test_rotating_the_key_of_a_file_with_everything(path: Path) -> None:
    """A file with messages, blobs and settings of its own passes, also where some are deleted."""
    opened = Engine(path)
    await opened.open()
    for name in ("first", "second"):
        await opened.create_table(name)
        await opened.settings.put("cors", b"[]", name)
        await opened.queues.create_queue(name)
        await opened.queues.put(name, b"x")
        await opened.blobs.create_container(name)
        await opened.blobs.append(name, "blob", b"x")
    await opened.settings.put("cors", b"[]")
    await opened.delete_table("first")
    await opened.queues.delete_queue("first")
    await opened.blobs.delete_container("first")
    await opened.close()
    done = await asyncio.to_thread(run_command, "keys", "rotate", str(path))

    assert (done.returncode, done.stderr) == (0, "")


async def test_an_index_of_the_catalog_that_says_something_else(path: Path) -> None:
    """A file is refused in which the index of the names leads to another table than the catalog, or to one to come."""
    opened = Engine(path)
    await opened.open()
    await opened.create_table("Public")  # number 2
    await opened.close()
    page = _query(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_catalog_1'")
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
        file.seek((page - 1) * size)
        content = file.read(size)
        assert content.count(b"public\x02") == 1
        file.seek((page - 1) * size)
        file.write(content.replace(b"public\x02", b"public\x03"))
    error = await refused(path)

    assert str(error).startswith(f"{str(path)!r} is damaged (")
    assert "sqlite_autoindex_catalog_1" in str(error)


async def test_a_deleted_content_that_is_not_there(path: Path) -> None:
    """An index that names a content to delete, which is not there, does not make the engine write again and again."""
    _make_phantom(path, "contents_by_end", "contents", "1")
    connection = connect(str(path), apsw.SQLITE_OPEN_READWRITE)

    assert not blob_contents.reclaim(connection, 10)
    connection.close()
