"""
The report of a bulk write, and the error that has it.
"""

from typing import Any

import attrs

from ...errors import TableOrmError, counted
from ...models.key import Key
from ..subject import Subject

FAILURES_KEPT = 1_000


@attrs.frozen
class BulkFailure:
    """
    An operation that failed.

    Args:
        operation: The name of its method.
        entity: The entity, bag or key that it was given.
        error: Why it failed.
    """

    operation: str
    entity: Subject | Key[Any]
    error: TableOrmError


@attrs.frozen
class BulkReport:
    """
    What happened to the operations of a bulk so far.

    Args:
        written: The number of operations that were applied; a save with nothing to write counts too.
        failed: The first 1000 failed operations. `OutcomeUnknown` means that the operation may have been applied.
        failures: The total number of failed operations.
        requests: The number of transactions and single operations that were sent. Resending one after a lost reply
            does not count.
        existing: The number of inserts with `exist_ok` that found a row and left it unchanged.
        kept: The first 1000 entities and bags of these inserts.
    """

    written: int = 0
    failed: tuple[BulkFailure, ...] = ()
    failures: int = 0
    requests: int = 0
    existing: int = 0
    kept: tuple[Subject, ...] = ()

    def __str__(self) -> str:
        there = f"{self.existing} there already, " if self.existing else ""
        text = f"{self.written} done, {there}{self.failures} failed, {counted(self.requests, 'request')}"
        if not self.failed:
            return text
        first = self.failed[0]
        return f"{text}; the first that failed: {first.error}"


class BulkFailed(TableOrmError):
    """
    Some operations of a bulk failed; the others were written. `__cause__` is the error of the first one that failed.

    Args:
        report: What happened to all operations. `report.failed` lists the failed ones, each with its entity and error.
    """

    def __init__(self, report: BulkReport) -> None:
        first = report.failed[0]
        count = report.written + report.existing + report.failures
        super().__init__(
            f"{report.failures} of {counted(count, 'operation')} of the bulk failed; the "
            "report of this error names them, and with bulk(errors='report') the block does not raise it. The first "
            f"that failed: {first.error}",
            first.error.code,
        )
        self.report = report
        self.fault, self.__cause__ = first.error.fault, first.error
