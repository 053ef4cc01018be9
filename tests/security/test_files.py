"""
Database files made by somebody else: they run nothing, reach no other file, and cannot make the engine hang.
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

from tableorm.errors import NotSupported, TableOrmError
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filters import Compare, Op, constant
from tableorm.stores import Bounds, Operation, Row, RowQuery, Verb
from tableorm_local.engine import Engine, catalog
from tableorm_local.engine.sqlite import connect
from tableorm_local.engine.write_session import WriteSession
from tableorm_local.engine.writer_lock import WriterLock
from tests.torture import seeds

_SECONDS = 20  # so that what hangs fails
# In the year 9018, in units of 100 ns.
_LAST_TICK = 9_000 * 366 * 86_400 * 10_000_000


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database with the table "Things", which has two rows, in a folder of its own."""
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "data.tables"
    engine = Engine(path)
    await engine.open()
    await engine.create_table("Things")
    for name in ("a", "b"):
        await engine.write("Things", Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": name, "N": 1}))
    await engine.close()
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
    engine = Engine(path)
    async with asyncio.timeout(_SECONDS):
        await engine.open()
        found: list[str] = [each["RowKey"] for each in (await engine.query("Things", RowQuery())).rows]
        await engine.close()
    return found


async def test_a_name_is_not_run_as_sql(path: Path, tmp_path: Path) -> None:
    """A table whose name goes on with statements is refused, and none of them is run."""
    stolen = tmp_path / "stolen"
    craft(path, f"""CREATE TABLE "gone_x; COMMIT; VACUUM INTO '{stolen}'; BEGIN; SELECT * FROM t1" (key)""")
    engine = Engine(path)
    error: TableOrmError | None = None
    try:
        await engine.open()
    except TableOrmError as caught:
        error = caught
    else:
        await asyncio.sleep(0.2)
        await engine.close()

    assert not stolen.exists()
    assert error is not None
    assert isinstance(error, NotSupported)


_FOREIGN = {
    "a view": "CREATE VIEW mine AS SELECT * FROM clock",
    "a trigger": "CREATE TRIGGER mine AFTER INSERT ON t1 BEGIN DELETE FROM clock; END",
    "a virtual table": "CREATE VIRTUAL TABLE mine USING fts5(x)",
    "a table": "CREATE TABLE mine (x)",
    "an index": "CREATE INDEX mine ON t1 (ts)",
    "an index by an expression": "CREATE INDEX mine ON t1 (abs(ts))",
    "a partial index": "CREATE INDEX mine ON t1 (ts) WHERE ts > 5",
    "statistics": "ANALYZE",
    "a column more": "ALTER TABLE t1 ADD COLUMN mine TEXT",
    "a generated column": "ALTER TABLE t1 ADD COLUMN mine TEXT AS (upper(body))",
    "a default": (
        "UPDATE sqlite_schema SET sql = replace(sql, 'name TEXT NOT NULL', 'name TEXT NOT NULL DEFAULT (upper(1))') "
        "WHERE name = 'catalog'"
    ),
    "a deleted table of another form": "CREATE TABLE gone_7 (key)",
    "a table of rows of another form": "CREATE TABLE t7 (key, body)",
    "a table of rows with a constraint": (
        "CREATE TABLE t7 (key BLOB PRIMARY KEY, ts INTEGER NOT NULL, body BLOB NOT NULL CHECK (length(body) > 1)) "
        "WITHOUT ROWID, STRICT"
    ),
    "a table of rows that sorts otherwise": (
        "CREATE TABLE t7 (key BLOB PRIMARY KEY COLLATE nocase, ts INTEGER NOT NULL, body BLOB NOT NULL) "
        "WITHOUT ROWID, STRICT"
    ),
    "a table without a number": (
        "CREATE TABLE t01 (key BLOB PRIMARY KEY, ts INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID, STRICT"
    ),
    "a table that is missing": "DROP TABLE settings",
    "an index that is missing": "DROP INDEX messages_by_time",
}


@pytest.mark.parametrize("statement", _FOREIGN.values(), ids=_FOREIGN)
async def test_another_schema(path: Path, statement: str) -> None:
    """A file that holds anything that this version does not make, or lacks something, is refused and not touched."""
    craft(path, statement)
    error = await refused(path)

    assert isinstance(error, NotSupported)
    assert str(error).startswith(f"{str(path)!r} has another schema than tableorm makes: it ")


async def test_another_schema_in_the_log(path: Path) -> None:
    """What is in the log counts as what is in the file, and is not moved there. Of an empty log nothing is left."""
    writer: Any = apsw.Connection(str(path))
    writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    writer.execute("CREATE VIEW mine AS SELECT 1")
    writer.close()
    assert path.with_name("data.tables-wal").stat().st_size > 0
    before = path.read_bytes(), path.with_name("data.tables-wal").read_bytes()
    with pytest.raises(TableOrmError, match="schema"):
        await Engine(path).open()

    assert (path.read_bytes(), path.with_name("data.tables-wal").read_bytes()) == before
    craft(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    path.with_name("data.tables-wal").touch()
    with pytest.raises(TableOrmError, match="schema"):
        await Engine(path).open()
    assert [each.name for each in path.parent.iterdir()] == ["data.tables"]


@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_a_view_named_catalog(path: Path, mode: str) -> None:
    """A view without end in the place of the catalog does not make `open` hang; it is refused."""
    craft(
        path,
        f"PRAGMA journal_mode = {mode}",
        "DROP TABLE catalog",
        "CREATE VIEW catalog AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
        "SELECT id, 'a' AS folded, 'a' AS name FROM n",
    )

    assert isinstance(await refused(path), NotSupported)


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


@pytest.mark.parametrize("suffix", ["-lock", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
async def test_what_lies_beside_the_file(path: Path, tmp_path: Path, suffix: str, kind: str) -> None:
    """A link, pipe or folder with the name of a file that belongs to the database is refused, and not followed."""
    beside, victim = path.with_name(path.name + suffix), tmp_path / "victim"
    if kind == "link":
        victim.write_bytes(b"precious")
    if "link" in kind:
        beside.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(beside)
    else:
        beside.mkdir()
    async with asyncio.timeout(_SECONDS):
        with pytest.raises(TableOrmError, match="not a regular file") as caught:
            await Engine(path).open()

    assert repr(str(beside)) in str(caught.value)
    assert victim.exists() is (kind == "link")
    assert kind != "link" or victim.read_bytes() == b"precious"


@pytest.mark.parametrize("suffix", ["-lock", "-wal", "-shm", "-journal"])
async def test_a_file_of_two_names_beside_the_file(path: Path, tmp_path: Path, suffix: str) -> None:
    """A file of the database that has another name elsewhere is refused: what is written would appear there too."""
    beside, victim = path.with_name(path.name + suffix), tmp_path / "victim"
    victim.write_bytes(b"precious" * 1000)
    beside.hardlink_to(victim)
    error = await refused(path)

    assert str(error) == (
        f"{str(beside)!r} has another name (a hard link), and what {str(path)!r} writes would appear there; replace it "
        "by a copy of itself."
    )


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
    """A journal may name another file as the one above it, for SQLite to read and delete; it is refused."""
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


async def test_a_catalog_without_end(path: Path) -> None:
    """Pages of the catalog that lead to the same page again and again are damage, not an endless list."""
    craft(path, *(f"INSERT INTO catalog (folded, name) VALUES ('x{n}', 'x{n}')" for n in range(3)))
    connection: Any = apsw.Connection(str(path))
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_catalog_1'").get
    connection.close()
    content = bytearray(path.read_bytes())
    size, count = 8192, 500
    cells = [len(content) // size + number for number in range(1, 7)]
    leaf = bytes(content[(root - 1) * size : root * size])
    for page, child in zip([root, *cells[:-1]], cells, strict=True):
        cell = struct.pack(">I", child) + bytes([5, 3, 15, 1]) + b"x" + b"\x01"
        head = struct.pack(">BHHHBI", 2, 0, count, size - len(cell), 0, child)
        made = head + struct.pack(">H", size - len(cell)) * count
        content[(page - 1) * size : page * size] = made.ljust(size - len(cell), b"\0") + cell
    content += leaf
    content[28:32] = struct.pack(">I", len(content) // size)
    path.write_bytes(content)
    error = await refused(path)

    assert str(error).startswith(f"{str(path)!r} is damaged (")


async def test_rows_without_end(path: Path) -> None:
    """Pages of a table that lead to the same page again and again are damage too, and not endless pages of a query."""
    connection: Any = apsw.Connection(str(path))
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 't1'").get
    connection.close()
    content = bytearray(path.read_bytes())
    size, count, last = 8192, 500, len(content) // 8192 + 1
    content += content[(root - 1) * size : root * size]
    record = bytes([4, 18, 1, 26]) + b"p\0c" + bytes([1]) + b'{"N":1}'  # the row ("p", "c")
    cell = struct.pack(">I", last) + bytes([len(record)]) + record
    head = struct.pack(">BHHHBI", 2, 0, count, size - len(cell), 0, last)
    made = head + struct.pack(">H", size - len(cell)) * count
    content[(root - 1) * size : root * size] = made.ljust(size - len(cell), b"\0") + cell
    content[28:32] = struct.pack(">I", last)
    path.write_bytes(content)
    engine = Engine(path)
    await engine.open()

    with pytest.raises(Fault, match="damaged"):
        async with asyncio.timeout(_SECONDS):
            token: str | None = None
            for _ in range(50):
                page = await engine.query("Things", RowQuery(where=Compare("N", Op.EQ, constant(1))), 1, token)
                token = page.continuation
                assert token is not None
    await engine.close()


@pytest.mark.parametrize(
    ("statement", "tick"),
    [
        ("DELETE FROM clock", None),
        ("UPDATE clock SET tick = -1", -1),
        (f"UPDATE clock SET tick = {2**63 - 1}", 2**63 - 1),
        (f"UPDATE clock SET tick = {_LAST_TICK}", _LAST_TICK),
    ],
)
async def test_a_clock_without_time(path: Path, statement: str, tick: int | None) -> None:
    """A clock that is missing, or nearly at the last time that can be written, is damage."""
    craft(path, statement)

    assert str(await refused(path)) == f"{str(path)!r} is damaged (its clock says {tick}); restore it from a backup."


async def test_a_clock_of_the_far_future(path: Path) -> None:
    """A file whose time is just before that, which other clocks have given it, can be opened and written."""
    craft(path, f"UPDATE clock SET tick = {_LAST_TICK - 1}")
    engine = Engine(path)
    await engine.open()
    etag = await engine.write("Things", Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": "c"}))

    assert etag == (await engine.get("Things", "p", "c"))["odata.etag"]
    await engine.close()


@pytest.mark.parametrize("value", ["x'5b5d'", 'CAST(\'{"a": {"b": null}}\' AS BLOB)', "CAST('{\"a\": 5}' AS BLOB)"])
async def test_policies_of_another_form(path: Path, value: str) -> None:
    """A list of policies that the engine has not written is reported as damage."""
    craft(path, f"INSERT INTO settings VALUES (1, 'policies', {value})")
    engine = Engine(path)
    await engine.open()

    with pytest.raises(Fault, match="damaged"):
        await engine.access.policies("Things")
    await engine.close()


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
        engine.write("Things", Operation(Verb.INSERT, new)),
    ]
    *faults, etag = await asyncio.gather(*calls, return_exceptions=True)

    assert [isinstance(fault, Fault) and "damaged" in fault.message for fault in faults] == [True, True, True]
    assert (await engine.get("Things", "p", "c"))["odata.etag"] == etag
    await engine.close()


async def test_a_row_larger_than_any(path: Path) -> None:
    """A row that is many times larger than the engine writes any is not read into memory."""
    change_loosely(path, "UPDATE t1 SET body = CAST('{\"N\":1' || printf('%20000000s', '}') AS BLOB)")
    engine = Engine(path)
    await engine.open()

    for read in (engine.get("Things", "p", "a"), engine.query("Things", RowQuery())):
        with pytest.raises(Fault, match="damaged"):
            await read
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


@pytest.mark.parametrize("statement", _ODD.values(), ids=_ODD)
async def test_values_of_another_kind(path: Path, statement: str) -> None:
    """A stored row of a kind that the engine never writes is not found or reported as damage; nothing else comes."""
    change_loosely(path, statement)
    engine = Engine(path)
    await engine.open()
    small: Row = {"PartitionKey": "p", "RowKey": "a", "M": 1}
    calls: list[Callable[[], Any]] = [
        lambda: engine.get("Things", "p", "a"),
        lambda: engine.get("Things", "p", "a", ("N",)),
        lambda: engine.query("Things", RowQuery()),
        lambda: engine.query("Things", RowQuery(row=Bounds("a", "b"))),
        lambda: engine.query("Things", RowQuery(where=Compare("N", Op.GT, constant(5)))),
        lambda: engine.query("Things", RowQuery(select=("N",))),
        lambda: engine.write("Things", Operation(Verb.MERGE, small, "*")),
        lambda: engine.transact("Things", [Operation(Verb.INSERT_OR_MERGE, small)]),
    ]
    faults: list[Fault] = []
    for call in calls:
        async with asyncio.timeout(_SECONDS):
            try:
                await call()
            except Fault as fault:
                faults.append(fault)
    await engine.close()

    assert {fault.code for fault in faults} <= {Code.INTERNAL_ERROR, Code.RESOURCE_NOT_FOUND}
    assert all("damaged" in fault.message for fault in faults if fault.code == Code.INTERNAL_ERROR)


@seeds(3, 500)
async def test_random_damage(path: Path, seed: int) -> None:
    """Whatever bytes of a file are changed, the engine answers, or says in its own words that it cannot."""
    chance = random.Random(seed)
    engine = Engine(path)
    await engine.open()
    for number in range(150):
        row: Row = {"PartitionKey": "p", "RowKey": f"{number:03d}", "N": number, "T": "x" * (number * 3)}
        await engine.write("Things", Operation(Verb.INSERT, row))
    await engine.create_table("Gone")
    await engine.queues.create_queue("queue")
    await engine.queues.put("queue", b"message")
    await engine.blobs.create_container("container")
    await engine.blobs.put("container", "blob", b"x" * 1000)
    await engine.access.change_policies("Things", lambda _: {"a": None})
    await engine.close()
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
    changed: Row = {"PartitionKey": "p", "RowKey": "007", "M": 1}
    calls: list[Callable[[], Any]] = [
        damaged.open,
        damaged.list_tables,
        lambda: damaged.query("Things", RowQuery()),
        lambda: damaged.query("Things", RowQuery(row=Bounds("010", "020"))),
        lambda: damaged.query("Things", RowQuery(where=Compare("N", Op.GT, constant(5)))),
        lambda: damaged.get("Things", "p", "007"),
        lambda: damaged.write("Things", Operation(Verb.MERGE, changed, "*")),
        lambda: damaged.write("Things", Operation(Verb.INSERT, {"PartitionKey": "q", "RowKey": "new"})),
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
