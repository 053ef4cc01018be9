"""
Backups: a copy of one moment while programs write, which has its name when it is whole and in order.
"""

import asyncio
import stat
from pathlib import Path

import pytest

from tableorm import NotSupported, PropertyBag, Unavailable, connect
from tableorm.stores import Bounds, Operation, RowQuery, Verb
from tableorm_local import back_up
from tests.commandline import run_command
from tests.local.engine.rows import change_file

PAIRS = 40


def pair(number: int) -> list[Operation]:
    """A transaction that changes two rows alike."""
    keys = ("a", "b") if number % 2 else ("b", "a")
    return [
        Operation(
            Verb.INSERT_OR_REPLACE,
            {"PartitionKey": f"p{number % PAIRS}", "RowKey": key, "n": number, "text": "x" * 500},
        )
        for key in keys
    ]


async def test_a_copy_of_one_moment(tmp_path: Path) -> None:
    """Writers go on, and each copy has all of a transaction or nothing; what was written before is in it."""
    path, over = tmp_path / "live.tables", asyncio.Event()
    async with connect(f"local:{path}") as db:
        await db.create_tables("Pairs")
        await db.queues.create_queue("work")
        await db.blobs.create_container("files")
        await db.blobs.put("files", "one", b"content")

        async def write(start: int) -> int:
            number = start
            while not over.is_set():
                await db.store.transact("Pairs", pair(number))
                number += 4
            return number

        writers = [asyncio.create_task(write(start)) for start in range(4)]
        for number in range(3):
            await db.insert(PropertyBag("Pairs", "before", str(number)))
            await back_up(path, tmp_path / f"copy{number}.tables")
        over.set()
        assert min([await writer for writer in writers]) > 8

    for number in range(3):
        copy = tmp_path / f"copy{number}.tables"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        async with connect(f"local:{copy}") as db:
            page = await db.store.query("Pairs", RowQuery(Bounds("p")), 1000)
            found = [(row["PartitionKey"], row["n"]) for row in page.rows]
            assert found[::2] == found[1::2]
            before = await db.select_raw("Pairs").where("PartitionKey eq 'before'").all()
            assert len(before) == number + 1
            assert await db.blobs.read("files", "one") == b"content"
        assert (await asyncio.to_thread(run_command, "check", str(copy))).returncode == 0


async def make(path: Path) -> None:
    async with connect(f"local:{path}") as db:
        await db.create_tables("Pairs")
        for number in range(PAIRS):
            await db.store.transact("Pairs", pair(number))


def test_the_command(tmp_path: Path) -> None:
    """It says what it has made; another file is replaced only if that is said; nothing is left over after a refusal."""
    path, copy = tmp_path / "live.tables", tmp_path / "copy.tables"
    asyncio.run(make(path))

    assert run_command("backup", str(path), str(copy)).stdout == f"{copy} is a copy of {path}, and in order\n"
    refused = run_command("backup", str(path), str(copy))
    assert (refused.returncode, "the file already exists" in refused.stderr) == (1, True)
    assert run_command("backup", str(path), str(copy), "--overwrite").returncode == 0
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


async def test_a_damaged_file(tmp_path: Path) -> None:
    """What cannot be read, or is another program's, is rejected: no copy that is not in order gets its name."""
    path, copy = tmp_path / "live.tables", tmp_path / "copy.tables"
    await make(path)
    change_file(path, "UPDATE t1 SET body = x'00' WHERE key = (SELECT min(key) FROM t1)")
    with pytest.raises(Unavailable, match="is damaged, and was deleted: a row of the table 'Pairs'"):
        await back_up(path, copy)
    other = tmp_path / "other.db"
    change_file(other, "CREATE TABLE x (y)")
    with pytest.raises(NotSupported, match="another program"):
        await back_up(other, copy)

    assert sorted(each.suffix for each in tmp_path.iterdir() if "copy" in each.name) == []  # noqa: ASYNC240
