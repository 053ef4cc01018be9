"""
Plans of conditions that exclude each other, and of more alternatives than a query may have.
"""

import pytest

from tableorm import Entity, Expression, Mapped, ScanRefused, field
from tableorm.models.kinds import KindSet
from tableorm.queries.planning.plan import QueryPlan, Range
from tableorm.queries.planning.planner import planner_of
from tests.derived.patterns.firm import Employee


class Sample(Entity, table="Samples", partition_key="{lab}", row_key="{id:06d}", kind=None):
    lab: Mapped[str]
    id: Mapped[int]
    grade: Mapped[str] = field(default="")
    batch: Mapped[int] = field(default=0)
    share: Mapped[float] = field(default=0.0)


HERE = Sample.lab == "here"


def plan(*where: Expression, allow_scan: bool = False) -> QueryPlan:
    return planner_of(KindSet.of([Sample])).plan(where, allow_scan=allow_scan)


@pytest.mark.parametrize(
    "where",
    [
        (Sample.grade == "a", Sample.grade == "a"),
        (Sample.grade == "a", Sample.batch == 1),
        (Sample.grade >= "a", Sample.grade >= "b"),
        (Sample.grade != "a", Sample.grade == "b"),
        (Sample.batch == 2**40, Sample.batch == 1),
        (Sample.lab == "here",),
        (Sample.id >= 5, Sample.id <= 5),
    ],
    ids=str,
)
def test_conditions_that_hold_together(where: tuple[Expression, ...]) -> None:
    """They are sent; so are equalities with numbers of two types, which the service makes equal where it can."""
    assert len(plan(HERE, *where).requests) == 1


@pytest.mark.parametrize(
    ("common", "one"),
    [(Sample.lab > "m", Sample.lab == "a"), (Sample.id > 500, HERE), (Sample.id < 500, HERE)],
    ids=str,
)
def test_alternatives_outside_of_what_holds_for_all(common: Expression, one: Expression) -> None:
    """What they would read as one is looked at row by row, and satisfies nothing."""
    either = (one & (Sample.id.between(500, 502))) | (one & Sample.id.between(501, 503))
    for request in plan(common, either, allow_scan=True).requests:
        assert isinstance(request, Range)
        assert request.query.where is not None or request.client_filters


def test_alternatives_are_multiplied_before_they_are_made() -> None:
    """A query of a few lines has more of them than there is memory for; it is refused, or reads what all share."""
    either = [(Sample.id == number) | (Sample.id == number + 1) | (Sample.id == number + 2) for number in range(30)]

    with pytest.raises(ScanRefused, match=r"the conditions have more than 1,000 alternatives, each a request"):
        plan(HERE, *either)
    assert len(plan(HERE, *either, allow_scan=True).requests) == 1


@pytest.mark.parametrize(("values", "count"), [(31, None), (32, "1,024"), (101, "more than 10,000")])
def test_a_query_with_too_many_alternatives_says_how_many(values: int, count: str | None) -> None:
    """Each combination of one value of each `in_` is one."""
    many = Sample.lab.in_([f"lab{number}" for number in range(values)]), Sample.id.in_(range(values))

    if count is None:
        assert len(plan(*many).requests) == values * values
        return
    with pytest.raises(ScanRefused, match=f"the conditions have {count} alternatives"):
        plan(*many)


def test_a_scan_of_a_model_that_is_counted() -> None:
    """It is refused with the fields that are missing; what has no rows to read is not named as what would serve."""
    with pytest.raises(ScanRefused, match=r"no equality on department, .* if a scan is meant"):
        planner_of(KindSet.of([Employee])).plan([Employee.salary == 5])
