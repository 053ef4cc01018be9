"""
Conditions in a form that can be planned, and where the fields are that they speak of.

Pure functions of a term and the kinds that a query asks for. Terms are first brought into a form in which `~` stands
before single comparisons only: there it becomes the opposite comparison, which means the same to every reader of a
filter, while it is not documented what a service makes of `not` where the property is absent.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import attrs

from ...errors import EncodeError
from ...expressions import AllOf, AnyOf, Comparison, Expression, Field, Membership, NoneOf, Presence, PropertyComparison
from ...keys.template import Template
from ...models.entity import schema_of
from ...models.kinds import KindSet
from ...models.schema import FieldInfo, Schema, concrete
from ...protocol.edm import Edm
from ...protocol.filters import Op
from .parameters import slot_of

__all__ = [
    "FALSE",
    "OPPOSITE",
    "TRUE",
    "FieldTerm",
    "has_field",
    "key_of_field",
    "leaves",
    "misfit",
    "normal",
    "one_property",
    "owners_of",
    "properties_of",
    "refuse_other_tables",
]

TRUE = AllOf(())
FALSE = AnyOf(())

# Comparisons that are false where the other is true, and unknown where it is.
OPPOSITE = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.GT: Op.LE, Op.LE: Op.GT, Op.LT: Op.GE, Op.GE: Op.LT}


# The form


def normal(kinds: KindSet, term: Expression, *, negated: bool = False) -> Expression:
    """
    The same pattern with `~` before single comparisons only, where there is no opposite; `TRUE` or `FALSE` if that is
    known of every row.
    """
    match term:
        case NoneOf():
            return normal(kinds, term.term, negated=not negated)
        case AllOf() | AnyOf():
            return _combined(
                [normal(kinds, each, negated=negated) for each in term.terms], isinstance(term, AllOf) is not negated
            )
        case Membership():
            if not term.values:
                return TRUE if term.negated is not negated else FALSE
            return attrs.evolve(term, negated=not term.negated) if negated else term
        case Presence():
            absent, owners = term.negated is not negated, owners_of(kinds, term)
            if all(found == [kind] and term.field.name in found[0].key_holders for kind, found in owners.items()):
                return FALSE if absent else TRUE
            return attrs.evolve(term, negated=absent)
        case Comparison() if negated:
            if term.op is None or not _has_opposite(term):
                return NoneOf(term)
            return attrs.evolve(term, op=OPPOSITE[term.op])
        case PropertyComparison() if negated:
            if term.constant.type in (Edm.DOUBLE, Edm.INT64) and term.op not in (Op.EQ, Op.NE):
                return NoneOf(term)
            return attrs.evolve(term, op=OPPOSITE[term.op])
        case _:
            return term


def _combined(terms: Sequence[Expression], every: bool) -> Expression:  # noqa: FBT001 - named in the one call
    kind: type[AllOf | AnyOf] = AllOf if every else AnyOf
    flat: list[Expression] = []
    for term in terms:
        flat += term.terms if isinstance(term, kind) else (term,)
    # Neither is of the kind that is being made: a FALSE among all, a TRUE among any.
    if any(isinstance(term, (AllOf, AnyOf)) and not term.terms for term in flat):
        return FALSE if every else TRUE
    if not flat:
        return TRUE if every else FALSE
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _has_opposite(term: Comparison) -> bool:
    """NaN is neither above nor below; an Int64 constant has no order with an Int32 property."""
    if term.op in (Op.EQ, Op.NE):
        return True
    if slot_of(term).wide:
        return False
    return schema_of(term.field.model).fields[term.field.name].type.annotation not in (float, Decimal)


def refuse_other_tables(kinds: KindSet, term: Expression) -> None:
    """
    Refuse a condition on a model of another table: it says nothing of the rows of this one.

    Raises:
        EncodeError: Names the condition.
    """
    for leaf in leaves(term):
        if isinstance(leaf, (Comparison, Membership, Presence)):
            table = schema_of(leaf.field.model).table
            if table is not None and table.lower() != kinds.table.lower():
                problem = f"the model is of table {table}, the query reads {kinds.table}"
                raise misfit(leaf, getattr(leaf, "value", None), problem)


def leaves(term: Expression) -> Iterator[Expression]:
    """The single conditions that a term is made of."""
    if isinstance(term, (AllOf, AnyOf)):
        for each in term.terms:
            yield from leaves(each)
    elif isinstance(term, NoneOf):
        yield from leaves(term.term)
    else:
        yield term


def properties_of(kinds: KindSet, term: Expression) -> Iterator[str]:
    """The stored properties that an evaluation of the term needs, besides the keys."""
    for leaf in leaves(term):
        if isinstance(leaf, PropertyComparison):
            yield leaf.property
        elif isinstance(leaf, (Comparison, Membership, Presence)):
            for owners in owners_of(kinds, leaf).values():
                yield from (o.fields[leaf.field.name].property for o in owners if not key_of_field(o, leaf.field.name))


# Where a field is

FieldTerm = Comparison | Membership | Presence
"""A condition on a field of a model."""


def has_field(schema: Schema, field: Field[Any]) -> bool:
    """
    Whether a kind has the very field of a condition: from the class that the condition names, or from a base of both.
    """
    if issubclass(schema.model, field.model):
        return True
    bases = (getattr(base, "__schema__", None) for base in field.model.__mro__ if issubclass(schema.model, base))
    return any(isinstance(base, Schema) and field.name in base.fields for base in bases)


def owners_of(kinds: KindSet, term: FieldTerm) -> dict[Schema | None, list[Schema]]:
    """
    For each kind of row (None: any other) the models whose declaration says where the field of a condition is.

    A kind that has the field says so itself: classes of one base may hold it in a key, or under other names. For rows
    of other kinds it is the model that the condition names.
    """
    model = term.field.model
    owners: dict[Schema | None, list[Schema]] = {}
    named: list[Schema] | None = None
    for schema in kinds.schemas:
        if has_field(schema, term.field):
            owners[schema] = [schema]
        else:
            named = named or concrete(schema_of(model))
            owners[schema] = named
    if kinds.bags or not owners:
        owners[None] = named or concrete(schema_of(model))
    return owners


def key_of_field(schema: Schema, field: str) -> tuple[Template, str] | None:
    """The template of a model that holds the field in full, and the member of rows that it makes."""
    return schema.key_holders.get(field)


def one_property(kinds: KindSet, term: FieldTerm) -> FieldInfo | None:
    """The field as all kinds store it, or None if a key holds it or they differ."""
    field = term.field.name
    if id(term.field) in kinds.own_fields:
        schema = kinds.schemas[0]
        return None if field in schema.key_holders else schema.fields[field]
    first: FieldInfo | None = None
    for owners in owners_of(kinds, term).values():
        for schema in owners:
            if field in schema.key_holders:
                return None
            info = schema.fields[field]
            if first is None:
                first = info
            elif info is not first and (info.property, info.type) != (first.property, first.type):
                return None
    return first


def misfit(term: FieldTerm, value: object, problem: str) -> EncodeError:
    """The error of a condition whose value its field cannot be compared with."""
    return EncodeError(
        f"in the condition {term} is refused: {problem}", term.field.model.__name__, term.field.name, value
    )
