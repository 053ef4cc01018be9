"""
Plans of known shapes: what is kept of one query gives another the very plan that it would have had without.
"""

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tableorm import EncodeError, Entity, Expression, Mapped, PropertyBag, TemplateError, field
from tableorm.expressions import AnyOf, Comparison, Field, Membership, PropertyComparison, SystemField
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import constant
from tableorm.queries.planning.normalize import leaves
from tableorm.queries.planning.parameters import bind, parameterise, shape_of
from tableorm.queries.planning.plan import Point, QueryPlan
from tableorm.queries.planning.planner import planner_of
from tableorm.queries.query import start_query
from tests.databases import memory_database
from tests.queries.spread_worlds import SPREAD_WORLDS
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


MANY = WORLDS + SPREAD_WORLDS
KNOWN = [KindSet.of(world.models) for world in MANY]
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
    number = draw(st.integers(0, len(MANY) - 1))
    world = MANY[number]
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
        assert known == outcome(fresh(*MANY[number].models), where, select=select, parallel=parallel)


SHOP = Order.shop == "a"


async def test_a_database_knows_shapes_of_any_models() -> None:
    """Of one, of several, of an abstract base, of rows of any kind: selects of the same have the same kinds."""
    async with memory_database(Order) as db:
        for models in ((Order,), (Order, PropertyBag), (Family,), (Family, Order)):
            shop = Family.shop if models == (Family,) else Order.shop
            queries: list[Any] = [db.select(*models).where(shop == name) for name in ("a", "b")]
            one, two = [(await start_query(query))[0].plan.target.kinds for query in queries]
            assert one is two and len(planner_of(one).plans) == 1
        raw = [db.select_raw("Orders").where("PartitionKey eq {}", name) for name in ("a", "b")]
        one, two = [(await start_query(query))[0].plan.target.kinds for query in raw]
        assert one is two and len(planner_of(one).plans) == 1


def test_what_is_kept_is_bounded() -> None:
    """Shapes without end push each other out; one that is very large is not kept at all."""
    kinds = fresh(Order)
    counts: list[int] = []
    for number in range(400):
        fields = [Order.note == "x" if number >> bit & 1 else Order.amount == 1 for bit in range(12)]
        planner_of(kinds).plan([SHOP, *fields])
        counts.append(len(planner_of(kinds).plans))
    assert max(counts) < 400

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
