"""
Counts and sums over entities, kept in a field of another entity.

Those in entities of other partitions follow some time later. The transaction that writes an entity also writes the
subtotal of its partition. Afterwards the subtotal is copied to a row beside the total, in one transaction with the
total itself. What is copied is a state with a number, so that nothing changes if it is copied twice; and the newer
number is written also where the value is the same, so that whoever acts by an older one fails at an ETag.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar, overload

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...audit.table_audit import rebuild_write
from ...connection.connection import Connection
from ...connection.logger import make_logger
from ...connection.races import Attempts, is_race
from ...connection.rows import read_row, write_as_read
from ...connection.tasks import Batcher, map_together
from ...errors import DecodeError, ModelError, NotSupported, ReferenceNotFound, TableOrmError, shown
from ...expressions import Field
from ...models.derivation import Derivation, DerivationOf
from ...models.key import Storable
from ...models.kinds import KindSet, describe_kind
from ...models.manifest import ManifestEntry, SubtotalEntry, share_address
from ...models.marker_rows import SHARE_KIND, SUBTOTAL_KIND, refuse_like_subtotals
from ...models.reserved import ENTITY_TYPE
from ...models.schema import FieldInfo, Schema, concrete
from ...models.write_tokens import new_token
from ...protocol.codes import Code
from ...protocol.limits import MAX_TRANSACTION_OPERATIONS
from ...stores import Operation, Row, RowAddress
from ...writes.commit import commit
from ...writes.maintainer import (
    EntryAndEffects,
    EntryRules,
    Source,
    entry_rules,
    is_proven,
    touch_operation,
    undo_entry,
)
from ...writes.plan import Effect, PlannedWrite
from ...writes.stages.change import insert_change
from ...writes.stages.encode import encode_surely
from ..entity_patch import EntityPatch
from .audit import AggregateCheck, TotalHolderCheck
from .eventual_audit import ShareCheck, SubtotalCheck
from .schema import AggregateSchema, CountRow, SubtotalPatch, count_row_of, is_of_older_version

_LOG = make_logger("tableorm.outbox")


class AggregateMaintainer(AggregateSchema, AuditedMaintainer):
    """A count or sum of a model, which the audit checks."""

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the checks of a table: of the entities that add to it, and of those that hold it."""
        target, info = self.target
        own = context.kinds.schemas
        checks: list[Check] = [AggregateCheck(context, self)] if self.schema in own else []
        holders = [schema for schema in own if schema in concrete(target)]
        return [*checks, *(TotalHolderCheck(context, schema, schema.fields[info.name]) for schema in holders)]


