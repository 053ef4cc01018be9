"""
Expressions: conditions made of fields, and how they combine.
"""

import functools
import pickle
from typing import Any

import pytest

from tableorm import EncodeError, Entity, Expression, Mapped, ModelError, field
from tableorm.expressions import MAX_DEPTH, AllOf, AnyOf, Comparison, NoneOf, conjuncts
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import Op
from tableorm.queries.planning.planner import planner_of


class Employee(Entity, table="Directory", partition_key="{department}", row_key="{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int | None] = field(default=None)
    name: Mapped[str] = field(default="")


# The checkers know more of these than the tests want: see tests/typing.
AGE: Any = Employee.age
NAME: Any = Employee.name


@pytest.mark.parametrize(
    ("condition", "op", "text"),
    [
        (AGE == 30, Op.EQ, "Employee.age == 30"),
        (AGE != 30, Op.NE, "Employee.age != 30"),
        (AGE < 30, Op.LT, "Employee.age < 30"),
        (AGE <= 30, Op.LE, "Employee.age <= 30"),
        (AGE > 30, Op.GT, "Employee.age > 30"),
        (AGE >= 30, Op.GE, "Employee.age >= 30"),
        (NAME.startswith("J"), None, "Employee.name.startswith('J')"),
    ],
)
def test_comparisons(condition: Expression, op: Op | None, text: str) -> None:
    """Each operator makes a condition on its field; startswith is one as well."""
    assert isinstance(condition, Comparison)
    assert condition.op is op
    assert str(condition) == repr(condition) == text


def test_the_constant_may_stand_first() -> None:
    """`30 < Employee.age` is the same as `Employee.age > 30`."""
    condition: Any = 30 < AGE  # noqa: SIM300

    assert str(condition) == "Employee.age > 30"


def test_combinations() -> None:
    """& | and ~ combine; both ends of between are inside."""
    old, jun = AGE > 60, NAME == "Jun"

    assert str(old & jun) == "(Employee.age > 60) & (Employee.name == 'Jun')"
    assert str(old | jun) == "(Employee.age > 60) | (Employee.name == 'Jun')"
    assert str(~old) == "~(Employee.age > 60)"
    assert str(AGE.between(1, 2)) == "(Employee.age >= 1) & (Employee.age <= 2)"
    assert str((old | jun) & ~jun) == ("((Employee.age > 60) | (Employee.name == 'Jun')) & (~(Employee.name == 'Jun'))")
    assert isinstance(old & jun, AllOf)
    assert isinstance(old | jun, AnyOf)
    assert isinstance(~old, NoneOf)


def test_thousands_of_terms() -> None:
    """A condition made of thousands of others, one by one, is planned as any other."""
    terms: list[Expression] = [NAME.startswith(str(number)) for number in range(3_000)]
    either = functools.reduce(lambda left, right: left | right, terms)
    every = functools.reduce(lambda left, right: left & right, terms)

    plan = planner_of(KindSet.of([Employee])).plan([either, every], allow_scan=True)

    assert plan.requests
    assert len(list(conjuncts([every]))) == 3_000


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000])
def test_a_condition_that_nests_too_deep_is_refused(depth: int) -> None:
    """When it is planned, however deep it is; one level less is planned."""
    term: Expression = AGE > 1
    for level in range(1, depth):
        term = AllOf((term, AGE > 2)) if level % 2 else AnyOf((term, AGE > 3))
    planner = planner_of(KindSet.of([Employee]))

    with pytest.raises(ModelError, match=f"nests deeper than {MAX_DEPTH} levels; write a & b & c"):
        planner.plan([term], allow_scan=True)
    assert isinstance(term, (AllOf, AnyOf))
    if depth == MAX_DEPTH + 1:
        assert planner.plan([term.terms[0]], allow_scan=True).requests


def test_negations_are_levels() -> None:
    """A negation of a condition is a level as any other."""
    term: Expression = AGE > 1
    for level in range(1, MAX_DEPTH):
        term = NoneOf(term) if level % 2 else AllOf((term, AGE > 2))
    planner = planner_of(KindSet.of([Employee]))

    assert planner.plan([term], allow_scan=True).requests
    with pytest.raises(ModelError, match=f"nests deeper than {MAX_DEPTH} levels"):
        planner.plan([AllOf((term, AGE > 2))], allow_scan=True)


def test_chains_are_flat_however_they_were_made() -> None:
    """From the left, from the right, of chains; each part of a chain stays what it was."""
    a, b, c, d = AGE > 1, AGE > 2, AGE > 3, AGE > 4
    left, right = a | b | c, b | (c | d)
    assert isinstance(left, AnyOf) and isinstance(right, AnyOf)

    assert [each.terms for each in (a | b | c | d, a | right, (a | b) | (c | d), left | d)] == [(a, b, c, d)] * 4
    assert (str(left), str(right)) == (str(AnyOf((a, b, c))), str(AnyOf((b, c, d))))
    mixed = a | (b & c) | d
    assert isinstance(mixed, AnyOf) and len(mixed.terms) == 3


@pytest.mark.parametrize("forward", [True, False])
def test_long_chains_are_pickled(forward: bool) -> None:
    """Whatever way they were made, and before anybody asked for their terms."""
    terms: list[Expression] = [number == AGE for number in range(5_000)]
    either = functools.reduce(lambda one, two: one | two if forward else two | one, terms)
    found = pickle.loads(pickle.dumps(either))

    assert isinstance(found, AnyOf)
    assert list(map(str, found.terms)) == list(map(str, terms if forward else terms[::-1]))


def test_a_prefix_without_utf8_form() -> None:
    """No stored text starts with half a character, so the prefix is rejected, also of a field in a key."""
    for expression in (NAME, Employee.department):
        with pytest.raises(EncodeError, match="lone surrogate"):
            expression.startswith("\ud83d")


def test_conditions_are_no_values() -> None:
    """Conditions are compared and hashed by identity, so they go into sets and lists; fields are hashable too."""
    first, second = AGE == 1, AGE == 1

    assert first != second
    assert first in [second, first]
    assert len({first, second, AGE == 2}) == 3
    assert {AGE: 1, NAME: 2}[AGE] == 1


def test_pickling() -> None:
    """A condition comes back from another process with the same field."""
    back = pickle.loads(pickle.dumps((AGE > 30) & ~NAME.startswith("J")))

    assert str(back) == "(Employee.age > 30) & (~(Employee.name.startswith('J')))"
    assert back.terms[0].field is AGE
