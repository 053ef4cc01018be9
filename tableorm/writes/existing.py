"""
Which inserts find an entity under their keys, for those that leave it as it is.
"""

from collections.abc import Iterable
from contextlib import suppress

from ..connection.connection import Connection
from ..connection.nearby import read_rows
from ..errors import TableOrmError
from ..models.kinds import KindSet
from ..models.marker_rows import is_marker
from ..models.reserved import ENTITY_TYPE
from ..models.schema import Schema
from ..models.visibility import is_live
from ..stores import Row, utc_now
from .plan import Change

__all__ = ["find_existing"]


async def find_existing(db: Connection, changes: Iterable[Change]) -> set[str]:
    """
    Return the RowKeys of those inserts with `exist_ok` that would find a row.

    A row of an entity that has expired, or of a move, is none of these: an insert may take its place.

    Nor are rows that cannot be read, as with a token that only allows to add: then the store refuses each insert.

    Args:
        db: Where the rows are.
        changes: Changes of one partition.
    """
    inserts = {change.row_key: change for change in changes if change.exist_ok}
    if not inserts:
        return set()
    first = next(iter(inserts.values()))
    expires = any(_expires(change.schema) for change in inserts.values())
    keys = [(first.partition_key, row_key) for row_key in inserts]
    with suppress(TableOrmError):
        found = await read_rows(db, first.table, keys, None if expires else (ENTITY_TYPE,), name=first.model)
        rows = {row_key: row for (_, row_key), row in found.items() if row is not None and not is_marker(row)}
        return {row_key for row_key, row in rows.items() if _counts(inserts[row_key], row)}
    return set()


def _expires(schema: Schema | None) -> bool:
    return schema is not None and schema.visibility is not None


def _counts(change: Change, row: Row) -> bool:
    """Return whether an insert cannot replace a row; one that does not fit its model stays."""
    if change.schema is None or not _expires(change.schema):
        return True
    return is_live(KindSet((change.schema,), change.table, bags=False).load(row.copy()), utc_now())
