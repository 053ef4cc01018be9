"""
A range that this process works on. It has the range as long as its row says so, and writes the row again and again, so
that others see that it is at work. Who took the range over is noticed by the next of these writes, which is rejected.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

import attrs

from ..connection.connection import Connection
from ..connection.logger import make_logger
from ..connection.rows import read_row
from ..errors import Conflict, EntityNotFound, OutcomeUnknown, TableOrmError, TransactionFailed, Unavailable
from ..stores import RowAddress
from ..writes.commit import write_change
from ..writes.stages.change import save_change
from .counts import JobCounts
from .ranges import JobRange
from .rows import RunRange, load_run_row

C = TypeVar("C", bound=JobCounts)

_LOG = make_logger("tableorm.jobs")

BEATS = 4
"""How many times in the time of its lease the row of a range is written."""


@contextmanager
def may_lose_race() -> Generator[None]:
    """Go on after a write that was rejected because another process was first, or whose reply was lost."""
    try:
        yield
    except TableOrmError as error:
        cause = error.__cause__ if isinstance(error, TransactionFailed) else error
        if not isinstance(cause, Conflict | EntityNotFound | OutcomeUnknown):
            raise


@attrs.define(eq=False)
class Lease(Generic[C]):
    """
    A range that this process has taken.

    Args:
        db: The open database.
        row: Its row, as this process has written it last.
        counts: What was counted so far.

    Attributes:
        part: How far it is now; what is stored follows.
        lost: Whether somebody has taken the range over.
    """

    db: Connection
    row: RunRange
    counts: C
    part: JobRange = attrs.field(init=False)
    lost: bool = attrs.field(init=False, default=False)
    _over: bool = attrs.field(init=False, default=False)
    _turn: asyncio.Lock = attrs.field(init=False, factory=asyncio.Lock)

    def __attrs_post_init__(self) -> None:
        self.part = self.row.part

    async def keep(self) -> None:
        """Store how far the range is again and again; return when it is done, or somebody has taken it over."""
        while not self._over:
            await asyncio.sleep(self.row.lease / BEATS)
            try:
                await self.store()
            except Unavailable as error:
                _LOG.warning("range %d of the run %r is not stored: %s", self.row.number, self.row.name, error)

    async def release(self) -> None:
        """Let others take what is left of the range at once, as far as the store can be reached."""
        with suppress(TableOrmError):
            await self.store(owner="")

    async def store(self, owner: str | None = None) -> None:
        """
        Store how far the range is, unless it is stored as done, or somebody has taken it over.

        Args:
            owner: Who works on it from now on; None for nobody else.
        """
        async with self._turn:
            while not self._over:
                row = self.row
                row.part, row.counts = self.part, self.counts.to_stored()
                row.beat += 1
                row.owner = row.owner if owner is None else owner
                with may_lose_race():
                    await write_change(self.db, save_change(row))
                    if row.etag is not None:
                        self._over = row.part.done
                        return
                found = await read_row(self.db, RowAddress.of(row.key))
                stored = None if found is None else load_run_row(found)
                if not isinstance(stored, RunRange) or stored.taken != row.taken:
                    self._over = self.lost = True
                else:
                    self.row = stored  # by a write of this process whose reply was lost
