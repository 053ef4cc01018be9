"""
Fetching primaries: for queries by a non-covering index, whose entries do not hold what is asked for.
"""

from collections.abc import Sequence

from ...derived.index.index import IndexSchema
from ...errors import ModelError
from ...expressions import AllOf, Comparison, Expression, Membership, Presence, conjuncts
from ...models.manifest import manifest_of
from ...protocol.filters import Test
from ...stores import Row
from .client_filter import make_test
from .normalize import has_field, leaves
from .target import QueryTarget

__all__ = ["conditions_on_entries", "is_current", "is_listed", "make_primary_test"]


def conditions_on_entries(target: QueryTarget, where: Sequence[Expression]) -> tuple[Expression, ...]:
    """
    Return the conditions that index entries can be asked; the others are checked on their primaries.

    Args:
        target: The index entries.
        where: The conditions of the query.

    Raises:
        ModelError: A condition is on a field that the entries do not hold, and their primaries are not fetched.
    """
    entries = [schema for schema in target.schemas if isinstance(schema, IndexSchema)]
    if all(len(schema.fields) == len(schema.primary.fields) for schema in entries):
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
            raise ModelError(
                f"{term} is refused: the copies of {entries[0].name} do not hold it; add the field to its include=, or "
                f"query {entries[0].primary.name} itself"
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
    return copy["RowKey"] in manifest_of(primary).values()


def is_listed(name: str, list_key: str, primary: Row) -> bool:
    """Return whether the manifest of a primary says that it is in a list of an index."""
    match manifest_of(primary).get(name):
        case {"list": [key, _]}:
            return bool(key == list_key)
        case _:
            return False
