"""
Scopes of models with a table for each period: each tenant's rows are in the tables of all, and are kept apart in each.
"""

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    EntityNotFound,
    Expression,
    Index,
    Mapped,
    ModelError,
    PropertyBag,
    Scope,
    TableNotFound,
    connect,
    field,
)

UTC = dt.UTC
DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)
FIRST = dt.datetime(2024, 5, 1, 12, tzinfo=UTC)
TENANTS = ("acme", "acme2", "other")


class Visit(Entity, table="ScopedVisits{at:%Y%m%d}", partition_key="{tenant}", row_key="visit_{at:ticks_desc}_{n:03d}"):
    tenant: Mapped[str | None] = field(default=None)
    at: Mapped[dt.datetime]
    n: Mapped[int]
    page: Mapped[str] = field(default="")

    by_page = Index(row_key="page_{page}_{at:ticks_desc}_{n:03d}", building=False)


class Error(Entity, table="ScopedVisits{at:%Y%m%d}", partition_key="{tenant}", row_key="error_{at:ticks_desc}"):
    tenant: Mapped[str]
    at: Mapped[dt.datetime]


class OfPage(Entity, abstract=True):
    page: Mapped[str]
    at: Mapped[dt.datetime]


class Shared(OfPage, table="ScopedShared{at:%Y%m}", partition_key="{page}", row_key="{tenant}_{at:ticks}"):
    tenant: Mapped[str]


class Branch(OfPage, table="ScopedBranches{at:%Y%m}", partition_key="{page}", row_key="{branch:03d}_{at:ticks}"):
    branch: Mapped[int]


class Foreign(OfPage, table="ScopedForeign{at:%Y%m}", partition_key="{page}", row_key="{at:ticks}"):
    pass


class Mixed(Entity, table="ScopedMixed{at:%Y%m}", partition_key="{tenant}", row_key="{id}_{at:ticks}"):
    tenant: Mapped[str]
    id: Mapped[str]
    at: Mapped[dt.datetime]


class MixedByPage(OfPage, table="ScopedMixed{at:%Y%m}", partition_key="{page}", row_key="{tenant}_{at:ticks}"):
    tenant: Mapped[str]


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    """Visits and errors of three tenants, two of whose names begin alike, in the tables of three days."""
    async with connect(f"local:{tmp_path / 'visits.tables'}") as db:
        for tenant in TENANTS:
            for day in range(3):
                at = FIRST + day * DAY
                for n in range(2):
                    await db.insert(Visit(tenant=tenant, at=at, n=n, page=f"p{n}"))
                await db.insert(Error(tenant=tenant, at=at))
                await db.insert(Shared(tenant=tenant, page="home", at=at))
        yield db


@pytest.fixture(params=[(), (Visit,), (Visit, Error)], ids=len)
def mine(request: pytest.FixtureRequest, db: Database) -> Scope:
    """The scope of a tenant, made with and without models."""
    models: tuple[type[Entity], ...] = request.param
    return db.scope(*models, tenant="acme")


async def _count_of_others(db: Database) -> dict[str, int]:
    rows = [row for table in await db.tables() for row in await db.select_raw(table).allow_scan().all()]
    told = [f"{row.partition_key} {row.row_key}" for row in rows]
    return {text: told.count(text) for text in told if not text.startswith("acme ") and " acme_" not in text}


AT_HOME = Shared.page == "home", Shared.at >= FIRST
QUERIES: list[tuple[Expression, ...]] = [
    (),
    (Visit.at >= FIRST,),
    (Visit.at < FIRST + DAY,),
    (Visit.at == FIRST,),
    ((Visit.at == FIRST) | (Visit.at == FIRST + 2 * DAY),),
    (Visit.at >= FIRST, Visit.at < FIRST + 2 * DAY, Visit.page == "p1"),
    (Visit.at >= FIRST, (Visit.n == 1) | (Visit.page == "p0")),
    (~(Visit.at == FIRST), Visit.at < FIRST + 9 * DAY),
]


@pytest.mark.one_of(5)
@pytest.mark.parametrize("where", QUERIES, ids=str)
async def test_a_query_reads_rows_of_the_scope_alone(db: Database, mine: Scope, where: tuple[Expression, ...]) -> None:
    """Over one table, several, and all: the query finds what the database finds of this tenant, in the same order."""
    whole = db.select(Visit).where(Visit.tenant == "acme", *where).allow_scan()
    query = mine.select(Visit).where(*where).allow_scan()

    expected = await whole.all()
    assert expected
    assert await query.all() == expected
    assert await query.count() == len(expected)
    assert await query.first() == expected[0]
    assert [each async for page in query.pages(2) for each in page.items] == expected
    assert all("acme" in str(request) for request in query.explain().requests if request.path != "Tables()")


