"""
Indexes: more keys under which the entities of a model are found, as rows of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from ...audit.check import AuditedMaintainer
from ...errors import ModelError
from ...keys.parse import parse_template
from ...models.derivation import Derivation, IndexOf, check_building, check_placement
from ...models.key import Storable
from ...models.schema import Schema
from .effect import EachIndexMaintainer, IndexMaintainer
from .eventual import EventualIndexMaintainer, EventualIndexSchema, UniqueIndexMaintainer
from .schema import Include, IndexSchema

E = TypeVar("E", bound=Storable)


class Index(Derivation):
    """
    An additional key of a model, declared in the body of the class.

        by_email = Index(row_key="email_{email}", unique=True)

    For each entity, a second row is stored under that key, the index entry: in the same partition, and in the same
    transaction, so it's always as current as the entity. If an optional field of the template is None, the entity has
    no entry. Read with `db.get(Employee.by_email, ...)` and `db.select(Employee.by_email)`.

    With `partition_key` or `table`, the entries are in other partitions, and no transaction can include them. Declare
    `consistency="eventual"`: the entries follow their entities after a short time. A query reads the entity of each
    entry, and returns it only if it still has these keys. With `unique=True`, the entry is written before its entity,
    to reserve the value.

    Args:
        row_key: The template of the entries' RowKeys. Begin it with a different literal than the model's own. Unless
            the index is unique, it must contain all fields of the model's `row_key`; with a `partition_key`, the two
            templates together must contain all fields of the model's keys.
        partition_key: The template of the entries' PartitionKeys; None for those of their entities.
        table: The name of the entries' table; None for that of the model.
        consistency: "eventual" for entries in other partitions or another table; None otherwise.
        unique: Whether no two entities of a partition can have the same entry; the second one raises
            `UniqueViolation`. With a `partition_key` or `table`, this holds across all partitions of the model, or
            among entities with the same fields in `partition_key`.
        include: The fields that entries hold: "all" except maintained fields; a list of fields; or "keys", so that the
            entity is read after its entry. None stands for "all", and for "keys" if nothing else is possible: in a
            unique index with `consistency="eventual"`.
        where: A function of the entity; only entities for which it returns true have an entry.
        building: Whether the index is only written, and not read yet because it lacks older entities. None leaves that
            to the store, which records it in `db.create_tables` and `db.build_index`; True and False don't ask the
            store.

    Raises:
        ModelError: An argument is wrong; or, when the class is created, the template does not fit the model.
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
