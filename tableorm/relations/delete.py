"""
Deleting an entity with its children: the children first, then the entity as it was before the children were sought.

Where a `Count` in the entity counts the children, a child that others insert meanwhile changes the row of the entity.
Then the delete is rejected, and all begins again: no child is ever without its parent.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs

from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts, is_race
from ..errors import Conflict, EntityNotFound, LostRace, PreconditionFailed, TableOrmError
from ..models.entity import Entity
from ..models.key import Key
from ..models.schema import Schema
from ..protocol.codes import Code
from ..stores import RowAddress
from ..writes.bulk.bulk import Bulk
from ..writes.commit import write_change
from ..writes.stages.change import delete_change
from ..writes.subject import forget, key_of_target
from .binding import Reads, bind, pages_with_expired

_VERB = "delete with children"


async def delete_with_children(
    reads: Reads,
    db: Connection,
    target: Any,
    fields: dict[str, Any],
    *,
    if_match: str | None,
    missing_ok: bool,
    above: frozenset[Key[Any]] = frozenset(),
) -> bool:
    """
    Delete an entity, and before it those that belong to it by relations that cascade.

    Args:
        reads: Where they are read.
        db: Where they are.
        target: An entity that was read, a key, or a model with its key fields.
        fields: The key fields.
        if_match: The ETag that the row must have, or "*" for any; None for the one that it was read with.
        missing_ok: Whether to accept that there is no such row.
        above: The keys of the entities whose children are being deleted, which are deleted after this one.

    Returns:
        Whether there was a row.

    Raises:
        TableOrmError: What `Database.delete` raises.
    """
    key: Key[Any] = key_of_target(db.boundary, target, fields)
    etag = delete_change(target if isinstance(target, Entity) else key, if_match, verb=_VERB).if_match
    # Read from an index entry, an entity has no ETag: its fields tell whether it has changed since.
    attempt = _Attempt(reads, db, key, etag, above | {key}, last=target if etag is None else None)
    async for _ in Attempts(db, ATTEMPTS):
        # Writers of this program wait meanwhile; others are met by the ETag.
        with db.turns.begin() as turn:
            await turn.take((RowAddress.of(key),))
            try:
                gone: bool | None = await attempt.make()
                while attempt.progress:
                    gone = await attempt.make()
            except EntityNotFound:
                if not missing_ok:
                    raise
                gone = None
        if gone is not False:
            if isinstance(target, Entity):
                forget(target)
            return gone is not None
    raise LostRace(
        f"delete of {key}: others inserted children, {ATTEMPTS} times in a row; try it again when they do not",
        entity=target,
    )


@attrs.define(eq=False)
class _Attempt:
    """
    The attempts to delete an entity with its children.

    Args:
        reads: Where they are read.
        db: Where they are.
        key: The key of the entity.
        etag: The ETag that its row must have when the first attempt begins; "*" for any.
        family: The keys of the entity, and of those whose children are being deleted.

    Attributes:
        progress: Whether the last attempt has deleted children, and should be followed by another at once.
        rounds: How many attempts have done so.
        last: The entity as it was read last; None before the first attempt, unless it has no ETag.
        refused: Why its delete was rejected by the last attempt, as others were counted in it.
    """

    reads: Reads
    db: Connection
    key: Key[Any]
    etag: str | None
    family: frozenset[Key[Any]]
    progress: bool = False
    rounds: int = 0
    last: Any = None
    refused: Conflict | None = None

    async def make(self) -> bool:
        """Delete what children there are; if there are none, the entity. Return whether it is deleted."""
        (entity,) = await self.reads.get_many([self.key])
        if entity is None:
            raise EntityNotFound(f"delete of {self.key}: there is no such row", Code.RESOURCE_NOT_FOUND, self.key)
        self._check(entity)
        self.last, self.refused = entity, None
        self.progress = await _delete_children(self.reads, self.db, entity, self.family)
        self.rounds += self.progress
        if self.progress and self.rounds < ATTEMPTS:
            return False
        self.progress = False
        try:
            await write_change(self.db, delete_change(entity, verb=_VERB))
        except Conflict as error:
            if type(error) is Conflict:
                self.refused = error
            elif not is_race(error):
                raise
            return False
        return True

    def _check(self, entity: Entity) -> None:
        """Refuse an entity that others have changed, beside what its children change, or that others count in."""
        if self.refused is not None and entity.etag == self.last.etag:
            raise self.refused
        same = entity.etag == self.etag if self.last is None else is_as_read(entity, self.last)
        if self.etag != "*" and not same:
            problem = "the row has changed since it was read; read it again and repeat the delete"
            raise PreconditionFailed(f"delete of {self.key}: {problem}", Code.CONDITION_NOT_SATISFIED, self.key)


def is_as_read(entity: Entity, before: Entity) -> bool:
    """Return whether an entity has the fields of one that was read before, as far as no other entities keep them."""
    return _own(before).items() <= _own(entity).items()


def _own(entity: Entity) -> Mapping[str, Any]:
    """Return the fields of an entity that were loaded, and no other entities keep."""
    schema: Schema = entity.__schema__
    own = {name for name, info in schema.fields.items() if not info.maintained}
    return {name: value for name, value in entity.__dict__.items() if name in own}


async def _delete_children(reads: Reads, db: Connection, entity: Any, family: frozenset[Key[Any]]) -> bool:
    """
    Delete the children that an entity has now, and return whether there were any. Raises the error of the first that
    cannot be deleted, when all others are.
    """

    async def delete_family(child: Any) -> None:
        await delete_with_children(reads, db, child, {}, if_match=None, missing_ok=True, above=family)

    found, errors = False, list[TableOrmError]()
    for declared in entity.__schema__.relations:
        source = declared.source_of(entity)
        if not declared.cascades or None in source:
            continue
        query = bind(declared.of(type(entity))).query(reads, source)
        async for page in pages_with_expired(query.misfits(errors.append)):
            # One whose children are being deleted goes after these, also if it is a child of its own.
            children = [child for child in page.items if child.key not in family]
            found = found or bool(children)
            errors += await delete_page(db, children, delete_family)
            del errors[1:]
    if errors:
        raise errors[0]
    return found


async def delete_page(
    db: Connection, children: Sequence[Any], delete_family: Callable[[Any], Awaitable[None]]
) -> list[TableOrmError]:
    """
    Delete children as they were read, and return what went wrong; those that have changed since are left.

    Args:
        db: Where they are.
        children: The children.
        delete_family: Deletes one that has children of its own.
    """
    errors = list[TableOrmError]()
    async with Bulk(db, errors="report") as bulk:
        for child in children:
            if not child.__schema__.cascades:
                await bulk.delete(child)
                continue
            try:
                await delete_family(child)
            except TableOrmError as error:
                errors.append(error)
    errors += [failure.error for failure in bulk.report.failed]
    return [error for error in errors if not is_race(error)]
