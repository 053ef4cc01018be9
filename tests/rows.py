"""
Rows that tests write as they are stored, past the mapper.
"""

from tableorm import Database
from tableorm.stores import Operation, Row, TableStore, Verb


async def insert_row(where: Database | TableStore, table: str, row: Row) -> str | None:
    """Write a new row, and return its ETag."""
    return await _write(where, table, Operation(Verb.INSERT, row))


async def put_row(where: Database | TableStore, table: str, row: Row) -> str | None:
    """Write a row, whatever has been there, and return its ETag."""
    return await _write(where, table, Operation(Verb.INSERT_OR_REPLACE, row))


async def replace_row(where: Database | TableStore, table: str, row: Row) -> str | None:
    """Write a row over one that is there, and return its ETag."""
    return await _write(where, table, Operation(Verb.REPLACE, row, "*"))


async def merge_row(where: Database | TableStore, table: str, row: Row) -> str | None:
    """Change these properties of a row that is there, and return its ETag."""
    return await _write(where, table, Operation(Verb.MERGE, row, "*"))


async def delete_row(where: Database | TableStore, table: str, row: Row) -> None:
    """Delete the row that has the keys of this one."""
    await _write(where, table, Operation(Verb.DELETE, row, "*"))


async def _write(where: Database | TableStore, table: str, operation: Operation) -> str | None:
    return await (where.store if isinstance(where, Database) else where).write(table, operation)
