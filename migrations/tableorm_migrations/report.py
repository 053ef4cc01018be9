"""
The report of a rewrite: what it has done so far, and the cursor from which another process can go on.
"""

import attrs

from tableorm.audit.ranges import KEPT, RangeCounts, RangeReport
from tableorm.errors import counted

__all__ = ["RewriteCounts", "RewriteFailure", "RewriteReport"]


@attrs.frozen(kw_only=True)
class RewriteFailure:
    """
    A row that could not be rewritten, and is as it was.

    Args:
        table: Name of its table.
        partition_key: Its PartitionKey.
        row_key: Its RowKey.
        problem: Why it could not be rewritten.
    """

    table: str
    partition_key: str
    row_key: str
    problem: str

    def __str__(self) -> str:
        return f"({self.partition_key!r}, {self.row_key!r}) of table {self.table}: {self.problem}"


@attrs.define
class RewriteCounts(RangeCounts):
    """What is counted while rows are rewritten. The names are those of `RewriteReport`."""

    rewritten: int = 0
    failed: int = 0
    failures: list[RewriteFailure] = attrs.field(factory=list[RewriteFailure])

    def record(self, failure: RewriteFailure) -> None:
        """Count a failure, and keep it if there are not too many."""
        self.failed += 1
        if len(self.failures) < KEPT:
            self.failures.append(failure)


@attrs.frozen(eq=False, kw_only=True)
class RewriteReport(RangeReport):
    """
    What a rewrite has done so far or, when it has ended, in all.

    Args:
        entities: Entities that were read, of every version.
        rewritten: Entities of an older version that were written as the model's version.
        failed: Entities of an older version that could not be rewritten.
        failures: The first 1,000 of these, with the reasons.
        requests: Pages that were read.
        seconds: How long it took, earlier parts included if it was resumed.
    """

    rewritten: int = 0
    failed: int = 0
    failures: tuple[RewriteFailure, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all rows were read, and none of these has an older version any more."""
        return self.cursor is None and not self.failed

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.rewritten} of {counted(self.entities, 'entity')} rewritten{failed}, in {self.seconds:.1f} s"
