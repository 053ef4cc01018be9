"""
Orphans: entities that stayed when their parent was deleted, as `on_delete="keep"` says. They are no damage; an audit of
the parents counts them.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..errors import AccessDenied, DecodeError, TableNotFound, TemplateError, WrongKind
from ..models.entity import Entity, schema_of
from ..models.schema import concrete
from .binding import BoundRelation, Reads, bind
from .declarations import Many

__all__ = ["count_orphans"]


async def count_orphans(reads: Reads, models: Iterable[type[Entity]]) -> int:
    """
    Count the children whose parent is gone, a page of them at a time. Their tables are read for that, as far as they
    can be, and the keys of parents by ranges.

    Args:
        reads: The database.
        models: The classes of parents.
    """
    total = 0
    for schema in (each for model in models for each in concrete(schema_of(model))):
        for declared in schema.relations:
            if isinstance(declared, Many) and declared.leaves_orphans(schema):
                with suppress(TableNotFound, AccessDenied):
                    total += await _count(reads, bind(declared.of(schema.model)))
    return total


async def _count(reads: Reads, bound: BoundRelation) -> int:
    parent: Any = bound.relation.model
    declared = bound.relation.declared
    theirs = {mine: field for field, mine in declared.fields.items()}
    names = parent.__schema__.key_fields
    if not theirs.keys() >= {*names}:
        return 0  # nobody knows the one parent of a child
    texts = [getattr(bound.target, field) == text for field, text in declared.texts.items()]
    children = reads.select(bound.target).where(*texts).misfits("skip").allow_scan()
    total = 0
    async for page in children.only(*[getattr(bound.target, theirs[name]) for name in names]).pages():
        keys: list[Any] = []
        for child in page.items:
            values = {name: getattr(child, theirs[name]) for name in names}
            if None not in values.values():
                try:
                    keys.append(parent.key(**values))
                except TemplateError:  # no parent can have such a key
                    total += 1
        unread: list[DecodeError | WrongKind] = []
        found = await reads.get_many(keys, misfits=unread.append)
        # A damaged parent is there all the same; a row of another kind is none.
        damaged = {error.key for error in unread if isinstance(error, DecodeError)}
        pairs = zip(keys, found, strict=True)
        total += sum(each is None and (key.partition_key, key.row_key) not in damaged for key, each in pairs)
    return total
