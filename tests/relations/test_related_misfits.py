"""
Relations that lead to rows that cannot be read: one bad row hides neither the others nor their parents.
"""

import datetime as dt
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    AccessDenied,
    Database,
    DecodeError,
    Entity,
    Key,
    Mapped,
    ModelError,
    NotLoaded,
    PropertyBag,
    WrongKind,
    one,
)
from tests.databases import database_fixture, memory_database
from tests.queries.test_misfits import Seen, iterated, paged, streamed
from tests.relations.models import Buyer, Item, Purchase

pytestmark = pytest.mark.limit(20)  # what hangs shall fail soon

SECOND = dt.timedelta(seconds=1)


class Step(Entity, table="MisfitSteps", partition_key="{tenant}", row_key="{at:ticks}"):
    tenant: Mapped[str]
    at: Mapped[dt.datetime]
    buyer: Mapped[Key[Buyer]]

    customer = one(lambda: Buyer, key="buyer")


db = database_fixture(Buyer, Purchase, Step)


DAMAGE: dict[str, dict[str, Any]] = {
    "another kind": {"EntityType": "Other"},
    "another type": {"age": "old", "size": "large"},
    "no version": {"EntityType": "{kind}:x"},
}


async def spoil(db: Database, entity: Entity, damage: str = "another type") -> None:
    """Alter a row as another program would, so that its model cannot read it."""
    key, kind = entity.key, type(entity).__name__
    told = {name: value.format(kind=kind) for name, value in DAMAGE[damage].items()}
    await db.merge(PropertyBag(key.table, key.partition_key, key.row_key, told), if_match="*")


async def fill(db: Database, fits: list[bool], tenant: str = "t", damage: str = "another type") -> list[Purchase]:
    """Insert a purchase for each, with a buyer who can be read or not, and two items, of which one can then be read."""
    for number, fit in enumerate(fits):
        buyer = Buyer(tenant=tenant, id=number)
        items = [Item(tenant=tenant, purchase=number, id=item) for item in range(2)]
        for each in (buyer, Purchase(tenant=tenant, id=number, buyer=buyer.key), *items):
            await db.insert(each)
        if not fit:
            await spoil(db, buyer, damage)
            await spoil(db, items[0], damage)
    return await db.select(Purchase).where(Purchase.tenant == tenant).all()


@pytest.mark.parametrize("damage", list(DAMAGE))
async def test_a_link_to_a_row_that_cannot_be_read(db: Database, damage: str) -> None:
    """The error names relation, parent and row; the others have theirs, and the parent keeps what it had."""
    bought = await fill(db, [True, False, True], damage=damage)

    with pytest.raises(
        DecodeError, match=r"^Purchase\.customer of Purchase \('t', 'purchase_001'\).*buyer_001"
    ) as told:
        await db.load(bought, Purchase.customer)
    assert told.value.key == ("t", "buyer_001") and told.value.parents == (bought[1],)
    assert pickle.loads(pickle.dumps(told.value)).parents == (bought[1],)
    assert [each.customer and each.customer.id for each in bought[::2]] == [0, 2]
    with pytest.raises(NotLoaded):
        _ = bought[1].customer


