"""
The subject of a write: an entity, a bag or a key, and what it knows of its row.
"""

from typing import Any

from ..errors import ModelError
from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..models.state import state_of
from .plan import Stored

__all__ = ["Subject", "copied_properties", "key_of", "schema_of_subject", "stored_of"]

Subject = Entity | PropertyBag


def key_of(subject: Subject) -> Key[Any]:
    """
    The key of an entity or bag: as stored if it was read.

    Raises:
        ModelError: It is neither.
    """
    if isinstance(subject, PropertyBag):
        return Key(PropertyBag, subject.table, subject.partition_key, subject.row_key)
    if not hasattr(type(subject), "__schema__"):
        raise ModelError(f"{subject!r} is not an entity; give an instance of a model, or a bag")
    key: Key[Any] = subject.key
    return key


def stored_of(subject: Subject) -> Stored | None:
    """Return what a subject remembers of the stored row; None if it was neither read nor written. Raises ModelError."""
    if isinstance(subject, PropertyBag):
        before = subject.before
        return None if before is None else Stored(before, not subject.partial, before.get("odata.etag"))
    _ = schema_of_subject(subject)
    state = state_of(subject)
    row = state.row
    return None if row is None else Stored(row, not state.partial, row.get("odata.etag"), state.upgraded)


def copied_properties(subject: object) -> frozenset[str] | None:
    """Return the properties that an entity knows which was read from an index entry and not written since."""
    return state_of(subject).copied if isinstance(subject, Entity) else None


def schema_of_subject(subject: object) -> Schema:
    """Return the schema of an entity. Raises ModelError if it is not one."""
    schema = getattr(type(subject), "__schema__", None)
    if not isinstance(schema, Schema):
        raise ModelError(f"{subject!r} cannot be written: it is not an entity; give an instance of a model, or a bag")
    return schema
