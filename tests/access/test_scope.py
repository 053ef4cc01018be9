"""
Scopes: key fields that have one value, filled in everywhere, and refused with another.
"""

import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    AccessDenied,
    Database,
    EncodeError,
    Entity,
    EntityNotFound,
    Index,
    IndexList,
    InvalidInput,
    Mapped,
    ModelError,
    NotSupported,
    PartitionKey,
    PropertyBag,
    Scope,
    TransactionFailed,
    connect,
    field,
)
from tests.databases import memory_database

OTHER = r"tenant is 'other', and this scope is of tenant='acme'"


class Order(Entity, table="Shop", partition_key="{tenant}", row_key="order_{number:06d}"):
    tenant: Mapped[str | None] = field(default=None)
    number: Mapped[int]
    total: Mapped[float] = field(default=0.0)


class Customer(Entity, table="Shop", partition_key="{tenant}", row_key="customer_{id}"):
    tenant: Mapped[str]
    id: Mapped[str]


class Visit(Entity, table="Visits", partition_key="{tenant}_{page}", row_key="{n:06d}"):
    tenant: Mapped[str]
    page: Mapped[str]
    n: Mapped[int]


class Party(Entity, table="Parties", partition_key="{country}", row_key="{kind}_{tenant}_{id}", abstract=True,
            discriminator="row_key"):  # fmt: skip
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[str]


class Buyer(Party, kind="BUYER"):
    pass


class Seller(Party, kind="SELLER"):
    pass


class Folded(Entity, table="Folded", partition_key="{tenant:lower}", row_key="{n:06d}"):
    tenant: Mapped[str]
    n: Mapped[int]


class Plain(Entity, table="Plain", partition_key="{id}", row_key="x"):
    id: Mapped[str]
    tenant: Mapped[str] = field(default="")


class Daily(Entity, table="Daily", partition_key="{tenant}_{day:%Y%m%d}", row_key="{n:06d}"):
    tenant: Mapped[str]
    day: Mapped[dt.date]
    n: Mapped[int]


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    """Orders, customers and visits of two tenants."""
    async with connect(f"local:{tmp_path / 'shop.tables'}") as db:
        await db.create_tables(Order, Visit, Buyer)
        for tenant in ("acme", "other"):
            for number in (1, 2):
                await db.insert(Order(tenant=tenant, number=number))
                await db.insert(Visit(tenant=tenant, page="home", n=number))
            await db.insert(Customer(tenant=tenant, id="c"))
            await db.insert(Buyer(country="SE", tenant=tenant, id="b"))
            await db.insert(Seller(country="SE", tenant=tenant, id="s"))
        yield db


@pytest.fixture
def mine(db: Database) -> Scope:
    return db.scope(tenant="acme")


async def test_keys_are_filled(mine: Scope) -> None:
    """Points by fields need the others alone; given in full they are as good; a missing row is named in full."""
    assert (await mine.get(Order, number=1)).tenant == "acme"
    assert (await mine.get(Order, tenant="acme", number=1)).number == 1
    assert await mine.exists(Customer, id="c")
    assert await mine.get_or_none(Order, number=9) is None
    with pytest.raises(EntityNotFound, match=r"there is no Order \('acme', 'order_000009'\)"):
        await mine.get(Order, number=9)
    assert await mine.get_many([Order.key(tenant="acme", number=2)]) == [await mine.get(Order, number=2)]


async def test_new_entities_are_filled(db: Database, mine: Scope) -> None:
    """`new` makes them; a field that is None gets its value on insert and upsert, in transactions and bulk too."""
    order = mine.new(Order, number=10)
    await mine.insert(order)
    await mine.insert(Order(number=11))
    await mine.upsert(Order(number=12))
    async with mine.transaction() as tx:
        tx.insert(Order(number=13))
        tx.upsert(Order(number=14))
    async with mine.bulk() as bulk:
        await bulk.insert(Order(number=15))
        await bulk.upsert(Order(number=16))

    found = await db.select(Order).where(Order.tenant == "acme", Order.number >= 10).all()
    assert [each.number for each in found] == list(range(10, 17))
    with pytest.raises(AccessDenied, match=OTHER):
        mine.new(Order, tenant="other", number=1)


