"""
Dataclasses that msgspec makes, with the members that have their defaults.

If the JSON lacks a member whose default is a plain value, msgspec stores nothing in the object, because the class has
the default as an attribute. The member can be read then, but it is missing when the object is encoded again. The
constructor of the dataclass stores the default in the object, and so do the functions here.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from .json_types import types_in

_NOTHING = object()


class _Members(NamedTuple):
    """The defaults that objects of a class store, and the members whose own values may be such objects."""

    defaults: tuple[tuple[str, Any], ...]
    nested: tuple[str, ...]


def make_completer(annotation: Any) -> Callable[[Any], None] | None:
    """
    Return a function that stores the defaults of dataclasses in a value of a type that msgspec has made.

    Returns:
        None if values of the type have no such dataclasses, so that reading them costs nothing more.
    """
    members: dict[type[Any], _Members] = {}
    for node in _walk(msgspec.inspect.type_info(annotation)):
        fields: Iterable[msgspec.inspect.Field] = getattr(node, "fields", ())
        nested = tuple(each.name for each in fields if any(map(_find_defaults, _walk(each.type))))
        if (defaults := _find_defaults(node)) or nested:
            members[_class_of(node)] = _Members(defaults, nested)
    if not any(each.defaults for each in members.values()):
        return None

    def complete(value: Any) -> None:
        kind: Any = value.__class__
        if (found := members.get(kind)) is not None:
            for name, default in found.defaults:
                value.__dict__.setdefault(name, default)
            for name in found.nested:
                complete(getattr(value, name))
        elif issubclass(kind, dict):
            for each in value.values():
                complete(each)
        elif issubclass(kind, (list, tuple, set, frozenset)):
            for each in value:
                complete(each)

    return complete


def _walk(node: msgspec.inspect.Type, seen: set[int] | None = None) -> Iterator[msgspec.inspect.Type]:
    """Yield what msgspec says of a type and of the types in it, each once: a class may have members of its own type."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for each in (*(member.type for member in getattr(node, "fields", ())), *types_in(node)):
        yield from _walk(each, seen)


def _class_of(node: Any) -> type[Any]:
    kind: type[Any] = getattr(
        node.cls, "__origin__", node.cls
    )  # of a generic class, msgspec names it with its type arguments
    return kind


def _find_defaults(node: msgspec.inspect.Type) -> tuple[tuple[str, Any], ...]:
    """Return the defaults that the constructor stores and msgspec does not; those of no class but dataclasses."""
    if not isinstance(node, msgspec.inspect.DataclassType) or not dataclasses.is_dataclass(kind := _class_of(node)):
        return ()
    return tuple(
        (each.name, each.default)
        for each in dataclasses.fields(kind)
        # With slots the attribute of the class is not the default, and msgspec stores the default in the slot.
        if each.init and inspect.getattr_static(kind, each.name, _NOTHING) is each.default
    )
