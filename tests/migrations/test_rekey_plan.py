"""
Plans of re-keys: what will be read and written, and what prevents it.
"""

import datetime as dt
import json
from pathlib import Path

import pytest

from tableorm import Database, Entity, Mapped, ModelError, PropertyBag, field
from tableorm_migrations import plan_rekey, run_rekey
from tests.migrations.conftest import in_memory


class Visit(Entity, table="PlanVisits", partition_key="{city}", row_key="{day:%Y-%m-%d}_{number:06d}"):
    city: Mapped[str]
    day: Mapped[dt.date]
    number: Mapped[int]
    guest: Mapped[str | None] = field(default=None)


class GuestVisit(Entity, table="PlanGuests", partition_key="{guest}", row_key="{day:%Y-%m-%d}_{number:06d}"):
    guest: Mapped[str]
    day: Mapped[dt.date]
    number: Mapped[int]
    city: Mapped[str]


def to_guest(visit: Visit) -> GuestVisit | None:
    if visit.number == 7:
        return None
    if visit.guest is None:
        raise ValueError("nobody came")
    number = 1 if visit.number == 2 else visit.number
    return GuestVisit(guest=visit.guest, day=visit.day, number=number, city=visit.city)


async def fill(db: Database, count: int, *, good: bool = False) -> None:
    await db.create_tables(Visit)
    async with db.bulk() as bulk:
        for number in range(3 if good else 0, count):
            guest = None if number % 10 == 9 and not good else f"guest {number % 4 if number > 2 else 0}"
            city = f"city-{number % 3}"
            await bulk.insert(Visit(city=city, day=dt.date(2024, 1, 1), number=number, guest=guest))


@in_memory
async def test_a_plan_of_all_rows(db: Database, tmp_path: Path) -> None:
    """A plan counts what becomes of the entities, finds each collision and failure, and writes them to a file."""
    await fill(db, 100)

    plan = await plan_rekey(db, Visit, GuestVisit, to_new=to_guest, full=True, rejected=tmp_path / "rejected")

    assert (plan.entities, plan.made, plan.dropped, plan.exact, plan.held) == (100, 89, 1, True, False)
    assert (plan.collisions, plan.failed, plan.complete) == (1, 10, False)
    assert plan.fill == 89 / 4
    assert [(each.name, each.reads, each.writes) for each in plan.steps] == [
        ("copy", 1, 4),
        ("verify", 2, 0),
        ("verify again", 2, 0),
        ("finalize", 1, 3),
    ]
    assert (plan.requests, plan.cost(request_price=0.5), plan.seconds(requests_per_second=10)) == (13, 13 / 20_000, 1.3)
    lines = [json.loads(line) for line in (tmp_path / "rejected").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 11
    assert lines[0] == {
        "PartitionKey": "city-0",
        "RowKey": "2024-01-01_000009",
        "problem": "ValueError: nobody came",
    }
    assert await db.tables() == ["PlanVisits"]
    assert "1 collisions, 10 not converted, of 100 that were read:" in str(plan)
    assert json.loads(json.dumps(plan.to_dict()))["steps"][0] == {"name": "copy", "reads": 1, "writes": 4}


@in_memory
async def test_a_plan_of_a_sample(db: Database) -> None:
    """Of a table that is not read in full the plan says what there is about, from what the table is taken to hold."""
    await fill(db, 3003, good=True)

    plan = await plan_rekey(db, Visit, GuestVisit, to_new=to_guest, sample=900)

    assert (plan.exact, plan.complete, plan.entities) == (False, True, 3000)
    assert 900 <= plan.read < 3000
    assert 2990 <= plan.made <= 3000
    assert "about 3,000 entities" in str(plan)


@in_memory
async def test_a_plan_sees_what_is_there_already(db: Database) -> None:
    """A plan says that the newer table has entities already, which a verification would find."""
    await fill(db, 20, good=True)
    await run_rekey(db, Visit, GuestVisit, to_new=to_guest, writers_stopped=True)

    plan = await plan_rekey(db, Visit, GuestVisit, to_new=to_guest)

    assert (plan.held, plan.exact) == (True, True)
    with pytest.raises(ModelError, match="sample=0"):
        await plan_rekey(db, Visit, GuestVisit, to_new=to_guest, sample=0)
    with pytest.raises(ModelError, match="GuestVisit has no moved_from="):
        await plan_rekey(db, Visit, GuestVisit, to_new=to_guest, online=True)


class Seat(Entity, table="PlanSeats", partition_key="{row}", row_key="{kind}_{number}", discriminator="row_key"):
    row: Mapped[str]
    number: Mapped[int]


class NewSeat(Entity, table="PlanNewSeats", partition_key="{number}", row_key="{row}"):
    row: Mapped[str]
    number: Mapped[int]


@in_memory
async def test_a_plan_of_a_table_that_has_other_rows_alone(db: Database) -> None:
    """There is nothing to do; also where keys tell kinds, so that the other rows are read."""
    await db.create_tables(Seat)
    await db.insert(PropertyBag("PlanSeats", "a", "other", {"text": "x"}))

    plan = await plan_rekey(db, Seat, NewSeat, full=True)

    assert (plan.entities, plan.complete) == (0, True)
    assert [each.writes for each in plan.steps] == [0, 0, 0, 0]
