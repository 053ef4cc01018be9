"""
The first look of an audit: what is right in other partitions is seen with few requests, and what is wrong is found all
the same, by whatever writes go on.
"""

import itertools
import random
from collections import Counter, defaultdict

import pytest

from tableorm import Count, Damage, Database, Entity, Index, IndexList, Mapped, connect, field
from tableorm.audit import first_look, segment
from tableorm.connection.connection import connection_of
from tableorm.stores import Operation, RowPage, RowQuery, Verb
from tests.audit.turns import MOST, count_snapshots
from tests.database.between import Awkward, Between


class Crew(Entity, table="Ships", partition_key="{ship}", row_key="crew"):
    ship: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Sailor(Entity, table="Ships", partition_key="{ship}", row_key="sailor_{id:04d}"):
    ship: Mapped[str]
    id: Mapped[int]
    port: Mapped[str]
    mail: Mapped[str]
    note: Mapped[str] = field(default="")

    by_note = Index(row_key="note_{note}_{id:04d}", include="keys")
    by_port = Index(partition_key="port_{port}", row_key="from_{ship}_{id:04d}", consistency="eventual")
    by_mail = Index(partition_key="mail_{mail}", row_key="mail", unique=True, consistency="eventual")
    of_port = IndexList(partition_key="ports_{port}", row_key="list_{port}", consistency="eventual", divide_at=2048)
    counted = Count(lambda: Crew.size, ship="{ship}")


async def fill(db: Database, count: int, ships: int, ports: int) -> list[Sailor]:
    await db.create_tables(Sailor, Crew)
    for ship in range(ships):
        await db.insert(Crew(ship=f"s{ship}"))
    sailors = [
        Sailor(ship=f"s{number % ships}", id=number, port=f"p{number % ports}", mail=f"m{number}")
        for number in range(count)
    ]
    async with db.bulk() as bulk:
        for sailor in sailors:
            await bulk.insert(sailor)
    return sailors


