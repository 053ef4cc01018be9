"""Declaring relations and links: what is rejected, and what links are as fields."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from tableorm import (
    Database,
    DecodeError,
    EncodeError,
    Entity,
    InvalidInput,
    Key,
    Mapped,
    ModelError,
    field,
    from_dict,
    many,
    one,
    to_dict,
)
from tests.databases import database_fixture
from tests.rows import merge_row


class Person(Entity, table="Shop", partition_key="{id}", row_key="{kind}", abstract=True, discriminator="row_key"):
    id: Mapped[str]


class Customer(Person, kind="customer"):
    bills = many(lambda: Order, number="{id}", on_delete="keep")
    lost = many(lambda: Order, id="{id}", on_delete="keep")
    none = many(lambda: Order, shop="{no}", on_delete="keep")
    some = many(lambda: Order, note="{id}", on_delete="keep")


class Supplier(Person, kind="supplier"):
    pass


class Order(Entity, table="Shop", partition_key="{shop}", row_key="order_{number:06d}"):
    shop: Mapped[str] = field(default="all")
    number: Mapped[int] = field(default=1)
    note: Mapped[str | None] = field(default=None)
    buyer: Mapped[Key[Customer] | None] = field(default=None)
    maker: Mapped[Key[Person] | None] = field(default=None)

    customer = one(lambda: Customer, key="buyer")
    supplier = one(lambda: Supplier, key="buyer")
    noted = one(lambda: Customer, key="note")
    made_by = one(lambda: Person, key="maker")


db = database_fixture(Order)


KEY = Customer.key(id="a")


async def test_a_link_is_a_field(db: Database) -> None:
    """It is stored as the two halves of a key, read, changed, removed, and compared by the service."""
    await db.insert(Order(buyer=KEY))
    await db.insert(Order(number=2))
    order = await db.get(Order, shop="all", number=1)
    assert order.buyer == KEY
    row = await db.store.get("Shop", "all", "order_000001")
    assert (row["buyer_pk"], row["buyer_rk"]) == ("a", "customer")
    query = db.select(Order).where(Order.shop == "all")
    for condition, numbers in (
        (Order.buyer == KEY, [1]),
        (Order.buyer.in_([KEY, Customer.key(id="b")]), [1]),
        (Order.buyer.is_none(), [2]),
        (Order.buyer != Customer.key(id="b"), [1]),
    ):
        assert [each.number for each in await query.where(condition).all()] == numbers
    assert "buyer_pk eq 'a' and buyer_rk eq 'customer'" in str(query.where(Order.buyer == KEY).explain())
    order.buyer = None
    await db.save(order)
    assert (await db.get(Order, shop="all", number=1)).buyer is None
    # One that no store would take must not keep those of other orders from being loaded.
    for halves, problem in (({"buyer_pk": "a"}, "one half is missing"), ({"buyer_rk": "x/y"}, "no key that an entity")):
        await merge_row(db, "Shop", {"PartitionKey": "all", "RowKey": "order_000001", **halves})
        with pytest.raises(DecodeError, match=rf"Order.*buyer.*{problem}"):
            await db.get(Order, shop="all", number=1)


@pytest.mark.parametrize("wrong", [Order.key(shop="x", number=1), "a", Supplier.key(id="a"), 7])
def test_a_link_is_a_key_of_its_model(wrong: Any) -> None:
    """Whatever else is given to the constructor, set or compared with names model and field."""
    order = Order()
    tries: tuple[Callable[[], object], ...] = (
        lambda: Order(buyer=wrong),
        lambda: setattr(order, "buyer", wrong),
        lambda: Order.buyer == wrong,
    )
    for attempt in tries:
        with pytest.raises(EncodeError, match=r"Order\.buyer.*Key\[Customer\]|Order\.buyer.*is a key of"):
            attempt()
    with pytest.raises(EncodeError, match=r"is_none\(\)"):
        _ = Order.buyer == None  # noqa: E711
    assert Order(maker=Supplier.key(id="a")).maker == Supplier.key(id="a")


def test_json_has_both_halves() -> None:
    """A link comes back from JSON as the same key; schemas describe it."""
    order = Order(buyer=KEY)
    data = to_dict(order, "json")
    assert data["buyer"] == {"partition_key": "a", "row_key": "customer"}
    assert from_dict(Order, data) == order
    adapter = TypeAdapter(Order)
    assert adapter.validate_json(adapter.dump_json(order)) == order
    assert "Key_Customer_" in adapter.json_schema()["$defs"]
    for wrong in (
        {"partition_key": "a"},
        "a",
        {"partition_key": "a", "row_key": "/"},
        {"partition_key": 1, "row_key": ""},
    ):
        with pytest.raises(InvalidInput, match=r"Order\.buyer"):
            from_dict(Order, {"number": 1, "buyer": wrong})


async def test_a_link_leads_to_its_entity(db: Database) -> None:
    """Also to one of any class of an abstract base."""
    for person in (Customer(id="a"), Supplier(id="b")):
        await db.insert(person)
    orders = [Order(buyer=KEY, maker=Supplier.key(id="b")), Order(number=2, maker=KEY)]
    await db.load(orders, Order.customer)
    await db.load(orders, Order.made_by)
    assert [each.customer for each in orders] == [Customer(id="a"), None]
    assert [each.made_by for each in orders] == [Supplier(id="b"), Customer(id="a")]


@pytest.mark.parametrize(
    ("relation", "problem"),
    [
        (Customer.bills, r"Customer\.bills: number='\{id\}' is rejected: id is str, and number of Order is int"),
        (Customer.lost, r"Customer\.lost: Order has no field 'id'"),
        (Customer.none, r"Customer\.none: Customer has no field 'no'"),
        (
            Customer.some,
            r"Customer\.some: note of Order bound neither its keys.*declare an index that begins with note",
        ),
        (Order.supplier, r"Order\.supplier: Order\.buyer is a key of Customer, and the relation leads to Supplier"),
        (Order.noted, r"Order\.noted: Order\.note is no key; declare note: Mapped\[Key\[Customer\]"),
    ],
)
async def test_a_relation_that_does_not_fit_is_refused(db: Database, relation: Any, problem: str) -> None:
    """When it is first used, with the model, the field and what to do."""
    entity = relation.model(**({"id": "a"} if relation.model is Customer else {"number": 1}))
    with pytest.raises(ModelError, match=problem):
        await db.load(entity, relation)
    with pytest.raises(ModelError, match=problem):
        db.explain_load(entity, relation)


async def test_what_cannot_be_loaded_is_refused(db: Database) -> None:
    """No entities, entities of another model, no relation, and a path that does not go on."""
    call: Any = db.load
    for arguments, problem in (
        ((Order, Order.customer), "give an entity, or several"),
        ((Order(), Customer.bills), "is no Customer"),
        ((Order(), Order.number), "give a relation of the class"),
        ((Order(), Order.customer, Order.made_by), "leads to Customer, which has no relation"),
    ):
        with pytest.raises(ModelError, match=problem):
            await call(*arguments)


def test_a_wrong_declaration_is_refused() -> None:
    """When it is made."""
    many_of: Any = many
    one_of: Any = one
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: many_of(lambda: Order, on_delete="keep"), "needs fields of the other model"),
        (lambda: many_of(lambda: Order, shop="{id}", on_delete="drop"), "'refuse', 'cascade' or 'keep'"),
        (lambda: many_of(lambda: Order, shop="a_{id}", on_delete="keep"), r"shop='a_\{id\}'\) is rejected"),
        (lambda: many_of(3, shop="{id}", on_delete="keep"), "give a function that returns a model"),
        (lambda: one_of(lambda: Order), "needs either key="),
        (lambda: one_of(lambda: Order, key="buyer", shop="{id}"), "needs either key="),
    ]
    for declare, problem in wrong:
        with pytest.raises(ModelError, match=problem):
            declare()


class Asset(Entity, table="Assets", partition_key="{shop}", row_key="asset_{id}", abstract=True):
    shop: Mapped[str]
    id: Mapped[str]

    orders = many(lambda: Order, shop="{shop}", on_delete="keep")


@pytest.mark.parametrize("other", [one(lambda: Order, shop="{shop}"), None, 7])
def test_a_relation_hides_no_inherited_one(other: Any) -> None:
    """Since a load by the class of the base would show its own result under that name."""
    with pytest.raises(ModelError, match=r"Van\.orders hides an inherited relation"):

        class Van(Asset):  # pyright: ignore[reportUnusedClass]
            orders = other

    class Car(Asset):
        trips = many(lambda: Order, shop="{shop}", on_delete="keep")

    assert (str(Car.orders), str(Car.trips), str(Asset.orders)) == ("Car.orders", "Car.trips", "Asset.orders")
