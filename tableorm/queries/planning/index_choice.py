"""
The choice of an index: whether a query is answered better by an index of its model than by the primary key.

An index is chosen only where nobody can tell, except by the cost: every entity that can satisfy the conditions has an
entry, entries hold every field or lead to their primaries, and they come in the order of the primary keys. For
everything else there is `db.select(Model.index)`.
"""

import re
from collections.abc import Collection, Sequence

from ...errors import ScanRefused
from ...expressions import Comparison, Expression, Membership, PropertyComparison, conjuncts, is_list
from ...models.index_declaration import IndexDeclaration
from ...models.schema import DerivedSchema, Schema
from ...protocol.filters import Op
from .index_following import conditions_on_entries
from .normalize import leaves
from .parameters import shape_of
from .plan import RANKS, Access
from .planner import Planner, planner_of

_FIELD_NAME = re.compile(r"\{([^{}:]+)")  # in a template


def choose_index(planner: Planner, where: Sequence[Expression], hidden: Collection[IndexDeclaration] = ()) -> Planner:
    """
    Return the planner of the rows to read: the given one, or that of the entries of an index.

    Args:
        planner: The planner of what the query asks for, which has indexes.
        where: The conditions of the query.
        hidden: Indexes that must not be chosen.

    Raises:
        EncodeError: A value does not fit the field that it is compared with.
        ModelError: A condition nests too deep.
    """
    shape_of(where)  # refuses what nests too deep, before anything walks through it
    target = planner.target
    schema = target.schemas[0]
    terms = list(conjuncts(where))
    usable = [each for each in target.indexes if each.declaration not in hidden and _has_every_entity(each, terms)]
    if not usable:
        return planner
    best, rank = planner, _rank(planner, where)
    if rank <= RANKS[Access.POINTS]:
        return planner
    for index in usable:
        entries = index.row_schema
        assert entries is not None
        found = planner_of(target.entries_of(entries))
        found_rank = _rank(found, conditions_on_entries(found.target, where))
        if found_rank < rank and (found_rank == RANKS[Access.POINT] or _keeps_order(schema, entries, terms)):
            best, rank = found, found_rank
    return best


def _rank(planner: Planner, where: Sequence[Expression]) -> int:
    try:
        return RANKS[planner.plan(where).access]
    except ScanRefused:
        return RANKS[Access.TABLE_SCAN]


def _has_every_entity(index: DerivedSchema, terms: Sequence[Expression]) -> bool:
    """Return whether every entity that satisfies the conditions can be read by the rows that are derived from it."""
    if any(isinstance(leaf, PropertyComparison) for term in terms for leaf in leaves(term)):
        return False  # properties and keys as they are stored differ in entries
    given = {
        term.field.name
        for term in terms
        if isinstance(term, (Comparison, Membership)) and not (isinstance(term, Membership) and term.negated)
        if not (isinstance(term, Comparison) and term.op is Op.NE and is_list(term.field))  # it may be empty
    }
    return index.holds_all(given)  # what satisfies a comparison is not None


def _keeps_order(schema: Schema, entries: Schema, terms: Sequence[Expression]) -> bool:
    """Return whether the entries that satisfy the conditions come in the order of their primaries."""
    own, other = (each.templates()[1].text for each in (schema, entries))
    tail = own.removeprefix(own.partition("{")[0])
    # Where the tail is another, all fields have to be given, and with them the one entry.
    fixed = {term.field.name for term in terms if isinstance(term, Comparison) and term.op is Op.EQ}
    return all(name in fixed or name == "kind" for name in _FIELD_NAME.findall(other.removesuffix(tail)))
