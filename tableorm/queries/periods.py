"""
Queries for entities that have a table for each period: one query for each table that the conditions touch, joined in
the order of the periods.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import cached_property, lru_cache
from typing import Any, NoReturn, TypeVar

import attrs

from ..connection.period_tables import coming_tables, list_periods
from ..connection.tasks import work_together
from ..errors import AccessDenied, CursorError, DecodeError, ModelError, NotSupported, ScanRefused
from ..keys.formats import Order
from ..models.kinds import KindSet
from ..models.periods import PeriodTables
from ..protocol.limits import MAX_PAGE
from ..stores import Row
from ..writes.bulk.report import FAILURES_KEPT, BulkReport
from .cursors import Position, remaining_sources, write_cursor
from .execution import CONCURRENCY, QueryExecution, UnsentRequest
from .explain import ExplainedRequest, Explanation
from .misuse import check_count
from .pages import Page, ReadProgress, cursor_behind_misfit, fetch_page
from .planning.plan import RANKS, Access
from .planning.spans import Span, TableConditions, find_spans
from .run import load_entities, requests_ahead, sources_of
from .select import Select

__all__ = ["PeriodSelect", "list_periods"]

E_co = TypeVar("E_co", covariant=True)

_MOST_COMPUTED = 64
"""Tables of a span that are visited without asking which of them there are: a day and a half by the hour."""

_MOST_TABLES = 1_000
"""Tables of a query at most: as many as its alternatives."""

_TABLES_OF_A_PAGE = 10


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
            raise NotSupported(f"{self} belongs to no database since it was pickled; use .bind(db)")
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
            raise NotSupported(
                f"{self} is refused: this client may not list which tables there are; bound {field} on both sides"
            )
        found = self._compute_tables(spans, _MOST_TABLES)
        if found is None:
            raise self._too_many()
        return found

    def _too_many(self) -> ModelError:
        return ModelError(
            f"{self} is refused: it would visit more than {_MOST_TABLES} tables; give a shorter span of "
            f"{self._models[0].__name__}.{self._periods.field}"
        )

    def _check_bounds(self) -> None:
        if self._scan is not True and any(span.low is None and span.high is None for span in self._spans):
            field = f"{self._models[0].__name__}.{self._periods.field}"
            raise ScanRefused(
                f"{self} would visit the tables of all periods; bound {field}, as in {field} >= ..., or add "
                ".allow_scan()"
            )

    def _of_table(self, table: str) -> "_TableSelect[E_co]":
        """Return the query of one table."""
        where = self._where if table == self._kinds.table else self._table_conditions.of(table)
        query: _TableSelect[E_co] = _TableSelect(self._db, _kinds_in(self._kinds, table), self._models, where)
        return attrs.evolve(
            query,
            limit=self._limit,
            scan=self._scan,
            parallel=self._parallel,
            only=self._only,
            ordered=self._ordered,
            verified=self._verified,
            misfits=self._misfits,
            concurrency=self._concurrency,
        )

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
        requests = tuple(request for each in found for request in each.requests)
        most = [each.max_transactions for each in found]
        if tables is None:
            listing = ExplainedRequest(
                access=Access.RANGE, path="Tables()", filter=None, select=None, top=MAX_PAGE, client_side=()
            )
            requests, most = (listing, *requests), [None]
        few = sum(each.min_transactions for each in found) if self._limit is None else 1
        return attrs.evolve(
            found[0],
            query=str(self),
            access=max((each.access for each in found), key=RANKS.__getitem__),
            requests=requests,
            min_transactions=few + (tables is None),
            max_transactions=None if None in most else sum(each or 0 for each in most),
            client_side=tuple(dict.fromkeys(text for each in found for text in each.client_side)),
        )

    # Running

    async def all(self) -> list[E_co]:
        """Read every entity, in the order of the periods, and in key order within each. Raises what `page` does."""
        return [entity async for entity in self]

    async def _iterate(self, cursor: str | None, progress: ReadProgress | None) -> AsyncGenerator[E_co, None]:
        tables, inner = await self._resume_at(cursor)
        runs: dict[str, QueryExecution] = {}
        sources: list[UnsentRequest] = []
        wanted = self._limit
        latest = ""  # the table whose rows were loaded last

        def note_loads(table: str, load: Callable[[list[Row]], list[Any]]) -> Callable[[list[Row]], list[Any]]:
            def load_noted(rows: list[Row]) -> list[Any]:
                nonlocal latest
                latest = table
                return load(rows)

            return load_noted

        for number, table in enumerate(tables):
            run, position = await self._of_table(table)._begin(inner if number == 0 else None)
            if number == 0 and inner is not None:
                wanted = position.wanted
                sources += remaining_sources(run, position)
            else:
                sources += sources_of(run, in_order=run.ordered)
            run.wanted, run.load = wanted, note_loads(table, run.load)
            runs[table] = run
        if wanted == 0 or not runs:
            return
        if any(run.plan.merged for run in runs.values()):  # which send several requests in place of one
            turns = asyncio.Semaphore(self._concurrency)
            for run in runs.values():
                run.turns = turns
        found = load_entities(sources, requests_ahead(next(iter(runs.values()))), ordered=self._ordered)
        current = ""
        try:
            async for part in found:
                if not part:
                    continue
                if progress is not None and latest != current:
                    progress.begin(runs[latest], Position(wanted=wanted), self._limit, before=f"{latest}.")
                current = latest
                given = part if wanted is None else part[:wanted]
                wanted = None if wanted is None else wanted - len(given)
                for each in runs.values() if wanted is not None else ():
                    each.wanted = wanted
                for entity in given:
                    if progress is not None:
                        progress.note(entity)
                    yield entity
                if wanted == 0:
                    return
        except DecodeError as error:
            ended = next((table for table, run in runs.items() if run.misfit_at is not None), None)
            if ended is not None:
                error.cursor = cursor_behind_misfit(runs[ended], self._limit, before=f"{ended}.")
            if progress is not None:
                progress.note_misfit(error)
            raise
        finally:
            await found.aclose()

    async def _resume_at(self, cursor: str | None) -> tuple[list[str], str | None]:
        """Return the tables that are left from a cursor on, and the cursor in the first of them."""
        if cursor is None:
            return await self._find_tables(), None
        self._check_ordered()
        table, point, inner = str(cursor).partition(".")
        start = self._periods.start_of(table)
        if not point or not self._touches(table) or table != self._periods.name_of(start):
            raise CursorError(
                f"{str(cursor)[:40]!r} belongs to another query, or is no cursor; pass Page.cursor unchanged, or begin "
                "anew without a cursor"
            )
        tables = self._in_order([*await self._find_tables(), table])  # it may be gone by now, and is empty then
        return tables[tables.index(table) :], inner

    async def page(self, size: int = MAX_PAGE, cursor: str | None = None) -> Page[E_co]:
        """
        Fetch one page of results, table after table. It ends early, with a cursor, after ten tables. Takes and raises
        what a page of one table does.
        """
        if type(size) is not int or not 1 <= size <= MAX_PAGE:
            raise ModelError(f"page(size={size!r}) is refused: give a number of entities from 1 to {MAX_PAGE}")
        self._check_ordered()
        tables, inner = await self._resume_at(cursor)
        found: list[E_co] = []
        wanted = self._limit
        for number, table in enumerate(tables):
            run, position = await self._of_table(table)._begin(inner)
            if inner is None:
                position = Position(wanted=wanted)
                run.wanted = wanted
            if len(found) == size or number == _TABLES_OF_A_PAGE:
                return Page(found, f"{table}.{write_cursor(run.plan, position, self._limit)}")
            try:
                page = await fetch_page(run, position, size - len(found), self._limit, self._concurrency)
            except DecodeError as error:
                if found:  # the next page raises it
                    return Page(found, f"{table}.{write_cursor(run.plan, position, self._limit)}")
                error.cursor = None if error.cursor is None else f"{table}.{error.cursor}"
                raise
            found += page.items
            if page.cursor is not None:
                return Page(found, f"{table}.{page.cursor}")
            wanted = None if position.wanted is None else position.wanted - len(page.items)
            if wanted == 0:
                break
            inner = None
        return Page(found, None)

    async def count(self) -> int:
        """Count the entities, in several tables at the same time. Raises what `all` raises."""
        queries = [self._of_table(table) for table in await self._find_tables()]
        together = min(len(queries), self._concurrency, CONCURRENCY if self._limit is None else 4)
        remaining, total = iter(queries), 0

        async def work() -> None:
            nonlocal total
            for query in remaining:
                if self._limit is not None and total >= self._limit:
                    return
                found = await query.concurrency(max(1, self._concurrency // together)).count()
                total += found  # not before: others add to it meanwhile

        await work_together(work, together)
        return total if self._limit is None else min(total, self._limit)

    async def delete(
        self,
        *,
        if_match: str | None = None,
        concurrency: int = CONCURRENCY,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
    ) -> BulkReport:
        """
        Delete everything that the query finds, table after table. Whole periods are dropped at once by `drop_periods`.

        Takes and raises what `delete` of one table does.
        """
        total, left = BulkReport(), self._limit
        for table in await self._find_tables():
            query = self._of_table(table)
            before = total

            def tell(part: BulkReport, before: BulkReport = before) -> None:
                if on_progress is not None:
                    on_progress(_joined(before, part))

            if left is not None:
                query = query.limit(left)
            part = await query.delete(if_match=if_match, concurrency=concurrency, rate=rate, on_progress=tell)
            total = _joined(total, part)
            left = None if left is None else max(0, left - part.written - part.failures)
            if left == 0:
                break
        return total

    def split(self, parts: int) -> NoReturn:
        """Refuse to divide the query: it is divided by its periods. Raises ModelError."""
        check_count("split", parts)
        raise ModelError(
            f"{self}.split({parts}) is refused: it reads a table for each period; give each part a span of "
            f"{self._models[0].__name__}.{self._periods.field}"
        )

    async def _settle(self) -> NoReturn:  # what would read one table alone
        raise ModelError(f"{self} is refused in a union: it reads a table for each period; read it by itself")


class _TableSelect(Select[E_co]):
    """The query of one table of a period, which is empty if there is none."""

    def _start(self, *, keys_only: bool = False) -> QueryExecution:
        run = super()._start(keys_only=keys_only)
        run.may_lack_table = True
        return run


@lru_cache(maxsize=_MOST_TABLES)
def _kinds_in(kinds: KindSet, table: str) -> KindSet:
    """Return the kinds in the table of a period, the same object each time, which caches the plans of queries."""
    return KindSet(kinds.schemas, table, bags=kinds.bags)


def _joined(one: BulkReport, two: BulkReport) -> BulkReport:
    return BulkReport(
        one.written + two.written,
        (*one.failed, *two.failed)[:FAILURES_KEPT],
        one.failures + two.failures,
        one.requests + two.requests,
    )
