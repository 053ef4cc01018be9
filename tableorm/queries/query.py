"""
Queries: immutable descriptions of what to read, and the ways to run them.

    plan -> requests -> pages of rows -> residual conditions -> kind -> upgrade -> decode
"""

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import Any, Self, TypeVar

import attrs

from ..connection.index_states import find_unreadable, known_unreadable, not_readable
from ..connection.nearby import NearbyRows
from ..connection.observe import QueryWork
from ..errors import (
    CursorError,
    DecodeError,
    EncodeError,
    EntityNotFound,
    ModelError,
    MultipleEntitiesFound,
    NotSupported,
    TableOrmError,
    Unavailable,
)
from ..expressions import Expression, Field
from ..models.kinds import KindSet
from ..protocol.limits import MAX_PAGE
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.report import BulkReport
from .count import count_rows
from .cursors import cursor_at, read_cursor, sources_of
from .delete import delete_results, needs_whole_rows
from .description import QueryDescription
from .execution import CONCURRENCY, Allowance, FetchedPage, Position, QueryExecution, bound_together
from .explain import WITHOUT_KIND, Explanation
from .follow import check_durations, find_moment, follow_log
from .misfits import taker_of
from .misuse import check_count
from .pages import EntityStream, Page, Results, fetch_page
from .planning.index_choice import choose_index
from .planning.index_following import PrimaryFetch, conditions_on_entries, plan_fetch, unverified_kinds
from .planning.normalize import refuse_encrypted
from .planning.partition import divide_plan
from .planning.plan import Access, QueryPlan
from .planning.planner import Planner, planner_of
from .planning.target import QueryTarget
from .progress import ReadProgress, key_of_entity
from .projection import Projection
from .run import fetch_pages, load_entities, requests_ahead

E_co = TypeVar("E_co", covariant=True)

NeedsKeys = Callable[[QueryTarget], bool]
"""Tells of the rows that are read whether what tells their keys and kinds is enough."""


def _needs_entities(_: QueryTarget) -> bool:
    """Read what entities are made of."""
    return False


