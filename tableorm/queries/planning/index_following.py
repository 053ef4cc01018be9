"""
Following copies to their primaries: for queries by an index of which the copies do not hold what is asked for.
"""

from collections.abc import Sequence

from ...derived.index.schema import IndexSchema
from ...errors import ModelError
from ...expressions import AllOf, Comparison, Expression, Membership, Presence, conjuncts
from ...models.kinds import KindSet
from ...models.manifest import IndexEntry, manifest_of
from ...protocol.filters import Test
from ...stores import Row
from .client_filter import to_test
from .normalize import has_field, leaves

__all__ = ["confirming", "is_current", "of_copies"]


def of_copies(kinds: KindSet, where: Sequence[Expression]) -> tuple[Expression, ...]:
    """
    The conditions that a query by an index can ask of copies; the others are asked of their primaries.

    Raises:
        ModelError: A condition is on a field that copies do not hold, and they are not followed.
    """
    copies = [schema for schema in kinds.schemas if isinstance(schema, IndexSchema)]
    if all(len(schema.fields) == len(schema.primary.fields) for schema in copies):
        return tuple(where)
    kept: list[Expression] = []
    for term in (each for expression in where for each in conjuncts(expression)):
        missing = [
            leaf
            for leaf in leaves(term)
            for schema in copies
            if isinstance(leaf, (Comparison, Membership, Presence))
            and has_field(schema, leaf.field)
            and leaf.field.name not in schema.fields
        ]
        if not missing:
            kept.append(term)
        elif not all(schema.follows for schema in copies):
            raise ModelError(
                f"{term} is refused: the copies of {copies[0].name} do not hold it; add the field to its include=, or "
                f"query {copies[0].primary.name} itself"
            )
    return tuple(kept)


def confirming(kinds: KindSet, where: Sequence[Expression]) -> Test:
    """
    Whether a primary that was read after its copy satisfies the conditions: it may have changed in between.

    Args:
        kinds: Of the primaries.
        where: The conditions of the query.
    """
    terms = [
        term
        for expression in where
        for term in conjuncts(expression)
        # Conditions on RowKey itself are those of the copy.
        if all(isinstance(leaf, (Comparison, Membership, Presence)) for leaf in leaves(term))
    ]
    return to_test(kinds, AllOf(tuple(terms))) if terms else lambda _row: True


def is_current(copy: Row, primary: Row) -> bool:
    """Whether a primary still notes a copy as its own."""
    return IndexEntry(copy["RowKey"]) in manifest_of(primary).values()
