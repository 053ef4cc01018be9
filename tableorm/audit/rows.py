"""
What all that judges has in common: which row is what, what is checked of it, reads, and single writes under an ETag.
"""

import asyncio
from collections.abc import Iterable, Sequence

from ..connection.translate import translate
from ..database.reading import Reader
from ..derived.aggregate.aggregate import AggregateMaintainer
from ..derived.aggregate.audit import AggregateCheck, Keeps, aggregate_fields
from ..derived.aggregate.schema import AggregateSchema
from ..derived.embed.audit import Holds, Lends
from ..derived.embed.embed import EmbedMaintainer
from ..derived.index.audit import Copies
from ..derived.index.index import IndexMaintainer
from ..derived.index_list.audit import Lists
from ..derived.index_list.index_list import ListMaintainer
from ..errors import DecodeError
from ..models.kinds import KindSet
from ..models.schema import Schema, concrete
from ..protocol.codes import Code, Fault
from ..protocol.limits import check_key
from ..stores import Operation, Row
from ..writes.races import pause_of
from .check import Check, EntitySnapshot, kind_of, look
from .report import AuditCounts

__all__ = ["AuditContext", "with_related"]

_LOST = frozenset({Code.ENTITY_EXISTS, Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND, Code.CONDITION_NOT_SATISFIED})


def with_related(schemas: Sequence[Schema]) -> list[Schema]:
    """
    Models, and those that keep their counts or that they hold copies of: what is right of one, the other says. Those
    that have no kind, or that of another one, cannot be told from rows, and are left out.

    Args:
        schemas: The models.
    """
    found = list(schemas)
    for schema in found:  # grows meanwhile
        targets = [other for each in schema.derived.values() for other in each.related()]
        for other in (each for target in targets for each in concrete(target)):
            if other.kind is not None and all((s.table, s.kind) != (other.table, other.kind) for s in found):
                found.append(other)
    return found


class AuditContext:
    """
    Knows rows, and reads and writes them.

    Args:
        db: Where.
        kinds: The models of one table.
        repair: Whether to repair.
        only: Name of the one declaration that is checked; None for all.
    """

    def __init__(self, db: Reader, kinds: KindSet, *, repair: bool, only: str | None = None) -> None:
        self.db, self.kinds, self.repair = db, kinds, repair
        self.by_kind = {str(schema.kind): schema for schema in kinds.schemas}
        self.aggregates: list[AggregateSchema] = [
            each.aggregate
            for schema in kinds.schemas
            for name, each in schema.derived_as(AggregateMaintainer).items()
            if only in (None, name)
        ]
        self._checks = {id(schema): self._checks_of(schema, only) for schema in kinds.schemas}
        self._owners: dict[str, Check | None] = {}

    def _checks_of(self, schema: Schema, only: str | None) -> Sequence[Check]:
        found: list[Check] = []
        if only is None or only in schema.derived_as(IndexMaintainer):
            found.append(Copies(schema, only))
        if (lists := schema.derived_as(ListMaintainer)) and (only is None or only in lists):
            found.append(Lists(schema, only))
        if (sums := schema.derived_as(AggregateMaintainer)) and (only is None or only in sums):
            found.append(AggregateCheck(schema, only))
        fields = aggregate_fields(schema, self.aggregates)
        if fields:
            found.append(Keeps(fields))
        if only is not None:
            return found
        if schema.derived_as(EmbedMaintainer):
            found.append(Holds(schema, self.seen))
        labels = [
            each.embed.stem
            for other in self.kinds.schemas
            for each in other.derived_as(EmbedMaintainer).values()
            if schema.kind in {one.kind for one in concrete(each.embed.source[0])}
        ]
        return [*found, Lends(labels, self.seen)] if labels else found

    # Rows

    def owner_of(self, row: Row) -> Check | None:
        """The check that a derived row belongs to; None for rows of entities, and of what is not checked."""
        kind = kind_of(row)
        if "#" not in kind:
            return None
        if kind not in self._owners:
            schema = self.by_kind.get(kind.partition("#")[0])
            checks = () if schema is None else self._checks[id(schema)]
            # Lists first: to copies all other kinds of the model are those of some index.
            found = [check for check in checks if check.owns(kind)]
            self._owners[kind] = next((check for check in found if isinstance(check, Lists)), next(iter(found), None))
        owner = self._owners[kind]
        return owner if owner is None or owner.takes(row) else None

    def seen(self, row: Row) -> EntitySnapshot | None:
        """The entity of a row; None if it is of another kind, or a derived row."""
        if "#" in kind_of(row):
            return None
        try:
            resolved = self.kinds.resolve(row)
        except DecodeError as error:
            schema = self.by_kind.get(kind_of(row), self.kinds.schemas[0])
            return EntitySnapshot(schema, row, "current", {}, {}, legible=True, problem=error.problem)
        return None if resolved is None else look(self.kinds, *resolved, row)

    def checks(self, seen: EntitySnapshot) -> Sequence[Check]:
        """What is checked of an entity."""
        return self._checks[id(seen.schema)]

    @property
    def has_lists(self) -> bool:
        """Whether index lists are checked."""
        return any(isinstance(check, Lists) for checks in self._checks.values() for check in checks)

    # Reading and writing

    async def read(self, partition_key: str, row_key: str, counts: AuditCounts) -> Row | None:
        """A row; None if there is none. What damaged rows name need not be a key."""
        try:
            check_key("RowKey", row_key)
        except Fault:
            return None
        counts.requests += 1
        return await self.db.read_row(self.kinds.table, partition_key, row_key)

    async def read_all(self, partition_key: str, row_keys: Iterable[str], counts: AuditCounts) -> list[Row | None]:
        """Several rows."""
        return list(await asyncio.gather(*(self.read(partition_key, each, counts) for each in row_keys)))

    async def pause(self, attempt: int) -> None:
        """Before something is looked at again."""
        if attempt:
            await asyncio.sleep(pause_of(self.db, attempt))

    async def send(self, operations: Sequence[Operation], counts: AuditCounts) -> bool:
        """
        Whether a transaction was applied; if not, somebody else has written, or nobody knows: look again.

        Raises:
            TableOrmError: The store refused it for another reason.
        """
        counts.requests += 1
        self.db.stats.requests += 1
        try:
            await self.db.require_open().transact(self.kinds.table, list(operations))
        except Fault as fault:
            if fault.code in _LOST or fault.transient:
                return False
            raise translate(fault, "audit(repair=True)", self.kinds.table) from fault
        return True
