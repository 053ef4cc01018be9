"""
The mover of a re-key: many entities get their newer keys, in transactions where rows share a partition.

Each of the three steps is done for all rows before the next one. What a transaction refuses is tried row by row, and
what fails there goes through the steps for one entity, which find out why.
"""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ...connection.connection import Connection
from ...errors import TableOrmError
from ...models.entity import Entity
from ...models.kinds import KindSet
from ...models.marker_rows import (
    MoveMark,
    MoveState,
    Place,
    is_marker,
    kept_row,
    mark_of,
    row_of_marker,
    tentative_kind,
)
from ...models.rekeying import Rekeying
from ...models.reserved import ENTITY_TYPE, MANIFEST, MOVE, WRITE_TOKENS
from ...models.schema import Schema
from ...models.state import EntityState, set_state, state_of
from ...models.write_tokens import new_token
from ...protocol.limits import MAX_TRANSACTION_OPERATIONS
from ...stores import Operation, Row, Verb
from ..commit import RELOCATION, ROW_STEPS, commit
from ..move import confirming_write, tentative_write
from ..plan import PlannedWrite, SendOptions
from ..stages.change import plain_insert
from .chunks import each_row, in_chunks, send_operations
from .report import RowFailure, WindowReport
from .steps import keeping_write, target_of

__all__ = ["move_window"]


