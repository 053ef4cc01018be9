"""
Counts and sums over entities, kept in a field of another entity of the same partition.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ...audit.check import AuditContext, AuditedSchema, Check
from ...errors import ModelError
from ...expressions import Field
from ...models.derivation import Derivation, DerivationOf
from ...models.key import Storable
from ...models.manifest import AggregateEntry, ManifestEntry
from ...models.schema import Schema
from ...writes.maintainer import EntryRules, Source, entry_rules, undo_entry
from ...writes.plan import Effect, PlannedWrite
from ..entity_patch import EntityPatch
from ..reference import as_function
from .audit import aggregate_checks
from .schema import AggregateOptions, AggregateSchema

__all__ = ["Aggregate", "AggregateMaintainer", "AggregateOf", "Count", "Sum"]

E = TypeVar("E", bound=Storable)

_ROOM = 8  # rows of counts that all writes of a transaction have in common


class AggregateOf(DerivationOf[E]):
    """A count or sum of a model, as `Employee.employees` gives it: for `db.build_index`."""


class Aggregate(Derivation):
    """The base of `Count` and `Sum`."""

    on_class = AggregateOf
    instead = "; the entity in which it counts has the number"
    of: str | None = None

    def __init__(
        self,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None,
        create: bool,
        key: Mapping[str, str],
    ) -> None:
        super().__init__(where)
        what = type(self).__name__
        if isinstance(field, type) or not (isinstance(field, Field) or callable(field)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{what}({field!r}) is refused: give a field, as in `lambda: Department.employee_count`")
        if not key or not all(isinstance(text, str) for text in key.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f'{what}(...) needs the key of the entity that keeps it, as in name="{{department}}"')
        self.field: Callable[[], Field[Any]] = as_function(field)
        self.create, self.key = create, dict(key)

    def bind(self, schema: Schema, annotations: Mapping[str, Any]) -> "AggregateMaintainer":
        """Return the count or sum of a model."""
        del annotations
        options = AggregateOptions(
            name=self.name, field=self.field, of=self.of, where=self.where, create=self.create, key=self.key
        )
        return AggregateMaintainer(options, schema)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> AggregateOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class Count(Aggregate):
    """
    A count of the entities of a model, in a field of another entity of the same partition.

    `employees = Count(lambda: Department.employee_count, name="{department}")` in the body of `Employee`: each write of
    an employee that changes it writes the department too, in the same entity group transaction. The field is declared
    `field(default=0, maintained=True)`, and nothing else writes it.

    Args:
        field: The field of the other model that holds the count, or a function that returns it.
        where: Takes the entity; only those for which it is true are counted.
        create: Whether a missing entity that holds the count is inserted, with defaults; otherwise it must be there.
        key: The key fields of that entity: "{field}" of this model, or text.
    """

    def __init__(
        self,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        **key: str,
    ) -> None:
        super().__init__(field, where=where, create=create, key=key)


class Sum(Aggregate):
    """
    A sum over a field of the entities of a model, in a field of another entity of the same partition.

    It is kept as a `Count` is.

    Args:
        of: Name of the field that is summed: whole numbers; None counts as 0.
        field: The field of the other model that holds the sum, or a function that returns it.
        where: Takes the entity; only those for which it is true are summed.
        create: Whether a missing entity that holds the sum is inserted, with defaults.
        key: The key fields of that entity: "{field}" of this model, or text.
    """

    def __init__(
        self,
        of: str,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        **key: str,
    ) -> None:
        super().__init__(field, where=where, create=create, key=key)
        self.of = of


class AggregateMaintainer(AggregateSchema, AuditedSchema):
    """A count or sum of a model, kept right by the writes of its entities."""

    entry_type = AggregateEntry
    rows_per_chunk = _ROOM

    def effects(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Take back what the entity has added, and add what it adds now."""
        entry, target = self.entry(source.values, source.partition_key, source.row_key), self.target[0]
        if entry == before or (before is not None and entry == self.current_entry(before)):
            return entry, []
        effects = [] if before is None else undo_entry(self.name, before, source.write)
        if entry is not None:
            address = entry.row_key
            needed = (
                f"{self.label} counts it in {target.name} {address!r} of this partition, which does not exist; "
                "insert that first"
            )
            make = partial(self.make_holder, source.partition_key, address)
            effects.append(
                EntityPatch(
                    address=address,
                    origin=source.write,
                    amounts=entry.amounts,
                    needed=needed,
                    create=make if self.declared.create else None,
                    target=target,
                )
            )
        return entry, effects

    def rebuild(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """
        Return the right entry alone, unless counts are to be changed: whether the entity was counted nobody knows, and
        an audit sets the count afterwards, from all entities whose manifests say that they add to it.
        """
        if source.write.change.counts:
            return self.effects(before, source)
        return self.entry(source.values, source.partition_key, source.row_key), []

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the checks of the entities that add to it, and of those that hold it."""
        return aggregate_checks(context, self)


@entry_rules(AggregateEntry)
class _Rules(EntryRules[AggregateEntry]):
    def undo(self, name: str, entry: AggregateEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Take back what the entity has added."""
        del checked  # the other entity is read in any case
        schema = write.change.schema
        declared = None if schema is None else schema.derived.get(name)
        target: Schema | None = None
        amounts = entry.amounts
        if isinstance(declared, AggregateSchema):
            target = declared.target[0]
            current = declared.current_entry(entry)
            amounts = current.amounts if isinstance(current, AggregateEntry) else amounts
        taken = {each: -amount for each, amount in amounts.items()}
        return [EntityPatch(address=entry.row_key, origin=write, amounts=taken, target=target)]