@attrs.frozen(eq=False, repr=False, slots=False)  # for what is cached
class Query(QueryDescription[E_co]):
    """
    What every query can do. A query is immutable: each method returns a new one. Nothing is sent until you read its
    results.
    """

    # Describing

    def split(self, parts: int) -> list[Self]:
        """
        Divide the query into queries for disjoint key ranges, to be run by several tasks or, once pickled, by several
        machines.

            for part in db.select(Reading).allow_scan().split(8):
                tasks.create_task(export(part))

        The parts cover about equal numbers of possible keys, which isn't the same as equal numbers of rows; strings are
        expected to begin with ASCII letters and digits. Bind a pickled query before you use it:
        `pickle.loads(data).bind(db)`.

        Args:
            parts: The maximum number of parts. There are fewer if the conditions leave fewer keys.

        Raises:
            ModelError: `parts` is not a positive number, or the query has a limit, which makes no sense for a part.
        """
        check_count("split", parts)
        if self._limit is not None:
            raise ModelError(
                f"{self}.split({parts}) is rejected: a limit applies to the whole query, not to its parts; remove it"
            )
        # All parts read by the same index, or by none.
        query = self._without_unreadable(assumed=False)
        plan = attrs.evolve(query, scan=True)._plan(query._select)
        return [attrs.evolve(query, interval=interval) for interval in divide_plan(plan, parts, self._interval)]

    def explain(self) -> Explanation:
        """
        Show the requests that the query would send, and what they cost. Nothing is sent.

            print(db.select(Employee).where(Employee.age > 30).allow_scan().explain())

        Until the store has been asked, indexes count as complete.

        Raises:
            ScanRefused: The query would visit every partition, or a range of them; add a condition, or `.allow_scan()`.
        """
        query = self._without_unreadable(assumed=True)
        found = query._explain(query._plan(query._select), show_values=True)
        then = tuple([str(relation) for path in self._loads for relation in path])
        return attrs.evolve(found, then=then, max_transactions=None) if then else found

    # Running

    def __aiter__(self) -> AsyncIterator[E_co]:
        return self._iterate(None, None)

    def stream(self, cursor: str | None = None) -> EntityStream[E_co]:
        """
        Iterate over the results inside a block. Leaving the block immediately cancels the requests in progress.

            async with query.stream() as stream:
                async for entity in stream: ...

        Args:
            cursor: Where to resume: `Page.cursor` or `EntityStream.cursor` of an earlier run.
        """
        return EntityStream(self._iterate, cursor)

    async def all(self) -> list[E_co]:
        """
        Read all results into a list, in key order.

            employees = await db.select(Employee).where(Employee.department == "Sales").all()

        Raises:
            ScanRefused: The query would visit every partition, or a range of them; add a condition, or `.allow_scan()`.
            TableNotFound: There is no such table.
            DecodeError: A row does not fit its model.
        """
        # Where misfits are expected, one query for both would often be given up.
        if len(self._loads) == 1 and self._db and self._limit is None and self._misfits == "raise":
            relation, *more = self._loads[0]
            if not more and self._models == (relation.model,):
                found = await relation._read_with(self._db, self, self._where)  # pyright: ignore[reportPrivateUsage]
                if found is not None:
                    return Results(found)
        return Results([entity async for part in await self._loaded_results(None) for entity in part])

    async def first(self) -> E_co | None:
        """
        Read the first result in key order, or return None if there is none. Raises the same errors as `all`.

            latest = await db.select(Login).where(Login.user == "ken").first()
        """
        found = await self._first(1)
        return found[0] if found else None

    async def one(self) -> E_co:
        """
        Read the only result.

            jun = await db.select(Employee.by_email).where(
                Employee.department == "Sales", Employee.email == "jun@contoso.com"
            ).one()

        Raises:
            EntityNotFound: There is none.
            MultipleEntitiesFound: There are several.
        """
        entity = await self.one_or_none()
        if entity is None:
            hint = "" if self._kinds.filter is None else f" of its kind; {WITHOUT_KIND}"
            raise EntityNotFound(f"{self} finds nothing{hint}")
        return entity

    async def one_or_none(self) -> E_co | None:
        """
        Read the only result, or return None if there is none.

            jun = await query.one_or_none()

        Raises:
            MultipleEntitiesFound: There are several.
        """
        found = await self._first(2)
        if len(found) > 1:
            raise MultipleEntitiesFound(
                f"{self} finds several entities, the first are {found[0]!r} and {found[1]!r}; narrow it, or use first()"
            )
        return found[0] if found else None

    async def count(self) -> int:
        """
        Count the results; only keys and kinds are read. Raises the same errors as `all`.

            await db.select(Employee).where(Employee.department == "Sales").count()
        """
        runs = await self._open(None, lambda _: True)
        if any(run.plan.target.fetches_primaries or run.plan.target.kinds.hides for run in runs):
            return await self._count_entities(None if self._kinds.bags else ())
        # Nothing is sorted only to be counted.
        pages = self._fetch_pages(runs, in_order=any(run.wanted is not None and not run.sorted_here for run in runs))
        return await count_rows(pages, self._limit)

    async def exists(self) -> bool:
        """
        Return whether there is any result. Raises the same errors as `all`.

            if await db.select(Employee).where(Employee.department == "HR").exists(): ...
        """
        return await self.limit(1 if self._limit is None else min(self._limit, 1)).count() > 0

    async def page(self, size: int = MAX_PAGE, cursor: str | None = None) -> Page[E_co]:
        """
        Read one page of results, in key order.

            page = await query.page(50, cursor)
            return page.items, page.cursor

        Args:
            size: The maximum number of entities, 1 to 1000. A page ends after ten requests, so it may have fewer
                entities, or even none, although more follow.
            cursor: `Page.cursor` of an earlier page. You can store it, and use it in another process.

        Returns:
            The entities and the cursor of the next page, which is None after the last one.

        Raises:
            CursorError: The cursor belongs to another query, or the query is unordered.
            ScanRefused: The query would scan; add `.allow_scan()` if you mean it.

        Source: Table service REST, "Query Timeout and Pagination".
        """
        if type(size) is not int or not 1 <= size <= MAX_PAGE:
            raise ModelError(f"page(size={size!r}) is rejected: give an int from 1 to {MAX_PAGE}")
        self._check_ordered()
        owners: list[QueryExecution] = []
        async with aclosing(self._runs(cursor)) as runs:
            page = await fetch_page(runs, size, self._concurrency, owners)
        failed = await self._load_for(page.items)
        if failed is None:
            return page
        number, error = failed
        run, last = owners[max(number - 1, 0)], page.items[max(number - 1, 0)]
        left = None if run.wanted is None else run.wanted + len(page.items) - number
        error.cursor = cursor_at(run, Position(key_of_entity(last), wanted=left))
        if number:  # the next page raises it
            return Page(page.items[:number], error.cursor)
        raise error

    async def pages(self, size: int = MAX_PAGE, cursor: str | None = None) -> AsyncGenerator[Page[E_co], None]:
        """
        Yield one page after another, as `page` returns them. You can store the cursor of each. Raises the same errors
        as `page`.

            async for page in query.pages(100):
                print(len(page.items), page.cursor)
        """
        while True:
            page = await self.page(size, cursor)
            if page.cursor is not None and page.cursor == cursor:
                raise Unavailable(f"{self}: the store returned rows that come before the cursor")
            yield page
            if page.cursor is None:
                return
            cursor = page.cursor

    def follow(
        self,
        *,
        lag: dt.timedelta,
        since: dt.datetime | None = None,
        pause: dt.timedelta = dt.timedelta(seconds=5),
    ) -> AsyncGenerator[E_co, None]:
        """
        Yield what is appended to a log, each entity once, until you stop iterating.

            events = db.select(Event).where(Event.source == "door")
            async for event in events.follow(lag=dt.timedelta(seconds=10)):
                print(event)

        RowKeys must be sorted by a time, as with `row_key="{at:ticks_desc}_{id}"`. The results of each poll come in
        order of time. The last `lag` is read again every time, because the clocks of writers differ and writes may
        arrive late; whatever arrives later than that is missed. A row that doesn't fit its model comes after the others
        of its poll.

        Args:
            lag: How far a new entity's time may be behind this process's clock.
            since: The time to start from, to resume after a stop; None to start now.
            pause: The longest pause between two polls; it's shorter while new entities keep coming.

        Raises:
            ModelError: RowKeys don't begin with a time, or the query has a limit.
            DecodeError: A row does not fit its model.
            ScanRefused: The query would visit every partition, or a range of them.

        Source: table design guide, "Log tail pattern".
        """
        check_durations(str(self), lag, pause)
        if self._limit is not None:
            raise ModelError(f"{self}.follow() is rejected: it never ends, so it takes no limit; remove limit()")
        moment = find_moment(str(self), self._kinds, self._conditions)

        async def read(
            start: dt.datetime, end: dt.datetime | None, most: int | None, errors: list[DecodeError]
        ) -> list[E_co]:
            within = (moment >= start,) if end is None else (moment >= start, moment < end)
            query = self.misfits(errors.append)
            return await attrs.evolve(query, where=self._where + within, limit=most, ordered=True).all()

        return follow_log(read, moment.name, lag=lag, since=since, pause=pause, misfits=self._misfits)

    async def delete(
        self,
        *,
        if_match: str | None = None,
        concurrency: int = CONCURRENCY,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
    ) -> BulkReport:
        """
        Delete everything that the query finds, in transactions by partition, while it is being found.

            report = await db.select(Event).where(Event.source == "door").delete()

        A row that changed after it was found stays and is reported with `PreconditionFailed`; one that was deleted is
        reported with `EntityNotFound`. Rows that are derived from an entity, such as its index entries, are deleted
        together with it.

        Args:
            if_match: "*" to delete rows even if they changed after they were found.
            concurrency: The maximum number of transactions at a time.
            rate: The maximum number of rows to delete per second.
            on_progress: Called with the report after each transaction.

        Returns:
            A report of how many rows were deleted, and which were not.

        Raises:
            ScanRefused: The query would visit every partition, or a range of them; add a condition, or `.allow_scan()`.
            TableNotFound: There is no such table.

        Source: table design guide, "High volume delete pattern", which deletes whole tables where it can.
        """
        if if_match not in (None, "*"):
            problem = "is rejected: each row has its own ETag; give '*' or nothing"
            raise EncodeError(problem, f"delete of {self._head()}", "if_match", if_match)
        runs = await self._open(None, lambda target: target.primaries is None and not needs_whole_rows(target.kinds))
        assert self._db is not None
        bulk = Bulk(self._db, concurrency=concurrency, rate=rate, on_progress=on_progress, errors="report")
        return await delete_results(bulk, self._fetch_pages(runs, in_order=self._limit is not None), if_match)

    # Inside

    @property
    def _reads_entries(self) -> bool:
        """Whether entries of an index are asked for, instead of entities that perhaps are found by one."""
        return any(schema.primary is not None for schema in self._kinds.schemas)

    async def _settle(self) -> Self:
        """
        Return the query without indexes that may be incomplete. The store is asked for their states, if need be.

        Raises:
            NotSupported: Entries of such an index are asked for.
        """
        undecided, db = self._planner.target.undecided, self._db
        if not undecided or db is None:
            return self
        unreadable = await find_unreadable(db, undecided)
        # A part of a query that was divided for the keys of an index has no other keys.
        if unreadable and (self._reads_entries or self._interval is not None):
            raise not_readable(db, unreadable[0])
        return self._without_unreadable(assumed=False) if unreadable else self

    def _without_unreadable(self, *, assumed: bool) -> Self:
        """
        Return the query without indexes that are not known to be complete; itself, if it asks for the entries of one.
        Nothing is sent.

        Args:
            assumed: Whether they count as complete as long as the store was not asked.
        """
        query = self
        while not self._reads_entries and (
            found := known_unreadable(self._db, query._planner.target.undecided, assumed=assumed)
        ):
            query = attrs.evolve(query, hidden=(*query._hidden, *found))
        return query

    def _start(self, needs_keys: NeedsKeys) -> QueryExecution:
        """Plan the query."""
        db, target, primaries = self._db, self._planner.target, self._primaries
        if db is None:
            raise NotSupported(f"{self} has no database, because it was pickled; use .bind(db)")
        if db.encryption is not None:
            for each in self._conditions:
                refuse_encrypted(planner_of(self._kinds).target, each, db)
        store, keys_only = db.require_open(), needs_keys(target)
        plan = self._plan(Projection.of(target.kinds, ()).select if keys_only else self._select)
        name, work = planner_of(self._kinds).target.name, None if db.watch.slow is None else self._work(plan)
        nearby: NearbyRows | None = None
        if target.fetches_primaries or (self._reads_twice and not keys_only):
            read = target if primaries is None else primaries.target
            select = None if primaries is None else primaries.select
            nearby = NearbyRows(db, read.table, select, name=name, concurrency=self._concurrency, work=work)
        return QueryExecution(
            db=db,
            plan=plan,
            load=target.kinds.load_all if keys_only or self._only is None else self._projection.load_all,
            limit=self._limit,
            allowance=Allowance(self._limit),
            concurrency=self._concurrency,
            name=name,
            before="" if self._part is None else f"{self._part}.",
            may_lack_table=self._part is not None,
            ordered=self._ordered,
            sorted_here=not store.capabilities.ordered,
            primaries=primaries,
            nearby=nearby,
            take_misfit=taker_of(self._misfits),
            work=work,
        )

    def _work(self, plan: QueryPlan) -> QueryWork:
        """Return what is to be known of a run, for warnings of slow queries."""
        return QueryWork(lambda shown: str(self._explain(plan, show_values=shown)), plan.access is Access.TABLE_SCAN)

    @property
    def _reads_twice(self) -> bool:
        """Whether rows of an older version may have to be read once more: in full, or their primaries."""
        partly = self._only is not None or self._planner.target.primaries is not None
        return partly and any(schema.version > 1 for schema in self._kinds.schemas)

    def _explain(self, plan: QueryPlan, *, show_values: bool) -> Explanation:
        primaries = self._primaries if plan.target.fetches_primaries else None
        return self._explain_plan(plan, self._conditions, primaries, show_values=show_values)

    async def _iterate(self, cursor: str | None, progress: ReadProgress | None) -> AsyncGenerator[E_co, None]:
        """Yield the results from a cursor on; `progress` is told what is given."""
        async with aclosing(await self._loaded_results(cursor, progress)) as found:
            try:
                async for part in found:
                    for entity in part:
                        if progress is not None:
                            progress.note(entity)
                        yield entity
            except DecodeError as error:
                if progress is not None:
                    progress.note_misfit(error)
                raise

    async def _loaded_results(
        self, cursor: str | None, progress: ReadProgress | None = None
    ) -> AsyncGenerator[list[E_co], None]:
        """Return the results from a cursor on, some at a time, with what the query loads for them."""
        if not self._loads:
            return await self._results(cursor, progress)
        bare, known = attrs.evolve(self, loads=()), progress or ReadProgress()
        found = await bare._results(cursor, known)
        return self._load_by_pages(_in_pages(found, known, by_part=progress is not None), known.wanted)

    async def _load_by_pages(
        self, found: AsyncGenerator[list[tuple[E_co, QueryExecution | None]], None], left: int | None
    ) -> AsyncGenerator[list[E_co], None]:
        """Yield results page by page, with what the query loads for them; as many are `left` as its limit allows."""
        async with aclosing(found) as pages:
            async for each in pages:
                page = [entity for entity, _ in each]
                failed = await self._load_for(page)
                if failed is not None:
                    number, error = failed
                    yield page[:number]
                    entity, run = each[number]
                    if run is not None and run.ordered:
                        wanted = None if left is None else left - number
                        error.cursor = cursor_at(run, Position(key_of_entity(entity), wanted=wanted))
                    raise error
                yield page
                left = None if left is None else left - len(page)

    async def _load_for(self, entities: Sequence[E_co]) -> tuple[int, DecodeError] | None:
        """
        Load what belongs to entities. If that leads to rows that do not fit, and nobody takes these, return the number
        of the first entity that lacks something, and the error.
        """
        errors: list[DecodeError] = []
        if self._loads and entities and self._db is not None:
            policy = errors.append if self._misfits == "raise" else self._misfits
            for path in self._loads:
                own = [entity for entity in entities if isinstance(entity, path[0].model)]
                await self._db.reader.load(own, *path, misfits=policy)
        if not errors:
            return None
        first = {id(parent): error for error in reversed(errors) for parent in error.parents}
        return next((number, first[id(each)]) for number, each in enumerate(entities) if id(each) in first)

    async def _results(
        self, cursor: str | None, progress: ReadProgress | None = None
    ) -> AsyncGenerator[list[E_co], None]:
        """Return the results from a cursor on, some at a time."""
        runs = await self._open(cursor)
        if progress is not None and runs:
            progress.wanted = runs[0].wanted
        sources = [source for run in runs for source in sources_of(run, in_order=self._ordered)]
        ahead = requests_ahead(runs[0]) if runs else 0
        return load_entities(sources, ahead, ordered=self._ordered, progress=progress)

    async def _count_entities(self, only: tuple[Field[Any], ...] | None) -> int:
        """Count what has to be read to be counted, with no more than these fields; with all for None."""
        query = attrs.evolve(self, only=only, ordered=False)
        total = 0
        async for part in await query._results(None):
            total += len(part)
        return total

    def _check_ordered(self) -> None:
        if not self._ordered:
            raise CursorError(f"{self} has no cursors, because its results have no order; remove .unordered()")

    def _first(self, count: int) -> Awaitable[list[E_co]]:
        return self.limit(count if self._limit is None else min(count, self._limit)).all()

    @cached_property
    def _planner(self) -> Planner:
        """The planner of the rows that are read: those asked for, or the entries of an index that serves better."""
        kinds = self._kinds if self._verified else unverified_kinds(self._kinds)
        planner, conditions = planner_of(kinds), self._conditions
        if not planner.target.indexes or not conditions or (self._db is not None and self._db.guarded):
            return planner
        return choose_index(planner, conditions, self._hidden)

    @cached_property
    def _conditions(self) -> tuple[Expression, ...]:
        """The conditions, and those of the scope."""
        if self._db is None or not self._db.boundary.narrows:
            return self._where
        return self._where + self._db.boundary.narrow(self._kinds, self._where)

    @cached_property
    def _projection(self) -> Projection:
        return Projection.of(self._planner.target.kinds, self._only or ())

    @cached_property
    def _primaries(self) -> PrimaryFetch | None:
        """How primaries are fetched, if index entries are read."""
        target = self._planner.target
        return plan_fetch(target, self._conditions, self._only) if target.primaries is not None else None

    @property
    def _select(self) -> tuple[str, ...] | None:
        """The properties to ask for; None for all."""
        return self._projection.select if self._only is not None or self._planner.target.asks_addresses else None

    def _plan(self, select: tuple[str, ...] | None) -> QueryPlan:
        """Plan the query for these properties. Page after page has the same plan, as the query is immutable."""
        plan = self._plans.get(select)
        if plan is None:
            planner, conditions = self._planner, self._conditions
            if planner.target.primaries is not None:
                conditions = conditions_on_entries(planner.target, conditions)
            plan = self._plans[select] = planner.plan(
                conditions, allow_scan=self._scan, select=select, interval=self._interval, parallel=self._parallel
            )
        return plan

    async def _parts(self, cursor: str | None) -> "tuple[Sequence[Query[E_co]], str | None]":
        """
        Return the queries that this one consists of, one after the other, from a cursor on, and the cursor in the
        first of them. Each is a query of one table, and is made with `part` if it is not the query itself: its cursors
        begin with that and a point.
        """
        return (self,), cursor

    async def _runs(self, cursor: str | None) -> AsyncGenerator[QueryExecution, None]:
        """Yield the parts of the query as `_open` returns them, each planned when its turn comes."""
        shared: Allowance | None = None
        try:
            parts, inner = await self._parts(cursor)
            for part in parts:
                run = await part._begin(inner, _needs_entities)
                inner, shared = None, shared or run.allowance
                run.allowance = shared
                yield run
        except TableOrmError as error:
            raise error.with_traceback(None) from error.__cause__

    async def _open(self, cursor: str | None, needs_keys: NeedsKeys = _needs_entities) -> list[QueryExecution]:
        """Return the parts of the query as they run together, from a cursor on; they share its limit."""
        runs: list[QueryExecution] = []
        try:
            if cursor is not None:
                self._check_ordered()
            parts, inner = await self._parts(cursor)
            for part in parts:
                runs.append(await part._begin(inner, needs_keys))
                inner, runs[-1].allowance = None, runs[0].allowance
        except TableOrmError as error:
            raise error.with_traceback(None) from error.__cause__
        bound_together(runs, self._concurrency)
        return runs

    async def _begin(self, cursor: str | None, needs_keys: NeedsKeys) -> QueryExecution:
        """
        Plan the query of one table, from a cursor on. The cursor may be of a program, or of a time, that read by an
        index which this program took for incomplete, or that took one for incomplete which is read now.
        """
        query = await self._settle()
        try:
            return query._resume(cursor, needs_keys)
        except CursorError:
            undecided = query._planner.target.undecided
            if undecided and not self._reads_entries:
                return attrs.evolve(query, hidden=(*query._hidden, *undecided))._resume(cursor, needs_keys)
            if query is self or self._db is None:
                raise
            self._db.known_states.asked = None  # another program may know more
            return (await self._settle())._resume(cursor, needs_keys)

    def _resume(self, cursor: str | None, needs_keys: NeedsKeys) -> QueryExecution:
        run = self._start(needs_keys)
        if cursor is not None:
            run.position = read_cursor(run.plan, cursor, self._limit)
            run.wanted = run.position.wanted
        return run

    def _fetch_pages(self, runs: Sequence[QueryExecution], *, in_order: bool) -> AsyncGenerator[FetchedPage, None]:
        ordered = self._ordered and in_order
        sources = [source for run in runs for source in sources_of(run, in_order=ordered)]
        # With a limit one request after the other, to ask for little, and for the first.
        return fetch_pages(sources, requests_ahead(runs[0]) if runs else 0, ordered=ordered)

    def __reduce__(self) -> tuple[Any, ...]:
        state = attrs.asdict(self, recurse=False)
        del state["_db"], state["_kinds"], state["_plans"]
        return _restore, (type(self), self._kinds.table, state)


