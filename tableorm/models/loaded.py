"""
What was loaded for an entity beside its fields: the entities that its relations lead to.

It is one value of the entity's dictionary, replaced as a whole: copies of the entity share nothing that changes.
"""

from collections.abc import Mapping
from typing import Any

import attrs

_LOADED = "_loaded"

_NOTHING: Mapping[str, "Loaded"] = {}


@attrs.frozen
class Loaded:
    """
    What a relation has found.

    Args:
        source: The values of the fields that it was found by; with others it is not what belongs to the entity.
        value: An entity, several, or None.
    """

    source: tuple[Any, ...]
    value: Any


def loaded_of(entity: object) -> Mapping[str, Loaded]:
    """Return what was loaded for an entity, by name of the relation."""
    found: Mapping[str, Loaded] = entity.__dict__.get(_LOADED, _NOTHING)
    return found


def set_loaded(entity: object, name: str, loaded: Loaded) -> None:
    """Take note of what a relation of an entity has found."""
    entity.__dict__[_LOADED] = {**loaded_of(entity), name: loaded}
