"""
Queries of spread partitions: every hash bucket is read at once, and the rows come in the order of their RowKeys.
"""

import asyncio
import datetime as dt
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Access, Database, Entity, Index, Mapped, PropertyBag, ScanRefused, Select, field
from tableorm.expressions import AllOf, AnyOf, Expression, Membership, NoneOf
from tableorm.queries.planning.alternatives import MAX_ALTERNATIVES
from tableorm.stores import RowPage, RowQuery
from tests.database.between import Awkward, Between, Gated, Recorded, Shuffled
from tests.databases import database_fixture
from tests.queries.spread_worlds import MOST_BUCKETS, SPREAD_WORLDS, merged
from tests.queries.worlds import Term, conditions, key_of, results

pytestmark = pytest.mark.limit(20)  # what hangs shall fail soon

UTC = dt.UTC
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=UTC)


class Sample(Entity, table="SpreadSamples", partition_key="{site}_{id:spread(16)}", row_key="{at:ticks_desc}_{id}"):
    site: Mapped[str]
    id: Mapped[str]
    at: Mapped[dt.datetime]
    size: Mapped[int] = field(default=0)
    by_size = Index(row_key="size_{size:03d}_{at:ticks_desc}_{id}")


class Visit(Entity, table="SpreadVisits", partition_key="{id}", row_key="visit"):
    """Visits of a place are found in partitions that are spread, beside which the place stands."""

    id: Mapped[str]
    place: Mapped[str]
    at: Mapped[dt.datetime]
    by_place = Index(
        partition_key="place_{place}_{id:spread(3)}", row_key="{at:ticks_desc}_{id}", consistency="eventual"
    )


class Wide(Entity, table="SpreadWide", partition_key="{id:spread(65)}", row_key="{id}"):
    id: Mapped[str]


def samples(count: int, site: str = "north") -> list[Sample]:
    return [
        Sample(site=site, id=f"s{n:04d}", at=NOON + dt.timedelta(seconds=n * 37 % 1000), size=n % 7)
        for n in range(count)
    ]


async def fill(db: Database, entities: list[Any]) -> None:
    await db.create_tables(*dict.fromkeys(map(type, entities)))
    async with db.bulk() as bulk:
        for entity in entities:
            await bulk.insert(entity)


def ids(found: list[Any]) -> list[Any]:
    return [key_of(entity) for entity in found]


def north(db: Database) -> Select[Sample]:
    return db.select(Sample).where(Sample.site == "north")


def alternatives_in(refused: ScanRefused) -> int:
    """Return how many alternatives a query is rejected for, at least."""
    found = re.search(r": the conditions have (more than )?([\d,]+) alternatives, each a request; ", str(refused))
    assert found is not None, refused
    return int(found[2].replace(",", "")) + (found[1] is not None)


def most_alternatives(terms: list[Term]) -> int:
    """Return how many alternatives some conditions have at most, if each of them is on keys."""
    return MOST_BUCKETS * math.prod(_most_of(expression) for expression, _ in terms)


def _most_of(term: Expression, *, negated: bool = False) -> int:
    match term:
        case NoneOf():
            return _most_of(term.term, negated=not negated)
        case AllOf() | AnyOf():
            parts = [_most_of(each, negated=negated) for each in term.terms]
            return math.prod(parts) if isinstance(term, AllOf) is not negated else sum(parts)
        case Membership():
            return max(1, len(term.values))
        case _:
            return 1


db = database_fixture()


@given(st.data())
async def test_a_spread_query_gives_and_deletes_what_filtering_in_python_gives(data: st.DataObject) -> None:
    """
    Without `allow_scan`, on stores that give short and empty pages, or rows in no order; with it, if the conditions
    have more alternatives than a query may have.
    """
    world = data.draw(st.sampled_from(SPREAD_WORLDS))
    entities = data.draw(st.lists(world.entities, min_size=1, max_size=20, unique_by=key_of))
    terms, limit = data.draw(conditions(world)), data.draw(st.integers(0, 9))
    store = data.draw(st.sampled_from([Awkward(data.draw(st.integers(0, 2**32))), Shuffled(), Recorded(2)]))

    async with asyncio.timeout(30), Database(store) as db:
        await fill(db, entities)
        query: Select[Any] = db.select(*world.models).where(*(expression for expression, _ in terms))
        refused: ScanRefused | None = None
        try:
            query.explain()
        except ScanRefused as error:
            refused, query = error, query.allow_scan()
        assert refused is None or MAX_ALTERNATIVES < alternatives_in(refused) <= most_alternatives(terms)
        wanted = results(entities, terms)
        if query.explain().merged_partitions:
            wanted = merged(wanted)
        assert ids(await query.all()) == ids(wanted)
        report = await query.limit(limit).delete()
        assert report.written == min(limit, len(wanted))
        assert ids(await query.all()) == ids(wanted[limit:])


