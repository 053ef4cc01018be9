"""
Fetching primaries: for queries by a non-covering index, whose entries do not hold what is asked for.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from msgspec import structs

from ...errors import ModelError
from ...expressions import AllOf, Comparison, Expression, Membership, Presence, conjuncts
from ...models.entity import Entity
from ...models.manifest import IndexEntry, manifest_of
from ...models.state import set_state, state_of
from ...protocol.filters import Test
from ...stores import Row
from .normalize import has_field, leaves
from .target import QueryTarget

__all__ = ["PrimaryFetch", "conditions_on_entries", "is_current", "primary_condition"]


@attrs.frozen(eq=False)
class PrimaryFetch:
    """
    How the primaries of index entries are fetched.

    Args:
        target: The kinds of the primaries.
        test: What a primary must satisfy.
        select: The properties that are asked for; None for all.
        load: Makes rows into entities, as that of the query does.
    """

    target: QueryTarget
    test: Test
    select: tuple[str, ...] | None
    load: Callable[[list[Row]], list[Any]]

    def load_entry(self, entry: Row, primaries: list[Row], *, whole: bool) -> Any:
        """
        Return the entity of an index entry.

        Args:
            entry: The index entry.
            primaries: Its primary, if there is one. It may have changed since the entry was read.
            whole: Whether all of it was read.

        Returns:
            The entity; None if it is not a result, a row if it has to be read in full.
        """
        rows = [row for row in primaries if is_current(entry, row) and self.test(row)]
        entity = next(iter(self.target.kinds.load_all(rows) if whole else self.load(rows)), None)
        if isinstance(entity, Entity):
            set_state(entity, structs.replace(state_of(entity), found_at=entry["RowKey"]))
        return entity


def conditions_on_entries(target: QueryTarget, where: Sequence[Expression]) -> tuple[Expression, ...]:
    """
    Return the conditions that index entries can be asked; the others are checked on their primaries.

    Args:
        target: The index entries.
        where: The conditions of the query.

    Raises:
        ModelError: A condition is on a field that the entries do not hold, and their primaries are not fetched.
    """
    entries = {schema: schema.primary for schema in target.schemas if schema.primary is not None}
    if all(len(schema.fields) == len(primary.fields) for schema, primary in entries.items()):
        return tuple(where)
    kept: list[Expression] = []
    for term in (each for expression in where for each in conjuncts(expression)):
        missing = [
            leaf
            for leaf in leaves(term)
            for schema in entries
            if isinstance(leaf, (Comparison, Membership, Presence))
            and has_field(schema, leaf.field)
            and leaf.field.name not in schema.fields
        ]
        if not missing:
            kept.append(term)
        elif not all(schema.follows for schema in entries):
            name, own = next((schema.name, primary.name) for schema, primary in entries.items())
            raise ModelError(
                f"{term} is refused: the copies of {name} do not hold it; add the field to its include=, or query "
                f"{own} itself"
            )
    return tuple(kept)


def primary_condition(where: Sequence[Expression]) -> Expression:
    """
    Return the condition on a primary that is read after its index entry: it may have changed in between.

    Args:
        where: The conditions of the query. Those on RowKey itself are about the entry, and left out.
    """
    terms = [
        term
        for expression in where
        for term in conjuncts(expression)
        if all(isinstance(leaf, (Comparison, Membership, Presence)) for leaf in leaves(term))
    ]
    return AllOf(tuple(terms))


def is_current(copy: Row, primary: Row) -> bool:
    """Return whether the manifest of a primary still lists an index entry."""
    return IndexEntry(copy["RowKey"]) in manifest_of(primary).values()