class Parcel(Entity, table="Rows", partition_key="{tenant}", row_key="parcel_{id}"):
    tenant: Mapped[str]
    id: Mapped[str] = field(validator=attrs.validators.max_len(3))
    weight: Mapped[int] = field(default=1, validator=attrs.validators.gt(0))


def test_values_of_new_entities(mine: Scope) -> None:
    """What validators refuse is said with model and field, all of it; so is a name that does not exist."""
    with pytest.raises(InvalidInput, match=r"Parcel.weight: -1 is rejected: 'weight' must be > 0") as caught:
        mine.new(Parcel, id="abcd", weight=-1)
    assert [fault.path for fault in caught.value.faults] == [("id",), ("weight",)]
    with pytest.raises(ModelError, match="Parcel has no field 'wight'"):
        mine.new(Parcel, id="a", wight=1)


async def test_queries_are_narrowed(db: Database, mine: Scope) -> None:
    """Whatever the query: its plan asks for the scope's keys, and a scan of one partition needs no leave."""
    q = mine.select(Order)
    assert "$filter=PartitionKey eq 'acme' and RowKey ge 'order_'" in str(q.explain())
    assert [(each.tenant, each.number) for each in await q.all()] == [("acme", 1), ("acme", 2)]
    assert [type(each) for each in await mine.select(Order, Customer).all()] == [Customer, Order, Order]
    assert {each.tenant for part in mine.select(Visit).allow_scan().split(3) for each in await part.all()} == {"acme"}
    people = await mine.select(Party).where(Party.country == "SE").all()
    assert [(type(each), each.tenant) for each in people] == [(Buyer, "acme"), (Seller, "acme")]
    assert (await mine.select(Order).where(Order.number > 1).delete()).written == 1
    assert await db.select(Order).allow_scan().count() == 3


async def test_an_entity_does_not_leave_its_scope(mine: Scope) -> None:
    """A changed key field is rejected, and a copy of it under another key."""
    order = await mine.get(Order, number=1)
    with pytest.raises(AccessDenied, match=OTHER):
        await mine.insert(order.evolve(tenant="other"))
    order.tenant = "other"
    with pytest.raises(EncodeError, match="is a new value of a key field"):
        await mine.save(order)


async def test_moves_stay_in_the_scope(mine: Scope) -> None:
    """An entity is moved within its partition; another value of the scope's field is rejected."""
    order = await mine.get(Order, number=1)
    await mine.move(order, number=5)
    async with mine.transaction() as tx:
        tx.move(order, number=6)
    assert [each.number for each in await mine.select(Order).all()] == [2, 6]
    assert mine.explain_write("move", order, number=7).cost == 1
    with pytest.raises(AccessDenied, match=OTHER):
        await mine.move(order, tenant="other")
    with pytest.raises(AccessDenied, match=OTHER):
        mine.explain_write("move", order, tenant="other")
    with pytest.raises(AccessDenied, match=OTHER):
        async with mine.transaction() as tx:
            tx.move(order, tenant="other")


@pytest.mark.parametrize("verb", ["insert", "upsert"])
async def test_what_the_scope_fills_in_is_explained(mine: Scope, verb: Literal["insert", "upsert"]) -> None:
    """As the verb does it; but the entity stays as it is."""
    new = Order(number=9)
    (step,) = mine.explain_write(verb, new).steps
    assert "'acme'" in step.path or b'"acme"' in (step.body or b"")
    assert new.tenant is None


async def test_everything_else_works_in_it(mine: Scope) -> None:
    """Modify, run_transaction, a transaction that reads, merges and deletes; statistics are the database's."""

    def more(order: Order) -> None:
        order.total += 1

    await mine.modify(Order, more, number=1)
    async with mine.transaction() as tx:
        order = await tx.get(Order, number=1)
        order.total += 1
        tx.save(order)
        await tx.modify(Order, more, number=2)
        tx.delete(Customer.key(tenant="acme", id="c"), if_match="*")

    async def again(tx: Any) -> None:
        await tx.modify(Order, more, number=1)

    await mine.run_transaction(again)
    assert [each.total for each in await mine.select(Order).all()] == [3.0, 1.0]
    assert not await mine.exists(Customer, id="c")
    with pytest.raises(TransactionFailed, match="operation 0: insert of Order"):
        async with mine.transaction() as tx:
            tx.insert(Order(number=1))
    assert await mine.tables() == ["Parties", "Shop", "Visits"]
    await mine.ping()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Plain, "'tenant' is not a key field of it; its key templates are '{id}' and 'x'"),
        (Folded, "'tenant' is not held by its keys in full, so that another value may have the same keys"),
    ],
)
async def test_models_that_cannot_be_scoped(mine: Scope, model: type[Any], message: str) -> None:
    """Keys that do not tell the field are rejected by name, before a request."""
    fields: dict[str, Any] = {"id": "x"} if model is Plain else {"n": 1}
    with pytest.raises(ModelError, match=message):
        await mine.get(model, **fields)
    with pytest.raises(ModelError, match=message):
        mine.select(model)
    with pytest.raises(ModelError, match=message):
        await mine.insert(model(tenant="acme", **fields))


