"""
Fetching primaries: for queries by an index whose entries do not hold what is asked for, or may not be right any more.
"""

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

import attrs
from msgspec import structs

from ...connection.boundary import Boundary
from ...derived.index.eventual import EventualIndexSchema
from ...derived.index.schema import EntrySchema
from ...errors import ModelError
from ...expressions import AllOf, Expression, Field, FieldTerm, conjuncts
from ...models.entity import Entity
from ...models.kinds import KindSet
from ...models.schema import Schema
from ...models.state import set_state, state_of
from ...protocol.filters import Test
from ...stores import Row, RowAddress
from ..projection import Projection
from .client_filter import make_test
from .elements import tells_element
from .normalize import has_field, leaves, properties_of
from .target import QueryTarget

FetchPoint = Callable[[RowAddress, tuple[str, ...] | None], Awaitable[list[Row]]]
"""Fetches the row with a table, a PartitionKey, a RowKey and some properties, if there is one."""


@attrs.frozen(eq=False)
class PrimaryFetch:
    """
    How the primaries of index entries are fetched.

    Args:
        entries: The kinds of the entries.
        target: The kinds of the primaries.
        test: What a primary must satisfy.
        select: The properties that are asked for; None for all.
        load: Makes rows into entities, as that of the query does.
    """

    entries: KindSet
    target: QueryTarget
    test: Test
    select: tuple[str, ...] | None
    load: Callable[[list[Row]], list[Any]]

    def keys_of(self, entry: Row, boundary: Boundary) -> tuple[str, str] | None:
        """
        Return the keys of the primary that is fetched for an index entry, if a range of keys around it may be read.

        Args:
            entry: The entry.
            boundary: What may be read.

        Raises:
            DecodeError: The entry names no primary.
        """
        resolved = self.entries.resolve(entry)
        if resolved is None:
            return None
        schema, version = resolved
        assert isinstance(schema, EntrySchema)
        if not schema.follows and version >= schema.version:
            return None
        keys = schema.owner_keys(entry)
        return keys if boundary.holds_partition(schema.primary, keys[0]) else None

    async def read(self, entry: Row, fetch: FetchPoint, once: Callable[[Row, Row], bool] | None = None) -> Any:
        """
        Return the entity of an index entry that the query has found; None if it is not a result.

        Args:
            entry: The index entry.
            fetch: Fetches the primary.
            once: As `QueryPlan.once`.
        """
        schema = self.entries.schema_of_row(entry)
        assert isinstance(schema, EntrySchema)
        address = RowAddress(self.target.table, *schema.owner_keys(entry))
        for select, whole in ((self.select, False), (None, True)):
            primaries = await fetch(address, select)
            if once is not None:
                primaries = [row for row in primaries if once(entry, row)]
            entity = self._load_entry(schema, entry, primaries, whole=whole)
            if type(entity) is not dict:
                return entity
        return None

    def _load_entry(self, schema: EntrySchema, entry: Row, primaries: list[Row], *, whole: bool) -> Any:
        """
        Return the entity of an index entry.

        Args:
            schema: The schema of the entry.
            entry: The index entry.
            primaries: Its primary, if there is one. It may have changed since the entry was read.
            whole: Whether all of it was read.

        Returns:
            The entity; None if it is not a result, a row if it has to be read in full.
        """
        rows = [row for row in primaries if self.test(row)]
        entity = next(iter(self.target.kinds.load_all(rows) if whole else self.load(rows)), None)
        if not isinstance(entity, Entity):
            return entity
        if not schema.leads_to(entry, rows[0], entity.__dict__):
            return None
        set_state(entity, structs.replace(state_of(entity), found_at=(entry["PartitionKey"], entry["RowKey"])))
        return entity


def plan_fetch(target: QueryTarget, where: Sequence[Expression], only: Sequence[Field[Any]] | None) -> PrimaryFetch:
    """
    Return how the primaries of index entries are fetched.

    Args:
        target: The entries.
        where: The conditions of the query.
        only: The fields that are wanted; None for all.
    """
    assert target.primaries is not None
    entries = [schema for schema in target.schemas if isinstance(schema, EntrySchema)]
    # What the keys of an entry say holds for its primary, once this is known to yield these keys.
    held = [frozenset[str](() if each.exact else each.key_holders) for each in entries]
    told = held[0].intersection(*held)
    primaries, condition = target.primaries, _primary_condition(where, told)
    test = make_test(primaries, condition)
    deciding = [schema.deciding_fields for schema in entries]
    if only is None or None in deciding:
        return PrimaryFetch(target.kinds, primaries, test, None, primaries.kinds.load_all)
    decide = [getattr(schema.model, name) for schema in entries for name in sorted(schema.deciding_fields or ())]
    projection, needed = Projection.of(primaries.kinds, (*only, *decide)), properties_of(primaries, condition)
    select = None if projection.select is None else tuple(dict.fromkeys((*projection.select, *needed)))
    return PrimaryFetch(target.kinds, primaries, test, select, projection.load_all)