async def _in_pages(
    found: AsyncGenerator[list[E_co], None], progress: ReadProgress, *, by_part: bool
) -> AsyncGenerator[list[tuple[E_co, QueryExecution | None]], None]:
    """Yield results when about a page of them came, or of a part of the query; each with the part that has found it."""
    waiting: list[tuple[E_co, QueryExecution | None]] = []
    async with aclosing(found):
        try:
            async for part in found:
                run = progress.run
                if waiting and (len(waiting) >= MAX_PAGE or (by_part and waiting[-1][1] is not run)):
                    yield waiting
                    waiting = []
                waiting += [(entity, run) for entity in part]
        except DecodeError:  # the entities before it are given first
            yield waiting
            raise
    yield waiting


async def start_query(query: Query[Any]) -> list[QueryExecution]:
    """Plan the parts of a query, to be run by the caller. Raises ScanRefused if it would visit every partition."""
    return await query._open(None)  # pyright: ignore[reportPrivateUsage]


async def results_of(query: Query[Any]) -> AsyncGenerator[list[Any], None]:
    """Return the results of a query, some at a time; other tasks get turns between them. Raises what `all` does."""
    return await query._results(None)  # pyright: ignore[reportPrivateUsage]


def loads_relations(query: Query[Any]) -> bool:
    """Return whether a query loads what belongs to the entities that it finds."""
    return bool(query._loads)  # pyright: ignore[reportPrivateUsage]


def limit_of(query: Query[Any]) -> int | None:
    """Return the limit of a query; None if it has none."""
    return query._limit  # pyright: ignore[reportPrivateUsage]


def plan_query(query: Query[Any], *, assumed: bool) -> QueryPlan | None:
    """
    Return the plan of a query, without sending anything; None if it has none of its own, as one of several tables.

    Args:
        query: The query.
        assumed: Whether indexes count as complete as long as the store was not asked.

    Raises:
        ScanRefused: It would visit every partition.
    """
    if query._kinds.periods is not None or query._kinds.home is not None:  # pyright: ignore[reportPrivateUsage]
        return None
    settled = query._without_unreadable(assumed=assumed)  # pyright: ignore[reportPrivateUsage]
    return settled._plan(settled._select)  # pyright: ignore[reportPrivateUsage]


def _restore(cls: type[Query[Any]], table: str, state: dict[str, Any]) -> Query[Any]:
    kinds = KindSet.of(state["_models"], table)
    return cls(None, kinds, **{name.removeprefix("_"): value for name, value in state.items()})
