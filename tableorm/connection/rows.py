"""
Reading one row of a table.
"""

from ..protocol.codes import Code, Fault
from ..stores import Row
from .connection import Connection
from .translate import translate

__all__ = ["read_row"]


async def read_row(
    db: Connection,
    table: str,
    partition_key: str,
    row_key: str,
    select: tuple[str, ...] | None = None,
    name: str = "",
) -> Row | None:
    """
    Read a row as it is stored. It does not ask the boundary: whoever has made the keys has.

    Args:
        db: Where the row is.
        table: Name of the table.
        partition_key: As stored.
        row_key: As stored.
        select: The properties to read; None for all.
        name: The model or index that is read, for messages and counters; "" if none is.

    Returns:
        The row; None if there is none.

    Raises:
        TableNotFound: There is no such table.
    """
    store, counts = db.sending("get", name)
    try:
        row = await store.get(table, partition_key, row_key, select)
    except Fault as fault:
        if fault.code == Code.RESOURCE_NOT_FOUND:
            return None
        what = f"{name} ({partition_key!r}, {row_key!r})" if name else f"({partition_key!r}, {row_key!r})"
        raise translate(fault, f"get of {what}", table) from fault
    counts.rows += 1
    return row
