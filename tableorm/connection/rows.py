"""
Reading one row of a table.
"""

from ..protocol.codes import Code, Fault
from ..stores import Row
from .connection import Connection
from .translate import translate

__all__ = ["read_row"]


async def read_row(db: Connection, table: str, partition_key: str, row_key: str) -> Row | None:
    """
    A row as it is stored; None if there is none.

    Raises:
        TableNotFound: There is no such table.
    """
    db.stats.requests += 1
    try:
        row = await db.require_open().get(table, partition_key, row_key)
    except Fault as fault:
        if fault.code == Code.RESOURCE_NOT_FOUND:
            return None
        raise translate(fault, f"get of ({partition_key!r}, {row_key!r})", table) from fault
    db.stats.rows += 1
    return row
