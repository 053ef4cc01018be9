"""
The way back of a re-key: entities get their older keys again, with all that was written meanwhile.

It begins two minutes after phase *back*: by then every program knows that phase, in which nothing is inserted at a
newer key. The tentative row at the older key only ever replaces a row there, under its ETag, so that no late one can
bring back what was deleted since.
"""

from collections.abc import Iterable
from contextlib import suppress

from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts
from ..connection.rows import read_other, read_row, settle_forward, write_as_read
from ..errors import Conflict, LostRace
from ..models.kinds import KindSet, entity_kind_of
from ..models.marker_rows import MoveMark, MoveState, is_forward, is_marker, mark_of
from ..models.property_bag import bag_of_row
from ..models.write_tokens import new_token
from ..stores import Operation, Row, RowAddress, Verb, row_keys
from ..writes.commit import commit
from ..writes.move import leaving_write, tentative_write
from ..writes.move_entity import RELOCATION
from ..writes.relocation import LOST, entity_of_row
from ..writes.stages.change import guard_change, over_row, plain_insert
from ..writes.stages.encode import encode_surely
from .chunks import PlacedRow, WindowReport, each_row
from .rekeying import Rekeying
from .steps import collision, is_in_table, resolve_row, settled_row, source_of


async def roll_back_window(db: Connection, rekeying: Rekeying, rows: Iterable[Row]) -> WindowReport:
    """
    Give entities their older keys again, and free older keys whose entities were deleted.

    Args:
        db: Where the rows are.
        rekeying: The models.
        rows: Rows as they were just read: first those of the newer model, of any kind, then forwards and tentative
            rows of the older one. Other rows are passed over.
    """
    report, new, old = WindowReport(), rekeying.new, rekeying.old
    entities = KindSet.alone(new)
    newer: list[PlacedRow] = []
    older: list[PlacedRow] = []
    for row in rows:
        keys, marker = row_keys(row), is_marker(row)
        kind = entity_kind_of(row)
        if kind == new.kind if marker else entities.resolve(row) is not None:
            newer.append((RowAddress(new.table_name(), *keys), row))
        elif marker and kind == old.kind:
            older.append((RowAddress(old.table_name(), *keys), row))
    await each_row(report, newer, lambda place, row: _roll_back(db, rekeying, place, row))
    await each_row(report, older, lambda place, row: _free(db, rekeying, place, row))
    return report


async def _roll_back(db: Connection, rekeying: Rekeying, place: RowAddress, row: Row | None) -> bool:
    """Give the entity of a newer row its older key; return whether this call did."""
    begun = set[str]()
    async for attempt in Attempts(db):
        if attempt:
            row = await read_row(db, place)
        mark = mark_of(row)
        if row is None:
            return bool(begun)
        if mark is not None and mark.state is MoveState.FORWARD:
            if mark.stays or not is_in_table(rekeying.old, mark.other):
                raise _forged(rekeying, place)
            await RELOCATION.finish(db, mark.move, place, mark.other, rekeying.old)
            return True
        if mark is not None and mark.state is MoveState.TENTATIVE:
            await resolve_row(db, rekeying, place, row)
            continue
        entity = entity_of_row(rekeying.new, row)
        source = source_of(rekeying, entity)
        here = await read_row(db, source)
        if here is None:
            settled = Operation(Verb.INSERT, settled_row(rekeying, source, place))
            await write_as_read(db, source.table, [settled], name="", what=f"the forward {source}")
            continue
        if not await _may_replace(db, here, place):
            again = await read_row(db, place)
            if again is None or again["odata.etag"] != row["odata.etag"]:
                continue  # it has gone back between the two reads, or was written
            raise collision(rekeying, f", back: {place} cannot get its older key", source, "go back", entity)
        other = mark_of(here)
        if other is not None and other.state is MoveState.FORWARD and (mark is None or mark.move != other.move):
            found = mark_of(await read_row(db, place))  # after the forward, which may be of a later move than the row
            if found is None or found.move != other.move:
                await settle_forward(db, source, here)  # a program without tableorm has written the row
            continue
        if other is not None and other.state is MoveState.TENTATIVE:
            row = await read_row(db, place)  # after the tentative row was read, which may build on a newer one
            found = mark_of(row)
            if row is None or (found is not None and found.state is not MoveState.CONFIRMED):
                continue
            with suppress(*LOST):
                if other.etag == row["odata.etag"]:
                    touch = encode_surely(guard_change(bag_of_row(place.table, row)))  # so that the move never happens
                    await commit(db, (touch,))
                await RELOCATION.delete(db, source, here, other, settled_row(rekeying, source, place))
            continue
        move, etag = new_token(), row["odata.etag"]
        tentative = MoveMark(state=MoveState.TENTATIVE, move=move, other=place, etag=etag, stays=True)
        change = over_row(plain_insert(rekeying.to_old(entity)), here["odata.etag"])
        try:
            await commit(db, (tentative_write(change, tentative, new_token()),))
            begun.add(move)
            await commit(db, (leaving_write(entity, row, source, move),))
        except LOST:
            continue
        await RELOCATION.finish(db, move, place, source, rekeying.old)
        return True
    raise LostRace(f"{rekeying}, back, of {place}: others wrote its rows first, {ATTEMPTS} times in a row")


async def _may_replace(db: Connection, here: Row, place: RowAddress) -> bool:
    """Return whether the row at an older key is that of no other entity."""
    mark = mark_of(here)
    if mark is None or not is_marker(here):
        return False
    if mark.names(place):
        return True
    return mark.state is not MoveState.FORWARD and await read_other(db, mark.other) is None


async def _free(db: Connection, rekeying: Rekeying, place: RowAddress, row: Row | None) -> bool:
    """Delete a marker row at an older key whose entity is gone; return whether it is deleted."""
    mark = mark_of(row)
    if row is None:
        return False
    if mark is None:
        raise _forged(rekeying, place)
    there = await read_other(db, mark.other)  # after the row at the older key was read
    if there is not None:
        if mark.state is MoveState.TENTATIVE and is_forward(there, mark.move, place):
            await RELOCATION.finish(db, mark.move, mark.other, place, rekeying.old)
            return False
        if _comes_from(rekeying, there, mark.other, place):
            return False  # it goes back, or says why not, when it is read itself
        if mark.state is MoveState.FORWARD:
            raise _forged(rekeying, place)
    try:
        await RELOCATION.delete(db, place, row, mark if mark.state is MoveState.TENTATIVE else None)
    except LOST:
        return False
    return True


def _comes_from(rekeying: Rekeying, row: Row, at: RowAddress, place: RowAddress) -> bool:
    """Return whether a row is of an entity of the newer model, which had an older key, or is about to be one."""
    new = rekeying.new
    if not is_in_table(new, at):
        return False
    if is_marker(row):
        return entity_kind_of(row) == new.kind
    if KindSet.alone(new).resolve(row) is None:
        return False
    return source_of(rekeying, entity_of_row(new, row)) == place


def _forged(rekeying: Rekeying, place: RowAddress) -> Conflict:
    """Return the error of a marker row that no step of a re-key leaves."""
    return Conflict(
        f"{rekeying}, back: {place} is a marker row, and the row that it names is not of its entity; another program "
        "has written one of the two: delete the wrong one, and go back once more"
    )
