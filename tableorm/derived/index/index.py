"""
Indexes: more keys under which the entities of a model are found, as rows of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from ...audit.check import AuditedMaintainer
from ...errors import ModelError
from ...keys.parse import parse_template
from ...models.derivation import Derivation, RowsOf, check_building, check_placement
from ...models.key import Storable
from ...models.schema import Schema
from .effect import EachIndexMaintainer, IndexMaintainer
from .eventual import EventualIndexMaintainer, EventualIndexSchema, UniqueIndexMaintainer
from .schema import Include, IndexSchema

E = TypeVar("E", bound=Storable)


class IndexOf(RowsOf[E]):
    """An index of a model, as `Employee.by_email` gives it: for `db.get` and `db.select`."""


class Index(Derivation):
    """
    A further key of a model: `by_email = Index(row_key="email_{email}", unique=True)` in the body of the class.

    Each entity is stored once more under that key, in the same partition and by the same entity group transaction, so
    that the index entry is as current as the entity. An optional field of the template that is None means that there is
    no entry. Read through it with `db.get(Employee.by_email, ...)` and `db.select(Employee.by_email)`.

    With `partition_key` or `table` the entries are in other partitions, and no transaction can write them with their
    entities: `consistency="eventual"` says that they follow some time later. Readers fetch the entity of each entry,
    and count an entry only if the entity still has its keys. With `unique=True` an entry is made before its entity is
    written, and reserves the value for it.

    Args:
        row_key: Template of the entries' RowKeys. Its keys must be told from those of the model: begin it with other
            literal text. Unless the index is unique, it holds all fields of the model's own row_key; with a
            partition_key both together hold all fields of the model's keys.
        partition_key: Template of the entries' PartitionKeys; None for those of their entities.
        table: Name of the entries' table; None for that of the model.
        consistency: "eventual" for entries in other partitions or another table; None otherwise.
        unique: Whether no two entities of a partition may have the same key: `UniqueViolation`. With a partition_key or
            table, no two entities of all partitions, or of those that the keys of the index tell apart.
        include: What entries hold: "all" fields but those that other entities keep, the names of some, or "keys": then
            the entity is read after the entry. None for "all", or for "keys" where that is the only choice: an eventual
            index that is unique.
        where: Takes the entity; only entities for which it is true have an entry.
        building: Whether the index is written and not read, since entities that were there before it lack entries. None
            leaves that to the store, which knows it from `db.create_tables` and `db.build_index`; True and False do not
            ask it.

    Raises:
        ModelError: An argument is wrong; when the class is made, the template does not fit the model.
    """

    _on_class = IndexOf

    def __init__(
        self,
        *,
        row_key: str,
        partition_key: str | None = None,
        table: str | None = None,
        consistency: Literal["eventual"] | None = None,
        unique: bool = False,
        include: Include | None = None,
        where: Callable[[Any], bool] | None = None,
        building: bool | None = None,
    ) -> None:
        if not isinstance(row_key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"Index(row_key={row_key!r}) is rejected: give a template, as in 'email_{{email}}'")
        if type(unique) is not bool:
            raise ModelError(f"Index(unique={unique!r}) is rejected: give True or False")
        check_building("Index", building)
        reserves = unique and consistency is not None
        if include is None:
            include = "keys" if reserves else "all"
        if include not in ("all", "keys") and (isinstance(include, str) or not isinstance(include, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"Index(include={include!r}) is unknown; use 'all', 'keys' or a list of field names")
        super().__init__(where)
        check_placement("Index", partition_key=partition_key, table=table, consistency=consistency)
        if reserves and include != "keys":
            raise ModelError(
                f"Index(include={include!r}, unique=True, consistency='eventual') is rejected: its entries reserve "
                "values and hold keys alone; leave out include"
            )
        self.row_key, self.unique, self.building = row_key, unique, building
        self.partition_key, self.table, self.consistency = partition_key, table, consistency
        self.include: Include = include if isinstance(include, str) else tuple(include)

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> AuditedMaintainer:
        """Return the index of a model."""
        label, known = f"{schema.name}.{self.name}", dict(annotations)
        row = parse_template(self.row_key, label, "row_key", known, schema.kind, each=True)
        if row.each is not None and self.consistency is not None:
            raise ModelError(
                f"{label}: row_key {row.text!r} makes an entry for each element of {row.each}, and an eventual index "
                "has one for each entity; leave out partition_key, table and consistency, or store an entity for each "
                "element"
            )
        if schema.periods is not None and self.building is None and self.consistency is None:
            raise ModelError(
                f"{label} is rejected without building=: the store keeps no state of an index of many tables, and "
                f"{schema.name} has a table for each period; give building=False if each table has had this index from "
                "its first row, else building=True until the tables that had rows before it are dropped"
            )
        partition = schema.templates()[0]
        if self.partition_key is not None:
            partition = parse_template(self.partition_key, label, "partition_key", known, schema.kind)
        kind = IndexSchema if self.consistency is None else EventualIndexSchema
        rows = kind(
            self.name,
            schema,
            table=self.table or schema.table,
            partition=partition,
            row=row,
            unique=self.unique,
            include=self.include,
            where=self.where,
            building=self.building,
        )
        if isinstance(rows, EventualIndexSchema):
            return UniqueIndexMaintainer(rows) if self.unique else EventualIndexMaintainer(rows)
        return IndexMaintainer(rows) if row.each is None else EachIndexMaintainer(rows)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> IndexOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...
