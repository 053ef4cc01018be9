"""
The subject of a write: an entity, a bag or a key, and what it knows of its row.
"""

from typing import Any

from ..errors import ModelError
from ..models.entity import Entity, stored_row
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..stores import Row

__all__ = ["Subject", "copied_properties", "key_of", "known_state", "schema_of_subject"]

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
        raise ModelError(f"{subject!r} is no entity; give an instance of a model, or a bag")
    key: Key[Any] = subject.key
    return key


def known_state(subject: Subject) -> tuple[Row | None, str | None, bool]:
    """What a subject knows of the stored row, its ETag, and whether the row may have more."""
    if isinstance(subject, PropertyBag):
        return subject.before, subject.etag, subject.partial
    schema_of_subject(subject)
    row = stored_row(subject)
    return row, None if row is None else row.get("odata.etag"), subject.__dict__.get("_partial", False)


def copied_properties(subject: object) -> frozenset[str] | None:
    """Of an entity that was read from a copy, and not written since, the properties that it knows."""
    return subject.__dict__.get("_copied") if isinstance(subject, Entity) else None


def schema_of_subject(subject: object) -> Schema:
    """Return the schema of an entity. Raises ModelError if it is not one."""
    schema = getattr(type(subject), "__schema__", None)
    if not isinstance(schema, Schema):
        raise ModelError(f"{subject!r} cannot be written: it is no entity; give an instance of a model, or a bag")
    return schema
