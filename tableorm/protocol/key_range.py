"""
The range of rows that a token gives access to: from one pair of keys to another, compared as tuples.
"""

import attrs

from .edm import Edm, utf16_key
from .filters import And, Compare, Constant, Filter, Op, Or

_BEYOND = b"\xff"  # no byte of a key is as large


@attrs.frozen(kw_only=True)
class KeyRange:
    """
    The rows from `(start_partition, start_row)` to `(end_partition, end_row)`, both included, compared as tuples.

    Args:
        start_partition: The first PartitionKey, None for no bound.
        start_row: The first RowKey in it, None for all of its rows. Only together with `start_partition`.
        end_partition: The last PartitionKey, None for no bound.
        end_row: The last RowKey in it, None for all of its rows. Only together with `end_partition`.

    Raises:
        ValueError: A RowKey is given without its PartitionKey.

    Source: REST, "Create a service SAS", "Restrict access to table entities".
    """

    start_partition: str | None = None
    start_row: str | None = None
    end_partition: str | None = None
    end_row: str | None = None

    def __attrs_post_init__(self) -> None:
        for bound, partition, row in (
            ("starts", self.start_partition, self.start_row),
            ("ends", self.end_partition, self.end_row),
        ):
            if row is not None and partition is None:
                raise ValueError(
                    f"a range {bound} at RowKey {row!r} without a PartitionKey; give both or the PartitionKey"
                )

    def __str__(self) -> str:
        if self.start_partition is None and self.end_partition is None:
            return "every key"
        start = "" if self.start_partition is None else f"from {_shown(self.start_partition, self.start_row)}"
        end = "" if self.end_partition is None else f"to {_shown(self.end_partition, self.end_row)}"
        return f"{start} {end}".strip()

    @property
    def empty(self) -> bool:
        """Whether the range ends before it starts, so that no row is in it."""
        return self._start() > self._end()

    def contains(self, partition_key: str, row_key: str) -> bool:
        """Return whether the row is within the range."""
        return self._start() <= (utf16_key(partition_key), utf16_key(row_key)) <= self._end()

    def _start(self) -> tuple[bytes, bytes]:
        return utf16_key(self.start_partition or ""), utf16_key(self.start_row or "")

    def _end(self) -> tuple[bytes, bytes]:
        keys = self.end_partition, self.end_row
        partition, row = (_BEYOND if key is None else utf16_key(key) for key in keys)
        return partition, row

    def condition(self) -> Filter | None:
        """Return the range as one condition on both keys; None if it holds every row."""
        found: list[Filter] = []
        if self.start_partition is not None:
            found.append(_beyond(Op.GT, Op.GE, self.start_partition, self.start_row))
        if self.end_partition is not None:
            found.append(_beyond(Op.LT, Op.LE, self.end_partition, self.end_row))
        return None if not found else found[0] if len(found) == 1 else And(tuple(found))


def _shown(partition: str, row: str | None) -> str:
    return f"partition {partition!r}" if row is None else f"({partition!r}, {row!r})"


def _beyond(beyond: Op, at: Op, partition: str, row: str | None) -> Filter:
    if row is None:
        return _compare("PartitionKey", at, partition)
    same = And((_compare("PartitionKey", Op.EQ, partition), _compare("RowKey", at, row)))
    return Or((_compare("PartitionKey", beyond, partition), same))


def _compare(name: str, op: Op, key: str) -> Compare:
    return Compare(name, op, Constant(Edm.STRING, key))
