"""
Stage 8, place: one operation per row, and which of them go together.
"""

from collections.abc import Sequence
from typing import NoReturn

from ..errors import TableOrmError
from .plan import PlannedWrite, WritePlan, in_transaction

__all__ = ["place"]


def place(writes: Sequence[PlannedWrite]) -> WritePlan:
    """
    The group of some writes, each of another row: one table, one partition.

    Raises:
        TransactionFailed: They do not fit into one transaction; `index` is the first that does not.
    """
    first = writes[0].change
    for write in writes:
        if write.change is first:
            continue  # what is derived from it
        change = write.origin
        if change.table != first.table or change.partition_key != first.partition_key:
            _refuse(
                write,
                f"is in table {change.table}, partition {change.partition_key!r}, and the transaction in table "
                f"{first.table}, partition {first.partition_key!r}; a transaction has one of each",
                "CommandsInBatchActOnDifferentPartitions",
            )
    return WritePlan(first.table, first.partition_key, tuple(writes))


def _refuse(write: PlannedWrite, problem: str, code: str) -> NoReturn:
    error = TableOrmError(f"{write.origin} {problem}", code)
    raise in_transaction(write.origin, write.index, error, "; nothing was sent") from error
