"""
Rows that a transaction holds until it is sent, the objects that stand for them, and errors about both.
"""

import datetime as dt
from copy import deepcopy
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import attrs

from ..errors import NotSupported
from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag, restore_bag
from ..stores import RowAddress
from .plan import Change, Mode, PlannedWrite
from .stages.compose import refuse_gone
from .subject import adopt

_IMMUTABLE = frozenset({bool, int, float, str, bytes, dt.date, dt.datetime, Decimal, UUID, type(None)})


Condition = tuple[RowAddress, str | None, object]
"""
The row that an operation writes, the ETag that it has to have, and the subject of the operation. The ETag is None if
the subject was read from an index entry.
"""


@attrs.frozen(eq=False)
class HeldRow:
    """
    A row of which a transaction knows.

    Args:
        subject: The one object that stands for it: an entity or bag, or the key that deletes it.
        write: What is written when the block ends; None if the row was only read.
    """

    subject: Any
    write: PlannedWrite | None = None


def copy_subject(subject: Entity | PropertyBag) -> Entity | PropertyBag:
    """Copy an entity or bag with its values, for `restore_subject`."""
    if isinstance(subject, PropertyBag):
        return subject.copy()
    copy = subject.evolve()
    own = copy.__dict__
    for name in subject.__schema__.fields:
        if name in own and type(own[name]) not in _IMMUTABLE:
            own[name] = deepcopy(own[name])
    return copy


def restore_subject(subject: Entity | PropertyBag, before: Entity | PropertyBag) -> None:
    """Let an entity or bag be again as it was when it was copied."""
    if isinstance(subject, PropertyBag):
        restore_bag(subject, cast("PropertyBag", before))
    else:
        adopt(subject, before)


def take_values(subject: Entity | PropertyBag, changed: Entity | PropertyBag) -> None:
    """Let an entity or bag have the values of a changed copy; what it knows of the stored row stays."""
    if subject is changed:
        return
    if isinstance(subject, PropertyBag):
        properties = dict(cast("PropertyBag", changed).row)
        subject.row.clear()
        subject.row.update(properties)
    else:
        adopt(subject, changed)


def check_follows(change: Change, index: int, held: HeldRow) -> None:
    """Refuse a change of a row that the transaction deletes, or for which another object stands."""
    if held.write is not None and held.write.after is None:
        if change.mode in (Mode.SAVE, Mode.MERGE, Mode.REPLACE):
            refuse_gone(change, index)
    elif change.mode is not Mode.INSERT and not isinstance(change.subject, Key) and change.subject is not held.subject:
        raise other_object(change)


def other_object(what: Change | Key[Any]) -> NotSupported:
    """Return the error of a row for which another object stands."""
    return NotSupported(
        f"{what}: in this transaction another object stands for the row, and this one knows nothing of its changes; "
        "use the object that was given first, or the one that `await tx.get(...)` returns"
    )


def read_too_late(what: Change | Key[Any]) -> NotSupported:
    """Return the error of a second write of a row, where one of the two needs the row read before the first."""
    return NotSupported(
        f"{what}: this transaction writes the row already, and one of the two needs properties of the row that were "
        "not read; read it before: refresh() the entity, or use `await tx.get(...)` or `await tx.modify(...)`"
    )


def unread(key: Key[Any]) -> NotSupported:
    """Return the error of a read of a row that is written without having been read."""
    return NotSupported(
        f"get of {key}: this transaction writes the row without having read it; read it with `await tx.get(...)` "
        "before it is written, or use `await tx.modify(...)` for both"
    )


def unwritten(key: Key[Any]) -> NotSupported:
    """Return the error of a workflow about an entity that the transaction does not write."""
    return NotSupported(
        f"a workflow is started about {key}, which this transaction does not write, or only after reading it; insert, "
        "save or delete the entity before, and `refresh` it before that if it was never read"
    )
