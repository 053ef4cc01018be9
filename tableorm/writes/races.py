"""
Lost races: which failures a new attempt may cure, and how long to wait before it.
"""

from ..connection.connection import Connection
from ..errors import EntityExists, EntityNotFound, ModelError, PreconditionFailed, ReferenceNotFound, shown
from ..stores import pause_after

__all__ = ["ATTEMPTS", "check_attempts", "is_race", "pause_of"]

ATTEMPTS = 50
"""How often something begins anew after a lost race, if it is not told otherwise."""


def pause_of(db: Connection, attempt: int) -> float:
    """Seconds before a read and a write are tried again: at first about what they take."""
    return min(1.0, pause_after(attempt, db.retry) / 5)


def check_attempts(verb: str, attempts: object) -> None:
    """Refuse a number of attempts that is none. Raises ModelError."""
    if type(attempts) is not int or attempts < 1:
        raise ModelError(f"{verb}(attempts={shown(attempts)}) is refused: try at least once")


def is_race(error: BaseException | None) -> bool:
    """
    Whether a write failed because its row is not as it was taken to be, so that it may succeed if that is read again.
    What other entities are like, a value that is taken or a reference to nothing, no repetition changes.
    """
    if isinstance(error, EntityExists):
        return not error.index
    return isinstance(error, (PreconditionFailed, EntityNotFound)) and not isinstance(error, ReferenceNotFound)
