"""
Conditions on another model than the one that is asked for: what they say of keys, and what they do not.
"""

import datetime as dt

import pytest

from tableorm import EncodeError, Entity, Expression, Mapped, PartitionKey, PropertyBag, field
from tableorm.expressions import PropertyComparison
from tableorm.keys.ranges import KeyRegion
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import Op, constant
from tableorm.queries.planning.normalize import leaves
from tableorm.queries.planning.partition import region_of
from tableorm.queries.planning.plan import Access, Point, QueryPlan, Range
from tableorm.queries.planning.planner import planner_of
from tableorm.stores import Bounds

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


class Visit(Entity, table="Diary", partition_key="{user}", row_key="{kind}_{at:%Y%m%d}_{n:03d}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)


class Call(Entity, table="Diary", partition_key="{user}", row_key="{kind}_{at:%Y%m%d}_{n:03d}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)


class Meal(Entity, table="Diary", partition_key="{user}", row_key="day_{at:%Y%m%d}_{n:03d}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)


class Snack(Entity, table="Diary", partition_key="{user}", row_key="day_{at:%Y%m%d}_{n:03d}"):
    """Its keys are made as those of a meal are."""

    user: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)


class Drink(Entity, table="Diary", partition_key="{user}", row_key="day_{at:%Y%m%d}_{n:03d}"):
    """The moment is in another property than that of a meal."""

    user: Mapped[str]
    at: Mapped[dt.datetime] = field(name="When")
    n: Mapped[int] = field(default=0)


class Walk(Entity, table="Diary", partition_key="{user}", row_key="walk_{n:03d}"):
    """The moment is not in its key."""

    user: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)


class Nap(Entity, table="Diary", partition_key="{user}", row_key="nap_{n:03d}"):
    """It has no moment."""

    user: Mapped[str]
    n: Mapped[int] = field(default=0)


class Trip(Entity, abstract=True, table="Diary", partition_key="{user}", row_key="{kind}_{n:03d}"):
    user: Mapped[str]
    n: Mapped[int] = field(default=0)


class Flight(Trip): ...


class Drive(Trip, partition_key="by-{user}"): ...


def plan(*where: Expression, model: type[Entity | PropertyBag]) -> QueryPlan:
    kinds = KindSet.of([model], "Diary") if model is PropertyBag else KindSet.of([model])
    return planner_of(kinds).plan(where, allow_scan=True)


@pytest.mark.parametrize("model", [Snack, Visit, Drink, Walk])
def test_a_model_that_is_not_asked_for(model: type[Entity]) -> None:
    """A condition on its field is rejected, also where both models store the field."""
    other = Meal if model in (Snack, Drink, Walk) else Call
    user: Expression = getattr(model, "user") == "ann"  # noqa: B009
    for condition in (other.at == NOON, other.n.is_none(), ~(other.at == NOON), (other.n == 1) | (other.n == 2)):
        with pytest.raises(EncodeError, match=f"the query does not select {other.__name__}") as refused:
            plan(user, condition, model=model)
        assert refused.value.value == getattr(next(leaves(condition)), "value", None)


def test_bags_are_found_by_the_keys_of_a_model() -> None:
    """All fields of both keys give one row, of which nothing is left to check; a part of them gives rows to look at."""
    both = plan(Walk.user == "ann", Walk.n == 7, model=PropertyBag)
    part = plan(Walk.user == "ann", Walk.n > 7, model=PropertyBag)

    assert both.requests == (Point("ann", "walk_007"),)
    assert part.access is Access.RANGE
    (request,) = part.requests
    assert isinstance(request, Range)
    assert request.query.row == Bounds("walk_007", "walk`", lower_open=True, upper_open=True)
    assert [str(each.condition) for each in request.client_filters] == ["Walk.n > 7"]


@pytest.mark.parametrize(
    ("models", "row"),
    [
        ([Meal, Snack], Bounds("day_20240229_", "day_20240229`", upper_open=True)),
        ([Meal, Drink], Bounds("day_", "day`", upper_open=True)),
        ([Meal, Walk], Bounds("day_20240229_", "walk`", upper_open=True)),
        ([Meal, Nap], Bounds("day_20240229_", "nap`", upper_open=True)),
        ([Visit, Call], Bounds("Call_", "Visit_20240229`", upper_open=True)),
        ([Meal, PropertyBag], Bounds()),
    ],
    ids=str,
)
def test_a_field_of_one_kind_bounds_the_keys_of_another_made_alike(
    models: list[type[Entity | PropertyBag]], row: Bounds
) -> None:
    """Rows of the other kind that store the field are results too: under whatever keys, if these are made otherwise."""
    first: type[Meal | Visit] = models[0]  # type: ignore[assignment]
    found = planner_of(KindSet.of(models)).plan([first.user == "ann", first.at == NOON])

    assert [region_of(request) for request in found.requests] == [KeyRegion(Bounds.only("ann"), row)]


def test_a_kind_without_a_partition_is_left_out() -> None:
    """A kind whose PartitionKeys the conditions exclude is not asked for."""
    conditions = [Trip.user == "ann", PartitionKey == "ann"]
    found = planner_of(KindSet.of([Trip])).plan(conditions)

    assert [each.name for each in found.target.schemas] == ["Flight", "Drive"]
    (request,) = found.requests
    assert region_of(request) == KeyRegion(Bounds.only("ann"), Bounds("Flight_", "Flight`", upper_open=True))


def test_an_abstract_base_says_nothing_of_the_keys_of_other_rows() -> None:
    """It writes no keys itself, and its classes may make them otherwise."""
    found = planner_of(KindSet.of([Flight, PropertyBag])).plan([Trip.user == "ann"], allow_scan=True)
    one = planner_of(KindSet.of([Flight, PropertyBag])).plan([Flight.user == "ann"])

    assert (found.access, one.access) == (Access.TABLE_SCAN, Access.PARTITION_SCAN)


@pytest.mark.parametrize(
    "condition",
    [
        PropertyComparison("PartitionKey", Op.EQ, constant(5)),
        PropertyComparison("PartitionKey", Op.NE, constant("ann")),
        PropertyComparison("note", Op.EQ, constant("ann")),
    ],
    ids=str,
)
def test_a_stored_key_is_bounded_by_text_alone(condition: Expression) -> None:
    """Other comparisons are filters, as those of any property."""
    (request,) = plan(condition, model=PropertyBag).requests

    assert region_of(request) == KeyRegion()
    assert isinstance(request, Range)
    assert request.query.where is not None and not request.client_filters
