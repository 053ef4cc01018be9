"""
Pages and streams: parts of the results of a query, and where it goes on behind them.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, get_args

import attrs

from ..connection.async_only import AsyncOnly
from ..errors import CursorError, DecodeError, ModelError
from ..keys.ranges import KeyPosition
from ..models.property_bag import PropertyBag
from ..models.pydantic_schema import page_schema
from ..models.state import state_of
from ..stores import Row
from .cursors import Position, remaining_sources, write_cursor
from .execution import FetchedPage, QueryExecution
from .misfits import take_last_misfit
from .planning.plan import Point
from .run import LoadPacer, fetch_pages

__all__ = ["EntityStream", "Page", "ReadProgress", "cursor_behind_misfit", "fetch_page", "key_of_entity"]

E_co = TypeVar("E_co", covariant=True)

# A page that is still short after so many requests is given as it is.
_REQUESTS_OF_A_PAGE = 10


@attrs.frozen
class Page(Generic[E_co]):
    """
    One page of results.

    Args:
        items: The entities in key order, at most as many as asked for. There may be none, although more follow.
        cursor: Where the next page begins, as at most 4,096 characters that may stand in a URL; None after the last
            page.
    """

    items: list[E_co]
    cursor: str | None

    if not TYPE_CHECKING:  # a checker finds the mistake by itself, and shall go on to find it

        def __iter__(self) -> NoReturn:
            raise ModelError("a page cannot be read by for: its entities are page.items")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return page_schema(cls, next(iter(get_args(source)), Any), handler)


async def fetch_page(
    run: QueryExecution, position: Position, size: int, limit: int | None, concurrency: int
) -> Page[Any]:
    """
    Fetch one page of entities.

    Args:
        run: The query.
        position: Where the page begins.
        size: Entities at most.
        limit: The limit of the query, which cursors know.
        concurrency: Requests at the same time, at most.
    """
    wanted = run.wanted
    run.wanted = size if wanted is None else min(size, wanted)
    try:
        found, after = await _fill(run, position, concurrency)
    except DecodeError as error:  # of its first row
        run.wanted = wanted
        error.cursor = cursor_behind_misfit(run, limit)
        raise
    if after is None or (wanted is not None and len(found) >= wanted):
        return Page(found, None)
    after = attrs.evolve(after, wanted=None if wanted is None else wanted - len(found))
    return Page(found, write_cursor(run.plan, after, limit))


async def _fill(run: QueryExecution, position: Position, concurrency: int) -> tuple[list[Any], Position | None]:
    """Return entities, `run.wanted` at most, and the position behind them; None if nothing follows."""
    wanted = run.wanted or 0
    found: list[Any] = []
    if not wanted:
        return found, None
    sources = remaining_sources(run, position)
    pages = fetch_pages(sources, min(concurrency, len(sources)), ordered=True)
    count, pacer = 0, LoadPacer()
    try:
        async for page in pages:
            count += not isinstance(page.request, Point)  # points are cheap, and many at once
            rows, start = page.rows, 0
            while start < len(rows):
                part, loaded = await pacer.load(page, start)
                start += len(part)
                if len(loaded) > wanted - len(found):
                    found += loaded[: wanted - len(found)]
                    return found, Position(after=key_of_entity(found[-1]))
                misfit = take_last_misfit(loaded)
                found += loaded
                if misfit is not None:
                    if found:
                        return found, Position(after=key_of_entity(found[-1]))
                    run.misfit_at = misfit.position
                    raise misfit.error
                run.wanted = wanted - len(found)
                if not run.wanted and start < len(rows):
                    return found, Position(after=_last_key(run, found, part))
            if page.continuation is None and page.index + 1 == len(sources):
                return found, None
            if not run.wanted or count >= _REQUESTS_OF_A_PAGE:
                after = _last_key(run, found, rows)
                here = _position_behind(position, page) if after is None else Position(after=after)
                if not run.wanted or write_cursor(run.plan, here, wanted) is not None:
                    return found, here
    finally:
        await pages.aclose()
    return found, None


def cursor_behind_misfit(run: QueryExecution, limit: int | None, before: str = "") -> str | None:
    """
    Return the cursor behind the row at which a query has ended; None if the query has no cursors, or ended otherwise.

    Args:
        run: The query.
        limit: Its limit, which cursors know.
        before: What stands before its cursors.
    """
    if run.misfit_at is None or not run.ordered:
        return None
    cursor = write_cursor(run.plan, Position(run.misfit_at, wanted=run.wanted), limit)
    return None if cursor is None else before + cursor


def _last_key(run: QueryExecution, found: list[Any], rows: list[Row]) -> KeyPosition | None:
    """
    Return the key to go on behind; None if there is no key.

    It is that of the last row. But a cursor tells it, and in a scope rows that are no results may be those of others:
    there it is the key of the last entity, and rows behind that are read again.
    """
    if found and run.db.boundary.narrows:
        return key_of_entity(found[-1])
    return _key_of(rows[-1]) if rows else None


def _position_behind(position: Position, page: FetchedPage) -> Position:
    """Return the position behind a page without rows, for which there is no key: where the store itself goes on."""
    done = page.index + (page.continuation is None)
    return Position(position.after, position.skip + done, page.continuation)


def _key_of(row: Row) -> KeyPosition:
    return row["PartitionKey"], row["RowKey"]


def key_of_entity(entity: Any) -> KeyPosition:
    """Return the key under which an entity or a bag was found: that of an index entry, if it was found by one."""
    if isinstance(entity, PropertyBag):
        return _key_of(entity.row)
    return state_of(entity).position


class ReadProgress:
    """How far the results of a query were given, in a block that reads them."""

    def __init__(self) -> None:
        self.run: QueryExecution | None = None
        self._position = Position()
        self._limit: int | None = None
        self._last: KeyPosition | None = None
        self._given, self._before = 0, ""
        self._behind: str | None = None
        self.refused = ""  # why there is no cursor

    def begin(self, run: QueryExecution, position: Position, limit: int | None, before: str = "") -> None:
        """Take note of the planned query, where it begins, its limit, and what stands before its cursors."""
        self.run, self._position, self._limit, self._before = run, position, limit, before
        self._given = 0

    def note(self, entity: Any) -> None:
        """Take note of an entity before it is given: what becomes of it afterwards does not matter."""
        self._last = key_of_entity(entity)
        self._given += 1

    def note_misfit(self, error: DecodeError) -> None:
        """Take note that a row has ended the results, which do not fit their model from there on."""
        self._behind = error.cursor

    def cursor(self) -> str | None:
        """
        Return where to go on behind the last entity that was given, or the row that ended the results; None if there
        was neither.
        """
        run = self.run
        if self.refused:
            raise CursorError(self.refused)
        if self._behind is not None:
            return self._behind
        if run is None or self._last is None:
            return None
        if not run.ordered:
            raise CursorError("the stream has no cursor, because its results come in no order; remove .unordered()")
        wanted = None if self._position.wanted is None else self._position.wanted - self._given
        cursor = write_cursor(run.plan, Position(self._last, wanted=wanted), self._limit)
        return None if cursor is None else self._before + cursor


class EntityStream(AsyncOnly, Generic[E_co]):
    """
    The results of a query in an `async with` block, made by `query.stream()`.

    Args:
        open_results: Opens the results from a cursor on, and notes how far they were given.
        cursor: Where to begin; None for the first result.
    """

    def __init__(
        self, open_results: Callable[[str | None, ReadProgress], AsyncGenerator[E_co, None]], cursor: str | None
    ) -> None:
        self._open_results, self._start = open_results, cursor
        self._results: AsyncGenerator[E_co, None] | None = None
        self._closed = False
        self._progress = ReadProgress()

    async def __aenter__(self) -> Self:
        if self._results is not None or self._closed:
            raise ModelError("the stream was used already; make another with query.stream()")
        self._results = self._open_results(self._start, self._progress)
        return self

    async def __aexit__(self, *error: object) -> None:
        results, self._results, self._closed = self._results, None, True
        if results is not None:
            await results.aclose()

    def __aiter__(self) -> AsyncIterator[E_co]:
        if self._results is None:
            raise ModelError("the stream is not open; use `async with query.stream() as stream`")
        return self._results

    @property
    def cursor(self) -> str | None:
        """
        Where to resume after the last entity that was given; before the first one, where the stream began. After a
        `DecodeError`, where to resume after the row that does not fit.

        Raises:
            CursorError: The query is unordered.
        """
        return self._progress.cursor() or self._start