async def test_rows_without_a_model(db: Database, mine: Scope) -> None:
    """They need a model of their table, whose keys tell the scope; then bags are read and written as entities are."""
    with pytest.raises(ModelError, match=r"rows of table Shop without a model .*: db.scope\(Model, tenant='acme'\)"):
        mine.select_raw("Shop")
    with pytest.raises(ModelError, match="rows of table Shop without a model"):
        await mine.insert(PropertyBag("Shop", "acme", "x", {}))
    with pytest.raises(ModelError, match="rows of table Shop without a model"):
        mine.select(Order, PropertyBag)
    raw = db.scope(Order, Visit, tenant="acme")
    assert [bag.row_key for bag in await raw.select_raw("Shop").all()] == ["customer_c", "order_000001", "order_000002"]
    assert await raw.select_raw("Shop").where("PartitionKey eq {}", "other").all() == []
    assert [type(each) for each in await raw.select(Order, PropertyBag).all()] == [PropertyBag, Order, Order]
    assert [bag.partition_key for bag in await raw.select_raw("Visits").allow_scan().all()] == ["acme_home"] * 2
    await raw.insert(PropertyBag("shop", "acme", "x", {"A": 1}))
    assert (await raw.get(PropertyBag.key("Shop", "acme", "x")))["A"] == 1
    for call in (
        raw.get(PropertyBag.key("Shop", "other", "order_000001")),
        raw.insert(PropertyBag("Shop", "other", "x", {})),
        raw.get(PropertyBag.key("Visits", "acmes_home", "000001")),
    ):
        with pytest.raises(AccessDenied, match="is not of the scope tenant='acme'"):
            await call
    assert (await raw.select_raw("Shop").where("A eq 1").delete()).written == 1
    with pytest.raises(ModelError, match=r"scope\(Daily, tenant='acme'\): no range of keys in table Daily is just"):
        db.scope(Daily, tenant="acme")


async def test_conditions_on_keys_are_joined(mine: Scope) -> None:
    """A condition of the query on stored keys narrows further, and does not widen."""
    assert await mine.select(Order).where(PartitionKey == "other").all() == []
    assert len(await mine.select(Order).where((Order.number == 1) | (PartitionKey == "other")).all()) == 1


async def test_what_concerns_whole_tables(mine: Scope) -> None:
    """A token of a whole table is rejected; so is to open or close the view."""
    with pytest.raises(ModelError, match=r"grant\(Shop\) is rejected in the scope of tenant='acme'"):
        await mine.grant("Shop", "r", dt.timedelta(hours=1))
    for call in (mine.open(), mine.close()):
        with pytest.raises(NotSupported, match="a scope is a view of an open database"):
            await call
    await mine.create_tables(Order)


async def test_scopes_in_scopes(db: Database, mine: Scope) -> None:
    """More fields narrow it further; the same field has the same value; no field is none."""
    home = mine.scope(page="home")
    assert await home.exists(Visit, n=1)
    assert [each.n for each in await home.select(Visit).all()] == [1, 2]
    assert repr(home) == "<scope tenant='acme', page='home'>"
    with pytest.raises(AccessDenied, match=r"scope\(tenant='other'\): this scope is of tenant='acme'"):
        mine.scope(tenant="other")
    with pytest.raises(ModelError, match="give the key fields and their values"):
        db.scope()
    with pytest.raises(ModelError, match=r"scope\(tenant=None\) is rejected: a key field has a value"):
        db.scope(tenant=None)