@lru_cache(maxsize=256)
def unverified_kinds(kinds: KindSet) -> KindSet:
    """
    Return the kinds by which entries of eventual indexes are read without their primaries, the same each time.

    Raises:
        ModelError: They are no entries of eventual indexes, or hold keys alone.
    """
    schemas: list[Schema] = []
    for schema in kinds.schemas:
        if not isinstance(schema, EventualIndexSchema):
            raise ModelError(
                f"verify() is rejected for {schema.name}: only entries of an eventual index can be older than their "
                "entities; leave it out"
            )
        if schema.unverified is None:
            raise ModelError(
                f"verify(False) is rejected for {schema.name}: its entries hold only keys, so the entities must be "
                "read; leave it out, or declare another include="
            )
        schemas.append(schema.unverified)
    return KindSet(tuple(schemas), kinds.table, bags=False)


def conditions_on_entries(target: QueryTarget, where: Sequence[Expression]) -> tuple[Expression, ...]:
    """
    Return the conditions that index entries can be asked; the others are checked on their primaries.

    Args:
        target: The index entries.
        where: The conditions of the query.

    Raises:
        ModelError: A condition is on a field that the entries do not hold, and their primaries are not fetched; or it
            mixes a property as it is stored, which differs in the two rows, with a field that only the primary tells.
    """
    entries = {schema: schema.primary for schema in target.schemas if isinstance(schema, EntrySchema)}
    whole = all(len(schema.fields) == len(primary.fields) for schema, primary in entries.items())
    if whole and not any(schema.follows for schema in entries):
        return tuple(where)
    kept: list[Expression] = []
    given = set[str]()  # the lists of which a condition that is kept gives an element
    for term in conjuncts(where):
        found = list(leaves(term))
        fields = [leaf.field for leaf in found if isinstance(leaf, FieldTerm)]
        mixed = len(fields) < len(found)
        missing = [
            each
            for each in fields
            for schema in entries
            if has_field(schema, each)
            and (
                each.name not in schema.by_path
                or (mixed and not _is_told(schema, each.name))
                or not tells_element(schema, each.name, term, given)
            )
        ]
        if not missing:
            kept.append(term)
            given.update(each.name for each in fields)
        elif not all(schema.follows for schema in entries):
            name, own = next((schema.name, primary.name) for schema, primary in entries.items())
            raise ModelError(
                f"{term} is rejected: the entries of {name} do not hold it; add the field to its include=, or query "
                f"{own} itself"
            )
        elif mixed:
            name = next(schema.name for schema in entries)
            raise ModelError(
                f"{term} is rejected: it combines what the entries of {name} store with {missing[0]}, which only "
                "their entities hold; use conditions on fields, or two queries"
            )
    return tuple(kept)


def _is_told(schema: EntrySchema, name: str) -> bool:
    """Return whether an entry tells a field of its primary. What else an eventual one holds may be older."""
    return schema.exact or not schema.follows or name in schema.key_holders


def conditions_on_primaries(target: QueryTarget, where: Sequence[Expression]) -> list[Expression]:
    """Return the conditions that index entries cannot be asked. Takes and raises what `conditions_on_entries` does."""
    asked = set(map(id, conjuncts(conditions_on_entries(target, where))))
    return [term for term in conjuncts(where) if id(term) not in asked]


def _primary_condition(where: Sequence[Expression], told: AbstractSet[str]) -> Expression:
    """
    Return the condition on a primary that is read after its index entry: it may have changed in between.

    Args:
        where: The conditions of the query. Those on RowKey itself are about the entry, and left out.
        told: The fields that need no look at the primary.
    """
    terms: list[Expression] = []
    for term in conjuncts(where):
        found = list(leaves(term))
        names = {leaf.field.name for leaf in found if isinstance(leaf, FieldTerm)}
        if all(isinstance(leaf, FieldTerm) for leaf in found) and not names <= told:
            terms.append(term)
    return AllOf(tuple(terms))
