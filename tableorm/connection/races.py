"""
Lost races, and refusals that pass: which failures a new attempt may cure, and how long to wait before it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from ..errors import (
    EntityExists,
    EntityNotFound,
    LostRace,
    ModelError,
    PreconditionFailed,
    ReferenceNotFound,
    TableOrmError,
    Unavailable,
    shown,
)
from ..protocol.codes import THROTTLING, Code, Fault
from ..stores import RetryBudget, pause_after
from .connection import Connection

T = TypeVar("T")

ATTEMPTS = 50
"""How often something begins anew after a lost race, if it is not told otherwise."""


def pause_of(db: Connection, attempt: int) -> float:
    """Seconds before a read and a write are tried again: at first about what they take."""
    return min(1.0, pause_after(attempt, db.retry) / 5)


class Attempts:
    """
    The attempts of something that may lose races: `async for attempt in Attempts(db)` yields their numbers, and
    pauses before each but the first.

    Args:
        db: Whose policy tells how long the pauses are.
        count: How many attempts there are.
        races: What others did in each of them, for the LostRace that is raised after the last one. Without it, what is
            raised then stands behind the loop.
    """

    def __init__(self, db: Connection, count: int = ATTEMPTS, *, races: str | None = None) -> None:
        self._db, self._count, self._races = db, count, races
        self._numbers, self._lost = iter(range(count)), 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        attempt = next(self._numbers, None)
        if attempt is None and self._races is not None:
            raise LostRace(f"{self._races}, {self._count} times in a row; try it again", Code.CONDITION_NOT_SATISFIED)
        if attempt is None:
            raise StopAsyncIteration
        if self._lost:
            await asyncio.sleep(pause_of(self._db, self._lost))
        self._lost += 1
        return attempt

    def skip_pause(self) -> None:
        """Begin the next attempt at once, and pauses anew: this one has changed something."""
        self._lost = 0


def check_attempts(verb: str, attempts: object) -> None:
    """Refuse a number of attempts that is none. Raises ModelError."""
    if type(attempts) is not int or attempts < 1:
        raise ModelError(f"{verb}(attempts={shown(attempts)}) is rejected: try at least once")


def is_race(error: BaseException | None) -> bool:
    """
    Whether a write failed because its row is not as it was taken to be, so that it may succeed if that is read again.
    What other entities are like, a value that is taken or a reference to nothing, no repetition changes.
    """
    if isinstance(error, EntityExists):
        return not error.index
    return isinstance(error, (PreconditionFailed, EntityNotFound)) and not isinstance(error, ReferenceNotFound)


def passing_fault(error: TableOrmError) -> Fault | None:
    """Return why the store refuses for now; None if it is not that."""
    fault = error.fault
    return fault if isinstance(error, Unavailable) and fault is not None and fault.transient else None


async def read_patiently(db: Connection, read: Callable[[], Awaitable[T]], throttled: Callable[[], None] | None) -> T:
    """
    Read a row; again if the store refuses for now and has given up repeating that, as long as one call may take.

    Args:
        db: Where the row is.
        read: Reads it, and returns what it makes of it.
        throttled: Called whenever the store refuses because it is asked for too much.

    Raises:
        TableOrmError: What `read` raises.
    """
    budget = RetryBudget(db.retry)
    while True:
        try:
            return await read()
        except Unavailable as error:
            fault = passing_fault(error)
            if fault is None:
                raise
            if throttled is not None and fault.code in THROTTLING:
                throttled()
            if not await budget.another(fault):
                raise
