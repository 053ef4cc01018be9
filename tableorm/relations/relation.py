"""
Relations: on the class a relation says what to load; on an entity it is what was loaded. It never sends a request by
itself.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, Never, NoReturn, Self, TypeVar

import attrs

from ..derived.reference import find_target
from ..errors import ModelError, NotLoaded, shown
from ..expressions import Expression, Field
from ..models.derivation import RelationRules
from ..models.entity import Entity
from ..models.loaded import loaded_of
from ..queries.description import Loads

P_contra = TypeVar("P_contra", bound=Entity, contravariant=True)
C_co = TypeVar("C_co", bound=Entity, covariant=True)

_FIELD = re.compile(r"\{([^{}:]+)\}")


@attrs.frozen(eq=False, repr=False)
class Relation(Loads, Generic[P_contra, C_co]):
    """
    A relation of a model, as the class gives it: `Team.employees`. Give it to `Database.load`, or `load` of a query.

    Args:
        declared: What was declared.
        model: The class that it was taken from.
    """

    declared: Any  # a `RelationDeclaration`, which as a descriptor would be read as the type of what it gives
    model: type[Any]

    def __str__(self) -> str:
        return f"{self.model.__name__}.{self.declared.name}"

    def __repr__(self) -> str:
        return f"<relation {self}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.model, self.declared.name)


@attrs.frozen(eq=False, repr=False)
class OneOf(Relation[P_contra, C_co]):
    """A relation to one entity, as the class gives it: `Order.customer`."""


@attrs.frozen(eq=False, repr=False)
class ManyOf(Relation[P_contra, C_co]):
    """
    A relation to several entities, as the class gives it: `Team.employees`. It is immutable: each method returns a new
    one, and what that finds is loaded in place of all.

    Args:
        conditions: What must hold for an entity that is loaded.
        count: How many are loaded for each parent; None for all.
        fields: The fields that are loaded; None for all.
    """

    conditions: tuple[Expression, ...] = ()
    count: int | None = None
    fields: tuple[Field[Any], ...] | None = None

    def where(self, *conditions: Expression) -> Self:
        """Load only entities for which all of these conditions hold, and those that were given before."""
        return attrs.evolve(self, conditions=self.conditions + conditions)

    def limit(self, count: int) -> Self:
        """
        Load at most `count` entities for each parent, the first in key order.

        Raises:
            ModelError: The count is not a number from 0.
        """
        if type(count) is not int or count < 0:
            raise ModelError(f"{self}.limit({count!r}) is rejected: give a number of entities from 0 for each parent")
        return attrs.evolve(self, count=count)

    def only(self, *fields: Field[Any]) -> Self:
        """Load only these fields, and those in the key; as `only` of a query."""
        return attrs.evolve(self, fields=(self.fields or ()) + fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.model, self.declared.name, self.conditions, self.count, self.fields)


def _restored(model: type[Any], name: str, *rest: Any) -> ManyOf[Any, Any]:
    return ManyOf(getattr(model, name).declared, model, *rest)


class RelationDeclaration(RelationRules):
    """
    What `many` and `one` declare: the base of both.

    Args:
        target: The class of the entities that it leads to, or a function that returns it.
        fields: Their fields: "{field}" of this model, or text.

    Attributes:
        name: The name under which it is declared.
        sources: The fields of this model by which they are found.
        key: The one of them that is the key of the other entity; None if they are found by fields.
        fset: Whether it can be set: it says how to do otherwise.
    """

    fset = True
    name: str
    key: str | None = None

    def __init__(self, verb: str, target: Callable[[], type[Any]] | type[Any], fields: Mapping[str, object]) -> None:
        if not callable(target):  # pyright: ignore[reportUnnecessaryComparison]
            raise ModelError(
                f"{verb}({shown(target)}) is rejected: give a function that returns a model: lambda: Order"
            )
        self.target, self.fields, self.texts = target, dict[str, str](), dict[str, str]()
        for theirs, text in fields.items():
            found = _FIELD.fullmatch(text) if isinstance(text, str) else None
            if found is not None:
                self.fields[theirs] = found[1]
            elif isinstance(text, str) and "{" not in text and "}" not in text:
                self.texts[theirs] = text
            else:
                problem = f"{verb}(..., {theirs}={text!r}) is rejected: give a field of this model"
                raise ModelError(f"{problem}, as in {theirs}='{{name}}', or plain text")
        self.sources = tuple(dict.fromkeys(self.fields.values()))
        self._found: dict[type[Any], Relation[Any, Any]] = {}

    def of(self, owner: type[Any]) -> Relation[Any, Any]:
        """Return what stands for it on a class."""
        raise NotImplementedError

    def resolve(self, relation: Relation[Any, Any]) -> type[Any]:
        """Return the class that it leads to. Raises ModelError."""
        found: Any = find_target(str(relation), self.target)
        if not (isinstance(found, type) and hasattr(found, "__schema__")):
            raise ModelError(f"{relation}: {shown(found)} is no model; give one, as in lambda: Order")
        return found

    def source_of(self, entity: object) -> tuple[Any, ...]:
        """Return the values by which an entity finds others. Raises NotLoaded if the entity lacks one."""
        own = entity.__dict__
        try:
            return tuple([own[name] for name in self.sources])
        except KeyError:
            return tuple([getattr(entity, name) for name in self.sources])  # which says what is missing

    def __set_name__(self, owner: type[Any], name: str) -> None:
        if getattr(self, "name", name) != name:
            raise ModelError(f"{owner.__name__}.{name} is the same relation as {self.name!r}; declare another one")
        self.name = name

    def get(self, instance: object | None, owner: type[Any]) -> Any:
        """Return what stands for it on the class, or what was loaded for an entity."""
        if instance is None:
            found = self._found.get(owner)
            if found is None:
                found = self._found[owner] = self.of(owner)
            return found
        loaded = loaded_of(instance).get(self.name)
        if loaded is not None and loaded.source == self.source_of(instance):
            return loaded.value
        label = f"{owner.__name__}.{self.name}"
        why = "was not loaded" if loaded is None else "was loaded for other values of its fields"
        raise NotLoaded(f"{label} {why}; call await db.load(entity, {label}), or query.load({label})")

    def __set__(self, instance: object, value: Never) -> NoReturn:
        raise ModelError(f"{type(instance).__name__}.{self.name} cannot be set: {self.instead}")

    @property
    def instead(self) -> str:
        """Say what to do instead of setting it."""
        raise NotImplementedError
