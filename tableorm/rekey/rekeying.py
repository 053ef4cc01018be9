"""
What a model says of the older model whose entities it takes over under other keys: a bound declaration.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ..models.key import Key
from ..models.schema import Schema

__all__ = ["Rekeying"]


@attrs.frozen(kw_only=True, eq=False)
class Rekeying:
    """
    How entities of an older model become entities of a newer one.

    Args:
        old: The schema of the older model.
        new: The schema of the newer model.
        copied: Names of the fields that an entity has by both models, with the same values.
        digest: Identifies the two layouts, whichever program declares them.
        to_new: Makes an entity of the newer model; None if that drops the entity.
        to_old: Makes an entity of the older model.
        old_key: Returns the key that an entity of the newer model has by the older model.
        old_keys: Returns the keys that an entity may have had by the older model, from the fields of its newer key.
    """

    old: Schema
    new: Schema
    copied: frozenset[str]
    digest: str
    to_new: Callable[[Any], Any]
    to_old: Callable[[Any], Any]
    old_key: Callable[[Any], Key[Any]]
    old_keys: Callable[[Mapping[str, Any]], Sequence[Key[Any]]]

    def __str__(self) -> str:
        return f"re-key of {self.old.name} to {self.new.name}"
