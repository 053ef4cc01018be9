"""
The normal form of conditions, and where the fields are stored that they compare.

Pure functions of a term and the target of a query. In the normal form `~` stands before single comparisons only. There
it becomes the opposite comparison, which means the same to every reader of a filter, while it is not documented what a
service makes of `not` where the property is absent.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import attrs

from ...connection.connection import Connection
from ...expressions import (
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Field,
    FieldTerm,
    Membership,
    NoneOf,
    Presence,
    PropertyComparison,
    encrypted_error,
    misfit_error,
)
from ...models.entity import schema_of
from ...models.property_types import Member, PropertyType
from ...models.schema import Schema, concrete
from ...protocol.edm import Edm
from ...protocol.filters import Op
from .parameters import parameter_of
from .target import QueryTarget

TRUE = AllOf(())
FALSE = AnyOf(())

# Comparisons that are false where the other is true, and unknown where it is.
OPPOSITE = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.GT: Op.LE, Op.LE: Op.GT, Op.LT: Op.GE, Op.GE: Op.LT}


# The form


def normalize(target: QueryTarget, term: Expression, *, negated: bool = False) -> Expression:
    """
    Bring a parameterised condition into normal form.

    Returns:
        The condition with `~` only before single comparisons that have no opposite; `TRUE` or `FALSE` if that is known
        of every row.
    """
    match term:
        case NoneOf():
            return normalize(target, term.term, negated=not negated)
        case AllOf() | AnyOf():
            terms = [normalize(target, each, negated=negated) for each in term.terms]
            return _join_terms(terms, every=isinstance(term, AllOf) is not negated)
        case Membership():
            if not term.values:
                return TRUE if term.negated is not negated else FALSE
            return attrs.evolve(term, negated=not term.negated) if negated else term
        case Presence():
            absent, owners = term.negated is not negated, owners_of(target, term)
            if all(found == [kind] and term.field.name in found[0].key_holders for kind, found in owners.items()):
                return FALSE if absent else TRUE
            return attrs.evolve(term, negated=absent)
        case Comparison() | PropertyComparison() if negated:
            if term.op is None or not _has_opposite(target, term):
                return NoneOf(term)
            return attrs.evolve(term, op=OPPOSITE[term.op])
        case _:
            return term


def _join_terms(terms: Sequence[Expression], *, every: bool) -> Expression:
    kind: type[AllOf | AnyOf] = AllOf if every else AnyOf
    flat: list[Expression] = []
    for term in terms:
        flat += term.terms if isinstance(term, kind) else (term,)
    # A FALSE among all, or a TRUE among any, decides; neither is of the kind that is being made.
    if any(isinstance(term, (AllOf, AnyOf)) and not term.terms for term in flat):
        return FALSE if every else TRUE
    if not flat:
        return TRUE if every else FALSE
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _has_opposite(target: QueryTarget, term: Comparison | PropertyComparison) -> bool:
    """
    Return whether the negation of a comparison is another comparison, of whatever type the stored value is.

    A number can be compared with NaN, which is neither above nor below; an Int64 constant has no order with an Int32
    property, nor has a Timestamp with anything but a moment.
    """
    if term.op in (Op.EQ, Op.NE):
        return True
    if isinstance(term, PropertyComparison):
        kind = term.constant.type
        return kind is Edm.DATETIME if term.property == "Timestamp" else kind not in _NUMBERS
    name = term.field.name
    return all(
        name in owner.key_holders or _has_total_order(term, owner.by_path[name].type, own=owner is kind)
        for kind, owners in owners_of(target, term).items()
        for owner in owners
    )


_NUMBERS = frozenset({Edm.INT32, Edm.INT64, Edm.DOUBLE})


def _has_total_order(term: Comparison, kind: PropertyType, *, own: bool) -> bool:
    """
    Return whether a property is above, below or equal to any constant of its field.

    Args:
        term: A comparison of the field.
        kind: The type of the property.
        own: Whether rows are of the model that declares it; those of others can have any type in the property.
    """
    if kind.edm in _NUMBERS:
        return own and kind.edm is not Edm.DOUBLE and not parameter_of(term).wide
    return kind.annotation is not Decimal


def refuse_other_models(target: QueryTarget, term: Expression) -> None:
    """
    Refuse a condition on a model of another table, or one that the query does not ask for: it says nothing of the rows.

    Raises:
        EncodeError: Names the condition.
    """
    entities = target.primaries or target  # the entries of an index may be in a table of their own
    for leaf in leaves(term):
        if isinstance(leaf, FieldTerm):
            schema = schema_of(leaf.field.model)
            if not schema.may_be_in(entities.table):
                problem = f"its model is in table {schema.table}, but the query reads {entities.table}"
                raise misfit_error(leaf, getattr(leaf, "value", None), problem)
            schemas = entities.schemas
            if not entities.bags and not any(has_field(schema, leaf.field) for schema in schemas):
                problem = f"the query does not select {leaf.field.model.__name__}"
                raise misfit_error(leaf, getattr(leaf, "value", None), problem)
    refuse_encrypted(entities, term)


def refuse_encrypted(target: QueryTarget, term: Expression, db: Connection | None = None) -> None:
    """
    Refuse a condition on an encrypted field.

    Args:
        target: What the query asks for.
        term: The condition.
        db: The connection that it is sent by, which may encrypt more; None for what models declare.

    Raises:
        EncryptionError: Names the field, and not what it is compared with.
    """
    keyed = [(schema, stage) for schema in target.schemas if (stage := (schema.primary or schema).keyed) is not None]
    for leaf in leaves(term) if keyed else ():
        field = leaf.field if isinstance(leaf, FieldTerm) else None
        if field is not None and any(
            has_field(s, field) and k.hides(s.by_path[field.name].property, db) for s, k in keyed
        ):
            raise encrypted_error(field)


def leaves(term: Expression) -> Iterator[Expression]:
    """Yield the single conditions that a term is made of."""
    if isinstance(term, (AllOf, AnyOf)):
        for each in term.terms:
            yield from leaves(each)
    elif isinstance(term, NoneOf):
        yield from leaves(term.term)
    else:
        yield term


def properties_of(target: QueryTarget, term: Expression) -> Iterator[str]:
    """Yield the stored properties that are needed, besides the keys, to evaluate a term on a row."""
    for leaf in leaves(term):
        if isinstance(leaf, PropertyComparison):
            yield leaf.property
        elif isinstance(leaf, FieldTerm):
            for owners in owners_of(target, leaf).values():
                yield from (o.by_path[leaf.field.name].property for o in owners if leaf.field.name not in o.key_holders)


# Where a field is


def has_field(schema: Schema, field: Field[Any]) -> bool:
    """
    Return whether a kind has the very field of a condition.

    It has it from the class that the condition names, or from a base of both.
    """
    bases = (getattr(base, "__schema__", None) for base in field.model.__mro__ if issubclass(schema.model, base))
    return any(isinstance(base, Schema) and field.name in base.by_path for base in bases)


def owners_of(target: QueryTarget, term: FieldTerm) -> dict[Schema | None, list[Schema]]:
    """
    Return the models whose declarations say where the field of a condition is stored, for each kind of row.

    A kind that has the field says so itself: classes of one base may hold it in a key, or under other names. For rows
    of other kinds it is the model that the condition names. The key None stands for rows of any other kind.
    """
    named = schema_of(term.field.model)
    owners: dict[Schema | None, list[Schema]] = {
        schema: [schema] if has_field(schema, term.field) else concrete(named) for schema in target.schemas
    }
    if target.bags or not owners:
        owners[None] = concrete(named)
    return owners


def one_property(target: QueryTarget, term: FieldTerm) -> Member | None:
    """
    Return the property in which all kinds store a field; None if a key holds it, it cannot be asked about, or the kinds
    differ.
    """
    field = term.field.name
    first: Member | None = None
    for owners in owners_of(target, term).values():
        for schema in owners:
            member = schema.by_path[field]
            if field in schema.key_holders or member.property in schema.unasked:
                return None
            if first is None:
                first = member
            elif (member.property, member.type) != (first.property, first.type):
                return None
    return first
