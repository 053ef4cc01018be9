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
    What a copy, a comparison, an export or an import of rows has done so far or, when it has ended, in all.

    Args:
        entities: Rows that were read.
        written: Rows that were written, those that replaced others included.
        replaced: Rows of these that took the place of a row with other content.
        equal: Rows that were in the target already, with the same content.
        skipped: Rows that were in the target with other content, which `if_exists="skip"` leaves as it is.
        failed: Rows that could not be written; of a comparison those that differ, or are on one side alone. A row whose
            blob is missing or differs counts too.
        failures: The first 50 of these, with the reasons.
        blobs: Blobs that were copied, or found equal.
        pending: Rows that say of a write what workers have not completed yet.
        share: Which part is done, judged by where the keys are: 0.0 to 1.0.
        requests: Pages of rows that were read.
        seconds: How long it took, earlier parts included if it was resumed.
    """

    written: int = 0
    replaced: int = 0
    equal: int = 0
    skipped: int = 0
    failed: int = 0
    failures: tuple[str, ...] = ()
    blobs: int = 0
    pending: int = 0
    share: float = 1.0

    @property
    def complete(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of plain values, for JSON."""
        return {**super().to_dict(), "complete": self.complete, "rate": self.rate}

    def __str__(self) -> str:
        text = f"{counted(self.entities, 'row')} read"
        for what in ("written", "replaced", "equal", "skipped", "failed"):
            number: int = getattr(self, what)
            text += f", {number} {what}" if number else ""
        text += f", {counted(self.blobs, 'blob')}" if self.blobs else ""
        return f"{text}, in {self.seconds:.1f} s"
