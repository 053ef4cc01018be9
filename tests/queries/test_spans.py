"""
Which values of the field of their tables conditions leave: spans in order, of which no two overlap; and what is left of
the conditions in one table.
"""

import datetime as dt

import pytest

from tableorm import Entity, Expression, Mapped, ModelError, ScanRefused, connect, field
from tableorm.expressions import AllOf, AnyOf, NoneOf
from tableorm.models.kinds import KindSet
from tableorm.queries.planning.normalize import FALSE, TRUE
from tableorm.queries.planning.spans import Span, TableConditions, find_spans


class Score(Entity, table="SpannedScores{year:04d}", partition_key="{year:04d}", row_key="{n:03d}"):
    year: Mapped[int]
    n: Mapped[int] = field(default=0)


class Beat(Entity, table="SpannedBeats{at:%Y%m%d}", partition_key="{host}", row_key="{at:ticks}"):
    host: Mapped[str]
    at: Mapped[dt.datetime]


YEAR = Score.year
EVERYTHING = Span()


def spans(*where: Expression) -> list[Span]:
    periods = KindSet.of([Score]).periods
    assert periods is not None
    return find_spans(periods, where)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (YEAR == 5, [Span(5, 5)]),
        (YEAR != 5, [EVERYTHING]),
        (YEAR > 5, [Span(6, None)]),
        (YEAR >= 5, [Span(5, None)]),
        (YEAR < 5, [Span(None, 4)]),
        (YEAR <= 5, [Span(None, 5)]),
        (~(YEAR == 5), [EVERYTHING]),
        (~(YEAR != 5), [Span(5, 5)]),
        (~(YEAR > 5), [Span(None, 5)]),
        (~(YEAR >= 5), [Span(None, 4)]),
        (~(YEAR < 5), [Span(5, None)]),
        (~(YEAR <= 5), [Span(6, None)]),
        (YEAR.in_([7, 5, 7]), [Span(5, 5), Span(7, 7)]),
        (~YEAR.in_([5]), [EVERYTHING]),
        (~~YEAR.in_([5]), [Span(5, 5)]),
        (YEAR.in_([]), []),
        (Score.n == 5, [EVERYTHING]),
        (Score.n.in_([5]), [EVERYTHING]),
        (~(Score.n > 5), [EVERYTHING]),
        (YEAR.is_none(), [EVERYTHING]),
        (YEAR.startswith("2"), [EVERYTHING]),  # which a number does not; another error says so
        # A bound beyond all that tables hold leaves all of it, or nothing.
        (YEAR > 9_999, []),
        (YEAR >= 9_999, [Span(9_999, None)]),
        (YEAR > 12_345, []),
        (YEAR >= 12_345, []),
        (YEAR < 12_345, [Span(None, 9_999)]),
        (YEAR == 12_345, []),
        (YEAR != 12_345, [EVERYTHING]),
        (YEAR <= -5, []),
        (YEAR < -5, []),
        (YEAR < 0, []),
        (YEAR > -5, [Span(0, None)]),
        (YEAR >= -5, [Span(0, None)]),
    ],
    ids=str,
)
def test_a_condition_leaves_a_span(condition: Expression, expected: list[Span]) -> None:
    """The values that satisfy it, the bounds included; all of them where it says nothing of the field."""
    assert spans(condition) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ((YEAR >= 5) & (YEAR <= 8), [Span(5, 8)]),
        ((YEAR <= 8) & (YEAR >= 5), [Span(5, 8)]),
        ((YEAR >= 5) & (YEAR >= 7) & (YEAR <= 9) & (YEAR <= 8), [Span(7, 8)]),
        ((YEAR >= 7) & (YEAR >= 5) & (YEAR <= 8) & (YEAR <= 9), [Span(7, 8)]),
        ((YEAR >= 5) & (YEAR <= 5), [Span(5, 5)]),
        ((YEAR > 5) & (YEAR <= 5), []),
        ((YEAR == 5) & (YEAR == 6), []),
        ((YEAR >= 5) & (Score.n > 3), [Span(5, None)]),
        (~((YEAR < 5) | (YEAR > 8)), [Span(5, 8)]),
        (~((YEAR >= 5) & (YEAR <= 8)), [Span(None, 4), Span(9, None)]),
        ((YEAR >= 9) | (YEAR <= 4), [Span(None, 4), Span(9, None)]),
        ((YEAR == 7) | (YEAR == 5), [Span(5, 5), Span(7, 7)]),
        ((YEAR == 5) | (Score.n > 3), [EVERYTHING]),
        (((YEAR == 5) | (YEAR >= 8)) & ((YEAR <= 5) | (YEAR == 9)), [Span(5, 5), Span(9, 9)]),
    ],
    ids=str,
)
def test_conditions_together_leave_spans(condition: Expression, expected: list[Span]) -> None:
    """Those that all of them leave, or any of them, in order."""
    assert spans(condition) == expected


def test_no_condition_leaves_every_value() -> None:
    """Of several, each leaves some of what the others do."""
    assert spans() == [EVERYTHING]
    assert spans(YEAR >= 5, YEAR <= 8) == [Span(5, 8)]


