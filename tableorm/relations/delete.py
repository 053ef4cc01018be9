"""
Deleting an entity with its children: the children first, then the entity as it was before the children were sought.

Where a `Count` in the entity counts the children, a child that others insert meanwhile changes the row of the entity.
Then the delete is refused, and all begins again: no child is ever without its parent.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts, is_race
from ..errors import Conflict, EntityNotFound, LostRace, PreconditionFailed, TableOrmError
from ..models.entity import Entity
from ..models.key import Key
from ..models.schema import Schema, concrete
from ..models.visibility import including_expired
from ..protocol.codes import Code
from ..stores import RowAddress
from ..writes.commit import write_change
from ..writes.stages.change import delete_change
from ..writes.subject import forget, key_of_target
from .binding import Reads, bind

__all__ = ["delete_with_children", "is_as_read"]

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
        refused: Why its delete was refused by the last attempt, as others were counted in it.
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
        with including_expired():  # they are counted too
            self.progress = await self._delete_children(entity)
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

    async def _delete_children(self, entity: Any) -> bool:
        """Delete the children that an entity has now, and return whether there were any."""
        found = False
        for declared in entity.__schema__.relations:
            if not declared.cascades:
                continue
            bound = bind(declared.of(type(entity)))
            source = declared.source_of(entity)
            if None in source:
                continue
            query = bound.query(self.reads, source)
            if any(child.cascades for child in concrete(bound.target.__schema__)):
                for child in await query.all():
                    found = await self._delete_family(child) or found
                continue
            report = await query.delete()
            found = found or report.written + report.failures > 0
            for failure in report.failed:
                if not is_race(failure.error):
                    raise failure.error
        return found

    async def _delete_family(self, child: Any) -> bool:
        """Delete a child with its children; return False if it is deleted later, since it is a parent of this one."""
        if child.key in self.family:
            return False
        try:
            await delete_with_children(
                self.reads, self.db, child, {}, if_match=None, missing_ok=True, above=self.family
            )
        except TableOrmError as error:
            if not is_race(error) or self.rounds + 1 >= ATTEMPTS:
                raise  # otherwise it is looked for once more
        return True


def is_as_read(entity: Entity, before: Entity) -> bool:
    """Return whether an entity has the fields of one that was read before, as far as no other entities keep them."""
    return _own(before).items() <= _own(entity).items()


def _own(entity: Entity) -> Mapping[str, Any]:
    """Return the fields of an entity that were loaded, and no other entities keep."""
    schema: Schema = entity.__schema__
    own = {name for name, info in schema.fields.items() if not info.maintained}
    return {name: value for name, value in entity.__dict__.items() if name in own}
