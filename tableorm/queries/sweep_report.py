"""
The report of a sweep: what it has deleted so far, and the cursor from which another process can go on.
"""

import attrs

from ..errors import counted
from ..jobs.counts import JobCounts
from ..jobs.ranges import RangeReport
from ..jobs.report import Progress, report_of


@attrs.frozen(eq=False, kw_only=True)
class SweepReport(RangeReport):
    """
    What a sweep has done so far, or in total once it has finished.

    Args:
        entities: The number of rows that were read: those of expired entities, and those of older versions, which have
            to be checked.
        deleted: The number of expired entities that were deleted, with everything derived from them.
        kept: The number of expired entities that were written or deleted by someone else before the sweep got to them.
        failed: The number of entities that could not be deleted, because other entities need them or their rows don't
            fit the model, and of feeds that could not be trimmed.
        failures: The first 35 of these failures, with their reasons.
        trimmed: The number of changes that were deleted from change feeds.
        share: How much is done, 0.0 to 1.0, estimated from the keys.
        requests: The number of pages read and deletes sent.
        seconds: How long it took, including earlier parts if it was resumed.
    """

    deleted: int = 0
    kept: int = 0
    failed: int = 0
    failures: tuple[str, ...] = ()
    trimmed: int = 0

    def __str__(self) -> str:
        more = "".join(f", {count:,} {what}" for count, what in ((self.kept, "kept"), (self.failed, "failed")) if count)
        more += f", {counted(self.trimmed, 'change')} trimmed" if self.trimmed else ""
        return f"{counted(self.deleted, 'expired entity')} deleted{more}, in {self.seconds:.1f} s"


def make_report(progress: Progress[JobCounts]) -> SweepReport:
    """Return the report of what was counted."""
    return report_of(SweepReport, progress, deleted=progress.counts.written)
