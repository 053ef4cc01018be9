"""
Moves to another partition that fail on their way: what the caller is told, and what is left for workers.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec import structs

from tableorm import (
    Conflict,
    Count,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Mapped,
    OutcomeUnknown,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.models.marker_rows import Place
from tableorm.models.reserved import MOVE
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.decision import Decision, Work
from tableorm.outbox.move_command import MOVE_WORK, move_of
from tableorm.outbox.worker import Outcome
from tableorm.stores import CLOCK, Operation, Row, Verb
from tableorm.testing import MemoryStore
from tableorm.writes import relocation
from tableorm.writes.move_entity import carry_out_moves
from tests.faults import QUICK, Fate, FaultyStore
from tests.unfinished_moves import FORWARD, HOUR, MARK, TENTATIVE, database_on, handler_of, move_half, work


class Crew(Entity, table="MovesFailing", partition_key="{ship}", row_key="crew"):
    ship: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Sailor(Entity, table="MovesFailing", partition_key="{ship}", row_key="sailor_{id}"):
    ship: Mapped[str]
    id: Mapped[int] = field(default=1)
    text: Mapped[str] = field(default="")
    counted = Count(lambda: Crew.size, ship="{ship}")


pytestmark = pytest.mark.usefixtures("quick_workers", "stopped_clock")


class Met(FaultyStore):
    """Such a network, where others write after each read of a row, as long as they are told to."""

    others: Callable[[str, Row], Awaitable[None]] | None = None

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        row = await super().get(table, partition_key, row_key, select)
        if self.others is not None:
            await self.others(table, row)
        return row


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


async def ships_of(db: Database) -> dict[str, int]:
    """Return the size of the crew of each ship, where the sailor is found on that."""
    found = {ship: await db.get_or_none(Sailor, ship=ship, id=1) for ship in "ab"}
    return {ship: (await db.get(Crew, ship=ship)).size for ship, sailor in found.items() if sailor is not None}


async def test_a_new_key_that_is_taken_leaves_no_work(db: Database, network: Met) -> None:
    """The mark and the message are gone when the error is raised: nobody moves the entity later."""
    taken = Sailor(ship="b", text="taken")
    await db.insert(taken)
    sailor = await db.get(Sailor, ship="a", id=1)
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
        await db.move(await db.get(Sailor, ship="a", id=1), ship="b")
    network.plan()

    await db.delete(taken)
    assert await work(db, Sailor) == [Outcome.DONE]
    assert await ships_of(db) == {"b": 1}


@pytest.mark.parametrize("writes", [MARK, TENTATIVE, FORWARD, FORWARD + 1])
async def test_a_step_in_doubt_is_looked_at_once_more(db: Database, network: Met, writes: int) -> None:
    """A move goes on when a request of it was given up, and is complete when that works at the second time."""
    network.plan(*[Fate.FINE] * writes, *[Fate.LOST_REQUEST] * QUICK.attempts)
    sailor = await db.get(Sailor, ship="a", id=1)
    await db.move(sailor, ship="b")

    sailor.text = "saved"
    await db.save(sailor)  # it is known as it is stored
    assert await ships_of(db) == {"b": 1}
    assert await work(db, Sailor) == []


@pytest.mark.parametrize("writes", [MARK, TENTATIVE, FORWARD, FORWARD + 1])
async def test_a_step_in_doubt_is_looked_at_no_third_time(db: Database, network: Met, writes: int) -> None:
    """Then a worker goes on."""
    network.plan(*[Fate.FINE] * writes, *[Fate.LOST_REQUEST] * 2 * QUICK.attempts)
    with pytest.raises(OutcomeUnknown):
        await db.move(await db.get(Sailor, ship="a", id=1), ship="b")

    assert await work(db, Sailor) == [Outcome.DONE]
    assert await ships_of(db) == {"b": 1}


async def test_what_counts_the_entity_is_gone_when_the_move_is_completed(db: Database, network: Met) -> None:
    """The error says that the move is not complete yet; it is when the row that counts is there again."""
    await move_half(db, network, await db.get(Sailor, ship="a", id=1), FORWARD, ship="b")
    await db.delete(Crew, ship="b", if_match="*")
    with pytest.raises(Conflict, match=r"^move .* to Sailor .* cannot be completed yet: .*Crew"):
        await work(db, Sailor)

    await db.insert(Crew(ship="b"))
    assert await work(db, Sailor) == [Outcome.DONE]
    assert await ships_of(db) == {"b": 1}


async def test_a_command_for_another_key(db: Database, network: Met) -> None:
    """A command whose fields do not make its new key is refused, although the source says the same."""
    await move_half(db, network, await db.get(Sailor, ship="a", id=1), MARK, ship="b")
    CLOCK.advance(HOUR)
    (message,) = await outbox_queues(connection_of(db)).take(OUTBOX, 32, 60)
    row = await network.store.get("MovesFailing", "a", "sailor_1")
    keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
    etag = await network.store.write(
        "MovesFailing", Operation(Verb.MERGE, {**keys, MOVE: row[MOVE].replace('"b"', '"c"', 1)}, "*")
    )
    sent = move_of(message.body)
    forged = structs.replace(sent, target=Place("MovesFailing", "c", "sailor_1"), etag=str(etag))
    with pytest.raises(ValueError, match="its fields make another key"):
        await handler_of(db, Sailor).work(forged.to_message())
    assert await ships_of(db) == {"a": 1}


async def test_a_decision_row_without_a_command(db: Database) -> None:
    """It is refused as one with a forged command, and not by an error of this program."""
    nothing = Decision(partition_key="a", token="token_of_others", works=(Work(kind=MOVE_WORK, row_key="sailor_1"),))
    with pytest.raises(ValueError, match="is not a command to move an entity"):
        await carry_out_moves(connection_of(db), {"Sailor": Sailor.__schema__}, nothing)


@pytest.fixture
def three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "ATTEMPTS", 3)


@pytest.mark.usefixtures("three_attempts")
@pytest.mark.parametrize("times", [2, 3])
async def test_a_forward_that_others_write_whenever_it_is_read(db: Database, network: Met, times: int) -> None:
    """The entity is not changed before its forward is gone; the error names the forward."""
    await move_half(db, network, await db.get(Sailor, ship="a", id=1), FORWARD + 1, ship="b")
    sailor, written = await db.get(Sailor, ship="b", id=1), list[str]()

    async def touch(table: str, row: Row) -> None:
        if row["PartitionKey"] == "a" and row["RowKey"] == "sailor_1" and len(written) < times:
            written.append(row["odata.etag"])
            keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
            await network.store.write(table, Operation(Verb.MERGE, keys, "*"))

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
        await db.get(Sailor, ship="a", id=1)
