"""
Queries of an index of the elements of a list: an entity has several entries there, and comes once.

Of the entries that a query can find of one entity, the first in key order counts. Each row tells that by itself, so
that pages, cursors and parts of a divided query agree without remembering what was given.
"""

from collections.abc import Collection, Iterable, Sequence

import attrs

from ...derived.index.schema import ElementMember, EntrySchema
from ...errors import ModelError
from ...expressions import AnyOf, Comparison, Expression, PropertyComparison
from ...keys.ranges import KeyRegion
from ...models.schema import MISFITS, Schema
from ...protocol.edm import utf16_key
from ...protocol.filters import Op
from ...stores import Bounds, Row, RowQuery
from .client_filter import ClientFilter
from .normalize import leaves
from .partition import region_of
from .plan import Access, Point, Range
from .target import QueryTarget


class _Once(Expression):
    """Stands for the condition in explanations."""

    def __str__(self) -> str:
        return "the first entry of each entity"


@attrs.frozen(eq=False)
class EntityOnce:
    """
    Tells which entry of an entity counts.

    Args:
        target: The entries.
        requests: The requests for all that the query finds.
    """

    target: QueryTarget
    requests: tuple[Point | Range, ...]

    @property
    def properties(self) -> list[str]:
        """The properties that entries need for it."""
        entries = [schema for schema in self.target.schemas if isinstance(schema, EntrySchema)]
        return [schema.each.members[0].property for schema in entries if schema.each is not None]

    def keeps(self, entry: Row, holder: Row) -> bool:
        """
        Return whether the query finds no entry of the same entity before this one.

        Args:
            entry: The entry.
            holder: The row that has the list: the entry, or its primary.
        """
        schema = self.target.kinds.schema_of_row(entry)
        if not isinstance(schema, EntrySchema) or schema.each is None:
            return True
        template, own = schema.templates()[1], entry["RowKey"]
        try:
            elements = schema.each.members[0].read(holder) or ()
            before = [key for each in elements if utf16_key(key := template.with_element(own, each)) < utf16_key(own)]
        except MISFITS:
            return True  # what is wrong with the row is said when it is loaded
        return not any(self._finds({**entry, "RowKey": key}) for key in before)

    def _finds(self, entry: Row) -> bool:
        here = KeyRegion(Bounds.only(entry["PartitionKey"]), Bounds.only(entry["RowKey"]))
        for request in self.requests:
            if region_of(request).meet(here) is not None:
                filters = request.client_filters if isinstance(request, Range) else ()
                return all(each.test(entry) for each in filters)
        return False


def once(target: QueryTarget, terms: Sequence[Expression], requests: Iterable[Point | Range]) -> EntityOnce | None:
    """
    Return what lets each entity come once; None if the conditions give the element, so that it does anyway.

    Args:
        target: The entries.
        terms: The conditions in normal form, of which all must hold.
        requests: The requests for all that the query finds.

    Raises:
        ModelError: The entries do not tell it.
    """
    given = {term.field.name: None for term in terms if isinstance(term, Comparison) and term.op is Op.EQ}
    for schema in target.schemas:
        if not isinstance(schema, EntrySchema) or schema.each is None or _tells_one(schema, given):
            continue
        stored = [leaf for term in terms for leaf in leaves(term) if isinstance(leaf, PropertyComparison)]
        told = schema.follows or schema.each.name in schema.fields
        if not told or any(leaf.property != "PartitionKey" for leaf in stored):
            name = schema.each.name
            why = "with conditions on what entries store" if told else f"while they do not hold {name}"
            raise ModelError(
                f"a query of {schema.name} without an element is rejected {why}: an entity has an entry for each "
                f"element, so it could come up twice; add a condition {schema.primary.name}.{name}.contains(...), "
                f"put {name!r} into include=, or use only conditions on fields"
            )
        return EntityOnce(target, tuple(requests))
    return None


def _tells_one(schema: EntrySchema, given: Iterable[str]) -> bool:
    """Return whether equalities on these fields are of one entry of each entity."""
    template = schema.templates()[1]
    shape = tuple([(name, Op.EQ) for name in given if name in template.fields])
    if isinstance(schema.by_path.get(str(template.each)), ElementMember):
        return any(name == template.each for name, _ in shape)
    return any(shape[index][0] == template.each for index in template.constrain(shape).exact)


def with_once(request: Point | Range, rule: EntityOnce) -> Range:
    """Return a request for entries that gives the first of each entity."""
    test = ClientFilter(_Once(), lambda row: rule.keeps(row, row))
    if isinstance(request, Point):
        region = region_of(request)
        return Range(RowQuery(region.partition, region.row, None), Access.POINT, (test,))
    return attrs.evolve(request, client_filters=(*request.client_filters, test), drops_few=False)


def tells_element(schema: Schema, name: str, term: Expression, given: Collection[str]) -> bool:
    """
    Return whether entries tell what a condition says of a field. If they do not hold a list, they tell that it has an
    element, or one of several; whether it has two, or lacks one, the list alone tells.

    Args:
        schema: The schema of the entries.
        name: Name of the field.
        term: The condition.
        given: The lists of which another condition gives an element.
    """
    if not isinstance(schema.by_path.get(name), ElementMember):
        return True
    terms = term.terms if isinstance(term, AnyOf) else (term,)
    alone = all(isinstance(each, Comparison) and each.op is Op.EQ and each.field.name == name for each in terms)
    return alone and name not in given
