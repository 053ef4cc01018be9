"""
Running a function in a transaction, and again in a new one after a lost race.
"""
# pyright: reportPrivateUsage=false
# It asks a transaction how it went, which programs are not shown.

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from ..connection.async_only import NOT_AWAITED
from ..connection.connection import Connection
from ..connection.races import Attempts, check_attempts
from ..errors import EntityExists, EntityNotFound, ModelError, PreconditionFailed, TransactionFailed, shown
from ..stores import RowAddress
from .transaction import Transaction

T = TypeVar("T")


async def run_transaction(
    db: Connection, fn: Callable[[Transaction], Awaitable[T]], *, attempts: int, repeat: bool
) -> T:
    """
    Run a function in a transaction, and again in a new one after a lost race. Raises as `Database.run_transaction`.

    Args:
        db: Where it is sent.
        fn: The function.
        attempts: How often it is tried at most.
        repeat: Whether a transaction may be sent again after a lost reply.
    """
    check_attempts("run_transaction", attempts)
    existing: int | None = None
    refused: dict[
        tuple[RowAddress, str | int], object
    ] = {}  # by the ETag or subject that its row does not fit any more
    async for number in Attempts(db, attempts):
        transaction = Transaction(db, repeat=repeat)
        try:
            async with transaction as tx:
                return await _begun(fn, tx)
        except TransactionFailed as error:
            if not transaction._sent:
                raise  # its own operations do not fit together, and will not
            cause, condition = error.__cause__, transaction._refused
            if isinstance(cause, PreconditionFailed) and condition is not None:
                address, etag, subject = condition
                refusal = address, etag or id(subject)
                if refusal in refused:
                    raise _stale_outside(error) from cause
                refused[refusal] = subject  # kept, so that no other object gets its id
            # Whether a row is there the function may have asked; that it blindly inserts one shows the second time.
            again = isinstance(cause, (EntityExists, EntityNotFound)) and error.index != existing
            existing = error.index if again else None
            if number + 1 == attempts or not (again or isinstance(cause, PreconditionFailed)):
                raise
    raise AssertionError


def _begun(fn: Callable[[Transaction], Awaitable[T]], tx: Transaction) -> Awaitable[T]:
    """Call a function with a transaction. Raises ModelError if it is none, or there is nothing to await."""
    begun: object = fn(tx) if callable(cast("object", fn)) else None
    if not inspect.isawaitable(begun) or begun is cast("object", NOT_AWAITED):
        raise ModelError(f"run_transaction({shown(fn)}) is rejected: give an `async def fn(tx)`")
    return begun


def _stale_outside(error: TransactionFailed) -> TransactionFailed:
    """Return the error of a function that writes what was read before it was called, and has changed since."""
    return TransactionFailed(
        f"{error}; it was read before run_transaction called the function, so that each attempt sends the same ETag; "
        "read it in the function, by `await tx.get(...)` or `await tx.modify(...)`, or refresh() it there",
        error.code,
        error.index,
        error.operation,
        error.entity,
    )
