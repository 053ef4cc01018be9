"""
The report of a bulk write.
"""

import attrs

from ...errors import TableOrmError

__all__ = ["FAILURES_KEPT", "BulkFailure", "BulkReport"]

FAILURES_KEPT = 1_000


@attrs.frozen
class BulkFailure:
    """
    An operation that was not done.

    Args:
        operation: Its verb.
        entity: What it was given: an entity, bag or key.
        error: Why.
    """

    operation: str
    entity: object
    error: TableOrmError


@attrs.frozen
class BulkReport:
    """
    What became of the operations so far.

    Args:
        written: Operations that were applied; a save that had nothing to write counts too.
        failed: Those that failed, at most 1000 of them; `OutcomeUnknown` among the errors says that one may have been
            applied.
        failures: How many failed in all.
        requests: Transactions and single operations that were sent; repetitions not counted.
    """

    written: int = 0
    failed: tuple[BulkFailure, ...] = ()
    failures: int = 0
    requests: int = 0

    def __str__(self) -> str:
        text = f"{self.written} written, {self.failures} failed, {self.requests} requests"
        if not self.failed:
            return text
        first = self.failed[0]
        return f"{text}; the first that failed: {first.error}"
