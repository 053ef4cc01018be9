"""
Writes by programs of a newer model as long as entities have their older keys: before they are moved, and going back.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    GoingBack,
    Index,
    Mapped,
    MovedFrom,
    NotSupported,
    PreconditionFailed,
    PropertyBag,
    TransactionFailed,
    UniqueViolation,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.rekey.phases import RekeyPhase, change_phase, load_phase
from tests.databases import memory_database
from tests.faults import FaultyStore
from tests.rekeys import kinds_of, move, rekeying_of, roll_back, set_phase
from tests.unfinished_moves import database_on
from tests.writes.verbs import write


class Trip(Entity, abstract=True):
    day: Mapped[str] = field(default="tue")
    id: Mapped[int] = field(default=2)
    text: Mapped[str] = field(default="")


class Ride(Trip, table="Expanded", partition_key="{day}", row_key="ride_{id}"):
    code: Mapped[str | None] = field(default=None)

    by_code = Index(row_key="code_{code}", unique=True)


class NewRide(Trip, table="Expanded", partition_key="{id}", row_key="day_{day}", moved_from=MovedFrom(Ride)):
    code: Mapped[str | None] = field(default=None)

    by_text = Index(row_key="newtext_{text}_{day}")


TUESDAY = NewRide.key(day="tue", id=2)


MONDAY = NewRide.key(day="mon", id=1)


class Bill(Entity, table="ExpandedBills", tracked=True, partition_key="{payer}", row_key="{number}"):
    payer: Mapped[str]
    number: Mapped[int]
    cents: Mapped[int]


def keys_of_bill(number: int, cents: int = 0) -> list[dict[str, Any]]:
    return [{"payer": payer, "number": number} for payer in ("ann", "ben")]


class NewBill(
    Entity,
    table="ExpandedNewBills",
    partition_key="bills",
    row_key="{number}",
    moved_from=MovedFrom(
        Bill,
        to_new=lambda bill: NewBill(payer=bill.payer, number=bill.number, euros=bill.cents / 100),
        to_old=lambda bill: Bill(payer=bill.payer, number=bill.number, cents=round(bill.euros * 100)),
        old_keys=keys_of_bill,
    ),
):
    payer: Mapped[str]
    number: Mapped[int]
    euros: Mapped[float] = field(default=0.0)


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Ride 1 of monday has its older key."""
    async with database_on(network, Ride, NewRide, Bill, NewBill) as db:
        await db.insert(Ride(day="mon", id=1, text="t"))
        yield db


OLD = ["mon Ride"]
BOTH = pytest.mark.parametrize("phase", [RekeyPhase.EXPAND, RekeyPhase.BACK])


def change(ride: Trip) -> None:
    ride.text = "new"


@BOTH
@pytest.mark.parametrize(("verb", "arguments"), [("save", {}), ("replace", {}), ("merge", {"only": ["text", "code"]})])
async def test_a_verb_writes_at_the_older_key(
    db: Database, verb: str, arguments: dict[str, Any], phase: RekeyPhase
) -> None:
    """The row is that of the older model, which finds it by its own index too; nothing is at the newer key."""
    set_phase(db, NewRide, phase)
    ride = await db.get(MONDAY)
    for text in ("once", "new"):
        ride.text = ride.code = text
        await write(db, verb, ride, **arguments)
        assert ride.etag == (await db.get(Ride, day="mon", id=1)).etag

    assert (await db.get(Ride, day="mon", id=1)).text == "new"
    assert (await db.get(MONDAY)).text == "new"
    assert await kinds_of(db, NewRide) == [*OLD, "mon Ride#by_code"]


@BOTH
async def test_modify_writes_at_the_older_key(db: Database, phase: RekeyPhase) -> None:
    """By fields and by key."""
    set_phase(db, NewRide, phase)
    await db.modify(MONDAY, change)
    await db.modify(MONDAY, lambda ride: ride.evolve(text=ride.text + "er"))

    assert (await db.get(Ride, day="mon", id=1)).text == "newer"
    assert await kinds_of(db, NewRide) == OLD


