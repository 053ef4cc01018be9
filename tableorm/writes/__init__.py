"""
Writes: what passes from a verb to the store, stage by stage.

    change    verb and entity -> Change: keys, validators, condition
    encode    Change -> PlannedWrite: one operation on one row
    place     writes -> groups of one table and partition
    check     limits on final operations -> WritePlan, frozen
    execute   send, new ETags into the entities, errors reported where they came from

Each is one function in one module; they do not call each other, and only `execute` does I/O.
"""

from collections.abc import Sequence

from ..errors import TableOrmError
from .change import Change
from .check import check
from .encode import encode
from .place import place
from .plan import PlannedWrite, WritePlan, in_transaction

__all__ = ["plan_writes"]


def plan_writes(changes: Sequence[Change], *, transaction: bool = False) -> WritePlan | None:
    """
    Take changes through the stages up to a plan; None if nothing is to be sent.

    Raises:
        EncodeError: A value does not fit its field.
        LimitExceeded: A limit of the service would be passed.
        TransactionFailed: The like in a transaction, or its changes do not fit together; `index` counts the changes.
    """
    writes: list[PlannedWrite] = []
    for index, change in enumerate(changes):
        try:
            write = encode(change, index)
        except TableOrmError as error:
            if transaction:
                raise in_transaction(change, index, error) from error
            raise
        if write is not None:
            writes.append(write)
    return check(place(writes), transaction=transaction) if writes else None
