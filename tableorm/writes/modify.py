"""
Read, change, write: what `modify` does with the user's function, and with the entity that it was called on.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import EncodeError, ModelError, shown
from ..models.entity import Entity
from ..models.property_bag import PropertyBag
from ..models.state import STATE, set_state, state_of
from .plan import PlannedWrite
from .stages.change import state_change
from .stages.encode import unsaved
from .subject import key_of

__all__ = ["adopt", "applied", "check_function", "forget", "forget_maintained", "refuse_unsaved"]

M = TypeVar("M", bound=Entity | PropertyBag)


def check_function(function: object) -> None:
    """
    Refuse what is no plain function.

    Raises:
        ModelError: It is asynchronous, or cannot be called.
    """
    if inspect.iscoroutinefunction(function) or not callable(function):
        raise _not_plain(function)


def _not_plain(function: object) -> ModelError:
    name = getattr(function, "__qualname__", None) or shown(function)
    return ModelError(
        f"modify: {name} is no plain function; give one that changes what it gets, or returns a changed copy, without "
        "awaiting: it is called again after every lost race"
    )


def applied(function: Callable[[M], M | None], subject: M, instance: object = None) -> M:
    """
    What a function makes of an entity or bag: that itself, changed, or what it returned in its place.

    Args:
        function: The user's.
        subject: What was read.
        instance: What modify was called on, if that is an entity or bag.

    Raises:
        ModelError: It returned something else, or an awaitable.
        EncodeError: It returned something of another key.
    """
    result: Any = function(subject)
    if result is None or result is subject:
        return subject
    if result is instance:
        raise ModelError(
            f"modify: the function returned the entity that modify was called on, {shown(result)}, which is not what "
            "was read; change and return what it gets"
        )
    if inspect.iscoroutine(result):
        result.close()
        raise _not_plain(function)
    if type(result) is not type(subject):
        raise ModelError(
            f"modify: the function returned {shown(result)} for {key_of(subject)}; return None, or an entity of the "
            "same model"
        )
    if key_of(result) != key_of(subject):
        raise EncodeError(
            f"is the key of what the function returned for {key_of(subject)}; modify cannot move a row",
            type(subject).__name__,
            "key",
            key_of(result),
        )
    if isinstance(result, PropertyBag):
        result.written_as(subject.before if isinstance(subject, PropertyBag) else None)
    else:
        set_state(result, state_of(result).adopt(state_of(subject)))
    return result


def refuse_unsaved(subject: Entity | PropertyBag, pending: PlannedWrite | None = None) -> None:
    """
    Refuse to modify an entity through an object whose own changes would be lost.

    Args:
        subject: The entity or bag.
        pending: What a transaction was given of it, and holds; what changed since that counts.

    Raises:
        EncodeError: It has changes that were not saved.
        NotRead: It was never read nor written.
    """
    if pending is not None and pending.after is None:
        return  # it is deleted, which reading it says
    change = state_change(subject, pending)
    names = unsaved(change)
    if names:
        superseded = isinstance(subject, Entity) and state_of(subject).superseded
        remedy = "refresh() it, which drops that, and" if superseded else "save() first, or"
        raise EncodeError(
            f"was changed and not saved, and modify would read over it; {remedy} change it in the function",
            change.schema.name if change.schema is not None else "PropertyBag",
            names[0],
            change.values.get(names[0], names[0]),
        )


def adopt(subject: Entity | PropertyBag, fresh: Entity | PropertyBag) -> None:
    """Let an entity or bag become what another object of the same row is."""
    if isinstance(subject, PropertyBag):
        if isinstance(fresh, PropertyBag):
            subject.read_as(fresh.row)
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
        subject.written_as(None)
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
