"""
Between two attempts of a lost race there is a pause, which grows: by none of the ways to write is it left out.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    Conflict,
    Count,
    Database,
    Entity,
    Index,
    LostRace,
    Mapped,
    Transaction,
    TransactionFailed,
    connect,
    field,
)
from tableorm.connection import races
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import StoreLayer, StoreRequest, Verb
from tableorm.writes import commit, transaction
from tableorm.writes import modify as modifying
from tableorm.writes.bulk import chunk
from tests.rekeys import record_pauses
from tests.rows import merge_row
from tests.writes.things import Thing, more


class AlwaysLate(StoreLayer):
    """A store in which somebody else writes a row before each write of what was read, from some time on."""

    begun = False

    async def send(self, request: StoreRequest) -> Any:
        if self.begun and request.operations:
            late = next((each for each in request.operations if each.row["RowKey"] == "group"), request.operations[0])
            if request.method == "write" and late.verb is Verb.INSERT:
                raise Fault(Code.ENTITY_EXISTS, "Somebody has inserted it, and deletes it before it is read.")
            if request.method == "transact" or late.if_match is not None:
                keys = {name: late.row[name] for name in ("PartitionKey", "RowKey")}
                await merge_row(self.below, request.table, keys)
        return await super().send(request)


async def modify(db: Database) -> None:
    await db.modify(Thing, more, attempts=4, name="a")


async def run_transaction(db: Database) -> None:
    async def change(tx: Transaction) -> None:
        thing = await tx.get(Thing, name="a")
        more(thing)
        tx.save(thing)

    await db.run_transaction(change, attempts=4)


class Listed(Entity, table="Things", partition_key="g", row_key="listed_{name}"):
    """Its writes read the row that they overwrite."""

    name: Mapped[str]
    number: Mapped[int] = field(default=0)

    by_number = Index(row_key="number_{number}_{name}")


class Group(Entity, table="Things", partition_key="{team}", row_key="group"):
    team: Mapped[str]
    members: Mapped[int] = field(default=0, maintained=True)


class Member(Entity, table="Things", partition_key="{team}", row_key="member_{name}"):
    team: Mapped[str]
    name: Mapped[str]

    counted = Count(lambda: Group.members, team="{team}")


async def insert_counted(db: Database) -> None:
    await db.insert(Member(team="g", name="c"))


async def replace(db: Database) -> None:
    await db.replace(Listed(name="b", number=2), if_match="*")


async def replace_in_transaction(db: Database) -> None:
    async with db.transaction() as tx:
        tx.replace(Listed(name="b", number=2), if_match="*")


async def replace_in_bulk(db: Database) -> None:
    async with db.bulk(errors="report") as bulk:
        await bulk.replace(Listed(name="b", number=2), if_match="*")
    raise bulk.report.failed[0].error


async def replace_as_it_was_in_bulk(db: Database) -> None:
    async with db.bulk(errors="report") as bulk:
        await bulk.replace(Listed(name="b", number=2), if_match='W/"another"')
    raise bulk.report.failed[0].error


async def get_or_insert(db: Database) -> None:
    await db.get_or_insert(Thing(name="new"))


COUNTED = "others changed its row, or a count, list or feed that it belongs to, 4 times in a row; nothing was written"


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        (modify, r"modify of Thing.*: others wrote it first, 4 times in a row; try it again"),
        (run_transaction, "save of Thing"),
        (replace, r"replace of Listed.*: others wrote it first, 4 times in a row; try it again"),
        (replace_in_transaction, "replace of Listed"),
        (replace_in_bulk, "replace of Listed"),
        (insert_counted, f"insert of Member.*: {COUNTED}"),
        (get_or_insert, "of Thing"),
        (replace_as_it_was_in_bulk, "replace of Listed"),
    ],
)
async def test_lost_races_pause(
    deed: Callable[[Database], Awaitable[None]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Four attempts have three pauses between them, each longer than the one before. What is written under an ETag that
    was given has one attempt. The error says which writers are in each other's way, and has the entity as it is.
    """
    async with connect("local::memory:") as db:
        store = AlwaysLate(db.store)
        connection_of(db).wrap_store(lambda _: store)
        await db.create_tables(Thing)
        await db.insert(Thing(name="a"))
        await db.insert(Listed(name="b"))
        await db.insert(Group(team="g"))
        store.begun = True
        for module in (commit, modifying, transaction, chunk):
            monkeypatch.setattr(module, "ATTEMPTS", 4)
        monkeypatch.setattr(races.Attempts.__init__, "__defaults__", (4,))
        pauses = record_pauses(monkeypatch)
        with pytest.raises((Conflict, TransactionFailed), match=message) as caught:
            await deed(db)

    # What others count in one row begins anew at once: somebody else was just there.
    others: dict[object, list[int]] = {insert_counted: [2, 3], replace_as_it_was_in_bulk: []}
    error = caught.value
    assert deed is not modify or (isinstance(error, LostRace) and error.entity == Thing(name="a"))
    assert pauses == others.get(deed, [1, 2, 3])
