"""
The subject of a write: an entity, a bag or a key, what it knows of its row, and what else can name a row.
"""

from typing import Any

from ..connection.boundary import Boundary
from ..errors import ModelError
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.property_bag import PropertyBag, note_read, note_written
from ..models.schema import Schema
from ..models.state import STATE, set_state, state_of
from .plan import Change, Mode

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


def schema_of_subject(subject: object) -> Schema:
    """Return the schema of an entity. Raises ModelError if it is not one."""
    schema = getattr(type(subject), "__schema__", None)
    if not isinstance(schema, Schema):
        raise ModelError(f"{subject!r} cannot be written: it is not an entity; give an instance of a model, or a bag")
    return schema


def key_from(boundary: Boundary, target: Any, fields: dict[str, Any]) -> Key[Any]:
    """
    Return the key of a `Key`, or of a model and its key fields.

    Args:
        boundary: The connection's; it completes the fields, and refuses other keys than its own.
        target: The key or model.
        fields: The key fields of the model.

    Raises:
        AccessDenied: The key is outside of the boundary.
        ModelError: The target is neither, the model is abstract, or there are fields beside a key.
        TemplateError: A key field is missing, unknown, or does not fit.
    """
    given: Key[Any] | type[Any] = target
    if isinstance(given, Key):
        if fields:
            raise ModelError(f"{given!r} is a key already; give it without fields")
        boundary.check(given)
        return given
    schema = schema_of(given)
    if schema.abstract:
        raise ModelError(f"{schema.name} is abstract: name one of its concrete classes, or give a Key")
    if not boundary.narrows:
        return schema.key(fields)
    made = schema.key(boundary.fill_key(schema, fields))
    boundary.check(made)
    return made


def key_of_target(boundary: Boundary, target: Any, fields: dict[str, Any]) -> Key[Any]:
    """
    Return the key of an entity or bag, or of what `key_from` takes.

    Raises:
        AccessDenied: It is outside of the boundary.
        ModelError: As `key_from`; or it is an entity, which has its key, and there are fields.
        TemplateError: A key field is missing, unknown, or does not fit.
    """
    if isinstance(target, type) or not isinstance(target, (Entity, PropertyBag)):  # a model is told sooner
        return key_from(boundary, target, fields)
    if fields:
        raise ModelError(f"{target!r} has its key already; give it without fields")
    boundary.check(target)
    key = key_of(target)
    boundary.check(key)
    return key


def check_change(boundary: Boundary, change: Change) -> None:
    """Refuse a change of an entity, bag or key outside of a boundary, or of such a row. Raises as `boundary.check`."""
    if boundary.narrows:
        boundary.check(change.subject)
        boundary.check_row(change.schema, change.address)
        if isinstance(change.subject, PropertyBag) and change.mode is not Mode.DELETE:
            boundary.check_bag(change.subject, merged=change.only is not None)


def adopt(subject: Subject, fresh: Subject) -> None:
    """Let an entity or bag become what another object of the same row is."""
    if isinstance(subject, PropertyBag):
        if isinstance(fresh, PropertyBag):
            note_read(subject, fresh.row)
        return
    if subject is fresh:
        return
    own = subject.__dict__
    for name in (STATE, *subject.__schema__.fields):
        own.pop(name, None)
    own.update(fresh.__dict__)


def forget(subject: object) -> None:
    """Let an entity or bag know that its row is gone."""
    if isinstance(subject, PropertyBag):
        note_written(subject, None)
    elif isinstance(subject, Entity):
        own = subject.__dict__
        _ = subject.extra  # what the model does not know stays with the entity, should it be inserted again
        set_state(subject, state_of(subject).forgotten(complete=all(name in own for name in subject.__schema__.fields)))
        forget_maintained(subject)


def forget_maintained(entity: Entity) -> None:
    """Let an entity that is not stored have nothing of what others keep in it: it begins anew when it is inserted."""
    own = entity.__dict__
    for info in entity.__schema__.maintained:
        if info.name in own:
            own[info.name] = None if info.default is None else info.default()
