"""
Database files made by somebody else whose pages lead in a circle, in places that are read before or beside the checks:
every statement ends.
"""

import asyncio
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.errors import Unavailable
from tableorm.protocol.codes import Fault
from tableorm_local.engine import Engine, blobs, catalog, files, reclaim, sqlite
from tableorm_local.engine.sqlite import Connection, connect
from tableorm_local.engine.write_session import Work
from tests.security.test_files import craft, path, refused

__all__ = ["path"]

_SIZE = 8192
_DEPTH, _COUNT = 6, 500  # 500 ** 6 visits of one leaf: no end
_MAX_STEPS = 200_000


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow statements fewer steps than usual, and end what takes many more all the same."""
    monkeypatch.setattr(sqlite, "_MAX_STEPS", _MAX_STEPS, raising=False)
    monkeypatch.setattr(sqlite, "_COUNTED_STEPS", _MAX_STEPS // 10, raising=False)

    def connect_with_end(name: str, flags: int) -> Connection:
        connection: Any = connect(name, flags)
        called = list[None]()

        def end() -> bool:
            called.append(None)
            if len(called) > 200:
                pytest.fail("a statement does not end by itself")
            return False

        connection.set_progress_handler(end, _MAX_STEPS // 10, id="test")
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(files, "connect", connect_with_end)


def _make_number(value: int) -> bytes:
    """Return a number as SQLite stores it in records."""
    out = [value & 127]
    while value := value >> 7:
        out.append(value & 127 | 128)
    return bytes(reversed(out))


def _make_table_page(children: list[tuple[int, int]], right: int, base: int = 0) -> bytearray:
    """Return an interior page of a table with cells for (page, how often)."""
    page, places, top = bytearray(_SIZE), list[int](), _SIZE
    for child, count in children:
        cell = struct.pack(">I", child) + _make_number(100)
        top -= len(cell)
        page[top : top + len(cell)] = cell
        places += [top] * count
    page[base : base + 12] = struct.pack(">BHHHBI", 5, 0, len(places), top, 0, right)
    for n, place in enumerate(places):
        page[base + 12 + 2 * n : base + 14 + 2 * n] = struct.pack(">H", place)
    return page


def _find_root(path: Path, name: str) -> int:
    connection: Any = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = DELETE")
    root: int = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
    connection.close()
    return root


def _write_pages(path: Path, content: bytearray) -> None:
    content[28:32] = struct.pack(">I", len(content) // _SIZE)
    path.write_bytes(content)


def _make_schema_endless(path: Path) -> None:
    """Let the schema be the one of tableorm, followed by one of its own lines again and again."""
    craft(path, "PRAGMA journal_mode = DELETE")
    content = bytearray(path.read_bytes())
    last, first = len(content) // _SIZE, bytes(content[:_SIZE])
    (count,) = struct.unpack(">H", first[103:105])
    leaf = bytearray(first)
    leaf[: 8 + 2 * count] = first[100 : 108 + 2 * count]
    values = [b"index", b"sqlite_autoindex_catalog_1", b"catalog"]
    head = b"".join(_make_number(13 + 2 * len(each)) for each in values) + b"\1\0"
    record = bytes([len(head) + 1]) + head + b"".join(values) + b"\4"
    cell = _make_number(len(record)) + _make_number(101) + record
    again = bytearray(_SIZE)
    again[_SIZE - len(cell) :] = cell
    again[:10] = struct.pack(">BHHHBH", 13, 0, 1, _SIZE - len(cell), 0, _SIZE - len(cell))
    chain = [last + 3 + n for n in range(_DEPTH)]
    pages = [leaf, again]
    pages += [_make_table_page([(child, _COUNT)], child) for child in [*chain[1:], last + 2]]
    content[:_SIZE] = _make_table_page([(last + 1, 1), (chain[0], _COUNT)], chain[0], base=100)
    content[:100] = first[:100]
    _write_pages(path, content + b"".join(pages))


def _make_table_endless(path: Path, name: str) -> None:
    """Let a table of one page have that page again and again."""
    root = _find_root(path, name)
    content = bytearray(path.read_bytes())
    last, leaf = len(content) // _SIZE, bytes(content[(root - 1) * _SIZE : root * _SIZE])
    chain = [last + 2 + n for n in range(_DEPTH)]
    pages = [_make_table_page([(child, _COUNT)], child) for child in [*chain[1:], last + 1]]
    content[(root - 1) * _SIZE : root * _SIZE] = _make_table_page([(chain[0], _COUNT)], chain[0])
    _write_pages(path, content + leaf + b"".join(pages))


def _make_index_endless(path: Path, name: str) -> None:
    """Let an index have its first entry again and again."""
    root = _find_root(path, name)
    content = bytearray(path.read_bytes())
    leaf = bytes(content[(root - 1) * _SIZE : root * _SIZE])
    (top,) = struct.unpack(">H", leaf[8:10])
    payload = leaf[top : top + leaf[top] + 1]
    chain = [len(content) // _SIZE + 1 + n for n in range(_DEPTH)]
    for page, child in zip([root, *chain[:-1]], chain, strict=True):
        cell = struct.pack(">I", child) + payload
        made = struct.pack(">BHHHBI", 2, 0, _COUNT, _SIZE - len(cell), 0, child)
        made = (made + struct.pack(">H", _SIZE - len(cell)) * _COUNT).ljust(_SIZE - len(cell), b"\0") + cell
        content[(page - 1) * _SIZE : page * _SIZE] = made
    _write_pages(path, content + leaf)


async def test_a_schema_without_end(path: Path) -> None:
    """A schema whose pages lead in a circle is damage, also for the first statement that reads it."""
    _make_schema_endless(path)
    error = await refused(path)

    assert isinstance(error, Unavailable)
    assert str(error).startswith(f"{str(path)!r} is damaged (")


async def test_opening_one_file_delays_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a file takes long to be checked, others are opened and closed, and the same one by others as well."""
    checking, go_on = threading.Event(), threading.Event()

    def wait(connection: Connection, name: str) -> None:
        if not checking.is_set():
            checking.set()
            assert go_on.wait(10)
        check_content(connection, name)

    check_content = files._check_content  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(files, "_check_content", wait)
    slow = Engine(path)
    opening = asyncio.create_task(slow.open())
    try:
        assert await asyncio.to_thread(checking.wait, 10)
        async with asyncio.timeout(5):
            for other in (Engine(path), Engine(path.with_name("other.tables"))):
                await other.open()
                await other.close()
    finally:
        go_on.set()
        await opening
    assert await slow.list_tables() == ["Things"]
    await slow.close()


