"""
Conditions on another model than the one that is asked for: what they say of keys, and what they do not.
"""

import datetime as dt

import pytest

from tableorm import EncodeError, Entity, Expression, Mapped, PropertyBag, field
from tableorm.models.kinds import KindSet
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


def plan(*where: Expression, model: type[Entity | PropertyBag]) -> QueryPlan:
    kinds = KindSet.of([model], "Diary") if model is PropertyBag else KindSet.of([model])
    return planner_of(kinds).plan(where, allow_scan=True)


@pytest.mark.parametrize("model", [Snack, Visit, Drink, Walk])
def test_a_model_that_is_not_asked_for(model: type[Entity]) -> None:
    """A condition on its field is refused, also where both models store the field."""
    other = Meal if model in (Snack, Drink, Walk) else Call
    user: Expression = getattr(model, "user") == "ann"  # noqa: B009
    for condition in (other.at == NOON, other.n.is_none(), ~(other.at == NOON), (other.n == 1) | (other.n == 2)):
        with pytest.raises(EncodeError, match=f"the query asks for no {other.__name__}"):
            plan(user, condition, model=model)


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
