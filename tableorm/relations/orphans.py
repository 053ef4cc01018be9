"""
Orphans: entities whose parent is gone, as `on_delete="keep"` says, or since they came when a cascade to other
partitions was over. They are no damage; an audit of the parents counts them.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import attrs

from ..audit.audit import OtherRanges
from ..audit.report import AuditCounts
from ..connection.connection import Connection
from ..errors import AccessDenied, DecodeError, TableNotFound, TemplateError, WrongKind
from ..jobs.ranges import JobRange
from ..jobs.scan import Steps
from ..keys.ranges import EVERYTHING, KeyInterval
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.schema import concrete
from ..protocol.limits import MAX_PAGE
from ..queries.select import Select
from ..writes.bulk.pacing import Pace
from .declarations import Many, cascades_elsewhere
from .relation import BoundRelation, bind


def find_orphans(db: Connection, models: Iterable[type[Entity]]) -> list[OtherRanges]:
    """
    Return what an audit reads to count the children whose parent is gone: a page of them at a time, and the keys of
    their parents by ranges.

    Args:
        db: The connection of a whole database.
        models: The classes of parents.
    """
    found: dict[str, OtherRanges] = {}
    for schema in (each for model in models for each in concrete(schema_of(model))):
        for declared in schema.relations:
            cascades = declared.cascades and cascades_elsewhere(schema)
            if isinstance(declared, Many) and (cascades or declared.on_delete == "keep"):
                bound = bind(declared.of(schema.model))
                if {*declared.fields.values()} >= {*schema.key_fields}:  # otherwise nobody knows the parent of a child
                    found[str(bound.relation)] = _ranges_of(db, bound)
    return list(found.values())


def _ranges_of(db: Connection, bound: BoundRelation) -> OtherRanges:
    schemas = concrete(bound.target.__schema__)
    # Those that may be in several tables, or under older keys, come in an order of their own, from all of them.
    whole = not schemas or any(each.periods is not None or each.home is not None for each in schemas)
    return OtherRanges(
        name=str(bound.relation),
        table=None if whole else schemas[0].table_name(),
        schemas=schemas,
        work=partial(_count, db, bound, ordered=not whole and db.store.capabilities.ordered),
    )


async def _count(
    db: Connection, bound: BoundRelation, part: JobRange, pace: Pace | None, *, ordered: bool
) -> Steps[AuditCounts]:
    """Count the orphans among the children of a range. Yield how far it is, and what was counted since."""
    declared = bound.relation.declared
    theirs = [*declared.fields, *declared.texts]
    children: Select[Any] = db.reader.select(bound.target).misfits("skip").allow_scan()
    children = children.only(*[getattr(bound.target, name) for name in theirs])
    children = children if ordered else children.unordered()
    if part.partitions != EVERYTHING or part.partition is not None:
        children = attrs.evolve(children, interval=_interval_of(part))
    with suppress(TableNotFound, AccessDenied):
        async with aclosing(_in_pages(children)) as pages:
            async for page in pages:
                if pace is not None:
                    await pace.wait(2 * len(page))  # the children, and their parents
                counts = AuditCounts(orphans=await _count_page(db, bound, page))
                key = page[-1].key
                if ordered:
                    part = attrs.evolve(part, partition=key.partition_key, row=key.row_key)
                yield part, counts
    yield attrs.evolve(part, done=True), AuditCounts()


def _interval_of(part: JobRange) -> KeyInterval:
    """Return the keys that are left of a range."""
    low, high = part.partitions.lower, part.partitions.upper
    end = None if high is None else (high, "")
    if part.partition is not None:
        return KeyInterval((part.partition, part.row or ""), end, low_open=True)
    return KeyInterval(None if low is None else (low, ""), end)


async def _in_pages(query: Select[Any]) -> AsyncGenerator[list[Any], None]:
    page: list[Any] = []
    async for each in query:
        page.append(each)
        if len(page) == MAX_PAGE:
            yield page
            page = []
    if page:
        yield page


async def _count_page(db: Connection, bound: BoundRelation, children: Sequence[Any]) -> int:
    parent: Any = bound.relation.model
    declared = bound.relation.declared
    names = parent.__schema__.key_fields
    theirs = {mine: field for field, mine in declared.fields.items()}
    total, keys = 0, list[Key[Any]]()
    for child in children:
        values = {name: getattr(child, theirs[name]) for name in names}
        related = all(getattr(child, field) == text for field, text in declared.texts.items())
        if related and None not in values.values():
            try:
                keys.append(parent.key(**values))
            except TemplateError:  # no parent can have such a key
                total += 1
    unread: dict[Key[Any], DecodeError | WrongKind] = {}
    found = await db.reader.get_many(keys, misfits=unread)
    # A damaged parent is there all the same; a row of another kind is none.
    pairs = zip(keys, found, strict=True)
    return total + sum(each is None and not isinstance(unread.get(key), DecodeError) for key, each in pairs)
