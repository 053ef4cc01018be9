"""
Conditions on fields that keys hold, evaluated on rows that came back: by text, by value, and on keys of others.
"""

import datetime as dt
import enum
from typing import Any

import pytest

from tableorm import EncodeError, Entity, Expression, Mapped, field
from tableorm.models.kinds import KindSet
from tableorm.queries.planning.client_filter import make_test
from tableorm.queries.planning.planner import planner_of
from tableorm.queries.planning.target import QueryTarget
from tests.queries.test_redeclared_fields import CONDITIONS, HERE, Measure, Reading, Series


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Padded(Entity, table="Keys", partition_key="p", row_key="{n:03d}"):
    n: Mapped[int]


class Down(Entity, table="Keys", partition_key="p", row_key="{n:03d_desc}"):
    n: Mapped[int]


class Plain(Entity, table="Keys", partition_key="p", row_key="{n}"):
    n: Mapped[int]


class Day(Entity, table="Keys", partition_key="p", row_key="{day:%d.%m.%Y}"):
    """Its days do not sort as texts."""

    day: Mapped[dt.date]


class Named(Entity, table="Keys", partition_key="p", row_key="{name}"):
    name: Mapped[str]


class Sized(Entity, table="Keys", partition_key="p", row_key="{size}"):
    size: Mapped[Size]


def judge(model: type[Entity], condition: Expression, key: str) -> bool | None:
    return make_test(QueryTarget(KindSet.of([model])), condition)({"PartitionKey": "p", "RowKey": key})


LEAP = dt.date(2024, 2, 29)
CASES: list[tuple[type[Entity], Expression, dict[str, bool | None]]] = [
    (Padded, Padded.n == 5, {"005": True, "006": False, "5": None, "00x": None}),
    (Padded, Padded.n != 5, {"005": False, "006": True, "5": None}),
    (Padded, Padded.n > 5, {"004": False, "005": False, "006": True, "x": None}),
    (Padded, Padded.n >= 5, {"004": False, "005": True, "006": True}),
    (Padded, Padded.n < 5, {"004": True, "005": False, "006": False}),
    (Padded, Padded.n <= 5, {"004": True, "005": True, "006": False}),
    (Padded, Padded.n.in_([5, 7]), {"005": True, "006": False, "007": True, "7": None}),
    (Padded, ~Padded.n.in_([5, 7]), {"005": False, "006": True, "7": None}),
    # No key holds such a value, which all that they hold is below.
    (Padded, Padded.n == 5000, {"005": False, "x": None}),
    (Padded, Padded.n != 5000, {"005": True, "x": None}),
    (Padded, Padded.n < 5000, {"999": True, "x": None}),
    (Padded, Padded.n > 5000, {"999": False, "x": None}),
    (Padded, Padded.n > -1, {"000": True}),
    (Down, Down.n == 5, {"994": True, "005": False}),
    (Down, Down.n > 5, {"994": False, "993": True, "995": False}),
    (Down, Down.n >= 5, {"994": True, "993": True, "995": False}),
    (Down, Down.n < 5, {"994": False, "993": False, "995": True}),
    (Down, Down.n <= 5, {"994": True, "993": False, "995": True}),
    (Down, Down.n < 5000, {"994": True, "000": True}),
    (Plain, Plain.n > 5, {"5": False, "6": True, "10": True, "-7": False, "x": None}),
    (Plain, Plain.n <= 5, {"5": True, "6": False, "10": False, "-7": True}),
    (Day, Day.day == LEAP, {"29.02.2024": True, "28.02.2024": False, "x": None}),
    (Day, Day.day > LEAP, {"29.02.2024": False, "01.03.2024": True, "30.12.2023": False, "99.99.2024": None}),
    (Day, Day.day <= LEAP, {"29.02.2024": True, "01.03.2024": False, "30.12.2023": True, "00.00.0000": None}),
    (Named, Named.name.startswith("ab"), {"ab": True, "abc": True, "a": False, "b": False}),
    (Named, Named.name > "b", {"a": False, "b": False, "c": True, "\U0001f600": True}),
    (Named, Named.name > "\U0001f600", {"\ue000": True, "z": False}),
    (Sized, Sized.size == Size.SMALL, {"s": True, "l": False}),
    (Sized, Sized.size != Size.SMALL, {"s": False, "l": True}),
]


@pytest.mark.parametrize(("model", "condition", "keys"), CASES, ids=str)
def test_a_key_satisfies_a_condition(model: type[Entity], condition: Expression, keys: dict[str, bool | None]) -> None:
    """As its value does, in the order of the value; of a key that the template does not make nobody knows."""
    assert {key: judge(model, condition, key) for key in keys} == keys


class Task(Entity, table="Tasks", partition_key="{team}", row_key="task_{n:03d}"):
    team: Mapped[str]
    n: Mapped[int]
    done: Mapped[bool] = field(default=False)


class Stop(Entity, table="Tasks", partition_key="{team}", row_key="stop"):
    team: Mapped[str]


@pytest.mark.parametrize("condition", [CONDITIONS[1], CONDITIONS[5], CONDITIONS[7]], ids=str)
def test_a_value_that_no_key_of_a_kind_can_have(condition: Expression) -> None:
    """It is refused, with the condition, also where rows of several kinds are looked at one by one."""
    with pytest.raises(EncodeError, match=r"Measure.value: .*in the condition .*is refused"):
        planner_of(KindSet.of([Series, Reading])).plan([HERE, condition])


def test_measures_are_compared_as_each_kind_holds_them() -> None:
    """A condition on the base finds them in the key of one kind."""
    either: list[Any] = [Measure.value.is_none(), ~Measure.value.is_none()]
    target = QueryTarget(KindSet.of([Series]))
    row = {"PartitionKey": "here", "RowKey": "series_005"}

    assert [make_test(target, each)(row) for each in either] == [False, True]


@pytest.mark.parametrize(("key", "there"), [("task_007", True), ("stop", False), ("task_x", False)])
def test_the_field_of_a_key_is_there_or_not(key: str, there: bool) -> None:
    """Rows of other kinds have other keys, which do not hold it."""
    target = QueryTarget(KindSet.of([Stop]))
    row = {"PartitionKey": "a", "RowKey": key, "EntityType": "Stop"}

    assert make_test(target, Task.n.is_none())(row) is not there
    assert make_test(target, Task.n == 7)(row) is (True if there else None)
