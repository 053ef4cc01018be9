"""
Re-key while nobody writes: copying, verifying, deleting; collisions, splits, joins, and other databases.
"""

import datetime as dt
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    EntityExists,
    Int32,
    Mapped,
    ModelError,
    NotSupported,
    RunReport,
    TableNotFound,
    connect,
    field,
)
from tableorm.jobs import plan
from tableorm_migrations import finalize_rekey, run_rekey, verify_rekey
from tests.migrations.conftest import in_memory
from tests.migrations.flights import DAY, Flight, TailFlight, expected_rows, fill, flights, other_fields, rows_of


class Trip(Flight, table="RekeyTrips"):
    pass


class TailTrip(TailFlight, table="RekeyTails"):
    pass


def to_tail(trip: Trip) -> TailTrip:
    return TailTrip(**other_fields(trip))


async def copy(db: Database) -> RunReport:
    return await run_rekey(db, Trip, TailTrip, to_new=to_tail, writers_stopped=True)


async def verify(db: Database) -> RunReport:
    return await verify_rekey(db, Trip, TailTrip, to_new=to_tail)


async def finalize(db: Database, **options: Any) -> RunReport:
    return await finalize_rekey(db, Trip, TailTrip, to_new=to_tail, **options)


async def test_entities_are_copied_verified_and_deleted(db: Database) -> None:
    """Each entity is at its newer key with its index entry, both sides agree, and then the older rows are deleted."""
    await fill(db, Trip, 250)

    copied = await copy(db)
    verified = await verify(db)
    before = await rows_of(db, "RekeyTrips", "Trip")
    deleted = await finalize(db)

    assert (copied.state, copied.entities, copied.written, copied.failed) == ("done", 250, 250, 0)
    assert 0 < copied.others["transactions"] < 250
    assert (verified.complete, verified.entities) == (True, 250)
    assert len(before) == 250
    assert (deleted.complete, deleted.written) == (True, 250)
    assert await rows_of(db, "RekeyTrips", "Trip") == {}
    assert await rows_of(db, "RekeyTails", "TailTrip") == expected_rows(flights(Trip, 250))
    assert len(await db.select(TailTrip.by_origin).where(TailTrip.tail == "N1", TailTrip.origin == "JFK").all()) == 16


async def test_writers_have_to_be_stopped(db: Database) -> None:
    """Without the word of the operator that nobody writes nothing is copied."""
    with pytest.raises(NotSupported, match="writers_stopped=True"):
        await run_rekey(db, Trip, TailTrip, to_new=to_tail)


class Seat(Entity, table="RekeySeats", partition_key="{tail}", row_key="{number:06d}"):
    tail: Mapped[str]
    number: Mapped[int]
    seats: Mapped[Int32]


