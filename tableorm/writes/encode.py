"""
Stage 3, encode: a Change becomes one operation on one logical row.
"""

from typing import Any

from ..bag import PropertyBag
from ..entity import stored_row
from ..kinds import stored_version
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ..reserved import ENTITY_TYPE, ENTITY_VERSION
from ..schema import Schema
from ..stores import Operation, Row, Verb
from .plan import Change, PlannedWrite

__all__ = ["encode"]


def encode(change: Change, index: int) -> PlannedWrite | None:
    """
    The operation of a change; None for a save that has nothing to write.

    Args:
        change: What to write.
        index: Its position among the user's changes.

    Raises:
        EncodeError: A value does not fit its field.
    """
    keys: Row = {"PartitionKey": change.partition_key, "RowKey": change.row_key}
    if change.verb == "delete":
        return PlannedWrite(Operation(Verb.DELETE, keys, change.if_match), change, index, None, 0)
    if change.schema is None:
        bag: PropertyBag = change.subject
        row = {name: value for name, value in bag.row.items() if name not in ("odata.etag", "Timestamp")}
        return PlannedWrite(Operation(Verb.INSERT, row), change, index, row, None)
    row, weight = change.schema.encode(change.subject.__dict__, change.partition_key, change.row_key)
    before = stored_row(change.subject)
    extra = _extra(change.subject, change.schema, before)
    if before is not None:
        _keep_spelling(change.schema, row, before)
        if not change.subject.__dict__.get("_upgraded", False):
            _keep_kind(row, before)
    if extra:
        row |= extra
    if change.verb == "insert":
        return PlannedWrite(Operation(Verb.INSERT, row), change, index, row, None if extra else weight)
    assert before is not None
    return _encode_save(change, index, row, before, None if extra else weight)


def _encode_save(change: Change, index: int, row: Row, before: Row, weight: int | None) -> PlannedWrite | None:
    schema, own = change.schema, change.subject.__dict__
    assert schema is not None
    upgraded = own.get("_upgraded", False)
    removed = [name for name in before if name not in row and name not in SYSTEM_MEMBERS and ANNOTATION not in name]
    if upgraded or removed:
        # A merge cannot remove a property; the row holds all that the model does not know as well.
        return PlannedWrite(Operation(Verb.REPLACE, row, change.if_match), change, index, row, weight)
    changed: Row = {}
    for name, value in row.items():
        if ANNOTATION in name:
            continue
        annotation = row.get(name + ANNOTATION)
        old = before.get(name)
        # By text too: zero and minus zero are equal, and different values.
        same = old == value and type(old) is type(value) and (value != 0.0 or str(value) == str(old))
        if same and before.get(name + ANNOTATION) == annotation:
            continue
        changed[name] = value
        if annotation is not None:
            changed[name + ANNOTATION] = annotation
    if not changed:
        return None
    changed = {"PartitionKey": change.partition_key, "RowKey": change.row_key, **changed}
    return PlannedWrite(Operation(Verb.MERGE, changed, change.if_match), change, index, row, weight)


def _extra(subject: Any, schema: Schema, before: Row | None) -> Row:
    """The unknown properties to write back: as changed through `entity.extra`, or as read."""
    bag: PropertyBag | None = subject.__dict__.get("_extra")
    if bag is not None:
        return {name: value for name, value in bag.row.items() if name not in SYSTEM_MEMBERS}
    return schema.unknown(before) if before is not None and len(before) > 2 else {}


def _keep_spelling(schema: Schema, row: Row, before: Row) -> None:
    """
    Where a value is what was read, write what was read: the 100 ns digit of a DateTime, an Int32 in an int field,
    JSON text with other spacing. Only a changed value takes the spelling of the declaration.
    """
    for info in schema.stored:
        name = info.property
        new, old = row.get(name), before.get(name)
        if new is None or old is None:
            continue
        annotation, before_annotation = row.get(name + ANNOTATION), before.get(name + ANNOTATION)
        if new == old and annotation == before_annotation and type(new) is type(old):
            continue
        try:
            value, read = info.type.decode(new, annotation), info.type.decode(old, before_annotation)
        except (ValueError, TypeError):
            continue  # what was stored does not fit the field: the new value replaces it
        if info.type.json_text:
            # By what would be written: equality may leave out a part of the value.
            same = info.type.encode(read) == new
        else:
            same = value == read and type(value) is type(read) and str(value) == str(read)
        if same:
            row[name] = old
            if before_annotation is None:
                row.pop(name + ANNOTATION, None)
            else:
                row[name + ANNOTATION] = before_annotation


def _keep_kind(row: Row, before: Row) -> None:
    """A row that a newer program wrote keeps its version: what this one does not know must not look older."""
    if stored_version(before) > stored_version(row):
        for name in (ENTITY_TYPE, ENTITY_VERSION):
            for member in (name, name + ANNOTATION):
                if member in before:
                    row[member] = before[member]
