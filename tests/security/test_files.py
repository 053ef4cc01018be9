"""
Database files made by somebody else: nothing in them is run, and what is damaged is named as damage.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

import asyncio
import contextlib
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.errors import TableOrmError
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filters import Compare, Op, constant
from tableorm.stores import Bounds, Operation, Row, RowQuery, Verb
from tableorm_local.engine import Engine, catalog
from tableorm_local.engine.sqlite import connect
from tableorm_local.engine.write_session import WriteSession
from tableorm_local.engine.writer_lock import WriterLock
from tests.local.engine.conftest import opened
from tests.rows import delete_row, insert_row, merge_row
from tests.torture import seeds

_SECONDS = 20  # so that what hangs fails


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database with the table "Things", which has two rows, in a folder of its own."""
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "data.tables"
    async with opened(path, "Things") as engine:
        for name in ("a", "b"):
            await insert_row(engine, "Things", {"PartitionKey": "p", "RowKey": name, "N": 1})
    (path.parent / "data.tables-lock").unlink()
    return path


def craft(path: Path, *statements: str) -> None:
    """Change a file as somebody does who may write anything into it."""
    connection: Any = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 1)
    for statement in ("PRAGMA writable_schema = ON", *statements):
        connection.execute(statement)
    connection.close()


def change_loosely(path: Path, statement: str) -> None:
    """Change rows of the table as if it had no rules for its values."""
    rules: Any = apsw.Connection(str(path))
    sql: str = rules.execute("SELECT sql FROM sqlite_schema WHERE name = 't1'").get
    rules.close()
    change = "UPDATE sqlite_schema SET sql = '{}' WHERE name = 't1'"
    craft(path, change.format(sql.replace(", STRICT", "").replace(" NOT NULL", "")))
    craft(path, statement)
    craft(path, change.format(sql))


def read_all(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


async def refused(path: Path) -> TableOrmError:
    """The error of opening a file, which must leave it and its folder as they were, byte for byte."""
    before = read_all(path.parent)
    engine = Engine(path, timeout=1.0)
    with pytest.raises(TableOrmError) as caught:
        async with asyncio.timeout(_SECONDS):
            await engine.open()
    assert read_all(path.parent) == before
    assert str(caught.value).startswith((f"'{path}", f"the journal beside '{path}"))
    return caught.value


async def reads(path: Path) -> list[str]:
    """The RowKeys that the engine finds in the file."""
    async with asyncio.timeout(_SECONDS), opened(path) as engine:
        return [each["RowKey"] for each in (await engine.query("Things", RowQuery())).rows]


async def test_a_name_is_not_run_as_sql(path: Path, tmp_path: Path) -> None:
    """Of a table whose name goes on with statements none is run."""
    stolen = tmp_path / "stolen"
    craft(path, f"""CREATE TABLE "gone_x; COMMIT; VACUUM INTO '{stolen}'; BEGIN; SELECT * FROM t1" (key)""")
    async with opened(path, "Other") as engine:
        await engine.delete_table("Other")  # deleted tables are looked for
        await asyncio.sleep(0.2)

    assert not stolen.exists()


@pytest.mark.parametrize("table", ["t1", "clock", "catalog"])
async def test_triggers_are_not_run(path: Path, table: str) -> None:
    """A trigger of the file does nothing when rows are written."""
    for verb in ("INSERT", "UPDATE", "DELETE"):
        craft(path, f"CREATE TRIGGER on_{verb} AFTER {verb} ON {table} BEGIN UPDATE queues SET name = 'fired'; END")
    craft(path, "INSERT INTO queues (name) VALUES ('quiet')")
    async with opened(path, "Other") as engine:
        await insert_row(engine, "Things", {"PartitionKey": "p", "RowKey": "c"})
        await delete_row(engine, "Things", {"PartitionKey": "p", "RowKey": "a"})
        queues = await engine.queues.list_queues()

    assert queues == ["quiet"]
    assert await reads(path) == ["b", "c"]


async def test_a_view_named_catalog(path: Path) -> None:
    """A view without end in the place of the catalog is not read, so that nothing hangs."""
    craft(
        path,
        "DROP TABLE catalog",
        "CREATE VIEW catalog AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
        "SELECT id, 'a' AS folded, 'a' AS name FROM n",
    )
    engine = Engine(path)
    async with asyncio.timeout(_SECONDS):
        await engine.open()
        with pytest.raises(Fault):
            await engine.list_tables()
        await engine.close()


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA page_size = 512",
        "PRAGMA user_version = 1",
    ],
)
async def test_what_a_tool_may_change(path: Path, statement: str) -> None:
    """How pages are laid out is not the schema: a file that a tool has packed anew opens."""
    craft(path, "PRAGMA journal_mode = DELETE", statement, "VACUUM")

    assert await reads(path) == ["a", "b"]


