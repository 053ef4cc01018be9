"""
Legs of flights that get other keys, while nobody writes and while programs go on, and notes with encrypted text: the
jobs on them, and what is wrong in the end.
"""

from tableorm import Database, Encryption, Entity, KeyRing, Mapped, MovedFrom, RunReport, encrypted
from tableorm.connection.connection import connection_of
from tableorm.models.reserved import METADATA
from tableorm.shapes.encrypted import ContentKeys
from tableorm_migrations import (
    finalize_move,
    finalize_rekey,
    rekey_phase,
    roll_back_move,
    roll_back_rekey,
    run_move,
    run_rekey,
    seal_move,
    verify_move,
    verify_rekey,
)
from tests.migrations.flights import (
    Flight,
    TailFlight,
    expected_rows,
    fill,
    flights,
    old_keys,
    other_fields,
    rows_of,
)

KEYS = {"old": bytes(range(32)), "new": bytes(range(32, 64))}
"""What wraps content keys."""


class Leg(Flight, table="RunLegs", tracked=True):
    pass


class LegCopy(TailFlight, table="RunLegCopies"):
    """What a leg becomes while nobody writes."""


def to_copy(leg: Leg) -> LegCopy:
    return LegCopy(**other_fields(leg))


class TailLeg(
    TailFlight,
    table="RunTailLegs",
    tracked=True,
    moved_from=MovedFrom(
        Leg,
        to_new=lambda leg: TailLeg(**other_fields(leg)),
        to_old=lambda leg: Leg(**other_fields(leg)),
        old_keys=old_keys,
    ),
):
    """What a leg becomes while programs go on."""


class Note(Entity, table="RunNotes", partition_key="{page}", row_key="{id:04d}"):
    page: Mapped[int]
    id: Mapped[int]
    text: Mapped[str] = encrypted()


def use_keys(db: Database, keys: dict[str, bytes], wrap_with: str) -> None:
    """Let a database wrap content keys with one of some keys."""
    connection_of(db).encryption = ContentKeys(Encryption(KeyRing(keys, wrap_with=wrap_with)))


async def schedule(db: Database, count: int) -> None:
    """Make the tables, with legs at their older keys, and notes whose content keys the older key wraps."""
    await fill(db, Leg, count)
    await db.create_tables(LegCopy, TailLeg, Note)
    use_keys(db, KEYS, "old")
    for number in range(count):
        await db.insert(Note(page=number % 9, id=number, text=f"text {number}"))


async def report_of(db: Database, name: str) -> RunReport:
    """Return the report of the run whose name begins so."""
    return next(run for run in await db.runs() if run.name.startswith(name))


async def rewrap(db: Database, lease: float) -> RunReport:
    use_keys(db, KEYS, "new")
    return await db.rewrap(Note, parallel=3, lease=lease)


async def copy_legs(db: Database, lease: float) -> RunReport:
    return await run_rekey(db, Leg, LegCopy, to_new=to_copy, writers_stopped=True, parallel=3, lease=lease)


async def verify_copies(db: Database, lease: float) -> RunReport:
    return await verify_rekey(db, Leg, LegCopy, to_new=to_copy, parallel=3, lease=lease)


async def finalize_copies(db: Database, lease: float) -> RunReport:
    return await finalize_rekey(db, Leg, LegCopy, to_new=to_copy, parallel=3, lease=lease)


async def undo_copies(db: Database, lease: float) -> RunReport:
    return await roll_back_rekey(db, Leg, LegCopy, to_new=to_copy, no_new_programs=True, parallel=3, lease=lease)


async def move_legs(db: Database, lease: float) -> RunReport:
    return await run_move(db, TailLeg, no_blind_writers=True, parallel=3, lease=lease)


async def verify_legs(db: Database, lease: float) -> RunReport:
    return await verify_move(db, TailLeg, parallel=3, lease=lease)


async def seal_legs(db: Database, lease: float) -> RunReport:
    if await rekey_phase(db, TailLeg) == "sealed":  # the process died behind its last write
        return await report_of(db, "verify again")
    return await seal_move(db, TailLeg, no_old_programs=True, parallel=3, lease=lease)


async def finalize_legs(db: Database, lease: float) -> RunReport:
    return await finalize_move(db, TailLeg, parallel=3, lease=lease)


async def move_legs_back(db: Database, lease: float) -> RunReport:
    if await rekey_phase(db, TailLeg) == "expand":
        return await report_of(db, "roll back move")
    return await roll_back_move(db, TailLeg, parallel=3, lease=lease)


async def find_unwrapped(db: Database, count: int) -> list[str]:
    """Return what is wrong with the notes after their content keys were wrapped with the newer key."""
    rows = [bag.row async for bag in db.select_raw(Note.__schema__.table_name()).allow_scan()]
    problems = [f"wrapped with another key: {row}" for row in rows if '"key":"new"' not in row[METADATA]]
    use_keys(db, {"new": KEYS["new"]}, "new")
    notes = {note.id: note.text for note in await db.select(Note).allow_scan().all()}
    return problems + ([] if notes == {number: f"text {number}" for number in range(count)} else [f"notes: {notes}"])


async def find_misplaced(db: Database, count: int, *, old: str, new: str, table: str) -> list[str]:
    """
    Return what is wrong with the legs.

    Args:
        db: The database.
        count: How many there are.
        old: What is at the older keys: "legs", "forwards" or "nothing".
        new: What is at the newer keys: "legs" or "nothing".
        table: The table of the newer keys.
    """
    legs = flights(Leg, count)
    found, rows = await rows_of(db, table), await rows_of(db, "RunLegs")
    there = {keys: row for keys, row in found.items() if not keys[1].startswith("origin_")}
    problems = [] if there == (expected_rows(legs) if new == "legs" else {}) else [f"at the newer keys: {there}"]
    if len(found) != 2 * len(there):
        problems.append(f"{len(there)} legs have {len(found) - len(there)} index entries")
    if len(rows) != (0 if old == "nothing" else count):
        problems.append(f"at the older keys: {rows}")
    if old == "legs" and (await db.select(Leg).allow_scan().all()) != sorted(
        legs, key=lambda leg: (leg.origin, leg.day, leg.number)
    ):
        problems.append(f"legs at the older keys: {rows}")
    return problems
