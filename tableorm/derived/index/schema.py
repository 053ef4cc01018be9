"""
The schema of index entries: rows that hold the fields of an entity under another key.

An index entry has a kind of its own, `Employee#by_email`, and tells its primary row by the property `_of`. To the
planner and to the decoder an index is a schema like any other: the schema of its entries.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import attrs
import msgspec

from ...errors import DecodeError, EncryptionError, ModelError, shown
from ...keys.overlap import refuse_meeting
from ...keys.template import Template
from ...models.codegen import make_decoder, make_encoder
from ...models.derivation import refuse_without_kind
from ...models.index_declaration import IndexDeclaration
from ...models.manifest import manifest_of
from ...models.property_types import Member
from ...models.reserved import (
    BOUND_TO_KEYS,
    COPIED_VERSION,
    COPY_OF,
    ENTITY_TYPE,
    ENTITY_VERSION,
    OPENED,
    WRITE_TOKENS,
)
from ...models.row_stage import RowStage
from ...models.schema import FieldInfo, Schema
from ...models.state import EntityState, set_state, state_of
from ...protocol.edm import ANNOTATION, SYSTEM_MEMBERS, Edm
from ...protocol.limits import MAX_CUSTOM_PROPERTIES
from ...stores import Row

Include = Literal["all", "keys"] | Sequence[str]


@attrs.frozen
class ElementMember(Member):
    """
    What stands for a list in entries that do not hold it: the element that their RowKey holds.

    Args:
        template: The template of the RowKey.
    """

    template: Template


class EntrySchema(Schema):
    """
    The schema of the entries of an index: what those of one partition and those of other partitions have in common.

    Args:
        entry_name: Name of the declaration.
        primary: The schema of the model.
        table: Name of their table.
        partition: Template of the entries' PartitionKeys.
        row: Template of the entries' RowKeys.
        unique: Whether no two entities may have the same key.
        include: Which fields index entries hold: "all", "keys" or names.
        where: Takes the entity; only entities for which it is true have an entry. None for all.
        building: Whether the index is written and not read yet; None if the store says so.
        follows: Whether readers fetch the primary of each entry; None for whether they have to: the entry holds keys
            alone, or may be older than its primary.

    Attributes:
        keys_only: Whether an entry holds nothing but where its primary row is.
        needed: The optional fields of its templates, and the list of `each`: None in one of them means no entry.
        exact: Whether there is an entry exactly while there is a primary that says so.
        each: The list of which each element makes an entry; None if an entity has one entry.
    """

    exact: ClassVar[bool] = True

    def __init__(
        self,
        entry_name: str,
        primary: Schema,
        *,
        table: str | None,
        partition: Template,
        row: Template,
        unique: bool,
        include: Include,
        where: Callable[[Any], bool] | None,
        building: bool | None,
        follows: bool | None = None,
    ) -> None:
        self.entry_name, self._primary = entry_name, primary
        self.unique, self.include, self.where, self.building = unique, include, where, building
        self.label = f"{primary.name}.{entry_name}"
        self.keys_only = include == "keys"
        self.follows = self.keys_only or not self.exact if follows is None else follows
        refuse_without_kind(self.label, primary)
        self._check(table, partition, row)
        fields = self._fields(partition, row)
        super().__init__(
            model=primary.model,
            table=table,
            abstract=False,
            kind=f"{primary.kind}#{entry_name}",
            version=primary.version,
            discriminator="property",
            naming=primary.naming,
            partition=partition,
            row=row,
            fields=fields,
            write_token=self.exact,
            stages=self._stages(fields),
        )
        self.name = self.label
        self.expiry = primary.expiry
        self.partial = not self.follows and len(self.fields) < len(primary.fields)
        self.each = None if row.each is None else primary.fields[row.each]
        if self.each is not None and self.each.name not in fields:
            (member,) = self.each.members
            self.by_path[member.path] = ElementMember(member.field, member.path, "RowKey", member.type, row)
        self.needed = tuple([n for n in self.key_fields if primary.fields[n].optional or n == row.each])
        # What entries have and their primary row does not.
        self._own = [info for info in self.stored if not primary.fields[info.name].stored]
        members = [info.member for info in self._own]  # a key of the entity holds each
        extra = [member.property for member in members]
        annotated = [member.property + ANNOTATION for member in members if member.type.edm is not Edm.STRING]
        self._dropped = (COPY_OF, COPIED_VERSION, "odata.etag", *extra, *annotated)
        # Rows of other programs may store what is in their keys as well, and as another type.
        self._left_out_types = tuple(name + ANNOTATION for name in extra)
        if include != "all" or not self.exact:
            self._dropped += ("Timestamp",)  # they are not written whenever their primary is
        if len(self.by_property) + len(self.kind_properties) + len((COPY_OF, WRITE_TOKENS)) > MAX_CUSTOM_PROPERTIES:
            raise ModelError(
                f"{self.label}: its entries would have {len(self.by_property)} properties, {COPY_OF} and "
                f"{WRITE_TOKENS}; a row holds {MAX_CUSTOM_PROPERTIES}: give include= fewer"
            )
        copied = [name for name, member in self.by_property.items() if primary.fields[member.field].stored]
        self.properties = frozenset(copied)
        self._primary_kind: str | None = primary.kind_properties.get(ENTITY_TYPE)
        version = (self._primary_kind or "").partition(":")[2]
        self._current_kind = f"{self.kind}:{version}" if version else str(self.kind)
        self.maintained_properties = frozenset(info.member.property for info in primary.maintained)
        self._left_out = _NOT_IN_ENTRY | {m for p in self.maintained_properties for m in (p, p + ANNOTATION)}
        self._held, self._not_held = self.properties | _KIND, _IN_NO_ENTRY | self.maintained_properties
        self._members = tuple(m for p in copied for m in (p, p + ANNOTATION))

    def _stages(self, fields: Mapping[str, FieldInfo]) -> list[RowStage]:
        """Return the stage of entries that hold what is sealed in the rows of entities; none where they hold none."""
        keyed, held = self.primary.keyed, {each.property for info in fields.values() for each in info.members}
        return [] if keyed is None or not self.exact or keyed.opaque.isdisjoint(held) else [keyed]

    @property
    def primary(self) -> Schema:
        """The schema of the model."""
        return self._primary

    @cached_property
    def decode_current(self) -> Callable[[Row], Any]:
        """See `Schema`."""
        if self.follows:
            return _as_it_is
        decode = make_decoder(self.model, self.stored, self._keys_read(), partial=self.partial)

        def decode_entry(row: Row) -> Any:
            return self._finish(decode(row), row, self.properties)

        return decode_entry

    @cached_property
    def _encode_own(self) -> Callable[[dict[str, Any], str, str], tuple[Row, int]]:
        return make_encoder(self.label, self._own, self._slow_encoder, {})

    def _check(self, table: str | None, partition: Template, row: Template) -> None:
        """Refuse keys that another entity, or another entity's entry, could have. Raises ModelError."""
        raise NotImplementedError

    def _fields(self, partition: Template, row: Template) -> dict[str, FieldInfo]:
        """Return the fields of the model as entries hold them: in their keys, or as properties."""
        primary, include = self.primary, self.include
        in_keys = row.full_fields | partition.full_fields
        chosen = frozenset({*row.fields, *partition.fields} - {row.each})
        kept = frozenset(info.name for info in primary.maintained)
        if kept & chosen:
            raise ModelError(
                f"{self.label}: its keys {partition.text!r} and {row.text!r} hold {', '.join(kept & chosen)}, which "
                "other entities keep: its entries would not follow; leave it out"
            )
        if include == "all":
            chosen = frozenset(primary.fields) - kept
        elif include != "keys":
            for name in include:
                if name not in primary.fields:
                    raise ModelError(
                        f"{self.label}: include={list(include)!r} is rejected: {primary.name} has no field {name!r}; "
                        f"its fields are {', '.join(primary.fields)}"
                    )
            if kept & set(include):
                raise ModelError(
                    f"{self.label}: include={list(include)!r} is rejected: {', '.join(kept & set(include))} is kept "
                    "by other entities, and its entries would not follow; leave it out"
                )
            chosen |= frozenset(self._held_fields(include)) | primary.key_names
        found = {
            name: attrs.evolve(info, stored=info.stored or name not in in_keys)
            for name, info in primary.fields.items()
            if name in chosen
        }
        if self.keys_only:
            found = {name: attrs.evolve(info, stored=name not in in_keys) for name, info in found.items()}
        seen: dict[str, str] = {}
        for member in (member for info in found.values() if info.stored for member in info.members):
            name, path = member.property, member.path
            if seen.setdefault(name, path) != path:
                raise ModelError(
                    f"{self.label}: its entries would store both {seen[name]!r} and {path!r} as {name!r}; give one of "
                    "them another name by field(name=...)"
                )
        return found

    def _held_fields(self, include: Sequence[str]) -> set[str]:
        """Return the fields that entries hold of those declared, and those that tell whether the entity counts."""
        expiry = self.primary.expiry
        return {*include} if expiry is None else {*include, expiry.name}

    def describe(self) -> dict[str, Any]:
        """Return what was declared, as JSON has it."""
        partition, row = self.templates()
        return {
            "pattern": "Index",
            "table": self.table,
            "partition_key": partition.text,
            "row_key": row.text,
            "unique": self.unique,
            "include": self.include if isinstance(self.include, str) else sorted(self._held_fields(self.include)),
            "where": self.where is not None,
            "consistency": None if self.exact else "eventual",
        }

    @cached_property
    def declaration(self) -> IndexDeclaration:
        """What names the row that says whether the index is complete."""
        primary, layout = self.primary, {"kind": self.kind, **self.describe()}
        return IndexDeclaration.of(primary.name, self.entry_name, primary.table_text(), self.table_text(), layout)

    # Writing

    def concerns(self, changed: AbstractSet[str]) -> bool:
        """Return whether an entry holds some of the properties of its entity that change."""
        return not changed <= self._not_held if self.include == "all" else not changed.isdisjoint(self._held)

    def has_entry(self, values: Mapping[str, Any]) -> bool:
        """Return whether an entity with these fields, in full, has an entry."""
        for name in self.needed:
            if values[name] is None:
                return False
        where = self.where
        return where is None or self.primary.satisfies(where, values, f"the index {self.label}")

    def holds(self, stored: Row, contents: bytes) -> bool:
        """Return whether an entry as it is stored holds this, as `contents_of` has it."""
        with suppress(EncryptionError):
            return contents_of(self.unseal(stored)) == contents
        return False

    def _make_entry(self, values: Mapping[str, Any], row: Row, partition_key: str, row_key: str) -> Row:
        """Return the entry of an entity with these keys, without what it says of its primary."""
        if self.include != "all":
            entry: Row = {name: row[name] for name in self._members if name in row}
        else:
            entry = row.copy()
            for name in self._left_out:
                if name in entry:
                    del entry[name]
        primary = self._primary
        for name in primary.cleared:
            if primary.is_cleared(entry, name):
                del entry[name]
                entry.pop(name + ANNOTATION, None)
        if self._own:
            for name in self._left_out_types:
                if name in entry:
                    del entry[name]
            entry.update(self._encode_own(cast("dict[str, Any]", values), partition_key, row_key)[0])
        else:
            entry["PartitionKey"], entry["RowKey"] = partition_key, row_key
        kind = row.get(ENTITY_TYPE, "")
        if kind != self._primary_kind or ENTITY_VERSION in row:
            version = str(kind).partition(":")[2] or str(row.get(ENTITY_VERSION, ""))
            entry[ENTITY_TYPE] = f"{self.kind}:{version}" if version else str(self.kind)
        else:
            entry[ENTITY_TYPE] = self._current_kind
        return entry

    # Reading

    def _finish(self, entity: Any, row: Row, properties: frozenset[str]) -> Any:
        """
        Return what was decoded from an entry as the entity of its primary row, without an ETag: the first write of it
        reads the primary row, which must agree in these properties.
        """
        primary = row.copy()
        drop, kind = primary.pop, self._primary_kind
        for name in self._dropped:
            drop(name, None)
        keys = primary["PartitionKey"], primary["RowKey"] = self.owner_keys(row)
        if not self._is_of(entity.__dict__, keys):
            raise self._odd_owner(row, f"the keys of what it holds, and not {shown(keys)},")
        if kind is None:
            del primary[ENTITY_TYPE]
            primary |= self.primary.kind_properties
        else:
            primary[ENTITY_TYPE] = kind
        state = state_of(entity)
        found_at = row["PartitionKey"], row["RowKey"]
        set_state(
            entity,
            EntityState(
                stored=primary, partial=state.partial, loaded=state.loaded, copied=properties, found_at=found_at
            ),
        )
        return entity

    def _is_of(self, values: Mapping[str, Any], keys: tuple[str, str]) -> bool:
        """Return whether fields from an entry, all or some, are those of an entity with these keys."""
        primary = self.primary
        if all(name in values for name in primary.key_fields):
            return primary.make_keys(values) == keys
        found = primary.parse_keys(*keys)
        return all(values[name] == value for name, value in found.items() if name in values)

    def decode_part(self, row: Row, names: frozenset[str]) -> Any:
        """Return the entity that has some stored fields alone; the entry itself if its primary is fetched."""
        if self.follows:
            return row
        properties = frozenset(member.property for member in self.members_of(names)) & self.properties
        return self._finish(super().decode_part(row, names), row, properties)

    def _diagnose(self, row: Row, error: Exception, names: frozenset[str] | None = None) -> DecodeError:
        try:
            self.owner_keys(row)
        except DecodeError as fault:
            return fault
        return super()._diagnose(row, error, names)

    def owner_keys(self, entry: Row) -> tuple[str, str]:
        """
        Return the PartitionKey and RowKey of the entity whose entry it is.

        Raises:
            DecodeError: The entry names no entity.
        """
        raise NotImplementedError

    def _odd_owner(self, entry: Row, expected: str) -> DecodeError:
        return DecodeError(
            f"is an index entry, and its property {COPY_OF!r} is {shown(entry.get(COPY_OF))} instead of {expected} of "
            "an entity; delete the row, then run `tableorm audit --repair`, which writes the entry anew if an entity "
            "should have it",
            self.label,
            (str(entry.get("PartitionKey")), str(entry.get("RowKey"))),
        )

    @property
    def deciding_fields(self) -> frozenset[str] | None:
        """The fields of a primary that `leads_to` needs; None for all of them."""
        return frozenset()

    def leads_to(self, entry: Row, primary: Row, values: Mapping[str, Any]) -> bool:
        """
        Return whether an entry is that of its primary, which may have changed since the entry was read.

        Args:
            entry: The entry.
            primary: The row of its primary, of which at least the manifest was read.
            values: The fields of the primary, at least the `deciding_fields`.
        """
        raise NotImplementedError


