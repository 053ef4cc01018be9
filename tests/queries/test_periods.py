"""
Queries over a table for each period: which tables they visit, and that together they give what one table would.
"""

import datetime as dt
import operator
import pickle
from collections.abc import AsyncIterator, Iterable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableorm import (
    CursorError,
    Database,
    Entity,
    Expression,
    Index,
    Key,
    Mapped,
    ModelError,
    NotSupported,
    PropertyBag,
    ScanRefused,
    Select,
    connect,
    field,
    many,
)
from tableorm.stores import CLOCK
from tableorm.testing import Faults
from tests.databases import database_fixture
from tests.queries.worlds import Column, Pair, Term, World, conditions
from tests.rows import insert_row

UTC = dt.UTC
DAY = dt.timedelta(days=1)
NOON = dt.datetime(2024, 3, 1, 12, tzinfo=UTC)


class Ping(Entity, table="QueriedPings{at:%Y%m%d}", partition_key="{host}", row_key="ping_{at:ticks}"):
    host: Mapped[str]
    at: Mapped[dt.datetime]
    ms: Mapped[int] = field(default=0)

    by_ms = Index(row_key="ms_{ms:04d}_{at:ticks}", building=False)
    by_ms_keys = Index(row_key="kms_{ms:04d}_{at:ticks}", include="keys", building=False)


class Host(Entity, table="QueriedHosts", partition_key="{name}", row_key="host"):
    name: Mapped[str]

    pings = many(lambda: Ping, host="{name}", on_delete="keep")


class OfHost(Entity, abstract=True, partition_key="{host}"):
    host: Mapped[str]
    at: Mapped[dt.datetime]


class Latest(OfHost, table="QueriedLatest{at:%Y%m}", row_key="{at:ticks_desc}"): ...


class Step(Entity, abstract=True, table="QueriedSteps{day:%Y%m}", partition_key="{host}"):
    host: Mapped[str]
    day: Mapped[dt.date]


class Begun(Step, row_key="begun_{day}"): ...


class Ended(Step, row_key="ended_{day}"): ...


db = database_fixture()


def tables_of(seen: Any) -> list[str]:
    """Return the tables of the requests that were seen, each once, in order."""
    return list(dict.fromkeys(request.table for request in seen.requests if request.operation in ("query", "get")))


def of_host(db: Database, *conditions: Expression) -> Select[Ping]:
    """Select the pings of one host for which conditions hold."""
    return db.select(Ping).where(Ping.host == "a", *conditions)


async def fill(db: Database) -> list[Ping]:
    """Insert pings of one host at noon and at midnight of some days; the third day has none."""
    pings = [
        Ping(host="a", at=NOON + number * DAY + half, ms=number)
        for number in range(5)
        if number != 2
        for half in (-DAY / 2, dt.timedelta(0))
    ]
    for ping in pings:
        await db.insert(ping)
    return pings


async def test_a_span_visits_its_tables_alone(db: Database) -> None:
    """A bounded span asks the tables of its periods, also one that is absent, in order of time, and lists nothing."""
    pings = await fill(db)
    query = of_host(db, Ping.at >= NOON, Ping.at < NOON + 3 * DAY)

    with db.observe() as seen:
        found = await query.all()

    assert found == [ping for ping in pings if NOON <= ping.at < NOON + 3 * DAY]
    assert sorted(tables_of(seen)) == [f"QueriedPings2024030{day}" for day in (1, 2, 3, 4)]
    assert {request.operation for request in seen.requests} == {"query"}


async def test_the_end_of_a_span_that_is_the_start_of_a_period(db: Database) -> None:
    """A period whose first moment is excluded is not visited; one whose first moment is included is."""
    midnight = NOON - DAY / 2
    span = Ping.host == "a", Ping.at >= midnight

    before = db.select(Ping).where(*span, Ping.at < midnight + DAY).explain()
    upto = db.select(Ping).where(*span, Ping.at <= midnight + DAY).explain()

    assert [request.path for request in before.requests] == ["QueriedPings20240301()"]
    assert [request.path for request in upto.requests] == ["QueriedPings20240301()", "QueriedPings20240302()"]


async def test_points_are_asked_of_their_tables_alone(db: Database) -> None:
    """Each of several moments is one request to the table of its period."""
    await fill(db)
    moments = [NOON, NOON + DAY, NOON + DAY - DAY / 2]
    query = of_host(db, Ping.at.in_(moments))

    with db.observe() as seen:
        found = await query.all()

    assert [ping.at for ping in found] == sorted(moments)
    assert len(seen.requests) == 3
    assert str(query.explain()).count("point: GET QueriedPings2024030") == 3