class EventualAggregateMaintainer(AggregateMaintainer):
    """A count or sum of a model in entities that may be in other partitions."""

    entry_type: ClassVar[type[ManifestEntry]] = SubtotalEntry
    deferred = limited = True
    rows_per_chunk = AggregateSchema.rows_per_chunk + 1  # the decision row

    def resolve(self) -> tuple[Schema, FieldInfo]:
        """Return the schema and the field that hold it, found anew. Raises ModelError."""
        target, info = super().resolve()
        if any(each.periods is not None for each in (self.schema, target)):
            raise ModelError(f"{self.label}: {target.name} or {self.schema.name} has a table for each period")
        refuse_like_subtotals(self.schema, self.label)
        refuse_like_subtotals(target, self.label)
        return target, info

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> SubtotalEntry | None:
        """Return what an entity with these fields adds, and where. Raises TemplateError."""
        keys, amount = self.keys(values), self.amount(values)
        if keys is None or not amount:
            return None
        target, info = self.target
        return SubtotalEntry.of(RowAddress(target.table_name(), *keys), info.member.property, amount)

    def proves(self, entry: ManifestEntry, values: Mapping[str, Any], partition_key: str, row_key: str) -> bool:
        """Return whether it counts where these fields say; a sum may be over what was there before."""
        due = self.entry(values, partition_key, row_key)
        if not isinstance(entry, SubtotalEntry) or not entry.is_sound or due is None:
            return False
        # An upgrade of the entity that has the total may have renamed it since.
        same = entry.holder.is_same(due.holder) and self.property_of(entry.field) == due.field
        return same and (self.of is not None or entry.amount == 1)

    def adopts(self, entry: ManifestEntry) -> bool:
        """Return whether the entry is of the same table and field: the name was another one."""
        if not isinstance(entry, SubtotalEntry) or entry.table != self.target[0].table_name():
            return False
        return self.may_be_in(entry.holder) and self.property_of(entry.field) is not None

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Move what the entity has added under a former name of the total; otherwise as any count or sum."""
        entry, due = super().rebuild(before, source)
        if isinstance(before, SubtotalEntry) and isinstance(entry, SubtotalEntry) and before.field != entry.field:
            return self.effects(before, source)
        return entry, due

    def current_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Return the entry: another name of the property is another subtotal."""
        return entry

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Take back what the entity has added to a subtotal, and add what it adds now."""
        entry = self.due_entry(source)
        if entry == before:
            return entry, []
        effects = [] if before is None else undo_entry(self.name, before, source.write)
        if isinstance(entry, SubtotalEntry):
            effects.append(SubtotalPatch(row_key=entry.row_key, origin=source.write, entry=entry, amount=entry.amount))
        return entry, effects

    async def check_room(self, db: Connection, entry: ManifestEntry | None) -> None:
        """Refuse an entity that would be counted in one that does not exist. Raises ReferenceNotFound."""
        if not isinstance(entry, SubtotalEntry) or self.create:
            return
        row = await read_row(db, entry.holder, ("PartitionKey", ENTITY_TYPE), self.label)
        if row is None or not self.is_target(row):
            raise self._missing(entry.holder, row)

    def _missing(self, holder: RowAddress, row: Row | None) -> ReferenceNotFound:
        other = "" if row is None else f" (the row with its key has {describe_kind(row)})"
        return ReferenceNotFound(
            f"{self.label} counts it in {self.target[0].name} {holder}, which does not exist{other}; insert that first",
            Code.RESOURCE_NOT_FOUND,
            (holder.partition_key, holder.row_key),
        )

    # What is done afterwards

    async def reconcile(
        self, db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], inserted: Row | None = None
    ) -> None:
        """Copy the subtotals that entries name to their totals. Takes and raises what `Maintainer.reconcile` does."""
        found = {(each.holder, each.row_key) for each in entries if isinstance(each, SubtotalEntry) and each.is_sound}
        await map_together(lambda each: self.copy(db, each[0], source.beside(each[1])), sorted(found, key=str))

    async def copy(self, db: Connection, holder: RowAddress, subtotal: RowAddress) -> None:
        """Copy a subtotal to its total. Concurrent tasks for one total share their requests."""
        await _COPIES.call((db, self, holder), subtotal)

    async def try_to_copy(self, db: Connection, holder: RowAddress, subtotals: Sequence[RowAddress]) -> bool:
        """Try to copy several subtotals. Return whether the total now has them; if not, try again."""
        read = partial(read_row, db, name=self.label)

        # The total first: what a subtotal says is then newer than its ETag.
        shares = [share_address(holder, each) for each in subtotals]
        stored, *noted = await map_together(read, [holder, *shares])
        found = await map_together(read, subtotals)
        amounts, operations, token = defaultdict[str, int](int), list[Operation](), new_token()
        for at, share, before, row in zip(subtotals, shares, noted, found, strict=True):
            try:
                now = None if row is None else count_row_of(row)
                has = None if before is None else count_row_of(before)
            except DecodeError as error:  # the others are copied all the same
                _LOG.warning("the subtotal %s is left to audits: %s", at, error)
                continue
            if now is None or now.kind != SUBTOTAL_KIND or not now.of.is_same(holder):
                continue
            old = has or CountRow(SHARE_KIND, at, (*now.field, holder.row_key))
            name = self.property_of(now.field[0])
            if name is not None and now.number > old.number:
                amounts[name] += now.value - old.value
                operations.append(old.operation(share, now.value, now.number, token))
        if not operations:
            return True
        if stored is not None and not self.is_target(stored):
            raise self._missing(holder, stored)
        if stored is None:
            if not any(amounts.values()):
                return True
            if not self.create:
                raise self._missing(holder, None)
            entity: Any = self.make_holder(holder.partition_key, holder.row_key)
            return await _prepare_holder(db, encode_surely(insert_change(entity)))
        kinds = KindSet.of([self.target[0].model])
        write = rebuild_write(kinds, stored, (), token)
        patch = EntityPatch(row_key=holder.row_key, origin=write, amounts=amounts, target=self.target[0])
        whole = patch.full_write(stored, token)
        if whole is not None:
            return await _prepare_holder(db, whole)  # it is of an older version
        counted = patch.operation(stored, token) or touch_operation(stored, token)
        return await write_as_read(db, holder.table, [counted, *operations], name=self.label, what=f"{holder}")

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the checks of what adds to it, of the subtotals, and of what holds it."""
        own, target = context.kinds.schemas, self.target[0]
        holders = [schema for schema in own if schema in concrete(target)]
        checks: list[Check] = [*(ShareCheck(context, each, self.name) for each in holders[:1])]
        if self.schema in own:
            checks.append(SubtotalCheck(context, self.schema, self.name))
        return [*super().checks(context), *checks]


async def _prepare_holder(db: Connection, write: PlannedWrite) -> bool:
    """Write an entity so that something can be counted in it; return False, since it has to be read again."""
    try:
        await commit(db, (write,))
    except TableOrmError as error:
        if not is_race(error):
            raise
    return False


