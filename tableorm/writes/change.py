"""
Stage 1, change: a verb and an entity become a Change, with its keys and its condition.
"""

from typing import Any, cast

import attrs

from ..bag import PropertyBag
from ..entity import Entity, stored_row
from ..errors import EncodeError, ModelError, PreconditionFailed
from ..keys import Key
from ..schema import Schema
from ..stores import Row
from .plan import Change

__all__ = ["Change", "delete_change", "insert_change", "save_change"]


def insert_change(subject: Entity | PropertyBag) -> Change:
    """
    Insert an entity under the key of its fields, whether it was read before or not.

    Raises:
        TemplateError: A key field is missing or does not fit.
    """
    if isinstance(subject, PropertyBag):
        return Change("insert", subject, None, subject.table, subject.partition_key, subject.row_key, None)
    schema = _schema(subject)
    _validate(subject, schema)
    partition_key, row_key = schema.make_keys(subject.__dict__)
    return Change("insert", subject, schema, schema.table_name(), partition_key, row_key, None)


def save_change(subject: Entity) -> Change:
    """
    Write what changed since the entity was read, under its ETag and the keys it was read with.

    Raises:
        PreconditionFailed: It was never read nor written.
        EncodeError: A key field was changed.
    """
    schema = _schema(subject)
    row = stored_row(subject)
    if row is None or "odata.etag" not in row:
        raise PreconditionFailed(
            f"save of {subject!r}: it was neither read nor written, so it has no ETag; insert() it, or read it first"
        )
    _validate(subject, schema)
    _refuse_new_key(subject, schema, row)
    return Change("save", subject, schema, schema.table_name(), row["PartitionKey"], row["RowKey"], row["odata.etag"])


def delete_change(subject: Entity | PropertyBag | Key[Any], if_match: str | None) -> Change:
    """
    Delete a row: under the ETag it was read with, or under `if_match`.

    Raises:
        PreconditionFailed: There is no ETag; say if_match="*" to delete whatever is there.
    """
    if isinstance(subject, Key):
        schema = None if subject.model is PropertyBag else subject.model.__schema__
        keys, etag = (subject.partition_key, subject.row_key), None
        table = subject.table
    elif isinstance(subject, PropertyBag):
        schema, table, etag = None, subject.table, subject.etag
        keys = (subject.partition_key, subject.row_key)
    else:
        schema, etag = _schema(subject), subject.etag
        table = schema.table_name()
        key = subject.key
        keys = (key.partition_key, key.row_key)
    condition = if_match or etag
    if condition is None:
        raise PreconditionFailed(
            f"delete of {subject!r}: it has no ETag, since it was not read or is deleted; read it first, or give "
            "if_match='*' to delete whatever is there"
        )
    return Change("delete", subject, schema, table, *keys, condition)


def _schema(subject: object) -> Schema:
    schema = getattr(type(subject), "__schema__", None)
    if not isinstance(schema, Schema):
        what = "a PropertyBag can be inserted and deleted" if isinstance(subject, PropertyBag) else "it is no entity"
        raise ModelError(f"{subject!r} cannot be written so: {what}; give an instance of a model")
    return schema


def _validate(subject: Entity, schema: Schema) -> None:
    # Fields can have been changed in place; what was never loaded has nothing to validate.
    if schema.has_validators and all(name in subject.__dict__ for name in schema.fields):
        attrs.validate(cast(Any, subject))


def _refuse_new_key(subject: Entity, schema: Schema, row: Row) -> None:
    current = schema.make_keys(subject.__dict__)
    if current == (row["PartitionKey"], row["RowKey"]):
        return
    # The stored keys need not be what the template writes today: what counts is whether the fields changed.
    before = schema.decode(row).__dict__
    if schema.make_keys(before) == current:
        return
    changed = [name for name in schema.key_fields if before.get(name) != subject.__dict__.get(name)]
    name = changed[0] if changed else schema.key_fields[0]
    raise EncodeError(
        f"is a new value of a key field (read as {before.get(name)!r}), and a save cannot move a row; "
        "insert a copy with evolve() and delete the old one",
        schema.name,
        name,
        subject.__dict__.get(name),
    )
