"""
Entities get their newer keys: the mover, live writers beside it, what is rejected, the end and the way back.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    LostRace,
    Mapped,
    MovedFrom,
    NotSupported,
    OutcomeUnknown,
    PropertyBag,
    TransactionFailed,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.connection.rows import read_row
from tableorm.models.marker_rows import MoveMark, MoveState, mark_of
from tableorm.models.reserved import MOVE
from tableorm.rekey.chunks import WindowReport
from tableorm.rekey.finalize import finalize_window
from tableorm.rekey.phases import RekeyPhase
from tableorm.rekey.rekeying import entity_of_old
from tableorm.rekey.rollback import roll_back_window
from tableorm.rekey.steps import move_row
from tableorm.rekey.window import move_window
from tableorm.stores import CLOCK, Operation, Row, RowAddress, StoreRequest, Verb
from tableorm.testing import MemoryStore
from tableorm.writes.move_entity import RELOCATION
from tests.faults import QUICK, Fate, FaultyStore
from tests.rekeys import finalize, kinds_of, move, record_pauses, rekeying_of, roll_back, rows_of, set_phase
from tests.rows import delete_row, insert_row, merge_row
from tests.unfinished_moves import FORWARD as MOVED_AWAY
from tests.unfinished_moves import HOUR, MARK, TENTATIVE, database_on, move_half
from tests.writes.verbs import write

SETTLED = MoveState.SETTLED


class Journey(Entity, abstract=True):
    day: Mapped[str] = field(default="mon")
    id: Mapped[int] = field(default=1)
    text: Mapped[str] = field(default="")


class Trip(Journey, table="Rekeyed", partition_key="{day}", row_key="trip_{id}"):
    by_text = Index(row_key="text_{text}_{id}")


class NewTrip(Journey, table="Rekeyed", partition_key="{id}", row_key="day_{day}", moved_from=MovedFrom(Trip)):
    by_text = Index(row_key="newtext_{text}_{day}")


NEW_TRIP = NewTrip.key(day="mon", id=1)


class Stop(Journey, table="RekeyedStops", tracked=True, partition_key="{day}", row_key="stop_{id}"): ...


class NewStop(Journey, table="RekeyedStops", partition_key="{id}", row_key="day_{day}", moved_from=MovedFrom(Stop)): ...


NEW_STOP = NewStop.key(day="mon", id=1)


TRIP = Trip.key(day="mon", id=1)


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Trip 1 of monday has its older key; the phase is *move*."""
    async with database_on(network, Trip, NewTrip) as db:
        await db.insert(Trip(text="t"))
        set_phase(db, NewTrip, RekeyPhase.MOVE)
        yield db


@asynccontextmanager
async def with_stop(network: FaultyStore, phase: RekeyPhase) -> AsyncGenerator[Database]:
    """Open a database on a network, with a stop at its older key."""
    async with database_on(network, Stop, NewStop) as db:
        await db.insert(Stop(text="t"))
        set_phase(db, NewStop, phase)
        yield db


async def rows_in(db: Database, table: str, *kinds: str) -> list[Row]:
    return await rows_of(connection_of(db), table, *kinds)


async def move_rows(db: Database, model: type[Entity], rows: Sequence[Row]) -> WindowReport:
    return await move_window(connection_of(db), rekeying_of(model), rows)


async def roll_back_rows(db: Database, rows: Sequence[Row]) -> WindowReport:
    return await roll_back_window(connection_of(db), rekeying_of(NewTrip), rows)


async def marks(db: Database) -> list[MoveState | None]:
    """Return what the rows of trip 1 say at its older and at its newer key; "absent" if there is none."""
    keys = ("mon", "trip_1"), ("1", "day_mon")
    rows = [await read_row(connection_of(db), RowAddress("Rekeyed", *each)) for each in keys]
    found = [mark_of(row) for row in rows]
    return [None if mark is None else mark.state for mark in found]


