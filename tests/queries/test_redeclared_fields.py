"""
Conditions on a field that a class has declared anew, with another type or as a part of its key.
"""

import pytest

from tableorm import EncodeError, Entity, Expression, Mapped, TemplateError, field
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import to_odata
from tableorm.queries.planning.plan import Point, Range
from tableorm.queries.planning.planner import planner_of


class Measure(Entity, table="Measures", partition_key="{station}", abstract=True):
    station: Mapped[str]
    value: Mapped[str | None] = field(default=None)


class Reading(Measure, row_key="reading"):
    """Its value is a number."""

    value: Mapped[int | None] = field(default=None)  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


class Remark(Measure, row_key="remark"):
    """Its value is stored as JSON text."""

    value: Mapped[dict[str, str] | None] = field(default=None)  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


class Series(Measure, row_key="series_{value:03d}"):
    """Its value is a number in the key."""

    value: Mapped[int] = field(default=0)  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


class Sheet(Measure, row_key="{value}_{part}"):
    """Its value is one part of the key."""

    value: Mapped[str] = field(default="")  # pyright: ignore[reportIncompatibleVariableOverride]
    part: Mapped[str] = field(default="")


HERE = Measure.station == "here"
CONDITIONS = [
    Measure.value == "x",
    Measure.value != "x",
    Measure.value >= "x",
    ~(Measure.value < "x"),
    Measure.value.startswith("x"),
    ~Measure.value.startswith("x"),
    Measure.value.in_(["x", "y"]),
    ~Measure.value.in_(["x", "y"]),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (Reading, "the value is a str, not an int; the field is int|startswith\\(\\) works only on strings"),
        (Remark, "stored as JSON cannot be compared; filter in Python|startswith\\(\\) works only on strings"),
    ],
)
def test_a_value_of_the_type_that_the_base_declared(model: type[Measure], problem: str, condition: Expression) -> None:
    """It is rejected where the kind that is asked for declares another type, with the condition and the reason."""
    with pytest.raises(EncodeError, match=f"Measure.value: .*in the condition .*({problem})"):
        planner_of(KindSet.of([model])).plan([HERE, condition], allow_scan=True)


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_a_value_that_is_compared_with_a_key(condition: Expression) -> None:
    """It is rejected where the key holds another type, whatever the operator."""
    with pytest.raises(
        (EncodeError, TemplateError), match=r"needs an int, got 'x'|startswith\(\) works only on strings|field 'value'"
    ):
        planner_of(KindSet.of([Series])).plan([HERE, condition], allow_scan=True)


def test_equalities_on_the_fields_of_a_base_make_the_key_of_a_class() -> None:
    """They are those fields that the class holds in its keys."""
    found = planner_of(KindSet.of([Sheet])).plan([HERE, Measure.value == "v", Sheet.part == "p"])

    assert found.requests == (Point("here", "v_p"),)


def test_a_condition_beside_an_equality_on_a_base() -> None:
    """Inside of an `or`, the one says where the key begins, and the other where it goes on."""
    either = (Sheet.part == "p") | ~Sheet.part.in_(["q", "r"])
    (request,) = planner_of(KindSet.of([Sheet])).plan([HERE, Measure.value == "v", either]).requests

    assert isinstance(request, Range)
    assert request.query.where is not None
    assert "(RowKey ne 'v_q' and RowKey ne 'v_r' or RowKey eq 'v_p')" in to_odata(request.query.where)
    assert request.client_filters == ()
