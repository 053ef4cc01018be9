"""
Derivations: what a class declares beside its fields, `by_email = Index(...)`, and what stands for it on the class.

The common part of indexes, index lists, counts, sums and embedded copies: a name, a condition, and that they belong to
the class and not to its entities.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import attrs

from ..errors import ModelError

if TYPE_CHECKING:
    from .entity import Entity

__all__ = ["Derivation", "DerivationOf"]

E = TypeVar("E", bound="Entity")


@attrs.frozen(repr=False, cache_hash=True)
class DerivationOf(Generic[E]):
    """
    A derivation of a model, as the class gives it: `Employee.by_email`.

    Args:
        model: The class; an abstract base stands for all of its classes.
        name: Under which it is declared.
    """

    model: type[E]
    name: str

    @property
    def __name__(self) -> str:
        return f"{self.model.__name__}.{self.name}"

    def __repr__(self) -> str:
        return self.__name__


class Derivation:
    """
    What is declared in the body of a class and kept right by the writes of its entities.

    Args:
        where: Takes the entity; only those for which it is true count. None for all.

    Attributes:
        name: Under which it is declared.
    """

    on_class: ClassVar[type[DerivationOf[Any]]] = DerivationOf
    """What stands for it on a class."""
    instead: ClassVar[str] = ""
    """What to use on an entity."""
    name: str

    def __init__(self, where: Callable[[Any], bool] | None = None) -> None:
        if where is not None and not callable(where):  # pyright: ignore[reportUnnecessaryComparison]
            raise ModelError(
                f"{type(self).__name__}(where={where!r}) is refused: give a function of the entity, as "
                "`lambda e: e.active`"
            )
        self.where = where
        self._found: dict[type[Any], DerivationOf[Any]] = {}

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = getattr(self, "name", name)  # the first: of another one the class says that it is not its own

    def __get__(self, instance: object | None, owner: type[Any]) -> DerivationOf[Any]:
        if instance is not None:
            label = f"{owner.__name__}.{self.name}"
            raise AttributeError(f"{self.name} is no field: it belongs to the class, {label}{self.instead}")
        found = self._found.get(owner)
        if found is None:
            found = self._found[owner] = self.on_class(owner, self.name)
        return found