async def test_a_half_open_span_lists_the_tables(db: Database) -> None:
    """Without one of the bounds the tables are listed once, and those that exist are visited."""
    pings = await fill(db)
    query = of_host(db, Ping.at >= NOON + DAY)

    with db.observe() as seen:
        found = await query.all()

    assert found == [ping for ping in pings if ping.at >= NOON + DAY]
    assert [request.operation for request in seen.requests].count("list-tables") == 1
    assert sorted(tables_of(seen)) == [f"QueriedPings2024030{day}" for day in (2, 4, 5)]
    text = str(query.explain())
    assert "GET Tables()" in text
    assert "GET QueriedPings{at:%Y%m%d}()" in text


async def test_no_bounds_need_allow_scan(db: Database) -> None:
    """A query that would visit every period is rejected without `allow_scan`; with it the tables are listed."""
    pings = await fill(db)
    query = of_host(db)

    for call in (query.all, query.count, query.page, query.delete):
        with pytest.raises(ScanRefused, match=r"tables of all periods; add .where\(Ping.at >= "):
            await call()
    with pytest.raises(ScanRefused, match="all periods"):
        query.explain()
    assert await query.allow_scan().all() == pings
    assert await query.allow_scan().count() == len(pings)


async def test_a_relation_to_periods_is_bounded_by_where(db: Database) -> None:
    """A relation has no `allow_scan`, and the error names what it has; without bounds nothing is loaded."""
    pings = await fill(db)
    await db.create_tables(Host)
    host = Host(name="a")

    with pytest.raises(ScanRefused, match=r"\.where\(Ping.at >= ...\), to the query or the relation, or"):
        await db.load(host, Host.pings)
    await db.load(host, Host.pings.where(Ping.at >= NOON, Ping.at < NOON + DAY))

    assert host.pings == tuple(ping for ping in pings if NOON <= ping.at < NOON + DAY)


async def test_a_scan_of_each_table_is_refused_too(db: Database) -> None:
    """Within its tables a query is planned as any other: without a partition it scans each of them."""
    query = db.select(Ping).where(Ping.at >= NOON, Ping.at < NOON + DAY)

    with pytest.raises(ScanRefused):
        await query.all()
    assert await query.allow_scan().all() == []


async def test_a_page_ends_after_ten_tables(db: Database) -> None:
    """A page that finds little ends as it is after ten tables, with a cursor that goes on."""
    await db.insert(Ping(host="a", at=NOON + 30 * DAY))
    query = of_host(db, Ping.at >= NOON, Ping.at < NOON + 39 * DAY)

    with db.observe() as seen:
        first = await query.page()

    assert len(seen.requests) == 10
    assert first.items == []
    pages = [page async for page in query.pages(cursor=first.cursor)]
    assert [len(page.items) for page in pages] == [0, 0, 1]


async def test_a_cursor_outlives_its_table(db: Database) -> None:
    """If the table of a cursor is dropped, the query goes on with the next one."""
    pings = await fill(db)
    query = of_host(db, Ping.at >= NOON - DAY)
    page = await query.page(3)

    await db.drop_table("QueriedPings20240302")

    assert (await query.page(cursor=page.cursor)).items == [ping for ping in pings if ping.at > NOON + 2 * DAY]


async def test_a_row_in_the_wrong_table(db: Database) -> None:
    """A row that somebody else has put into the table of another period is found there, and the query goes on."""
    await fill(db)
    own = PropertyBag("QueriedPings20240302", "a", Ping.key(host="a", at=NOON).row_key, {"EntityType": "Ping", "ms": 7})
    await insert_row(db, own.table, dict(own.row))
    query = of_host(db, Ping.at >= NOON - DAY)

    found = [ping.ms for ping in await query.all()]

    assert found == [0, 0, 7, 1, 1, 3, 3, 4, 4]
    async with query.stream() as stream:
        streamed: list[int] = []
        async for ping in stream:
            streamed.append(ping.ms)
            if ping.ms == 7:
                break
    assert [*streamed, *[ping.ms async for ping in resumed(query, stream.cursor)]] == found


async def resumed(query: Select[Ping], cursor: str | None) -> AsyncIterator[Ping]:
    async with query.stream(cursor) as stream:
        async for ping in stream:
            yield ping


