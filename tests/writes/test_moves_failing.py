"""
Moves to another partition that fail on their way: what the caller is told, and what is left for workers.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from tableorm import (
    Conflict,
    Count,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    LostRace,
    Mapped,
    NotSupported,
    Outcome,
    OutcomeUnknown,
    PreconditionFailed,
    TableOrmError,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.connection.races import Attempts
from tableorm.models.reserved import MOVE
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.decision import Decision, Work
from tableorm.outbox.doorbell import MOVE_WORK, move_of
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, Row, RowAddress, StoreRequest, Verb
from tableorm.testing import MemoryStore
from tableorm.writes import relocation
from tableorm.writes.move_entity import RELOCATION, carry_out_moves, handle_moves
from tableorm.writes.plan import Change
from tableorm.writes.relocation import entity_of_row
from tests.faults import Fate, FaultyStore
from tests.rekeys import record_pauses
from tests.rows import merge_row
from tests.unfinished_moves import FORWARD, MARK, database_on, handler_of, move_half, take_bodies, work


class Crew(Entity, table="MovesFailing", partition_key="{ship}", row_key="crew"):
    ship: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Aboard(Entity, abstract=True):
    ship: Mapped[str]
    id: Mapped[int] = field(default=1)
    text: Mapped[str] = field(default="")


class Sailor(Aboard, table="MovesFailing", partition_key="{ship}", row_key="sailor_{id}"):
    counted = Count(lambda: Crew.size, ship="{ship}")


SAILOR = Sailor.key(ship="a", id=1)


class Retired(Aboard, table="MovesFailingRetired", tracked=True, partition_key="{ship}", row_key="retired_{id}"):
    pass


pytestmark = pytest.mark.usefixtures("quick_workers", "stopped_clock")


class Met(FaultyStore):
    """Such a network, where others write after each read of a row, as long as they are told to."""

    others: Callable[[str, Row], Awaitable[None]] | None = None

    async def send(self, request: StoreRequest) -> Any:
        reply = await super().send(request)
        if request.method == "get" and self.others is not None:
            await self.others(request.table, reply)
        return reply


@pytest.fixture
def network() -> Met:
    return Met(MemoryStore())


@pytest.fixture
async def db(network: Met) -> AsyncIterator[Database]:
    """The sailor is on a; the ships are a and b."""
    async with database_on(network, Crew, Sailor) as db:
        for ship in "ab":
            await db.insert(Crew(ship=ship))
        await db.insert(Sailor(ship="a"))
        yield db


@pytest.fixture
def three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempts.__init__, "__defaults__", (3,))
    monkeypatch.setattr(relocation, "ATTEMPTS", 3)


async def ships_of(db: Database) -> dict[str, int]:
    """Return the size of the crew of each ship, where the sailor is found on that."""
    found = {ship: await db.get_or_none(Sailor, ship=ship, id=1) for ship in "ab"}
    return {ship: (await db.get(Crew, ship=ship)).size for ship, sailor in found.items() if sailor is not None}


async def test_a_new_key_that_is_taken_leaves_no_work(db: Database, network: Met) -> None:
    """The mark and the message are gone when the error is raised: nobody moves the entity later."""
    taken = Sailor(ship="b", text="taken")
    await db.insert(taken)
    sailor = await db.get(SAILOR)
    with pytest.raises(EntityExists):
        await db.move(sailor, ship="b")

    assert await outbox_queues(connection_of(db)).length(OUTBOX) == 0
    assert MOVE not in await network.store.get("MovesFailing", "a", "sailor_1")
    sailor.text = "saved"
    await db.save(sailor)  # its ETag is that of the row
    await db.delete(taken)
    assert await ships_of(db) == {"a": 1}


@pytest.mark.parametrize("fate", [Fate.LOST_REQUEST, Fate.BUSY])
async def test_a_failed_move_whose_mark_stays(db: Database, network: Met, fate: Fate) -> None:
    """As long as a worker may carry it out, nobody says that it has failed."""
    taken = Sailor(ship="b", text="taken")
    await db.insert(taken)
    network.plan(Fate.FINE, Fate.FINE, *[fate] * 999)
    with pytest.raises(OutcomeUnknown, match=r"the entity may be at its new key already, and a worker ends the move"):
        await db.move(await db.get(SAILOR), ship="b")
    network.plan()

    await db.delete(taken)
    assert await work(db, Sailor) == [Outcome.DONE]
    assert await ships_of(db) == {"b": 1}


@pytest.mark.parametrize("verb", [Verb.MERGE, Verb.DELETE])
async def test_a_source_that_others_write_before_the_commit(db: Database, network: Met, verb: Verb) -> None:
    """The move does not happen, and leaves no tentative row."""

    async def write(table: str, row: Row) -> None:
        if row["PartitionKey"] == "a" and MOVE in row:
            network.others = None
            await network.store.write(table, Operation(verb, {n: row[n] for n in ("PartitionKey", "RowKey")}, "*"))

    sailor, network.others = await db.get(SAILOR), write
    error: type[TableOrmError] = EntityNotFound if verb is Verb.DELETE else PreconditionFailed
    with pytest.raises(error) as caught:
        await db.move(sailor, ship="b")

    what = "has no such row" if verb is Verb.DELETE else "the row has changed since it was read; read it again and re"
    assert what in str(caught.value)
    assert [bag.row_key async for bag in db.select_raw("MovesFailing").allow_scan()] == (
        ["crew", "crew"] if verb is Verb.DELETE else ["crew", "sailor_1", "crew"]
    )


class Stubborn(FaultyStore):
    """A store that takes no forward, as if its row were another one each time."""

    async def send(self, request: StoreRequest) -> Any:
        if any(str(each.row.get("EntityType")).endswith("#_forward") for each in request.operations):
            raise Fault(Code.CONDITION_NOT_SATISFIED, "Another ETag.", index=0)
        return await super().send(request)


@pytest.mark.usefixtures("three_attempts")
async def test_a_source_that_is_never_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many attempts, with a pause before each but the first, the move is given up."""
    async with database_on(Stubborn(MemoryStore()), Crew, Sailor) as db:
        for ship in "ab":
            await db.insert(Crew(ship=ship))
        await db.insert(Sailor(ship="a"))
        pauses, sailor = record_pauses(monkeypatch), await db.get(SAILOR)
        with pytest.raises(LostRace, match=r"^move of .*: others wrote its rows first, 3 times in a row; try it again"):
            await db.move(sailor, ship="b")

        assert pauses[:2] == [1, 2]
        assert await ships_of(db) == {"a": 1}


