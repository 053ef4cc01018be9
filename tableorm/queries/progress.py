"""
How far the results of a query were given, in a block that reads them.
"""

from typing import Any

from ..errors import CursorError, DecodeError
from ..keys.ranges import KeyPosition
from ..models.property_bag import PropertyBag
from ..models.state import state_of
from .cursors import cursor_at
from .execution import Position, QueryExecution


def key_of_entity(entity: Any) -> KeyPosition:
    """Return the key under which an entity or a bag was found: that of an index entry, if it was found by one."""
    if isinstance(entity, PropertyBag):
        return entity.row["PartitionKey"], entity.row["RowKey"]
    return state_of(entity).position


class ReadProgress:
    """
    How far the results of a query were given, in a block that reads them.

    Attributes:
        run: The query, or the part of it, that has found the last entities; None before the first.
        wanted: How many entities its limit allows behind the last one; None without a limit.
        refused: Why there is no cursor; "" if there is one.
    """

    def __init__(self) -> None:
        self.run: QueryExecution | None = None
        self.wanted: int | None = None
        self.refused = ""
        self._last: KeyPosition | None = None
        self._behind: str | None = None

    def note(self, entity: Any) -> None:
        """Take note of an entity before it is given: what becomes of it afterwards does not matter."""
        self._last = key_of_entity(entity)
        if self.wanted is not None:
            self.wanted -= 1

    def note_misfit(self, error: DecodeError) -> None:
        """Take note that a row has ended the results, which do not fit their model from there on."""
        self._behind = error.cursor

    def cursor(self) -> str | None:
        """
        Return where to go on behind the last entity that was given, or the row that ended the results; None if there
        was neither.
        """
        if self.refused:
            raise CursorError(self.refused)
        if self._behind is not None or self.run is None:
            return self._behind
        if not self.run.ordered:
            raise CursorError("the stream has no cursor, because its results have no order; remove .unordered()")
        return cursor_at(self.run, Position(self._last, wanted=self.wanted))
