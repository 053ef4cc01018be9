"""
Part of stage 5, derive: maintained fields, which other entities keep right.
"""

from typing import Any

from msgspec import structs

from ...errors import DecodeError, EncodeError
from ...models.reserved import ENTITY_TYPE
from ...models.schema import Schema
from ...protocol.edm import ANNOTATION
from ...stores import Operation, Row, Verb
from ..plan import Change, Mode, PlannedWrite

__all__ = ["keep_maintained", "stored_number"]


def keep_maintained(write: PlannedWrite, schema: Schema, seen: Row | None) -> PlannedWrite:
    """Return the write with the maintained fields as they are stored."""
    if not schema.maintained:
        return write
    change = write.change
    read = change.stored is not None or (change.prior is not None and change.prior is not change.before)
    row, after = dict(write.operation.row), dict(write.after or {})
    for info in schema.maintained:
        name = info.property
        stored = None if seen is None else seen.get(name)
        if seen is None:
            fresh = None if info.default is None else info.default()
            if change.values.get(info.name) != fresh:
                raise _maintained_error(schema, info.name, change.values.get(info.name))
            continue
        if name in row and row[name] != stored and not read:
            raise _maintained_error(schema, info.name, change.values.get(info.name))
        if change.mode is Mode.MERGE and change.only is not None and info.name in change.only:
            raise _maintained_error(schema, info.name, change.values.get(info.name))
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


def _maintained_error(schema: Schema, field: str, value: object) -> EncodeError:
    return EncodeError(
        "is refused: other entities keep this field right, and nothing else writes it; leave it as it was read",
        schema.name,
        field,
        value,
    )


def stored_number(value: Any, name: str, change: Change, row: Row) -> int:
    """
    Return a count or sum from what is stored.

    Args:
        value: What is stored.
        name: The property.
        change: The change that needs it, for the message.
        row: The row.

    Raises:
        DecodeError: It is not a number.
    """
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        raise DecodeError(
            f"has {value!r} as {name}, which is not a number, and {change} needs it; set it to 0, then let "
            "`tableorm audit --repair` count",
            str(row.get(ENTITY_TYPE)),
            (row["PartitionKey"], row["RowKey"]),
        ) from None
