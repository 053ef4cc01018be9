"""
Pages and streams: parts of the results of a query, and where it goes on behind them.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, get_args

import attrs

from ..connection.async_only import async_only
from ..errors import DecodeError, ModelError, counted
from ..keys.ranges import KeyPosition
from ..models.entity import Entity, shown_values
from ..models.key import Storable
from ..models.pydantic_schema import page_schema
from ..protocol.notebook import html_table
from ..stores import Row, RowAddress, row_keys
from .cursors import cursor_at, cursor_behind_misfit, sources_of
from .execution import FetchedPage, Position, QueryExecution
from .misfits import take_last_misfit
from .planning.plan import Point
from .progress import ReadProgress, key_of_entity
from .run import LoadPacer, fetch_pages

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)

# A page that is still short after so many requests is given as it is.
_REQUESTS_OF_A_PAGE = 10
# And one that is still short after so many parts of the query.
_PARTS_OF_A_PAGE = 10


_MOST_SHOWN = 100
"""Entities that a notebook shows at most."""


class Results(list[E]):
    """A list of entities, which notebooks show as a table."""

    def _repr_html_(self) -> str | None:
        return _table_of(self) if all(isinstance(each, Storable) for each in self[:_MOST_SHOWN]) else None


def _table_of(entities: list[Any]) -> str:
    rows = [
        shown_values(each) if isinstance(each, Entity) else RowAddress.of(each).keys | dict(each)
        for each in entities[:_MOST_SHOWN]
    ]
    rest = f", the first {_MOST_SHOWN} of which are:" if len(entities) > _MOST_SHOWN else ""
    return html_table(counted(len(entities), "entity") + rest, rows)


@attrs.frozen
class Page(Generic[E_co]):
    """
    One page of results.

    Args:
        items: The entities in key order, at most as many as requested. There may be none although more follow.
        cursor: Where the next page starts, as a string of at most 4,096 characters that is safe in a URL; None after
            the last page.
    """

    items: list[E_co]
    cursor: str | None

    if not TYPE_CHECKING:  # a checker finds the mistake by itself, and shall go on to find it

        def __iter__(self) -> NoReturn:
            raise ModelError("a page can't be iterated; use page.items")

    def _repr_html_(self) -> str:
        return _table_of(self.items)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return page_schema(cls, next(iter(get_args(source)), Any), handler)


async def fetch_page(
    runs: AsyncIterable[QueryExecution], size: int, concurrency: int, owners: list[QueryExecution]
) -> Page[Any]:
    """
    Fetch one page of entities.

    Args:
        runs: The query, or the parts of which it consists, one after the other; they share its limit.
        size: Entities at most.
        concurrency: Requests at the same time, at most.
        owners: Gets the part that has found each entity; what they want afterwards is left behind the page.
    """
    found: list[Any] = []
    number = 0
    async for run in runs:
        left = run.wanted
        if len(found) == size or number == _PARTS_OF_A_PAGE:
            return Page(found, cursor_at(run, Position(wanted=left)))
        room = size - len(found)
        run.wanted = room if left is None else min(room, left)
        try:
            more, after = await _fill(run, concurrency)
        except DecodeError as error:  # of its first row
            run.wanted = left
            if found:  # the next page raises it
                return Page(found, cursor_at(run, Position(wanted=left)))
            error.cursor = cursor_behind_misfit(run)
            raise
        found += more
        owners += [run] * len(more)
        run.wanted = left = None if left is None else left - len(more)
        if left == 0:
            break
        if after is not None:
            return Page(found, cursor_at(run, attrs.evolve(after, wanted=left)))
        number += 1
    return Page(found, None)


async def _fill(run: QueryExecution, concurrency: int) -> tuple[list[Any], Position | None]:
    """Return entities, `run.wanted` at most, and the position behind them; None if nothing follows."""
    wanted = run.wanted or 0
    found: list[Any] = []
    if not wanted:
        return found, None
    sources = sources_of(run)
    pages = fetch_pages(sources, concurrency, ordered=True)
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
                here = _position_behind(run.position, page) if after is None else Position(after=after)
                if not run.wanted or cursor_at(run, here) is not None:
                    return found, here
    finally:
        await pages.aclose()
    return found, None


def _last_key(run: QueryExecution, found: list[Any], rows: list[Row]) -> KeyPosition | None:
    """
    Return the key to go on behind; None if there is no key.

    It is that of the last row. But a cursor tells it, and in a scope rows that are no results may be those of others:
    there it is the key of the last entity, and rows behind that are read again.
    """
    if found and run.db.boundary.narrows:
        return key_of_entity(found[-1])
    return row_keys(rows[-1]) if rows else None


def _position_behind(position: Position, page: FetchedPage) -> Position:
    """Return the position behind a page without rows, for which there is no key: where the store itself goes on."""
    done = page.index + (page.continuation is None)
    return Position(position.after, position.skip + done, page.continuation)


@async_only
class EntityStream(Generic[E_co]):
    """
    The results of a query in an `async with` block, made by `query.stream()`.

    Args:
        open_results: Opens the results at a cursor, and records how many were returned.
        cursor: Where to start; None for the first result.
    """

    def __init__(
        self, open_results: Callable[[str | None, ReadProgress], AsyncGenerator[E_co, None]], cursor: str | None
    ) -> None:
        self._open_results, self._start = open_results, cursor
        self._results: AsyncGenerator[E_co, None] | None = None
        self._closed = False
        self._progress = ReadProgress()

    def __repr__(self) -> str:
        return f"<EntityStream: {'closed' if self._closed else 'open' if self._results else 'not open'}>"

    async def __aenter__(self) -> Self:
        if self._results is not None or self._closed:
            raise ModelError("the stream was already used; create another with query.stream()")
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
        Where to resume after the last entity that was returned, or at the start if there was none. After a
        `DecodeError`, where to resume after the row that doesn't fit.

        Raises:
            CursorError: The query is unordered.
        """
        return self._progress.cursor() or self._start