async def read_old(db: Database) -> NewTrip:
    """Read trip 1 by its older key, as the newer model."""
    row = await read_row(connection_of(db), RowAddress("Rekeyed", "mon", "trip_1"))
    assert row is not None
    entity = entity_of_old(rekeying_of(NewTrip), row)
    assert isinstance(entity, NewTrip)
    return entity


MOVED = ["1 NewTrip", "1 NewTrip#by_text", "mon Trip#_forward"]


def change(trip: NewTrip) -> None:
    trip.text = "new"


@pytest.mark.parametrize(
    "verb", ["modify", "save", "replace", "merge", "upsert", "save in a transaction", "save in a bulk"]
)
async def test_a_verb_brings_an_entity_home(db: Database, verb: str) -> None:
    """An entity that has its older key gets the newer one, and is written there; its forward is settled by that."""
    if verb == "modify":
        await db.modify(NEW_TRIP, change)
    else:
        trip = NewTrip() if verb == "upsert" else await read_old(db)
        trip.text = "new"
        await write(db, verb, trip)

    assert (await db.get(NEW_TRIP)).text == "new"
    assert await db.get_or_none(TRIP) is None
    assert await marks(db) == [SETTLED, None]
    assert await kinds_of(db, NewTrip) == MOVED
    assert (await db.get(NewTrip.by_text, id=1, text="new", day="mon")).text == "new"


async def test_a_delete_brings_an_entity_home(db: Database) -> None:
    """Nothing is left but a settled forward: the older key stays taken for those who know the older model alone."""
    await db.delete(await read_old(db))
    assert await kinds_of(db, NewTrip) == ["mon Trip#_forward"]
    with pytest.raises(EntityExists):
        await db.insert(Trip())
    with pytest.raises(EntityNotFound):
        await db.delete(NEW_TRIP, if_match="*")


async def test_a_scope_waits_for_the_end(db: Database) -> None:
    """It cannot tell whether an older key is within it."""
    scope = db.scope(day="mon")
    with pytest.raises(NotSupported, match="re-key of Trip to NewTrip is in phase 'move': a scope does not tell"):
        await scope.insert(NewTrip(id=7))
    set_phase(db, NewTrip, RekeyPhase.SEALED)
    await scope.insert(NewTrip(id=7))


async def test_no_insert_at_the_newer_key_before_and_after(db: Database) -> None:
    """While entities have their older keys, nothing in a transaction or a bulk is inserted at the newer key."""
    for phase in (RekeyPhase.EXPAND, RekeyPhase.BACK):
        set_phase(db, NewTrip, phase)
        with pytest.raises(TransactionFailed, match=f"have their older keys in phase '{phase}'"):
            async with db.transaction() as tx:
                tx.insert(NewTrip(day="tue", id=5))


async def test_a_move_by_other_fields_is_refused(db: Database) -> None:
    """Both rows of such a move would be in the way of the re-key."""
    await move(db, NewTrip)
    with pytest.raises(NotSupported, match="NewTrip cannot be moved to another partition while it takes"):
        await db.move(await db.get(NEW_TRIP), id=2)


async def test_a_bag_that_is_merged_over_whatever_is_there(db: Database) -> None:
    """Beside an entity that has come home, a bag of another one changes what it has, and nothing that others wrote."""
    await db.create_tables(Stop, NewStop)
    set_phase(db, NewStop, RekeyPhase.MOVE)
    for day in ("mon", "tue"):
        await db.insert(Stop(day=day))
    await move(db, NewStop)
    bag = await db.get(PropertyBag.key("RekeyedStops", "1", "day_mon"))
    other = await db.get(NEW_STOP)
    other.text = "of others"
    await db.save(other)
    stop = await db.get(NewStop, day="tue", id=1)
    async with db.transaction() as tx:
        bag["Note"] = "new"
        tx.merge(bag, ["Note"], if_match="*")
        stop.text = "new"
        tx.save(stop)

    found = await db.get(NEW_STOP)
    assert (found.text, found.extra["Note"]) == ("of others", "new")


