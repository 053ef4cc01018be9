"""
Stage 2, complete: what later stages need of the stored row, and nobody has read yet.

A plain model needs it seldom: to remove a property from a row that was loaded in part, and to replace one of which the
unknown properties are not known. Then the row is read, and the write is conditional on the ETag it was read with.
"""

import attrs

from ..errors import PreconditionFailed
from ..protocol.codes import Code
from ..stores import Row
from .encode import removed_properties
from .plan import Change, Mode

__all__ = ["complete", "needs_row"]


def needs_row(change: Change) -> bool:
    """Whether the stored row must be read before this can be written."""
    if change.stored is not None:
        return False
    if change.mode is Mode.SAVE:
        return change.partial and bool(removed_properties(change))
    if change.mode is Mode.REPLACE and not change.drop_extra:
        # A bag that was never read is all that its row shall be.
        return change.partial or (change.before is None and change.schema is not None)
    return False


def complete(change: Change, row: Row) -> Change:
    """
    The change with the stored row, under its ETag.

    Args:
        change: What needs the row.
        row: The row as it is stored.

    Raises:
        PreconditionFailed: It is no longer the row that the entity was read as.
    """
    etag: str = row["odata.etag"]
    if change.if_match not in ("*", etag):
        raise PreconditionFailed(
            f"{change}: the row has changed since it was read; read it again and repeat the change",
            Code.CONDITION_NOT_SATISFIED,
            change.subject,
        )
    return attrs.evolve(change, stored=row, if_match=etag)