async def test_queries_of_indexes_and_several_models(mine: Scope) -> None:
    """An index, two models of the same tables, and a partition that tenants share."""
    indexed = await mine.select(Visit.by_page).where(Visit.page == "p1", Visit.at >= FIRST).all()
    both = await mine.select(Visit, Error).allow_scan().all()
    shared = await mine.select(Shared).where(*AT_HOME).all()

    assert {each.tenant for each in indexed} == {"acme"}
    assert len(indexed) == 3
    assert [type(each) for each in both].count(Error) == 3
    assert {each.tenant for each in both} == {"acme"}
    assert {each.tenant for each in shared} == {"acme"}
    assert len(shared) == 3


async def test_points_are_filled(db: Database, mine: Scope) -> None:
    """`get`, `exists` and `get_many` read the rows of the scope; a key of another tenant is rejected."""
    key = Visit.key(tenant="other", at=FIRST, n=0)

    assert await mine.get(Visit, at=FIRST, n=0) == await db.get(Visit, tenant="acme", at=FIRST, n=0)
    assert await mine.exists(Visit, at=FIRST + DAY, n=1)
    assert len(await mine.get_many([Visit.key(tenant="acme", at=FIRST, n=0)])) == 1
    with pytest.raises(EntityNotFound):
        await mine.get(Visit, at=FIRST + 5 * DAY, n=0)
    refused: list[Awaitable[Any]] = [
        mine.get(key),
        mine.get_many([key]),
        mine.delete(Visit, tenant="acme2", at=FIRST, n=0, if_match="*"),
    ]
    for each in refused:
        with pytest.raises(AccessDenied, match=r"tenant is '(other|acme2)', and this scope is of tenant='acme'"):
            await each


async def test_writes_stay_in_the_scope(db: Database, mine: Scope) -> None:
    """New entities get the tenant, in every period; those of others are rejected, and no row of theirs changes."""
    before = await _count_of_others(db)
    theirs = await db.get(Visit, tenant="other", at=FIRST, n=0)
    await mine.insert(mine.new(Visit, at=FIRST + 7 * DAY, n=1))
    await mine.upsert(Visit(at=FIRST + 8 * DAY, n=1))
    async with mine.transaction() as tx:
        tx.insert(Visit(at=FIRST, n=7))
    async with mine.bulk() as bulk:
        await bulk.insert(Visit(at=FIRST + 9 * DAY, n=1))
    await mine.modify(Visit, lambda visit: setattr(visit, "page", "p9"), at=FIRST, n=0)
    await mine.delete(Visit, at=FIRST, n=1, if_match="*")
    verbs: list[Callable[[], Awaitable[Any]]] = [
        lambda: mine.insert(Visit(tenant="other", at=FIRST, n=8)),
        lambda: mine.save(theirs),
        lambda: mine.refresh(theirs),
    ]
    for each in verbs:
        with pytest.raises(AccessDenied, match="tenant is 'other'"):
            await each()

    found = await db.select(Visit).where(Visit.at >= FIRST, Visit.tenant == "acme").all()
    assert sorted(visit.at for visit in found)[-3:] == [FIRST + day * DAY for day in (7, 8, 9)]
    assert await _count_of_others(db) == before


async def test_deleting_by_a_query_leaves_what_others_have(db: Database, mine: Scope) -> None:
    """`query.delete()` deletes the entities of the scope in all tables, and their index entries."""
    before = await _count_of_others(db)

    await mine.select(Visit).where(Visit.at >= FIRST).delete()
    await mine.select(Shared).where(*AT_HOME).delete()

    assert await mine.select(Visit).where(Visit.at >= FIRST).all() == []
    assert await mine.select(Shared).where(*AT_HOME).all() == []
    assert await _count_of_others(db) == before


async def test_another_value_is_refused_in_conditions(mine: Scope) -> None:
    """A query that asks for another tenant is rejected before anything is sent."""
    with pytest.raises(AccessDenied, match="tenant is 'other'"):
        await mine.select(Visit).where(Visit.tenant == "other", Visit.at >= FIRST).all()