async def die_after(network: FaultyStore, writes: int, work: Coroutine[Any, Any, object]) -> None:
    """Run something that dies after some writes."""
    task = asyncio.create_task(work)
    network.plan()

    async def die() -> None:
        network.meanwhile = die
        if len(network.sent) == writes:
            task.cancel()
            network.meanwhile = None
            await asyncio.sleep(0)

    network.meanwhile = die
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("touched", [False, True])
async def test_the_end_after_a_mover_that_died(db: Database, network: FaultyStore, touched: bool) -> None:
    """A tentative row that is an entity is confirmed before its forward goes, which alone says that it is one."""
    rows = await rows_in(db, "Rekeyed", "Trip")
    await die_after(network, 2, move_rows(db, NewTrip, rows))
    rows = await rows_in(db, "Rekeyed", "Trip#_forward")
    if touched:
        keys = {"PartitionKey": "mon", "RowKey": "trip_1"}
        await merge_row(db, "Rekeyed", keys)
    set_phase(db, NewTrip, RekeyPhase.SEALED)
    report = await finalize_window(connection_of(db), rekeying_of(NewTrip), rows, confirmed=touched)

    assert (report.moved, report.failures) == (1, [])
    assert await kinds_of(db, NewTrip) == ["1 NewTrip", "1 NewTrip#by_text"]
    assert (await db.get(NEW_TRIP)).text == "t"


@pytest.mark.parametrize("fate", [Fate.BUSY, Fate.LOST_REQUEST, Fate.LOST_REPLY])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_each_request_of_a_mover_fails_once(number: int, fate: Fate) -> None:
    """
    What the store refuses for now is sent again. What is in doubt is not: the rows of the entity say how to go on, and
    whether it was this mover that has moved it.
    """
    network = FaultyStore(MemoryStore())
    async with with_stop(network, RekeyPhase.MOVE) as db:
        rows = await rows_in(db, "RekeyedStops")
        network.plan(*[Fate.FINE] * number, fate)
        report = await move_rows(db, NewStop, rows)

        assert (report.failures, report.collisions) == ([], [])
        assert report.moved == (0 if (number, fate) == (1, Fate.LOST_REPLY) else 1)
        assert len(network.sent) == {(0, Fate.LOST_REPLY): 7, (1, Fate.LOST_REQUEST): 7}.get(
            (number, fate), 3 if fate is Fate.LOST_REPLY else 4
        )
        assert await kinds_of(db, NewStop) == ["1 NewStop", "mon Stop#_forward"]
        assert (await db.get(NEW_STOP)).text == "t"


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_live_writer_in_doubt(db: Database, network: FaultyStore, lost: int) -> None:
    """It looks once more at the rows when a request of a move was given up, and raises at the second time."""
    network.plan(Fate.FINE, *[Fate.LOST_REQUEST] * lost * QUICK.attempts)
    if lost == 1:
        await db.modify(NEW_TRIP, change)
    else:
        with pytest.raises(OutcomeUnknown):
            await db.modify(NEW_TRIP, change)
    network.plan()
    await move(db, NewTrip)

    assert await kinds_of(db, NewTrip) == MOVED
    assert (await db.get(NEW_TRIP)).text == ("new" if lost == 1 else "t")


@pytest.mark.parametrize("stays", [True, False])
async def test_a_tentative_row_is_made_impossible_at_the_row_on_which_it_builds(db: Database, stays: bool) -> None:
    """That gets another ETag; not so if the mark is one of a move, of which that row would have to say too."""
    (row,) = await rows_in(db, "Rekeyed", "Trip")
    mark = MoveMark(
        state=MoveState.TENTATIVE,
        move="m",
        other=RowAddress("Rekeyed", "mon", "trip_1"),
        etag=row["odata.etag"],
        stays=stays,
    )
    keys = {"PartitionKey": "1", "RowKey": "day_mon", "day": "mon", "id": 1}
    tentative = {**keys, "EntityType": "NewTrip#_tentative", MOVE: mark.to_text()}
    await insert_row(db, "Rekeyed", tentative)
    assert await RELOCATION.resolve(connection_of(db), RowAddress("Rekeyed", "1", "day_mon"), NewTrip.__schema__)

    (after,) = await rows_in(db, "Rekeyed", "Trip")
    assert (after["odata.etag"] == row["odata.etag"]) is not stays
    assert await kinds_of(db, NewTrip) == ["mon Trip", "mon Trip#by_text"]


