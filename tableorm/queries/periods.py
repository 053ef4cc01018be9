"""
Queries for entities that have a table for each period: one query for each table that the conditions touch, joined in
the order of the periods.
"""

from functools import cached_property, lru_cache
from typing import NoReturn, TypeVar

import attrs

from ..connection.period_tables import coming_tables, list_periods
from ..errors import AccessDenied, CursorError, ModelError, NotSupported, ScanRefused
from ..keys.format import Order
from ..models.kinds import KindSet
from ..models.periods import PeriodTables
from ..protocol.limits import MAX_PAGE
from .explain import ExplainedRequest, Explanation, explain_together
from .misuse import check_count
from .planning.plan import Access
from .planning.spans import Span, TableConditions, find_spans
from .query import Query
from .select import Select

E_co = TypeVar("E_co", covariant=True)

_MOST_COMPUTED = 64
"""Tables of a span that are visited without asking which of them there are: a day and a half by the hour."""

_MOST_TABLES = 1_000
"""Tables of a query at most: as many as its alternatives."""


class PeriodSelect(Select[E_co]):
    """A query for entities of models with a table for each period."""

    @property
    def _periods(self) -> PeriodTables:
        periods = self._kinds.periods
        assert periods is not None
        return periods

    @cached_property
    def _spans(self) -> list[Span]:
        return find_spans(self._periods, self._conditions)

    @cached_property
    def _table_conditions(self) -> TableConditions:
        kinds, field = self._kinds, self._periods.field
        # A condition on a field says something of the keys of other kinds too.
        alone = len(kinds.schemas) == 1 and not kinds.bags
        in_rows = alone and kinds.schemas[0].key_holders[field][1] == "RowKey"
        return TableConditions(self._periods, self._where, in_rows=in_rows)

    @property
    def _descends(self) -> bool:
        """Whether keys begin with the latest: then the tables do too."""
        schema = self._kinds.schemas[0]
        template, _ = schema.key_holders[self._periods.field]
        form = template.full_format(self._periods.field)
        return form is not None and form.order is Order.REVERSED

    # Which tables

    def _in_order(self, names: list[str]) -> list[str]:
        return sorted(set(names), key=self._periods.start_of, reverse=self._descends)

    def _compute_tables(self, spans: list[Span], most: int) -> list[str] | None:
        """Return the names of the tables of some spans; None if a span has no bound, or they are more than `most`."""
        found: dict[str, None] = {}
        for span in spans:
            if span.low is None or span.high is None:
                return None
            for name in self._periods.names_between(span.low, span.high):
                found[name] = None
                if len(found) > most:
                    return None
        return self._in_order(list(found))

    async def _find_tables(self) -> list[str]:
        """
        Return the tables to visit, in order.

        Raises:
            ScanRefused: The conditions do not bound the field at all.
            NotSupported: The tables can neither be computed nor listed.
            ModelError: They are too many.
        """
        self._check_bounds()
        computed = self._compute_tables(self._spans, _MOST_COMPUTED)
        if computed is not None:
            return computed
        db = self._db
        if db is None:
            raise NotSupported(f"{self} has no database, because it was pickled; use .bind(db)")
        try:
            listed = None if db.guarded is not None else await list_periods(db, self._periods)
        except AccessDenied:
            listed = None
        found = self._compute_until_now() if listed is None else self._in_order([n for n in listed if self._touches(n)])
        if len(found) > _MOST_TABLES:
            raise self._too_many()
        return found

    def _touches(self, table: str) -> bool:
        """Return whether a table can have entities that satisfy the conditions."""
        periods = self._periods
        start = periods.start_of(table)
        if start is None:
            return False
        end = periods.end_of(start)
        return any(
            (span.high is None or start <= span.high) and (span.low is None or end is None or span.low < end)
            for span in self._spans
        )

    def _compute_until_now(self) -> list[str]:
        """Return the tables from the first bound on, for a client that may not list which there are."""
        field = f"{self._models[0].__name__}.{self._periods.field}"
        coming = coming_tables(self._periods, 1)
        latest = self._periods.start_of(coming[-1]) if coming else None
        spans = [Span(span.low, latest if span.high is None else span.high) for span in self._spans]
        if any(span.low is None or span.high is None for span in spans):
            raise NotSupported(f"{self} is rejected: these credentials can't list tables; set both bounds of {field}")
        found = self._compute_tables(spans, _MOST_TABLES)
        if found is None:
            raise self._too_many()
        return found

    def _too_many(self) -> ModelError:
        return ModelError(
            f"{self} is rejected: it would visit more than {_MOST_TABLES} tables; give a shorter span of "
            f"{self._models[0].__name__}.{self._periods.field}"
        )

    def _check_bounds(self) -> None:
        if self._scan is not True and any(span.low is None and span.high is None for span in self._spans):
            field = f"{self._models[0].__name__}.{self._periods.field}"
            raise ScanRefused(
                f"{self} would visit the tables of all periods; add .where({field} >= ...), to the query or the "
                "relation, or .allow_scan()"
            )

    def _of_table(self, table: str) -> Select[E_co]:
        """Return the query of one table."""
        where = self._where if table == self._kinds.table else self._table_conditions.of(table)
        return attrs.evolve(self._as(Select[E_co]), kinds=_kinds_in(self._kinds, table), where=where, part=table)

    # Explaining

    def explain(self) -> Explanation:
        """
        Tell what will be sent to which tables. Nothing is sent: where the tables would be listed, the template of their
        names stands for them.

        Raises:
            ScanRefused: The query would visit every period, or every partition of a table.
        """
        self._check_bounds()
        tables = self._compute_tables(self._spans, _MOST_COMPUTED)
        if tables == []:
            return attrs.evolve(self._of_table(self._kinds.table).limit(0).explain(), query=str(self))
        found = [self._of_table(name).explain() for name in tables or [self._kinds.table]]
        if tables is None:
            listing = ExplainedRequest(access=Access.RANGE, path="Tables()", top=MAX_PAGE)
            asked = attrs.evolve(found[0], requests=(listing,), min_transactions=1, max_transactions=None)
            found.insert(0, asked)
        joined = explain_together(found[-1], found)
        few = joined.min_transactions if self._limit is None else 1 + (tables is None)
        return attrs.evolve(joined, query=str(self), min_transactions=few)

    # Running

    async def _parts(self, cursor: str | None) -> "tuple[list[Query[E_co]], str | None]":
        if cursor is None:
            return [self._of_table(table) for table in await self._find_tables()], None
        table, point, inner = str(cursor).partition(".")
        start = self._periods.start_of(table)
        if not point or not self._touches(table) or table != self._periods.name_of(start):
            raise CursorError(
                f"{str(cursor)[:40]!r} belongs to another query, or isn't a cursor; pass Page.cursor unchanged, or "
                f"start again without a cursor"
            )
        tables = self._in_order([*await self._find_tables(), table])  # it may be gone by now, and is empty then
        return [self._of_table(each) for each in tables[tables.index(table) :]], inner

    def split(self, parts: int) -> NoReturn:
        """Refuse to divide the query: it is divided by its periods. Raises ModelError."""
        check_count("split", parts)
        raise ModelError(
            f"{self}.split({parts}) is rejected: it reads a table for each period; give each part a span of "
            f"{self._models[0].__name__}.{self._periods.field}"
        )


@lru_cache(maxsize=_MOST_TABLES)
def _kinds_in(kinds: KindSet, table: str) -> KindSet:
    """Return the kinds in the table of a period, the same object each time, which caches the plans of queries."""
    return KindSet(kinds.schemas, table, bags=kinds.bags)
