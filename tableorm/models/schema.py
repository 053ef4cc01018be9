"""The schema of a model: everything the mapper needs to know of a class, read once when the class is made."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, make_dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar, cast

import attrs
from msgspec import structs

from ..errors import DecodeError, EncodeError, EncryptionError, ModelError, TableOrmError, TemplateError, near, shown
from ..keys.template import Template, parse_pair
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS, Edm
from ..protocol.limits import MAX_CUSTOM_PROPERTIES
from ..stores import Row, row_keys
from .codegen import ANNOTATED, make_decoder, make_encoder, make_key_function
from .home import HomeRules
from .index_declaration import IndexDeclaration
from .key import Key, Storable
from .manifest import ManifestEntry
from .periods import InTables, find_periods
from .property_bag import PropertyBag
from .property_types import FieldInfo, Member
from .reserved import BOUND_TO_KEYS, ENTITY_TYPE, ENTITY_VERSION, MANIFEST, METADATA, OPENED, PLACES, WRITE_TOKENS
from .row_stage import KeyedStage, RowStage, SplitStage
from .state import set_state, state_of

__all__ = [
    "MISFITS",
    "DerivedSchema",
    "Discriminator",
    "FieldInfo",
    "Schema",
    "Upgrade",
    "concrete",
    "descendants",
    "relatives",
]

Upgrade = Callable[[PropertyBag], PropertyBag]
Discriminator = Literal["property", "row_key", "partition_key"] | Callable[[PropertyBag], type[Storable]]

# What a row that is not as the model says raises when it is decoded or compared: a Guid that is a number, JSON that
# nests too deep, the decimal sNaN.
MISFITS = (KeyError, ValueError, TypeError, ArithmeticError, AttributeError, RecursionError)

D = TypeVar("D", bound="DerivedSchema")


class DerivedSchema:
    """
    What is derived from the entities of a model by one declaration: the interface of all patterns. Writes know more of
    it, see `tableorm.writes.maintainer.Maintainer`, and so does the audit.

    Args:
        name: Name of the declaration.
        schema: The schema of the model.

    Attributes:
        label: Model and name, for messages: "Employee.by_email".
        entry_type: The form of its entries in manifests.
        table: The table of the rows that it concerns.
        partition: The template of their PartitionKeys; None if they have none of their own.
        building: Whether its rows are written and not read yet; None if the store says so, by the `declaration`.
        declaration: What identifies an index or a list in the store; None for what has no state there.
        deferred: Whether it has rows in other partitions, made right after the write by means of a decision row.
        in_blobs: Whether it has blobs in place of rows, and no table has the name `table`.
        movable: Whether entities that have it can be moved to another partition.
        in_periods: Whether a model with a table for each period can have it.
        is_feed: Whether it has a change feed in each partition of its entities.
        follows: Whether it is made right after the write when everything else is.
        may_refuse: Whether a write can be rejected for its entry: a value is taken, an entity missing, a list full.
        shared_rows: How many rows a write of an entity concerns that writes of many other entities concern too.
        rows_per_chunk: How many rows more a transaction of many writes should have room for because of it.
    """

    entry_type: ClassVar[type[ManifestEntry]]
    building: bool | None = False
    declaration: IndexDeclaration | None = None
    deferred = in_blobs = movable = in_periods = is_feed = follows = False
    may_refuse = True
    shared_rows = rows_per_chunk = 0

    def __init__(self, name: str, schema: "Schema") -> None:
        self.name, self.schema = name, schema
        self.label = f"{schema.name}.{name}"
        self.table, self.partition = schema.table, schema.partition

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ManifestEntry | None:
        """
        Return what the manifest of an entity ought to say; None for nothing.

        Args:
            values: The fields of the entity, in full.
            partition_key: Its PartitionKey.
            row_key: Its RowKey.

        Raises:
            TableOrmError: A value does not fit.
        """
        raise NotImplementedError

    def current_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Return an entry of an `entry_type` in the form that it would be written in today."""
        return entry

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """
        Return the derived row that an entity ought to have; None if the pattern has no row for each entity.

        Args:
            entry: What its manifest ought to say.
            values: The fields of the entity, in full.
            row: Its row, which is of the model's version.
        """
        del entry, values, row
        return None

    def check(self) -> None:
        """
        Refuse the declaration if it does not fit other models, as far as those are declared by now.

        Raises:
            ModelError: It does not.
        """

    def related(self) -> "Sequence[Schema]":
        """Return the other models whose entities it changes or reads."""
        return ()

    @property
    def tables(self) -> "Collection[str | None]":
        """The tables of the rows that it concerns."""
        return {self.table, *(each.table for each in self.related())}

    # Rows of its own

    def row_templates(self) -> Sequence[Template]:
        """Return the templates of the RowKeys of its own rows, which must be told from those of others."""
        return ()

    def shares_rows(self, *, keys_apart: bool) -> bool:
        """
        Return whether entities of several classes may want the same row by declarations of this name.

        Args:
            keys_apart: Whether two entities of these classes can have equal RowKeys.
        """
        del keys_apart
        return False

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return how many derived rows belong to this entity alone; the most, if `values` is None."""
        del values
        return 0

    @property
    def row_schema(self) -> "Schema | None":
        """The schema of the rows that the pattern writes, if queries can read entities from them; otherwise None."""
        return None

    def holds_all(self, given: AbstractSet[str]) -> bool:
        """Return whether queries find all entities, of which none of these fields is None, in the pattern's rows."""
        del given
        return False