async def test_a_marker_row_that_says_nothing(db: Database) -> None:
    """Another program has put it at an older key: there is no entity to be moved."""
    row = {"PartitionKey": "tue", "RowKey": "trip_2", "EntityType": "Trip#_tentative"}
    await insert_row(db, "Rekeyed", row)
    rekeying, place = rekeying_of(NewTrip), RowAddress("Rekeyed", "tue", "trip_2")

    assert not await move_row(connection_of(db), rekeying, place)
    assert not await move_row(connection_of(db), rekeying, place, row | {"odata.etag": "e"})
    assert "tue Trip#_tentative" in await kinds_of(db, NewTrip)


async def test_a_forward_that_is_settled_or_gone_since_it_was_read(db: Database) -> None:
    """It is deleted as it is then; one that somebody else has deleted counts too."""
    await db.insert(NewTrip(id=2))
    await db.insert(NewTrip(id=3))
    await move(db, NewTrip)
    rows = await rows_in(db, "Rekeyed", "Trip#_forward")
    await db.modify(NEW_TRIP, change)
    gone = {"PartitionKey": "mon", "RowKey": "trip_2"}
    await delete_row(db, "Rekeyed", gone)
    set_phase(db, NewTrip, RekeyPhase.SEALED)
    report = await finalize_window(connection_of(db), rekeying_of(NewTrip), rows, confirmed=True)

    assert (report.moved, report.failures) == (3, [])
    assert not await rows_in(db, "Rekeyed", "Trip#_forward")


class Restless(FaultyStore):
    """A store in which somebody else writes a row each time before it is written as it was read, from some time on."""

    begun = False

    async def send(self, request: StoreRequest) -> Any:
        for row in [each.row for each in request.operations if self.begun and each.if_match]:
            keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
            await merge_row(self.store, request.table, keys)
        return await super().send(request)


