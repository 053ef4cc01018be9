"""
Entities: the base class of models.
"""

import datetime as dt
import warnings
from collections.abc import Iterable, MutableMapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Never,
    Self,
    TypeVar,
    Unpack,
    cast,
    dataclass_transform,
    overload,
)

from ..errors import ENCRYPTED, DecodeError, EncodeError, ModelError, NotLoaded, near, shown
from ..protocol.codes import Fault
from ..protocol.edm import ANNOTATION, datetime_from_text
from ..protocol.limits import check_key
from ..stores import Row
from .attributes import instead_of_field
from .declare import ClassKeywords, declare
from .derivation import DerivationOf
from .fields import encrypted, field
from .json_values import make_entity, new_entity, set_fields
from .key import Key, Storable, StorableClass
from .manifest import SubtotalEntry
from .partial import Partial
from .property_bag import PropertyBag, shown_properties
from .pydantic_schema import core_schema_of, describe_anything, describe_model, schema_of_instances, union_of
from .reserved import is_reserved_property
from .schema import Schema, concrete
from .state import STATE, EntityState, set_state, state_of

E = TypeVar("E", bound="Entity")

# Stands for an argument that was left out, where type checkers shall refuse that.
_LEFT_OUT: Any = None


class KeyMaker(Generic[E]):
    """`Employee.key`: makes keys of a model from its key fields."""

    __slots__ = ("_schema",)

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __call__(self, *values: Any, **fields: Any) -> Key[E]:
        """
        The key of the entity with these key fields.

        Args:
            values: None: fields are given by name.
            fields: The key fields.

        Raises:
            TemplateError: A key field is missing, unknown, or does not fit; names it.
            ModelError: A value was given without the name of its field.
        """
        if values:
            texts = ", ".join(
                f"{name}={shown(value)}" for name, value in zip(self._schema.key_fields, values, strict=False)
            )
            raise ModelError(f"{self._schema.name}.key() takes fields by name: write {self._schema.name}.key({texts})")
        return self._schema.key(fields)

    def __repr__(self) -> str:
        return f"{self._schema.name}.key({', '.join(self._schema.key_fields)})"


class _KeyAccess:
    """`key` of a model makes keys; `key` of an entity is its own."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> KeyMaker[E]: ...
        @overload
        def __get__(self, instance: E, owner: type[Any]) -> Key[E]: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...

    else:

        def __get__(self, instance, owner):
            if instance is None:
                # The base itself has no keys; documentation and inspection look at it all the same.
                return KeyMaker(schema_of(owner)) if hasattr(owner, "__schema__") else self
            return instance._own_key()


class _DataclassAccess:
    """An attribute by which the standard library's `dataclasses` knows a class, and an object of it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type["Entity"]) -> Any:
        if not hasattr(owner, "__schema__"):  # the base itself has no fields
            raise AttributeError(self._name)
        return getattr(owner.__schema__.as_dataclass, self._name)


if TYPE_CHECKING:  # a checker finds the mistake by itself, and shall go on to find it
    _ModelClass = type
else:

    class _ModelClass(StorableClass):
        """The class of models, which says what is near to an attribute that a model lacks. A model may be an ABC."""

        def __getattr__(cls, name):  # noqa: N805 - it is a metaclass
            problem, schema = f"type object {cls.__name__!r} has no attribute {name!r}", cls.__dict__.get("__schema__")
            if schema is not None and not name.startswith("_"):
                problem = f"{problem}; {near(name, [*schema.fields, *schema.derived], 'attribute')}"
            raise AttributeError(problem, name=name)


