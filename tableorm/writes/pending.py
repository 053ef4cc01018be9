"""
Rows that a transaction holds until it is sent, and the objects that stand for them.
"""

import datetime as dt
from copy import deepcopy
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs

from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag, restore_bag
from .plan import Change, PlannedWrite
from .subject import adopt

__all__ = ["Address", "Attempt", "Condition", "HeldRow", "copy_subject", "restore_subject", "row_of", "take_values"]

_IMMUTABLE = frozenset({bool, int, float, str, bytes, dt.date, dt.datetime, Decimal, UUID, type(None)})

Address = tuple[str, str, str]
"""A row: the name of its table, its PartitionKey and its RowKey."""


def row_of(named: Change | Key[Any]) -> Address:
    """Return the row that a change writes, or that a key names."""
    return named.table, named.partition_key, named.row_key


Condition = tuple[Address, str | None, object]
"""
The row that an operation writes, the ETag that it has to have, and the subject of the operation. The ETag is None if
the subject was read from an index entry.
"""


@attrs.define(eq=False)
class Attempt:
    """
    How a transaction went.

    Args:
        sent: Whether anything was sent.
        refused: The condition of the operation that failed; None if none did, or it has none.
    """

    sent: bool = False
    refused: Condition | None = None


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
    if isinstance(subject, PropertyBag) and isinstance(before, PropertyBag):
        restore_bag(subject, before)
    else:
        adopt(subject, before)


def take_values(subject: Entity | PropertyBag, changed: Entity | PropertyBag) -> None:
    """Let an entity or bag have the values of a changed copy; what it knows of the stored row stays."""
    if subject is changed:
        return
    if isinstance(subject, PropertyBag) and isinstance(changed, PropertyBag):
        properties = dict(changed.row)
        subject.row.clear()
        subject.row.update(properties)
    else:
        adopt(subject, changed)