@pytest.fixture
def separate_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let no two addresses share a sum. By chance they do, since hashes are other ones in each process: then what is
    right beside a candidate is a candidate too, and takes up to three requests.
    """
    numbers = defaultdict[object, int](itertools.count().__next__)
    monkeypatch.setattr(segment, "hash", numbers.__getitem__, raising=False)


@pytest.mark.usefixtures("separate_sums")
@pytest.mark.one_of(3)
@pytest.mark.parametrize(("count", "ships", "ports", "most"), [(8, 2, 7, 10), (200, 5, 7, 25), (200, 200, 3, 120)])
async def test_what_is_right_costs_few_requests(count: int, ships: int, ports: int, most: int) -> None:
    """With five patterns an audit takes a few requests for each page, and not eight for each entity."""
    async with connect("local::memory:") as db:
        await fill(db, count, ships, ports)
        with db.observe() as seen:
            report = await db.audit(Sailor)

        assert report.clean
        assert report.entities == count + ships
        assert report.requests == len(seen.requests) <= most


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("ships", "ports"), [(20, 40), (1, 1)])
@pytest.mark.parametrize("damaged", [False, True])
async def test_other_tasks_run_between_few_entities(
    monkeypatch: pytest.MonkeyPatch, ships: int, ports: int, *, damaged: bool
) -> None:
    """No turn of the event loop looks at more than a few entities, however many workers there are."""
    async with connect("local::memory:") as db:
        sailors = await fill(db, 120, ships, ports)
        if damaged:
            for sailor in sailors:
                entry = {"PartitionKey": f"port_{sailor.port}", "RowKey": f"from_{sailor.ship}_{sailor.id:04d}"}
                await connection_of(db).store.write("Ships", Operation(Verb.DELETE, entry, "*"))
        async with count_snapshots(monkeypatch) as counts:
            report = await db.audit(Sailor, parallel=8)

        assert report.clean is not damaged
        assert counts.total > 4 * 120
        assert counts.most <= MOST


def damage_of(some: random.Random, sailor: Sailor) -> tuple[Damage, Operation]:
    """Return a damage of what a sailor has, and the write that makes it."""
    entry = {"PartitionKey": f"port_{sailor.port}", "RowKey": f"from_{sailor.ship}_{sailor.id:04d}"}
    own = {"PartitionKey": sailor.ship, "RowKey": f"sailor_{sailor.id:04d}"}
    mail = {"PartitionKey": f"mail_{sailor.mail}", "RowKey": "mail"}
    orphan = {
        "PartitionKey": "port_none",
        "RowKey": entry["RowKey"],
        "EntityType": "Sailor#by_port",
        "_of": f'["Ships","{sailor.ship}","{own["RowKey"]}"]',
        "_v": "x",
    }
    return some.choice(
        [
            (Damage.MISSING, Operation(Verb.DELETE, entry, "*")),
            (Damage.STALE, Operation(Verb.MERGE, {**entry, "note": "other"}, "*")),
            (Damage.ORPHAN, Operation(Verb.INSERT, orphan)),
            (Damage.MISSING, Operation(Verb.DELETE, mail, "*")),
            (Damage.STALE, Operation(Verb.MERGE, {**entry, "note": "changed"}, "*")),
        ]
    )


@pytest.mark.one_of(4)
@pytest.mark.parametrize("seed", range(12))
async def test_any_damage_is_found_among_what_is_right(seed: int) -> None:
    """Whichever rows were damaged, just these are found and repaired, also from pages of a few rows."""
    some = random.Random(seed)
    backend = Between() if some.random() < 0.7 else Awkward(seed, most=30, empty=0.1)
    async with Database(backend) as db:
        sailors = await fill(db, some.choice([6, 60]), some.choice([1, 3, 40]), some.choice([1, 5]))
        damaged = some.sample(sailors, some.randint(1, 5))
        due: Counter[tuple[Damage, str, str]] = Counter()
        for sailor in damaged:
            damage, operation = damage_of(some, sailor)
            await backend.inner.tables.write("Ships", operation)
            due[damage, sailor.ship, f"sailor_{sailor.id:04d}"] += 1

        for repair in (False, True):
            report = await db.audit(Sailor, repair=repair)
            found = Counter((each.damage, each.partition_key, each.row_key) for each in report.findings)
            assert found == due
        assert (await db.audit(Sailor)).clean


async def test_lists_that_are_too_long_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their entities are read list by list, and what is wrong is found as ever."""
    monkeypatch.setattr(first_look, "_MOST_KEPT", 10)
    backend = Between()
    async with Database(backend) as db:
        sailors = await fill(db, 60, 2, 2)
        assert (await db.audit(Sailor)).clean
        gone = {"PartitionKey": sailors[7].ship, "RowKey": "sailor_0007"}
        await backend.inner.tables.write("Ships", Operation(Verb.DELETE, gone, "*"))
        report = await db.audit(Sailor)
        assert {(each.damage, each.index) for each in report.findings} >= {
            (Damage.ORPHAN, "by_port"),
            (Damage.ORPHAN, "of_port"),
        }


class Overtaken(Between):
    """Lets a writer in before the first range of entries."""

    db: Database | None = None

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        if self.db is not None and (query.partition.lower or "").startswith("port_"):
            db, self.db = self.db, None
            for sailor in await db.select(Sailor).allow_scan().all():
                sailor.port = "elsewhere"
                await db.save(sailor)
        return await super().query(table, query, limit, continuation)


async def test_a_write_between_page_and_look_is_no_damage() -> None:
    """What the page said is old then: each entity is verified by itself, and nothing is found."""
    backend = Overtaken()
    async with Database(backend) as db:
        await fill(db, 10, 2, 2)
        backend.db = db
        report = await db.audit(Sailor)
        assert {sailor.port async for sailor in db.select(Sailor).allow_scan()} == {"elsewhere"}
        assert (report.found, report.undecided) == (0, 0)
