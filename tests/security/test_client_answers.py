"""
What a server answers is held against what it was asked: keys of a row, and where a query goes on.
"""

import datetime as dt
import json
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from tableorm import (
    Database,
    DecodeError,
    Entity,
    Mapped,
    PropertyBag,
    RetryPolicy,
    TableOrmError,
    Unavailable,
    connect,
    field,
)
from tests.azure.stub import KEY, Answer, Stub, row_answer


class Thing(Entity, table="Tab", partition_key="{p}", row_key="{r}"):
    p: Mapped[str]
    r: Mapped[str]
    note: Mapped[str | None] = field(default=None)


@asynccontextmanager
async def _client_of(stub: Stub, answer: Answer) -> AsyncGenerator[Database]:
    async with stub:
        stub.answers = [answer]
        async with connect(stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1)) as db:
            yield db


@pytest.mark.parametrize(
    "keys", [{"PartitionKey": "z"}, {"RowKey": "y"}, {"RowKey": "R"}, {"RowKey": None}, {"RowKey": 5}]
)
async def test_a_row_with_other_keys_is_refused(keys: dict[str, object]) -> None:
    """A read by keys gives the entity of these keys, in this case of letters, or an error."""
    answer = row_answer(EntityType="Thing", **keys)
    async with _client_of(Stub(), answer) as db:
        with pytest.raises(TableOrmError, match=r"another row than was asked for|its RowKey is"):
            await db.get(Thing, p="p", r="r")
        with pytest.raises(TableOrmError):
            await db.select(Thing).where(Thing.p == "p", Thing.r == "r").only(Thing.r, Thing.p, Thing.note).all()


async def test_a_query_that_goes_on_where_it_began_is_refused() -> None:
    """A server that gives the same continuation again, with rows or without, does not hold the query for ever."""
    page = json.loads(row_answer(EntityType="Thing").body)
    for rows in ([], [page]):
        on = {"x-ms-continuation-NextPartitionKey": "p", "x-ms-continuation-NextRowKey": "r"}
        stub = Stub()
        async with _client_of(stub, Answer(200, on, json.dumps({"value": rows}).encode())) as db:
            with pytest.raises(TableOrmError, match="never end"):
                await db.select(Thing).where(Thing.p == "p").all()
        assert len(stub.requests) <= 3


@pytest.mark.parametrize("member", ["odata.etag", "PartitionKey", "RowKey"])
@pytest.mark.parametrize("value", [None, 5, True])
async def test_a_row_without_keys_or_etag_is_refused(member: str, value: object) -> None:
    """Rows of a page have keys and an ETag, which are texts; otherwise the error is one of the package."""
    row = json.loads(row_answer(EntityType="Thing").body) | {member: value}
    for each in (row, {name: row[name] for name in row if name != member}):
        async with _client_of(Stub(), Answer(200, {}, json.dumps({"value": [each]}).encode())) as db:
            with pytest.raises(TableOrmError, match=f"its {member} is"):
                await db.select(Thing).where(Thing.p == "p").all()
            with pytest.raises(TableOrmError, match=f"its {member} is"):
                await db.select_raw("Tab").allow_scan().all()


@pytest.mark.parametrize("text", ["Fri, 31 Dec 99999999999 23:59:59 GMT", "soon", "inf", "nan", "-5", "1e400"])
async def test_a_strange_retry_after_changes_nothing(text: str) -> None:
    """What a service says of when to ask again, if it is no time, does not become the error."""
    async with _client_of(Stub(), Answer(503, {"Retry-After": text}, b"")) as db:
        with pytest.raises(Unavailable):
            await db.get(Thing, p="p", r="r")


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
    async with Stub() as stub:
        stub.answers = [Answer(206, headers, b"x")]
        async with connect(stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1), blobs=stub.url) as db:
            with pytest.raises(TableOrmError):
                await db.blobs.read("container", "name")


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("twelve", "Edm.Int64"),
        ("9" * 5000, "Edm.Int64"),
        ("no base64", "Edm.Binary"),
        ("no guid", "Edm.Guid"),
        (2**40, None),
    ],
)
async def test_a_bag_with_a_value_that_is_not_one_of_its_type(value: object, annotation: str | None) -> None:
    """A malformed value of a bag raises DecodeError with the row and the property; other properties can be read."""
    members = {"Fine": 7, "Bad": value} | ({} if annotation is None else {"Bad@odata.type": annotation})
    async with _client_of(Stub(), row_answer(EntityType="Thing", **members)) as db:
        bag = await db.get(PropertyBag.key("Tab", "p", "r"))

    with pytest.raises(
        DecodeError, match=r"^Thing.Bad: row \('p', 'r'\) has a value that is none of its type"
    ) as error:
        _ = bag["Bad"]
    assert (error.value.key, error.value.field) == (("p", "r"), "Bad")
    with pytest.raises(DecodeError):
        dict(bag)
    assert bag["Fine"] == 7 and bag.row["Bad"] == value


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
    on = {"x-ms-continuation-NextPartitionKey": "web_0", "x-ms-continuation-NextRowKey": "r"}
    async with _client_of(Stub(), Answer(200, on, json.dumps({"value": rows}).encode())) as db:
        with pytest.raises(Unavailable, match="query of Login: the store gave rows out of the order of their RowKeys"):
            await db.select(Login).where(Login.system == "web").all()
