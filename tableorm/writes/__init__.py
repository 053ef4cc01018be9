"""
Writes: what passes from a verb to the store, stage by stage.

    change    verb and entity -> Change: keys, values, validators, condition
    complete  read the stored row, where it is needed
    encode    Change -> PlannedWrite: one operation on one row
    derive    copies under other keys: operations on other rows
    place     one operation per row (`fold`), all of one table and partition
    check     limits on final operations -> WritePlan, frozen
    execute   send, new ETags into the entities, errors reported where they came from; `doubt` if a reply was lost

Each is one function in one module; they do not call each other, and only `complete` and `execute` do I/O.
"""

from collections.abc import Sequence

from .check import check
from .place import place
from .plan import PlannedWrite, WritePlan

__all__ = ["plan_writes"]


def plan_writes(writes: Sequence[PlannedWrite], *, transaction: bool = False) -> WritePlan:
    """
    Take encoded changes through the remaining stages.

    Raises:
        LimitExceeded: A limit of the service would be passed.
        TransactionFailed: The like in a transaction, or its changes do not fit together; `index` counts the changes.
    """
    return check(place(writes), transaction=transaction)
