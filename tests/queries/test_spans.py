"""
Spans of periods that conditions leave: what is rejected.
"""

import datetime as dt

import pytest

from tableorm import Entity, Expression, Mapped, ModelError, ScanRefused, connect, field
from tableorm.expressions import NoneOf
from tableorm.models.kinds import KindSet
from tableorm.queries.planning.spans import Span, find_spans


class Score(Entity, table="SpannedScores{year:04d}", partition_key="{year:04d}", row_key="{n:03d}"):
    year: Mapped[int]
    n: Mapped[int] = field(default=0)


class Beat(Entity, table="SpannedBeats{at:%Y%m%d}", partition_key="{host}", row_key="{at:ticks}"):
    host: Mapped[str]
    at: Mapped[dt.datetime]


YEAR = Score.year


def spans(*where: Expression) -> list[Span]:
    periods = KindSet.of([Score]).periods
    assert periods is not None
    return find_spans(periods, where)


def test_conditions_that_nest_too_deep_are_refused() -> None:
    """Before anything walks through them, level by level."""
    condition: Expression = YEAR == 5
    for _ in range(5_000):
        condition = NoneOf(condition)

    with pytest.raises(ModelError, match="nests deeper than"):
        spans(condition)


async def test_bounds_that_leave_nothing_out_are_none() -> None:
    """Two spans that together hold every period are rejected as no bound is."""
    now = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    async with connect("local::memory:") as db:
        query = db.select(Beat).where(Beat.host == "a", (Beat.at <= now) | (Beat.at >= now))

        with pytest.raises(ScanRefused, match="tables of all periods"):
            await query.all()
        assert await query.allow_scan().all() == []
