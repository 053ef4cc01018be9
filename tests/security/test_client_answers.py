"""
What a server answers is held against what it was asked: keys of a row, and where a query goes on.
"""

import datetime as dt
import json
from bisect import bisect_right
from itertools import count
from typing import Any

import pytest

from tableorm import (
    Entity,
    Mapped,
    TableOrmError,
    Unavailable,
)
from tests.azure.stub import Answer, row_answer
from tests.security.world import Thing, client_of


@pytest.mark.parametrize(
    "keys", [{"PartitionKey": "z"}, {"RowKey": "y"}, {"RowKey": "R"}, {"RowKey": None}, {"RowKey": 5}]
)
async def test_a_row_with_other_keys_is_refused(keys: dict[str, object]) -> None:
    """A read by keys gives the entity of these keys, in this case of letters, or an error."""
    answer = row_answer(EntityType="Thing", **keys)
    async with client_of(answer) as (db, _):
        with pytest.raises(TableOrmError, match=r"another row than was asked for|its RowKey is"):
            await db.get(Thing, p="p", r="r")
        with pytest.raises(TableOrmError):
            await db.select(Thing).where(Thing.p == "p", Thing.r == "r").only(Thing.r, Thing.p, Thing.note).all()


async def test_a_query_that_goes_on_where_it_began_is_refused() -> None:
    """A server that gives the same continuation again, with rows or without, does not hold the query for ever."""
    page = json.loads(row_answer(EntityType="Thing").body)
    for rows in ([], [page]):
        on = {"x-ms-continuation-NextPartitionKey": "p", "x-ms-continuation-NextRowKey": "r"}
        async with client_of(Answer(200, on, json.dumps({"value": rows}).encode())) as (db, stub):
            with pytest.raises(TableOrmError, match="never end"):
                await db.select(Thing).where(Thing.p == "p").all()
        assert len(stub.requests) <= 3


@pytest.mark.parametrize("member", ["odata.etag", "PartitionKey", "RowKey"])
@pytest.mark.parametrize("value", [None, 5, True])
async def test_a_row_without_keys_or_etag_is_refused(member: str, value: object) -> None:
    """Rows of a page have keys and an ETag, which are texts; otherwise the error is one of the package."""
    row = json.loads(row_answer(EntityType="Thing").body) | {member: value}
    for each in (row, {name: row[name] for name in row if name != member}):
        async with client_of(Answer(200, {}, json.dumps({"value": [each]}).encode())) as (db, _):
            with pytest.raises(TableOrmError, match=f"its {member} is"):
                await db.select(Thing).where(Thing.p == "p").all()
            with pytest.raises(TableOrmError, match=f"its {member} is"):
                await db.select_raw("Tab").allow_scan().all()


@pytest.mark.parametrize("text", ["Fri, 31 Dec 99999999999 23:59:59 GMT", "soon", "inf", "nan", "-5", "1e400"])
async def test_a_strange_retry_after_changes_nothing(text: str) -> None:
    """What a service says of when to ask again, if it is no time, does not become the error."""
    async with client_of(Answer(503, {"Retry-After": text}, b"")) as (db, _):
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
    on = {"x-ms-continuation-NextPartitionKey": "web_0", "x-ms-continuation-NextRowKey": "r"}
    async with client_of(Answer(200, on, json.dumps({"value": rows}).encode())) as (db, _):
        with pytest.raises(Unavailable, match="query of Login: the store gave rows out of the order of their RowKeys"):
            await db.select(Login).where(Login.system == "web").all()
