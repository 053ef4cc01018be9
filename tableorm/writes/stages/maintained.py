"""
Part of stage 5, derive: fields that other entities keep right.
"""

from msgspec import structs

from ...errors import EncodeError
from ...models.schema import Schema
from ...protocol.edm import ANNOTATION
from ...stores import Operation, Row, Verb
from ..plan import Mode, PlannedWrite

__all__ = ["keep_maintained"]


# What other entities keep


def keep_maintained(write: PlannedWrite, schema: Schema, seen: Row | None) -> PlannedWrite:
    """The write with the fields that others keep as they are stored."""
    if not schema.maintained:
        return write
    change = write.change
    read = change.stored is not change.before
    row, after = dict(write.operation.row), dict(write.after or {})
    for info in schema.maintained:
        name = info.property
        stored = None if seen is None else seen.get(name)
        if seen is None:
            fresh = None if info.default is None else info.default()
            if change.values.get(info.name) != fresh:
                raise _kept_error(schema, info.name, change.values.get(info.name))
            continue
        if name in row and row[name] != stored and not read:
            raise _kept_error(schema, info.name, change.values.get(info.name))
        if change.mode is Mode.MERGE and change.only is not None and info.name in change.only:
            raise _kept_error(schema, info.name, change.values.get(info.name))
        whole = write.operation.verb not in (Verb.MERGE, Verb.INSERT_OR_MERGE)
        for members, wanted in ((row, whole or name in row), (after, True)):
            if not wanted:
                continue
            for member in (name, name + ANNOTATION):
                members.pop(member, None)
                if stored is not None and member in seen:
                    members[member] = seen[member]
    operation = Operation(write.operation.verb, row, write.operation.if_match)
    return structs.replace(write, operation=operation, after=after)


def _kept_error(schema: Schema, field: str, value: object) -> EncodeError:
    return EncodeError(
        "is refused: other entities keep this field right, and nothing else writes it; leave it as it was read",
        schema.name,
        field,
        value,
    )