async def _copy_together(
    total: tuple[Connection, EventualAggregateMaintainer, RowAddress], subtotals: Sequence[RowAddress]
) -> Sequence[None]:
    """Copy some subtotals to a total."""
    (db, aggregate, holder), some = total, list(dict.fromkeys(subtotals))
    async for _ in Attempts(db, races=f"{aggregate.label}: others wrote {holder} or its subtotals first"):
        if await aggregate.try_to_copy(db, holder, some):
            break
    return [None] * len(subtotals)


_COPIES = Batcher(_copy_together, MAX_TRANSACTION_OPERATIONS - 1)


@entry_rules(SubtotalEntry)
class _SubtotalRules(EntryRules[SubtotalEntry]):
    def undo(self, name: str, entry: SubtotalEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Take back what the entity has added, if it is proven that it has: nothing in the subtotal tells."""
        known = write.change.schema is None or is_of_older_version(write) or is_proven(entry, write)
        if not known or not entry.is_sound:
            return []
        return [SubtotalPatch(row_key=entry.row_key, origin=write, entry=entry, amount=-entry.amount)]

    async def remove(self, db: Connection, source: RowAddress, name: str, entries: Sequence[SubtotalEntry]) -> None:
        """Leave totals to programs that declare them, which alone know the entities that hold them."""
        raise NotSupported(
            f"the entity {source} was counted in {entries[0].holder} by {shown(name)}, which this program does not "
            "know; leave it to a program that does, or update this one"
        )


E = TypeVar("E", bound=Storable)


class AggregateOf(DerivationOf[E]):
    """A count or sum of a model, such as `Employee.employees`, to be passed to `db.build_index`."""


class Aggregate(Derivation):
    """
    A number about the entities of a model, in a field of another entity: the base of `Count` and `Sum`.

    Attributes:
        field: The field that holds it, or a function that returns that field.
        of: The name of the field that is summed; None for a count.
        create: Whether the entity that holds it is inserted if it doesn't exist.
        consistency: "eventual" if that entity is in another partition or table; otherwise None.
        key: The key fields of that entity, as templates.
    """

    _on_class = AggregateOf
    _instead = "; the entity in which it counts has the number"
    of: str | None = None

    def __init__(
        self,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        consistency: Literal["eventual"] | None = None,
        **key: str,
    ) -> None:
        super().__init__(where)
        what = type(self).__name__
        if consistency not in (None, "eventual"):  # pyright: ignore[reportUnnecessaryContains]
            raise ModelError(f"{what}(consistency={consistency!r}) is unknown; use 'eventual', or leave it out")
        if isinstance(field, type) or not (isinstance(field, Field) or callable(field)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{what}({field!r}) is rejected: give a field, as in `lambda: Department.employee_count`")
        if not key:
            raise ModelError(
                f"{what}(...) needs the key fields of the model that has the field, as templates of the fields of this "
                'model: name="{department}"'
            )
        for name, text in key.items():
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(
                    f"{what}(..., {name}={text!r}) is rejected: a key field is given as a text, which is a template of "
                    f'the fields of this model: {name}="{{department}}", or "{text}" if it is always the same'
                )
        self.field: Callable[[], Field[int]] | Field[int] = field
        self.create, self.consistency, self.key = create, consistency, key

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> AggregateSchema:
        """Return the count or sum of a model."""
        make = AggregateMaintainer if self.consistency is None else EventualAggregateMaintainer
        return make(self.name, schema, self.key, field=self.field, of=self.of, where=self.where, create=self.create)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> AggregateOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class Count(Aggregate):
    """
    The number of entities of a model, in a field of another entity of the same partition. Declared in the class of the
    entities that are counted.

        employees = Count(lambda: Department.employee_count, name="{department}")

    Each write of an employee that changes the count also writes the department, in the same transaction. Declare the
    field with `field(default=0, maintained=True)`; no other write changes it.

    Args:
        field: The field of the other model that holds the count, or a function that returns it.
        where: A function of the entity; only entities for which it returns true are counted.
        create: Whether to insert the entity that holds the count, with defaults, if it doesn't exist. Otherwise the
            write is rejected.
        consistency: "eventual" if that entity is in another partition or table: the count follows after a short time.
        key: The key fields of that entity: "{field}" of this model, or a literal.
    """


class Sum(Aggregate):
    """
    The sum of a field of the entities of a model, in a field of another entity of the same partition. Maintained like a
    `Count`.

        payroll = Sum("salary", lambda: Department.payroll, name="{department}")

    Args:
        of: The name of the field that is summed: integers; None counts as 0.
        field: The field of the other model that holds the sum, or a function that returns it.
        where: A function of the entity; only entities for which it returns true are summed.
        create: Whether to insert the entity that holds the sum, with defaults, if it doesn't exist. Otherwise the write
            is rejected.
        consistency: "eventual" if that entity is in another partition or table: the sum follows after a short time.
        key: The key fields of that entity: "{field}" of this model, or a literal.
    """

    def __init__(
        self,
        of: str,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        consistency: Literal["eventual"] | None = None,
        **key: str,
    ) -> None:
        super().__init__(field, where=where, create=create, consistency=consistency, **key)
        self.of = of
