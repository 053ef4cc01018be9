"""
Index lists: the entities that have a value, found by a row that lists their keys.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...errors import ModelError
from ...keys.parse import parse_template
from ...models.derivation import Derivation, DerivationOf, check_building, check_placement
from ...models.key import Storable
from ...models.manifest import folder_of_lists
from ...models.schema import Schema
from .audit import ListCheck
from .blob_list import BlobListMaintainer
from .eventual import EventualListMaintainer
from .schema import ListSchema

E = TypeVar("E", bound=Storable)


_DIVIDE_AT = 64 * 1024


class ListOf(DerivationOf[E]):
    """An index list of a model, such as `Employee.by_last_name`, to be passed to `db.lookup`."""


class IndexList(Derivation):
    """
    An index that lists, in one row, the keys of all entities that have a value. Declared in the body of the class.

        class Employee(Entity, ...):
            by_last_name = IndexList(row_key="lastname_{last_name}")

        jones = await db.lookup(
            Employee.by_last_name, department="Sales", last_name="Jones"
        )

    Every insert also reads and writes the row of its list, and all writers of a value compete for it. For values that
    many entities have, an `Index`, with one row per entity, is better.

    Args:
        row_key: The template of the lists' keys. Its literal text must begin differently from the model's and from
            other indexes'.
        partition_key: The template of the lists' PartitionKeys; None for those of their entities.
        table: The name of the lists' table; None for that of the model.
        blob: Whether each list is kept in a blob of up to 10 MiB instead of in rows.
        consistency: "eventual" for lists in other partitions, another table, or blobs, which follow their entities
            after a short time; None otherwise.
        where: A function of the entity; only entities for which it returns true are listed.
        divide_at: The size in bytes at which a list is divided into further rows, up to 512 KiB. Each write reads and
            writes one row, so smaller rows make it cheaper; one query reads all rows of a list.
        building: Whether the list is only written, and not read yet because it lacks older entities. None leaves that
            to the store, which records it in `db.create_tables` and `db.build_index`; True and False don't ask the
            store.

    Raises:
        ModelError: An argument is wrong; or, when the class is created, the template does not fit the model.
    """

    _on_class = ListOf

    def __init__(
        self,
        *,
        row_key: str,
        partition_key: str | None = None,
        table: str | None = None,
        blob: bool = False,
        consistency: Literal["eventual"] | None = None,
        where: Callable[[Any], bool] | None = None,
        divide_at: int = _DIVIDE_AT,
        building: bool | None = None,
    ) -> None:
        if not isinstance(row_key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"IndexList(row_key={row_key!r}) is rejected: give a template, as 'lastname_{{last_name}}'"
            )
        if type(divide_at) is not int or not 2048 <= divide_at <= 512 * 1024:
            raise ModelError(f"IndexList(divide_at={divide_at!r}) is rejected: give bytes from 2048 to {512 * 1024}")
        super().__init__(where)
        if type(blob) is not bool:
            raise ModelError(f"IndexList(blob={blob!r}) is rejected: give True or False")
        if blob and (table is not None or divide_at != _DIVIDE_AT):
            given = "divide_at" if table is None else "table"
            raise ModelError(f"IndexList(blob=True, {given}=...) is rejected: a blob has no rows; leave {given} out")
        check_placement("IndexList", partition_key=partition_key, table=table, consistency=consistency, blob=blob)
        check_building("IndexList", building)
        self.row_key, self.divide_at, self.building = row_key, divide_at, building
        self.partition_key, self.table = partition_key, table
        self._pattern = BlobListMaintainer if blob else EventualListMaintainer if consistency else ListMaintainer

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> AuditedMaintainer:
        """Return the index list of a model."""
        label, known, partition = f"{schema.name}.{self.name}", dict(annotations), None
        row = parse_template(self.row_key, label, "row_key", known, schema.kind)
        if self.partition_key is not None:
            partition = parse_template(self.partition_key, label, "partition_key", known, schema.kind)
        table = self.table
        if self._pattern is BlobListMaintainer:
            table = folder_of_lists(schema.table_text(), f"{schema.kind}#{self.name}")
        return self._pattern(
            self.name,
            schema,
            row,
            where=self.where,
            divide_at=self.divide_at,
            table=table,
            partition=partition,
            building=self.building,
        )

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> ListOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class ListMaintainer(ListSchema, AuditedMaintainer):
    """An index list of a model, which the audit checks."""

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the list."""
        return (ListCheck(context, self),)
