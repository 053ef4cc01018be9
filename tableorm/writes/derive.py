"""
Stage 5, derive: what a write of an entity does to the rows that are derived from it.

The primary notes in the property `_ix` what there is of it elsewhere. So a writer never computes an old address from
old values, old templates or old versions: what the row says is there is replaced or deleted, nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
import msgspec

from ..errors import NotSupported, TableOrmError
from ..indexes import IndexSchema, marks_of
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ..reserved import ENTITY_TYPE, ENTITY_VERSION, MARKS, WRITE_TAIL
from ..schema import Schema
from ..stores import Operation, Row, Verb
from .effects import CopyEffect, Effect, with_tail
from .encode import changes
from .plan import Mode, PlannedWrite, in_transaction

__all__ = ["Effects", "derive", "derives", "placed"]

Effects = dict[str, Effect]
"""By RowKey."""

_WHOLE = frozenset({Mode.INSERT, Mode.REPLACE, Mode.SAVE, Mode.UPSERT_REPLACE})


def derives(write: PlannedWrite) -> bool:
    """Whether a write may concern other rows."""
    schema = write.change.schema
    if schema is not None and schema.indexes:
        return True
    seen = write.origin.seen
    return seen is not None and MARKS in seen


def derive(writes: Sequence[PlannedWrite], *, transaction: bool = False) -> tuple[list[PlannedWrite], Effects]:
    """
    The effects of some writes on derived rows, and the writes with the note of them.

    Args:
        writes: All writes of a transaction, one for each row.
        transaction: Whether the user asked for a transaction, and gets its errors.

    Raises:
        UniqueViolation: Two of them want the same unique value.
        TransactionFailed: The like in a transaction.
        NotSupported: A bag would change a row that has copies.
    """
    noted: list[PlannedWrite] = []
    effects: Effects = {}
    for write in writes:
        if not derives(write):
            noted.append(write)
            continue
        try:
            one, found = _derived(write)
            for effect in found:
                earlier = effects.get(effect.address)
                effects[effect.address] = effect if earlier is None else earlier.then(effect)
        except TableOrmError as error:
            if not transaction:
                raise
            raise in_transaction(write.origin, write.index, error, "; nothing was sent") from error
        noted.append(one)
    return noted, effects


def placed(effects: Effects, found: Mapping[str, Row | None]) -> list[PlannedWrite]:
    """
    The operations of effects.

    Args:
        effects: By RowKey.
        found: The rows that had to be read.
    """
    planned: list[PlannedWrite] = []
    for address, effect in effects.items():
        operation = effect.operation(found.get(address))
        if operation is None:
            continue
        origin = effect.origin
        row = None if operation.verb is Verb.DELETE else operation.row
        weight = None if row is None or origin.weight is None else origin.weight + len(address)
        planned.append(
            PlannedWrite(
                operation,
                origin.change,
                origin.index,
                row,
                0 if row is None else weight,
                token=None if row is None else origin.token,
                first=origin.first,
                effect=effect,
            )
        )
    return planned


def _derived(write: PlannedWrite) -> tuple[PlannedWrite, list[Effect]]:
    """A write with its new note, and its effects."""
    change, first = write.change, write.origin
    schema, row = change.schema, write.after
    seen = None if first.mode is Mode.INSERT else first.seen
    old = marks_of(seen)
    if change.mode is Mode.GUARD and write.first is None:
        return write, []
    if schema is None:
        if row is not None and old:
            raise NotSupported(
                f"{change}: the row has copies in {', '.join(old)}, which a bag cannot keep right; write it through "
                "its model"
            )
        return write, _dropped(write, old)
    if row is None:
        return write, _dropped(write, old)
    values = _values(write, schema, row)
    changed = {name for name in changes(seen or {}, row) if ANNOTATION not in name}
    changed |= {name for name in seen or () if ANNOTATION not in name and name not in row}
    upgraded = change.upgraded or first.upgraded  # then what was seen is not what is stored, and the copies are as old
    new: dict[str, Any] = {}
    effects: list[Effect] = []
    for name, index in schema.indexes.items():
        address = index.address(values)
        before = old.pop(name, None)
        if address is not None:
            new[name] = address
            again = address == before
            if again and not upgraded and not _concerns(index, changed):
                continue  # the copy is as it shall be
            copy = with_tail(index.copy_of(values, row, address), write)
            effects.append(CopyEffect(index, address, write, again, copy, values))
        if before is not None and before != address:
            effects.append(CopyEffect(index, before, write, existed=True))
    effects += _dropped(write, old)  # of indexes that this program does not know: no copy is better than an old one
    return _noted(write, marks_of(seen), new), effects


_NEVER_COPIED = frozenset({MARKS, WRITE_TAIL, *SYSTEM_MEMBERS})
_KIND = frozenset({ENTITY_TYPE, ENTITY_VERSION})


def _concerns(index: IndexSchema, changed: set[str]) -> bool:
    """Whether some of the properties that change are in the copies of an index."""
    if index.index.include == "all":
        return bool(changed - _NEVER_COPIED)
    return bool(changed & (index.properties | _KIND))


def _dropped(write: PlannedWrite, marks: Mapping[str, Any]) -> list[Effect]:
    effects: list[Effect] = []
    for name, mark in marks.items():
        if not isinstance(mark, str):
            raise NotSupported(
                f"{write.change}: the row notes {name!r}, which this program does not know; declare it, or update the "
                "program"
            )
        effects.append(CopyEffect(None, mark, write, existed=True))
    return effects


def _values(write: PlannedWrite, schema: Schema, row: Row) -> Mapping[str, Any]:
    """The fields of the entity as they will be stored."""
    change = write.change
    if write.first is None and change.mode in _WHOLE and not change.values.get("_partial", False):
        return change.values
    return cast("dict[str, Any]", schema.decode(dict(row)).__dict__)


def _noted(write: PlannedWrite, old: Mapping[str, Any], new: Mapping[str, Any]) -> PlannedWrite:
    """The write with the note of what is derived now, if the row would not have it by itself."""
    operation = write.operation
    merges = operation.verb in (Verb.MERGE, Verb.INSERT_OR_MERGE)
    assert write.after is not None
    text = msgspec.json.encode(new, order="sorted").decode() if new or (merges and old) else None
    after = {name: value for name, value in write.after.items() if name != MARKS}
    row = {name: value for name, value in operation.row.items() if name != MARKS}
    if text is not None:
        after[MARKS] = text
        if not merges or new != old:
            row[MARKS] = text
    weight = None if write.weight is None else write.weight + len(text or "")
    return attrs.evolve(write, operation=Operation(operation.verb, row, operation.if_match), after=after, weight=weight)
