"""
The report of a rewrite: what it has done so far, and the cursor from which another process can go on.
"""

import attrs

from tableorm.audit.ranges import FailedRow, FailureCounts, RangeReport
from tableorm.errors import counted

__all__ = ["RewriteCounts", "RewriteReport"]


@attrs.define
class RewriteCounts(FailureCounts):
    """What is counted while rows are rewritten. The names are those of `RewriteReport`."""

    rewritten: int = 0


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
    failures: tuple[FailedRow, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all rows were read, and none of these has an older version any more."""
        return self.cursor is None and not self.failed

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.rewritten} of {counted(self.entities, 'entity')} rewritten{failed}, in {self.seconds:.1f} s"
