"""
Indexes: more keys under which the entities of a model are found, as copies of their rows in the same partition.

A copy has a kind of its own, `Employee#by_email`, and the RowKey of its primary in the property `_of`. To the planner
and to the decoder an index is a schema like any other: that of the copies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast, overload

import attrs
import msgspec

from ...errors import ModelError, NotSupported
from ...keys.overlap import refuse_meeting
from ...keys.template import Template
from ...models.codegen import make_decoder, make_encoder
from ...models.derivation import Derivation, DerivationOf
from ...models.reserved import COPY_OF, ENTITY_TYPE, ENTITY_VERSION, MANIFEST, WRITE_TOKENS
from ...models.schema import FieldInfo, Schema, concrete
from ...models.state import EntityState, set_state, state_of
from ...protocol.edm import ANNOTATION, Edm
from ...protocol.limits import MAX_CUSTOM_PROPERTIES
from ...stores import Row

if TYPE_CHECKING:
    from ...models.entity import Entity

__all__ = ["Include", "Index", "IndexOf", "IndexSchema", "contents_of"]

E = TypeVar("E", bound="Entity")

Include = Literal["all", "keys"] | Sequence[str]


class IndexOf(DerivationOf[E]):
    """
    An index of a model, as `Employee.by_email` gives it: for `db.get` and `db.select`.
    """

    @property
    def schemas(self) -> "list[IndexSchema]":
        """
        The schemas of its copies, of each concrete class.

        Raises:
            NotSupported: The index is being built.
        """
        found = [schema.indexes[self.name] for schema in concrete(self.model.__schema__)]
        for each in found:
            if each.index.building:
                raise NotSupported(
                    f"{self} is being built: entities that were there before it may lack their copies; run "
                    f"db.build_index({self}) to the end, then declare it without building=True"
                )
        return found


class Index(Derivation):
    """
    A further key of a model: `by_email = Index(row_key="email_{email}", unique=True)` in the body of the class.

    Each entity is stored once more under that key, in the same partition and by the same entity group transaction, so
    that the copy is as current as the entity. An optional field of the template that is None means that there is no
    copy. Read through it with `db.get(Employee.by_email, ...)` and `db.select(Employee.by_email)`.

    Args:
        row_key: Template of the copies' RowKeys. Its keys must be told from those of the model: begin it with other
            literal text. Unless the index is unique, it holds all fields of the model's own row_key.
        partition_key: As the model's; another one needs `consistency="eventual"`.
        unique: Whether no two entities of a partition may have the same key: `UniqueViolation`.
        include: What copies hold: "all" fields but those that other entities keep, the names of some, or "keys": then
            the entity is read after the copy.
        where: Takes the entity; only those for which it is true have a copy.
        consistency: "transactional"; "eventual" is not supported yet.
        building: The index is written and not read, until the entities that were there before it have their copies:
            see `db.build_index`.

    Raises:
        ModelError: An argument is wrong; when the class is made, the template does not fit the model.
        NotSupported: `consistency="eventual"`, or a partition_key other than the model's.
    """

    on_class = IndexOf

    def __init__(
        self,
        *,
        row_key: str,
        partition_key: str | None = None,
        unique: bool = False,
        include: Include = "all",
        where: Callable[[Any], bool] | None = None,
        consistency: Literal["transactional", "eventual"] = "transactional",
        building: bool = False,
    ) -> None:
        if not isinstance(row_key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"Index(row_key={row_key!r}) is refused: give a template, as in 'email_{{email}}'")
        if consistency not in ("transactional", "eventual"):
            raise ModelError(f"Index(consistency={consistency!r}) is unknown; use 'transactional'")
        if isinstance(include, str) and include not in ("all", "keys"):
            raise ModelError(f"Index(include={include!r}) is unknown; use 'all', 'keys' or a list of field names")
        given: tuple[object, object] = unique, building
        if not all(each is True or each is False for each in given):
            raise ModelError(f"Index(unique={unique!r}, building={building!r}) is refused: give True or False for each")
        if not isinstance(include, (str, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"Index(include={include!r}) is unknown; use 'all', 'keys' or a list of field names")
        super().__init__(where)
        self.row_key, self.partition_key, self.unique = row_key, partition_key, unique
        self.include: Include = include if isinstance(include, str) else tuple(include)
        self.consistency, self.building = consistency, building

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> IndexOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class IndexSchema(Schema):
    """
    The schema of an index's copies.

    Args:
        declared: The index.
        primary: The schema of the model.
        row: Template of the copies' RowKeys.

    Attributes:
        index: The index.
        primary: The schema of the model.
        keys_only: Whether a copy holds nothing but where its primary is.
        needed: The optional fields of its template: None in one of them means no copy.
    """

    def __init__(self, declared: Index, primary: Schema, row: Template) -> None:
        self.index, self.primary = declared, primary
        self.label = f"{primary.name}.{declared.name}"
        self.keys_only = self.follows = declared.include == "keys"
        self._check(row)
        fields = self._fields(row)
        super().__init__(
            model=primary.model,
            table=primary.table,
            abstract=False,
            kind=f"{primary.kind}#{declared.name}",
            version=primary.version,
            discriminator="property",
            naming=primary.naming,
            partition=primary.partition,
            row=row,
            fields=fields,
            write_token=True,
        )
        self.name = self.label
        self.needed = tuple(name for name in row.fields if primary.fields[name].optional)
        # What copies have and their primary does not.
        self._own = [info for info in self.stored if not primary.fields[info.name].stored]
        self._encode_own = make_encoder(self.label, self._coded(self._own), {})
        extra = [info.property for info in self._own]
        annotated = [info.property + ANNOTATION for info in self._own if info.type.edm is not Edm.STRING]
        self._dropped = (COPY_OF, "odata.etag", *extra, *annotated)
        # Rows of other programs may store what is in their keys as well, and as another type.
        self._left_out_types = tuple(name + ANNOTATION for name in extra)
        if declared.include != "all":
            self._dropped += ("Timestamp",)  # they are not written whenever their primary is
        if len(self.stored) + len(self.kind_properties) + len((COPY_OF, WRITE_TOKENS)) > MAX_CUSTOM_PROPERTIES:
            raise ModelError(
                f"{self.label}: copies would have {len(self.stored)} fields, and {COPY_OF} and {WRITE_TOKENS}; a row "
                f"holds {MAX_CUSTOM_PROPERTIES} properties: give include= fewer"
            )
        copied = [info.property for info in self.stored if primary.fields[info.name].stored]
        self.properties = frozenset(copied)
        self._primary_kind: str | None = primary.kind_properties.get(ENTITY_TYPE)
        version = (self._primary_kind or "").partition(":")[2]
        self._current_kind = f"{self.kind}:{version}" if version else str(self.kind)
        self.maintained_properties = frozenset(info.property for info in primary.maintained)
        self._left_out = _NOT_COPIED | {m for p in self.maintained_properties for m in (p, p + ANNOTATION)}
        self._members = tuple(m for p in copied for m in (p, p + ANNOTATION))

    def _generate(self) -> None:
        super()._generate()
        if self.keys_only:
            self.decode_current = _as_it_is
            return
        self.partial = len(self.fields) < len(self.primary.fields)
        decode = make_decoder(self.model, self._coded(self.stored), self._keys_read(), partial=self.partial)

        def decode_copy(row: Row) -> Any:
            return self._finish(decode(row), row, self.properties)

        self.decode_current = decode_copy

    def _check(self, row: Template) -> None:
        primary, declared = self.primary, self.index
        name = self.label
        if primary.kind is None:
            raise ModelError(f"{name}: a model with kind=None has no indexes, since nothing would tell copies from it")
        if primary.discriminator not in ("property", "row_key"):
            raise ModelError(f"{name}: an index needs discriminator='property' or 'row_key', which tell copies apart")
        partition, own = primary.partition, primary.row
        assert partition is not None
        assert own is not None
        refuse_meeting(name, row, f"{primary.name}.row_key", own)
        missing = [field for field in own.fields if field not in {*row.full_fields, *partition.full_fields}]
        if missing and not declared.unique:
            raise ModelError(
                f"{name}: row_key {row.text!r} lacks {', '.join(missing)}, so that two entities could have one copy; "
                f"add {{{missing[0]}}} to it, or unique=True if there can be but one"
            )

    def _fields(self, row: Template) -> dict[str, FieldInfo]:
        """The fields of the model as copies hold them: in their keys, or as properties."""
        primary, include = self.primary, self.index.include
        partition = primary.partition
        assert partition is not None
        in_keys = row.full_fields | partition.full_fields
        chosen = frozenset(row.fields) | frozenset(partition.fields)
        kept = frozenset(info.name for info in primary.maintained)
        if kept & chosen:
            raise ModelError(
                f"{self.label}: row_key {row.text!r} holds {', '.join(kept & chosen)}, which other entities keep: "
                "copies would not follow; leave it out"
            )
        if include == "all":
            chosen = frozenset(primary.fields) - kept
        elif include != "keys":
            for name in include:
                if name not in primary.fields:
                    raise ModelError(
                        f"{self.label}: include={list(include)!r} is refused: {primary.name} has no field {name!r}; "
                        "its "
                        f"fields are {', '.join(primary.fields)}"
                    )
            if kept & set(include):
                raise ModelError(
                    f"{self.label}: include={list(include)!r} is refused: {', '.join(kept & set(include))} is kept "
                    "by other entities, and copies would not follow; leave it out"
                )
            chosen |= frozenset(include) | primary.key_names
        found = {
            name: attrs.evolve(info, stored=info.stored or name not in in_keys)
            for name, info in primary.fields.items()
            if name in chosen
        }
        if self.keys_only:
            found = {name: attrs.evolve(info, stored=name not in in_keys) for name, info in found.items()}
        seen: dict[str, str] = {}
        for name, info in found.items():
            if info.stored and seen.setdefault(info.property, name) != name:
                raise ModelError(
                    f"{self.label}: copies would store both {seen[info.property]!r} and {name!r} as {info.property!r}; "
                    "give one of them another name by field(name=...)"
                )
        return found

    # Writing

    def address(self, values: Mapping[str, Any]) -> str | None:
        """
        The RowKey of the copy of an entity; None if it has none.

        Args:
            values: Its fields, in full.

        Raises:
            TemplateError: A value does not fit the template.
        """
        for name in self.needed:
            if values[name] is None:
                return None
        where = self.index.where
        if where is not None and not self.primary.satisfies(where, values, f"the index {self.label}"):
            return None
        assert self.row is not None
        return self.row.format(values)

    def copy_of(self, values: Mapping[str, Any], row: Row, address: str) -> Row:
        """
        The copy of a row.

        Args:
            values: The fields of the entity, in full.
            row: The row of the primary, in full.
            address: The RowKey of the copy.
        """
        if self.index.include != "all":
            copy: Row = {name: row[name] for name in self._members if name in row}
        else:
            copy = row.copy()
            for name in self._left_out:
                if name in copy:
                    del copy[name]
        if self._own:
            for name in self._left_out_types:
                if name in copy:
                    del copy[name]
            copy.update(self._encode_own(cast("dict[str, Any]", values), row["PartitionKey"], address)[0])
        else:
            copy["PartitionKey"], copy["RowKey"] = row["PartitionKey"], address
        kind = row.get(ENTITY_TYPE, "")
        if kind != self._primary_kind or ENTITY_VERSION in row:
            version = str(kind).partition(":")[2] or str(row.get(ENTITY_VERSION, ""))
            copy[ENTITY_TYPE] = f"{self.kind}:{version}" if version else str(self.kind)
        else:
            copy[ENTITY_TYPE] = self._current_kind
        copy[COPY_OF] = row["RowKey"]
        return copy

    # Reading

    def _finish(self, entity: Any, row: Row, properties: frozenset[str]) -> Any:
        """
        What was decoded from a copy as an entity of its primary, without that one's ETag: its first write reads the
        primary, which must agree in these properties.
        """
        primary = row.copy()
        drop, kind = primary.pop, self._primary_kind
        for name in self._dropped:
            drop(name, None)
        primary["RowKey"] = row[COPY_OF]
        if kind is None:
            del primary[ENTITY_TYPE]
            primary |= self.primary.kind_properties
        else:
            primary[ENTITY_TYPE] = kind
        state = state_of(entity)
        found_at: str = row["RowKey"]
        set_state(
            entity,
            EntityState(
                stored=primary, partial=state.partial, loaded=state.loaded, copied=properties, found_at=found_at
            ),
        )
        return entity

    def decode_part(self, row: Row, names: frozenset[str]) -> Any:
        """As of any schema; of a copy that holds keys alone the copy itself."""
        if self.keys_only:
            return row
        properties = frozenset(self.fields[name].property for name in names) & self.properties
        return self._finish(super().decode_part(row, names), row, properties)


_NOT_COPIED = frozenset({MANIFEST, "odata.etag", "Timestamp", ENTITY_VERSION, ENTITY_TYPE + ANNOTATION, WRITE_TOKENS})


def contents_of(copy: Row) -> bytes:
    """What a copy holds: equal bytes if it is the same, whoever wrote it and when."""
    return msgspec.json.encode(
        {name: value for name, value in copy.items() if name not in _MADE_BY_WRITES}, order="sorted"
    )


_MADE_BY_WRITES = frozenset({"odata.etag", "Timestamp", "Timestamp" + ANNOTATION, WRITE_TOKENS})


def _as_it_is(row: Row) -> Any:
    """A copy that holds keys alone: the primary has to be read."""
    return row