async def test_numbers_without_end(path: Path) -> None:
    """So is the table of the last numbers given, which SQLite reads from its start when it gives the next."""
    craft(path, "DELETE FROM sqlite_sequence", "INSERT INTO sqlite_sequence VALUES ('x', 1)")
    _make_table_endless(path, "sqlite_sequence")
    error = await refused(path)

    assert str(error).startswith(f"{str(path)!r} is damaged (")


async def test_a_statement_without_end(path: Path) -> None:
    """What passes the checks at open ends as well: a statement fails that takes more steps than any of the engine's."""
    engine = Engine(path)
    await engine.open()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    for run in (
        engine.read(lambda connection: connection.execute(endless).get),
        engine.submit(lambda session: session.connection.execute(endless).get),
    ):
        with pytest.raises(Fault, match="the file is damaged"):
            await run
    await engine.close()


async def test_many_short_statements(path: Path) -> None:
    """The steps of statements that are run again and again do not add up."""
    engine = Engine(path)
    await engine.open()
    short = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) SELECT count(*) FROM n"
    for _ in range(30):
        assert await engine.read(lambda connection: connection.execute(short).get) == 2000
    await engine.close()


async def _put_expired(path: Path, count: int) -> None:
    """Put expired messages into a queue."""
    engine = Engine(path)
    await engine.open()
    await engine.queues.create_queue("queue")
    await engine.close()
    columns = "queue, visible, expires, inserted, count, receipt, body"
    craft(
        path,
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
        f"INSERT INTO messages ({columns}) SELECT 1, i, i + 1, 1, 0, 0, x'78' FROM n",
        f"UPDATE queues SET length = {count}",
    )


@pytest.mark.parametrize("call", ["peek", "take"])
async def test_messages_without_end(path: Path, call: str) -> None:
    """Expired messages without end, in an index alone, are damage to the call that looks for the next message."""
    await _put_expired(path, 1)
    if call == "take":  # in this index alone, so that they are not removed first
        columns = "type, name, tbl_name, rootpage, sql"
        kept = f"{columns} FROM sqlite_schema WHERE name = 'messages_by_time'"
        craft(path, f"CREATE TABLE aside AS SELECT {kept}", "DELETE FROM sqlite_schema WHERE name = 'messages_by_time'")
        craft(path, "DELETE FROM messages", f"INSERT INTO sqlite_schema ({columns}) SELECT * FROM aside")
        craft(path, "DROP TABLE aside")
    _make_index_endless(path, "messages_by_time")
    engine = Engine(path)
    await engine.open()

    with pytest.raises(Fault, match="the file is damaged"):
        await getattr(engine.queues, call)("queue")
    await engine.close()


