"""What those write who know another mapper, and what they are told to write instead."""

from collections.abc import Callable
from typing import Any

import pytest

from tableorm import Database, Entity, EntityNotFound, Mapped, ModelError, TableOrmError, connect, field
from tableorm.advice import measure_table
from tests.databases import database_fixture


class Order(Entity, table="MistakenOrders", partition_key="{shop}", row_key="{number:06d}"):
    shop: Mapped[str]
    number: Mapped[int]
    total: Mapped[int | None] = field(default=None)
    note: Mapped[str] = field(default="")
    paid: Mapped[bool] = field(default=False)
    lines: Mapped[list[int]] = field(factory=list)


ANY: Any = Order


db = database_fixture(Order)


USES: list[tuple[Callable[[Any], object], str]] = [
    (bool, r"has no truth value; write await query.exists\(\)"),
    (list, r"write async for entity in query, or await query.all\(\)"),
    (len, r"write await query.count\(\)"),
    (lambda query: query[0], r"has no item \[0\]; write await query.first\(\)"),
    (lambda query: query[:3], r"query.limit\(count\)"),
    (lambda query: Order(shop="a", number=1) in query, r"write await db.exists\(Model.key\(...\)\)"),
]


@pytest.mark.parametrize("kind", ["select", "select_raw", "union"])
@pytest.mark.parametrize(("use", "message"), USES)
def test_a_query_is_no_list(use: Callable[[Any], object], message: str, kind: str) -> None:
    """Each use as one is rejected, and says what a query has instead."""
    db = connect("local::memory:")
    queries: dict[str, Any] = {
        "select": db.select(Order),
        "select_raw": db.select_raw("MistakenOrders"),
        "union": db.union(),
    }

    with pytest.raises(ModelError, match=message):
        use(queries[kind])


async def test_a_query_is_not_awaited(db: Database) -> None:
    """One of its methods is."""
    query: Any = db.select(Order).where(Order.shop == "a")

    with pytest.raises(ModelError, match=r"select\(Order\).where\(Order.shop == 'a'\).*write await query.all\(\)"):
        await query


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("filter", r"write query.where\(Model.field == value\)"),
        ("filter_by", r"write query.where"),
        ("order_by", "sorted by PartitionKey and RowKey; sort by other fields in Python"),
        ("offset", r"write await query.page\(size, cursor\)"),
        ("scalars", r"write await query.all\(\)"),
        ("join", r"the service has no joins; .*get_many"),
        ("update", r"await db.save\(entity\)"),
        ("no_such", "has no attribute 'no_such'$"),
    ],
)
def test_a_method_of_other_mappers_has_another_name_here(name: str, instead: str) -> None:
    """The error of Python, with the name; `hasattr` is False."""
    query = connect("local::memory:").select(Order)

    assert not hasattr(query, name)
    with pytest.raises(AttributeError, match=instead):
        getattr(query, name)


CONDITIONS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ANY.shop == "x" & ANY.total > 3, ModelError, r"parentheses around each comparison: \(a == 1\)"),
    (lambda: "x" & (ANY.total > 3), ModelError, "'x' is not a condition; put parentheses"),
    (lambda: ~ANY.paid, ModelError, r"write Order.paid == False, or Order.paid.is_none\(\)"),
    (lambda: not ANY.paid, ModelError, "Order.paid is not a condition; compare it, as in Order.paid == value"),
    (lambda: ANY.total and ANY.total > 3, ModelError, "Order.total is not a condition"),
    (lambda: ANY.shop == "x" and ANY.total > 3, TypeError, "combine conditions with & | ~"),
    (lambda: 1 < ANY.total < 5, TypeError, r"x.between\(a, b\)"),
    (lambda: "x" in ANY.note, ModelError, "write Order.note == 'x', or filter in Python"),
    (lambda: ANY.note.like("x%"), AttributeError, "Order.note has no 'like'; a condition is made by .*startswith"),
    (lambda: ANY.total == None, ModelError, r"use Order.total.is_none\(\)"),  # noqa: E711
    (lambda: ANY.total > ANY.number, ModelError, "constant only"),
    (lambda: ANY.total == 1.5, TableOrmError, r"Order.total: 1.5 .* is a float, not an int; the field is int"),
    (lambda: ANY.total == True, TableOrmError, "is a bool, not an int"),  # noqa: E712
    (lambda: ANY.total.between(1, "x"), TableOrmError, "Order.total: 'x' in the condition Order.total <= 'x'"),
    (lambda: ANY.lines == [1], TableOrmError, "stored as JSON cannot be compared"),
]


@pytest.mark.parametrize(("make", "error", "message"), CONDITIONS)
def test_a_wrong_condition_is_refused_where_it_is_written(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    """It names the field and the value, and what to write."""
    with pytest.raises(error, match=message):
        make()


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda db: db.get(Order, "a", 1),
        r"takes fields by name: get\(Order, shop='a', number=1\)",
    ),
    (lambda db: db.get_or_none(Order, "a"), r"takes fields by name: get_or_none\(Order, field=value, ...\)"),
    (lambda db: db.get(Order(shop="a", number=1)), r"got the entity Order\(shop='a', number=1.*refresh\(\)"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
async def test_key_fields_are_given_by_name(db: Database, call: Callable[[Any], Any], message: str) -> None:
    """What was given in their place is shown under their names."""
    with pytest.raises(ModelError, match=message):
        await call(db)


@pytest.mark.parametrize("given", [(), ("Order",), (ANY.total,), (Order(shop="a", number=1),)])
def test_select_takes_models(given: tuple[Any, ...]) -> None:
    """Neither their names, nor their fields or entities."""
    select: Any = connect("local::memory:").select

    with pytest.raises(ModelError, match=r"takes one to four models, or one index; fields are chosen by .only\(\)"):
        select(*given)


class Untold(Order, kind=None):
    """The same rows, of another program."""


async def test_rows_without_a_kind(db: Database) -> None:
    """The query of a model with a kind finds none of them; `explain`, `one` and the statistics of the table say why."""
    await db.insert(Untold(shop="a", number=1))
    query, untold = db.select(Order).where(Order.shop == "a"), db.select(Untold).where(Untold.shop == "a")
    why = "rows without EntityType need a model with kind=None"

    assert await query.all() == []
    with pytest.raises(EntityNotFound, match=f"finds nothing of its kind; {why}"):
        await query.one()
    assert f"  only rows of kind 'Order'; {why}\n" in str(query.explain())
    assert query.explain().to_dict()["kinds"] == ("Order",)
    assert untold.explain().kinds is None and "kind=None" not in str(untold.explain())
    assert (await untold.one()).number == 1
    with pytest.raises(EntityNotFound, match=r"finds nothing$"):
        await untold.where(Untold.number == 2).one()
    assert "(none): no EntityType; only models with kind=None find these rows" in str(
        await measure_table(db, "MistakenOrders")
    )
