"""
What a model says of the older model whose entities it takes over under other keys: a bound declaration.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import attrs

from .key import Key

__all__ = ["Rekeying"]

S = TypeVar("S")


@attrs.frozen(kw_only=True, eq=False)
class Rekeying(Generic[S]):
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

    old: S
    new: S
    copied: frozenset[str]
    digest: str
    to_new: Callable[[Any], Any]
    to_old: Callable[[Any], Any]
    old_key: Callable[[Any], Key[Any]]
    old_keys: Callable[[Mapping[str, Any]], Sequence[Key[Any]]]

    def __str__(self) -> str:
        names = [getattr(schema, "name", "") for schema in (self.old, self.new)]
        return f"re-key of {names[0]} to {names[1]}"