def test_conditions_that_nest_too_deep_are_refused() -> None:
    """Before anything walks through them, level by level."""
    condition: Expression = YEAR == 5
    for _ in range(5_000):
        condition = NoneOf(condition)

    with pytest.raises(ModelError, match="nests deeper than"):
        spans(condition)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ((YEAR.between(2, 5)) | YEAR.between(4, 8), [Span(2, 8)]),
        ((YEAR.between(2, 5)) | YEAR.between(5, 8), [Span(2, 8)]),
        ((YEAR.between(2, 8)) | YEAR.between(3, 5), [Span(2, 8)]),
        ((YEAR <= 5) | (YEAR >= 5), [EVERYTHING]),
        ((YEAR <= 5) | (YEAR <= 8), [Span(None, 8)]),
        ((YEAR <= 8) | (YEAR <= 5), [Span(None, 8)]),
        ((YEAR >= 5) | (YEAR >= 8), [Span(5, None)]),
        ((YEAR >= 5) | YEAR.between(2, 6), [Span(2, None)]),
        ((YEAR <= 5) | YEAR.between(2, 8), [Span(None, 8)]),
        (YEAR.between(2, 5) | YEAR.between(6, 8), [Span(2, 5), Span(6, 8)]),
    ],
    ids=str,
)
def test_spans_that_overlap_are_one(condition: Expression, expected: list[Span]) -> None:
    """Also those that have one value in common; others stay apart."""
    assert spans(condition) == expected


async def test_bounds_that_leave_nothing_out_are_none() -> None:
    """Two spans that together hold every period are refused as no bound is."""
    now = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    async with connect("local::memory:") as db:
        query = db.select(Beat).where(Beat.host == "a", (Beat.at <= now) | (Beat.at >= now))

        with pytest.raises(ScanRefused, match="tables of all periods"):
            await query.all()
        assert await query.allow_scan().all() == []


DAY, TICK = dt.timedelta(days=1), dt.timedelta(microseconds=1)
FIRST, NOON = dt.datetime(2024, 3, 1, tzinfo=dt.UTC), dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
LAST = dt.datetime.max.replace(tzinfo=dt.UTC)
AT, OF_A = Beat.at, Beat.host == "a"


def in_table(*where: Expression, table: str = "SpannedBeats20240301", in_rows: bool = True) -> list[str]:
    periods = KindSet.of([Beat]).periods
    assert periods is not None
    return texts(*TableConditions(periods, where, in_rows=in_rows).of(table))


def texts(*terms: Expression) -> list[str]:
    return ["FALSE" if each is FALSE else "TRUE" if each is TRUE else str(each) for each in terms]


@pytest.mark.parametrize(
    "condition", [AT >= FIRST, AT > FIRST - TICK, AT < FIRST + DAY, AT <= FIRST + DAY - TICK], ids=str
)
def test_a_condition_that_holds_for_a_whole_period_is_left_out(condition: Expression) -> None:
    """Where RowKeys have the field; not where PartitionKeys have it, which tell by it which partition is read."""
    assert in_table(condition) == []
    assert in_table(condition, OF_A) == texts(OF_A)
    assert in_table(condition & OF_A) == texts(AllOf((TRUE, OF_A)))
    assert in_table(condition, in_rows=False) == texts(condition)


@pytest.mark.parametrize("condition", [AT < FIRST, AT <= FIRST - TICK, AT >= FIRST + DAY, AT == NOON + DAY], ids=str)
def test_a_condition_that_holds_nowhere_in_a_period_is_false(condition: Expression) -> None:
    """Wherever the field is."""
    assert in_table(condition) == in_table(condition, in_rows=False) == ["FALSE"]
    assert in_table(condition | OF_A) == texts(AnyOf((FALSE, OF_A)))


@pytest.mark.parametrize(
    "condition",
    [
        AT > FIRST,
        AT <= FIRST,
        AT < NOON,
        AT >= FIRST + DAY - TICK,
        AT <= FIRST + DAY - 2 * TICK,
        AT == NOON,
        AT != NOON,
        AT != NOON + DAY,
        ~(AT == NOON),
        OF_A,
        ~(Beat.host > "a"),
        Beat.host.in_(["a"]),
        AT.is_none(),
        AT.startswith("2"),
    ],
    ids=str,
)
def test_other_conditions_are_as_they_were(condition: Expression) -> None:
    """Those that hold for a part of a period, and those that say nothing of it."""
    assert in_table(condition) == texts(condition)


def test_each_of_several_values_is_asked_of_its_table() -> None:
    """In others it is not among the values; none is left where none of them can be."""
    condition = AT.in_([NOON, NOON + DAY, FIRST])

    assert in_table(condition, ~condition) == texts(AT.in_([NOON, FIRST]), ~AT.in_([NOON, FIRST]))
    assert in_table(condition, table="SpannedBeats20240302") == texts(AT.in_([NOON + DAY]))
    assert in_table(condition, table="SpannedBeats20240303") == texts(AT.in_([]))


def test_the_last_period_ends_with_the_last_moment() -> None:
    """No period follows that would say where it ends."""
    assert in_table(AT <= LAST, table="SpannedBeats99991231") == []
    assert in_table(AT < LAST, table="SpannedBeats99991231") == texts(AT < LAST)