@pytest.mark.parametrize(
    ("phase", "step", "message"),
    [
        (RekeyPhase.MOVE, move, "of ('mon', 'stop_1') in table RekeyedStops: others wrote its rows first, 50 times"),
        (
            RekeyPhase.BACK,
            roll_back,
            "back, of ('1', 'day_mon') in table RekeyedStops: others wrote its rows first, 50",
        ),
        (RekeyPhase.SEALED, finalize, "('mon', 'stop_1') in table RekeyedStops cannot be deleted; try it again"),
    ],
)
async def test_rows_that_others_write_again_and_again(
    phase: RekeyPhase,
    step: Callable[[Database, type[Entity]], Awaitable[WindowReport]],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The entity is reported as a failure, and is what it was; between two attempts there is a pause."""
    network = Restless(MemoryStore())
    async with with_stop(network, RekeyPhase.MOVE) as db:
        if phase is not RekeyPhase.MOVE:
            await move(db, NewStop)
        set_phase(db, NewStop, phase)
        network.begun = True
        pauses = record_pauses(monkeypatch)
        report = await step(db, NewStop)

        assert pauses == list(range(1, 50))
        (failure,) = report.failures
        assert isinstance(failure.error, LostRace) and message in str(failure.error)
        assert report.moved == 0 and (await db.get(NEW_STOP)).text == "t"


class Overtaken(FaultyStore):
    """A store in which somebody else does something once, before a row is written as it was read."""

    others: Callable[[], Awaitable[object]] | None = None
    happened = False

    async def send(self, request: StoreRequest) -> Any:
        others = self.others if any(each.if_match for each in request.operations) else None
        if others is not None:
            self.others = None
            await others()
            self.happened = True
        return await super().send(request)


@pytest.mark.parametrize("verb", ["modify", "delete"])
@pytest.mark.parametrize("others", ["change", "delete"])
async def test_others_write_a_row_at_its_older_key_first(verb: str, others: str) -> None:
    """What is written by its newer key is read again, and done to what is there then."""
    network = Overtaken(MemoryStore())
    async with with_stop(network, RekeyPhase.EXPAND) as db:
        key = NEW_STOP
        network.others = (
            partial(db.delete, Stop, day="mon", id=1, if_match="*")
            if others == "delete"
            else partial(db.upsert, Stop(text="new"))
        )
        done = (
            db.delete(key, if_match="*")
            if verb == "delete"
            else db.modify(key, lambda stop: stop.evolve(text=stop.text + "!"))
        )
        if others == "delete":
            with pytest.raises(EntityNotFound, match="NewStop") as raised:
                await done
            assert (raised.value.code, raised.value.key) == ("ResourceNotFound", key)
        else:
            await done

        assert network.happened
        found = await db.get_or_none(key)
        assert (None if found is None else found.text) == ("new!" if (verb, others) == ("modify", "change") else None)


@pytest.mark.parametrize("by", ["mover", "live writer"])
async def test_an_entity_that_is_deleted_while_it_moves(by: str) -> None:
    """Whoever has begun to move it takes the tentative row away."""
    network = Overtaken(MemoryStore())
    async with with_stop(network, RekeyPhase.MOVE) as db:
        rows = await rows_in(db, "RekeyedStops")
        keys = {"PartitionKey": "mon", "RowKey": "stop_1"}
        network.others = partial(network.store.write, "RekeyedStops", Operation(Verb.DELETE, keys, "*"))
        if by == "mover":
            report = await move_rows(db, NewStop, rows)
            assert (report.moved, report.failures) == (0, [])
        else:
            with pytest.raises(EntityNotFound):
                await db.modify(NEW_STOP, lambda stop: stop.evolve(text="new"))

        assert network.happened and await kinds_of(db, NewStop) == []


async def test_an_older_key_that_is_written_while_it_is_freed(db: Database) -> None:
    """Somebody has written its row since it was read: it is freed at the next time."""
    await db.insert(NewTrip(day="wed", id=3))
    await db.delete(NewTrip, day="wed", id=3, if_match="*")
    set_phase(db, NewTrip, RekeyPhase.BACK)
    rows = await rows_in(db, "Rekeyed", "Trip#_forward")
    keys = {"PartitionKey": "wed", "RowKey": "trip_3"}
    await merge_row(db, "Rekeyed", keys)
    report = await roll_back_rows(db, rows)
    assert (report.moved, report.failures) == (0, [])
    rows = await rows_in(db, "Rekeyed", "Trip#_forward")
    report = await roll_back_rows(db, rows)

    assert (report.moved, report.failures) == (1, [])
    assert await rows_in(db, "Rekeyed", "Trip#_forward") == []


@pytest.mark.usefixtures("stopped_clock")
async def test_the_audit_leaves_rows_of_a_re_key_alone(db: Database) -> None:
    """Forwards stay for long; those who run the re-key look at them. What is derived is checked as ever."""
    await db.insert(NewTrip(day="tue", id=2, text="x"))
    await move(db, NewTrip)
    CLOCK.advance(2 * HOUR)
    for model in (Trip, NewTrip):
        assert (await db.audit(model, repair=True)).clean


async def test_a_row_that_was_read_before_the_entity_came_again(db: Database, network: FaultyStore) -> None:
    """The way back goes by the newer row as it is after the forward was read: a later move may not be confirmed yet."""
    await move(db, NewTrip)
    (stale,) = await rows_in(db, "Rekeyed", "NewTrip")
    for place, row_key in (("mon", "trip_1"), ("1", "day_mon"), ("1", "newtext_t_mon")):
        keys = {"PartitionKey": place, "RowKey": row_key}
        await delete_row(db, "Rekeyed", keys)
    await db.insert(Trip(text="again"))
    rows = await rows_in(db, "Rekeyed", "Trip")
    await die_after(network, 2, move_rows(db, NewTrip, rows))
    assert "1 NewTrip#_tentative" in await kinds_of(db, NewTrip)
    set_phase(db, NewTrip, RekeyPhase.BACK)
    report = await roll_back_rows(db, [stale])

    assert (report.moved, report.failures) == (1, [])
    assert (await db.get(TRIP)).text == "again"
    assert await kinds_of(db, NewTrip) == ["mon Trip", "mon Trip#by_text"]


class Neighbour(Entity, table="Rekeyed", partition_key="{day}", row_key="trip_{id}"):
    day: Mapped[str]
    id: Mapped[int]


async def test_a_row_of_another_kind_at_the_older_key(db: Database) -> None:
    """It is no entity of the older model: nobody moves it, and an insert by the newer model finds its key taken."""
    await db.insert(Neighbour(day="tue", id=2))
    with pytest.raises(EntityNotFound):
        await db.modify(NewTrip, change, day="tue", id=2)
    with pytest.raises(EntityExists, match=r"another entity with its key by Trip, \('tue', 'trip_2'\)"):
        await db.insert(NewTrip(day="tue", id=2))
    assert (await move(db, NewTrip)).moved == 1
    assert await db.get(Neighbour, day="tue", id=2) == Neighbour(day="tue", id=2)


@pytest.mark.parametrize("writes", [1, 2])
async def test_older_programs_beside_the_way_back(db: Database, network: FaultyStore, writes: int) -> None:
    """The older key stays taken, whatever somebody who died has left there; another one goes back all the way."""
    await move(db, NewTrip)
    set_phase(db, NewTrip, RekeyPhase.BACK)
    await die_after(network, writes, roll_back(db, NewTrip))
    with pytest.raises(EntityExists):
        await db.insert(Trip(text="other"))
    assert not (await roll_back(db, NewTrip)).failures

    assert (await db.get(TRIP)).text == "t"
    assert await kinds_of(db, NewTrip) == ["mon Trip", "mon Trip#by_text"]


@pytest.mark.parametrize("met", ["newer row", "older row", "modify", "delete"])
async def test_who_meets_the_rows_of_a_way_back_that_died(db: Database, network: FaultyStore, met: str) -> None:
    """The entity has its older key already: whoever comes first confirms that, by either of its rows."""
    await move(db, NewTrip)
    set_phase(db, NewTrip, RekeyPhase.BACK)
    await die_after(network, 2, roll_back(db, NewTrip))
    assert {"1 NewTrip#_forward", "mon Trip#_tentative"} <= set(await kinds_of(db, NewTrip))
    if met == "modify":
        await db.modify(NEW_TRIP, change)
    elif met == "delete":
        await db.delete(NEW_TRIP, if_match="*")
    else:
        kind = "NewTrip#_forward" if met == "newer row" else "Trip#_tentative"
        rows = await rows_in(db, "Rekeyed", kind)
        report = await roll_back_rows(db, rows)
        assert (report.moved, report.failures, report.collisions) == (int(met == "newer row"), [], [])

    assert await kinds_of(db, NewTrip) == ([] if met == "delete" else ["mon Trip", "mon Trip#by_text"])
    found = await db.get_or_none(TRIP)
    assert (found and found.text) == {"modify": "new", "delete": None}.get(met, "t")


@pytest.mark.parametrize("verb", ["mover", "modify"])
@pytest.mark.parametrize("writes", [MARK, TENTATIVE, MOVED_AWAY, MOVED_AWAY + 1])
async def test_a_move_by_the_older_model_that_died(db: Database, network: FaultyStore, writes: int, verb: str) -> None:
    """It is completed, or never happens; then the entity gets its newer key from where it is."""
    await move_half(db, network, await db.get(TRIP), writes, day="tue")
    day = "tue" if writes >= MOVED_AWAY else "mon"
    if verb == "mover":
        await move(db, NewTrip)
    else:
        await db.modify(NewTrip, change, day=day, id=1)
        await move(db, NewTrip)

    assert [trip.day for trip in await db.select(NewTrip).allow_scan().all()] == [day]
    assert await db.select(Trip).allow_scan().all() == []
    assert [each for each in await kinds_of(db, NewTrip) if "_tentative" in each] == []
