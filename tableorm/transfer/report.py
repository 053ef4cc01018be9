"""
The report of a transfer: what it has done so far, and the cursor from which another process can go on.
"""

from typing import Any

import attrs

from ..errors import counted
from ..jobs.ranges import RangeReport


@attrs.frozen(eq=False, kw_only=True)
class TransferReport(RangeReport):
    """
    What a copy, a comparison, an export or an import of rows has done so far, or in total once it has finished.

    Args:
        entities: The number of rows that were read.
        written: The number of rows that were written, including those that replaced others.
        replaced: The number of rows that replaced a row with other content.
        equal: The number of rows that the target already had, with the same content.
        skipped: The number of rows that the target had with other content, and that `if_exists="skip"` left unchanged.
        failed: The number of rows that couldn't be written; in a comparison, of rows that differ or exist in only one
            database. A row whose blob is missing or differs counts too.
        failures: The first 35 of these, with the reasons.
        blobs: The number of blobs that were copied or found equal.
        pending: The number of rows that record work which workers haven't finished yet.
        share: How much is done, 0.0 to 1.0, estimated from the keys.
        requests: The number of pages read.
        seconds: How long it took, including earlier parts if it was resumed.
    """

    written: int = 0
    replaced: int = 0
    equal: int = 0
    skipped: int = 0
    failed: int = 0
    failures: tuple[str, ...] = ()
    blobs: int = 0
    pending: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can represent."""
        return {**super().to_dict(), "complete": self.complete, "rate": self.rate}

    def __str__(self) -> str:
        text = f"{counted(self.entities, 'row')} read"
        for what in ("written", "replaced", "equal", "skipped", "failed"):
            number: int = getattr(self, what)
            text += f", {number:,} {what}" if number else ""
        text += f", {counted(self.blobs, 'blob')}" if self.blobs else ""
        return f"{text}, in {self.seconds:.1f} s"
