"""
Queries: immutable descriptions of what to read, and the ways to run them.

    plan -> requests -> pages of rows -> conditions that are evaluated here -> kind -> upgrade -> decode
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import attrs

from ..connection.connection import TURN
from ..derived.index.index import IndexOf
from ..errors import CursorError, EntityNotFound, ModelError, MultipleEntitiesFound, NotSupported
from ..expressions import AllOf, AnyOf, Expression, Field, Membership
from ..keys.ranges import KeyInterval
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..protocol.limits import MAX_PAGE
from ..stores import Row
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.report import BulkReport
from .cursors import Place, digest_of, read_cursor, remaining, write_cursor
from .explain import Explanation, explain
from .pages import EntityStream, Page, fill
from .planning.index_choice import path_of
from .planning.index_following import confirming, of_copies
from .planning.partition import shares
from .planning.plan import Point, QueryPlan
from .planning.planner import plan_query
from .projection import Projection
from .run import CONCURRENCY, QueryExecution, Source, batches, parts

if TYPE_CHECKING:
    from ..connection.connection import Connection
    from ..models.entity import Entity

__all__ = ["Query", "Select"]

E_co = TypeVar("E_co", covariant=True)

# Ranges that are read ahead of a limit, which may be reached before they are needed.
_AHEAD_OF_A_LIMIT = 4
# Alternatives that take longer to plan than the event loop shall wait.
_MANY = 100


@attrs.frozen(eq=False, repr=False, slots=False)  # for what is cached
class Query(Generic[E_co]):
    """
    A query. Immutable: each method returns another; nothing is sent before it is iterated or awaited.
    """

    _db: "Connection | None"
    _kinds: KindSet
    _models: "tuple[type[Any] | IndexOf[Any], ...]"
    _where: tuple[Expression, ...] = ()
    _limit: int | None = None
    _scan: bool = False
    _parallel: int = 1
    _span: KeyInterval | None = None
    _only: tuple[Field[Any], ...] | None = None
    _ordered: bool = True
    _concurrency: int = CONCURRENCY
    _plans: dict[tuple[str, ...] | None, QueryPlan] = attrs.field(init=False, factory=lambda: {})  # noqa: PIE807

    # Describing

    def limit(self, count: int) -> Self:
        """
        At most `count` entities, from 0, the first in key order.

        Raises:
            ModelError: A negative count.
        """
        if type(count) is not int or count < 0:
            raise ModelError(f"limit({count!r}) is refused: give a number of entities from 0")
        return attrs.evolve(self, limit=count)

    def allow_scan(self, *, parallel: int = 1) -> Self:
        """
        Let the query visit every partition, where its conditions do not give some.

        Args:
            parallel: Divide the keys into about so many ranges, read at the same time; as `split`.

        Raises:
            ModelError: `parallel` is no number from 1.
        """
        _check_count("allow_scan(parallel=...)", parallel)
        return attrs.evolve(self, scan=True, parallel=parallel)

    def unordered(self) -> Self:
        """Give results as they come, instead of in key order. There are no cursors then."""
        return attrs.evolve(self, ordered=False)

    def concurrency(self, count: int) -> Self:
        """
        Send at most `count` requests at the same time; 16 is the default.

        Raises:
            ModelError: It is no number from 1.
        """
        _check_count("concurrency", count)
        return attrs.evolve(self, concurrency=count)

    def bind(self, db: "Connection") -> Self:
        """The same query on another database; one that was pickled has none."""
        return attrs.evolve(self, db=db)

    def split(self, parts: int) -> list[Self]:
        """
        Queries of disjoint ranges of keys that together are this one: for tasks, or pickled, for machines.

        Each is of about as many possible keys, not of as many rows; text is taken to begin with ASCII letters and
        digits. Bind a pickled one before use: `pickle.loads(data).bind(db)`.

        Args:
            parts: How many, at most; fewer where the conditions leave fewer keys.

        Raises:
            ModelError: `parts` is no number from 1, or the query has a limit, which has no meaning for a part.
        """
        _check_count("split", parts)
        if self._limit is not None:
            raise ModelError(f"{self}.split({parts}) is refused: a limit counts the results of all parts; remove it")
        plan = attrs.evolve(self, scan=True)._plan()
        return [attrs.evolve(self, span=span) for span in shares(plan, parts, self._span)]

    def explain(self) -> Explanation:
        """
        What will be sent and what it costs; nothing is sent. Of thousands of alternatives it takes milliseconds, in
        which an event loop stands still: ask in a thread, if that matters.

        Raises:
            ScanRefused: The query would visit every partition; add a condition, or `.allow_scan()`.
        """
        plan = self._plan()
        # An entity of an older version, of which only some fields are wanted, is read once more.
        twice = self._only is not None and any(schema.version > 1 for schema in self._kinds.schemas)
        return explain(str(self), plan, self._limit, ordered=self._ordered, concurrency=self._concurrency, twice=twice)

    # Running

    def __aiter__(self) -> AsyncIterator[E_co]:
        return self.iterate(None, None)

    def stream(self, cursor: str | None = None) -> "EntityStream[E_co]":
        """
        The results in a block: `async with query.stream() as stream: async for entity in stream: ...`.

        Leaving the block cancels what is outstanding, at once.

        Args:
            cursor: Where to go on: `Page.cursor` or `EntityStream.cursor` of an earlier run.
        """
        return EntityStream(self, cursor)

    async def all(self) -> list[E_co]:
        """
        Every entity, in key order.

        Raises:
            ScanRefused: The query would visit every partition; add a condition, or `.allow_scan()`.
            TableNotFound: There is no such table.
            DecodeError: A row does not fit its model.
        """
        return [entity async for entity in self]

    async def first(self) -> E_co | None:
        """The first entity in key order; None if there is none. Raises as `all`."""
        found = await self._first(1)
        return found[0] if found else None

    async def one(self) -> E_co:
        """
        The only entity.

        Raises:
            EntityNotFound: There is none.
            MultipleEntitiesFound: There are several.
        """
        entity = await self.one_or_none()
        if entity is None:
            raise EntityNotFound(f"{self} finds nothing")
        return entity

    async def one_or_none(self) -> E_co | None:
        """
        The only entity; None if there is none.

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
        """How many entities there are. Rows are read for it, with what tells their kind alone. Raises as `all`."""
        kinds, total = self._path, 0
        if kinds.follows:
            async for _ in self:
                total += 1
            return total
        run = await self._start(Projection.of(kinds, ()).select, kinds.load_all)
        # Nothing is sorted only to be counted.
        in_order = run.left is not None and run.db.store.capabilities.ordered
        async with aclosing(self._batches(run, in_order=in_order)) as pages:
            async for batch in pages:
                for start in range(0, len(batch.rows), TURN):
                    part = run.passing(batch.request, batch.rows[start : start + TURN])
                    total += len(part) if kinds.bags else sum(kinds.resolve(row) is not None for row in part)
                    await run.db.yield_to_loop(len(part))
                if self._limit is not None and total >= self._limit:
                    return self._limit
        return total

    async def exists(self) -> bool:
        """Whether there is any entity. Raises as `all`."""
        return await self.limit(1 if self._limit is None else min(self._limit, 1)).count() > 0

    async def page(self, size: int = MAX_PAGE, cursor: str | None = None) -> Page[E_co]:
        """
        Fetch one page of results, in key order.

        Args:
            size: Entities at most, 1 to 1000. After ten requests for ranges a page is given as it is: it may have
                fewer, even none, and more may follow.
            cursor: `Page.cursor` of an earlier page; it can be stored and used in another process.

        Returns:
            The entities and the cursor of the next page, None after the last.

        Raises:
            CursorError: The cursor belongs to another query, or the query is unordered.
            ScanRefused: The query would scan; add `.allow_scan()` if that is meant.

        Source: Table service REST, "Query Timeout and Pagination".
        """
        if type(size) is not int or not 1 <= size <= MAX_PAGE:
            raise ModelError(f"page(size={size!r}) is refused: give a number of entities from 1 to {MAX_PAGE}")
        run, place = await self._resume(cursor)
        left = run.left
        run.left = size if left is None else min(size, left)
        found, after = await fill(run, place, self.ahead(run))
        if after is None or (left is not None and len(found) >= left):
            return Page(found, None)
        place = attrs.evolve(after, left=None if left is None else left - len(found))
        return Page(found, write_cursor(run.plan, place, self._limit))

    async def pages(self, size: int = MAX_PAGE, cursor: str | None = None) -> AsyncGenerator[Page[E_co], None]:
        """Page after page, as `page` gives them; of each the cursor can be stored."""
        while True:
            page = await self.page(size, cursor)
            yield page
            if page.cursor is None:
                return
            cursor = page.cursor

    async def delete(
        self,
        *,
        if_match: str | None = None,
        concurrency: int = CONCURRENCY,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
    ) -> BulkReport:
        """
        Delete everything that the query finds, in transactions of each partition, while it is found.

        A row is deleted if it is still as it was found, so that one which no longer satisfies the conditions stays; it
        is reported with `PreconditionFailed`. One that is gone by then is reported with `EntityNotFound`. What is
        derived from entities of the models, as copies in indexes, goes with these, and is not deleted by itself.

        Args:
            if_match: "*" deletes the rows whatever became of them.
            concurrency: Transactions at the same time, at most.
            rate: Rows a second, at most.
            on_progress: Called with the report after each transaction.

        Returns:
            What became of the rows.

        Raises:
            ScanRefused: The query would visit every partition; add a condition, or `.allow_scan()`.
            TableNotFound: There is no such table.

        Source: table design guide, "High volume delete pattern", which deletes tables instead where it can.
        """
        if if_match not in (None, "*"):
            raise ModelError(f"delete(if_match={if_match!r}) is refused: rows have an ETag each; give '*' or nothing")
        kinds, left = self._path, self._limit
        if kinds.primaries is not None:
            return await self._delete_primaries(if_match, concurrency=concurrency, rate=rate, on_progress=on_progress)
        run = await self._start(Projection.of(kinds, ()).select, kinds.load_all)
        async with (
            Bulk(run.db, concurrency=concurrency, rate=rate, on_progress=on_progress) as bulk,
            aclosing(self._batches(run, in_order=left is not None)) as pages,
        ):
            async for batch in pages:
                for row in run.passing(batch.request, batch.rows):
                    resolved = kinds.resolve(row)
                    if left == 0 or (resolved is None and (not kinds.bags or kinds.derives(row))):
                        continue
                    model = PropertyBag if resolved is None else resolved[0].model
                    key: Key[Any] = Key(model, kinds.table, row["PartitionKey"], row["RowKey"])
                    # What others keep in an entity of an older version may be called otherwise: it is read in full.
                    older = resolved is not None and resolved[1] < resolved[0].version and bool(resolved[0].maintained)
                    if if_match is None and not older:
                        await bulk.delete_found(key, row)
                    else:
                        await bulk.delete(key, if_match=if_match or row["odata.etag"])
                    left = None if left is None else left - 1
                run.left = left
        return bulk.report

    async def _delete_primaries(
        self,
        if_match: str | None,
        *,
        concurrency: int,
        rate: float | None,
        on_progress: Callable[[BulkReport], object] | None,
    ) -> BulkReport:
        """Delete the entities of the copies that are found, if they are as their copies say."""
        if self._db is None:
            raise NotSupported(f"{self} belongs to no database since it was pickled; use .bind(db)")
        async with Bulk(self._db, concurrency=concurrency, rate=rate, on_progress=on_progress) as bulk:
            async for entity in self:
                await bulk.delete(cast("Entity", entity), if_match=if_match)
        return bulk.report

    # Inside

    async def start(self) -> QueryExecution:
        """
        The query, planned, to be run by whoever asks.

        Raises:
            ScanRefused: It would visit every partition.
        """
        return await self._start(*self._loading())

    def check_ordered(self) -> None:
        """
        Refuse a cursor where there is no order.

        Raises:
            CursorError: The query is unordered.
        """
        if not self._ordered:
            raise CursorError(f"{self} has no cursors, because its results come in no order; remove .unordered()")

    async def _first(self, count: int) -> list[E_co]:
        return await self.limit(count if self._limit is None else min(count, self._limit)).all()

    async def iterate(self, cursor: str | None, stream: "EntityStream[E_co] | None") -> AsyncGenerator[E_co, None]:
        """The results from a cursor on; `stream` is told what is given."""
        if cursor is None:
            run, place = await self.start(), Place(left=self._limit)
        else:
            run, place = await self._resume(cursor)
        if stream is not None:
            if len(run.plan.requests) > _MANY and self._ordered:
                await asyncio.to_thread(digest_of, run.plan, self._limit)  # `stream.cursor` is asked for in the loop
            stream.begin(run, place, self._limit)
        if run.left == 0:
            return
        found = parts(remaining(run, place), self.ahead(run), ordered=self._ordered)
        try:
            async for part in found:
                for entity in part:
                    if stream is not None:
                        stream.seen(entity)
                    yield entity
        finally:
            await found.aclose()

    @cached_property
    def _path(self) -> KindSet:
        """The kinds that are read: those that are asked for, or copies of them in an index that serves better."""
        if math.prod(map(_alternatives, self._where)) > _MANY:
            return self._kinds  # which takes its time to plan, elsewhere
        if self._db is not None and not self._db.sees_all:
            return self._kinds
        return path_of(self._kinds, self._conditions)

    @cached_property
    def _conditions(self) -> tuple[Expression, ...]:
        """The conditions, and those of the scope."""
        return self._where if self._db is None else self._where + self._db.boundary.narrow(self._kinds, self._where)

    def _loading(self) -> tuple[Iterable[str] | None, Callable[[list[Row]], list[Any]]]:
        """What to select, and how rows become entities."""
        if self._only is None:
            return None, self._path.load_all
        projection = Projection.of(self._path, self._only)
        return projection.select, projection.load_all

    def _plan(self, select: Iterable[str] | None = None) -> QueryPlan:
        if select is None and self._only is not None:
            select = Projection.of(self._path, self._only).select
        names = None if select is None else tuple(select)
        plan = self._plans.get(names)
        if plan is None:
            plan = plan_query(
                self._path,
                self._conditions if self._path.primaries is None else of_copies(self._path, self._conditions),
                allow_scan=self._scan,
                select=names,
                span=self._span,
                parallel=self._parallel,
            )
            self._plans[names] = plan  # the query is immutable: page after page it is planned once
        return plan

    async def _start(self, select: Iterable[str] | None, load: Callable[[list[Row]], list[Any]]) -> QueryExecution:
        db = self._db
        if db is None:
            raise NotSupported(f"{self} belongs to no database since it was pickled; use .bind(db)")
        db.require_open()
        if math.prod(map(_alternatives, self._where)) > _MANY:
            plan = await asyncio.to_thread(self._plan, select)
        else:
            plan = self._plan(select)
        primaries = self._path.primaries
        confirm = None if primaries is None else confirming(primaries, self._conditions)
        return QueryExecution(db, plan, load, self._limit, self._names(), ordered=self._ordered, confirm=confirm)

    async def _resume(self, cursor: str | None) -> tuple[QueryExecution, Place]:
        self.check_ordered()
        run = await self.start()
        if len(run.plan.requests) > _MANY:
            await asyncio.to_thread(digest_of, run.plan, self._limit)
        place = Place(left=self._limit) if cursor is None else read_cursor(run.plan, cursor, self._limit)
        run.left = place.left
        return run, place

    def _batches(self, run: QueryExecution, *, in_order: bool) -> AsyncGenerator[Any, None]:
        sources: list[Source] = [(run, request, None) for request in run.plan.requests]
        # Of a limit one request after the other, to ask for little, and for the first.
        return batches(sources, min(self.ahead(run), len(sources)), ordered=self._ordered and in_order)

    def ahead(self, run: QueryExecution) -> int:
        """How many requests of a run are sent at the same time."""
        points = all(isinstance(request, Point) for request in run.plan.requests)
        if run.left is None or (points and run.left):
            return self._concurrency if run.left is None else min(self._concurrency, run.left)
        return min(self._concurrency, _AHEAD_OF_A_LIMIT)

    def _names(self) -> str:
        return ", ".join([s.name for s in self._kinds.schemas] + ["PropertyBag"] * self._kinds.bags)

    def _head(self) -> str:
        return f"select({', '.join(model.__name__ for model in self._models)})"

    def __repr__(self) -> str:
        text = self._head()
        if self._where:
            text += f".where({', '.join(map(str, self._where))})"
        if self._only is not None:
            text += f".only({', '.join(map(str, self._only))})"
        if self._limit is not None:
            text += f".limit({self._limit})"
        if self._scan:
            text += ".allow_scan()" if self._parallel == 1 else f".allow_scan(parallel={self._parallel})"
        return f"<{text}{'.unordered()' * (not self._ordered)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        state = attrs.asdict(self, recurse=False)
        del state["_db"], state["_kinds"], state["_plans"]
        return _restored, (type(self), self._kinds.table, state)


