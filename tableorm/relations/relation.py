"""
Relations: declared by `many` and `one` in the body of a class. On the class a relation says what to load; on an entity
it is what was loaded. It never sends a request by itself.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn, Self, TypeVar, get_args, overload

import attrs

from ..derived.reference import find_target
from ..errors import ModelError, NotLoaded, shown
from ..expressions import Expression, Field
from ..models.entity import Entity
from ..models.loaded import loaded_of
from ..queries.description import Loads

__all__ = ["Many", "ManyOf", "OnDelete", "One", "OneOf", "Relation", "RelationDeclaration", "many", "one"]

P = TypeVar("P", bound=Entity)
P_contra = TypeVar("P_contra", bound=Entity, contravariant=True)
C = TypeVar("C", bound=Entity)
C_co = TypeVar("C_co", bound=Entity, covariant=True)

OnDelete = Literal["refuse", "cascade", "keep"]

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
            raise ModelError(f"{self}.limit({count!r}) is refused: give a number of entities from 0 for each parent")
        return attrs.evolve(self, count=count)

    def only(self, *fields: Field[Any]) -> Self:
        """Load only these fields, and those in the key; as `only` of a query."""
        return attrs.evolve(self, fields=(self.fields or ()) + fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.model, self.declared.name, self.conditions, self.count, self.fields)


def _restored(model: type[Any], name: str, *rest: Any) -> ManyOf[Any, Any]:
    return ManyOf(getattr(model, name).declared, model, *rest)


class RelationDeclaration:
    """
    What `many` and `one` declare: the base of both.

    Args:
        target: The class of the entities that it leads to, or a function that returns it.
        fields: Their fields: "{field}" of this model, or text.

    Attributes:
        name: The name under which it is declared.
        sources: The fields of this model by which they are found.
        fset: Whether it can be set: it says how to do otherwise.
    """

    fset = True
    name: str

    def __init__(self, verb: str, target: Callable[[], type[Any]] | type[Any], fields: Mapping[str, object]) -> None:
        if not callable(target):  # pyright: ignore[reportUnnecessaryComparison]
            raise ModelError(f"{verb}({shown(target)}) is refused: give a function that returns a model: lambda: Order")
        self.target, self.fields, self.texts = target, dict[str, str](), dict[str, str]()
        for theirs, text in fields.items():
            found = _FIELD.fullmatch(text) if isinstance(text, str) else None
            if found is not None:
                self.fields[theirs] = found[1]
            elif isinstance(text, str) and "{" not in text and "}" not in text:
                self.texts[theirs] = text
            else:
                problem = f"{verb}(..., {theirs}={text!r}) is refused: give a field of this model"
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


class Many(RelationDeclaration, Generic[C]):
    """What `many` declares: on the class a `ManyOf`, on an entity a tuple."""

    def __init__(self, target: Any, on_delete: OnDelete, fields: Mapping[str, object]) -> None:
        super().__init__("many", target, fields)
        if on_delete not in get_args(OnDelete):
            raise ModelError(f"many(on_delete={on_delete!r}) is refused: give 'refuse', 'cascade' or 'keep'")
        if not self.fields:
            raise ModelError(
                "many(...) needs fields of the other model from fields of this one, by which its entities belong to "
                'one of this model: department="{name}"'
            )
        if on_delete != "keep":
            raise ModelError(f"many(on_delete={on_delete!r}) is not available yet; give 'keep'")
        self.on_delete: OnDelete = on_delete

    def of(self, owner: type[Any]) -> ManyOf[Any, Any]:
        """Return what stands for it on a class."""
        return ManyOf(self, owner)

    @property
    def instead(self) -> str:
        """Say what to do instead of setting it."""
        theirs = next(iter(self.fields))
        return (
            "it is what was loaded. Insert or delete entities by db.insert(...) and db.delete(...); give one to "
            f"another parent by db.move(entity, {theirs}=...), or by db.save(entity) if {theirs} is not in its key; "
            "then load it"
        )

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[P]) -> ManyOf[P, C]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> tuple[C, ...]: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...

    else:
        __get__ = RelationDeclaration.get


class One(RelationDeclaration, Generic[C]):
    """What `one` declares: on the class a `OneOf`, on an entity another entity, or None if there is none."""

    def __init__(self, target: Any, key: str | None, fields: Mapping[str, object]) -> None:
        super().__init__("one", target, fields)
        if (key is None) is not bool(self.fields):
            raise ModelError(
                'one(...) needs either key="buyer", a field of this model that is a Key, or fields of the other model '
                'from fields of this one, as in employee_id="{id}"'
            )
        self.key = key
        if key is not None:
            self.sources = (key,)

    def of(self, owner: type[Any]) -> OneOf[Any, Any]:
        """Return what stands for it on a class."""
        return OneOf(self, owner)

    @property
    def instead(self) -> str:
        """Say what to do instead of setting it."""
        names = ", ".join(f"entity.{name}" for name in self.sources)
        return f"it is what was loaded. Set {names} and call db.save(entity), or write the other entity; then load it"

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[P]) -> OneOf[P, C]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> C | None: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...

    else:
        __get__ = RelationDeclaration.get


def many(model: Callable[[], type[C]], *, on_delete: OnDelete, **fields: str) -> Many[C]:
    """
    Declare the entities that belong to an entity, by fields that their keys, or the keys of an index of theirs, begin
    with.

    `employees = many(lambda: Employee, department="{name}", on_delete="keep")` in the body of `Team` is a tuple of
    employees on a team, once it was loaded by `db.load(teams, Team.employees)`.

    Args:
        model: A function that returns the model of these entities, which may be declared later.
        on_delete: What becomes of them when the entity is deleted. "refuse" refuses that while a `Count` in the entity
            says that there are any; "cascade" deletes them first, which `Database.delete` alone does; "keep" leaves
            them as they are.
        fields: Their fields: "{field}" of this model, or text.

    Returns:
        A declaration, which is the relation on the class.
    """
    return Many(model, on_delete, fields)


def one(model: Callable[[], type[C]], *, key: str | None = None, **fields: str) -> One[C]:
    """
    Declare the entity that belongs to an entity: by its key, or by fields.

    `customer = one(lambda: Customer, key="buyer")` is the entity whose key the field `buyer` is, declared as
    `buyer: Mapped[Key[Customer] | None]`; `profile = one(lambda: Profile, employee_id="{id}")` the one with this field.

    Args:
        model: A function that returns the model of that entity, which may be declared later.
        key: The field of this model that is its key.
        fields: Its fields: "{field}" of this model, or text. They are its key, or what its key or that of an index of
            its model begins with.

    Returns:
        A declaration, which is the relation on the class.
    """
    return One(model, key, fields)
