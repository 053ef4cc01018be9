"""
Stage 2, complete: what later stages need of the stored row, and nobody has read yet.

A plain model needs it seldom: to remove a property from a row that was loaded in part, to replace one of which the
unknown properties are not known, and to write an upgraded entity over another version of the row than was read. Then
the row is read, and the write is conditional on the ETag it was read with.
"""

from msgspec import structs

from ..errors import PreconditionFailed, WrongKind
from ..kinds import Kinds, describe_kind
from ..protocol.codes import Code
from ..stores import Row
from .encode import removed_properties
from .plan import Change, Mode

__all__ = ["complete", "needs_row"]

_MAY_NEED_ROW = frozenset({Mode.SAVE, Mode.REPLACE, Mode.MERGE, Mode.UPSERT_MERGE})


def needs_row(change: Change) -> bool:
    """Whether the stored row must be read before this can be written."""
    if change.stored is not None or change.mode not in _MAY_NEED_ROW:
        return False
    if change.mode is Mode.SAVE:
        return change.partial and bool(removed_properties(change))
    if change.mode is Mode.REPLACE and not change.drop_extra:
        # A bag is all that its row shall be, whoever has added to that.
        return change.partial or ((change.before is None or change.foreign) and change.schema is not None)
    return change.mode is not Mode.REPLACE and change.upgraded and change.foreign


def complete(change: Change, row: Row | None) -> Change:
    """
    The change with the stored row, under its ETag.

    Args:
        change: What needs the row.
        row: The row as it is stored; None for an upsert that finds none, which then inserts.

    Raises:
        PreconditionFailed: It is no longer the row that the entity was read as.
        WrongKind: The entity was upgraded from an older version, and the row is of another kind now.
    """
    if row is None:
        return structs.replace(change, mode=Mode.INSERT, before=None, foreign=False)
    etag: str = row["odata.etag"]
    if change.upgraded and change.schema is not None:
        entity = Kinds.of([change.schema.model]).load(row.copy())
        if entity is None:
            raise WrongKind(
                f"{change}: the row is of another kind now: it has {describe_kind(row)}",
                (change.partition_key, change.row_key),
                row.get("EntityType"),
            )
        row = {**entity.__dict__["_row"], "odata.etag": etag}
    if change.if_match not in (None, "*", etag):
        raise PreconditionFailed(
            f"{change}: the row has changed since it was read; read it again and repeat the change",
            Code.CONDITION_NOT_SATISFIED,
            change.subject,
        )
    return structs.replace(change, stored=row, if_match=etag)
