"""
Tentative rows that a mover has left at newer keys.
"""

from collections.abc import Iterable

from ..connection.connection import Connection
from ..models.marker_rows import MoveState, mark_of
from ..models.reserved import ENTITY_TYPE
from ..models.schema import Schema
from ..stores import Row, RowAddress
from ..writes.move_entity import RELOCATION
from .chunks import each_row
from .rekeying import Rekeying
from .report import WindowReport

__all__ = ["resolve_row", "resolve_window"]


async def resolve_window(db: Connection, rekeying: Rekeying, rows: Iterable[Row]) -> WindowReport:
    """
    Confirm the tentative rows that are entities, and delete the others after their moves were made impossible.

    Args:
        db: Where the rows are.
        rekeying: The models.
        rows: Tentative rows of the newer model; other rows are passed over. Those that were confirmed count as moved.
    """
    report, table = WindowReport(), rekeying.new.table_name()
    places = [(RowAddress.of_row(table, row), row) for row in rows]
    await each_row(report, places, lambda place, row: resolve_row(db, rekeying, place, row))
    return report


async def resolve_row(db: Connection, rekeying: Rekeying, place: RowAddress, row: Row | None) -> bool:
    """Do so with one row; return whether it was confirmed."""
    mark = mark_of(row)
    if row is None or mark is None or mark.state is not MoveState.TENTATIVE or not _is_of(rekeying.new, place, row):
        return False
    if await RELOCATION.resolve(db, place, rekeying.new):
        return False
    return await RELOCATION.finish(db, mark.move, mark.other, place, rekeying.new) is not None


def _is_of(schema: Schema, place: RowAddress, row: Row) -> bool:
    """Return whether a tentative row is of a model: a forged forward may name one of another."""
    same_table = place.table.lower() == schema.table_name().lower()
    return same_table and str(row.get(ENTITY_TYPE)).partition("#")[0] == schema.kind