@dataclass_transform(kw_only_default=True, field_specifiers=(field, encrypted))
class Entity(Storable, metaclass=_ModelClass):
    """
    The base class of models.

        class Employee(
            Entity,
            table="Directory",
            partition_key="{department}",
            row_key="emp_{id:06d}",
        ):
            department: Mapped[str]
            id: Mapped[int]
            age: Mapped[int | None] = field(default=None)

    A model is an attrs class with keyword-only fields, declared as `name: Mapped[type]`. Its class keywords are:

    - table: The name of the table, or a template such as `"Logins{at:%Y%m%d}"` for one table per period.
    - partition_key, row_key: Key templates, such as `"emp_{id:06d}"`.
    - keys: `"escaped"`, the default, escapes characters that keys don't allow or that would end a field; `"verbatim"`
      writes strings unchanged, and rejects those characters.
    - kind: What is stored as the kind of the rows, by default the name of the class. With None, no kind is stored or
      queried.
    - version: The version of the model, from 1; see `upgrade`.
    - discriminator: `"property"`, `"row_key"`, `"partition_key"`, or a function from a bag to a model.
    - abstract: Whether this is a base class that has no entities of its own.
    - naming: How field names become property names: `"as_written"`, `"pascal"`, or a function.
    - write_token: Whether rows carry the tokens of their last three writes, in a property `_w` of about 40 characters.
      After a lost reply, these show whether the write happened; see "Lost replies" in the documentation.
    - tracked: Whether entities of other models hold copies of some fields, through `Embedded`. No row is then written
      without knowing what is derived from it. Models with indexes or counts are tracked anyway.
    - wide: Whether entities may have more than 252 properties, stored in several rows: True for 200 properties per row,
      or the number of properties.
    - moved_from: A `MovedFrom`, which names the older model whose entities this one takes over under new keys.

    Subclasses inherit everything except `kind`, `version`, `abstract` and `moved_from`.

    Raises:
        ModelError: When the class is created. The error names the class, the field or keyword, and the remedy.
    """

    __schema__: ClassVar[Schema]
    kind: ClassVar[str | None]
    """What is stored as the model's kind."""

    key = _KeyAccess()
    """On the class `key(**key_fields)` makes a `Key`; on an entity it is its own key, as stored if it was read."""

    if not TYPE_CHECKING:  # a checker knows the fields by `dataclass_transform`
        __dataclass_fields__ = _DataclassAccess()
        __dataclass_params__ = _DataclassAccess()

    def __init_subclass__(cls, **keywords: Unpack[ClassKeywords]) -> None:
        super().__init_subclass__()
        try:
            cls.__schema__ = declare(cls, keywords, frames=3)  # one of them is that of `ABCMeta`
        except ModelError as error:
            raise error.with_traceback(None) from error.__cause__  # it names what is wrong, so frames tell nothing more
        cls.kind = cls.__schema__.kind
        Schema.declared += 1
        if cls.__schema__.abstract:
            type.__setattr__(cls, "__init__", _refuse_abstract)

    @classmethod
    def key_of(cls, partition_key: str, row_key: str) -> Key[Self]:
        """
        Return the key of an entity from its stored keys.

            key = Employee.key_of("Sales", "emp_000007")

        Raises:
            EncodeError: The service would reject one of the keys.
        """
        schema = schema_of(cls)
        try:
            check_key("PartitionKey", partition_key)
            check_key("RowKey", row_key)
        except Fault as fault:
            raise EncodeError(
                f"is not a key: {fault.message}", schema.name, "key_of", (partition_key, row_key)
            ) from None
        return Key(cls, schema.table_of(partition_key, row_key), partition_key, row_key)

    @property
    def etag(self) -> str | None:
        """The ETag of the row as it was last read or written; None if it never was."""
        return state_of(self).etag

    @property
    def timestamp(self) -> dt.datetime | None:
        """When the store last wrote the row; None if the entity isn't stored yet."""
        text = state_of(self).timestamp
        return None if text is None else datetime_from_text(text)

    @property
    def extra(self) -> MutableMapping[str, Any]:
        """The properties that the model doesn't know. They are kept and written back, including your changes."""
        state = state_of(self)
        bag = state.extra
        if bag is None:
            schema = self.__schema__
            row: Row = {"PartitionKey": "", "RowKey": "", **state.unknown(schema.known)}
            bag = _Extra.of_schema(schema, row, state.keys)
            set_state(self, state.with_extra(bag))
        return bag

    def evolve(self, **changes: Any) -> Self:
        """
        Return a copy with some fields changed, and the same ETag, stored keys and unknown properties.

            older = employee.evolve(age=41)

        Raises:
            TypeError: There is no such field.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        for info in self.__schema__.shaped:
            if info.shape is not None and info.name in copy.__dict__:
                copy.__dict__[info.name] = info.shape.copy(copy.__dict__[info.name])
        if STATE in copy.__dict__:
            set_state(copy, state_of(self).__copy__())
        for name, value in changes.items():
            if name not in self.__schema__.fields:
                instead = instead_of_field(type(self), name) or near(name, self.__schema__.fields, "field")
                raise ModelError(f"{type(self).__name__} has no field {name!r}; {instead}")
            setattr(copy, name, value)
        return copy

    def become(self, model: type[E], /, **fields: Any) -> E:
        """
        Return this entity as an instance of another class of its family, with the same key, ETag and unknown
        properties.

            manager = employee.become(Manager, level=1)
            await db.save(manager)

        `save` then replaces the row, provided it hasn't changed.

        Args:
            model: The other class, which shares a base class with this one.
            fields: The fields that only the other class has, and those to change. Fields that only this class has are
                dropped.

        Raises:
            ModelError: The class is not of the family, its entities have other keys, or a field is missing; or this
                class has a change feed, or a count of others, which both do not have in common; or both count in other
                partitions under one name, in different models.
            NotLoaded: The entity was not read in full.
        """
        mine, theirs, state = self.__schema__, schema_of(model), state_of(self)
        call = f"{mine.name}.become({theirs.name})"
        family = [base for base in type(self).__mro__ if "__schema__" in base.__dict__ and issubclass(model, base)]
        if not family or theirs.abstract or theirs.table != mine.table or mine.stages or theirs.stages:
            why = "is abstract" if theirs.abstract else "is not of the same family, table and form"
            raise ModelError(f"{call} is rejected: {theirs.name} {why}; make a new entity, and delete this one")
        if [any(each.is_feed for each in one.derived.values()) for one in (mine, theirs)] == [True, False]:
            raise ModelError(
                f"{call} is rejected: {mine.name} has a change feed and {theirs.name} has none, so readers of the feed "
                "would see no change; declare the feed in a base class of both"
            )
        _require_all(call, state)
        for info in mine.maintained:
            ends = not info.optional and info.name not in schema_of(family[0]).fields
            if ends and self.__dict__[info.name] != info.absent():
                raise ModelError(
                    f"{call} is rejected: its {info.name} is {self.__dict__[info.name]}: other entities are counted in "
                    "it; delete those first, or declare the field in a base class of both"
                )
        for name, each in mine.derived.items():
            other = theirs.derived.get(name)
            if other is None or {each.entry_type, other.entry_type} != {SubtotalEntry}:
                continue
            if each.related() != other.related():
                raise ModelError(
                    f"{call} is rejected: {each.label} and {other.label} count in different models, and a worker "
                    "will know only the second one; rename one of them"
                )
        values = {name: value for name, value in self.__dict__.items() if name in theirs.fields}
        made = model(**(values | fields))
        keys = state.keys or mine.make_keys(self.__dict__)
        if theirs.make_keys(made.__dict__) != keys:
            raise ModelError(f"{call} is rejected: its key would be another; insert it, and delete this one")
        if state.row is not None:
            gone = mine.known - theirs.known
            row = {name: value for name, value in state.row.items() if name in mine.known and name not in gone}
            for name in mine.kind_properties:
                row.pop(name, None)
            row |= state.unknown(mine.known) | theirs.kind_properties
            set_state(made, EntityState(stored=row, upgraded=True))
        return made

    def copy_as(self, model: type[E], /, **fields: Any) -> E:
        """
        Return a new entity of another model, with the fields that both have, which is not stored yet:
        `invoice = order.copy_as(Invoice, number=7)`. This one stays as it is.

        Properties that this model does not know go along if the keys are the same. Otherwise they stay behind, and a
        warning names them.

        Args:
            model: The other model.
            fields: The fields that only the other model has, and others that differ.

        Raises:
            ModelError: A field is missing or unknown, or one that is encrypted here is not encrypted there.
            NotLoaded: The entity was not read in full.
            InvalidInput: A value does not pass the validator of the other model.
        """
        mine, theirs, state = self.__schema__, schema_of(model), state_of(self)
        call = f"{mine.name}.copy_as({theirs.name})"
        _require_all(call, state)
        own = {name: value for name, value in self.evolve().__dict__.items() if name in mine.fields}
        shared = {name: theirs.fields[name] for name in own if name in theirs.fields and name not in fields}
        bare = next((name for name, info in shared.items() if mine.fields[name].encrypted and not info.encrypted), None)
        if bare is not None:
            raise ModelError(
                f"{call} is rejected: {bare!r} is not encrypted there; declare it by encrypted(), or give it"
            )
        values = {name: own[name] for name, info in shared.items() if not info.maintained}
        made: E = new_entity(theirs, values | fields)
        unknown = {n for n in state.unknown(mine.known) if ANNOTATION not in n and not is_reserved_property(n)}
        if (state.keys or mine.make_keys(self.__dict__)) == theirs.make_keys(made.__dict__):
            copy_unknown(self, made)
            unknown &= theirs.known
        if unknown:
            warnings.warn(
                f"{call} leaves behind {', '.join(sorted(unknown))}, which {mine.name} does not know; give what the "
                "copy needs of these by its fields, or put them into its `extra`",
                stacklevel=2,
            )
        return made

    def __copy__(self) -> Self:
        return self.evolve()

    def update(self, changes: Partial[Self] = _LEFT_OUT, **fields: Never) -> None:
        """
        Set the fields of a `Partial`, with their converters and validators: either all of them, or none.

            employee.update(Partial(Employee, {"age": 41}))

        Raises:
            InvalidInput: A field can't be set, a value fails its validator, or the value of another field doesn't fit
                the new ones. The error lists all of these.
            ModelError: The changes are for another model, or were passed as keyword arguments.
        """
        for name in fields:
            raise ModelError(
                f"{type(self).__name__}.update({name}=...) is rejected: set the field, as in entity.{name} = value, or "
                f"give a Partial({type(self).__name__}, {{...}}) of the fields to set"
            )
        if not isinstance(changes, Partial):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"{type(self).__name__}.update({shown(changes)}) is rejected: give a Partial({type(self).__name__}, "
                "{...}) of the fields to set"
            )
        if not isinstance(self, changes.model):
            raise ModelError(
                f"{type(self).__name__}.update() takes a Partial[{type(self).__name__}], not one of "
                f"{changes.model.__name__}"
            )
        set_fields(self, self.__schema__, changes.given)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Tell pydantic how entities are read and written: as `from_dict` and `to_dict` do. Only pydantic calls it."""
        if not hasattr(cls, "__schema__"):  # the base itself, which bounds a type variable
            return schema_of_instances(cls, _shown_fields)
        schema = schema_of(cls)
        if schema.abstract:
            return union_of(schema, handler)

        def read(data: Any) -> Any:
            return data if isinstance(data, cls) else make_entity(schema, data)

        def fields_of(entity: Any) -> dict[str, Any]:
            if not isinstance(entity, cls):
                raise TypeError(f"{entity!r} is not a {schema.name}")
            return _loaded_fields(entity, schema)

        return core_schema_of(schema, schema.name, read, fields_of)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        """Tell pydantic the JSON schema of entities. Only pydantic calls it."""
        if not hasattr(cls, "__schema__"):
            return describe_anything(cls)
        return handler(core) if schema_of(cls).abstract else describe_model(core, handler)

    def _own_key(self) -> Key[Any]:
        schema = self.__schema__
        keys = state_of(self).keys or schema.make_keys(self.__dict__)
        return Key(type(self), schema.only_table or schema.table_of(*keys), *keys)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.__dict__, other.__dict__
        try:
            return all(mine.get(name, NotLoaded) == theirs.get(name, NotLoaded) for name in self.__schema__.fields)
        except (ArithmeticError, RecursionError):
            return False  # the decimal sNaN is equal to nothing; what nests too deeply cannot be compared

    __hash__ = None  # type: ignore[assignment]  # an entity is mutable; its key is hashable

    def __repr__(self) -> str:
        loaded = ", ".join(f"{name}={value!r}" for name, value in shown_values(self).items())
        return f"{type(self).__name__}({loaded})"


