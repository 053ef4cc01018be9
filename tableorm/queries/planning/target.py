"""
Targets: the kinds that a query asks for, as the planner sees them.
"""

from collections.abc import Sequence

from ...derived.index.schema import EntrySchema
from ...keys.template import Template
from ...models.kinds import KindSet
from ...models.schema import DerivedSchema, Schema
from ...stores import Bounds
from ...stores.intervals import EVERYTHING, hull


class QueryTarget:
    """
    The kinds that a query asks for, with what only a planner asks of them.

    Args:
        kinds: The kinds. They tell which model a row is of, and decode it.

    Attributes:
        kinds: The kinds.
        indexes: What is derived from the single kind and has rows that answer queries as well as its own; none if there
            are several kinds.
        schemas: Their concrete models.
        table: Their table.
        bags: Whether rows of any other kind come too, as property bags.
        name: Their names, for messages.
        filter: The condition that every row of these kinds satisfies; None if properties do not tell the kind.
        partition_keys: The PartitionKeys that rows of these kinds can have.
        row_keys: The RowKeys that rows of these kinds can have.
        single: The one concrete model; None if there are several, or bags come too.
        key_fields: The fields of a single kind that its keys hold, by the identity of the expressions that stand for
            them on its class.
        primaries: The target of the rows that these index entries belong to; None for primary rows.
        fetches_primaries: Whether rows are index entries of which the primary of each is fetched.
        undecided: The indexes whose entries these are, as far as the store says whether they are complete.
        asks_addresses: Whether these hold more than what leads to their primaries, which alone is asked for.
        elements: Whether an entity has an entry for each element of a list.
        drops_rows: Whether rows that satisfy all conditions may be no results, as the rows themselves tell.
    """

    primaries: "QueryTarget | None"

    def __init__(self, kinds: KindSet) -> None:
        self.kinds, self.schemas, self.table, self.bags = kinds, kinds.schemas, kinds.table, kinds.bags
        self.name = ", ".join([schema.name for schema in self.schemas] + ["PropertyBag"] * self.bags)
        self.filter = kinds.filter
        self.partition_keys = _keys_of(kinds, [schema.partition for schema in kinds.schemas])
        self.row_keys = _keys_of(kinds, [schema.row for schema in kinds.schemas])
        single = self.single = self.schemas[0] if len(self.schemas) == 1 and not self.bags else None
        self.key_fields: dict[int, str] = {}
        self.indexes: Sequence[DerivedSchema] = ()
        if single is not None:
            names = [name for name in single.fields if name in single.key_names]
            self.key_fields = {id(getattr(single.model, name)): name for name in names}
            derived = single.derived.values()
            self.indexes = tuple([each for each in derived if each.row_schema is not None and not each.deferred])
        primaries = tuple([schema.primary for schema in self.schemas if schema.primary is not None])
        self.primaries = None
        if primaries:  # of a model with a table for each period, they are in the table of the entries
            table = self.table if primaries[0].may_be_in(self.table) else primaries[0].table_name()
            self.primaries = QueryTarget(KindSet(primaries, table, bags=False))
        self.fetches_primaries = any(schema.follows for schema in self.schemas)
        entries = [schema for schema in self.schemas if isinstance(schema, EntrySchema)]
        self.drops_rows = self.fetches_primaries or kinds.hides or (self.filter is None and not self.bags)
        self.undecided = [schema.declaration for schema in entries if schema.building is None]
        self.asks_addresses = any(schema.follows and not schema.keys_only for schema in entries)
        self.elements = any(entry.each is not None for entry in entries)
        self._parts: dict[tuple[Schema | None, ...], QueryTarget] = {}
        self._entries: dict[Schema, KindSet] = {}

    def select(self, schemas: Sequence[Schema | None]) -> "QueryTarget":
        """
        Return the target of some of the kinds.

        Args:
            schemas: The kinds that are left; None among them stands for rows of any other kind.
        """
        wanted = tuple(schemas)
        if len(wanted) == len(self.schemas) + self.bags:
            return self
        part = self._parts.get(wanted)
        if part is None:
            named = tuple([schema for schema in wanted if schema is not None])
            part = self._parts[wanted] = QueryTarget(KindSet(named, self.table, bags=None in wanted))
        return part

    def entries_of(self, index: Schema) -> KindSet:
        """Return the entries of an index of these kinds, the same object each time."""
        found = self._entries.get(index)
        if found is None:
            found = self._entries[index] = KindSet((index,), self.table, bags=False)
        return found


def _keys_of(kinds: KindSet, templates: Sequence[Template | None]) -> Bounds:
    """Return the interval of all keys that rows of these kinds, which have these templates, can have."""
    if kinds.bags:
        return EVERYTHING
    return hull([EVERYTHING if each is None else each.bounds([]).bounds or EVERYTHING for each in templates])
