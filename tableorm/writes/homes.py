"""
The homes of all models: which one writers ask.
"""

from ..models.reserved import MOVE
from ..models.schema import Schema
from .expiring import ExpiringHome, may_replace_expired
from .home import Home
from .plan import PlannedWrite
from .relocation import Commit

__all__ = ["Homes", "has_remedy", "must_prepare"]


class Homes:
    """
    The homes of all models.

    Args:
        commit: What sends writes: `tableorm.writes.commit.commit`.
    """

    def __init__(self, commit: Commit) -> None:
        self._plain, self._expiring = Home(commit), ExpiringHome(commit)

    def of(self, schema: Schema | None) -> Home:
        """Return the home of a model; None stands for rows that are read as bags."""
        if schema is None:
            return self._plain
        if isinstance(schema.home, Home):
            return schema.home
        return self._plain if schema.visibility is None else self._expiring


def must_prepare(write: PlannedWrite) -> bool:
    """Return whether the home of its entity has to prepare a write."""
    schema, stored = write.change.schema, write.origin.stored
    return (schema is not None and schema.home is not None) or (stored is not None and MOVE in stored.row)


def has_remedy(write: PlannedWrite) -> bool:
    """Return whether there may be something to send in place of a write from which nothing is derived, if refused."""
    return may_replace_expired(write)