async def test_with_a_token(db: Database, tmp_path: Path) -> None:
    """A grant of the scope is for its rows; who holds it works in the same scope."""
    token = await db.scope(tenant="acme").grant(Order, "rau", dt.timedelta(hours=1))
    assert "&spk=acme&epk=acme&" in token
    async with connect(f"local:{tmp_path / 'shop.tables'}", sas=token) as theirs:
        mine = theirs.scope(tenant="acme")
        await mine.insert(Order(number=7))
        assert len(await mine.select(Order, Customer).all()) == 4
        with pytest.raises(AccessDenied, match="is not in the range of keys"):
            await theirs.scope(tenant="other").get(Order, number=1)
        with pytest.raises(AccessDenied, match="delete an entity needs 'd'"):
            await mine.delete(Order, number=7, if_match="*")


async def test_a_closed_database(tmp_path: Path) -> None:
    """The scope ends with its database."""
    async with connect(f"local:{tmp_path}/a.tables") as db:
        mine = db.scope(tenant="acme")
        await mine.create_tables(Order)
    with pytest.raises(NotSupported, match="the database is closed"):
        await mine.get(Order, number=1)


class Account(Entity, table="Accounts", partition_key="{tenant}", row_key="account_{id}"):
    tenant: Mapped[str]
    id: Mapped[str]
    mail: Mapped[str | None]

    by_mail = Index(row_key="mail_{mail}", unique=True)
    by_any = IndexList(row_key="any_{mail}")


async def test_indexes_are_scoped(db: Database) -> None:
    """Their keys are filled, their queries narrowed, and writes keep them, as without a scope."""
    await db.create_tables(Account)
    mine = db.scope(tenant="acme")
    for tenant in ("acme", "other"):
        await db.insert(Account(tenant=tenant, id="1", mail="a"))
    await mine.insert(mine.new(Account, id="2", mail="b"))

    assert (await mine.get(Account.by_mail, mail="a")).tenant == "acme"
    assert [each.id for each in await mine.select(Account.by_mail).all()] == ["1", "2"]
    assert [each.id for each in await mine.lookup(Account.by_any, mail="b")] == ["2"]
    assert (await mine.lookup(Account.by_any, mail="a"))[0].tenant == "acme"
    found = await mine.get(Account.by_mail, mail="b")
    found.mail = "c"
    await mine.save(found)
    assert (await mine.get(Account.by_mail, mail="c")).id == "2"
    with pytest.raises(AccessDenied, match=OTHER):
        await mine.get(Account.by_mail, tenant="other", mail="a")
    with pytest.raises(EntityNotFound):
        await mine.get(Account.by_mail, mail="b")


names = st.text(st.sampled_from("ab_-^ é\uffff\U00010000"), max_size=3)


@given(st.lists(st.tuples(names, names), max_size=8), names)
async def test_a_scope_shows_what_is_its_own(places: list[tuple[str, str]], tenant: str) -> None:
    """Of tenants whose names begin alike, or hold separators, each sees its rows: by model, and without."""
    async with memory_database(Visit) as db:
        for owner, page in set(places):
            await db.insert(Visit(tenant=owner, page=page, n=1))
        mine = db.scope(Visit, tenant=tenant)

        expected = {page for owner, page in places if owner == tenant}
        assert {each.page for each in await mine.select(Visit).allow_scan().all()} == expected
        assert len(await mine.select_raw("Visits").allow_scan().all()) == len(expected)


@pytest.mark.parametrize(
    ("row_key", "properties"),
    [
        ("~o_abc", {"EntityType": "#_decision"}),
        ("~o_abc", {"State": "committed"}),
        ("order_000009", {"EntityType": "Order#_tentative"}),
        ("order_000009", {"EntityType": "Order#_forward:2"}),
    ],
)
async def test_no_marker_row_is_forged(db: Database, row_key: str, properties: dict[str, str]) -> None:
    """A scope writes no marker row: who carries out what it says reaches rows of others."""
    acme = db.scope(Order, tenant="acme")
    bag = PropertyBag("Shop", "acme", row_key, dict(properties))

    for verb in ("insert", "upsert"):
        with pytest.raises(ModelError, match="is rejected in the scope of tenant='acme': it is a marker row"):
            await getattr(acme, verb)(bag)
    async with acme.transaction() as tx:
        with pytest.raises(ModelError, match="it is a marker row"):
            tx.insert(bag)
