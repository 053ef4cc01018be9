"""
Reading one row of a table, and writing rows as they were read.
"""

import datetime as dt
from collections.abc import Sequence

from msgspec import structs

from ..errors import AccessDenied, DecodeError, LostRace, TableNotFound, shown
from ..models.marker_rows import MoveState, is_forward, is_marker, mark_of
from ..models.reserved import MOVE
from ..protocol.codes import LOST_RACE, Code, Fault
from ..protocol.edm import datetime_from_text
from ..protocol.limits import check_key, check_table_name
from ..stores import Operation, Row, RowAddress, Verb, row_keys, unstamped
from .connection import Connection
from .period_tables import is_absent
from .translate import translate

MOST_LOOKS = 100
"""How often rows are read that others write between two reads. Programs do so a few times, a broken store always."""


async def read_row(
    db: Connection,
    address: RowAddress,
    select: tuple[str, ...] | None = None,
    name: str = "",
    purpose: object = None,
) -> Row | None:
    """
    Read a row as it is stored. It does not ask the boundary: whoever has made the keys has.

    Args:
        db: The database.
        address: Where the row is.
        select: The properties to read; None for all.
        name: The model or index that is read, for messages and counters; "" if none is.
        purpose: The write that needs the row, which messages name before the row; None if there is none.

    Returns:
        The row; None if there is none.

    Raises:
        TableNotFound: There is no such table.
    """
    store, counts = db.sending("get", name)
    try:
        row = await store.get(address.table, address.partition_key, address.row_key, select)
    except Fault as fault:
        if is_absent(fault, address.table):
            return None
        what = f"({address.partition_key!r}, {address.row_key!r})"
        if purpose is not None:
            what = f"{purpose}, which reads {what}"
        else:
            what = f"get of {name} {what}" if name else f"get of {what}"
        raise translate(fault, what, address.table) from None
    counts.rows += 1
    return row


def time_of(row: Row, name: str) -> dt.datetime:
    """
    Return when the service wrote a row.

    Args:
        row: The row.
        name: What it is, for the message.

    Raises:
        DecodeError: It does not say so, as a row of a damaged file.
    """
    try:
        return datetime_from_text(row["Timestamp"])
    except (ValueError, OverflowError):
        problem = f"has the Timestamp {shown(row['Timestamp'])}, which is no time; the store is damaged"
        raise DecodeError(problem, name, row_keys(row)) from None


def lost_look(what: str) -> LostRace:
    """Return the error of a read that found something else each time."""
    problem = f"get of {what}: others wrote the row between any two reads, {MOST_LOOKS} times in a row; try it again"
    return LostRace(problem, Code.CONDITION_NOT_SATISFIED)


class OtherDenied(AccessDenied):
    """The row that a mark names must not be read. That is a matter of this mark: it may be forged."""


async def read_other(db: Connection, other: RowAddress) -> Row | None:
    """
    Return the row that a mark names; None if there is none, or no row can be there, as a forged mark may say.

    Raises:
        OtherDenied: The credentials do not allow to read it.
    """
    if not is_place(other):
        return None
    try:
        return await read_row(db, other)
    except TableNotFound:
        return None
    except AccessDenied as error:
        raise OtherDenied(f"{error}; the mark of another row names it", error.code) from error


def is_place(address: RowAddress) -> bool:
    """Return whether a row can be at an address that a row of another writer names."""
    try:
        check_table_name(address.table)
        check_key("PartitionKey", address.partition_key)
        check_key("RowKey", address.row_key)
    except Fault:
        return False
    return True


async def _is_live(db: Connection, row: Row, place: RowAddress) -> bool:
    """Return whether a row is tentative and its move was committed, so that it is the row of the entity."""
    mark = mark_of(row)
    if mark is None or mark.state is not MoveState.TENTATIVE:
        return False
    return is_forward(await read_other(db, mark.other), mark.move, place)


async def read_live(db: Connection, address: RowAddress, name: str = "") -> Row | None:
    """
    Read a row that was found to be a marker row, and tell whether it is the row of an entity, of the model `name`.

    A tentative row is read again if its source is not its forward: the two reads are not one moment, and the move may
    have been completed between them.

    Returns:
        The row of an entity, or a tentative row that is one; None if there is no entity.

    Raises:
        LostRace: It was another tentative row each time.
    """
    before: str | None = None
    for _ in range(MOST_LOOKS):
        row = await read_row(db, address, name=name)
        if row is None or not is_marker(row):
            return row
        if await _is_live(db, row, address):
            return row
        mark = mark_of(row)
        gone = mark is None or mark.state.has_left
        if gone or row["odata.etag"] == before:
            return None
        before = row["odata.etag"]
    raise lost_look(str(address))


async def write_as_read(db: Connection, table: str, operations: Sequence[Operation], *, name: str, what: str) -> bool:
    """
    Write rows of one partition, each under the condition that it is as it was read.

    Args:
        db: Where the rows are.
        table: Name of the table.
        operations: The writes.
        name: Of which model or index the rows are, for counters; "" if of none.
        what: The first row, for messages: "the entry of Employee.by_city".

    Returns:
        Whether they were written. False if a row is not as it was read, or nobody knows what became of the request: the
        rows have to be read again.

    Raises:
        TableOrmError: The store refused it for another reason.
    """
    first = operations[0]
    store, _ = db.sending(first.verb if len(operations) == 1 else "transaction", name)
    try:
        await (store.write(table, first) if len(operations) == 1 else store.transact(table, operations))
    except Fault as fault:
        db.count_fault(fault)
        if fault.code in LOST_RACE or fault.transient:
            return False
        keys = first.row["PartitionKey"], first.row["RowKey"]
        raise translate(fault, f"{first.verb} of {what}, {keys}", table) from None
    return True


def delete_as_read(row: Row) -> Operation:
    """Return the delete of a row under the condition that it is as it was read."""
    return Operation(Verb.DELETE, {"PartitionKey": row["PartitionKey"], "RowKey": row["RowKey"]}, row["odata.etag"])


async def settle_forward(db: Connection, place: RowAddress, row: Row, other: RowAddress | None = None) -> bool:
    """
    Replace a forward that stays by one that names no move, unless it has changed; return whether it was replaced.

    Args:
        db: Where it is.
        place: Where it is.
        row: The forward.
        other: Where the entity of that older key is to be; None for where the forward says.
    """
    mark = mark_of(row)
    assert mark is not None
    settled = structs.replace(mark, state=MoveState.SETTLED, move="", other=other or mark.other)
    operation = Operation(Verb.REPLACE, {**unstamped(row), MOVE: settled.to_text()}, row["odata.etag"])
    return await write_as_read(db, place.table, [operation], name="", what=f"the forward {place}")
