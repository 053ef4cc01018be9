"""
An offline re-key that is given up: what was copied is deleted, and programs go on with the older model.
"""

import asyncio
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    Mapped,
    ModelError,
    MovedFrom,
    NotSupported,
    PropertyBag,
    RunReport,
    TableNotFound,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.stores import StoreRequest
from tableorm_migrations import (
    finalize_rekey,
    rekey_phase,
    roll_back_rekey,
    run_move,
    run_rekey,
    seal_move,
    verify_move,
    verify_rekey,
)
from tests.faults import FaultyStore
from tests.migrations.conftest import in_memory


class AnyVisit(Entity, abstract=True, tracked=True):
    day: Mapped[str]
    number: Mapped[int]
    page: Mapped[str]
    seconds: Mapped[int] = field(default=0)


class Visit(AnyVisit, table="GivenUpVisits", partition_key="{day}", row_key="{number:06d}"): ...


class PageVisit(
    AnyVisit,
    table="GivenUpPages",
    moved_from=MovedFrom(Visit),
    partition_key="{page}",
    row_key="{day}_{number:06d}",
): ...


class Longest(Entity, table="GivenUpLongest", partition_key="{page}", row_key="longest"):
    page: Mapped[str]
    seconds: Mapped[int]


def to_longest(visit: Visit) -> Longest:
    return Longest(page=visit.page, seconds=visit.seconds)


async def fill(db: Database, count: int) -> None:
    await db.create_tables(Visit)
    async with db.bulk() as bulk:
        for number in range(count):
            await bulk.insert(Visit(day=f"day{number % 3}", number=number, page=f"page{number % 7}", seconds=number))


async def copy(db: Database) -> RunReport:
    return await run_rekey(db, Visit, PageVisit, writers_stopped=True)


async def give_up(db: Database, **options: Any) -> RunReport:
    return await roll_back_rekey(db, Visit, PageVisit, no_new_programs=True, **options)


async def count_rows(db: Database, table: str) -> int:
    return await db.select_raw(table).allow_scan().count()


class Stopped(Exception):
    """A process is stopped in the middle."""


def stop(report: RunReport) -> None:
    """Stop the process when half is done."""
    if report.ranges_done * 2 >= report.ranges:
        raise Stopped


class SlowStore(FaultyStore):
    """A store whose answers to queries take so long that others send theirs in between."""

    async def send(self, request: StoreRequest) -> Any:
        reply = await super().send(request)
        await asyncio.sleep(0.01 if request.method == "query" else 0)
        return reply


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_copy_is_given_up(db: Database, stopped: bool) -> None:
    """What was copied is deleted, also if the copy was stopped; the newer model finds entities at their older keys."""
    await fill(db, 60)
    if stopped:
        with pytest.raises(Stopped):
            await run_rekey(db, Visit, PageVisit, writers_stopped=True, parallel=2, on_progress=stop)
    else:
        await copy(db)
        await verify_rekey(db, Visit, PageVisit)
    copied = await count_rows(db, "GivenUpPages")
    sealed = await rekey_phase(db, PageVisit)

    report = await give_up(db)

    assert (report.complete, report.entities, report.written) == (True, 60, copied)
    assert (sealed, await rekey_phase(db, PageVisit)) == ("sealed", "expand")
    assert await count_rows(db, "GivenUpPages") == 0
    assert await db.select(Visit).allow_scan().count() == 60
    assert (await db.get(PageVisit, page="page3", day="day0", number=3)).seconds == 3
    again = await copy(db)
    assert (again.complete, again.written) == (True, 60)
    assert (await verify_rekey(db, Visit, PageVisit)).complete
    assert (await finalize_rekey(db, Visit, PageVisit)).complete


@in_memory
@pytest.mark.parametrize("back", [False, True])
async def test_processes_that_begin_at_the_same_time(db: Database, back: bool) -> None:
    """Several processes that copy once more, or go back, forget together what was verified before."""
    connection_of(db).wrap_store(SlowStore)
    await fill(db, 60)
    await copy(db)
    await verify_rekey(db, Visit, PageVisit)

    work = give_up if back else copy
    reports = await asyncio.gather(*(work(db) for _ in range(4)))

    assert all(each.complete for each in reports)
    assert await count_rows(db, "GivenUpPages") == (0 if back else 60)


@in_memory
async def test_a_way_back_that_was_stopped(db: Database) -> None:
    """After another copy it goes through everything again."""
    await fill(db, 60)
    await copy(db)
    with pytest.raises(Stopped):
        await give_up(db, parallel=1, on_progress=stop)
    assert (await copy(db)).written > 0

    assert (await give_up(db)).complete
    assert (await count_rows(db, "GivenUpPages"), await rekey_phase(db, PageVisit)) == (0, "expand")


