"""
Access paths: whether a query is answered better by an index of its model than by the primary key.

An index is taken on its own only where nobody can tell, except by the cost: its copies are of all entities that can
satisfy the conditions, hold every field, and come in the order of the primary keys. For everything else there is
`db.select(Model.index)`.
"""

import re
from collections.abc import Sequence

from ...errors import ScanRefused
from ...expressions import Comparison, Expression, Membership, PropertyComparison, conjuncts
from ...models.kinds import KindSet
from ...models.schema import DerivedSchema, Schema
from ...protocol.filters import Op
from .index_following import of_copies
from .plan import Access
from .planner import plan_query

__all__ = ["path_of"]

_NAME = re.compile(r"\{(\w+)")  # of a field in a template
_RANKS = {access: rank for rank, access in enumerate(Access)}
_BEST = (Access.NOTHING, Access.POINT, Access.POINTS)


def path_of(kinds: KindSet, where: Sequence[Expression]) -> KindSet:
    """
    The kinds to read: those that a query asks for, or the copies in one of their indexes.

    Raises:
        EncodeError: A value does not fit the field that it is compared with.
    """
    schema = kinds.schemas[0] if len(kinds.schemas) == 1 and not kinds.bags else None
    if schema is None or not schema.derived or not where:
        return kinds
    terms = [term for expression in where for term in conjuncts(expression)]
    usable = [
        rows for each in schema.derived.values() if (rows := each.row_schema) is not None and _holds_all(each, terms)
    ]
    if not usable:
        return kinds
    best, rank = kinds, _rank(kinds, where)
    if rank <= _RANKS[Access.POINTS]:
        return kinds
    for index in usable:
        copies = kinds.copies_in(index)
        found = _rank(copies, of_copies(copies, where))
        if found < rank and (found == _RANKS[Access.POINT] or _is_in_order(schema, index, terms)):
            best, rank = copies, found
    return best


def _rank(kinds: KindSet, where: Sequence[Expression]) -> int:
    try:
        plan = plan_query(kinds, where)
    except ScanRefused:
        return _RANKS[Access.TABLE_SCAN]
    return _RANKS[plan.access]


def _holds_all(derived: DerivedSchema, terms: Sequence[Expression]) -> bool:
    """Return whether every entity that satisfies the conditions can be read by the rows that are derived from it."""
    if any(_is_of_row(term) for term in terms):
        return False
    given = {
        term.field.name
        for term in terms
        if isinstance(term, (Comparison, Membership)) and not (isinstance(term, Membership) and term.negated)
    }
    return derived.holds_all(given)  # what satisfies a comparison is not None


def _is_of_row(term: Expression) -> bool:
    return isinstance(term, PropertyComparison) or any(map(_is_of_row, getattr(term, "terms", ())))


def _is_in_order(schema: Schema, index: Schema, terms: Sequence[Expression]) -> bool:
    """Whether the copies that satisfy the conditions come in the order of their primaries."""
    assert schema.row is not None
    assert index.row is not None
    own, copies = schema.row.text, index.row.text
    tail = own[own.index("{") :] if "{" in own else own
    if not copies.endswith(tail) or "{{" in copies:
        return False
    fixed = {term.field.name for term in terms if isinstance(term, Comparison) and term.op is Op.EQ}
    return all(name in fixed or name == "kind" for name in _NAME.findall(copies.removesuffix(tail)))
