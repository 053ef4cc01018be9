"""
Stages 8 and 9, place and check: one table and partition for all operations, and no limit of the service passed.
"""

from collections.abc import Sequence
from typing import NoReturn
from urllib.parse import quote

import msgspec

from ...connection.translate import translate
from ...errors import LimitExceeded, TableOrmError
from ...models.reserved import MANIFEST
from ...protocol.codes import Code, Fault
from ...protocol.limits import MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS, MAX_VALUE_BYTES, check_row
from ..plan import PlannedWrite, WritePlan, in_transaction

__all__ = ["check", "is_light", "most_bytes", "place", "plan_writes"]


def plan_writes(writes: Sequence[PlannedWrite], *, transaction: bool = False) -> WritePlan:
    """
    Place and check encoded changes.

    Raises:
        LimitExceeded: A limit of the service would be passed.
        TransactionFailed: A limit would be passed in a transaction, or its changes do not fit together; `index` counts
            the changes.
    """
    return check(place(writes), transaction=transaction)


# Below this many characters nothing of a row of a model can pass a limit, so nothing has to be measured: a character
# is 4 bytes at most, and what is of fixed size is at most 252 properties of 16 bytes with names of 255 characters, far
# from 1 MiB.
_LIGHT = MAX_VALUE_BYTES // 4

_SHORT = 2048  # characters that need no measuring: each is at most six bytes of JSON

_FEW = 32  # writes of so many characters that are never too much: each has 114 KiB at most, keys and names included

_MEMBER_BYTES = 300  # a name of 255 characters, and a value of fixed size

_HEADERS = 1024  # of an operation in the body of a transaction, with the address of the account


def check(plan: WritePlan, *, transaction: bool = False) -> WritePlan:
    """
    Refuse a plan that the service would refuse for its size.

    Args:
        plan: What is to be sent.
        transaction: Whether the user asked for a transaction, and gets its errors.

    Raises:
        LimitExceeded: A single write passes a limit; names model, field, limit and actual size.
        TransactionFailed: A write of a transaction passes a limit, or the transaction as a whole is too large.
    """
    writes = plan.writes
    short = len(writes) <= _FEW
    for write in writes:
        if write.weight is None or write.weight > _SHORT:
            short = False
            if not is_light(write):
                _check_row(plan, write, transaction=transaction)
    if not short and len(writes) > 1:
        _check_transaction(plan, transaction=transaction)
    return plan


def is_light(write: PlannedWrite) -> bool:
    """Whether nothing of a write alone can pass a limit."""
    return write.weight is not None and write.weight <= _LIGHT


def most_bytes(write: PlannedWrite) -> int:
    """Bytes at most of an operation in the body of a transaction: the row, and around it headers and the URL."""
    row = write.operation.row
    # A character of a key is at most four bytes, each three characters of the URL.
    around = _HEADERS + 12 * (len(row["PartitionKey"]) + len(row["RowKey"]))
    if write.weight is not None and write.weight <= _SHORT:
        return around + 6 * write.weight + _MEMBER_BYTES * len(row)
    return around + len(msgspec.json.encode(row))


def _check_row(plan: WritePlan, write: PlannedWrite, *, transaction: bool) -> None:
    if write.after is None:
        return
    try:
        # Of a row that is known in part only what is sent can be judged.
        check_row(write.operation.row if write.partial else write.after)
    except Fault as fault:
        error = translate(_named(fault, write), str(write.origin), plan.table, write.origin.subject)
        if not transaction:
            raise error from None
        raise in_transaction(write.origin, write.index, error) from error


def _named(fault: Fault, write: PlannedWrite) -> Fault:
    if fault.property == MANIFEST:
        row_key = write.operation.row["RowKey"]
        return Fault(
            fault.code,
            f"{fault.message} There the entity {row_key!r} notes what is derived from it, as who holds copies of it: "
            "too many do; let fewer refer to it",
            fault.index,
            fault.property,
        )
    hint = None if write.effect is None else write.effect.limit_hint(fault)
    if hint is not None:
        return Fault(fault.code, f"{fault.message} {hint}", fault.index, fault.property)
    schema = write.change.schema
    info = schema.by_property.get(fault.property or "") if schema is not None else None
    if info is None or schema is None:
        return fault
    return Fault(fault.code, f"field {schema.name}.{info.name}: {fault.message}", fault.index, fault.property)


def _check_transaction(plan: WritePlan, *, transaction: bool) -> None:
    writes = plan.writes
    if len(writes) > MAX_TRANSACTION_OPERATIONS:
        _refuse(
            writes[MAX_TRANSACTION_OPERATIONS],
            f"the transaction has {len(writes)} operations, {MAX_TRANSACTION_OPERATIONS} are allowed",
            Code.INVALID_INPUT,
            transaction=transaction,
        )
    if sum(map(most_bytes, writes)) <= MAX_TRANSACTION_BYTES:
        return
    total = 0
    for write in writes:
        row = write.operation.row
        keys = quote(row["PartitionKey"], safe="") + quote(row["RowKey"], safe="")
        total += _HEADERS + len(keys) + len(msgspec.json.encode(row))
        if total > MAX_TRANSACTION_BYTES:
            _refuse(
                write,
                f"up to here the transaction has {total} bytes with the headers of its operations, "
                f"{MAX_TRANSACTION_BYTES} are allowed",
                Code.REQUEST_BODY_TOO_LARGE,
                transaction=transaction,
            )


def _refuse(write: PlannedWrite, problem: str, code: Code, *, transaction: bool) -> NoReturn:
    error = LimitExceeded(problem, code)
    if not transaction:
        raise LimitExceeded(f"{write.origin}, with its copies: {problem}; nothing was sent", code)
    raise in_transaction(write.origin, write.index, error, "; nothing was sent") from error


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
            _refuse_partition(
                write,
                f"is in table {change.table}, partition {change.partition_key!r}, and the transaction in table "
                f"{first.table}, partition {first.partition_key!r}; a transaction has one of each",
                "CommandsInBatchActOnDifferentPartitions",
            )
    return WritePlan(first.table, first.partition_key, tuple(writes))


def _refuse_partition(write: PlannedWrite, problem: str, code: str) -> NoReturn:
    error = TableOrmError(f"{write.origin} {problem}", code)
    raise in_transaction(write.origin, write.index, error, "; nothing was sent") from error