def test_an_explanation_names_every_bucket() -> None:
    """Each is a bounded query; a limit asks each of them for so many rows."""
    unbound: Any = Database(Recorded())
    explained = north(unbound).limit(10).explain()

    assert explained.access is Access.PARTITION_SCAN and len(explained.requests) == 16
    assert explained.merged_partitions == explained.min_transactions == 16
    assert all(each.top == 10 for each in explained.requests)
    assert str(explained.requests[3].filter).startswith("PartitionKey eq 'north_03'")
    assert "16 in parallel, results merged by RowKey from 16 partitions" in str(explained)
    assert north(unbound).where(Sample.id == "s1").explain().merged_partitions == 0
    assert north(unbound).unordered().explain().merged_partitions == 0


class Busy(Between):
    """Each request takes a while; `most` of them ran at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most = 0

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(20):
            await asyncio.sleep(0)
        self.running -= 1
        return await super().query(table, query, limit, continuation)


async def test_a_limit_reads_little_of_each_bucket(db: Database) -> None:
    """One page of each, no longer than the limit."""
    await fill(db, samples(400))
    with db.observe() as limited:
        assert len(await north(db).limit(5).all()) == 5
    with db.observe() as paged:
        page = await north(db).page(7)

    assert [each.top for each in limited.requests] == [5] * 16
    assert sum(each.rows for each in limited.requests) <= 80
    assert [each.top for each in paged.requests] == [7] * 16
    assert len((await north(db).page(7, page.cursor)).items) == 7


async def test_no_more_than_two_pages_of_a_bucket_wait() -> None:
    """However much there is: who takes one entity has read a page of each bucket, and at most another ahead."""
    store = Recorded(2)
    async with Database(store) as db:
        await fill(db, samples(400))
        store.asked.clear()
        async with north(db).stream() as stream:
            async for _ in stream:
                await asyncio.sleep(0.02)
                break
        assert len(store.counts) == 16 and max(store.counts.values()) <= 3


async def test_a_cursor_is_as_small_as_that_of_one_partition(db: Database) -> None:
    """The last key is enough to begin every bucket anew; rows may come and go between two pages."""
    rows = samples(100)
    await fill(db, rows)
    page = await north(db).page(30)
    assert page.cursor is not None and len(page.cursor) < 100
    await db.delete(page.items[-1])
    await db.insert(Sample(site="north", id="late", at=NOON - dt.timedelta(days=1)))
    rest = await north(db).all()
    found = [entity async for part in north(db).pages(40, page.cursor) for entity in part.items]

    assert len(found) == 71 and found[-1].id == "late"
    assert ids(found) == ids(rest[29:])


async def test_more_than_64_buckets_have_to_be_allowed(db: Database) -> None:
    """Then the table is read, in the order of its keys; buckets count together where a query names several."""
    await fill(db, [Wide(id=f"w{n}") for n in range(100)])
    with pytest.raises(ScanRefused, match=r"'\{id:spread\(65\)\}' has more than 64 hash buckets of id; give id"):
        await db.select(Wide).where(Wide.id > "w5").all()
    wide = await db.select(Wide).where(Wide.id > "w5").allow_scan().all()
    assert ids(wide) == sorted(ids(wide)) and len(wide) == 54

    await fill(db, [*samples(40), *samples(40, "south")])
    five = db.select(Sample).where(Sample.site.in_(["north", "south", "c", "d", "e"]))
    with pytest.raises(ScanRefused, match="so the query reads 80 partitions; at most 64 can be merged"):
        await five.all()
    assert len(five.allow_scan().explain().requests) == 5  # one for each site
    found = await five.allow_scan().all()
    assert ids(found) == sorted(ids(found)) and len(found) == 80
    four = db.select(Sample).where(Sample.site.in_(["north", "south", "c", "d"]))
    assert ids(await four.all()) == ids(merged(found))


async def test_what_else_is_missing_is_named_alone(db: Database) -> None:
    """The buckets are no reason to give their field."""
    with pytest.raises(ScanRefused, match=r"no equality on site, .*; add \.where\(Sample\.site == \.\.\.\)"):
        await db.select(Sample).where(Sample.at >= NOON).all()
    with pytest.raises(ScanRefused, match="visits every partition of table SpreadSamples"):
        await db.select(Sample, PropertyBag).where(Sample.at >= NOON).all()


async def test_entries_of_indexes_are_merged_too(db: Database) -> None:
    """Those beside their entities, by choice or by name, and those in partitions that are spread themselves."""
    rows = samples(80)
    await fill(db, rows)
    wanted = [each.id for each in sorted(rows, key=lambda e: (-e.at.timestamp(), e.id)) if each.size == 3]

    chosen = north(db).where(Sample.size == 3)
    assert chosen.explain().path == "index Sample.by_size" and chosen.explain().merged_partitions == 16
    assert [each.id for each in await chosen.all()] == wanted
    entries = db.select(Sample.by_size).where(Sample.site == "north", Sample.size >= 5)
    by_size = sorted((e.size, -e.at.timestamp(), e.id) for e in rows if e.size >= 5)
    assert [each.id for each in await entries.all()] == [name for *_, name in by_size]
    report = await db.select(Sample.by_size).where(Sample.site == "north", Sample.size == 6).limit(4).delete()
    assert report.written == 4


async def test_an_index_in_spread_partitions(db: Database) -> None:
    """Its entries are read from all buckets, and lead to their entities in the order of the entries."""
    await db.create_tables(Visit)
    for n in range(12):
        await db.insert(Visit(id=f"v{n}", place="Oslo", at=NOON + dt.timedelta(minutes=n * 7 % 12)))
    query = db.select(Visit.by_place).where(Visit.place == "Oslo")

    assert query.explain().merged_partitions == 3
    found = await query.all()
    assert [each.at for each in found] == [NOON + dt.timedelta(minutes=n) for n in reversed(range(12))]
    pages = [page.items async for page in query.pages(5)]
    assert [each.id for items in pages for each in items] == [each.id for each in found]
    assert [each.id for each in await query.verify(False).limit(3).all()] == [each.id for each in found[:3]]


async def test_spread_queries_in_a_union() -> None:
    """Each keeps its order and limit; the union bounds the requests of all."""
    store = Busy()
    async with Database(store) as db:
        rows = [*samples(40), *samples(40, "south")]
        await fill(db, rows)
        south = db.select(Sample).where(Sample.site == "south")
        first, second = await north(db).limit(5).all(), await south.all()
        store.most = 0
        assert ids(await db.union(north(db).limit(5), south).concurrency(3).all()) == ids([*first, *second])
        assert store.most == 3
        found = await db.union(north(db).limit(5), south).unordered().all()
        assert [each.id for each in found if each.site == "north"] == [each.id for each in first]
        assert sorted(ids(found)) == sorted(ids([*first, *second]))


def test_what_each_bucket_says_is_evaluated_once(db: Database) -> None:
    """Where one request reads them all."""
    query = db.select(Sample).where((Sample.size == 1) | (Sample.site == "north")).allow_scan()
    assert str(query.explain()).count("Sample.site == 'north'") == 2


async def test_no_more_requests_than_the_query_allows() -> None:
    """Every bucket has its turn, also where a union allows more."""
    store = Busy()
    async with Database(store) as db:
        await fill(db, samples(40))
        for query in (north(db).concurrency(4), db.union(north(db).concurrency(4)).concurrency(16)):
            store.most = 0
            assert (len(await query.all()), store.most) == (40, 4)


async def test_nothing_runs_on_when_a_query_is_left() -> None:
    """Neither after a break, nor after an error in one bucket."""
    store = Gated(1)
    async with Database(store) as db:
        await fill(db, samples(100))
        before = asyncio.all_tasks()
        async with north(db).stream() as stream:
            async for _ in stream:
                break
        assert asyncio.all_tasks() <= before
        store.faults["north_07"] = ValueError("broken")
        store.shut, store.gate = True, asyncio.Semaphore(1000)
        with pytest.raises(ValueError, match="broken"):
            await north(db).all()
        assert asyncio.all_tasks() <= before