async def test_a_deleted_table_is_named_by_digits_alone(path: Path) -> None:
    """Among the tables only those that the engine itself has renamed are taken for deleted ones."""
    for name in ("gone_", "gone_x", "gone_1x", "gone_1; DROP TABLE t1", "gone_ 1", "gone_-1", 'gone_1"'):
        craft(path, 'CREATE TABLE "{}" (key)'.format(name.replace('"', '""')))
    connection = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    assert not catalog.reclaim(connection, 10)

    list(catalog.drop_table(WriteSession(connection, "data"), "Things"))
    assert catalog.reclaim(connection, 10)
    assert not catalog.reclaim(connection, 10)
    connection.close()


async def test_connections_attach_and_run_nothing(path: Path, tmp_path: Path) -> None:
    """Whatever the schema says, a connection of the engine attaches no file, runs no trigger and reads no view."""
    craft(
        path,
        "CREATE VIEW mine AS SELECT 1",
        "CREATE TRIGGER fires AFTER INSERT ON catalog BEGIN DELETE FROM clock; END",
    )
    connection = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    for statement in (
        f"ATTACH '{tmp_path / 'other'}' AS other",
        f"VACUUM INTO '{tmp_path / 'other'}'",
        "SELECT * FROM mine",
    ):
        with pytest.raises(apsw.Error):
            connection.execute(statement)
    assert connection.execute("PRAGMA trusted_schema").get == 0
    connection.execute("PRAGMA writable_schema = ON")
    with pytest.raises(apsw.Error):
        connection.execute("DELETE FROM sqlite_schema")
    connection.execute("INSERT INTO catalog VALUES (9, 'x', 'x')")
    assert connection.execute("SELECT length(zeroblob(16777216))").get == 16 << 20  # longer than any row
    with pytest.raises(apsw.TooBigError):
        connection.execute("SELECT length(zeroblob(16777217))")

    assert connection.execute("SELECT count(*) FROM clock").get == 1
    assert not (tmp_path / "other").exists()
    connection.close()


async def test_a_database_of_two_names(path: Path, tmp_path: Path) -> None:
    """A database that has another name itself opens: copies of whole folders may be made of hard links."""
    (tmp_path / "copy").hardlink_to(path)

    assert await reads(path) == ["a", "b"]


def test_the_writers_lock_follows_no_link(tmp_path: Path) -> None:
    """A link that is put there after the file was checked is not followed either."""
    (tmp_path / "lock").symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="symbolic link"):
        WriterLock(str(tmp_path / "lock"))
    assert not (tmp_path / "target").exists()