async def test_a_token_opens_rows_of_the_scope_alone(db: Database, mine: Scope, tmp_path: Path) -> None:
    """A grant is for the table of one period, in which the token opens the rows of the tenant."""
    token = await mine.grant(Visit, "raud", HOUR, start={"at": FIRST}, end={"at": FIRST})
    with pytest.raises(ModelError, match="give a model of the table"):
        await mine.grant("ScopedVisits20240501", "r", HOUR)
    with pytest.raises(ModelError, match="a token opens one table"):
        await mine.grant(Visit, "r", HOUR)
    with pytest.raises(AccessDenied, match="tenant is 'other'"):
        await mine.grant(Visit, "r", HOUR, start={"tenant": "other", "at": FIRST}, end={"at": FIRST})
    with pytest.raises(ModelError, match="is of several partitions, whose rows may be of others"):
        await mine.grant(Shared, "r", HOUR, start={"page": "a", "at": FIRST}, end={"page": "z", "at": FIRST})

    async with connect(f"local:{tmp_path / 'visits.tables'}", sas=token) as guest:
        assert (await guest.get(Visit, tenant="acme", at=FIRST, n=0)).page == "p0"
        for tenant, at in (("other", FIRST), ("acme2", FIRST), ("acme", FIRST + DAY)):
            with pytest.raises(AccessDenied):
                await guest.get(Visit, tenant=tenant, at=at, n=0)
            with pytest.raises(AccessDenied):
                await guest.upsert(Visit(tenant=tenant, at=at, n=5))


async def test_rows_without_a_model(db: Database) -> None:
    """With a model that has periods, rows of each period can be read, written and queried; those of others cannot."""
    mine = db.scope(Visit, tenant="acme")
    rows = [bag async for bag in mine.select_raw("ScopedVisits20240501")]
    bags = await mine.select(Visit, PropertyBag).where(Visit.at >= FIRST, Visit.at < FIRST + DAY).all()
    own = next(row.row_key for row in rows if row.row_key.startswith("visit_"))

    assert {bag.partition_key for bag in rows} == {"acme"}
    assert len(rows) == 5
    assert {each.partition_key if isinstance(each, PropertyBag) else each.tenant for each in bags} == {"acme"}
    assert (await mine.get(PropertyBag.key("scopedvisits20240501", "acme", own))).row_key == own
    for partition in ("other", "acme2"):
        with pytest.raises(AccessDenied, match="is not of the scope tenant='acme'"):
            await mine.get(PropertyBag.key("ScopedVisits20240501", partition, own))
        with pytest.raises(AccessDenied, match="is not of the scope tenant='acme'"):
            await mine.insert(PropertyBag("ScopedVisits20240501", partition, "x"))
    with pytest.raises(ModelError, match=r"rows are derived from Visit, which a bag cannot keep right"):
        await mine.upsert(PropertyBag("ScopedVisits20240501", "acme", own))
    await mine.insert(PropertyBag("ScopedVisits20240501", "acme", "x", {"a": 1}))
    with pytest.raises(TableNotFound):
        await mine.select_raw("ScopedVisits20300101").all()
    with pytest.raises(ModelError, match="without a model cannot be told apart in the scope"):
        mine.select_raw("ScopedVisits2024050")


async def test_rows_without_a_model_in_shared_partitions(db: Database) -> None:
    """Where the tenant is in the RowKey and the partition is not given, no range of keys is the scope's."""
    with pytest.raises(ModelError, match=r"no range of keys in table ScopedShared\{at:%Y%m\} is just the rows of"):
        db.scope(Shared, tenant="acme")
    for branch in (1, 2):
        await db.insert(Branch(branch=branch, page="home", at=FIRST))
    mine = db.scope(Branch, branch=1, page="home")

    assert [bag.row_key[:3] async for bag in mine.select_raw("ScopedBranches202405")] == ["001"]
    with pytest.raises(AccessDenied, match="is not of the scope"):
        await mine.delete(PropertyBag.key("ScopedBranches202405", "home", "002_0"), if_match="*")


async def test_models_whose_keys_do_not_tell(db: Database) -> None:
    """A model without the field is rejected by name, at once if the scope names it; so are keys others may have."""
    with pytest.raises(ModelError, match="Foreign cannot be used in the scope of tenant='acme': 'tenant' is not a"):
        db.scope(Foreign, tenant="acme")
    with pytest.raises(ModelError, match="Foreign cannot be used in the scope of tenant='acme': 'tenant' is not a"):
        db.scope(tenant="acme").select(Foreign)
    with pytest.raises(AccessDenied, match=r"MixedByPage.tenant is 'other'"):
        await db.scope(tenant="acme").insert(Mixed(tenant="acme", id="other", at=FIRST))
    with pytest.raises(ModelError, match="may hold rows of MixedByPage"):
        db.scope(Mixed, tenant="acme")
