"""
Re-key while programs go on: moving, verifying, sealing, finalizing, and going back.
"""

import re
import time
from typing import Any

import pytest

from tableorm import (
    Conflict,
    Database,
    Entity,
    EntityExists,
    Mapped,
    ModelError,
    MovedFrom,
    NotSupported,
    RunReport,
    field,
)
from tableorm.rekey.chunks import RowFailure, WindowReport
from tableorm.rekey.phases import RekeyPhase, StoredPhase
from tableorm.stores import RowAddress
from tableorm_migrations import (
    finalize_move,
    plan_rekey,
    rekey_phase,
    roll_back_move,
    run_move,
    run_rekey,
    seal_move,
    verify_move,
)
from tableorm_migrations.rekey import online, phases
from tests.migrations.conftest import in_memory
from tests.migrations.flights import (
    DAY,
    expected_rows,
    fill,
    flights,
    rows_of,
)
from tests.migrations.programs.legs import Leg, TailLeg
from tests.rows import delete_row, insert_row, merge_row, put_row, replace_row

pytestmark = pytest.mark.usefixtures("known_at_once")

TAIL_LEG = TailLeg.key(tail="N1", day=DAY, number=1)


async def move(db: Database) -> RunReport:
    return await run_move(db, TailLeg, no_blind_writers=True)


async def move_legs(db: Database, count: int) -> RunReport:
    """Insert so many, and move them to their newer keys."""
    await fill(db, Leg, count)
    return await move(db)


async def seal(db: Database, **options: Any) -> RunReport:
    return await seal_move(db, TailLeg, no_old_programs=True, **options)


async def test_each_phase_in_turn(db: Database) -> None:
    """Entities are moved with their index entries, verified twice, and then nothing is left at the older keys."""
    await fill(db, Leg, 120)

    seen = [await rekey_phase(db, TailLeg)]
    moved = await move(db)
    seen.append(await rekey_phase(db, TailLeg))
    verified = await verify_move(db, TailLeg)
    forwards = len(await rows_of(db, "RunLegs"))
    sealed = await seal(db)
    seen.append(await rekey_phase(db, TailLeg))
    finalized = await finalize_move(db, TailLeg)
    seen.append(await rekey_phase(db, TailLeg))

    assert seen == ["expand", "move", "sealed", "done"]
    assert (moved.complete, moved.written) == (True, 120)
    assert moved.others["operations in these"] > 120
    assert (verified.complete, verified.entities, verified.others) == (True, 120, {})
    assert forwards == 120
    assert sealed.complete
    assert (finalized.complete, finalized.written) == (True, 120)
    assert await rows_of(db, "RunLegs") == {}
    assert await rows_of(db, "RunTailLegs", "TailLeg") == expected_rows(flights(Leg, 120))
    assert len(await db.select(TailLeg.by_origin).where(TailLeg.tail == "N1", TailLeg.origin == "JFK").all()) == 8


