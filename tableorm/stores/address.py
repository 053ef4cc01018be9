"""
The address of a row: its table and its keys, as one value.
"""

from typing import Protocol

import msgspec

from .tables import Row


class _Addressed(Protocol):
    @property
    def table(self) -> str: ...
    @property
    def partition_key(self) -> str: ...
    @property
    def row_key(self) -> str: ...


class RowAddress(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """
    Where a row is. Frozen, hashable, and stored as a JSON array of three strings.

    It is a struct since a named tuple takes four times as long to make.

    Args:
        table: Name of the table, as the program knows it.
        partition_key: As stored.
        row_key: As stored.
    """

    table: str
    partition_key: str
    row_key: str

    def __str__(self) -> str:
        return f"({self.partition_key!r}, {self.row_key!r}) in table {self.table}"

    @classmethod
    def of(cls, named: _Addressed) -> "RowAddress":
        """Return the address of the row that a key or a bag names, or something else with these attributes."""
        return cls(named.table, named.partition_key, named.row_key)

    @classmethod
    def of_row(cls, table: str, row: Row) -> "RowAddress":
        """Return the address of a row of a table."""
        return cls(table, row["PartitionKey"], row["RowKey"])

    @classmethod
    def from_json(cls, text: str) -> "RowAddress":
        """Return the address that is stored as this text. Raises msgspec.DecodeError if it is none."""
        return _decode(text)

    def to_json(self) -> str:
        """Return the text that is stored."""
        return msgspec.json.encode(self).decode()

    def beside(self, row_key: str) -> "RowAddress":
        """Return the address of another row of the same partition."""
        return RowAddress(self.table, self.partition_key, row_key)

    @property
    def keys(self) -> Row:
        """The two members of its row that say where in the table it is."""
        return {"PartitionKey": self.partition_key, "RowKey": self.row_key}

    def is_same(self, other: "RowAddress") -> bool:
        """Return whether both are of one row: the names of two tables differ in more than letter case."""
        same_keys = self.partition_key == other.partition_key and self.row_key == other.row_key
        return same_keys and self.table.lower() == other.table.lower()


def row_keys(row: Row) -> tuple[str, str]:
    """Return the PartitionKey and the RowKey of a row."""
    return row["PartitionKey"], row["RowKey"]


_decode = msgspec.json.Decoder(RowAddress).decode


def unstamped(row: Row) -> Row:
    """Return a row without what the store adds to it: its ETag and its Timestamp."""
    return {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
