"""
Fetching primaries: for queries by a non-covering index, whose entries do not hold what is asked for.
"""

from collections.abc import Sequence

from ...errors import ModelError
from ...expressions import AllOf, Comparison, Expression, Membership, Presence, conjuncts
from ...models.manifest import IndexEntry, manifest_of
from ...protocol.filters import Test
from ...stores import Row
from .client_filter import make_test
from .normalize import has_field, leaves
from .target import QueryTarget

__all__ = ["conditions_on_entries", "is_current", "make_primary_test"]


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


def make_primary_test(target: QueryTarget, where: Sequence[Expression]) -> Test:
    """
    Return a test of a primary that was read after its index entry: it may have changed in between.

    Args:
        target: The kinds of the primaries.
        where: The conditions of the query.
    """
    terms = [
        term
        for expression in where
        for term in conjuncts(expression)
        # Conditions on RowKey itself are about the entry.
        if all(isinstance(leaf, (Comparison, Membership, Presence)) for leaf in leaves(term))
    ]
    return make_test(target, AllOf(tuple(terms))) if terms else lambda _row: True


def is_current(copy: Row, primary: Row) -> bool:
    """Return whether the manifest of a primary still lists an index entry."""
    return IndexEntry(copy["RowKey"]) in manifest_of(primary).values()
