"""
What `tableorm keys rotate` accepts stays sound: whatever its maker has changed in how a database file describes itself,
a file is refused, or keeps everything that its new owner writes.
"""

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.errors import TableOrmError
from tableorm.stores import Operation, RowQuery, Verb
from tableorm_local.engine import Engine, reclaim
from tableorm_local.engine.damage import find_damage
from tests.security.test_files import craft
from tests.torture import seeds

_ROWS = 40


async def _insert(engine: Engine, table: str, first: int) -> dict[str, str]:
    """Insert rows of several pages together. Return their texts by RowKey."""
    texts = {f"{number:05d}": f"{table} {number} ".ljust(400, "x") for number in range(first, first + _ROWS)}
    rows = [{"PartitionKey": "p", "RowKey": key, "T": text} for key, text in texts.items()]
    await engine.transact(table, [Operation(Verb.INSERT, row) for row in rows])
    return texts


async def _make(path: Path) -> None:
    """Make a file with some of everything, and with tables that are deleted and not freed yet."""
    engine = Engine(path)
    await engine.open()
    for name in ("First", "Second", "Third", "Gone", "Empty", "Last"):
        await engine.create_table(name)
        if name != "Empty":
            await _insert(engine, name, 0)
    for name in ("work", "other"):
        await engine.queues.create_queue(name)
        await engine.queues.put(name, b"message")
        await engine.blobs.create_container(name)
        await engine.blobs.append(name, "blob", b"data")
    await engine.access.key()
    for name in ("Gone", "Empty"):
        await engine.delete_table(name)
    await engine.close()


# What is put into a column of the schema: something else than is there, or the same of another table.
_VALUES = (
    "upper({0})",
    "lower({0})",
    "CAST({0} AS BLOB)",
    "CAST(CAST({0} AS BLOB) AS TEXT)",
    "{0} || ' '",
    "{0} || char(0)",
    "{0} || x'00'",
    "' ' || {0}",
    "NULL",
    "''",
    "0",
    "1",
    "{0} + 1",
    "{0} + 0.5",
    "-{0}",
    "(SELECT {0} FROM sqlite_schema WHERE name = '{1}')",
    "(SELECT CAST({0} AS BLOB) FROM sqlite_schema WHERE name = '{1}')",
    "(SELECT upper({0}) FROM sqlite_schema WHERE name = '{1}')",
    "replace({0}, 'gone_', 't')",
    "replace({0}, 't', 'gone_')",
    "replace({0}, '1', '2')",
)
# The numbers of the head of a file, each of four bytes: of free pages, the schema, sizes, the encoding, a vacuum.
_HEAD = range(16, 100, 4)


def _change(path: Path, chance: random.Random) -> None:
    """Change a setting of the file, its head, a number that it has given, or a part of what describes a table."""
    connection: Any = apsw.Connection(str(path))
    sql = "SELECT CAST(name AS TEXT) FROM sqlite_schema WHERE name <> '' ORDER BY rowid"
    names = [name for (name,) in connection.execute(sql)]
    connection.close()
    rows = [name for name in names if name[0] == "t" or name.startswith("gone_")]
    name, other = (chance.choice(chance.choice([rows, names])) for _ in range(2))
    column = chance.choice(["type", "name", "tbl_name", "tbl_name", "rootpage", "rootpage", "rootpage", "sql"])
    match chance.randrange(9):
        case 0:
            pragma = chance.choice(["auto_vacuum = FULL", "auto_vacuum = INCREMENTAL", "page_size = 512"])
            craft(path, "PRAGMA journal_mode = DELETE", f"PRAGMA {pragma}", "VACUUM")
        case 1:
            with path.open("r+b") as file:
                file.seek(chance.choice(_HEAD))
                old = int.from_bytes(file.read(4))
                file.seek(-4, 1)
                file.write(chance.choice([old + 1, max(0, old - 1), chance.randrange(5)]).to_bytes(4))
        case 2:
            table, number = chance.choice(["catalog", "queues", "messages", "containers"]), chance.choice([0, 3, 2**62])
            craft(path, f"UPDATE sqlite_sequence SET seq = {number} WHERE name = '{table}'")
        case 3:
            copied = f"INSERT INTO sqlite_schema SELECT type, {{}} FROM sqlite_schema WHERE name = '{name}'"
            craft(path, copied.format(f"'{other}', tbl_name, rootpage, sql"))
        case _:
            value = chance.choice(_VALUES).format(column, other)
            craft(path, f"UPDATE sqlite_schema SET {column} = {value} WHERE name = '{name}'")


async def _read(engine: Engine) -> dict[str, Any]:
    """Return all rows of all tables, and all blobs and messages."""
    found: dict[str, Any] = {}
    for table in await engine.list_tables():
        token, rows = None, dict[str, str]()
        while True:
            page = await engine.query(table, RowQuery(), 1000, token)
            rows |= {row["RowKey"]: row["T"] for row in page.rows}
            if (token := page.continuation) is None:
                break
        found[table] = rows
    for container in await engine.blobs.list_containers():
        for blob in (await engine.blobs.list_blobs(container)).blobs:
            found[f"{container}/{blob.name}"] = await engine.blobs.read(container, blob.name)
    for queue in await engine.queues.list_queues():
        found[f"{queue}?"] = sorted(message.body for message in await engine.queues.peek(queue, 32))
    return found


async def _live(engine: Engine, held: dict[str, Any], chance: random.Random, turn: int) -> None:
    """Use the file as any program does, and note in `held` what it must hold."""
    tables = [name for name in held if name.isalnum()]
    match chance.randrange(4):
        case 0 if tables:
            name = chance.choice(tables)
            await engine.delete_table(name)
            del held[name]
        case 1:
            for name in (f"New{turn}a", f"New{turn}b"):
                await engine.create_table(name)
                held[name] = await _insert(engine, name, turn * _ROWS)
        case 2:
            await engine.blobs.append("work", "blob", b"more")
            held["work/blob"] += b"more"
            await engine.queues.put("work", b"z%d" % turn)
            held["work?"].append(b"z%d" % turn)
        case _ if tables:
            name = chance.choice(tables)
            held[name] |= await _insert(engine, name, turn * _ROWS)
        case _:
            pass


async def _wait_until_freed(engine: Engine) -> None:
    """Wait until no deleted table is left."""
    left = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'gone_*'"
    async with asyncio.timeout(60):
        while await engine.read(lambda connection: connection.execute(left).get):  # noqa: ASYNC110 - it happens in the background
            await asyncio.sleep(0.001)


@seeds(12, 3000)
async def test_what_is_accepted_stays_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """
    A file is changed in a way that leaves its rows as they are. If the check of the whole file finds nothing wrong, all
    that is in it is there after tables were made and deleted, and the file was opened again; and it passes once more.
    """
    chance, path = random.Random(seed), tmp_path / "data.tables"
    with monkeypatch.context() as patch:
        patch.setattr(reclaim, "_RECLAIMERS", ())
        await _make(path)
    with contextlib.suppress(apsw.Error):  # SQLite refuses to read what was made before
        for _ in range(chance.choice([1, 1, 2])):
            _change(path, chance)
    engine = Engine(path, timeout=1.0)
    try:
        await engine.open()
    except TableOrmError:
        return
    sound = await engine.read(find_damage) is None
    held = await _read(engine) if sound else {}
    for turn in range(1, 6) if sound else ():
        await _live(engine, held, chance, turn)
        await _wait_until_freed(engine)
        await engine.close()
        await engine.open()
        await _wait_until_freed(engine)
        assert await _read(engine) == held
        assert await engine.read(find_damage) is None
    await engine.close()