@BOTH
async def test_inserts_and_deletes_at_the_older_key(db: Database, phase: RekeyPhase) -> None:
    """An entity that is inserted can be saved, refreshed, deleted and inserted again."""
    set_phase(db, NewRide, phase)
    ride = NewRide(code="c")
    await db.insert(ride)
    assert await kinds_of(db, NewRide) == [*OLD, "tue Ride", "tue Ride#by_code"]
    assert ride.etag == (await db.get(Ride, day="tue", id=2)).etag
    ride.text = "x"
    await db.save(ride)
    ride.text = "lost"
    await db.refresh(ride)
    assert ride.text == "x"
    with pytest.raises(EntityExists, match="there is such an entity"):
        await db.insert(NewRide())
    with pytest.raises(UniqueViolation):
        await db.insert(NewRide(id=3, code="c"))
    await db.delete(ride)
    assert ride.etag is None
    assert await kinds_of(db, NewRide) == OLD
    with pytest.raises(EntityNotFound):
        await db.delete(TUESDAY, if_match="*")
    await db.delete(TUESDAY, if_match="*", missing_ok=True)
    assert await db.get_or_insert(ride) == (ride, True)
    assert await db.get_or_insert(NewRide()) == (ride, False)
    await db.delete(TUESDAY, if_match="*")
    assert await kinds_of(db, NewRide) == OLD


@pytest.mark.parametrize("phase", [RekeyPhase.EXPAND, RekeyPhase.MOVE, RekeyPhase.BACK])
async def test_a_delete_after_a_key_field_was_changed(db: Database, phase: RekeyPhase) -> None:
    """What was read is deleted, as of any entity."""
    set_phase(db, NewRide, phase)
    ride = await db.get(MONDAY)
    ride.day = "tue"
    await db.delete(ride)
    assert await kinds_of(db, NewRide) == (["mon Ride#_forward"] if phase is RekeyPhase.MOVE else [])


async def test_functions_say_what_is_written(db: Database) -> None:
    """What the older model has no field for stays, and the older key must stay what it is."""
    await db.insert(Bill(payer="ben", number=1, cents=150))
    await db.merge(PropertyBag("ExpandedBills", "ben", "1", {"Seen": True}), if_match="*")
    bill = await db.get(NewBill, number=1)
    assert bill.euros == 1.5 and dict(bill.extra) == {"Seen": True}
    bill.euros = 2.25
    bill.extra["Paid"] = "no"
    await db.save(bill)
    bill.extra.clear()
    bill.extra["Paid"] = "yes"
    await db.save(bill)
    old = await db.get(Bill, payer="ben", number=1)
    assert old.cents == 225 and dict(old.extra) == {"Paid": "yes"}
    bill.payer = "ann"
    with pytest.raises(
        EncodeError, match=r"NewBill.moved_from: NewBill.* would have another key by Bill, Bill \('ann', '1'\)"
    ):
        await db.save(bill)
    bill = NewBill(payer="ann", number=1)
    with pytest.raises(EntityExists, match="there is such an entity") as raised:
        await db.insert(bill)
    assert (raised.value.code, raised.value.entity) == ("EntityAlreadyExists", bill)


async def test_two_newer_keys_of_one_older_key(db: Database) -> None:
    """The second insert finds the older key taken, and says by which one."""

    class NewNote(
        Entity,
        table="ExpandedNotes",
        partition_key="{number}",
        row_key="{cents}",
        moved_from=MovedFrom(Bill, old_keys=keys_of_bill),
    ):
        payer: Mapped[str]
        number: Mapped[int]
        cents: Mapped[int]

    await db.create_tables(NewNote)
    await db.insert(NewNote(payer="ann", number=1, cents=5))
    with pytest.raises(EntityExists, match=r"another entity with its key by Bill, .*ann"):
        await db.insert(NewNote(payer="ann", number=1, cents=6))


async def test_blind_writes_and_writes_of_many_are_refused(db: Database) -> None:
    """They do not look where the entity is. Each error names the model, the key and the phase."""
    ride = await db.get(MONDAY)
    ride.text = "new"
    for blind in (db.upsert(ride), db.merge(ride, if_match="*"), db.replace(ride, if_match="*")):
        with pytest.raises(NotSupported, match=r"of NewRide \('1', 'day_mon'\): re-key .* is in phase 'expand'"):
            await blind
    for verb in ("save", "delete"):
        with pytest.raises(TransactionFailed, match=r"'day_mon'\): in phase 'expand', .* key is that of Ride"):
            async with db.transaction() as tx:
                getattr(tx, verb)(ride)
    async with db.bulk(errors="report") as bulk:
        await bulk.save(ride)
        await bulk.insert(NewRide())
    assert [type(each.error) for each in bulk.report.failed] == [NotSupported, NotSupported]
    with pytest.raises(NotSupported, match="re-key of Ride to NewRide is in phase 'expand': a scope"):
        await db.scope(id=1).get(NewRide, day="mon")
    with pytest.raises(NotSupported, match="a scope does not tell"):
        await db.scope(id=1).insert(NewRide(day="wed", id=1))
    assert await kinds_of(db, NewRide) == OLD