def _restored(cls: type[Query[Any]], table: str, state: dict[str, Any]) -> Query[Any]:
    kinds = KindSet.of(state["_models"], table)
    return cls(None, kinds, **{name.removeprefix("_"): value for name, value in state.items()})


def _alternatives(term: Expression) -> int:
    """About how many requests a condition can become, if all others are equalities."""
    if isinstance(term, AllOf):
        return math.prod(map(_alternatives, term.terms))
    if isinstance(term, AnyOf):
        return sum(map(_alternatives, term.terms))
    return len(term.values) if isinstance(term, Membership) else 1


def _check_count(what: str, count: object) -> None:
    if type(count) is not int or count < 1:
        raise ModelError(f"{what}: {count!r} is refused; give a number from 1")


class Select(Query[E_co]):
    """
    A query for entities of models. Made by `db.select(Model)`.

    Immutable: each method returns another; nothing is sent before it is iterated or awaited.
    """

    def where(self, *conditions: Expression) -> Self:
        """
        Narrow the query: all conditions must hold, those given before included.

        Raises:
            ModelError: Something is no condition.
        """
        for condition in conditions:
            if not isinstance(condition, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(
                    f"{condition!r} is no condition; compare a field of the class, as in Employee.age >= 30"
                )
        return attrs.evolve(self, where=self._where + conditions)

    def only(self, *fields: Field[Any]) -> Self:
        """
        Ask for these fields alone, plus those that keys hold. Reading another one raises `NotLoaded`.

        An entity that has to be upgraded from an older version is read in full.

        Raises:
            ModelError: Something is no field of the models, or the query brings bags.
        """
        for each in fields:
            if not isinstance(each, Field):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(f"only({each!r}) is refused: give fields of the class, as in only(Employee.age)")
        if self._kinds.bags:
            raise ModelError("only() is refused where the query brings bags: a bag is all that a row has")
        Projection.of(self._kinds, fields)
        return attrs.evolve(self, only=(self._only or ()) + fields)
