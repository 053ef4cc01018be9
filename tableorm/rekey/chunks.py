"""
Many rows at a time, in transactions where they share a partition, or each by itself; and what became of them.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from ..connection.connection import Connection
from ..connection.rows import OtherDenied
from ..connection.tasks import map_together
from ..connection.translate import translate
from ..errors import AccessDenied, EntityExists, TableNotFound, TableOrmError, Unavailable
from ..protocol.codes import Fault
from ..stores import Operation, RetryBudget, Row, RowAddress

T = TypeVar("T")

PlacedRow = tuple[RowAddress, Row | None]
"""A row and where it is; None if it is still to be read."""


@attrs.frozen
class RowFailure:
    """
    A row that was left as it is.

    Args:
        place: Where it is.
        error: Why.
    """

    place: RowAddress
    error: TableOrmError


@attrs.define(kw_only=True)
class WindowReport:
    """
    What became of some rows, and what it took.

    Attributes:
        moved: How many were changed.
        collisions: Those whose new key is that of another entity.
        failures: Those that could not be changed for another reason.
        transactions: How many transactions of several operations were sent.
        operations: How many operations these had.
    """

    moved: int = 0
    collisions: list[RowFailure] = attrs.field(factory=list[RowFailure])
    failures: list[RowFailure] = attrs.field(factory=list[RowFailure])
    transactions: int = 0
    operations: int = 0


async def each_row(
    report: WindowReport,
    rows: Iterable[PlacedRow],
    step: Callable[[RowAddress, Row | None], Awaitable[bool]],
) -> None:
    """
    Do something with rows, one by one, and report what became of them.

    Args:
        report: Gets the numbers and failures.
        rows: The rows; None for one that is to be read.
        step: What is done; returns whether the row counts as changed.
    """

    async def call(each: PlacedRow) -> None:
        try:
            changed = await step(*each)
            report.moved += changed  # after the step, while which others count too
        except OtherDenied as error:
            report.failures.append(RowFailure(each[0], error))
        except (TableNotFound, AccessDenied, Unavailable):
            raise
        except EntityExists as error:
            report.collisions.append(RowFailure(each[0], error))
        except TableOrmError as error:
            report.failures.append(RowFailure(each[0], error))
        except Exception as error:  # noqa: BLE001 - the functions are the user's: one bad row is a failure
            report.failures.append(RowFailure(each[0], TableOrmError(f"{error!r}")))

    if todo := list(rows):
        await map_together(call, todo)


async def in_chunks(
    report: WindowReport,
    items: Sequence[T],
    place: Callable[[T], RowAddress],
    send: Callable[[Sequence[T]], Awaitable[None]],
    size: int,
) -> list[T]:
    """
    Send something of many items, those of a partition together; one by one where that is rejected.

    Args:
        report: Gets the numbers of transactions.
        items: The items.
        place: Tells the place that an item is about.
        send: Sends what is to be sent of items of one partition, as one transaction.
        size: How many items there are in a transaction at most.

    Returns:
        Those of which it succeeded, in order.
    """
    groups: dict[tuple[str, str], list[T]] = {}
    for each in items:
        at = place(each)
        groups.setdefault((at.table, at.partition_key), []).append(each)
    chunks = [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]
    done = set[int]()  # by identity

    async def call(chunk: list[T]) -> None:
        try:
            await send(chunk)
        except (TableNotFound, AccessDenied):
            raise
        except TableOrmError:
            if len(chunk) > 1:
                for each in chunk:
                    await call([each])
        else:
            done.update(map(id, chunk))
            if len(chunk) > 1:
                report.transactions += 1
                report.operations += len(chunk)

    if chunks:
        await map_together(call, chunks)
    return [each for each in items if id(each) in done]


async def send_operations(
    db: Connection, operations: Sequence[Operation], table: str, *, name: str, what: str
) -> Sequence[str | None]:
    """
    Send operations of one partition; again if the store refuses them for now.

    Args:
        db: Where to.
        operations: The operations.
        table: Name of the table.
        name: Name of the model, for counters.
        what: What they are for, for messages.

    Returns:
        The new ETags.

    Raises:
        TableOrmError: The store refused them, or nobody knows what became of them.
    """
    one, budget, repeated = len(operations) == 1, RetryBudget(db.retry), db.store.capabilities.retries
    while True:
        store, counts = db.sending(operations[0].verb if one else "transaction", name)
        counts.operations += len(operations)
        try:
            return [await store.write(table, operations[0])] if one else await store.transact(table, operations)
        except Fault as fault:
            db.count_fault(fault)
            if repeated or fault.doubt or not fault.transient or not await budget.another(fault):
                raise translate(fault, what, table) from None
