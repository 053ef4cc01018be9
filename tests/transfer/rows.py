"""
Rows of every sort for transfers, and what a table has.
"""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from tableorm import Database
from tableorm.protocol.edm import ANNOTATION
from tableorm.stores import Operation, Row, TableStore, Verb
from tableorm.testing.contract.base import everything
from tableorm.transfer.formats import encode_row
from tests.azure.test_operations_random import KEYS, LARGE_PROPERTIES, PARTITIONS, VALUES

TABLE = "Transferred"
NAMES = ["A", "a", "B", "Größe", "_1", "a\u0301", "名", "and", "EntityType", "_ix", "_w", "_mv", "P" * 255]

values = (
    VALUES
    | st.just((-0.0, None))
    | st.sampled_from(["", "x,y", '"', "\r\n", "\n", "=1+1", "\x00", "null"]).map(lambda text: (text, None))
)


@st.composite
def _properties(draw: st.DrawFn) -> Row:
    if draw(st.integers(1, 10)) == 1:
        return dict(draw(st.sampled_from(LARGE_PROPERTIES)))
    made: Row = {}
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
        value, annotation = draw(values)
        if value is not None:
            made[name] = value
        if value is not None and annotation is not None:
            made[name + ANNOTATION] = annotation
    return made


keys = st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(KEYS))
row_lists = st.dictionaries(keys, _properties(), max_size=8).map(
    lambda rows: [{"PartitionKey": pk, "RowKey": rk, **more} for (pk, rk), more in rows.items()]
)
"""Rows with different keys."""


def make_rows(count: int, partitions: int = 7, **properties: Any) -> list[Row]:
    """Return rows that are spread over some partitions."""
    return [
        {"PartitionKey": f"p{number % partitions}", "RowKey": f"{number:06d}", "n": number, **properties}
        for number in range(count)
    ]


async def fill(store: TableStore, rows: Iterable[Row], table: str = TABLE) -> None:
    """Make a table with these rows."""
    await store.create_table(table)
    partitions: dict[str, list[Operation]] = {}
    for row in rows:
        partitions.setdefault(row["PartitionKey"], []).append(Operation(Verb.INSERT, row, canonical=True))
    for some in partitions.values():
        size = 10 if len(some) < 10 else 100  # large rows are few
        for start in range(0, len(some), size):
            await store.transact(table, some[start : start + size])


async def content_of(db: Database, table: str = TABLE) -> list[str]:
    """Return the rows of a table as the lines that an export writes, without ETag and Timestamp."""
    found: list[str] = []
    for row in await everything(db.store, table):
        del row["odata.etag"], row["Timestamp"]
        found.append(encode_row(row).decode())
    return found