@in_memory
async def test_the_way_back_waits_until_every_program_knows(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entity goes back before each program has asked for the phase, by the clock of the store."""
    await move_legs(db, 5)
    monkeypatch.setattr(phases, "KNOWN_EVERYWHERE", 1.0)
    begun = time.monotonic()
    await roll_back_move(db, TailLeg)

    assert time.monotonic() - begun > 0.9


@in_memory
async def test_gates_and_phases_are_checked(db: Database) -> None:
    """What the operator has to say is asked for, and what does not follow is rejected with the phase."""
    await fill(db, Leg, 5)

    with pytest.raises(NotSupported, match="pass no_blind_writers=True"):
        await run_move(db, TailLeg)
    with pytest.raises(NotSupported, match="in phase 'expand', and this is for 'move'; run_move"):
        await seal(db)
    await move(db)
    with pytest.raises(NotSupported, match="pass no_old_programs=True"):
        await seal_move(db, TailLeg)
    with pytest.raises(NotSupported, match=r"run verify_move\(\)"):
        await seal(db)
    with pytest.raises(NotSupported, match="this is for 'sealed' or 'done'"):
        await finalize_move(db, TailLeg)
    await verify_move(db, TailLeg)
    await seal(db)
    with pytest.raises(NotSupported, match="only another re-key can restore the older keys"):
        await roll_back_move(db, TailLeg)
    with pytest.raises(ModelError, match=r"moved_from=MovedFrom\(OlderModel\)"):
        await rekey_phase(db, Leg)


@in_memory
async def test_what_was_written_meanwhile(db: Database) -> None:
    """Entities that were changed, deleted and inserted through the newer model are no differences, and stay so."""
    await move_legs(db, 30)
    leg = await db.get(TAIL_LEG)
    leg.seats = 7
    await db.save(leg)
    await db.delete(await db.get(TailLeg, tail="N2", day=DAY, number=2))
    await db.insert(TailLeg(tail="N7", day=DAY, number=77, origin="EWR"))

    verified = await verify_move(db, TailLeg)
    await seal(db)
    await finalize_move(db, TailLeg)

    assert (verified.complete, verified.others) == (True, {"written since": 3})
    expected = expected_rows([each for each in flights(Leg, 30) if each.number != 2])
    expected["N1", "2024-01-01_000001"]["seats"] = 7
    expected["N7", "2024-01-01_000077"] = {"origin": "EWR", "seats": 100}
    assert await rows_of(db, "RunTailLegs", "TailLeg") == expected
    assert await rows_of(db, "RunLegs") == {}


@in_memory
@pytest.mark.parametrize("damage", ["missing", "changed", "older"])
async def test_each_difference_is_found(db: Database, damage: str) -> None:
    """A row that is missing or was changed behind the mapper's back is named, and so is an entity at its older key."""
    await move_legs(db, 30)
    if damage == "older":
        await db.insert(Leg(origin="JFK", day=DAY, number=99))
    else:
        change = delete_row if damage == "missing" else merge_row
        await change(db, "RunTailLegs", {"PartitionKey": "N1", "RowKey": "2024-01-01_000001", "seats": 8})

    report = await verify_move(db, TailLeg)

    words = {"missing": "is missing", "changed": "has other content", "older": "has its older key still"}
    assert (report.state, report.failed) == ("failed", 1)
    assert words[damage] in report.failures[0]
    with pytest.raises(NotSupported, match=r"the last verify_move\(\) has failed"):
        await seal(db)


@in_memory
async def test_what_was_verified_before_going_back(db: Database) -> None:
    """A verification counts for the move that it was made in, not for a later one."""
    await move_legs(db, 10)
    assert (await verify_move(db, TailLeg)).complete
    await roll_back_move(db, TailLeg)
    await move(db)

    with pytest.raises(NotSupported, match="nothing was verified since the move began"):
        await seal(db)


@in_memory
async def test_a_row_that_cannot_be_confirmed(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a tentative row cannot be confirmed nothing is deleted at the older keys, without which it is no entity."""

    async def fail(*_: object) -> WindowReport:
        return WindowReport(failures=[RowFailure(place, Conflict("it cannot be completed yet"))])

    await move_legs(db, 10)
    await verify_move(db, TailLeg)
    await seal(db)
    place = RowAddress("RunTailLegs", "N1", "2024-01-01_000001")
    row = await db.store.get(place.table, place.partition_key, place.row_key)
    row |= {"EntityType": "TailLeg#_tentative", "_mv": row["_mv"].replace("confirmed", "tentative")}
    await replace_row(db, "RunTailLegs", row)
    monkeypatch.setattr(online, "resolve_window", fail)

    with pytest.raises(Conflict, match="cannot be completed yet"):
        await finalize_move(db, TailLeg)

    assert (len(await rows_of(db, "RunLegs")), await rekey_phase(db, TailLeg)) == (10, "sealed")


@in_memory
async def test_a_worker_that_is_late(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has read rows does nothing with them after another process has begun the next phase."""
    reading = phases.OnlineRekey.read_phase

    async def read_late(rekey: phases.OnlineRekey, *allowed: RekeyPhase, remedy: str = "") -> StoredPhase:
        found = await reading(rekey, *allowed, remedy=remedy)
        if "meanwhile" not in remedy and found.phase is RekeyPhase.MOVE:
            await rekey.enter(found, RekeyPhase.BACK)
        return found

    await fill(db, Leg, 10)
    await db.create_tables(TailLeg)
    rekey = phases.OnlineRekey.of("test", db, TailLeg)
    await rekey.enter(await rekey.read_phase(), RekeyPhase.MOVE)
    monkeypatch.setattr(phases.OnlineRekey, "read_phase", read_late)

    with pytest.raises(NotSupported, match="another process has gone on meanwhile"):
        await run_move(db, TailLeg)

    assert await rows_of(db, "RunTailLegs") == {}


async def test_reports_tell_of_no_transactions_that_there_were_not(db: Database) -> None:
    """What was written by itself is no operation of a transaction; nouns agree with their numbers."""
    await fill(db, Leg, 1)
    plan = await plan_rekey(db, Leg, TailLeg, online=True, full=True)
    moved = await move(db)
    back = await roll_back_move(db, TailLeg)
    assert "1 entity, which becomes 1\n" in str(plan)
    assert [str(each).partition(": ")[2].partition("; ")[0] for each in (moved, back)] == [
        "1 entity read, 1 written"
    ] * 2

    for number in (1, 2):
        await db.insert(Leg(origin="EWR", day=DAY, number=number, tail="N1"))
    moved = await move(db)
    assert dict(moved.others) == {"transactions": 3, "operations in these": 7}
    assert ": 3 entities read, 3 written, 3 transactions, 7 operations in these; done" in str(moved)


@pytest.mark.parametrize("keep", ["older", "newer"])
@pytest.mark.parametrize("way", ["on", "back"])
@in_memory
async def test_the_way_out_after_a_forbidden_write(db: Database, keep: str, way: str) -> None:
    """If a write without an ETag puts an entity at an older key again, each call says to delete one of the two."""
    await move_legs(db, 3)
    leg = await db.get(TAIL_LEG)
    leg.seats = 7
    await db.save(leg)
    keys = {"PartitionKey": "JFK", "RowKey": "2024-01-01_000001"}
    row = {**keys, "EntityType": "Leg", "tail": "N1", "seats": 9}
    await put_row(db, "RunLegs", row)

    both = r"keep one of the two: read the other with db.get\(\), by Leg or TailLeg, delete it, and move once more"
    (failure,) = (await verify_move(db, TailLeg)).failures
    assert re.search(
        r"\('JFK', .*\): has its older key, and another entity has the newer one, \('N1', .*" + both, failure
    )
    with pytest.raises(EntityExists, match=r"'JFK', .* cannot get its newer key \('N1', .*" + both):
        await run_move(db, TailLeg)
    with pytest.raises(
        NotSupported, match=r"the last verify_move\(\) has failed; mend what it names, and run it again"
    ):
        await seal(db)
    if way == "back":
        (failure,) = (await roll_back_move(db, TailLeg)).failures
        assert "keep one of the two" in failure

    if keep == "newer":
        await db.delete(await db.get(Leg, origin="JFK", day=DAY, number=1))
    else:
        await db.delete(await db.get(TAIL_LEG))
    if way == "back":
        assert (await roll_back_move(db, TailLeg)).complete
        assert (await db.get(Leg, origin="JFK", day=DAY, number=1)).seats == (7 if keep == "newer" else 9)
        return
    assert (await run_move(db, TailLeg)).complete
    assert (await verify_move(db, TailLeg)).complete
    assert (await seal(db)).complete
    assert (await db.get(TAIL_LEG)).seats == (7 if keep == "newer" else 9)


class Tag(
    Entity, table="OnlineTags", tracked=True, partition_key="{group}", row_key="{kind}_{id}", discriminator="row_key"
):
    group: Mapped[str]
    id: Mapped[int]


class NewTag(
    Entity,
    table="OnlineTags",
    partition_key="tags",
    row_key="{kind}_{id}_{group}",
    discriminator="row_key",
    moved_from=MovedFrom(Tag),
):
    group: Mapped[str]
    id: Mapped[int]


@in_memory
async def test_models_whose_kind_is_told_by_the_key_go_back(db: Database) -> None:
    """Of a table that has other rows too, those are not counted: there and back, until it is *expand* again."""
    await db.create_tables(Tag)
    await db.insert(Tag(group="g", id=1))
    row = {"PartitionKey": "g", "RowKey": "other", "text": "left alone"}
    await insert_row(db, "OnlineTags", row)

    moved = await run_move(db, NewTag, no_blind_writers=True)
    back = await roll_back_move(db, NewTag)

    assert (moved.complete, moved.written) == (True, 1)
    assert (back.complete, await rekey_phase(db, NewTag)) == (True, "expand")
    assert await rows_of(db, "OnlineTags") == {("g", "Tag_1"): {}, ("g", "other"): {"text": "left alone"}}


class Parcel(Entity, table="OnlineParcels", tracked=True, partition_key="{town}", row_key="parcel_{id}"):
    town: Mapped[str]
    id: Mapped[int]


def without_note(noted: "NotedParcel") -> Parcel:
    return Parcel(town=noted.town, id=noted.id)


class NotedParcel(
    Entity,
    table="OnlineNotedParcels",
    partition_key="all",
    row_key="{id}_{town}",
    kind="Parcel",
    moved_from=MovedFrom(Parcel, to_old=without_note),
):
    town: Mapped[str]
    id: Mapped[int]
    note: Mapped[str | None] = field(default=None)


@pytest.mark.parametrize("online", [False, True])
@in_memory
async def test_a_property_that_becomes_a_field_is_not_lost(db: Database, *, online: bool) -> None:
    """A row with a property that only the newer model knows is reported, and stays; the others are moved."""
    await db.create_tables(Parcel, NotedParcel)
    await db.insert(Parcel(town="Bergen", id=1))
    row = {"PartitionKey": "Bergen", "RowKey": "parcel_2", "EntityType": "Parcel", "note": "fragile"}
    await insert_row(db, "OnlineParcels", row)

    if online:
        moved = await run_move(db, NotedParcel, no_blind_writers=True)
    else:
        moved = await run_rekey(db, Parcel, NotedParcel, writers_stopped=True)

    assert (moved.written, moved.failed, moved.complete) == (1, 1, False)
    assert "has a property 'note', which is a field of NotedParcel and not of Parcel" in moved.failures[0]
    assert "to_new=" in moved.failures[0]
    assert (await db.store.get("OnlineParcels", "Bergen", "parcel_2"))["note"] == "fragile"
