"""
Turns: writers of one database that change the same rows wait for each other, so that they lose no races among
themselves.

A turn is at some rows, and a row has a line of the turns that want it. A turn enters the lines of all its rows at once,
and begins when it is the first in each of them. So turns begin in the order in which they came, and none waits for one
that waits for it. Who already has a turn and needs further rows that are taken gives its rows back, and queues for all
of them together.

Turns save requests and nothing else: what is written is still conditional on the ETag that was read, since other
programs write too. Therefore a turn that does not begin in time lets its writer go on without.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from typing import Self

from ..stores import Row, RowAddress

LONGEST_WAIT = 30.0
"""Seconds that a writer waits for its turn: about as long as a store that does not answer may keep the one before."""

_MOST_HANDED_ON = 8
"""
How often in a row a row is handed on without being read. Between a read and the write that follows, other writers, who
take no turns, have a chance to write.
"""


class Turn:
    """
    What a writer has taken: some rows, or none. It is the context manager of the block that has the turn.

    Args:
        lines: The lines of the database.

    Attributes:
        known: The rows that the turn before has written, as they are stored.
        over: Whether the block that has the turn has ended; tasks that it has begun may still have the turn.
    """

    __slots__ = ("_ahead", "_began", "_handed_on", "_late", "_outer", "_rows", "known", "lines", "over")

    def __init__(self, lines: "dict[RowAddress, deque[Turn]]") -> None:
        self.lines = lines
        self.known: dict[RowAddress, Row] = {}
        self.over = False
        self._rows: list[RowAddress] = []
        self._ahead = 0  # in how many lines it is not the first
        self._began: asyncio.Future[None] | None = None
        self._handed_on = 0
        self._late = False  # whether it did not begin in time, so that the writer waits no more
        self._outer: Token[Turn | None]

    def __enter__(self) -> Self:
        self._outer = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True
        self.give_back()
        _CURRENT.reset(self._outer)

    async def take(self, rows: Collection[RowAddress]) -> None:
        """Wait until the turn has these rows, beside those that it has."""
        wanted = [row for row in rows if row not in self._rows]
        if not wanted or self._began is not None or self._late:
            return
        if self._rows and any(row in self.lines for row in wanted):
            wanted += self._rows
            self.give_back()
        for row in wanted:
            line = self.lines.setdefault(row, deque())
            self._ahead += bool(line)
            line.append(self)
        self._rows += wanted
        if self._ahead:
            await self._wait()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._began = loop.create_future()
        timer = loop.call_later(LONGEST_WAIT, self._wake)
        try:
            await self._began
        except asyncio.CancelledError:
            self.give_back()
            raise
        finally:
            timer.cancel()
            self._began = None
        if self._ahead:
            self._late = True
            self.give_back()

    def _wake(self) -> None:
        if self._began is not None and not self._began.done():
            self._began.set_result(None)

    def is_awaited(self, row: RowAddress) -> bool:
        """Return whether somebody waits for a row of the turn, and should be told how it was written."""
        return len(self.lines.get(row, ())) > 1 and self._handed_on < _MOST_HANDED_ON

    def hand_on(self, row: RowAddress, stored: Row) -> None:
        """Tell whoever is next how a row is stored now."""
        following = self.lines[row][1]
        following.known[row] = stored
        following._handed_on = self._handed_on + 1

    def give_back(self) -> None:
        """Let others have the rows."""
        rows, self._rows, self._ahead, self._handed_on = self._rows, [], 0, 0
        self.known = {}
        for row in rows:
            line = self.lines[row]
            if line[0] is not self:
                line.remove(self)
                continue
            line.popleft()
            if not line:
                del self.lines[row]
                continue
            line[0]._ahead -= 1
            if not line[0]._ahead:
                line[0]._wake()
        self._wake()  # a task that was begun in the block, and waits in the same turn


_CURRENT: ContextVar[Turn | None] = ContextVar("tableorm_turn", default=None)


class Turns:
    """The turns of one database. A row that nobody has taken has no line."""

    def __init__(self) -> None:
        self.lines: dict[RowAddress, deque[Turn]] = {}

    def begin(self) -> AbstractContextManager[Turn]:
        """Give a block of code a turn, which has no rows yet; or the turn of the block around it."""
        current = self.current
        return Turn(self.lines) if current is None else nullcontext(current)

    @property
    def current(self) -> Turn | None:
        """The turn of the block in which this is asked; None if there is none."""
        current = _CURRENT.get()
        return None if current is None or current.over or current.lines is not self.lines else current
