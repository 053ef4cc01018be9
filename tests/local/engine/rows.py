"""
Rows that a test stores in an engine, and damage that it does to their file.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from tableorm.stores import Operation, Row, Verb
from tableorm_local.engine import Engine


def row(row_key: str, **properties: object) -> Row:
    """Return a row of the partition p."""
    return {"PartitionKey": "p", "RowKey": row_key, **properties}


def make_rows(partition: str, count: int, **properties: object) -> list[Row]:
    """Return the rows 0000, 0001, ... of a partition, all with the same properties."""
    return [{"PartitionKey": partition, "RowKey": f"{number:04d}", **properties} for number in range(count)]


async def insert_rows(engine: Engine, rows: Iterable[Row], table: str = "Shared") -> None:
    """Insert rows of one partition."""
    operations = [Operation(Verb.INSERT, row) for row in rows]
    for start in range(0, len(operations), 100):
        await engine.transact(table, operations[start : start + 100])


async def count_rows(engine: Engine, table: str) -> int:
    """Count the rows of a table of the file."""
    sql = f"SELECT count(*) FROM {table}"
    return int(await engine.read(lambda connection: connection.execute(sql).get))


def change_file(path: Path, statement: str, *values: object) -> None:
    """Change a file as no engine does."""
    connection: Any = apsw.Connection(str(path))
    connection.execute(statement, values)
    connection.close()