@in_memory
@pytest.mark.parametrize("changed", ["older", "newer", "inserted"])
async def test_what_was_written_since_the_copy(db: Database, changed: str) -> None:
    """An entity that is not what its older one gives stays until the caller wants it deleted; so does the phase."""
    await fill(db, 20)
    await copy(db)
    if changed == "inserted":
        await db.insert(PageVisit(page="page9", day="day1", number=99))
    else:
        entity: Any = (
            await db.get(Visit, day="day0", number=3)
            if changed == "older"
            else await db.get(PageVisit, page="page3", day="day0", number=3)
        )
        entity.seconds = 77
        await db.save(entity)

    kept = await give_up(db)
    phase = await rekey_phase(db, PageVisit)
    deleted = await give_up(db, on_difference="delete")

    assert (kept.complete, kept.failed, phase) == (False, 1, "sealed")
    name = "('page9', 'day1_000099')" if changed == "inserted" else "('page3', 'day0_000003')"
    assert kept.failures[0].startswith(f"{name} of table GivenUpPages: is not what an entity of Visit gives, and stays")
    assert (deleted.complete, deleted.written, await rekey_phase(db, PageVisit)) == (True, 1, "expand")
    assert (await db.get(Visit, day="day0", number=3)).seconds == (77 if changed == "older" else 3)


@in_memory
async def test_a_row_that_gave_no_copy(db: Database) -> None:
    """A row at an older key that cannot be read stays, and is not in the way; one at a newer key is reported."""
    await fill(db, 10)
    await db.insert(PropertyBag("GivenUpVisits", "day0", "000099", {"EntityType": "Visit", "page": 7}))
    copied = await copy(db)
    await db.insert(PropertyBag("GivenUpPages", "page1", "day0_000077", {"EntityType": "PageVisit", "seconds": "x"}))

    kept = await give_up(db)
    await db.delete(PropertyBag.key("GivenUpPages", "page1", "day0_000077"), if_match="*")
    report = await give_up(db)

    assert (copied.failed, kept.failed, kept.written) == (1, 1, 10)
    assert "'day0_000077') of table GivenUpPages: is not what" in kept.failures[0]
    assert (report.complete, await rekey_phase(db, PageVisit)) == (True, "expand")
    assert await count_rows(db, "GivenUpVisits") == 11


@in_memory
async def test_joined_entities_in_another_database_are_given_up(db: Database) -> None:
    """What several entities became together, elsewhere, is deleted; models without moved_from= have no phase."""

    def keep_longer(stored: Longest, other: Longest) -> Longest:
        return stored if stored.seconds >= other.seconds else other

    await fill(db, 30)
    async with connect("local::memory:") as other:
        joined: dict[str, Any] = {"to_new": to_longest, "merge": keep_longer, "target": other}
        await run_rekey(db, Visit, Longest, **joined, writers_stopped=True)
        copied = await count_rows(other, "GivenUpLongest")

        report = await roll_back_rekey(db, Visit, Longest, **joined, no_new_programs=True)

        assert (copied, report.complete, report.written) == (7, True, 7)
        assert await count_rows(other, "GivenUpLongest") == 0
    assert await count_rows(db, "GivenUpVisits") == 30


@in_memory
async def test_what_cannot_be_given_up(db: Database, known_at_once: None) -> None:
    """The operator has to say that no program of the newer model is left; without older entities nobody goes back."""
    await fill(db, 20)

    with pytest.raises(NotSupported, match="pass no_new_programs=True"):
        await roll_back_rekey(db, Visit, PageVisit)
    with pytest.raises(ModelError, match="give 'keep' or 'delete'"):
        await give_up(db, on_difference="drop")
    with pytest.raises(NotSupported, match="there is no re-key; there is nothing to go back from"):
        await give_up(db)
    with pytest.raises(TableNotFound, match="GivenUpLongest"):
        await roll_back_rekey(db, Visit, Longest, to_new=to_longest, no_new_programs=True)
    await copy(db)
    await verify_rekey(db, Visit, PageVisit)
    await finalize_rekey(db, Visit, PageVisit)
    with pytest.raises(NotSupported, match="the re-key has ended; the way back is another re-key"):
        await give_up(db)

    assert await count_rows(db, "GivenUpPages") == 20


@in_memory
async def test_an_online_rekey_is_not_given_up_so(db: Database, known_at_once: None) -> None:
    """After an online re-key the older keys have no entities, so what is at the newer ones is never deleted."""
    await fill(db, 20)
    await run_move(db, PageVisit, no_blind_writers=True)

    with pytest.raises(NotSupported, match="in phase 'move' there is an online re-key; roll_back_move"):
        await give_up(db)
    await verify_move(db, PageVisit)
    await seal_move(db, PageVisit, no_old_programs=True)
    with pytest.raises(NotSupported, match="in phase 'sealed' there is an online re-key"):
        await give_up(db, on_difference="delete")

    assert await count_rows(db, "GivenUpPages") == 20


@in_memory
async def test_a_finalization_that_was_stopped(db: Database) -> None:
    """Once entities are deleted at their older keys there is no way back."""
    await fill(db, 20)
    await copy(db)
    await verify_rekey(db, Visit, PageVisit)

    def stop_deletion(report: RunReport) -> None:
        if report.what.startswith("finalize"):
            raise Stopped

    with pytest.raises(Stopped):
        await finalize_rekey(db, Visit, PageVisit, on_progress=stop_deletion)

    with pytest.raises(
        NotSupported, match=r"finalize_rekey\(\) has deleted entities of Visit already, or begun to; go on"
    ):
        await give_up(db)
    assert (await finalize_rekey(db, Visit, PageVisit)).complete
