"""
What a server answers is held against what it was asked: keys of a row, its ETag, and where a query goes on. It neither
stops a client for ever nor makes it keep memory.
"""

import datetime as dt
import json
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tableorm import Database, Entity, LostRace, Mapped, RetryPolicy, TableOrmError, Unavailable, connect
from tableorm.connection.connection import connection_of
from tableorm.connection.index_states import write_records
from tableorm.models.marker_rows import MoveMark, MoveState
from tableorm.outbox.decision import settle_decision
from tableorm.protocol.codes import Fault
from tableorm.stores import Operation, RowAddress, Verb
from tableorm_azure.batch import find_throttled_part, read_etags
from tableorm_local import serve
from tableorm_local.server import DEVELOPMENT_KEY
from tests.azure.stub import ETAG, Answer, Request, error_answer, page_answer, row_answer
from tests.security.world import Thing, client_of, kept_below, memory_below


async def get(db: Database) -> None:
    await db.get(Thing, p="p", r="r")


@pytest.mark.parametrize(
    "keys", [{"PartitionKey": "z"}, {"RowKey": "y"}, {"RowKey": "R"}, {"RowKey": None}, {"RowKey": 5}]
)
async def test_a_row_with_other_keys_is_refused(keys: dict[str, object]) -> None:
    """A read by keys gives the entity of these keys, in this case of letters, or an error."""
    answer = row_answer(EntityType="Thing", **keys)
    async with client_of(answer) as (db, _):
        with pytest.raises(TableOrmError, match=r"another row than was asked for|its RowKey is"):
            await get(db)
        with pytest.raises(TableOrmError):
            await db.select(Thing).where(Thing.p == "p", Thing.r == "r").only(Thing.r, Thing.p, Thing.note).all()


async def test_a_query_that_goes_on_where_it_began_is_refused() -> None:
    """A server that gives the same continuation again, with rows or without, does not hold the query for ever."""
    page = json.loads(row_answer(EntityType="Thing").body)
    for rows in ([], [page]):
        on = {"x_ms_continuation_NextPartitionKey": "p", "x_ms_continuation_NextRowKey": "r"}
        async with client_of(page_answer(*rows, **on)) as (db, stub):
            with pytest.raises(TableOrmError, match="never end"):
                await db.select(Thing).where(Thing.p == "p").all()
        assert len(stub.requests) <= 3


@pytest.mark.parametrize("member", ["odata.etag", "PartitionKey", "RowKey"])
@pytest.mark.parametrize("value", [None, 5, True])
async def test_a_row_without_keys_or_etag_is_refused(member: str, value: object) -> None:
    """Rows of a page have keys and an ETag, which are texts; otherwise the error is one of the package."""
    row = json.loads(row_answer(EntityType="Thing").body) | {member: value}
    for each in (row, {name: row[name] for name in row if name != member}):
        async with client_of(page_answer(each)) as (db, _):
            with pytest.raises(TableOrmError, match=f"its {member} is"):
                await db.select(Thing).where(Thing.p == "p").all()
            with pytest.raises(TableOrmError, match=f"its {member} is"):
                await db.select_raw("Tab").allow_scan().all()


@pytest.mark.parametrize("text", ["Fri, 31 Dec 99999999999 23:59:59 GMT", "soon", "inf", "nan", "-5", "1e400"])
async def test_a_strange_retry_after_changes_nothing(text: str) -> None:
    """What a service says of when to ask again, if it is no time, does not become the error."""
    async with client_of(Answer(503, {"Retry-After": text}, b"")) as (db, _):
        with pytest.raises(Unavailable):
            await get(db)


@pytest.mark.parametrize("lacking", ["ETag", "Last-Modified"])
async def test_a_blob_without_its_headers_is_an_error_of_ours(lacking: str) -> None:
    """An answer with a blob that lacks its ETag or its time raises an error of the package, as other answers do."""
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Range": "bytes 0-0/1",
        "ETag": '"a"',
        "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
    }
    del headers[lacking]
    async with client_of(Answer(206, headers, b"x")) as (db, _):
        with pytest.raises(TableOrmError):
            await db.blobs.read("container", "name")


class Login(Entity, table="Tab", partition_key="{system}_{user:spread(4)}", row_key="{at:ticks}_{user}"):
    system: Mapped[str]
    user: Mapped[str]
    at: Mapped[dt.datetime]


