"""
Pages and streams: parts of the results of a query, and where it goes on behind them.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import attrs

from ..errors import NotSupported
from ..keys.ranges import Position
from ..models.property_bag import PropertyBag
from ..models.state import state_of
from ..stores import Row
from .cursors import Place, remaining, write_cursor
from .planning.plan import Range
from .run import Pace, QueryExecution, batches

if TYPE_CHECKING:
    from .query import Query

__all__ = ["EntityStream", "Page", "fill"]

E_co = TypeVar("E_co", covariant=True)

# A page that is still short after so many requests is given as it is.
_REQUESTS_OF_A_PAGE = 10


@attrs.frozen
class Page(Generic[E_co]):
    """
    One page of results.

    Args:
        items: In key order, at most as many as asked for; perhaps none, although more follow.
        cursor: Where to go on; None after the last page. At most 4,096 characters that may stand in a URL.
    """

    items: list[E_co]
    cursor: str | None


async def fill(run: QueryExecution, place: Place, concurrency: int) -> tuple[list[Any], Place | None]:
    """Entities for a page, `run.left` at most, and the place behind them; None if nothing follows."""
    wanted = run.left or 0
    found: list[Any] = []
    if not wanted:
        return found, None
    sources = remaining(run, place)
    pages = batches(sources, min(concurrency, len(sources)), ordered=True)
    count, pace = 0, Pace()
    try:
        async for batch in pages:
            count += isinstance(batch.request, Range)  # points are cheap, and many at once
            rows, start = batch.rows, 0
            while start < len(rows):
                part = rows[start : start + pace.size]
                start += len(part)
                loaded = await pace.load(run, batch.request, part)
                if len(loaded) > wanted - len(found):
                    found += loaded[: wanted - len(found)]
                    return found, Place(after=_position(found[-1]))
                found += loaded
                run.left = wanted - len(found)
                if not run.left and start < len(rows):
                    return found, Place(after=_key(part[-1]))
            if batch.continuation is None and batch.index + 1 == len(sources):
                return found, None
            if not run.left or count >= _REQUESTS_OF_A_PAGE:
                here = Place(after=_key(rows[-1])) if rows else _behind(place, batch.index, batch.continuation)
                if not run.left or write_cursor(run.plan, here, wanted) is not None:
                    return found, here
    finally:
        await pages.aclose()
    return found, None


def _behind(place: Place, index: int, continuation: str | None) -> Place:
    """Behind a page without rows, for which there is no key: where the store itself would go on."""
    done = index + (continuation is None)
    return Place(place.after, place.skip + done, continuation)


def _key(row: Row) -> Position:
    return row["PartitionKey"], row["RowKey"]


def _position(entity: Any) -> Position:
    """Where an entity or a bag was found: of a copy that is not where its primary is."""
    if isinstance(entity, PropertyBag):
        return _key(entity.row)
    return state_of(entity).position


class EntityStream(Generic[E_co]):
    """
    The results of a query in a block. Made by `query.stream()`.
    """

    def __init__(self, query: "Query[E_co]", cursor: str | None) -> None:
        self._query, self._start = query, cursor
        self._found: AsyncGenerator[E_co, None] | None = None
        self._closed = False
        self._run: QueryExecution | None = None
        self._place = Place()
        self._limit: int | None = None
        self._last: Position | None = None
        self._given = 0

    async def __aenter__(self) -> Self:
        if self._found is not None or self._closed:
            raise NotSupported("the stream was used already; make another with query.stream()")
        self._found = self._query.iterate(self._start, self)
        return self

    async def __aexit__(self, *error: object) -> None:
        found, self._found, self._closed = self._found, None, True
        if found is not None:
            await found.aclose()

    def __aiter__(self) -> AsyncIterator[E_co]:
        if self._found is None:
            raise NotSupported("the stream is not open; use `async with query.stream() as stream`")
        return self._found

    @property
    def cursor(self) -> str | None:
        """
        Where to go on behind the last entity that was given; the cursor it began with if there was none.

        Raises:
            CursorError: The query is unordered.
        """
        run = self._run
        if run is None or self._last is None:
            return self._start
        self._query.check_ordered()
        left = None if self._place.left is None else self._place.left - self._given
        return write_cursor(run.plan, Place(self._last, left=left), self._limit)

    def begin(self, run: QueryExecution, place: Place, limit: int | None) -> None:
        """Called when the query is planned."""
        self._run, self._place, self._limit = run, place, limit

    def seen(self, entity: Any) -> None:
        """Called with each entity before it is given."""
        self._last = _position(entity)  # what becomes of the entity does not matter
        self._given += 1