@pytest.mark.parametrize("damage", list(DAMAGE))
async def test_misfits_of_a_load(db: Database, damage: str) -> None:
    """A function is called with the error of each row; the parents have the rest."""
    bought = await fill(db, [True, False, True, False], damage=damage)
    errors: list[DecodeError] = []

    await db.load(bought, Purchase.items, misfits=errors.append)
    unfit = [] if damage == "another kind" else [1, 3]  # a query finds no rows of other kinds
    sizes = [2, 1, 2, 1]
    assert [len(each.items) for each in bought] == sizes
    assert [(error.key[1], error.parents) for error in errors] == [
        (f"purchase_{number:03d}_000", (bought[number],)) for number in unfit
    ]
    await db.load(bought, Purchase.customer, misfits="skip")
    assert [each.customer and each.customer.id for each in bought] == [0, None, 2, None]
    with pytest.raises(ModelError, match=r"load\(misfits='no'\) is rejected"):
        await db.load(bought, Purchase.customer, misfits="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_one_row_of_several_parents(db: Database) -> None:
    """Its error comes once, with all of them; also at the end of a path, where they are those that were given."""
    (bought,) = await fill(db, [False])
    others = [Purchase(tenant="t", id=number, buyer=bought.buyer) for number in (1, 2)]
    for each in others:
        await db.insert(each)
    errors: list[DecodeError] = []

    await db.load([bought, *others], Purchase.customer, misfits=errors.append)
    assert [error.parents for error in errors] == [(bought, *others)]
    await spoil(db, bought)
    await db.insert(Item(tenant="t", purchase=0, id=2))
    items = await db.select(Item).where(Item.tenant == "t").misfits("skip").all()
    errors.clear()
    await db.load(items, Item.of, Purchase.customer, misfits=errors.append)
    assert [error.parents for error in errors] == [tuple(items)]
    assert "Purchase.customer of Purchase ('t', 'purchase_000')" in str(errors[0])


async def test_a_link_out_of_the_scope(db: Database) -> None:
    """Is like a row that cannot be read: nothing of it is read, and the others have theirs."""
    bought = await fill(db, [True, True])
    (other,) = await fill(db, [True], "other")
    bought[0].buyer = other.buyer
    await db.save(bought[0])
    mine, errors = db.scope(tenant="t"), list[DecodeError]()

    found = await mine.select(Purchase).load(Purchase.customer).misfits(errors.append).all()
    assert [each.customer and each.customer.id for each in found] == [None, 1]
    assert [error.key for error in errors] == [("other", "buyer_000")]
    assert isinstance(errors[0].__cause__, AccessDenied)
    with pytest.raises(DecodeError, match=r"buyer_000.*scope is of tenant='t'"):
        await mine.load(found, Purchase.customer)
    explained = mine.explain_load(found, Purchase.customer)
    assert [each.path for each in explained.requests] == ["MisfitBuyers(PartitionKey='t',RowKey='buyer_001')"]


async def test_a_key_that_no_row_can_have(db: Database) -> None:
    """Leads to no entity; the others have theirs."""
    (bought,) = await fill(db, [True])
    items = [Item(tenant="t", purchase=number, id=1) for number in (0, -1, 5000)]

    explained = db.explain_load(items, Item.of)
    await db.load(items, Item.of)

    assert [each.of for each in items] == [bought, None, None]
    assert len(explained.requests) == 1


async def test_a_cache_keeps_the_others(db: Database) -> None:
    """A row that cannot be read is an error for those alone who ask for it, each time; it can be mended."""
    bought = await fill(db, [True, False, True])
    cache, errors = db.cached(Buyer, ttl=60), list[DecodeError]()

    await db.load(bought, Purchase.customer, cache=cache, misfits=errors.append)
    assert [each.customer and each.customer.id for each in bought] == [0, None, 2]
    with db.observe() as seen:
        assert (await cache.get(tenant="t", id=2)).id == 2
        with pytest.raises(DecodeError):
            await cache.get(tenant="t", id=1)
    assert len(errors) == len(seen.requests) == 1
    keys = [Buyer.key(tenant="t", id=number) for number in range(3)]
    by_key: dict[Key[Buyer], DecodeError | WrongKind] = {}
    assert [each and each.id for each in await cache.get_many(keys, misfits=by_key)] == [0, None, 2]
    assert [each and each.id for each in await db.get_many(keys, misfits=by_key)] == [0, None, 2]
    assert [*by_key] == [keys[1]]
    await db.replace(Buyer(tenant="t", id=1), if_match="*")
    assert (await cache.get(tenant="t", id=1)).id == 1


@given(
    fits=st.lists(st.booleans(), max_size=6),
    size=st.integers(1, 4),
    limit=st.none() | st.integers(1, 6),
    relation=st.sampled_from(["items", "customer"]),
)
async def test_a_query_gives_the_parents_before_it(
    fits: list[bool], size: int, limit: int | None, relation: str
) -> None:
    """
    However it is read: first the parents before the one whose row cannot be read, then the error, whose cursor leads on
    behind that parent; with misfits() all parents.
    """
    fits = [*fits, True]
    async with memory_database(Buyer, Purchase) as db:
        await fill(db, fits)
        query = db.select(Purchase).where(Purchase.tenant == "t").load(getattr(Purchase, relation))
        query = query if limit is None else query.limit(limit)
        expected: Seen = []
        for number, fit in enumerate(fits):
            if limit is None or sum(type(each) is int for each in expected) < limit:
                unfit = f"purchase_{number:03d}_000" if relation == "items" else f"buyer_{number:03d}"
                expected.append(number if fit else unfit)
        errors: list[DecodeError] = []

        for read in (streamed, iterated, paged):
            assert await read(query, size) == expected
        found = await query.misfits(errors.append).all()
        assert [each.id for each in found] == list(range(len(fits)))[:limit]
        assert len(errors) == fits[:limit].count(False)


async def test_a_limit_for_each_parent(db: Database) -> None:
    """Rows behind it are not read, so they are no errors; those before it do not count."""
    bought = await fill(db, [True, False, True])
    await spoil(db, Item(tenant="t", purchase=2, id=1))
    errors: list[DecodeError] = []

    await db.load(bought, Purchase.items.limit(1), misfits=errors.append)
    assert [[item.id for item in each.items] for each in bought] == [[0], [1], [0]]
    assert [error.key[1] for error in errors] == ["purchase_001_000"]


async def test_following_a_log_that_loads(db: Database) -> None:
    """The entities of the poll come first, without the one whose row cannot be read, which the error names."""
    noon, bought = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), await fill(db, [True, False, True])
    for number, each in enumerate(bought):
        assert each.buyer
        await db.insert(Step(tenant="t", at=noon + number * SECOND, buyer=each.buyer))
    query = db.select(Step).where(Step.tenant == "t").load(Step.customer)
    log = query.follow(lag=dt.timedelta(days=20_000), since=noon, pause=SECOND)

    assert [(await anext(log)).at.second for _ in range(2)] == [0, 2]
    with pytest.raises(DecodeError, match=r"Step\.customer of Step"):
        await anext(log)
