"""
Stage 8, place: which operations go together, to which table and partition.
"""

from collections.abc import Sequence
from typing import NoReturn

from ..errors import TableOrmError
from .plan import PlannedWrite, WritePlan, in_transaction

__all__ = ["place"]


def place(writes: Sequence[PlannedWrite]) -> WritePlan:
    """
    The group of some writes: one table, one partition, each row once.

    Raises:
        TransactionFailed: They do not fit into one transaction; `index` is the first that does not.
    """
    first = writes[0].change
    if len(writes) > 1:
        seen: set[str] = set()
        for write in writes:
            change = write.change
            if change.table != first.table or change.partition_key != first.partition_key:
                _refuse(
                    write,
                    f"is in table {change.table}, partition {change.partition_key!r}, and the transaction in table "
                    f"{first.table}, partition {first.partition_key!r}; a transaction has one of each",
                    "CommandsInBatchActOnDifferentPartitions",
                )
            if change.row_key in seen:
                _refuse(write, "is the second of its row; a transaction writes each row once", "InvalidDuplicateRow")
            seen.add(change.row_key)
    return WritePlan(first.table, first.partition_key, tuple(writes))


def _refuse(write: PlannedWrite, problem: str, code: str) -> NoReturn:
    error = TableOrmError(f"{write.change} {problem}", code)
    raise in_transaction(write.change, write.index, error, "; nothing was sent") from error