async def test_rows_out_of_order_do_not_hold_a_merged_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that merges partitions finds no next row where RowKeys fall, and says so instead of looking for ever."""
    calls = count()

    def find(keys: list[bytes], *where: Any) -> int:
        assert next(calls) < 1_000  # nothing else could end it: it would never wait
        return bisect_right(keys, *where)

    monkeypatch.setattr("tableorm.queries.merge.bisect_left", find)
    monkeypatch.setattr("tableorm.queries.merge.bisect_right", find)
    keys = [f"063900000000000000{number}_x" for number in (3, 2, 1)]
    rows = [json.loads(row_answer(EntityType="Login", PartitionKey="web_0", RowKey=key).body) for key in keys]
    on = {"x_ms_continuation_NextPartitionKey": "web_0", "x_ms_continuation_NextRowKey": "r"}
    async with client_of(page_answer(*rows, **on)) as (db, _):
        with pytest.raises(Unavailable, match="query of Login: the store returned rows that are not in RowKey order"):
            await db.select(Login).where(Login.system == "web").all()


def answer_table_missing(request: Request) -> Answer:
    """Say that there is a table, when it is made, and that there is none, when it is written."""
    if request.target.endswith("/Tables"):
        return error_answer(409, "TableAlreadyExists")
    return error_answer(404, "TableNotFound")


def answer_decided(request: Request) -> Answer:
    """Say that there is a row, when it is inserted, and that there is none, when it is read."""
    if request.method == "GET":
        return error_answer(404, "ResourceNotFound")
    return error_answer(409, "EntityAlreadyExists")


class Moved:
    """Answers with a tentative row, which is another one each time."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, request: Request) -> Answer:
        self.number += 1
        mark = MoveMark(state=MoveState.TENTATIVE, move="m", other=RowAddress("Tab", "p", "other"), etag="W/'1'")
        if "other" in request.target:
            return error_answer(404, "ResourceNotFound")
        etag = ETAG.replace("7891234Z", f"{self.number:07d}Z")
        return row_answer(**{"EntityType": "Thing#_tentative", "_mv": mark.to_text(), "odata.etag": etag})


async def settle(db: Database) -> None:
    await settle_decision(connection_of(db), "Tab", "p", "a" * 12)