class _Extra(PropertyBag):
    """The unknown properties of an entity: a bag that refuses the names of the model's own properties."""

    __slots__ = ("keys_of_row", "schema")
    schema: Schema
    keys_of_row: tuple[str, str]  # for messages; the bag itself has none, so that equal properties are equal

    def _check_name(self, name: Any, value: object) -> None:
        super()._check_name(name, value)
        if name in self.schema.known or is_reserved_property(name):
            member = self.schema.by_property.get(name)
            remedy = f"set the field {member.field!r} instead" if member else "the name is reserved"
            raise EncodeError(f"is no unknown property: {remedy}", self.schema.name, f"extra[{name!r}]", value)

    def _damaged(self, name: str, error: Exception) -> DecodeError:
        return DecodeError(
            f"has a value that is none of its type ({str(error)[:200]}); read the row as a PropertyBag: `bag.row` has "
            "it as it is stored",
            self.schema.name,
            self.keys_of_row,
            f"extra[{name!r}]",
        )

    @classmethod
    def of_schema(cls, schema: Schema, row: Row, keys: tuple[str, str] | None) -> "_Extra":
        bag = cls(schema.table or "", "", "")
        bag.row.update(row)
        bag.schema, bag.keys_of_row = schema, keys or ("", "")
        return bag

    def copy(self) -> "_Extra":
        return _Extra.of_schema(self.schema, self.row, self.keys_of_row)

    def __repr__(self) -> str:
        return repr(shown_properties(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_extra, (self.schema.model, self.row, self.keys_of_row)


def _rebuild_extra(model: type[Entity], row: Row, keys: tuple[str, str]) -> _Extra:
    return _Extra.of_schema(model.__schema__, row, keys)


def _loaded_fields(entity: Entity, schema: Schema) -> dict[str, Any]:
    own = entity.__dict__
    return {name: own[name] for name in schema.fields if name in own}


def shown_values(entity: Entity) -> dict[str, Any]:
    """Return the values of the fields that were loaded, for people to read: without those of encrypted fields."""
    fields = entity.__schema__.fields
    return {
        name: ENCRYPTED if fields[name].encrypted else value
        for name, value in _loaded_fields(entity, entity.__schema__).items()
    }


def _shown_fields(entity: Entity) -> dict[str, Any]:
    schema = entity.__schema__
    return {name: value for name, value in _loaded_fields(entity, schema).items() if not schema.fields[name].hidden}


def _refuse_abstract(self: Entity, **fields: Any) -> None:
    del fields
    raise ModelError(f"{type(self).__name__} is abstract: create one of its concrete classes")


def _require_all(call: str, state: EntityState) -> None:
    if state.partial or state.loaded is not None or state.copied is not None:
        raise NotLoaded(f"{call}: the entity was not read in full; refresh() it first")


def copy_unknown(entity: Entity, made: Entity) -> None:
    """Give an entity the properties of another one that neither model knows."""
    known = made.__schema__.known
    unknown = {n: v for n, v in state_of(entity).unknown(entity.__schema__.known).items() if n not in known}
    if unknown:
        extra: Any = made.extra
        extra.row.update(unknown)


def schema_of(model: type[Any]) -> Schema:
    """
    Return the schema of a model.

    Raises:
        ModelError: It is not a model.
    """
    schema = getattr(model, "__schema__", None)
    if isinstance(schema, Schema) and isinstance(cast(Any, model), type):
        return schema
    if isinstance(cast(Any, model), DerivationOf):
        given = cast("DerivationOf[Any]", model)
        of = given.model.__name__
        raise ModelError(
            f"{given} is not a model: read the entity with it first, using "
            f"`db.get` or `db.lookup`, and give the entity, or give {of} with its key fields"
        )
    if isinstance(cast(Any, model), Entity):
        raise ModelError(f"{shown(model)} is an entity, not a model; give its class, {type(model).__name__}")
    raise ModelError(f"{model!r} is not a model; declare it as class {getattr(model, '__name__', 'X')}(Entity, ...)")


def concrete_schemas(models: Iterable[type[Any]]) -> list[Schema]:
    """The schemas of the concrete classes of several models, each once. Raises ModelError as `schema_of` does."""
    return list(dict.fromkeys(schema for model in models for schema in concrete(schema_of(model))))
