"""
Deleting an entity with its children: the children first, then the entity as it was before the children were sought.

Where a `Count` in the entity counts the children, a child that others insert meanwhile changes the row of the entity.
Then the delete is rejected, and all begins again: no child is ever without its parent.

If children may be in other partitions, workers delete them, then the entity, then the children that came meanwhile.
That delete commits as a note in the manifest of the entity and a decision row, in one transaction. Whatever deletes
anything afterwards has looked at both since it read that: the note tells this entity from another one under its key.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
from msgspec import structs

from ..connection.boundary import Boundary
from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts, is_race
from ..derived.aggregate.schema import AggregateSchema
from ..errors import (
    AccessDenied,
    Conflict,
    EntityNotFound,
    LostRace,
    ModelError,
    PreconditionFailed,
    TableOrmError,
    shown,
)
from ..expressions import Comparison
from ..models.entity import Entity
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.manifest import DeletedEntry, ManifestEntry, manifest_of, manifest_text
from ..models.reserved import MANIFEST
from ..models.schema import Schema, concrete
from ..models.visibility import including_expired
from ..models.write_tokens import new_token
from ..outbox.decision import Decision, Work, read_decision, read_decisions
from ..outbox.overview import Pending, ring_again
from ..protocol.codes import Code
from ..stores import Operation, Row, RowAddress
from ..writes.archive import delete_and_note
from ..writes.bulk.bulk import Bulk
from ..writes.commit import commit, read_current, write_change
from ..writes.explain import TOKEN, WriteExplanation, WriteStep, explain_writes, get_step
from ..writes.maintainer import EntryRules, Source, entry_rules
from ..writes.plan import Effect, PlannedWrite
from ..writes.relocation import entity_of_row
from ..writes.stages.change import delete_change, guard_change
from ..writes.stages.encode import encode_surely
from ..writes.subject import forget, key_of_target
from .declarations import OnDelete, cascades_elsewhere, find_cascades
from .relation import BoundRelation, bind, pages_with_expired

_VERB = "delete with children"
_NAME = "del"
"""The name of the note in manifests, which no declaration can have."""
_LAST = "look for children once more"
"""What stands in a decision row as the next step when the entity is gone."""


async def delete_with_children(
    db: Connection,
    target: Any,
    fields: dict[str, Any],
    *,
    if_match: str | None,
    missing_ok: bool,
    above: frozenset[Key[Any]] = frozenset(),
) -> bool:
    """
    Delete an entity, and before it those that belong to it by relations that cascade; or begin that, if workers do it.

    Args:
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
    last: Any = target if etag is None else None
    refused: Conflict | None = None
    attempts, most, family = Attempts(db), dict[str, int](), above | {key}

    async def delete_family(child: Any) -> None:
        await delete_with_children(db, child, {}, if_match=None, missing_ok=True, above=family)

    async for attempt in attempts:
        # Writers of this program wait meanwhile; others are met by the ETag.
        with db.turns.begin() as turn:
            await turn.take((RowAddress.of(key),))
            (entity,) = await db.reader.get_many([key])
            if entity is None and not missing_ok:
                raise EntityNotFound(f"delete of {key}: there is no such row", Code.RESOURCE_NOT_FOUND, key)
            if entity is not None:
                if refused is not None and entity.etag == last.etag:
                    raise refused
                # It may have changed beside what its children change.
                same = entity.etag == etag if last is None else _is_as_read(entity, last)
                if etag != "*" and not same:
                    problem = "the row has changed since it was read; read it again and repeat the delete"
                    raise PreconditionFailed(f"delete of {key}: {problem}", Code.CONDITION_NOT_SATISFIED, key)
                last, refused, elsewhere = entity, None, cascades_elsewhere(entity.__schema__)
                if not elsewhere:
                    await _refuse_others(db, entity)
                    # Where others insert children all the time, the entity goes all the same.
                    schema, own, again = entity.__schema__, entity.__dict__, attempt < ATTEMPTS // 2
                    if await _delete_children(db, schema, own, family, delete_family, most=most, again=again):
                        attempts.skip_pause()
                        continue
                try:
                    if elsewhere:
                        await _begin(db, entity)
                    else:
                        await write_change(db, delete_change(entity, verb=_VERB))
                except TableOrmError as error:
                    # A count may say so that was changed since the children were sought.
                    refused = error if type(error) is Conflict and not elsewhere else None
                    # Children elsewhere do not change the row, so that its ETag says all.
                    if refused is None and (not is_race(error) or (elsewhere and etag != "*")):
                        raise
                    continue
        if isinstance(target, Entity):
            forget(target)
        return entity is not None
    raise LostRace(f"delete of {key}: others wrote it or its children first, {ATTEMPTS} times in a row", entity=target)