async def test_peeking_past_expired_messages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many expired messages before those that are not are passed over in slices, between which other tasks run."""
    await _put_expired(path, 2000)
    craft(path, "UPDATE messages SET visible = 7 WHERE id % 3 = 1")
    engine = Engine(path)
    await engine.open()
    put = [(await engine.queues.put("queue", bytes([number]))).id for number in range(5)]
    reads, read = list[None](), engine.read

    async def count_reads(work: Callable[[Connection], Any]) -> Any:
        reads.append(None)
        return await read(work)

    monkeypatch.setattr(engine, "read", count_reads)
    for count in (1, 4, 32):
        assert [message.id for message in await engine.queues.peek("queue", count)] == put[:count]
    assert len(reads) > 3 * 5
    await engine.close()


async def test_taking_past_expired_messages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`take` removes many expired messages in few transactions, and in slices after which others' writes may begin."""
    await _put_expired(path, 3000)
    engine = Engine(path)
    await engine.open()
    put = (await engine.queues.put("queue", b"x")).id
    writes, submit = list[None](), engine.submit

    async def count_writes(work: Work) -> Any:
        writes.append(None)
        return await submit(work)

    monkeypatch.setattr(engine, "submit", count_writes)
    assert [message.id for message in await engine.queues.take("queue")] == [put]
    assert len(writes) == 2
    assert await engine.queues.length("queue") == 1
    await engine.close()


async def test_reclaiming_a_damaged_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a page cannot be read, freeing what is deleted is tried once, and not until the file is closed."""
    tries, tried = list[None](), asyncio.Event()

    def fail(*_: object) -> bool:
        tries.append(None)
        loop.call_soon_threadsafe(tried.set)
        raise apsw.CorruptError("a page leads nowhere")

    monkeypatch.setattr(reclaim, "_RECLAIMERS", (fail,))
    monkeypatch.setattr(reclaim, "_RETRY_SECONDS", 0.0)
    loop, engine = asyncio.get_running_loop(), Engine(path)
    await engine.open()
    await asyncio.wait_for(tried.wait(), 10)
    for _ in range(10):  # behind each write comes a job in the background, if there is one
        await engine.queues.create_queue("queue")
    assert len(tries) == 1
    await engine.close()


async def test_blobs_without_end(path: Path) -> None:
    """A blob that a container lists again and again is damage to who lists them, with a prefix as well."""
    engine = Engine(path)
    await engine.open()
    await engine.blobs.create_container("container")
    await engine.blobs.append("container", "name", b"x")
    await engine.close()
    _make_index_endless(path, "blobs")
    await engine.open()

    for prefix, continuation in (("", None), ("na", None), ("", "a"), ("na", "nam"), ("name", "a")):
        with pytest.raises(Fault, match="out of order"):
            await engine.blobs.list_blobs("container", prefix, continuation)
    await engine.close()


def _reclaim_all(path: Path, work: Callable[[Connection, int], bool], rows: int, count: str) -> list[int]:
    """Reclaim slices until there is no more. Return how much there was at the beginning, and after each."""
    connection = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    left: list[int] = [connection.execute(count).get]
    try:
        while work(connection, rows):
            left.append(connection.execute(count).get)
            assert left[-1] < left[-2], "a slice frees nothing, and asks for another"
    finally:
        connection.close()
    return left


_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)"


def _misplace_first(path: Path) -> None:
    """Change the first of some keys, so that they are no longer in order."""
    craft(path, "PRAGMA journal_mode = DELETE")
    content = path.read_bytes()
    assert content.count(b"k00001") == 1
    path.write_bytes(content.replace(b"k00001", b"z00001"))


def test_a_deleted_table_out_of_order(path: Path) -> None:
    """A deleted table whose first row does not come first is not emptied again and again without an end."""
    craft(
        path,
        "DELETE FROM catalog",
        "DELETE FROM t1",
        f"{_NUMBERS} INSERT INTO t1 SELECT CAST(printf('k%05d', i) AS BLOB), 1, x'7b7d' FROM n",
        "ALTER TABLE t1 RENAME TO gone_1",
    )
    _misplace_first(path)

    assert _reclaim_all(path, catalog.reclaim, 50, "SELECT count(*) FROM gone_1") == [200]


def test_a_deleted_container_out_of_order(path: Path) -> None:
    """Nor is a deleted container whose first blobs cannot be found by their names."""
    values = "1, printf('k%05d', i), i, 0, 0, NULL, x'7b7d'"
    craft(path, "INSERT INTO containers VALUES (1, NULL)", f"{_NUMBERS} INSERT INTO blobs SELECT {values} FROM n")
    _misplace_first(path)

    assert _reclaim_all(path, blobs.reclaim, 1, "SELECT count(*) FROM blobs") == [200]