async def test_foreign_cursors_are_refused(db: Database) -> None:
    """A cursor of a plain query, of a table outside of the span, or of other conditions is rejected."""
    await fill(db)
    query = of_host(db, Ping.at >= NOON)
    cursor = (await query.page(1)).cursor
    assert cursor is not None
    table, _, inner = cursor.partition(".")

    for odd in (inner, f"QueriedPings20240101.{inner}", f"QueriedPings20240304.{inner}", f"{table}.x", "x", "."):
        with pytest.raises(CursorError):
            await query.page(cursor=odd)
    with pytest.raises(CursorError):
        await query.where(Ping.ms == 1).page(cursor=cursor)
    with pytest.raises(CursorError, match="unordered"):
        await query.unordered().page()


async def test_indexes_serve_within_their_tables(db: Database) -> None:
    """A query reads by an index of each table; entries are read as such too, in their tables."""
    pings = await fill(db)
    span = Ping.host == "a", Ping.at >= NOON - DAY, Ping.at < NOON + 9 * DAY
    wanted = [ping for ping in pings if ping.ms == 3]

    for index in (Ping.by_ms, Ping.by_ms_keys):
        query = db.select(index).where(*span, Ping.ms == 3)
        assert await query.all() == wanted
        assert await query.count() == 2
        page = await query.page(1)
        assert [*page.items, *(await query.page(1, page.cursor)).items] == wanted
        got = await db.get(index, host="a", ms=3, at=wanted[0].at)
        assert got == wanted[0]
        assert got.key == wanted[0].key
    assert await db.select(Ping).where(*span, Ping.ms == 3).all() == wanted
    assert "QueriedPings20240304()?$filter=PartitionKey eq 'a' and RowKey ge 'ms_0003_'" in str(
        db.select(Ping).where(*span, Ping.ms == 3).explain()
    )
    changed = await db.get(Ping.by_ms, host="a", ms=3, at=wanted[0].at)
    changed.ms = 4
    await db.save(changed)
    assert await db.select(Ping.by_ms).where(*span, Ping.ms == 4).count() == 3


async def test_several_kinds_and_bags(db: Database) -> None:
    """An abstract base stands for its kinds in all tables, and bags for every other row of these."""
    days = [dt.date(2024, month, 1) for month in (1, 2, 4)]
    for day in days:
        await db.insert(Begun(host="a", day=day))
        await db.insert(Ended(host="a", day=day))
    await db.insert(PropertyBag("QueriedSteps202404", "a", "other", {"note": "x"}))
    span = Step.host == "a", Step.day >= days[0], Step.day < dt.date(2024, 5, 1)

    found = await db.select(Step).where(*span).allow_scan().all()

    assert [(type(step), step.day) for step in found] == [(kind, day) for day in days for kind in (Begun, Ended)]
    bags = await db.select(Begun, PropertyBag).where(Begun.host == "a", Begun.day >= days[0]).allow_scan().all()
    assert [each.table for each in bags if isinstance(each, PropertyBag)] == []


async def test_projections(db: Database) -> None:
    """`only` loads some fields from each table, and the key tells the table still."""
    pings = await fill(db)
    query = of_host(db, Ping.at >= NOON - DAY).only(Ping.ms)

    found = await query.all()

    assert [ping.ms for ping in found] == [ping.ms for ping in pings]
    assert [ping.key for ping in found] == [ping.key for ping in pings]


async def test_deletes(db: Database) -> None:
    """What a span finds is deleted table after table, with its index entries, up to a limit."""
    await fill(db)
    query = of_host(db, Ping.at >= NOON, Ping.at < NOON + 9 * DAY)
    reports: list[int] = []

    some = await query.limit(3).delete(on_progress=lambda report: reports.append(report.written))
    rest = await query.delete()

    assert (some.written, rest.written) == (3, 4)
    assert reports[-1] == 3
    assert await query.count() == 0
    assert await db.select(Ping.by_ms).where(Ping.host == "a", Ping.at >= NOON - DAY).count() == 1


async def test_pickled_queries_and_what_is_refused(db: Database) -> None:
    """A pickled query is bound anew; splits are rejected, with what to do instead."""
    pings = await fill(db)
    query = of_host(db, Ping.at >= NOON - DAY)
    restored: Select[Ping] = pickle.loads(pickle.dumps(query))

    assert await restored.bind(db).all() == pings
    with pytest.raises(NotSupported, match="bind"):
        await restored.all()
    with pytest.raises(ModelError, match=r"give each part a span of Ping.at"):
        query.split(2)