async def write_state(db: Database) -> None:
    await write_records(connection_of(db), [Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": "r"})])


@pytest.mark.parametrize(
    ("answer", "ask", "error"),
    [(Moved(), get, LostRace), (answer_decided, settle, LostRace), (answer_table_missing, write_state, TableOrmError)],
    ids=["a tentative row", "a decision row", "a table"],
)
async def test_what_is_another_one_each_time_is_given_up(
    answer: Callable[[Request], Answer], ask: Callable[[Database], Awaitable[None]], error: type[Exception]
) -> None:
    """After some looks the read, or the write, ends with an error."""
    async with client_of(lambda request: answer(request) if len(stub.requests) < 1_000 else Answer(400)) as (db, stub):
        with pytest.raises(error):
            await ask(db)
    assert len(stub.requests) < 500


async def test_pages_that_begin_anew_end() -> None:
    """A server that does not care where a page begins gives the same page for ever, which is an error."""
    rows = [json.loads(row_answer(EntityType="Thing", RowKey=f"{number:03d}").body) for number in range(10)]
    async with client_of(lambda _: page_answer(*rows) if len(stub.requests) < 100 else Answer(400)) as (db, stub):
        pages = db.select(Thing).where(Thing.p == "p").pages(5)
        with pytest.raises(TableOrmError, match="returned rows that come before the cursor"):
            _ = [page async for page in pages]
    assert len(stub.requests) == 2


# A regular expression cannot be interrupted, so these are read in a process of their own.
PARTS = """
from tableorm.protocol.codes import Fault
from tableorm_azure.batch import read_etags
from tableorm_azure.codec import decode_row
for inside in (b'\\\\"', b"\\\\\\n", b'\\\\"\\\\'):
    try:
        decode_row(b'"' + inside * 400_000 + b"{" * 400_000 + b"\\\\")
    except Fault:
        print("refused")
for header in (b"X:" + b" " * 20_000 + b"b\\rc", b"X: b" + b" " * 400_000 + b"b"):
    try:
        read_etags(b"\\r\\nHTTP/1.1 400 Bad\\r\\n" + header + b"\\r\\n\\r\\n{}", 1)
    except Fault:
        print("refused")
"""


class Part(Entity, table="Tab", partition_key="{a}_{b}", row_key="{r}"):
    a: Mapped[str]
    b: Mapped[str]
    r: Mapped[str]


def test_what_is_read_by_regular_expressions_is_read_at_once() -> None:
    """Headers of many blanks in a transaction, and strings that are not closed, take no more time than others."""
    run = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, timeout=20, check=True, text=True)
    assert run.stdout.split() == ["refused"] * 5


async def test_names_of_rows_are_not_kept_however_many() -> None:
    """Rows with more properties than a row can have, or with long names, leave nothing behind in the client."""
    number = count()

    def answer(_: Request) -> Answer:
        each = next(number)
        return row_answer(**{f"p{each}_{name}".ljust(2_000 * (each % 2), "x"): 0 for name in range(500)})

    async with client_of(answer) as (db, _):
        with kept_below(1_000_000):  # of 4 MB of names
            for _ in range(6):
                with pytest.raises(TableOrmError):
                    await get(db)


@pytest.mark.parametrize("again", [["Tab"], ["Tab", "Uab"]], ids=["the same", "two in turn"])
async def test_a_list_of_tables_that_goes_on_where_it_was_is_refused(again: list[str]) -> None:
    """A server that gives the same continuations again does not make the client collect names for ever."""

    def answer(_: Request) -> Answer:
        number = len(stub.requests)
        on = {"x_ms_continuation_NextTableName": again[number % len(again)]} if number < 50 else {}
        return page_answer({"TableName": "Tab"}, **on)

    async with client_of(answer) as (db, stub):
        with pytest.raises(TableOrmError, match="the list would never end"):
            await db.tables()
    assert len(stub.requests) <= 3


@pytest.mark.parametrize("what", ["queue", "container"])
async def test_a_list_of_queues_or_containers_that_goes_on_where_it_was_is_refused(what: str) -> None:
    """The lists of queues and of containers end likewise."""
    item = f"<{what.title()}><Name>abc</Name></{what.title()}>"
    item = item.replace("</Container>", "<Properties></Properties></Container>")
    inner = f"<{what.title()}s>{item}</{what.title()}s><NextMarker>abc</NextMarker>"
    body = f'<?xml version="1.0"?><EnumerationResults ServiceEndpoint="">{inner}</EnumerationResults>'.encode()
    kind = {"Content-Type": "application/xml"}
    async with client_of(lambda _: Answer(200 if len(stub.requests) < 50 else 404, kind, body)) as (db, stub):
        with pytest.raises(TableOrmError, match="the list would never end"):
            await (db.queues.list_queues() if what == "queue" else db.blobs.list_containers())
    assert len(stub.requests) <= 3


async def test_keys_of_rows_are_not_kept_however_long() -> None:
    """PartitionKeys that are far longer than a key can be leave nothing behind in the client."""
    number = count()

    def answer(_: Request) -> Answer:
        rows = [
            json.loads(row_answer(EntityType="Part", PartitionKey=f"a_{next(number)}" + "x" * 100_000).body)
            for _ in range(10)
        ]
        return page_answer(*rows)

    with kept_below(5_000_000):  # of ten million characters
        async with client_of(answer) as (db, _):
            for _ in range(10):
                with suppress(TableOrmError):
                    await db.select(Part).allow_scan().all()


def test_a_part_of_a_transaction_is_not_read_as_many_headers() -> None:
    """Of a part that failed no more is read than an error of the service has."""
    body = b"--x\r\n\r\nHTTP/1.1 503 Busy\r\n" + b"a:b\n" * 300_000 + b"\r\n\r\n{}\r\n--x--"
    with memory_below(len(body)):
        find_throttled_part(body)
        with pytest.raises(Fault):
            read_etags(body, 2)


async def test_what_is_no_transaction_is_not_looked_through_for_parts() -> None:
    """A read that is answered with the status of a transaction is not searched for parts that were throttled."""
    body = b"\nHTTP/1.1 503 Busy\r\nx-ms-error-code: ServerBusy\r\n\r\n{}"
    async with client_of(Answer(202, {}, body), retry=RetryPolicy(attempts=3, base=0.0)) as (db, stub):
        with pytest.raises(TableOrmError):
            await get(db)
    assert len(stub.requests) == 1


FALSE = [
    "W/\"datetime'2020\r\nIf-Match: *\r\nX-Evil: '\"",
    'W/"datetime\'2020\nIf-Match: *\n\n{"role":"admin"}\n\'"',
    "W/\"datetime'2020\x00'\"",
    "W/\"datetime''\"",
    "W/\"datetime'*'\"",
]


@pytest.mark.parametrize("verb", ["merge", "delete"])
@pytest.mark.parametrize("tag", FALSE)
async def test_what_is_no_etag_is_refused_in_a_transaction(tmp_path: Path, tag: str, verb: str) -> None:
    """A line end in `if_match` ended the header, and `If-Match: *` came behind it: the condition was gone."""
    async with serve(tmp_path / "data.tables", port=0) as server, connect(server.url, key=DEVELOPMENT_KEY) as db:
        await db.create_tables(Thing)
        await db.insert(Thing(p="a", r="1"))
        thing = await db.get(Thing, p="a", r="1")
        thing.note = "x"
        with pytest.raises(TableOrmError):
            async with db.transaction() as tx:
                if verb == "merge":
                    tx.merge(thing, only=[Thing.note], if_match=tag)
                else:
                    tx.delete(thing, if_match=tag)
                tx.insert(Thing(p="a", r="2"))
        assert (await db.get(Thing, p="a", r="1")).note is None


async def test_an_etag_of_a_server_does_not_end_its_header() -> None:
    """An entity that a server gave, with such an ETag, puts nothing else into a transaction."""
    row = {"PartitionKey": "a", "RowKey": "1", "EntityType": "Thing", "odata.etag": FALSE[0]}
    async with client_of(row_answer(**row)) as (db, stub):
        with pytest.raises(TableOrmError):
            thing = await db.get(Thing, p="a", r="1")
            thing.note = "x"
            async with db.transaction() as tx:
                tx.save(thing)
                tx.insert(Thing(p="a", r="2"))
    assert not any(b"\nX-Evil" in request.body for request in stub.requests)