def _is_as_read(entity: Entity, before: Entity) -> bool:
    """Return whether an entity has the fields of one that was read before, as far as no other entities keep them."""
    return _own(before).items() <= _own(entity).items()


def _own(entity: Entity) -> Mapping[str, Any]:
    """Return the fields of an entity that were loaded, and no other entities keep."""
    schema: Schema = entity.__schema__
    own = {name for name, info in schema.fields.items() if not info.maintained}
    return {name: value for name, value in entity.__dict__.items() if name in own}


async def _refuse_others(db: Connection, entity: Any) -> None:
    """
    Refuse to delete an entity while others that stay belong to it, before any child is deleted.

    Raises:
        Conflict: It has children by a relation that refuses, or counts entities that are not deleted with it.
        ModelError: Nothing finds the children that would be deleted.
    """
    schema: Schema = entity.__schema__
    for bound, values in _relations_of(schema, "cascade", entity.__dict__):
        bound.query(db, values)  # which raises that
    for bound, values in _relations_of(schema, "refuse", entity.__dict__):
        with including_expired():  # they are counted too
            if await bound.query(db, values).exists():
                raise Conflict(f"delete of {entity.key}: it has {bound.relation}; delete those first", entity=entity)
    counts = [each for _, _, child in find_cascades(schema) for each in child.derived_as(AggregateSchema).values()]
    emptied = {each.target[1].name for each in counts if schema in concrete(each.target[0])}
    for info in schema.maintained:
        value = entity.__dict__.get(info.name)  # None in an entity of an index entry
        if not info.optional and info.name not in emptied and value not in (None, info.absent()):
            raise Conflict(
                f"delete of {entity.key}: its {info.name} is {value}: entities that stay are counted in it; delete "
                "those first",
                entity=entity,
            )


async def _delete_children(
    db: Connection,
    schema: Schema,
    fields: Mapping[str, Any],
    family: frozenset[Key[Any]],
    delete_family: Callable[[Any], Awaitable[None]],
    is_over: Callable[[], Awaitable[bool]] | None = None,
    *,
    most: dict[str, int],
    again: bool,
) -> bool:
    """
    Delete the children that an entity has now. Raises the error of the first that cannot be deleted, when all others
    are: the entity stays with it.

    Args:
        db: Where they are.
        schema: The model of the entity.
        fields: The fields of the entity by which children are found.
        family: The keys of the entity, and of those whose children are being deleted.
        delete_family: Deletes a child that has children of its own.
        is_over: Whether they need not be deleted any more; it is asked whenever some were read. None if they must be.
        most: About how many children to read by each relation: as many as the first call has found, which notes that
            here. Otherwise a call would never end while others insert children as fast.
        again: Whether to look again if there were any, as others may have been inserted meanwhile.

    Returns:
        Whether to look again before the entity is deleted; always if some were not read.
    """
    found, errors = False, list[TableOrmError]()
    for bound, values in _relations_of(schema, "cascade", fields):
        query = bound.query(db, values)
        name, read = bound.relation.declared.name, 0
        async for page in pages_with_expired(query.misfits(errors.append)):
            # One whose children are being deleted goes after these, also if it is a child of its own.
            children = [child for child in page.items if child.key not in family]
            if children:
                found = True
                if is_over is not None and await is_over():
                    return True
                errors += await _delete_page(db, children, delete_family)
            del errors[1:]
            read += len(page.items)
            if page.cursor is None:
                break
            if name not in most:
                with including_expired():
                    most[name] = read + await query.misfits("skip").count()
            if page.items and read >= most[name]:
                found = again = True
                break
        most.setdefault(name, read)
    if errors:
        raise errors[0]
    return found and again


