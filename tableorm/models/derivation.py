"""
Derivations: what a class declares beside its fields, `by_email = Index(...)`, and what stands for it on the class.

A pattern has a subclass of `Derivation` for users to declare. It checks its arguments when it is made, and becomes a
`DerivedSchema` when the class is made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, runtime_checkable

import attrs

from ..errors import ModelError, NotSupported, shown
from ..protocol.codes import Fault
from ..protocol.limits import check_table_name
from .home import HomeRules
from .key import Storable
from .property_types import Shape
from .reserved import is_reserved_table
from .schema import DerivedSchema, Schema, concrete

E = TypeVar("E", bound=Storable)
D = TypeVar("D", bound=DerivedSchema)


@attrs.frozen(repr=False, cache_hash=True)
class DerivationOf(Generic[E]):
    """
    A derivation of a model, as the class gives it: `Employee.by_email`.

    Args:
        model: The class; an abstract base stands for all of its classes.
        name: The name under which it is declared.
    """

    model: type[E]
    name: str

    @property
    def __name__(self) -> str:
        return f"{self.model.__name__}.{self.name}"

    def __repr__(self) -> str:
        return self.__name__


class IndexOf(DerivationOf[E]):
    """An index of a model, such as `Employee.by_email`, to be passed to `db.get` and `db.select`."""


def bound_to(derivation: DerivationOf[Any], pattern: type[D]) -> list[D]:
    """Return what a derivation is bound to in each concrete class, as the given kind of `DerivedSchema`."""
    schemas = concrete(cast("Schema", cast("Any", derivation.model).__schema__))
    return [schema.derived_as(pattern)[derivation.name] for schema in schemas]


def row_schemas(derivation: IndexOf[Any]) -> Sequence[Schema]:
    """
    Return the schemas of the rows of an index, of each concrete class.

    Raises:
        NotSupported: They are being built.
    """
    bound = bound_to(derivation, DerivedSchema)
    refuse_building(derivation, bound)
    return [each.row_schema for each in bound if each.row_schema is not None]


def refuse_building(derivation: DerivationOf[Any], bound: Sequence[DerivedSchema]) -> None:
    """
    Refuse to read by a derivation that is declared with `building=True`.

    Args:
        derivation: The derivation.
        bound: What it is bound to in each concrete class.

    Raises:
        NotSupported: It is declared so.
    """
    if any(each.building for each in bound):
        raise NotSupported(
            f"{derivation} is being built: entities that were there before it may be missing in it; run "
            f"db.build_index({derivation}, no_older_writers=True) to the end, then declare it without building=True"
        )


def check_building(what: str, building: object) -> None:
    """
    Refuse what a declaration says of whether it is read, if that is neither True nor False nor None.

    Raises:
        ModelError: It is not.
    """
    if not isinstance(building, bool | None):
        raise ModelError(f"{what}(building={building!r}) is rejected: give True or False")


def check_placement(
    what: str, *, partition_key: object, table: object, consistency: object, blob: bool = False
) -> None:
    """
    Refuse what a declaration says of rows in other partitions, if it is wrong in itself.

    Args:
        what: The pattern, for messages.
        partition_key: Template of the rows' PartitionKeys; None for those of their entities.
        table: Name of the rows' table; None for that of the model.
        consistency: "eventual" if, and only if, one of the two is given, or it is kept in blobs.
        blob: Whether it is kept in blobs.

    Raises:
        ModelError: Something of it is wrong.
    """
    if not isinstance(partition_key, str | None):
        raise ModelError(f"{what}(partition_key={partition_key!r}) is rejected: give a template, as in 'name_{{name}}'")
    if not isinstance(table, str | None):
        raise ModelError(f"{what}(table={table!r}) is rejected: give the name of a table")
    if table is not None:
        try:
            check_table_name(table)
        except Fault as fault:
            raise ModelError(f"{what}(table={table!r}) is rejected: {fault.message}") from None
        if is_reserved_table(table):
            raise ModelError(f"{what}(table={table!r}) is rejected: tableorm keeps its own records there; use another")
    if consistency not in (None, "eventual"):
        raise ModelError(f"{what}(consistency={consistency!r}) is unknown; use 'eventual', or leave it out")
    given = "blob=True" if blob else "table=..." if partition_key is None else "partition_key=..."
    elsewhere = blob or partition_key is not None or table is not None
    if consistency is None and elsewhere:
        raise ModelError(
            f"{what}({given}) puts {'lists' if blob else 'rows'} where no transaction can write them with their "
            "entities; add consistency='eventual' to write them shortly afterwards"
        )
    if consistency is not None and not elsewhere:
        raise ModelError(
            f"{what}(consistency='eventual') is rejected without partition_key or table: rows in the partition of "
            "their entities are written in one transaction with them; leave it out"
        )


def refuse_without_kind(label: str, schema: Schema) -> None:
    """
    Refuse rows of a model that nothing would tell from its entities.

    Args:
        label: What writes the rows, for the message.
        schema: The model.

    Raises:
        ModelError: It has no kind, or one that is not told by a property or the RowKey.
    """
    if schema.kind is None or schema.discriminator not in ("property", "row_key"):
        raise ModelError(
            f"{label}: an index needs a model with a kind, not kind=None, and with discriminator='property' or "
            "'row_key', to distinguish its rows from entities"
        )


class RelationRules:
    """
    What a class declares of entities that belong to its own, as far as writes know of it: the base of relations.

    Attributes:
        cascades: Whether they are deleted before the entity is.
    """

    cascades = False

    def check_used(self, schema: Schema) -> None:
        """
        Refuse it before a database is used with the model for the first time, if it does not fit the other model.

        Raises:
            ModelError: It does not.
        """


@runtime_checkable
class HomeDeclaration(Protocol):
    """What a class statement declares of where entities may be beside their keys, such as `MovedFrom`."""

    def _bind_home(self, schema: Schema) -> HomeRules: ...


def bind_home(declaration: object, schema: Schema) -> HomeRules:
    """
    Return the home that `moved_from=` gives the entities of a model.

    Raises:
        ModelError: It is no declaration, or does not fit the model.
    """
    if isinstance(declaration, type) or not isinstance(declaration, HomeDeclaration):
        old = getattr(declaration, "__name__", "OldModel")
        raise ModelError(
            f"{schema.name}: moved_from={shown(declaration)} is rejected: write moved_from=MovedFrom({old})"
        )
    return declaration._bind_home(schema)  # pyright: ignore[reportPrivateUsage]


class Derivation:
    """
    What is declared in the body of a class and maintained by the writes of its entities: the base of `Index`,
    `IndexList`, `Count`, `Sum`, `Embedded` and `Feed`.

    Args:
        where: Takes the entity; only entities for which it is true count. None for all.

    Attributes:
        name: The name under which it is declared.
    """

    _on_class: ClassVar[type[DerivationOf[Any]]] = DerivationOf
    """What stands for it on a class."""
    _instead: ClassVar[str] = ""
    """What to use on an entity."""
    name: str

    def __init__(self, where: Callable[[Any], bool] | None = None) -> None:
        if where is not None and not callable(where):  # pyright: ignore[reportUnnecessaryComparison]
            raise ModelError(
                f"{type(self).__name__}(where={where!r}) is rejected: give a function of the entity, as "
                "`lambda e: e.active`"
            )
        self.where = where
        self._found: dict[type[Any], DerivationOf[Any]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, 'name', 'without a name')}>"

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> DerivedSchema:
        """
        Return what is derived from the entities of a model by this declaration.

        Args:
            schema: The schema of the model, with what was declared before it.
            annotations: The types of the model's fields.

        Raises:
            ModelError: The declaration does not fit the model.
        """
        raise NotImplementedError

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = getattr(self, "name", name)  # the first: another class says that it is not its own

    def __get__(self, instance: object | None, owner: type[Any]) -> DerivationOf[Any]:
        if instance is not None:
            label = f"{owner.__name__}.{self.name}"
            raise AttributeError(f"{self.name} is not a field: it belongs to the class, {label}{self._instead}")
        found = self._found.get(owner)
        if found is None:
            found = self._found[owner] = self._on_class(owner, self.name)
        return found


DERIVATIONS_OF_SHAPES: dict[type[Shape[Any]], Callable[[str], Derivation]] = {}
"""What makes the derivation that a kind of field brings along, of the name of the field; `derived` fills it."""


def bind_derivation(derivation: Derivation, schema: Schema, annotations: Mapping[str, Any]) -> DerivedSchema:
    """Return what a declaration derives from the entities of a model. Raises ModelError if it does not fit that."""
    return derivation._bind(schema, annotations)  # pyright: ignore[reportPrivateUsage]