class IndexSchema(EntrySchema):
    """The schema of the entries of an index of one partition."""

    def _check(self, table: str | None, partition: Template, row: Template) -> None:
        primary, name = self.primary, self.label
        own = primary.templates()[1]
        refuse_meeting(name, row, f"{primary.name}.row_key", own)
        missing = [field for field in own.fields if field not in {*row.full_fields, *partition.full_fields}]
        if missing and not self.unique:
            raise ModelError(
                f"{name}: row_key {row.text!r} lacks {', '.join(missing)}, so that two entities could have one entry; "
                f"add {{{missing[0]}}} to it, or unique=True if there can be but one"
            )

    def address(self, values: Mapping[str, Any]) -> str | None:
        """
        Return the RowKey of the entry of an entity; None if it has none.

        Args:
            values: Its fields, in full.

        Raises:
            TemplateError: A value does not fit the template.
        """
        assert self.row is not None
        return self.row.format(values) if self.has_entry(values) else None

    def addresses(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the RowKeys of the entries of an entity, in order, each with its element of the list if there is one for
        each. The arguments and errors are those of `address`.
        """
        assert self.row is not None
        if not self.has_entry(values):
            return {}
        name = self.row.each
        if name is None:
            return {self.row.format(values): None}
        found = {self.row.format({**values, name: element}): element for element in values[name]}
        return {key: found[key] for key in sorted(found)}

    def entry_row(self, values: Mapping[str, Any], row: Row, address: str) -> Row:
        """
        Return the index entry of an entity, as a row.

        Args:
            values: The fields of the entity, in full.
            row: The row of the entity, in full.
            address: The RowKey of the entry.
        """
        entry = self._make_entry(values, row, row["PartitionKey"], address)
        entry[COPY_OF] = row["RowKey"]
        return entry

    def owner_keys(self, entry: Row) -> tuple[str, str]:
        """Return the keys of the entity whose entry it is. Raises DecodeError if the entry names none."""
        owner = entry.get(COPY_OF)
        if not isinstance(owner, str):
            raise self._odd_owner(entry, "the RowKey")
        return entry["PartitionKey"], owner

    @property
    def deciding_fields(self) -> frozenset[str]:
        """The list of which each element has an entry: it tells how often the entity is found."""
        return frozenset(() if self.each is None else (self.each.name,))

    def leads_to(self, entry: Row, primary: Row, values: Mapping[str, Any]) -> bool:
        """Return whether the manifest of the primary still lists the entry."""
        return any(entry["RowKey"] in noted.entry_keys for noted in manifest_of(primary).values())


_IN_NO_ENTRY = SYSTEM_MEMBERS.union(BOUND_TO_KEYS)

_KIND = frozenset({ENTITY_TYPE, ENTITY_VERSION})

_NOT_IN_ENTRY = frozenset({*BOUND_TO_KEYS, OPENED, "odata.etag", "Timestamp", ENTITY_VERSION, ENTITY_TYPE + ANNOTATION})


def contents_of(entry: Row) -> bytes:
    """Return what an index entry holds: equal bytes if it is the same, whichever write made it and when."""
    return msgspec.json.encode(
        {name: value for name, value in entry.items() if name not in _MADE_BY_WRITES}, order="sorted"
    )


_MADE_BY_WRITES = frozenset({"odata.etag", "Timestamp", "Timestamp" + ANNOTATION, WRITE_TOKENS, OPENED})


def _as_it_is(row: Row) -> Any:
    """Return an entry that holds keys alone: the primary row has to be read."""
    return row