async def test_a_program_that_has_not_heard_of_the_move(db: Database) -> None:
    """Who meets a row of a mover asks for the phase, and goes on as in that."""
    ride = await db.get(MONDAY)
    rekeying = rekeying_of(NewRide)
    connection = connection_of(db)
    await change_phase(connection, rekeying, await load_phase(connection, rekeying), RekeyPhase.MOVE)
    await db.insert(NewRide())
    await db.delete(TUESDAY, if_match="*")
    await move(db, NewRide)
    set_phase(db, NewRide, RekeyPhase.EXPAND)
    ride.text = "mine"
    await db.save(ride)
    set_phase(db, NewRide, RekeyPhase.EXPAND)
    assert (await db.get(MONDAY)).text == "mine"
    await db.insert(NewRide(text="again"))
    assert await kinds_of(db, NewRide) == [
        "1 NewRide",
        "1 NewRide#by_text",
        "2 NewRide",
        "2 NewRide#by_text",
        "mon Ride#_forward",
        "tue Ride#_forward",
    ]


async def test_an_entity_that_has_gone_back(db: Database) -> None:
    """Read at its newer key and saved at its older one, it has changed: it is read again, as modify does."""
    set_phase(db, NewRide, RekeyPhase.MOVE)
    await move(db, NewRide)
    ride = await db.get(MONDAY)
    ride.text = "mine"
    await db.insert(NewRide())
    await db.delete(TUESDAY, if_match="*")
    set_phase(db, NewRide, RekeyPhase.BACK)
    with pytest.raises(
        GoingBack, match=r"its key by Ride, .* was that of an entity which was deleted, .* try it again"
    ):
        await db.insert(NewRide())
    await roll_back(db, NewRide)
    with pytest.raises(PreconditionFailed, match=r"\('1', 'day_mon'\): it has its key by Ride again") as raised:
        await db.save(ride)
    assert (raised.value.code, raised.value.entity) == ("UpdateConditionNotSatisfied", ride)
    await db.modify(MONDAY, change)
    await db.insert(NewRide())
    assert await kinds_of(db, NewRide) == [*OLD, "tue Ride"]


class Toll(Trip, table="ExpandedTolls", tracked=True, partition_key="{day}", row_key="{id}"): ...


class NewToll(
    Trip, table="ExpandedNewTolls", tracked=True, partition_key="{id}", row_key="{day}", moved_from=MovedFrom(Toll)
): ...


NEW_TOLL = NewToll.key(day="mon", id=2)


@BOTH
async def test_newer_table_may_be_missing_until_entities_move(phase: RekeyPhase) -> None:
    """As long as entities are written at their older keys, a missing newer table holds none of them."""
    async with memory_database(Toll) as db:
        await db.insert(Toll(day="mon", id=1))
        set_phase(db, NewToll, phase)

        gone = await db.get(NewToll, day="mon", id=1)
        await db.delete(await db.get(NewToll, day="mon", id=1))
        assert await db.get_or_none(NEW_TOLL) is None
        assert not await db.exists(NEW_TOLL)
        with pytest.raises(EntityNotFound):
            await db.get(NEW_TOLL)
        with pytest.raises(EntityNotFound):
            await db.modify(NEW_TOLL, change)
        gone.text = "late"
        for verb in ("save", "delete"):
            with pytest.raises(EntityNotFound):
                await write(db, verb, gone)
        with pytest.raises(EntityNotFound):
            await db.delete(NEW_TOLL, if_match="*")

        await db.insert(NewToll(day="mon", id=3))
        await db.get_or_insert(NewToll(day="mon", id=4))
        await db.modify(NewToll, change, day="mon", id=3)
        query = db.select(NewToll).allow_scan()
        assert [each.id for each in await query.all()] == [3, 4]
        assert [each.id async for each in query.where(NewToll.text == "new")] == [3]
        assert (await query.count(), await query.exists()) == (2, True)
        assert [each.id for each in await db.select(Toll).where(Toll.day == "mon").all()] == [3, 4]
