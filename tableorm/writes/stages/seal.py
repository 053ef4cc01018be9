"""
Part of stages 8 to 10: what stages of rows do to the writes of a model that has any.
"""

from collections.abc import Sequence

from msgspec import structs

from ...connection.connection import Connection
from ...connection.tasks import map_together
from ...errors import EncryptionError, TableOrmError
from ...models.reserved import ENTITY_TYPE
from ...models.row_stage import KeyedStage, as_first
from ...models.schema import Schema
from ...stores import Operation, Verb
from ..plan import PlannedWrite, refuse_before_sending


def split_once(write: PlannedWrite) -> PlannedWrite:
    """
    Return a write with what is sent for it, if that is several operations, so that these are made once.

    They are made anew from the write as it is now: its row may have got a manifest or the address of a blob since it
    was measured.
    """
    schema = schema_of_row(write)
    if schema is None or schema.split is None:
        return write
    return structs.replace(write, sent=(write.operation, *sealed(structs.replace(write, sent=None))))


def schema_of_row(write: PlannedWrite) -> Schema | None:
    """Return the schema that says how the row of a write is stored; None if it is stored as it is."""
    return write.change.schema if write.effect is None else write.effect.row_schema


def is_keyed(write: PlannedWrite) -> bool:
    """Return whether the row of a write is sealed with a key."""
    schema = schema_of_row(write)
    return schema is not None and schema.keyed is not None and write.after is not None


async def seal_with_keys(db: Connection, writes: Sequence[PlannedWrite]) -> Sequence[PlannedWrite]:
    """
    Return writes with those rows sealed that need a key, as they are sent.

    Raises:
        TableOrmError: One cannot be sealed.
        TransactionFailed: Likewise, in a transaction.
    """

    async def seal(write: PlannedWrite) -> PlannedWrite:
        schema = schema_of_row(write)
        if schema is None or not is_keyed(write):
            return write
        change, operation, given = write.change, write.operation, write.operation.row
        stored = change.stored_row
        try:
            for stage in schema.stages:
                if isinstance(stage, KeyedStage):
                    operation = await stage.seal_with_key(db, operation, change.address, stored)
                else:
                    operation = stage.seal(operation)
        except TableOrmError as error:
            refuse_before_sending(write, error)
        return structs.replace(write, sealed=(given, operation.row), sent=None)

    return await map_together(seal, writes) if len(writes) > 1 else [await seal(writes[0])]


def sealed(write: PlannedWrite, *, sending: bool = False) -> Sequence[Operation]:
    """
    Return what is sent for the operation of a write: one operation, unless a stage makes several of it.

    Args:
        write: The write.
        sending: Whether it is sent, and not only measured or explained: then what needs a key has been sealed.
    """
    schema, operation = schema_of_row(write), write.operation
    if schema is None or not schema.stages:
        return (operation,)
    with_key = write.sealed[1] if write.sealed is not None and write.sealed[0] is operation.row else None
    if sending and with_key is None and is_keyed(write):
        raise EncryptionError(f"{write.origin}: its row was not encrypted, and is not sent")
    if write.sent is not None and write.sent[0] is operation:
        return write.sent[1:]
    if with_key is not None:
        operation = structs.replace(operation, row=with_key, canonical=False)
    elif write.after is not None:
        for stage in schema.stages:
            operation = stage.seal(operation)
        if schema.opaque:
            operation = structs.replace(operation, canonical=False)
    if schema.split is None:
        return (operation,)
    stored = write.change.stored_row
    first, *others = schema.split.split(operation, stored)
    if operation.verb is not Verb.DELETE and (ENTITY_TYPE in first.row or any(o.verb is Verb.INSERT for o in others)):
        kind = first.row.get(ENTITY_TYPE) or (stored or {})[ENTITY_TYPE]
        first = structs.replace(first, row=as_first({**first.row, ENTITY_TYPE: kind}))
    return (first, *others)
