"""
The report of a bulk write.
"""

from typing import Any

import attrs

from ...errors import TableOrmError, counted
from ...models.key import Key
from ..subject import Subject

__all__ = ["FAILURES_KEPT", "BulkFailure", "BulkReport"]

FAILURES_KEPT = 1_000


@attrs.frozen
class BulkFailure:
    """
    An operation that failed.

    Args:
        operation: Its verb.
        entity: The entity, bag or key that it was given.
        error: Why it failed.
    """

    operation: str
    entity: Subject | Key[Any]
    error: TableOrmError


@attrs.frozen
class BulkReport:
    """
    What became of the operations of a bulk so far.

    Args:
        written: Operations that were applied; a save that had nothing to write counts too.
        failed: The first 1000 operations that failed. An `OutcomeUnknown` says that its operation may have been
            applied.
        failures: How many operations failed in all.
        requests: Transactions and single operations that were sent. One that is repeated after a lost reply
            counts once.
    """

    written: int = 0
    failed: tuple[BulkFailure, ...] = ()
    failures: int = 0
    requests: int = 0

    def __str__(self) -> str:
        text = f"{self.written} done, {self.failures} failed, {counted(self.requests, 'request')}"
        if not self.failed:
            return text
        first = self.failed[0]
        return f"{text}; the first that failed: {first.error}"