async def test_a_journal_that_names_another_file(path: Path, tmp_path: Path) -> None:
    """A journal may name another file as the one above it, for SQLite to read and delete; it is rejected."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious\0")
    craft(path, "PRAGMA journal_mode = DELETE")
    name = os.fsencode(victim)
    magic = bytes.fromhex("d9d505f920a163d7")
    header = magic + struct.pack(">iIIII", 0, 0, path.stat().st_size // 8192, 512, 8192)
    above = struct.pack(">I", 8192) + name + struct.pack(">Ii", len(name), sum(memoryview(name).cast("b"))) + magic
    for content in (header.ljust(512, b"\0") + above, magic):
        path.with_name(path.name + "-journal").write_bytes(content)
        assert str(await refused(path)) == (
            f"the journal beside {str(path)!r} names another file; restore both, or remove the journal."
        )
    assert victim.read_bytes() == b"precious\0"


@pytest.mark.parametrize("value", ["x'5b5d'", 'CAST(\'{"a": {"b": null}}\' AS BLOB)', "CAST('{\"a\": 5}' AS BLOB)"])
async def test_policies_of_another_form(path: Path, value: str) -> None:
    """A list of policies that the engine has not written is reported as damage."""
    craft(path, f"INSERT INTO settings VALUES (1, 'policies', {value})")
    async with opened(path) as engine:
        with pytest.raises(Fault, match="damaged"):
            await engine.access.policies("Things")


async def test_damage_fails_no_other_write(path: Path) -> None:
    """Writes that go into one transaction with those that find damage are done."""
    change_loosely(path, "UPDATE t1 SET body = x'5b5d'")
    engine = Engine(path)
    await engine.open()
    await engine.blobs.create_container("container")
    await engine.blobs.append("container", "blob", b"x")
    await engine.close()
    craft(path, "UPDATE blobs SET metadata = x'5b5d'")
    await engine.open()
    new: Row = {"PartitionKey": "p", "RowKey": "c"}
    merge = Operation(Verb.MERGE, {"PartitionKey": "p", "RowKey": "a", "M": 1}, "*")
    calls = [
        engine.write("Things", merge),
        engine.blobs.append("container", "blob", b"x"),
        engine.transact("Things", [merge]),
        insert_row(engine, "Things", new),
    ]
    *faults, etag = await asyncio.gather(*calls, return_exceptions=True)

    assert [isinstance(fault, Fault) and "damaged" in fault.message for fault in faults] == [True, True, True]
    assert (await engine.get("Things", "p", "c"))["odata.etag"] == etag
    await engine.close()


_ODD = {
    "a body of text": "UPDATE t1 SET body = 'text'",
    "a number for a body": "UPDATE t1 SET body = 5",
    "a body of null": "UPDATE t1 SET body = NULL",
    "a list": "UPDATE t1 SET body = x'5b5d'",
    "a list in a list, and so on": f"UPDATE t1 SET body = CAST('{{\"N\":{'[' * 9999}' AS BLOB)",
    "no ETag": 'UPDATE t1 SET body = CAST(\'{"PartitionKey":"p","RowKey":"a","N":1}\' AS BLOB)',
    "an unknown type": 'UPDATE t1 SET body = CAST(replace(body, \'"N":\', \'"N@odata.type":"Edm.X","N":\') AS BLOB)',
    "a value that is a list": "UPDATE t1 SET body = CAST(replace(body, '\"N\":1', '\"N\":[]') AS BLOB)",
    "a key of text": "UPDATE t1 SET key = CAST(key AS TEXT)",
    "a key without separator": "UPDATE t1 SET key = x'7080' || substr(key, 3)",
}


def calls_of_rows(engine: Engine, key: str) -> list[Callable[[], Any]]:
    """Return calls that read, find and write the row of a key, and rows behind it."""
    small: Row = {"PartitionKey": "p", "RowKey": key, "M": 1}
    return [
        lambda: engine.get("Things", "p", key),
        lambda: engine.get("Things", "p", key, ("N",)),
        lambda: engine.query("Things", RowQuery()),
        lambda: engine.query("Things", RowQuery(row=Bounds(key, key + "9"))),
        lambda: engine.query("Things", RowQuery(where=Compare("N", Op.GT, constant(5)))),
        lambda: engine.query("Things", RowQuery(select=("N",))),
        lambda: merge_row(engine, "Things", small),
        lambda: engine.transact("Things", [Operation(Verb.INSERT_OR_MERGE, small)]),
    ]


@pytest.mark.parametrize("statement", _ODD.values(), ids=_ODD)
async def test_values_of_another_kind(path: Path, statement: str) -> None:
    """A stored row of a kind that the engine never writes is not found or reported as damage; nothing else comes."""
    change_loosely(path, statement)
    async with opened(path) as engine:
        faults: list[Fault] = []
        for call in calls_of_rows(engine, "a"):
            async with asyncio.timeout(_SECONDS):
                try:
                    await call()
                except Fault as fault:
                    faults.append(fault)

    assert {fault.code for fault in faults} <= {Code.INTERNAL_ERROR, Code.RESOURCE_NOT_FOUND}
    assert all("damaged" in fault.message for fault in faults if fault.code == Code.INTERNAL_ERROR)


async def fill_others(engine: Engine, size: int) -> None:
    """Write what is no row: a message, a blob and settings."""
    await engine.queues.create_queue("queue")
    await engine.queues.put("queue", b"message")
    await engine.blobs.create_container("container")
    await engine.blobs.put("container", "blob", b"x" * size)
    await engine.access.change_policies("Things", lambda _: {"a": None})


@seeds(1, 500)
async def test_random_damage(path: Path, seed: int) -> None:
    """Whatever bytes of a file are changed, the engine answers, or says in its own words that it cannot."""
    chance = random.Random(seed)
    async with opened(path) as engine:
        for number in range(150):
            row: Row = {"PartitionKey": "p", "RowKey": f"{number:03d}", "N": number, "T": "x" * (number * 3)}
            await insert_row(engine, "Things", row)
        await engine.create_table("Gone")
        await fill_others(engine, 1000)
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 3, 30])):
        at = chance.randrange(100, len(content))
        match chance.randrange(3):
            case 0:
                content[at] = chance.randrange(256)
            case 1:
                page, other = at // 8192, chance.randrange(len(content) // 8192)
                content[page * 8192 + 100 : page * 8192 + 8192] = content[other * 8192 + 100 : other * 8192 + 8192]
            case _:
                at -= at % 8192
                at += 100 if at == 0 else 0
                content[at : at + 12] = chance.randbytes(12)
    path.write_bytes(content)
    damaged = Engine(path, timeout=1.0)
    calls: list[Callable[[], Any]] = [
        damaged.open,
        damaged.list_tables,
        *calls_of_rows(damaged, "007"),
        lambda: insert_row(damaged, "Things", {"PartitionKey": "q", "RowKey": "new"}),
        lambda: damaged.queues.take("queue"),
        lambda: damaged.queues.put("queue", b"other"),
        lambda: damaged.blobs.read("container", "blob"),
        lambda: damaged.blobs.append("container", "other", b"y"),
        lambda: damaged.access.policies("Things"),
        lambda: damaged.delete_table("Gone"),
        lambda: damaged.create_table("Another"),
        damaged.close,
    ]
    async with asyncio.timeout(_SECONDS):
        for call in calls:
            with contextlib.suppress(Fault, TableOrmError):
                await call()