def to_seat(trip: Trip) -> Seat:
    return Seat(tail="all", number=trip.number // 2, seats=trip.seats)


@in_memory
async def test_two_entities_of_one_key_collide(db: Database) -> None:
    """The run stops at the first collision, or goes on and reports each; nothing is overwritten or deleted."""
    await fill(db, Trip, 10)

    with pytest.raises(EntityExists, match="other content"):
        await run_rekey(db, Trip, Seat, to_new=to_seat, writers_stopped=True)
    report = await run_rekey(db, Trip, Seat, to_new=to_seat, writers_stopped=True, on_collision="skip")
    verified = await verify_rekey(db, Trip, Seat, to_new=to_seat)

    assert (report.state, report.failed) == ("failed", 5)
    assert "other content" in report.failures[0]
    assert verified.state == "failed"
    assert any("other content" in each for each in verified.failures)
    with pytest.raises(NotSupported, match="run verify_rekey"):
        await finalize_rekey(db, Trip, Seat, to_new=to_seat)
    assert len(await db.select(Seat).allow_scan().all()) == 5


@in_memory
async def test_equal_entities_of_one_key_are_told(db: Database) -> None:
    """Two entities that become the same row in every property are found by the verification."""

    def to_same(trip: Trip) -> Seat:
        return Seat(tail="all", number=trip.number // 2, seats=1)

    await fill(db, Trip, 4)

    await run_rekey(db, Trip, Seat, to_new=to_same, writers_stopped=True)
    verified = await verify_rekey(db, Trip, Seat, to_new=to_same)

    assert not verified.complete
    assert any("too; give merge=" in each for each in verified.failures)


async def test_a_model_is_copied_to_another_database(db: Database, tmp_path: Path) -> None:
    """There, on another store, the entities of the same model can have the same keys."""
    await fill(db, Trip, 120)
    async with connect(f"local:{tmp_path}/other.tables") as other:
        assert (await run_rekey(db, Trip, Trip, target=other, writers_stopped=True)).complete

        assert await rows_of(other, "RekeyTrips", "Trip") == await rows_of(db, "RekeyTrips", "Trip") != {}


@in_memory
@pytest.mark.parametrize("damage", ["missing", "changed", "extra"])
async def test_each_difference_is_found(db: Database, damage: str) -> None:
    """A newer entity that is missing, or has other content, or comes from nowhere, is named, and nothing is deleted."""
    await fill(db, Trip, 60)
    await copy(db)
    assert (await verify(db)).complete
    victim = await db.get(TailTrip, tail="N1", day=DAY, number=1)
    if damage == "missing":
        await db.delete(victim)
    elif damage == "changed":
        victim.seats = 7
        await db.save(victim)
    else:
        await db.insert(victim.evolve(number=77))

    with pytest.raises(NotSupported, match="nothing was deleted"):
        await finalize(db)
    report = await verify(db)

    words = {
        "missing": "is missing",
        "changed": "has other content",
        "extra": "000077') of table RekeyTails: no entity",
    }
    assert any(words[damage] in each for each in report.failures)
    assert len(await rows_of(db, "RekeyTrips", "Trip")) == 60


@in_memory
async def test_what_was_written_between_two_verifications(db: Database) -> None:
    """An entity that is written between the two verifications, though it has the same content, stops the deletion."""
    await fill(db, Trip, 20)
    await copy(db)
    await verify(db)
    trip = await db.get(Trip, origin="JFK", day=DAY, number=1)
    await db.replace(trip)

    with pytest.raises(NotSupported, match="between the two verifications"):
        await finalize(db)

    assert len(await rows_of(db, "RekeyTrips", "Trip")) == 20


@in_memory
async def test_what_was_written_since_the_verification_stays(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity that is inserted while the older ones are deleted stays, and is reported."""
    monkeypatch.setattr(plan, "SMALL_PAGES", 0)  # so that there is more than one range
    await fill(db, Trip, 20)
    await copy(db)
    await verify(db)

    def stop(report: RunReport) -> None:
        if report.what.startswith("finalize"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await finalize(db, parallel=1, on_progress=stop)
    origin, _ = next(iter(await rows_of(db, "RekeyTrips", "Trip")))  # of a range that is not done
    await db.insert(Trip(origin=origin, day=DAY, number=1000))
    await db.insert(Trip(origin=origin, day=DAY, number=1001))
    report = await finalize(db)

    assert (report.state, report.written, report.failed) == ("failed", 20, 2)
    assert "was written after it was verified" in report.failures[0]
    assert len(await rows_of(db, "RekeyTrips", "Trip")) == 2


@in_memory
async def test_a_function_that_fails_is_reported(db: Database) -> None:
    """An entity that the function cannot convert is named with the reason; the others are copied."""

    def convert(trip: Trip) -> TailTrip:
        if trip.number == 5:
            raise ValueError("a trip without sense")
        return to_tail(trip)

    await fill(db, Trip, 20)

    report = await run_rekey(db, Trip, TailTrip, to_new=convert, writers_stopped=True)

    assert (report.state, report.written, report.failed) == ("failed", 19, 1)
    assert report.failures == ("('LGA', '2024-01-01_000005'): ValueError: a trip without sense",)


NEVER = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MOMENTS = (NEVER + dt.timedelta(days=day) for day in count(1))


def next_moment() -> dt.datetime:
    """Return a later time at each call."""
    return next(MOMENTS)


class Dated(Entity, table="RekeyDated", partition_key="{site}", row_key="{number:06d}"):
    site: Mapped[str]
    number: Mapped[int]
    changed: Mapped[dt.datetime] = field(default=NEVER, on_write=next_moment)


class Redated(Entity, table="RekeyRedated", partition_key="all", row_key="{number:06d}"):
    number: Mapped[int]
    changed: Mapped[dt.datetime] = field(default=NEVER, on_write=next_moment)


def to_redated(dated: Dated) -> Redated:
    return Redated(number=dated.number, changed=dated.changed)


@in_memory
async def test_what_a_merge_returns_is_stored(db: Database) -> None:
    """With the time of its last change, which is not filled anew, and with properties that the model does not know."""
    await db.create_tables(Dated)
    dated = [Dated(site=site, number=1) for site in "ab"]
    for each in dated:
        each.extra["Site"] = each.site
        await db.insert(each)

    def later(stored: Redated, other: Redated) -> Redated:
        return max(stored, other, key=lambda each: each.changed)

    await run_rekey(db, Dated, Redated, to_new=to_redated, merge=later, writers_stopped=True)

    found = await db.get(Redated, number=1)
    assert (found.changed, found.extra["Site"]) == (dated[1].changed, "b")


@in_memory
async def test_a_merge_that_may_not_be_called_again_is_found(db: Database) -> None:
    """As one that adds up: the verification tells, also of an entity that equals what is stored."""
    await db.create_tables(Dated)
    await db.insert(Dated(site="a", number=1))

    def later_each_time(stored: Redated, other: Redated) -> Redated:
        stored.changed = max(stored.changed, other.changed) + dt.timedelta(days=1)
        return stored

    await run_rekey(db, Dated, Redated, to_new=to_redated, merge=later_each_time, writers_stopped=True)
    verified = await verify_rekey(db, Dated, Redated, to_new=to_redated, merge=later_each_time)

    assert not verified.complete
    assert "has other content" in verified.failures[0]


@in_memory
async def test_what_writes_fill_in_is_compared(db: Database) -> None:
    """The verification tells when somebody has written a newer entity, though only its time of the change differs."""
    await db.create_tables(Dated)
    await db.insert(Dated(site="a", number=1))
    await run_rekey(db, Dated, Redated, to_new=to_redated, writers_stopped=True)
    await db.replace(await db.get(Redated, number=1))

    verified = await verify_rekey(db, Dated, Redated, to_new=to_redated)

    assert not verified.complete
    assert "has other content" in verified.failures[0]


class Other(Flight, table="RekeyTrips", kind="Trip", partition_key="x_{origin}"):
    pass


@in_memory
async def test_what_is_refused(db: Database) -> None:
    """Models whose rows cannot be told apart, a field that would be lost, and wrong arguments are rejected by name."""
    await fill(db, Trip, 1)

    with pytest.raises(NotSupported, match="both have the kind 'Trip' in table RekeyTrips"):
        await run_rekey(db, Trip, Other, writers_stopped=True)
    with pytest.raises(ModelError, match="Seat has no field 'origin'"):
        await run_rekey(db, Trip, Seat, writers_stopped=True)
    with pytest.raises(ModelError, match="give 'stop' or 'skip'"):
        await run_rekey(db, Trip, Seat, to_new=to_seat, writers_stopped=True, on_collision="go")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="give a function of two entities"):
        await verify_rekey(db, Trip, Seat, to_new=to_seat, merge=3)  # type: ignore[arg-type]
    with pytest.raises(TableNotFound):
        await verify_rekey(db, Trip, Seat, to_new=to_seat)
    assert [run.what for run in await db.runs()] == []
