"""
What is read again because it has changed: a server whose rows are always others holds nobody for ever.
"""

import json
from collections.abc import Awaitable, Callable

import pytest

from tableorm import Database, LostRace, TableOrmError
from tableorm.connection.connection import connection_of
from tableorm.connection.index_states import write_records
from tableorm.models.marker_rows import MoveMark, MoveState
from tableorm.outbox.decision import settle_decision
from tableorm.stores import Operation, RowAddress, Verb
from tests.azure.stub import ETAG, Answer, Request, error_answer, row_answer
from tests.security.world import Thing, client_of


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


async def get(db: Database) -> None:
    await db.get(Thing, p="p", r="r")


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
    body = json.dumps({"value": rows}).encode()
    async with client_of(lambda _: Answer(200 if len(stub.requests) < 100 else 400, {}, body)) as (db, stub):
        pages = db.select(Thing).where(Thing.p == "p").pages(5)
        with pytest.raises(TableOrmError, match="returned rows from before the continuation"):
            _ = [page async for page in pages]
    assert len(stub.requests) == 2
