"""
Moves to another partition or table: several requests, of which one replaces the source and thereby moves the entity.

1. The target gets a tentative row, with tentative index entries. It is nobody's entity yet.
2. The source becomes a forward under the ETag that the command names. From then on the tentative row is the entity.
3. The target is confirmed, which is done only on a forward that was read after the tentative row.
4. The forward is deleted, and the mark of the confirmed row is cleared.

Anybody can do each step, at any time and again: the writer, a worker, and who meets the rows later. A confirmed row is
never written as long as its forward is there: otherwise a late tentative row could bring back what was deleted.

Whoever may write a row may give it any mark. So a mark alone is followed to no other row: that has to have a mark of
the same move, which names the first one. What a mark names is read wherever it is, also outside of a boundary.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec import structs

from ..connection.boundary import Boundary
from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts
from ..connection.rows import read_other, read_row, settle_forward
from ..errors import (
    Conflict,
    EntityExists,
    EntityNotFound,
    LostRace,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    ReferenceNotFound,
    TableNotFound,
)
from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.marker_rows import MoveMark, MoveState, is_forward, is_marker, mark_of, row_of_marker, stays
from ..models.property_bag import bag_of_row
from ..models.reserved import MANIFEST
from ..models.schema import Schema
from ..models.write_tokens import new_token, tokens_of
from ..outbox.doorbell import MoveCommand
from ..protocol.codes import Code
from ..stores import Operation, Row, RowAddress, Verb
from .move import (
    clearing_write,
    confirming_write,
    entity_at_target,
    given_fields,
    is_leaving,
    leaving_write,
    tentative_mark,
    tentative_write,
)
from .plan import Change, Mode, PlannedWrite, check_allowed
from .stages.change import delete_change, guard_change, insert_change
from .stages.derive import derive
from .stages.encode import encode_surely

LOST = (PreconditionFailed, EntityNotFound, OutcomeUnknown)
"""What a step raises if another writer was first, or nobody knows whether it was done: the rows say what is next."""


Commit = Callable[[Connection, Sequence[PlannedWrite]], Awaitable[None]]
"""Sends writes of one partition, with what is derived from them: `tableorm.writes.commit.commit`."""


class Relocation:
    """
    The steps of moves, and how what is left of one is put out of the way.

    Args:
        commit: What sends the writes of each step.
    """

    def __init__(self, commit: Commit) -> None:
        self._commit = commit

    # The steps

    async def carry_out(self, db: Connection, command: MoveCommand, source: Schema, target: Schema) -> Entity | None:
        """
        Do what a command says, as far as it is not done yet.

        Args:
            db: Where the rows are.
            command: The command.
            source: The model of the entity.
            target: The model that it has afterwards.

        Returns:
            The entity at its new key; None if it was moved, and has changed since.

        Raises:
            EntityExists: There is a row with the new key; or another entity has the value of a unique index there.
            PreconditionFailed: The source has changed since the command was given.
            EntityNotFound: The source was deleted since.
            OutcomeUnknown: A reply was lost, and nothing proves what became of the move.
            TableOrmError: What an insert at the new key and a delete at the old one raise.
        """
        doubt: OutcomeUnknown | None = None
        async for _ in Attempts(db, ATTEMPTS):
            here = await read_row(db, command.source, name=source.name)
            if is_forward(here, command.move, command.target):
                return await self.finish(db, command.move, command.source, command.target, target)
            if here is None or not is_leaving(here, command):
                return await self._give_up(db, command, target, doubt)
            entity = entity_of_row(source, here)
            leave = leaving_write(entity, here, command.target, command.move)
            derive((leave,))  # refuses what others need, before anything is sent
            try:
                await self._insert_tentative(db, command, entity, target)
                committed = await self._leave(db, leave)
            except OutcomeUnknown as error:
                if doubt is not None:
                    raise
                doubt = error  # one more look at the rows
                continue
            if committed:
                return await self.finish(db, command.move, command.source, command.target, target)
        raise LostRace(f"{command}: others wrote its rows first, {ATTEMPTS} times in a row; try it again")

    async def remove_mark(self, db: Connection, command: MoveCommand, source: Schema) -> None:
        """Remove the mark from the source of a move: if it was not committed by then, it never will be."""
        here = await read_row(db, command.source, name=source.name)
        if here is not None and is_leaving(here, command):
            with suppress(EntityNotFound, PreconditionFailed):  # somebody was first
                await self._commit(db, (clearing_write(entity_of_row(source, here)),))

    async def _leave(self, db: Connection, leave: PlannedWrite) -> bool:
        """Make a forward of the source, which commits the move; return whether the source was still as it was."""
        try:
            await self._commit(db, (leave,))
        except (PreconditionFailed, EntityNotFound):
            return False
        return True

    async def _insert_tentative(self, db: Connection, command: MoveCommand, entity: Entity, target: Schema) -> None:
        """
        Insert the tentative row of a move, unless it is there.

        Raises:
            EntityExists: There is another row; or another entity has the value of a unique index.
        """
        change = insert_change(entity_at_target(entity, target, given_fields(target, command.fields)), verb="move")
        if change.address != command.target:
            raise ValueError(f"{command}: its fields make another key")
        token = new_token()
        write = tentative_write(change, tentative_mark(command), token)
        await self._check_waiting(db, change, token)
        for _ in range(ATTEMPTS):
            try:
                await self._commit(db, (write,))
            except EntityExists as error:
                found = mark_of(await read_row(db, command.target))
                if found is not None and found.move == command.move:
                    return  # another writer has made it
                if error.index or not await self.clear_way(db, change):
                    raise
            else:
                return
        raise LostRace(f"{change}: others moved entities to that key, {ATTEMPTS} times in a row; try it again")

    async def _check_waiting(self, db: Connection, change: Change, token: str) -> None:
        """
        Refuse what would fail when the move is confirmed, or what could not be rejected any more: an entity that counts
        in one which does not exist, or which must not have that count.
        """
        plain = encode_surely(change, token)
        for effect in derive((plain,)).effects.values():
            if effect.tentative() is not None:
                continue
            stored = await read_row(db, change.address.beside(effect.row_key))
            full = effect.full_write(stored, token)
            stored = stored if full is None else full.after
            if stored is None:
                effect.operation(None, token)
            else:
                check_allowed(effect, stored)

    async def finish(
        self, db: Connection, move: str, source: RowAddress, target: RowAddress, schema: Schema
    ) -> Entity | None:
        """
        Complete a move: confirm the target, and unless the forward stays, delete it and clear the mark. If the source
        is no forward any more, a tentative row is of somebody who came late, and deleted as `resolve` does.

        Args:
            db: Where the rows are.
            move: The id of a move that was committed, or can never be.
            source: Where the entity was.
            target: Where it is.
            schema: The model that it has there.

        Returns:
            The entity; None if the target has changed since, or the move was not committed.

        Raises:
            TableOrmError: What an insert at the new key raises; the move is committed all the same.
        """
        doubtful = False
        async for _ in Attempts(db, ATTEMPTS):
            entity: Entity | None = None
            try:
                there = await read_row(db, target, name=schema.name)
                here = await read_other(db, source)
                committed = is_forward(here, move, target)
                mark = mark_of(there)
                if there is not None and mark is not None and mark.move == move and mark.names(source):
                    if mark.state is MoveState.TENTATIVE and not committed:
                        await self.resolve(db, target, schema)
                        continue
                    tentative = mark.state is MoveState.TENTATIVE
                    entity = entity_of_row(schema, row_of_marker(schema, there) if tentative else there)
                    if tentative:
                        confirmed = structs.replace(mark, state=MoveState.CONFIRMED)
                        await self._commit(db, (confirming_write(entity, confirmed),))
                    if mark.stays and schema.home is not None:
                        return entity
                if here is not None and committed and not stays(here):
                    await self.delete(db, source, here)
                if entity is not None:
                    await self._commit(db, (clearing_write(entity),))
            except (ReferenceNotFound, EntityExists, TableNotFound) as error:
                raise Conflict(f"move {move} to {schema.name} {target} cannot be completed yet: {error}") from error
            except LOST as error:
                if isinstance(error, OutcomeUnknown) and doubtful:
                    raise
                doubtful = isinstance(error, OutcomeUnknown)
                continue
            return entity
        raise LostRace(f"move {move} to {schema.name} {target}: others wrote its rows first, {ATTEMPTS} times in a row")

    async def _give_up(
        self, db: Connection, command: MoveCommand, schema: Schema, doubt: OutcomeUnknown | None
    ) -> Entity | None:
        """End a move whose source has changed: it was done long ago, or can never be committed."""
        found = await self.finish(db, command.move, command.source, command.target, schema)
        if found is not None:
            return found
        there = await read_row(db, command.target, name=schema.name)
        if there is not None and command.move in tokens_of(there) and not is_marker(there):
            return entity_of_row(schema, there)
        if doubt is not None:
            raise doubt
        if await read_row(db, command.source) is None:
            raise EntityNotFound(f"{command}: table {command.source.table} has no such row", Code.RESOURCE_NOT_FOUND)
        raise PreconditionFailed(
            f"{command}: the row has changed since it was read; read it again and repeat the move",
            Code.CONDITION_NOT_SATISFIED,
        )

    async def delete(
        self, db: Connection, place: RowAddress, row: Row, mark: MoveMark | None = None, instead: Row | None = None
    ) -> None:
        """
        Delete a row of a move as it was read: a tentative one, which has this mark, with its tentative entries; or a
        forward, from which nothing is derived. It may be outside of the boundary.

        Args:
            db: Where it is.
            place: Where it is.
            row: The row.
            mark: The mark of a tentative row.
            instead: What replaces the row; None for nothing.
        """
        members = {name: value for name, value in row.items() if mark is not None or name != MANIFEST}
        change = structs.replace(delete_change(bag_of_row(place.table, members)), mark=mark)
        write = encode_surely(change)
        if instead is not None:
            write = structs.replace(write, operation=Operation(Verb.REPLACE, instead, row["odata.etag"]))
        await self._commit(db.within(Boundary()), (write,))

    # What others do that meet its rows

    async def drop_forward(self, db: Connection, mark: MoveMark, place: RowAddress) -> None:
        """
        Delete or settle the forward of a confirmed row, before that is written.

        Args:
            db: Where they are.
            mark: The mark of the confirmed row.
            place: Where that row is.
        """
        async for _ in Attempts(db, ATTEMPTS):
            here = await read_other(db, mark.other)
            if here is None or not is_forward(here, mark.move, place):
                return
            if stays(here):
                if await settle_forward(db, mark.other, here):
                    return
                continue
            try:
                await self.delete(db, mark.other, here)
            except LOST:
                continue
            return
        raise LostRace(f"the forward {mark.other} of move {mark.move} cannot be deleted; try it again")

    async def clear_way(self, db: Connection, change: Change) -> bool:
        """Delete a tentative row that is in the way of an insert, if it is no entity. Returns what `resolve` does."""
        schema = change.schema
        if change.mode is not Mode.INSERT or change.mark is not None or schema is None or not schema.tracked:
            return False
        return await self.resolve(db, change.address, schema)

    async def resolve(self, db: Connection, place: RowAddress, schema: Schema) -> bool:
        """
        Delete a tentative row after its move was made impossible, if that was not committed.

        Args:
            db: Where the row is.
            place: Where it is.
            schema: The model of its entity.

        Returns:
            Whether the row is gone, or somebody was first; otherwise it is the row of an entity, or no tentative row,
            or its move can be made impossible only by who may write outside of the boundary.
        """
        row = await read_row(db, place)
        mark = mark_of(row)
        if row is None:
            return True
        if mark is None or mark.state is not MoveState.TENTATIVE or not is_removable(schema, mark):
            return False
        here = await read_other(db, mark.other)  # once: between two looks the move could be committed
        if is_forward(here, mark.move, place):
            return False
        try:
            leaving = mark_of(here)
            announced = (
                leaving is not None
                and (leaving.state, leaving.move) == (MoveState.LEAVING, mark.move)
                and leaving.names(place)
            )
            if (
                here is not None
                and here["odata.etag"] == mark.etag
                and (announced or _may_come_from(schema, row, mark))
            ):
                if not db.boundary.holds_row(schema, mark.other):
                    return False
                touch = encode_surely(guard_change(bag_of_row(mark.other.table, here)))
                await self._commit(db.within(Boundary()), (touch,))  # the same under a new ETag
            await self.delete(db, place, row, mark)
        except LOST:
            pass  # somebody was first
        return True


def is_removable(schema: Schema, mark: MoveMark) -> bool:
    """
    Return whether programs that meet a tentative row which is no entity remove it. One of the older model, by which a
    re-key goes back, is for that to remove; and entities of a model that is not tracked are not moved.
    """
    return schema.tracked and (not mark.stays or schema.home is not None)


def _may_come_from(schema: Schema, row: Row, mark: MoveMark) -> bool:
    """Return whether an entity of an older model may have had the place that the mark of a tentative row names."""
    home = schema.home
    return home is not None and mark.stays and home.may_come_from(row_of_marker(schema, row), mark.other)


def is_of(schema: Schema, row: Row) -> bool:
    """Return whether a tentative row is of a model, in a version that this program knows."""
    found = KindSet.alone(schema).resolve(row_of_marker(schema, row))
    return found is not None and found[1] <= schema.version


def entity_of_row(schema: Schema, row: Row) -> Entity:
    """
    Return the entity of a row.

    Raises:
        NotSupported: The row is of a newer version, or of another kind.
    """
    kinds = KindSet.alone(schema)
    found = kinds.resolve(row)
    entity = None if found is None or found[1] > schema.version else kinds.load(row.copy())
    if not isinstance(entity, Entity):
        raise NotSupported(
            f"the row ({row['PartitionKey']!r}, {row['RowKey']!r}) is not of {schema.name} as this program "
            "declares it; leave it to a program that knows it"
        )
    return entity
