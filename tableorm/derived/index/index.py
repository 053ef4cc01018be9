"""
Indexes: more keys under which the entities of a model are found, as rows of their own in the same partition.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ...audit.check import AuditedSchema, Check
from ...audit.context import AuditContext
from ...errors import ModelError
from ...keys.parse import parse_template
from ...keys.template import Template
from ...models.derivation import Derivation, RowsOf
from ...models.key import Storable
from ...models.manifest import IndexEntry, ManifestEntry
from ...models.reserved import ENTITY_TYPE, ENTITY_VERSION, MANIFEST, WRITE_TOKENS
from ...models.schema import Schema
from ...protocol.edm import SYSTEM_MEMBERS
from ...stores import Row
from ...writes.maintainer import Source, undo_entry
from ...writes.plan import Effect
from ...writes.rows import with_tokens_of
from .audit import IndexCheck
from .effect import IndexEntryEffect
from .schema import Include, IndexOptions, IndexSchema

__all__ = ["Index", "IndexMaintainer", "IndexOf"]

E = TypeVar("E", bound=Storable)

_IN_NO_ENTRY = frozenset({MANIFEST, WRITE_TOKENS, *SYSTEM_MEMBERS})

_KIND = frozenset({ENTITY_TYPE, ENTITY_VERSION})


class IndexOf(RowsOf[E]):
    """An index of a model, as `Employee.by_email` gives it: for `db.get` and `db.select`."""

    @property
    def schemas(self) -> Sequence[IndexSchema]:
        """
        The schemas of its entries, of each concrete class.

        Raises:
            NotSupported: The index is being built.
        """
        return [schema for schema in super().schemas if isinstance(schema, IndexSchema)]


class Index(Derivation):
    """
    A further key of a model: `by_email = Index(row_key="email_{email}", unique=True)` in the body of the class.

    Each entity is stored once more under that key, in the same partition and by the same entity group transaction, so
    that the index entry is as current as the entity. An optional field of the template that is None means that there is
    no entry. Read through it with `db.get(Employee.by_email, ...)` and `db.select(Employee.by_email)`.

    Args:
        row_key: Template of the entries' RowKeys. Its keys must be told from those of the model: begin it with other
            literal text. Unless the index is unique, it holds all fields of the model's own row_key.
        unique: Whether no two entities of a partition may have the same key: `UniqueViolation`.
        include: What entries hold: "all" fields but those that other entities keep, the names of some, or "keys": then
            the entity is read after the entry.
        where: Takes the entity; only entities for which it is true have an entry.
        building: The index is written and not read, until the entities that were there before it have their entries:
            see `db.build_index`.

    Raises:
        ModelError: An argument is wrong; when the class is made, the template does not fit the model.
    """

    on_class = IndexOf

    def __init__(
        self,
        *,
        row_key: str,
        unique: bool = False,
        include: Include = "all",
        where: Callable[[Any], bool] | None = None,
        building: bool = False,
    ) -> None:
        if not isinstance(row_key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"Index(row_key={row_key!r}) is refused: give a template, as in 'email_{{email}}'")
        if isinstance(include, str) and include not in ("all", "keys"):
            raise ModelError(f"Index(include={include!r}) is unknown; use 'all', 'keys' or a list of field names")
        given: tuple[object, object] = unique, building
        if not all(each is True or each is False for each in given):
            raise ModelError(f"Index(unique={unique!r}, building={building!r}) is refused: give True or False for each")
        if not isinstance(include, (str, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"Index(include={include!r}) is unknown; use 'all', 'keys' or a list of field names")
        super().__init__(where)
        self.row_key, self.unique, self.building = row_key, unique, building
        self.include: Include = include if isinstance(include, str) else tuple(include)

    def bind(self, schema: Schema, annotations: Mapping[str, Any]) -> "IndexMaintainer":
        """Return the index of a model."""
        label = f"{schema.name}.{self.name}"
        row = parse_template(self.row_key, label, "row_key", dict(annotations), schema.kind)
        options = IndexOptions(
            name=self.name, unique=self.unique, include=self.include, where=self.where, building=self.building
        )
        return IndexMaintainer(IndexSchema(options, schema, row), row)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> IndexOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class IndexMaintainer(AuditedSchema):
    """
    An index of a model, kept right by the writes of its entities.

    Args:
        rows: The schema of its entries.
        template: Template of their RowKeys.
    """

    entry_type = IndexEntry

    def __init__(self, rows: IndexSchema, template: Template) -> None:
        super().__init__(rows.index.name, rows.primary)
        self.rows, self._template = rows, template
        self.building = rows.index.building
        self._all = rows.index.include == "all"
        # Which properties of the entity an entry holds, or does not hold.
        self._held = rows.properties | _KIND
        self._not_held = _IN_NO_ENTRY | rows.maintained_properties

    # What is declared

    def row_templates(self) -> Sequence[Template]:
        """Return the template of the entries' RowKeys."""
        return (self._template,)

    def shares_rows(self, *, keys_apart: bool) -> bool:
        """Return whether classes share the values of a unique index, or have keys that keep the entries apart."""
        return self.rows.index.unique or not keys_apart

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return 1 if an entity with these fields has an entry."""
        return int(values is None or all(values.get(name) is not None for name in self.rows.needed))

    @property
    def row_schema(self) -> IndexSchema:
        """The schema of its entries."""
        return self.rows

    def holds_all(self, given: AbstractSet[str]) -> bool:
        """Return whether there is an entry of all such entities, which has all fields or is followed to them."""
        index = self.rows.index
        if index.building or index.where is not None:
            return False
        if index.include != "keys" and (index.include != "all" or self.schema.maintained):
            return False
        return given >= frozenset(self.rows.needed)

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> IndexEntry | None:
        """Return the RowKey of the entity's entry. Raises TemplateError."""
        del partition_key, row_key
        address = self.rows.address(values)
        return None if address is None else IndexEntry(address)

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """Return the entry that the entity ought to have."""
        return self.rows.entry_row(values, row, entry.row_key) if isinstance(entry, IndexEntry) else None

    def effects(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Write the entry if what it holds changes; delete the entry at another key."""
        rows, write = self.rows, source.write
        address = rows.address(source.values)
        old = before.address if before is not None else None
        effects: list[Effect] = []
        if address is not None and (address != old or self._concerns(source.changed)):
            row = with_tokens_of(rows.entry_row(source.values, source.row, address), source.row)
            canonical = write.operation.canonical
            effects.append(
                IndexEntryEffect(rows, address, write, address == old, row, source.values, canonical=canonical)
            )
        if old is not None and old != address:
            effects.append(IndexEntryEffect(rows, old, write, existed=True))
        if address == old:
            return before, effects
        return None if address is None else IndexEntry(address), effects

    def _concerns(self, changed: set[str]) -> bool:
        """Return whether an entry holds some of the properties that change."""
        return not changed <= self._not_held if self._all else not changed.isdisjoint(self._held)

    def rebuild(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Write the entry, after reading it if the manifest names it; delete what the manifest names wrongly."""
        rows, write = self.rows, source.write
        entry = self.entry(source.values, source.partition_key, source.row_key)
        effects: list[Effect] = []
        if entry is not None:
            row, named = rows.entry_row(source.values, source.row, entry.row_key), entry == before
            row = with_tokens_of(row, source.row)
            effects.append(IndexEntryEffect(rows, entry.row_key, write, named, row, source.values, reads=named))
        if before is not None and before != entry:
            effects += undo_entry(self.name, before, write, checked=True)
        return entry, effects

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the entries."""
        return (IndexCheck(context, self.rows),)