@pytest.mark.parametrize("limit", [None, 3])
async def test_unions(db: Database, limit: int | None) -> None:
    """A union gives what each of its queries gives, one after the other; a limit counts all tables of its query."""
    pings = await fill(db)
    await db.insert(Latest(host="a", at=NOON))
    latest = db.select(Latest).where(Latest.host == "a", Latest.at >= NOON - DAY)
    query = of_host(db, Ping.at >= NOON - DAY)
    query = query if limit is None else query.limit(limit)

    assert await db.union(query, latest, query).all() == [*pings[:limit], *await latest.all(), *pings[:limit]]
    found = [each async for each in db.union(query, latest).unordered() if isinstance(each, Ping)]
    assert sorted(found, key=operator.attrgetter("at")) == pings[:limit]


async def test_a_client_that_cannot_list(db: Database, stopped_clock: None) -> None:
    """A client that may not list tables visits those of the span up to the present period and the next one."""
    CLOCK.freeze(NOON + 4 * DAY)
    pings = await fill(db)
    faults = Faults(db)
    query = of_host(db)

    with faults.fail_next("list-tables", with_=403):
        assert await query.where(Ping.at >= NOON - DAY).all() == pings
    with (
        faults.fail_next("list-tables", with_=403),
        pytest.raises(NotSupported, match=r"set both bounds of Ping\.at"),
    ):
        await query.where(Ping.at <= NOON).all()
    with faults.fail_next("list-tables", with_=403), pytest.raises(ModelError, match="more than 1000 tables"):
        await query.where(Ping.at >= NOON - 1200 * DAY).all()


async def test_a_table_that_is_being_deleted_is_empty(db: Database) -> None:
    """Readers find nothing in a table that goes."""
    pings = await fill(db)
    query = of_host(db, Ping.at >= NOON - DAY, Ping.at <= NOON + DAY / 2)
    faults = Faults(db)

    with faults.fail_next("query", with_="TableBeingDeleted", table="QueriedPings20240301"):
        assert await query.all() == pings[2:3]
    with faults.fail_next("get", with_="TableBeingDeleted"):
        assert await db.get_or_none(Key(Ping, *pings[0].key.__reduce__()[1][1:])) is None


async def test_logs_are_followed_into_new_periods(db: Database) -> None:
    """What is appended is given in the order of time, also when it is the first of its period."""
    pings = await fill(db)
    following = (
        db.select(Ping)
        .where(Ping.host == "a")
        .follow(lag=dt.timedelta(0), since=NOON - DAY, pause=dt.timedelta(milliseconds=1))
    )

    found = [await anext(following) for _ in pings]
    late = Ping(host="a", at=dt.datetime.now(UTC) + DAY)
    await db.insert(late)

    assert found == pings
    assert await anext(following) == late
    await following.aclose()


class Spread(Entity, table="QueriedSpread{at:%Y%m%d}", partition_key="{id:spread(4)}", row_key="{at:ticks}_{id}"):
    id: Mapped[int]
    at: Mapped[dt.datetime]


async def test_spread_partitions_are_merged_in_each_period(db: Database) -> None:
    """A query over all hash buckets of a key gives the entities of each period in the order of their RowKeys."""
    entities = [Spread(id=number, at=NOON + number * dt.timedelta(hours=5)) for number in range(20)]
    for entity in entities:
        await db.insert(entity)
    query = db.select(Spread).where(Spread.at >= NOON, Spread.at < NOON + 9 * DAY)

    assert await query.all() == entities
    assert await query.limit(7).all() == entities[:7]
    assert [each async for page in query.pages(3) for each in page.items] == entities


# The property: any span gives what filtering in Python gives

ZONES = ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "America/St_Johns", "Australia/Lord_Howe"]
_START, _END = dt.datetime(2024, 3, 29), dt.datetime(2024, 4, 3)  # noqa: DTZ001 - summer time begins or ends


@st.composite
def moments(draw: st.DrawFn) -> dt.datetime:
    """Moments of few days in some zone, often at the bounds of hours, and in the hours that are skipped or doubled."""
    naive = draw(st.datetimes(_START, _END))
    if draw(st.booleans()):
        naive = naive.replace(minute=0, second=0, microsecond=0)
    return naive.replace(tzinfo=ZoneInfo(draw(st.sampled_from(ZONES))), fold=draw(st.integers(0, 1)))


def column(expression: Any, values: st.SearchStrategy[Any]) -> Column:
    """A field of any of the models, by Python's own comparison."""

    def pair(entity: Any, value: Any) -> Pair:
        return _utc(getattr(entity, expression.name)), _utc(value)

    return Column(expression, values, pair, optional=False)


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, dt.datetime) else value