class _Move(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """
    The move of one entity.

    Args:
        source: Where it is by the older model.
        target: Where it will be.
        token: The id of the move.
        row: Its row at the older key.
        entity: The entity by the older model.
        made: The entity by the newer model.
        stored: Its row at the newer key, as it will be when it is confirmed, without ETag.
        etag: The ETag of the tentative row.
    """

    source: Place
    target: Place
    token: str
    row: Row
    entity: Entity
    made: Entity
    stored: Row = {}
    etag: str = ""

    def mark(self, state: MoveState) -> MoveMark:
        """Return the mark of a row of the move."""
        other = self.target if state is MoveState.FORWARD else self.source
        return MoveMark(state=state, move=self.token, other=other, etag=self.row["odata.etag"], stays=True)


async def move_window(db: Connection, rekeying: Rekeying[Schema], rows: Sequence[Row]) -> WindowReport:
    """
    Give entities their newer keys.

    Args:
        db: Where the rows are.
        rekeying: The models.
        rows: Rows of the table of the older model as they were just read, in any order. Those that are no entities of
            that model, or are moved already, are passed over.

    Raises:
        TableNotFound: The table of the newer model is missing.
        AccessDenied: Not permitted.
        Unavailable: The store cannot be reached.
    """
    report = WindowReport()
    old = rekeying.old
    kinds = KindSet((old,), old.table_name(), bags=False)
    moves: dict[Place, _Move] = {}
    alone: list[tuple[Place, Row | None]] = []
    for row in rows:
        source = Place(kinds.table, row["PartitionKey"], row["RowKey"])
        try:
            entity = kinds.load(row)
            if not isinstance(entity, Entity):
                mark = mark_of(row) if is_marker(row) else None
                if mark is not None and mark.state is MoveState.TENTATIVE:
                    alone.append((source, row))
                continue
            if MOVE in row:  # of a move by the older model
                alone.append((source, row))
                continue
            made, target = target_of(rekeying, entity, source)
        except TableOrmError as error:
            report.failures.append(RowFailure(source, error))
            continue
        except Exception as error:  # noqa: BLE001 - the functions are the user's: one bad row is a failure
            report.failures.append(RowFailure(source, TableOrmError(f"{rekeying}: {error!r}")))
            continue
        if target in moves:
            alone.append((source, row))
        else:
            moves[target] = _Move(source=source, target=target, token=new_token(), row=row, entity=entity, made=made)
    alone += await _Mover(db, rekeying, report).run(list(moves.values()))
    await each_row(report, alone, lambda place, row: ROW_STEPS.move(db, rekeying, place, row))
    return report


class _Mover:
    """
    The steps of many moves.

    Args:
        db: Where the rows are.
        rekeying: The models.
        report: Gets the numbers.
    """

    def __init__(self, db: Connection, rekeying: Rekeying[Schema], report: WindowReport) -> None:
        self._db, self._rekeying, self._report = db, rekeying, report
        self._new, self._old = rekeying.new, rekeying.old
        own = [sum(each.own_rows(None) for each in schema.derived.values()) for schema in (self._new, self._old)]
        self._size = MAX_TRANSACTION_OPERATIONS // (1 + max(own))

    async def run(self, moves: Sequence[_Move]) -> list[tuple[Place, Row | None]]:
        """Do all steps; return the places of the older rows of which one failed, with no row: it is to be read."""
        plain = not self._new.derived and not self._old.derived and all(MANIFEST not in each.row for each in moves)
        if plain:
            steps = (self._insert, self._leave, self._confirm)
        else:
            steps = (self._insert_derived, self._leave_derived, self._confirm_derived)
        targets, sources = attrgetter("target"), attrgetter("source")
        inserted = await in_chunks(self._report, moves, targets, steps[0], self._size)
        left = await in_chunks(self._report, inserted, sources, steps[1], self._size)
        begun = {each.token for each in left}
        for each in inserted:
            if each.token not in begun:
                await RELOCATION.resolve(self._db, each.target, self._new)
        done = await in_chunks(self._report, left, targets, steps[2], self._size)
        confirmed = {each.token for each in done}
        unconfirmed = {each.source: each for each in left if each.token not in confirmed}

        async def finish(place: Place, _: Row | None) -> bool:
            each = unconfirmed[place]
            await RELOCATION.finish(self._db, each.token, each.source, each.target, self._new)
            return False

        self._report.moved += len(left)
        await each_row(self._report, [(place, None) for place in unconfirmed], finish)
        return [(each.source, None) for each in moves if each.token not in begun]

    # Of models without derived rows, without what derives them

    async def _insert(self, moves: Sequence[_Move]) -> None:
        operations: list[Operation] = []
        for each in moves:
            target, made = each.target, each.made
            row, _ = self._new.encode(made.__dict__, target.partition_key, target.row_key)
            extra = state_of(made).extra
            if extra is not None:
                row |= state_of(made).unknown(self._new.known)
            row[WRITE_TOKENS] = token = new_token()
            each.stored = row
            kind = tentative_kind(str(row.get(ENTITY_TYPE, self._new.kind)))
            tentative = {**row, ENTITY_TYPE: kind, MOVE: each.mark(MoveState.TENTATIVE).to_text()}
            row[WRITE_TOKENS] = f"{each.token},{token}"
            operations.append(Operation(Verb.INSERT, tentative))
        etags = await self._send(self._new, moves[0].target.table, operations)
        for each, etag in zip(moves, etags, strict=True):
            each.etag = etag or ""

    async def _leave(self, moves: Sequence[_Move]) -> None:
        operations = [
            Operation(Verb.REPLACE, kept_row(self._old, each.row, each.mark(MoveState.FORWARD)), each.row["odata.etag"])
            for each in moves
        ]
        await self._send(self._old, moves[0].source.table, operations)

    async def _confirm(self, moves: Sequence[_Move]) -> None:
        operations = [
            Operation(Verb.REPLACE, {**each.stored, MOVE: each.mark(MoveState.CONFIRMED).to_text()}, each.etag)
            for each in moves
        ]
        await self._send(self._new, moves[0].target.table, operations)

    async def _send(self, schema: Schema, table: str, operations: Sequence[Operation]) -> Sequence[str | None]:
        return await send_operations(self._db, operations, table, name=schema.name, what=str(self._rekeying))

    # Of models with derived rows

    async def _insert_derived(self, moves: Sequence[_Move]) -> None:
        writes = [
            tentative_write(plain_insert(each.made), each.mark(MoveState.TENTATIVE), new_token()) for each in moves
        ]
        await self._commit(writes)
        for each in moves:
            row = state_of(each.made).row
            assert row is not None
            set_state(each.made, EntityState(stored=row_of_marker(self._new, row)))

    async def _leave_derived(self, moves: Sequence[_Move]) -> None:
        await self._commit([keeping_write(each.entity, each.row, each.target, each.token) for each in moves])

    async def _confirm_derived(self, moves: Sequence[_Move]) -> None:
        await self._commit([confirming_write(each.made, each.mark(MoveState.CONFIRMED)) for each in moves])

    async def _commit(self, writes: Sequence[PlannedWrite]) -> None:
        many = [msgspec.structs.replace(write, index=number) for number, write in enumerate(writes)]
        await commit(self._db, many, SendOptions(transaction=len(many) > 1))
