"""
Spans: which values of one key field the conditions of a query leave, so that it visits only the tables of these; and
what is left of the conditions in one of the tables.

A span may be longer than the conditions say, never shorter: the conditions are evaluated in each table all the same.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import attrs
import msgspec

from ...expressions import AllOf, AnyOf, Comparison, Expression, Membership, NoneOf
from ...models.periods import PeriodTables
from ...protocol.filters import Op
from .normalize import FALSE, OPPOSITE, TRUE
from .parameters import shape_of


class Span(msgspec.Struct, frozen=True, gc=False):
    """The values from `low` to `high`, both included; None for no bound."""

    low: Any = None
    high: Any = None


_EVERYTHING = Span()


def find_spans(periods: PeriodTables, where: Sequence[Expression]) -> list[Span]:
    """
    Return the spans of the field of some tables of periods in which entities can satisfy conditions, in order.

    Raises:
        ModelError: A condition nests too deep.
    """
    shape_of(where)  # refuses what nests too deep
    return _find(periods, AllOf(tuple(where)), negated=False)


def _find(periods: PeriodTables, term: Expression, *, negated: bool) -> list[Span]:
    match term:
        case NoneOf():
            return _find(periods, term.term, negated=not negated)
        case AllOf() | AnyOf():
            found = [_find(periods, each, negated=negated) for each in term.terms]
            if isinstance(term, AllOf) is not negated:
                return reduce(_meet, found, [_EVERYTHING])
            return _join(span for spans in found for span in spans)
        case Comparison() if term.op is not None and term.field.name == periods.field:
            return _compare(periods, OPPOSITE[term.op] if negated else term.op, term.value)
        case Membership() if term.negated is negated and term.field.name == periods.field:
            return _join(span for value in term.values for span in _compare(periods, Op.EQ, value))
        case _:
            return [_EVERYTHING]


def _compare(periods: PeriodTables, op: Op, value: Any) -> list[Span]:
    low, high, step = periods.format.low, periods.format.high, periods.step
    if isinstance(value, dt.datetime):
        value = value.astimezone(dt.UTC)  # arithmetic in another zone would be that of its clocks
    # What is beyond all that tables hold is below or above each of their values.
    below, above = value < low, value > high
    match op:
        case Op.NE:
            return [_EVERYTHING]
        case Op.EQ:
            return [] if below or above else [Span(value, value)]
        case Op.GT | Op.GE:
            if above or (op is Op.GT and value == high):
                return []
            return [Span(low if below else value if op is Op.GE else value + step, None)]
        case Op.LT | Op.LE:
            if below or (op is Op.LT and value == low):
                return []
            return [Span(None, high if above else value if op is Op.LE else value - step)]


def _meet(left: list[Span], right: list[Span]) -> list[Span]:
    return [span for one in left for two in right if (span := _common(one, two)) is not None]


def _common(one: Span, two: Span) -> Span | None:
    low = one.low if two.low is None else two.low if one.low is None else max(one.low, two.low)
    high = one.high if two.high is None else two.high if one.high is None else min(one.high, two.high)
    return None if low is not None and high is not None and low > high else Span(low, high)


def _join(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, with those that overlap made one."""
    found = list(spans)
    ordered = [span for span in found if span.low is None]
    ordered += sorted((span for span in found if span.low is not None), key=lambda span: span.low)
    joined: list[Span] = []
    for span in ordered:
        last = joined[-1] if joined else None
        if last is not None and (last.high is None or span.low is None or span.low <= last.high):
            high = None if last.high is None or span.high is None else max(last.high, span.high)
            joined[-1] = Span(last.low, high)
        else:
            joined.append(span)
    return joined


class TableConditions:
    """
    The conditions of a query, as they are in one table after the other: a condition on the field that holds for a whole
    period is left out there, and each of several values is asked of its own table.

    Args:
        periods: The tables.
        where: The conditions.
        in_rows: Whether only the field's own model is asked for, and RowKeys have it. In PartitionKeys it tells which
            partitions are read.
    """

    def __init__(self, periods: PeriodTables, where: Sequence[Expression], *, in_rows: bool) -> None:
        self._periods, self._where, self._in_rows = periods, where, in_rows
        self._values: dict[int, dict[str, list[Any]]] = {}

    def of(self, table: str) -> tuple[Expression, ...]:
        """Return the conditions in a table."""
        start = self._periods.start_of(table)
        end = self._periods.end_of(start)
        period = Span(start, self._periods.format.high if end is None else end - self._periods.step)
        found = [self._restrict(each, table, period) for each in self._where]
        return tuple(each for each in found if each is not TRUE)

    def _restrict(self, term: Expression, table: str, period: Span) -> Expression:
        periods = self._periods
        match term:
            case NoneOf():
                return NoneOf(self._restrict(term.term, table, period))
            case AllOf() | AnyOf():
                return type(term)(tuple([self._restrict(each, table, period) for each in term.terms]))
            case Comparison() if term.op is not None and term.field.name == periods.field:
                left = _meet([period], _compare(periods, term.op, term.value))
                if not left:
                    return FALSE
                return TRUE if left == [period] and self._in_rows and term.op is not Op.NE else term
            case Membership() if term.field.name == periods.field:
                return attrs.evolve(term, values=tuple(self._group(term).get(table, ())))
            case _:
                return term

    def _group(self, term: Membership) -> dict[str, list[Any]]:
        """Return the values of a condition by the table that each is in."""
        found = self._values.get(id(term))
        if found is None:
            found = self._values[id(term)] = {}
            low, high = self._periods.format.low, self._periods.format.high
            for value in term.values:
                if low <= value <= high:  # no table has the others
                    found.setdefault(self._periods.name_of(value), []).append(value)
        return found