@pytest.mark.usefixtures("three_attempts")
async def test_a_new_key_that_others_take_again_and_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose moves were not committed are put out of the way, so many times."""
    cleared = list[Change]()

    async def clear_way(_: object, change: Change) -> bool:
        if change.mark is not None:
            return False
        cleared.append(change)
        return True

    await db.insert(Sailor(ship="b", text="taken"))
    sailor = await db.get(SAILOR)
    monkeypatch.setattr(RELOCATION, "clear_way", clear_way)
    with pytest.raises(LostRace) as caught:
        await db.move(sailor, ship="b")

    assert len(cleared) == 3
    assert str(caught.value).startswith(
        "move of Sailor ('b', 'sailor_1'): others moved entities to that key, 3 times in a row; try it again"
    )


async def test_a_table_that_is_gone_when_the_move_is_completed(db: Database, network: Met) -> None:
    """The error says that the move is not complete yet, and names the table."""
    await db.create_tables(Retired)
    network.plan(*[Fate.FINE] * FORWARD, *[Fate.LOST_REQUEST] * 999)
    with pytest.raises(OutcomeUnknown):
        await db.archive(await db.get(SAILOR), to=Retired)
    network.plan()
    await network.store.delete_table("MovesFailingRetired")
    (message,) = await take_bodies(db)
    known = {str(model.__schema__.kind): model.__schema__ for model in (Sailor, Retired)}
    with pytest.raises(Conflict, match=r"^move .* to Retired .* cannot be completed yet: .*MovesFailingRetired"):
        await handle_moves(connection_of(db), known).work(message)


@pytest.mark.parametrize("kind", ["Sailor:2", "Sailors", "Sailor#_forward"])
def test_a_row_that_is_no_entity_of_the_model(kind: str) -> None:
    """Nobody loads a row of a newer version, or of another kind, to move its entity."""
    row = {"PartitionKey": "a", "RowKey": "sailor_1", "EntityType": kind, "odata.etag": "e", "Timestamp": "t"}
    with pytest.raises(NotSupported) as caught:
        entity_of_row(Sailor.__schema__, row)

    assert str(caught.value) == (
        "the row ('a', 'sailor_1') is not of Sailor as this program declares it; leave it to a program that knows it"
    )
    assert entity_of_row(Sailor.__schema__, {**row, "EntityType": "Sailor"}) == Sailor(ship="a")


async def test_a_command_for_another_key(db: Database, network: Met) -> None:
    """A command whose fields do not make its new key is rejected, although the source says the same."""
    await move_half(db, network, await db.get(SAILOR), MARK, ship="b")
    (message,) = await take_bodies(db)
    row = await network.store.get("MovesFailing", "a", "sailor_1")
    keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
    etag = await merge_row(network.store, "MovesFailing", {**keys, MOVE: row[MOVE].replace('"b"', '"c"', 1)})
    sent = move_of(message)
    forged = structs.replace(sent, target=RowAddress("MovesFailing", "c", "sailor_1"), etag=str(etag))
    with pytest.raises(ValueError, match="its fields make another key"):
        await handler_of(db, Sailor).work(forged.to_message())
    assert await ships_of(db) == {"a": 1}


async def test_a_decision_row_without_a_command(db: Database) -> None:
    """It is rejected as one with a forged command, and not by an error of this program."""
    nothing = Decision(partition_key="a", token="token_of_others", works=(Work(kind=MOVE_WORK, row_key="sailor_1"),))
    with pytest.raises(ValueError, match="is not a command to move an entity"):
        await carry_out_moves(connection_of(db), {"Sailor": Sailor.__schema__}, nothing)


@pytest.mark.usefixtures("three_attempts")
@pytest.mark.parametrize("times", [2, 3])
async def test_a_forward_that_others_write_whenever_it_is_read(db: Database, network: Met, times: int) -> None:
    """The entity is not changed before its forward is gone; the error names the forward."""
    await move_half(db, network, await db.get(SAILOR), FORWARD + 1, ship="b")
    sailor, written = await db.get(Sailor, ship="b", id=1), list[str]()

    async def touch(table: str, row: Row) -> None:
        if row["PartitionKey"] == "a" and row["RowKey"] == "sailor_1" and len(written) < times:
            written.append(row["odata.etag"])
            keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
            await merge_row(network.store, table, keys)

    network.others = touch
    sailor.text = "new"
    if times == 2:
        await db.save(sailor)
    else:
        with pytest.raises(Conflict, match=r"the forward .*sailor_1.* of move .* cannot be deleted; try it again"):
            await db.save(sailor)

    assert len(written) == times
    assert (await db.get(Sailor, ship="b", id=1)).text == ("new" if times == 2 else "")
    with pytest.raises(EntityNotFound):
        await db.get(SAILOR)
