"""
The mover of a re-key: many entities get their newer keys, in transactions where rows share a partition.

Each of the three steps is done for all rows before the next one. What a transaction refuses is tried row by row, and
what fails there goes through the steps for one entity, which find out why.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec

from ..connection.connection import Connection
from ..connection.tasks import work_off
from ..errors import TableOrmError
from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.marker_rows import (
    MoveMark,
    MoveState,
    is_kept_whole,
    is_marker,
    kept_row,
    mark_of,
    row_of_marker,
    tentative_kind,
)
from ..models.reserved import ENTITY_TYPE, MANIFEST, MOVE, WRITE_TOKENS
from ..models.schema import Schema
from ..models.state import EntityState, set_state, state_of
from ..models.write_tokens import new_token
from ..protocol.limits import MAX_TRANSACTION_OPERATIONS
from ..stores import Operation, Row, RowAddress, Verb
from ..writes.commit import commit
from ..writes.move import confirming_write, leaving_write, tentative_write
from ..writes.move_entity import RELOCATION
from ..writes.plan import PlannedWrite, SendOptions
from ..writes.stages.change import plain_insert
from .chunks import PlacedRow, RowFailure, WindowReport, each_row, in_chunks, send_operations
from .rekeying import Rekeying
from .steps import move_row, target_of

_AT_LEAST = 1_000
"""How many moves wait at least, before those of one partition are sent in fewer than a transaction has room for."""

_CHANGED = ("PartitionKey", "RowKey", ENTITY_TYPE, WRITE_TOKENS)
"""The properties of a row that the last two steps need: its keys, and what their merge writes besides the mark."""


class _Move(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """
    The move of one entity.

    Args:
        source: Where it is by the older model.
        target: Where it will be.
        token: The id of the move.
        before: The ETag of its row at the older key.
        row: That row; what a merge needs of it, once the tentative row is inserted.
        stored: Its row at the newer key, as it will be when it is confirmed, without ETag; then what a merge needs.
        entity: The entity by the older model, as long as it is needed.
        made: The entity by the newer model, as long as it is needed.
        etag: The ETag of the tentative row.
        merges_old: Whether a merge makes the forward of the row.
        merges_new: Whether a merge makes the confirmed row of the tentative one.
    """

    source: RowAddress
    target: RowAddress
    token: str
    before: str
    row: Row
    stored: Row = {}
    entity: Entity | None
    made: Entity | None
    etag: str = ""
    merges_old: bool = False
    merges_new: bool = False

    def mark(self, state: MoveState) -> MoveMark:
        """Return the mark of a row of the move."""
        other = self.target if state is MoveState.FORWARD else self.source
        return MoveMark(state=state, move=self.token, other=other, etag=self.before, stays=True)

    def shrink(self) -> None:
        """Forget what a move of models without derived rows does not need once the tentative row is inserted."""
        self.entity = self.made = None
        self.merges_old = is_kept_whole(self.row)
        if self.merges_old:
            self.row = _changed_of(self.row)
        self.merges_new = ENTITY_TYPE in self.stored  # a merge removes nothing: a tentative row has a kind
        if self.merges_new:
            self.stored = _changed_of(self.stored)


def _changed_of(row: Row) -> Row:
    return {name: row[name] for name in _CHANGED if name in row}


async def move_window(db: Connection, rekeying: Rekeying, rows: Iterable[Row]) -> WindowReport:
    """
    Give entities their newer keys.

    Args:
        db: Where the rows are.
        rekeying: The models.
        rows: Rows of the table of the older model as they were just read. Those that are no entities of that model, or
            are moved already, are passed over. Each is asked for when it is dealt with; those that get one newer
            partition share transactions if they are near each other.

    Raises:
        TableNotFound: The table of the newer model is missing.
        AccessDenied: Not permitted.
        Unavailable: The store cannot be reached.
    """
    report = WindowReport()
    alone: list[PlacedRow] = []
    moves = _find_moves(rekeying, rows, report, alone)
    left = await _Mover(db, rekeying, report).run(moves)
    await each_row(report, alone + left, lambda place, row: move_row(db, rekeying, place, row))
    return report


def _find_moves(
    rekeying: Rekeying, rows: Iterable[Row], report: WindowReport, alone: list[PlacedRow]
) -> Iterator[_Move]:
    """Yield the moves of entities; add rows that need a closer look to those that are dealt with alone."""
    old = rekeying.old
    kinds = KindSet.alone(old)
    targets = set[RowAddress]()
    for row in rows:
        source = RowAddress.of_row(kinds.table, row)
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
        if target in targets:
            alone.append((source, row))
            continue
        targets.add(target)
        yield _Move(
            source=source,
            target=target,
            token=new_token(),
            before=row["odata.etag"],
            row=row,
            entity=entity,
            made=made,
        )


def _by_transaction(moves: Iterable[_Move], size: int) -> Iterator[list[_Move]]:
    """
    Yield moves to one partition each, at most so many. Few are held meanwhile: those of a partition that come late are
    another transaction.
    """
    groups: dict[str, list[_Move]] = {}
    waiting = 0
    for each in moves:
        group = groups.setdefault(each.target.partition_key, [])
        group.append(each)
        waiting += 1
        if len(group) == size:
            yield groups.pop(each.target.partition_key)
            waiting -= size
        elif waiting >= _AT_LEAST:
            for other in [partition for partition in groups if partition != each.target.partition_key]:
                yield groups.pop(other)
            waiting = len(groups.get(each.target.partition_key, ()))
    yield from groups.values()


_Step = Callable[[Sequence[_Move]], Awaitable[None]]

_source_of, _target_of = attrgetter("source"), attrgetter("target")
_source_order = attrgetter("source.partition_key", "source.row_key")


class _Mover:
    """
    The steps of many moves.

    Args:
        db: Where the rows are.
        rekeying: The models.
        report: Gets the numbers.
    """

    def __init__(self, db: Connection, rekeying: Rekeying, report: WindowReport) -> None:
        self._db, self._rekeying, self._report = db, rekeying, report
        self._new, self._old = rekeying.new, rekeying.old
        own = [sum(each.own_rows(None) for each in schema.derived.values()) for schema in (self._new, self._old)]
        self._size = MAX_TRANSACTION_OPERATIONS // (1 + max(own))
        self._derives = bool(self._new.derived or self._old.derived)

    async def run(self, moves: Iterable[_Move]) -> list[PlacedRow]:
        """Do all steps; return the places of the older rows of which one failed, with no row: it is to be read."""
        inserted, refused = list[_Move](), list[PlacedRow]()

        async def insert(group: list[_Move]) -> None:
            for some, step in zip(self._split(group), (self._insert, self._insert_derived), strict=True):
                done = await in_chunks(self._report, some, _target_of, step, self._size)
                known = set(map(id, done))
                refused.extend((each.source, None) for each in some if id(each) not in known)
                inserted.extend(done)

        await work_off(insert, _by_transaction(moves, self._size))
        inserted.sort(key=_source_order)  # they came in any order
        left = await self._do(inserted, _source_of, self._leave, self._leave_derived)
        begun = {each.token for each in left}
        for each in inserted:
            if each.token not in begun:
                refused.append((each.source, None))
                await RELOCATION.resolve(self._db, each.target, self._new)
        done = await self._do(left, _target_of, self._confirm, self._confirm_derived)
        confirmed = {each.token for each in done}
        unconfirmed = {each.source: each for each in left if each.token not in confirmed}

        async def finish(place: RowAddress, _: Row | None) -> bool:
            each = unconfirmed[place]
            await RELOCATION.finish(self._db, each.token, each.source, each.target, self._new)
            return False

        self._report.moved += len(left)
        await each_row(self._report, [(place, None) for place in unconfirmed], finish)
        return refused

    async def _do(
        self, moves: Sequence[_Move], place: Callable[[_Move], RowAddress], plain: _Step, derived: _Step
    ) -> list[_Move]:
        """Do a step of moves, and return those of which it succeeded."""
        done: list[_Move] = []
        for some, step in zip(self._split(moves), (plain, derived), strict=True):
            done += await in_chunks(self._report, some, place, step, self._size)
        return done

    def _split(self, moves: Sequence[_Move]) -> tuple[Sequence[_Move], Sequence[_Move]]:
        """Return the moves from which nothing is derived, and the others."""
        if self._derives:
            return [], moves
        derived = [each for each in moves if MANIFEST in each.row]
        return [each for each in moves if MANIFEST not in each.row] if derived else moves, derived

    # Of models without derived rows, without what derives them

    async def _insert(self, moves: Sequence[_Move]) -> None:
        operations: list[Operation] = []
        for each in moves:
            target, made = each.target, each.made
            assert made is not None
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
            each.shrink()

    async def _leave(self, moves: Sequence[_Move]) -> None:
        operations = [
            Operation(
                Verb.MERGE if each.merges_old else Verb.REPLACE,
                kept_row(self._old, each.row, each.mark(MoveState.FORWARD)),
                each.before,
            )
            for each in moves
        ]
        await self._send(self._old, moves[0].source.table, operations)

    async def _confirm(self, moves: Sequence[_Move]) -> None:
        operations = [
            Operation(
                Verb.MERGE if each.merges_new else Verb.REPLACE,
                {**each.stored, MOVE: each.mark(MoveState.CONFIRMED).to_text()},
                each.etag,
            )
            for each in moves
        ]
        await self._send(self._new, moves[0].target.table, operations)

    async def _send(self, schema: Schema, table: str, operations: Sequence[Operation]) -> Sequence[str | None]:
        return await send_operations(self._db, operations, table, name=schema.name, what=str(self._rekeying))

    # Of models with derived rows

    async def _insert_derived(self, moves: Sequence[_Move]) -> None:
        writes = [
            tentative_write(plain_insert(_made_of(each)), each.mark(MoveState.TENTATIVE), new_token()) for each in moves
        ]
        await self._commit(writes)
        for each in moves:
            made = _made_of(each)
            row = state_of(made).row
            assert row is not None
            set_state(made, EntityState(stored=row_of_marker(self._new, row)))

    async def _leave_derived(self, moves: Sequence[_Move]) -> None:
        writes: list[PlannedWrite] = []
        for each in moves:
            assert each.entity is not None
            writes.append(leaving_write(each.entity, each.row, each.target, each.token, stays=True))
        await self._commit(writes)

    async def _confirm_derived(self, moves: Sequence[_Move]) -> None:
        await self._commit([confirming_write(_made_of(each), each.mark(MoveState.CONFIRMED)) for each in moves])

    async def _commit(self, writes: Sequence[PlannedWrite]) -> None:
        many = [msgspec.structs.replace(write, index=number) for number, write in enumerate(writes)]
        await commit(self._db, many, SendOptions(transaction=len(many) > 1))


def _made_of(move: _Move) -> Entity:
    assert move.made is not None
    return move.made