class Schema(InTables):
    """
    What a model is, in the mapper's terms. Built by `tableorm.models.declare`; it never changes, except that `upgrades`
    and `children` grow while modules are imported.

    Attributes:
        model: The class.
        name: Its name, for messages.
        table: Name of its table, or template of the names of its tables; None for an abstract base without one.
        periods: Its tables, if it has one for each period.
        abstract: Whether it has no entities of its own.
        kind: What is stored as its kind; None stores nothing.
        version: Its version, from 1.
        discriminator: How kinds are told apart.
        partition: Template of the PartitionKey; None for an abstract base without one.
        row: Template of the RowKey.
        verbatim: Whether its keys hold texts as they are, without escapes.
        fields: Every field by name.
        by_path: The members of all fields by what conditions call them.
        by_property: The members of stored fields by property.
        key_fields: Names of the fields in the key templates, in order.
        key_holders: Of each field that a key holds in full, the template and the member of rows that it makes.
        upgrades: From version to the function that makes the next.
        write_token: Whether its rows carry the tokens of their last writes.
        shaped: Its fields of several members.
        uploads: Those of them whose values have bytes in blob storage.
        held: What the manifests of its entities say of declarations of other models that copy their fields, by name.
        cleared: The properties that a merge empties instead of removing them, see `Shape.form`.
        stages: How its rows are stored otherwise than its fields say; usually empty.
        opaque: The properties that the store does not hold as the fields say.
        split: The stage that stores an entity in several rows; None if each is one row.
        keyed: The stage that needs a key to seal a row; None if there is none.
        staged: Whether rows have to be prepared or joined where they are read.
        unasked: The properties about which the store cannot be asked.
        filled: Fields that get a value when the entity is written.
        derived: What is derived from its entities, by name of the declaration.
        maintained: Its fields that other entities keep.
        expiry: The field that says until when an entity counts, forever if it is None; None if all do forever.
        tracked: Whether its rows note what is derived from them, or hold what others keep: none is written blindly.
        follows: Whether a row only tells where the row is that the entity is read from.
        partial: Whether rows hold but some of the fields.
        home: Where its entities may be beside their keys; None if they are nowhere else.
        relations: What is declared of entities that belong to its own, as `RelationRules`.
        placed: Its rows and those of its declarations, as `PlacedRows`, once it is declared.
    """

    declared: ClassVar[int] = 0  # how many models so far: what was found out of all of them holds while it stays
    follows = False
    partial = False
    home: HomeRules | None = None
    relations: Sequence[Any] = ()
    placed: Sequence[Any] = ()

    def __init__(
        self,
        *,
        model: type[Storable],
        table: str | None,
        abstract: bool,
        kind: str | None,
        version: int,
        discriminator: Discriminator,
        naming: Callable[[str], str],
        partition: Template | None,
        row: Template | None,
        fields: Mapping[str, FieldInfo],
        verbatim: bool = False,
        write_token: bool = False,
        tracked: bool = False,
        stages: Sequence[RowStage] = (),
    ) -> None:
        self.model, self.name = model, model.__name__
        self.table, self.abstract, self.kind, self.version = table, abstract, kind, version
        self.discriminator, self.naming, self.verbatim = discriminator, naming, verbatim
        self.partition, self.row = partition, row
        self.fields = dict(fields)
        self.stages = tuple(stage.bind(self.fields) for stage in stages)
        self.opaque = frozenset[str]().union(*(stage.opaque for stage in self.stages))
        self.split = next((stage for stage in self.stages if isinstance(stage, SplitStage)), None)
        self.keyed = next((stage for stage in self.stages if isinstance(stage, KeyedStage)), None)
        self.staged = self.split is not None or any(stage.prepares for stage in self.stages)
        self.unasked = self.opaque if self.split is None else self.opaque | self.split.elsewhere
        self.periods = find_periods(table, self.name, fields)
        self.only_table = table if self.periods is None else None
        self.filled = tuple(info for info in self.fields.values() if info.is_filled())
        self.upgrades: dict[int, Upgrade] = {}
        self.derived: dict[str, DerivedSchema] = {}
        self.held: dict[str, ManifestEntry] = {}
        self.maintained = tuple(info for info in self.fields.values() if info.maintained)
        self.expiry = next((info for info in self.fields.values() if info.expiry), None)
        self.tracked = tracked or bool(self.maintained) or self.split is not None
        self.write_token = write_token or self.tracked
        templates = [template for template in (partition, row) if template is not None]
        self.key_fields = tuple(dict.fromkeys(name for template in templates for name in template.fields))
        self.key_holders = {
            name: (template, member)
            for template, member in ((row, "RowKey"), (partition, "PartitionKey"))
            if template is not None
            for name in template.full_fields
        }
        self.stored = tuple(info for info in self.fields.values() if info.stored)
        self.by_path = {each.path: each for info in self.fields.values() for each in info.members}
        self.by_property = {each.property: each for info in self.stored for each in info.members}
        self.shaped = tuple(info for info in self.stored if info.shape is not None)
        self.uploads = tuple(info for info in self.shaped if info.shape is not None and info.shape.uploads)
        long = [info for info in self.shaped if info.shape is not None and info.shape.form]
        self.cleared = frozenset(member.property for info in long for member in info.members[1:])
        self.kind_properties = self._kind_properties()
        self.key_names = frozenset(self.key_fields)
        self.has_validators = any(attribute.validator is not None for attribute in attrs.fields(cast(Any, model)))
        # A model that stores no kind leaves a property of that name to the program that wrote it.
        kind_names = () if kind is None else (ENTITY_TYPE,) if discriminator == "property" else (ENTITY_VERSION,)
        metadata = () if self.keyed is None else (METADATA, OPENED)
        self.known = frozenset(
            {*SYSTEM_MEMBERS}
            | {
                member
                for p in (*self.by_property, *kind_names, *BOUND_TO_KEYS, PLACES, *metadata)
                for member in (p, p + ANNOTATION)
            }
        )
        stored_here = len(self.by_property) + len(self.kind_properties) + write_token + (self.keyed is not None)
        if self.split is None and stored_here > MAX_CUSTOM_PROPERTIES:
            several = ", ".join(f"{info.name} in {len(info.members)}" for info in self.shaped)
            problem = (
                f"stores {several} of its {len(self.by_property)} properties"
                if several
                else (f"has {len(self.by_property)} stored fields")
            )
            raise ModelError(
                f"{self.name} {problem}; a row holds {MAX_CUSTOM_PROPERTIES} properties; store each entity in several "
                f"rows, class {self.name}(Entity, ..., wide=True), or some fields in one JSON field or Blob"
            )
        self._partial_decoders: dict[frozenset[str], Callable[[Row], Any]] = {}

    def _kind_properties(self) -> Row:
        """The properties that tell kind and version, as a row of this model has them."""
        if self.kind is None:
            return {}
        if self.discriminator == "property":
            return {ENTITY_TYPE: self.versioned_kind}
        return {} if self.version == 1 else {ENTITY_VERSION: self.version}

    @property
    def versioned_kind(self) -> str:
        """Its kind with its version, as rows store it."""
        return str(self.kind) if self.version == 1 else f"{self.kind}:{self.version}"

    # Generated when they are first used: a program declares more models than it needs at its start.

    @cached_property
    def decode_current(self) -> Callable[[Row], Any]:
        """Row of this very kind and version to entity; `decode` says what is wrong where it fails."""
        written = (WRITE_TOKENS, MANIFEST) if self.write_token else ()
        # What stages note in a row is not declared, so the row is remembered as it is.
        constant = None if self.split or self.keyed else self.kind_properties
        return make_decoder(self.model, self.stored, self._keys_read(), constant=constant, written=written)

    @cached_property
    def as_dataclass(self) -> type[Any]:
        """
        What the standard library's `dataclasses` takes the model for: FastAPI takes a body of these, not of any other
        class. It shows all fields where an entity stands in a dictionary, so that hidden ones are not among them.
        """
        fields: list[Any] = [
            (info.name, info.type.annotation, dataclass_field(default_factory=info.default or MISSING, kw_only=True))
            for info in self.fields.values()
            if not info.hidden
        ]
        return make_dataclass(self.name, fields, init=False, repr=False, eq=False)

    @cached_property
    def make_keys(self) -> Callable[[Mapping[str, Any]], tuple[str, str]]:
        """Returns (PartitionKey, RowKey) of field values. Raises TemplateError: one is missing or does not fit."""
        return make_key_function(self.name, *self.templates())

    @cached_property
    def _encode(self) -> Callable[[dict[str, Any], str, str], tuple[Row, int]]:
        return make_encoder(self.name, self.stored, self._slow_encoder, self.kind_properties)

    def _keys_read(self) -> list[tuple[str, Template, Sequence[str]]]:
        """Which fields are read from which key."""
        partition, row = self.templates()
        in_keys = [name for name, info in self.fields.items() if not info.stored]
        from_partition = [name for name in in_keys if name in partition.full_fields]
        from_row = [name for name in in_keys if name not in from_partition]
        return [("PartitionKey", partition, from_partition), ("RowKey", row, from_row)]

    def _slow_encoder(self, info: FieldInfo, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def encode(value: Any) -> Any:
            if value is None:
                raise info.misfit(self.name, None)
            try:
                return convert(value)
            except ValueError as error:
                raise info.misfit(self.name, value, error) from None

        return encode

    def field_of(self, path: str) -> str:
        """Return the name of the field of a member; a field's own name stays."""
        member = self.by_path.get(path)
        return path if member is None else member.field

    def templates(self) -> tuple[Template, Template]:
        """Return the templates of its PartitionKey and RowKey. Raises ModelError for an abstract base without them."""
        if self.partition is None or self.row is None:
            raise ModelError(f"{self.name} is abstract and has no keys of its own; use one of its concrete classes")
        return self.partition, self.row

    def check_relations(self) -> None:
        """
        Refuse what is declared if it does not fit other models, as far as those are declared by now.

        Raises:
            ModelError: Something does not.
        """
        for each in self.derived.values():
            each.check()

    @property
    def cascades(self) -> bool:
        """Whether other entities are deleted before one of it is."""
        return any(each.cascades for each in self.relations)

    @property
    def primary(self) -> "Schema | None":
        """The schema of the model, if this is the schema of rows that are derived from its entities."""
        return None

    def derived_as(self, pattern: type[D]) -> dict[str, D]:
        """Return what is derived from its entities by one pattern, by name of the declaration."""
        return {name: each for name, each in self.derived.items() if isinstance(each, pattern)}

    # Keys

    def key(self, values: Mapping[str, Any]) -> Key[Any]:
        """
        The key of the entity with these key fields.

        Raises:
            TemplateError: A field is missing, unknown, or does not fit.
        """
        if frozenset(values) != self.key_names:
            raise self._other_fields(values)
        partition, row = self.make_keys(values)
        return Key(self.model, self.table_of(partition, row), partition, row)

    def _other_fields(self, values: Mapping[str, Any]) -> TemplateError:
        """Return the error of a key whose fields are not those of the templates."""
        for name in values:
            if name not in self.key_fields:
                what = f"is not a {'key ' if name in self.fields else ''}field of the model"
                return self._key_error(
                    f"does not take {name!r}, which {what}; {near(name, self.key_fields, 'key field')}"
                )
        missing = [name for name in self.key_fields if name not in values]
        several = "" if self.primary is None else f"; for a list of entities: db.select({self.name})"
        return self._key_error(
            f"needs {', '.join(map(repr, missing))}; give {', '.join(f'{name}=...' for name in missing)}{several}"
        )

    def _key_error(self, problem: str) -> TemplateError:
        partition, row = self.templates()
        return TemplateError(problem, self.name, "key", f"{partition.text}, {row.text}")

    def parse_keys(self, partition_key: str, row_key: str) -> dict[str, Any]:
        """
        The fields that the stored keys hold in full.

        Raises:
            ValueError: The keys are not of the templates, or hold different values of a field.
        """
        return parse_pair(*self.templates(), partition_key, row_key)

    # Rows

    def encode(self, own: dict[str, Any], partition_key: str, row_key: str) -> tuple[Row, int]:
        """
        The row of an entity's dictionary, and the weight of what varies in size (see `codegen`).

        Raises:
            EncodeError: A value does not fit its field.
        """
        try:
            return self._encode(own, partition_key, row_key)
        except KeyError as error:
            # Ask the descriptor: its NotLoaded error names the field.
            problem = "was not loaded, so the entity cannot be written in full; read it in full first"
            raise EncodeError(problem, self.name, str(error.args[0]), None, misuse=True) from None

    def decode_part(self, row: Row, names: frozenset[str]) -> Any:
        """
        The entity of a row of this kind and version that has the properties of some stored fields alone.

        Raises:
            DecodeError: The row does not fit the model; names the field.
        """
        decode = self._partial_decoders.get(names)
        if decode is None:
            infos = self._narrowed(names)
            decode = make_decoder(self.model, infos, self._keys_read(), partial=True)
            self._partial_decoders[names] = decode
        try:
            return decode(row)
        except MISFITS as error:
            raise self._diagnose(row, error, names) from None

    def _narrowed(self, names: frozenset[str]) -> list[FieldInfo]:
        """Return the stored fields with these names; of a field of which only parts are named, those parts."""
        return [found for info in self.stored if (found := info.narrowed(names)) is not None]

    def members_of(self, names: Container[str]) -> list[Member]:
        """Return the members of stored fields of these names, and the members with such a path."""
        return [each for each in self.by_property.values() if each.field in names or each.path in names]

    def encode_some(self, own: Mapping[str, Any], infos: Iterable[FieldInfo]) -> Row:
        """
        The members of some stored fields alone; a field that is None has none.

        Raises:
            EncodeError: A value does not fit its field.
        """
        members: Row = {}
        for info in infos:
            value = own[info.name]
            if value is None and info.optional:
                continue
            for member, stored in self._slow_encoder(info, info.write)(value):
                members[member.property] = stored
                edm = member.type.edm
                if edm in ANNOTATED or (edm is Edm.DOUBLE and type(stored) is str):
                    members[member.property + ANNOTATION] = edm.value
        return members

    def satisfies(self, where: Callable[[Any], object] | None, values: Mapping[str, Any], label: str) -> bool:
        """
        Whether the entity with these fields is one for which something is declared.

        Args:
            where: The condition of the declaration; it does not see what others keep, which changes without it.
            values: The fields, in full.
            label: What was declared, for messages.
        """
        if where is None:
            return True
        entity: Any = object.__new__(self.model)
        entity.__dict__.update(values)
        for info in self.maintained:
            entity.__dict__.pop(info.name, None)
        try:
            return bool(where(entity))
        except TableOrmError:
            raise
        except Exception as error:
            raise ModelError(f"where= of {label} raised {shown(error)} for {entity!r}") from error

    def refuse_unseen(self, names: Collection[str], label: str, what: str) -> None:
        """
        Refuse to derive something from fields that other entities keep, or that a row stage keeps from the store.

        Raises:
            ModelError: One of them is such a field.
        """
        hidden = {self.by_property[name].field for name in self.opaque}.intersection(names)
        if hidden:
            raise ModelError(
                f"{self.name}.{min(hidden)} can't be used by {label}: the store doesn't have its value, because "
                "it is encrypted; leave it out"
            )
        if self.keyed is not None:
            self.keyed.note_seen(info for info in self.fields.values() if info.name in names)
        for info in self.maintained:
            if info.name in names:
                raise ModelError(
                    f"{label}: {what} {info.name!r}, which writes of other entities change without writing "
                    "this one; leave it out"
                )

    def decode(self, row: Row) -> Any:
        """
        The entity of a row of this very kind and version.

        Raises:
            DecodeError: The row does not fit the model; names the field.
        """
        try:
            return self.decode_current(row)
        except MISFITS as error:
            raise self._diagnose(row, error) from None

    def _diagnose(self, row: Row, error: Exception, names: frozenset[str] | None = None) -> DecodeError:
        keys = (str(row.get("PartitionKey")), str(row.get("RowKey")))
        try:
            self.parse_keys(*keys)
        except ValueError as fault:
            return DecodeError(f"does not fit: {fault}", self.name, keys)
        for info in self.stored if names is None else self._narrowed(names):
            if info.required and not info.is_in(row):
                name = info.members[0].property
                problem = f"has no property {name!r}; give the field a default, or declare it `| None`"
                return DecodeError(problem, self.name, keys, info.name)
            for read, name in (*((member.read, member.path) for member in info.members), (info.read, info.name)):
                try:
                    read(row)
                except MISFITS as fault:
                    problem = f"does not fit {info.type.name}" if info.encrypted else f"{fault}"
                    return DecodeError(problem, self.name, keys, name)
        problem = f"cannot be read: {error!r}" if self.keyed is None else "cannot be read"
        return DecodeError(problem, self.name, keys)

    def unseal(self, row: Row) -> Row:
        """
        Return a row that was read as the model says, which is the row itself unless the model has row stages.

        Raises:
            DecodeError: It is not as a stage would have sealed it.
            EncryptionError: It is encrypted, and not as it was sealed, or its key is not there.
        """
        try:
            for stage in reversed(self.stages):
                row = stage.unseal(row)
        except EncryptionError:
            raise
        except MISFITS as error:
            raise DecodeError(f"cannot be unsealed: {error}", self.name, row_keys(row)) from None
        return row

    def decode_stored(self, row: Row) -> Any:
        """
        Return the entity of a row of this very kind and version as it is stored. One that was not sealed as it would be
        now is to be written in full, as one that was upgraded.

        Raises:
            DecodeError: The row does not fit the model; names the field.
        """
        row = self.unseal(row)
        entity = self.decode(row)
        if self.keyed is not None and not self.keyed.is_sealed(row):
            set_state(entity, structs.replace(state_of(entity), upgraded=True))
        return entity

    def is_cleared(self, row: Row, name: str) -> bool:
        """Return whether a merge has emptied a property, which means the same as its absence."""
        return name in self.cleared and row.get(name) in ("", 0)

    def unknown(self, row: Row) -> Row:
        """The members of a row that are no fields of the model: properties with their annotations."""
        return {name: value for name, value in row.items() if name not in self.known}


def concrete(schema: Schema) -> list[Schema]:
    """The schemas of the concrete classes of a model: itself, or of an abstract base all that derive from it."""
    if not schema.abstract:
        return [schema]
    # A class that was declared again, in a notebook or by a reload, replaces the one before.
    return list({(s.model.__module__, s.model.__qualname__): s for s in descendants(schema.model)}.values())


def relatives(schema: Schema) -> list[Schema]:
    """The schemas of the classes that an entity of a model may have been of: itself first, then those of its bases."""
    bases = [base.__dict__["__schema__"] for base in schema.model.__mro__ if "__schema__" in base.__dict__]
    return list(dict.fromkeys(each for base in bases for each in concrete(base)))


def descendants(model: type[Any]) -> Iterator[Schema]:
    """The schemas of the concrete classes that derive from a model."""
    for child in model.__subclasses__():
        own = child.__dict__.get("__schema__")
        if isinstance(own, Schema):
            if not own.abstract:
                yield own
            yield from descendants(child)
