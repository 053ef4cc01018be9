"""
Plans of known shapes: what is kept of one query gives another the very plan that it would have had without.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tableorm import (
    EncodeError,
    Entity,
    Expression,
    Mapped,
    ModelError,
    PropertyBag,
    RowKey,
    TemplateError,
    connect,
    field,
)
from tableorm.expressions import AllOf, AnyOf, Comparison, Field, Membership, NoneOf, PropertyComparison, SystemField
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import constant
from tableorm.queries.planning.alternatives import Alternatives
from tableorm.queries.planning.normalize import leaves
from tableorm.queries.planning.parameters import bind, parameterise, shape_of
from tableorm.queries.planning.plan import Point, QueryPlan
from tableorm.queries.planning.planner import planner_of
from tableorm.queries.planning.points import PointPlanner
from tableorm.queries.planning.target import QueryTarget
from tableorm.queries.query import start_query
from tests.queries.worlds import WORLDS, Column, World, conditions


class Order(Entity, table="Orders", partition_key="{shop}", row_key="{number:04d}_{code}"):
    shop: Mapped[str]
    number: Mapped[int]
    code: Mapped[str]
    note: Mapped[str | None] = field(default=None)
    amount: Mapped[int | None] = field(default=None)


class Family(Entity, table="Orders", partition_key="{shop}", abstract=True):
    shop: Mapped[str]


class Refund(Family, row_key="refund"): ...


class Discount(Family, row_key="discount"): ...


class Shouted(Entity, table="ShoutedOrders", partition_key="{shop}", row_key="{name:lower}"):
    shop: Mapped[str]
    name: Mapped[str]


def content(plan: QueryPlan) -> list[object]:
    """All of a plan, in a form that compares: conditions that are evaluated here, by their text."""
    requests: list[object] = [
        request
        if isinstance(request, Point)
        else (request.access, request.query, [str(each.condition) for each in request.client_filters])
        for request in plan.requests
    ]
    return [plan.access, plan.select, *requests]


def outcome(kinds: KindSet, where: list[Expression], **options: Any) -> list[object]:
    """What planning gives, or how it fails."""
    try:
        return content(planner_of(kinds).plan(where, allow_scan=True, **options))
    except (EncodeError, TemplateError) as error:
        return [type(error), str(error)]


def fresh(*models: Any) -> KindSet:
    """KindSet of which nothing is known."""
    return KindSet.of(models)


KNOWN = [KindSet.of(world.models) for world in WORLDS]
"""KindSet of each world, that remember what was planned for all examples before."""


def column_of(world: World, leaf: Expression) -> Column:
    """What a condition of a world compares."""
    name = leaf.property if isinstance(leaf, PropertyComparison) else None
    for column in world.columns:
        expression = column.expression
        if isinstance(leaf, (Comparison, Membership)) and isinstance(expression, Field) and expression is leaf.field:
            return column
        if isinstance(expression, SystemField) and expression.name == name:
            return column
    raise AssertionError(leaf)


def other_values(draw: st.DrawFn, world: World, where: list[Expression]) -> list[Expression]:
    """The same conditions with values drawn anew."""
    terms = parameterise(where)
    _, values = shape_of(where)
    # Values stand in the order of the conditions.
    slots = [
        leaf
        for term in terms
        for leaf in leaves(term)
        if isinstance(leaf, (Comparison, Membership, PropertyComparison))
    ]
    for at, leaf in enumerate(leaf for leaf in slots if not isinstance(leaf, Membership) or leaf.values):
        choice = column_of(world, leaf).values
        if isinstance(leaf, Membership):
            values[at] = tuple(draw(st.lists(choice, min_size=1, max_size=4)))
        elif isinstance(leaf, PropertyComparison):
            values[at] = constant(draw(choice)).value
        elif leaf.op is None:
            values[at] = draw(st.text("ab_^", max_size=2))
        else:
            values[at] = draw(choice)
    return [bind(term, values) for term in terms]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, list[Expression], list[Expression]]:
    """A world, conditions on it, and conditions of the same shape with other values."""
    number = draw(st.integers(0, len(WORLDS) - 1))
    world = WORLDS[number]
    where = [expression for expression, _ in draw(conditions(world))]
    return number, where, other_values(draw, world, where)


@given(pairs(), st.sampled_from([None, ("PartitionKey", "RowKey")]), st.integers(1, 3))
def test_a_known_shape_gives_the_plan_that_an_unknown_one_gives(
    pair: tuple[int, list[Expression], list[Expression]], select: tuple[str, ...] | None, parallel: int
) -> None:
    """For any models, conditions and values: requests, filters, what is evaluated here, and errors are equal."""
    number, first, second = pair
    event("same shape" if shape_of(first)[0] == shape_of(second)[0] else "other shape")
    for where in (first, second):
        known = outcome(KNOWN[number], where, select=select, parallel=parallel)
        assert known == outcome(fresh(*WORLDS[number].models), where, select=select, parallel=parallel)


SHOP = Order.shop == "a"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([Order.number == 7], [Order.number == -1]),
        ([Order.number > 7], [Order.number > -5]),
        ([Order.number > 7], [Order.number > 10**6]),
        ([Order.number < 7], [Order.number < 10**6]),
        ([Order.number > 3, Order.number < 7], [Order.number > 7, Order.number < 3]),
        ([Order.number.between(1, 9)], [Order.number.between(9, 9)]),
        ([Order.number.between(1, 9)], [Order.number.between(9, 1)]),
        ([Order.number == 7, Order.number == 7], [Order.number == 7, Order.number == 8]),
        ([Order.number == 7, Order.code == "x"], [Order.number == 7, Order.code == "x/^_\U0001f600"]),
        ([Order.number == 7, Order.code.startswith("x")], [Order.number == 7, Order.code.startswith("\uffff")]),
        ([Order.number.in_([1, 2])], [Order.number.in_([2, 1, 2, -1, 10**6])]),
        ([Order.number.in_([1, 2])], [Order.number.in_([])]),
        ([Order.number.in_([1, 2]) | (Order.amount == 1)], [Order.number.in_([]) | (Order.amount == 1)]),
        (
            [Order.number.in_([1, 2]), Order.code.in_(["a"])],
            [Order.number.in_(range(50)), Order.code.in_(map(str, range(50)))],
        ),
        ([(Order.number < 3) | (Order.number > 7)], [(Order.number < 7) | (Order.number > 3)]),
        ([(Order.number < 3) | (Order.number > 7)], [(Order.number < -3) | (Order.number > 7)]),
        ([(Order.number < 3) | (Order.amount > 7)], [(Order.number < -3) | (Order.amount > 7)]),
        ([~(Order.amount > 7)], [~(Order.amount > 2**40)]),
        ([~(Order.number.between(3, 7))], [~(Order.number.between(-3, 10**6))]),
        ([Order.note == "x"], [Order.note == "x" * 7_000]),
        ([Order.note.in_(["x"]), Order.amount > 1], [Order.note.in_(["é" * 900, "y"]), Order.amount > 1]),
        ([Order.number != 7], [Order.number != 10**6]),
        ([RowKey > "0001"], [RowKey > "9999_"]),
        ([RowKey >= "0001", Order.number < 7], [RowKey >= "0009", Order.number < 7]),
    ],
)
def test_values_that_take_another_way(one: list[Expression], two: list[Expression]) -> None:
    """What no key can hold, what contradicts or overlaps, what is too long or too many: whichever was planned first."""
    for first, second in ((one, two), (two, one)):
        kinds = fresh(Order)
        planner_of(kinds).plan([SHOP, *first], allow_scan=True)
        assert outcome(kinds, [SHOP, *second]) == outcome(fresh(Order), [SHOP, *second])


def test_one_shape_is_kept_once() -> None:
    """However many values it is planned with; conditions in another order are another shape."""
    kinds = fresh(Order)
    for number in range(50):
        planner_of(kinds).plan([SHOP, Order.number == number, Order.amount > number])
    assert len(planner_of(kinds).plans) == 1
    planner_of(kinds).plan([Order.number == 1, SHOP, Order.amount > 1])
    assert len(planner_of(kinds).plans) == 2


def test_what_keys_leave_is_prepared_once() -> None:
    """The condition that the keys of a region do not imply: other values do not make it anew."""
    alternatives = Alternatives(QueryTarget(fresh(Order)), parameterise([SHOP, Order.amount == 1]))
    (one,), (two,) = [alternatives.find(values)[0].residuals for values in (["a", 1], ["b", 2])]

    assert one.predicate is two.predicate


@pytest.mark.parametrize(
    ("where", "many"),
    [
        ([Order.number == 7, SHOP, Order.code == "x"], 0),
        ([SHOP, Order.number.in_([7, 8]), Order.code.in_(["x"])], 2),
        ([SHOP, Order.number == 7], None),
        ([SHOP, Order.number == 7, Order.number == 8], None),
        ([SHOP, Order.number == 7, Order.code == "x", Order.amount == 1], None),
        ([SHOP, Order.number == 7, Order.amount == 1], None),
        ([SHOP, Order.number > 7, Order.code == "x"], None),
        ([SHOP, ~Order.number.in_([7, 8]), Order.code == "x"], None),
        ([SHOP, Order.number == 7, Order.code.startswith("x")], None),
    ],
    ids=str,
)
def test_points_need_no_regions(where: list[Expression], many: int | None) -> None:
    """Values that make exactly the keys are written into them; any other conditions are regions first."""
    found = PointPlanner.of(QueryTarget(fresh(Order)), parameterise(where))

    assert (None if found is None else len(found.many)) == many


def test_a_part_of_a_value_makes_no_point() -> None:
    """A key that holds a part of it is that of other values too; so is one of several kinds."""
    where = [Order.shop == "a", Order.number == 7, Order.code == "x"]
    for conditions_on_several in (where, []):
        assert PointPlanner.of(QueryTarget(fresh(Order, Refund)), parameterise(conditions_on_several)) is None
    shouted = [Shouted.shop == "a", Shouted.name == "x"]
    assert PointPlanner.of(QueryTarget(fresh(Shouted)), parameterise(shouted)) is None


def test_numbers_of_any_size_are_of_one_shape() -> None:
    """What is compared with a number beyond Int32 is planned otherwise only where the comparison is negated."""
    kinds = fresh(Order)
    for number in (7, 2**40):
        planner_of(kinds).plan([SHOP, (Order.amount > number) | (Order.note == "x")])
    assert len(planner_of(kinds).plans) == 1
    for number in (7, 2**40):
        planner_of(kinds).plan([SHOP, ~(Order.amount > number)])
    assert len(planner_of(kinds).plans) == 3


def test_conditions_on_a_base_are_kept() -> None:
    """Where every kind is a class of that base, none that is declared later changes what the condition means."""
    kinds = fresh(Refund, Discount)
    planner_of(kinds).plan([Family.shop == "a"])
    assert len(planner_of(kinds).plans) == 1
    bags = fresh(Refund, PropertyBag)
    planner_of(bags).plan([Family.shop == "a"], allow_scan=True)
    assert len(planner_of(bags).plans) == 0


async def test_a_database_knows_shapes_of_any_models() -> None:
    """Of one, of several, of an abstract base, of rows of any kind: selects of the same have the same kinds."""
    async with connect("local::memory:") as db:
        await db.create_tables(Order)
        for models in ((Order,), (Order, PropertyBag), (Family,), (Family, Order)):
            shop = Family.shop if models == (Family,) else Order.shop
            queries: list[Any] = [db.select(*models).where(shop == name) for name in ("a", "b")]
            one, two = [(await start_query(query)).plan.target.kinds for query in queries]
            assert one is two and len(planner_of(one).plans) == 1
        raw = [db.select_raw("Orders").where("PartitionKey eq {}", name) for name in ("a", "b")]
        one, two = [(await start_query(query)).plan.target.kinds for query in raw]
        assert one is two and len(planner_of(one).plans) == 1


def test_plans_are_kept_up_to_a_weight() -> None:
    """One that would exceed it begins anew, and one of more than a tenth of it is not kept."""
    plans = type(planner_of(fresh(Order)).plans)(100)
    shapes = [shape_of([SHOP] * (1 + number))[0] for number in range(11)]
    counts: list[int] = []
    for shape, weight in zip(shapes, [11, *[10] * 10], strict=True):
        plans.keep(shape, cast("Any", None), weight)
        counts.append(len(plans))
    plans.keep(shapes[0], cast("Any", None), 1)
    assert counts == [*range(11)]
    assert len(plans) == 1
    for shape in shapes[1:10]:
        plans.keep(shape, cast("Any", None), 10)
    assert len(plans) == 10


def test_what_is_kept_is_bounded() -> None:
    """Shapes without end push each other out; one that is very large is not kept at all."""
    kinds = fresh(Order)
    counts: list[int] = []
    for number in range(1_500):
        fields = [Order.note == "x" if number >> bit & 1 else Order.amount == 1 for bit in range(12)]
        planner_of(kinds).plan([SHOP, *fields])
        counts.append(len(planner_of(kinds).plans))
    assert max(counts) < 1_000

    large = AnyOf(tuple((Order.number == number) & (Order.amount == 1) for number in range(1_000)))
    before = len(planner_of(kinds).plans)
    assert len(planner_of(kinds).plan([SHOP, large]).requests) == 1_000
    assert len(planner_of(kinds).plans) == before


def test_kinds_that_are_declared_later_count() -> None:
    """A condition on an abstract base that is none of the kinds is about whatever classes that base has by then."""

    class Shape(Entity, table="Orders", partition_key="{shop}", abstract=True):
        shop: Mapped[str]
        edges: Mapped[int | None] = field(default=None)

    class Square(Shape, row_key="square"): ...

    kinds = fresh(PropertyBag, Order)
    before = content(planner_of(kinds).plan([SHOP, Shape.edges > 3]))

    class Circle(Shape, row_key="circle"):
        edges: Mapped[int | None] = field(default=None, name="Edges")

    after = content(planner_of(kinds).plan([SHOP, Shape.edges > 3]))
    assert (Square.__name__, Circle.__name__) == ("Square", "Circle")
    assert before != after
    assert after == content(planner_of(fresh(PropertyBag, Order)).plan([SHOP, Shape.edges > 3]))


def test_moments_are_written_anew() -> None:
    """A partition of a day and a row of its moment, from one value."""

    class Visit(Entity, table="Visits", partition_key="{at:%Y%m%d}", row_key="{at:ticks}"):
        at: Mapped[dt.datetime]

    kinds = fresh(Visit)
    days = [dt.datetime(2024, 2, day, 12, tzinfo=dt.UTC) for day in (1, 2, 3)]
    found = [planner_of(kinds).plan([Visit.at == day]).requests for day in days]

    assert [point.partition_key for (point,) in found if isinstance(point, Point)] == [
        "20240201",
        "20240202",
        "20240203",
    ]
    many = planner_of(kinds).plan([Visit.at.in_(days)])
    assert many.requests == tuple(point for (point,) in found)


WRAPPED: dict[str, Callable[[Expression], Expression]] = {
    "~": NoneOf,
    "|": lambda each: AnyOf((each,)),
    "&": lambda each: AllOf((each,)),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_conditions_nest_up_to_fifty_levels(kind: str) -> None:
    """The comparison in the middle is one of them."""
    wrap = WRAPPED[kind]
    condition: Expression = Order.number == 7
    for _ in range(49):
        condition = wrap(condition)

    assert shape_of([condition])[1] == [7]
    with pytest.raises(ModelError, match="nests deeper than 50 levels"):
        shape_of([wrap(condition)])


def test_only_conditions_have_a_shape() -> None:
    """Anything else is refused, and shown."""
    with pytest.raises(TypeError, match="'age > 3' is not a condition"):
        shape_of(cast("Any", ["age > 3"]))


async def test_all_of_some_conditions_after_any_of_them() -> None:
    """Conditions that differ only in `&` and `|` are of two shapes: neither query gets the plan of the other."""
    async with connect("local::memory:") as db:
        await db.create_tables(Order)
        for number in range(4):
            note, amount = "yes" if number % 2 else "no", number // 2
            await db.insert(Order(shop="a", number=number, code="c", note=note, amount=amount))
        orders = db.select(Order).where(Order.shop == "a")
        either = await orders.where((Order.note == "yes") | (Order.amount == 1)).all()
        both = await orders.where((Order.note == "yes") & (Order.amount == 1)).all()

    assert ([each.number for each in either], [each.number for each in both]) == ([1, 2, 3], [3])