def satisfying(entities: Iterable[Any], terms: list[Term]) -> list[Any]:
    """Return the entities for which every condition holds."""
    return [entity for entity in entities if all(truth(entity) for _, truth in terms)]


class Hourly(OfHost, table="SpanHours{at:%Y%m%d%H}", row_key="{at:ticks}"): ...


class Daily(OfHost, table="SpanDays{at:%Y%m%d}", row_key="{at:ticks_desc}"): ...


class Monthly(OfHost, table="SpanMonths{at:%Y%m}", row_key="{at:ticks}"): ...


@given(data=st.data(), stored=st.lists(moments(), min_size=1, max_size=12), size=st.integers(1, 5))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
async def test_any_span_gives_what_filtering_a_scan_gives(
    data: st.DataObject, stored: list[dt.datetime], size: int
) -> None:
    """In the order of time or against it, whatever the conditions on the moment are, in whatever zones; with limits."""
    model: Any = data.draw(st.sampled_from([Hourly, Daily, Monthly]))
    columns = column(model.at, moments()), column(model.host, st.sampled_from("ab"))
    terms = data.draw(conditions(World((model,), st.nothing(), columns)))
    async with connect("local::memory:") as db:
        for number, at in enumerate(stored):
            await db.upsert(model(host="ab"[number % 2], at=at))
        everything = await db.select(model).allow_scan().all()
        query = db.select(model).where(*(expression for expression, _ in terms)).allow_scan()

        found = await query.all()
        pages = [each async for page in query.pages(size) for each in page.items]

        for number, host in enumerate("ab"):
            times = [each.at for each in everything if each.host == host]
            assert times == sorted({_utc(at) for at in stored[number::2]}, reverse=model is Daily)
        assert found == satisfying(everything, terms)
        assert pages == found
        assert await query.count() == len(found)
        assert await query.exists() is bool(found)
        limited = query.limit(size)
        assert await limited.all() == found[:size]
        assert await limited.count() == len(await limited.unordered().all()) == min(size, len(found))
        async with limited.stream() as stream:
            begun = [await anext(aiter(stream))] if found else []
        async with limited.stream(stream.cursor) as rest:
            assert begun + [each async for each in rest] == found[:size]


class Numbered(Entity, table="SpanNumbers{value:02d}", partition_key="{host}", row_key="{value:02d}"):
    host: Mapped[str]
    value: Mapped[int]


class Yearly(Entity, table="SpanYears{value:%Y}", partition_key="{host}", row_key="{value}"):
    host: Mapped[str]
    value: Mapped[dt.date]


class Timed(Entity, table="SpanTimes{value:%Y}", partition_key="{host}", row_key="{value:ticks}"):
    host: Mapped[str]
    value: Mapped[dt.datetime]


# The models, what they store, and what it is compared with: also the first and the last value, and what is beyond.
_FIRST, _LAST = dt.datetime(1601, 1, 1, tzinfo=UTC), dt.datetime.max.replace(tzinfo=UTC)
EXTREMES: list[tuple[Any, list[Any], list[Any]]] = [
    (Numbered, [0, 5, 98, 99], [-(2**63), -5, -1, 0, 1, 5, 98, 99, 100, 12_345, 2**63 - 1]),
    (Yearly, [dt.date.min, NOON.date(), dt.date.max], [dt.date.min, NOON.date(), dt.date.max]),
    (Timed, [_FIRST, NOON, _LAST], [_FIRST, NOON, _LAST]),
]


@given(data=st.data(), case=st.sampled_from(EXTREMES))
@settings(suppress_health_check=[HealthCheck.too_slow])
async def test_bounds_beyond_the_tables_give_and_delete_what_satisfies_them(data: st.DataObject, case: Any) -> None:
    """Also a bound that no table holds: nothing is found, or deleted, that does not satisfy it."""
    model, stored, compared = case
    terms = data.draw(conditions(World((model,), st.nothing(), (column(model.value, st.sampled_from(compared)),))))
    entities = [model(host="a", value=value) for value in stored]
    expected = satisfying(entities, terms)
    async with connect("local::memory:") as db:
        for entity in entities:
            await db.insert(entity)
        tables = await db.tables()
        query = db.select(model).where(model.host == "a", *(expression for expression, _ in terms)).allow_scan()

        assert await query.all() == expected
        assert (await query.delete()).written == len(expected)
        left = await db.select(model).allow_scan().all()
        assert left == [entity for entity in entities if entity not in expected]
        assert await db.tables() == tables