async def _delete_page(
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


def _relations_of(
    schema: Schema, on_delete: OnDelete, fields: Mapping[str, Any]
) -> list[tuple[BoundRelation, tuple[Any, ...]]]:
    """Return the relations by which an entity with these fields may have children, with the values that find these."""
    found: list[tuple[BoundRelation, tuple[Any, ...]]] = []
    for declared in schema.relations:
        if getattr(declared, "on_delete", None) == on_delete:
            values = tuple([fields[name] for name in declared.sources])
            if None not in values:
                found.append((bind(declared.of(schema.model)), values))
    return found


# In other partitions


def cascade_kind(schema: Schema) -> str:
    """Return what stands in place of a kind in decision rows and messages about such deletes."""
    return f"cascade {schema.kind}"


@entry_rules(DeletedEntry)
class _DeletedRules(EntryRules[DeletedEntry]):
    def undo(self, name: str, entry: DeletedEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Return nothing: a worker finds that the entity is gone."""
        return []

    def follow(self, name: str, entry: DeletedEntry, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Keep the note."""
        return entry, []


async def _begin(db: Connection, entity: Entity) -> None:
    """Commit the delete of an entity, unless it is being deleted already: then workers are told again."""
    write = _beginning_write(db.boundary, entity, new_token())
    found = await _find_begun(db, entity)
    if found is not None:
        await ring_again(db, Pending(write.change.table, found[0]))
        return
    await _refuse_others(db, entity)
    await commit(db, (write,))


def _beginning_write(boundary: Boundary, entity: Entity, token: str) -> PlannedWrite:
    """
    Return the write that notes in an entity that it is being deleted, and starts that.

    Raises:
        AccessDenied: Some children may be outside of the boundary.
    """
    if boundary.narrows:
        _check_boundary(boundary, entity.__schema__)
    write = encode_surely(guard_change(entity), token)
    after = {**(write.after or {})}
    after[MANIFEST] = manifest_text({**manifest_of(after), _NAME: DeletedEntry(token)})
    operation = write.operation
    operation = Operation(operation.verb, {**operation.row, MANIFEST: after[MANIFEST]}, operation.if_match)
    work = Work(kind=cascade_kind(entity.__schema__), row_key=after["RowKey"], arguments=_arguments(token))
    return structs.replace(write, operation=operation, after=after, weight=None, starts=(work,))


def _arguments(token: str) -> str:
    return f'"{token}"'


async def _find_begun(db: Connection, entity: Entity) -> tuple[Decision, int] | None:
    """Return the decision row by which an entity is being deleted, and which of its works that is."""
    key, row = entity.key, encode_surely(guard_change(entity)).after
    note = manifest_of(row).get(_NAME)
    if isinstance(note, DeletedEntry):
        for decision in await read_decisions(db, key.table, key.partition_key):
            for number, work in enumerate(decision.works):
                if work.row_key == key.row_key and work.arguments == _arguments(note.token):
                    return decision, number
    return None


def _check_boundary(boundary: Boundary, schema: Schema) -> None:
    """Refuse children that may be outside of a boundary: workers, who delete them, have none. Raises AccessDenied."""
    for bound, parent, child in find_cascades(schema):
        for each in boundary.narrow(KindSet.of([child.model]), ()):
            name = each.field.name if isinstance(each, Comparison) else ""
            if bound.relation.declared.fields.get(name) != name:
                raise AccessDenied(
                    f"{bound.relation}: children may be of others than this scope; delete {parent.name} by the "
                    "database itself, or find them by the field of the scope too"
                )


def explain_cascade(boundary: Boundary, target: object) -> WriteExplanation:
    """
    Return what the delete of an entity sends whose children workers delete.

    Raises:
        ModelError: A key is given, or the call itself deletes the children.
    """
    call = f"explain_write('delete', {shown(target)})"
    if not isinstance(target, Entity):
        raise ModelError(f"{call} is rejected: give the entity, which was read before")
    if not cascades_elsewhere(target.__schema__):
        raise ModelError(f"{call} is rejected: what the delete sends depends on the children that it finds")
    found = explain_writes(boundary, [_beginning_write(boundary, target, TOKEN)])
    looks = [
        WriteStep("GET", f"/{bound.target.__schema__.table_text()}()")
        for bound, _ in _relations_of(target.__schema__, "refuse", target.__dict__)
    ]
    return attrs.evolve(found, steps=(get_step(RowAddress.of(target.key)), *looks, *found.steps), after=())


# Workers


async def carry_out_cascades(
    db: Connection, table: str, schemas: Mapping[str, Schema], decision: Decision
) -> Decision | None:
    """
    Delete the entities of a transaction with their children. It may be done twice, by several at the same time, and
    again later.

    Args:
        db: Where the decision row is.
        table: The table of the decision row.
        schemas: The models by what stands for their kind.
        decision: What the decision row says.

    Returns:
        What the decision row says now; None if another writer has deleted it meanwhile.

    Raises:
        NotSupported: The row is of a newer version, or of another model: leave it to others.
        LostRace: Others kept inserting children, or writing the entity.
        TableOrmError: Something cannot be deleted, or the store did not answer.
    """
    found: Decision | None = decision
    for number, work in enumerate(decision.works):
        schema = schemas.get(work.kind)
        if schema is None or found is None:
            continue
        found = await _Cascade(db, schema, table, decision, number).carry_out()
    return found


@attrs.frozen(eq=False)
class _Cascade:
    """
    The delete of an entity with its children.

    Args:
        db: Where the entity is.
        schema: The model of the entity.
        table: Its table.
        begun: The decision row, as it was read first.
        number: Which of its works this is.
        above: The keys of the entities whose children are being deleted.
    """

    db: Connection
    schema: Schema
    table: str
    begun: Decision
    number: int
    above: frozenset[Key[Any]] = frozenset()

    async def carry_out(self) -> Decision | None:
        """Delete the children, then the entity, then other children. Returns what `carry_out_cascades` does."""
        fields = self.schema.parse_keys(self._key.partition_key, self._key.row_key)
        most = dict[str, int]()
        for attempt in range(ATTEMPTS):
            decision, row, is_on = await self._look()
            if decision is None or not is_on:
                return decision
            # Where others insert children all the time, the entity goes all the same, and their children after it.
            if await _delete_children(
                self.db,
                self.schema,
                fields,
                self._family,
                self._delete_family,
                self._is_over,
                most=most,
                again=row is None or attempt < ATTEMPTS // 2,
            ):
                continue
            if row is None:
                return decision
            deletion = encode_surely(delete_change(entity_of_row(self.schema, row), verb=_VERB))
            progress = {**decision.progress, self.number: (_LAST, None)}
            try:
                await delete_and_note(self.db, self.table, deletion, decision, progress)
            except TableOrmError as error:
                if not is_race(error):
                    raise
        raise LostRace(f"{_VERB} of {self._key}: others wrote it or its children first, {ATTEMPTS} times in a row")

    @property
    def _key(self) -> Key[Any]:
        return Key(self.schema.model, self.table, self.begun.partition_key, self.begun.works[self.number].row_key)

    @property
    def _family(self) -> frozenset[Key[Any]]:
        return self.above | {self._key}

    async def _look(self) -> tuple[Decision | None, Row | None, bool]:
        """Return the decision, the row of the entity, and whether there is still something to delete."""
        decision = await read_decision(self.db, self.table, self.begun.partition_key, self.begun.token)
        row = await read_current(self.db, self._key)
        if decision is None or not decision.committed:
            return None, row, False
        if self.number in decision.progress:
            return decision, row, row is None  # another entity under the key has what children there are
        note = manifest_of(row).get(_NAME)
        is_on = isinstance(note, DeletedEntry) and _arguments(note.token) == decision.works[self.number].arguments
        # An entity that has become one of another class has what children that has.
        return decision, row, is_on and KindSet.alone(self.schema).resolve(row or {}) is not None

    async def _is_over(self) -> bool:
        return not (await self._look())[2]

    async def _delete_family(self, child: Any) -> None:
        """Delete a child that has children of its own."""
        family = self._family
        if not cascades_elsewhere(child.__schema__):
            await delete_with_children(self.db, child, {}, if_match=None, missing_ok=True, above=family)
            return
        begun = await _find_begun(self.db, child)
        if begun is None:
            await _begin(self.db, child)  # and is found so by the next round
        else:
            await _Cascade(self.db, child.__schema__, child.key.table, *begun, family).carry_out()
