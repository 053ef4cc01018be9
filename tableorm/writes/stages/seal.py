"""
Part of stages 8 to 10: what stages of rows do to the writes of a model that has any.
"""

from collections.abc import Sequence

from msgspec import structs

from ...connection.connection import Connection
from ...errors import TableOrmError
from ...models.reserved import ENTITY_TYPE
from ...models.row_stage import RowStage, as_first
from ...stores import Operation, Verb
from ..plan import PlannedWrite, refuse_before_sending

__all__ = ["WorkBefore", "has_work", "sealed", "split_once", "work_before"]


class WorkBefore(RowStage):
    """A row stage that has something to do before a row is written, such as to upload what the row will name."""

    async def before(self, db: Connection, write: PlannedWrite) -> None:
        """
        Do what must be done before a write is sent. It is done again if the write is planned anew, and in vain if the
        write is refused.

        Args:
            db: Where the write is sent.
            write: The write of an entity, as the model says.

        Raises:
            TableOrmError: It cannot be done; nothing of the write is sent.
        """
        raise NotImplementedError


def has_work(write: PlannedWrite) -> bool:
    """Return whether something must be done before a write is sent."""
    schema = write.change.schema
    if schema is None or not schema.stages:
        return False
    return any(isinstance(stage, WorkBefore) for stage in schema.stages)


async def work_before(db: Connection, write: PlannedWrite, *, transaction: bool) -> None:
    """
    Let the stages of the row of a write do what comes first.

    Raises:
        TableOrmError: It cannot be done.
        TransactionFailed: Likewise, in a transaction.
    """
    assert write.change.schema is not None
    for stage in write.change.schema.stages:
        if isinstance(stage, WorkBefore):
            try:
                await stage.before(db, write)
            except TableOrmError as error:
                refuse_before_sending(write, error, transaction=transaction)


def split_once(write: PlannedWrite) -> PlannedWrite:
    """Return a write with what is sent for it, if that is several operations, so that these are made once."""
    schema = write.change.schema
    if schema is None or schema.split is None or write.effect is not None:
        return write
    return structs.replace(write, sent=(write.operation, *sealed(write)))


def sealed(write: PlannedWrite) -> Sequence[Operation]:
    """Return what is sent for the operation of a write: one operation, unless a stage makes several of it."""
    schema, operation = write.change.schema, write.operation
    if schema is None or not schema.stages or write.effect is not None:
        return (operation,)
    if write.sent is not None and write.sent[0] is operation:
        return write.sent[1:]
    if operation.verb is not Verb.DELETE:
        for stage in schema.stages:
            operation = stage.seal(operation)
        if schema.opaque:
            operation = structs.replace(operation, canonical=False)
    if schema.split is None:
        return (operation,)
    stored = None if write.change.stored is None else write.change.stored.row
    first, *others = schema.split.split(operation, stored)
    if operation.verb is not Verb.DELETE and (ENTITY_TYPE in first.row or any(o.verb is Verb.INSERT for o in others)):
        kind = first.row.get(ENTITY_TYPE) or (stored or {})[ENTITY_TYPE]
        first = structs.replace(first, row=as_first({**first.row, ENTITY_TYPE: kind}))
    return (first, *others)
