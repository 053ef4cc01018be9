"""
The end of a re-key: forwards are deleted, after everything has its newer key and nobody knows the older model any more.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter

from ..connection.connection import Connection
from ..connection.races import Attempts
from ..connection.rows import delete_as_read, read_other, read_row
from ..errors import DecodeError, LostRace, TableOrmError
from ..models.kinds import entity_kind_of
from ..models.marker_rows import MoveState, is_marker, mark_of
from ..protocol.limits import MAX_TRANSACTION_OPERATIONS
from ..stores import Row, RowAddress
from .chunks import PlacedRow, RowFailure, WindowReport, each_row, in_chunks, send_operations
from .rekeying import Rekeying
from .steps import resolve_row


async def finalize_window(
    db: Connection, rekeying: Rekeying, rows: Iterable[Row], *, confirmed: bool = False
) -> WindowReport:
    """
    Delete forwards of the older model. Only in phase *sealed*, in which nothing but their entities follows them.

    Args:
        db: Where the rows are.
        rekeying: The models.
        rows: Rows of the table of the older model as they were just read; those that are no forwards are passed over.
        confirmed: Whether no tentative row of the newer model was found since the re-key was sealed; otherwise the row
            that each forward names is read, and confirmed if it is tentative.
    """
    report, table = WindowReport(), rekeying.old.table_name()
    forwards: list[tuple[RowAddress, Row]] = []
    for row in rows:
        place = RowAddress.of_row(table, row)
        try:
            if _is_forward(rekeying, row):
                forwards.append((place, row))
        except DecodeError as error:
            report.failures.append(RowFailure(place, error))

    async def confirm(_: RowAddress, row: Row | None) -> bool:
        mark = mark_of(row)
        if mark is not None and mark.state is MoveState.FORWARD:
            await resolve_row(db, rekeying, mark.other, await read_other(db, mark.other))
        return False

    if not confirmed:
        await each_row(report, forwards, confirm)
        failed = {failure.place for failure in report.failures}
        forwards = [each for each in forwards if each[0] not in failed]

    async def delete(chunk: Sequence[tuple[RowAddress, Row]]) -> None:
        operations = [delete_as_read(row) for _, row in chunk]
        await send_operations(db, operations, table, name=rekeying.old.name, what=f"end of the {rekeying}")

    done = await in_chunks(report, forwards, itemgetter(0), delete, MAX_TRANSACTION_OPERATIONS)
    report.moved += len(done)
    gone = {place for place, _ in done}
    left: list[PlacedRow] = [(place, None) for place, _ in forwards if place not in gone]

    async def delete_again(place: RowAddress, row: Row | None) -> bool:
        last: TableOrmError | None = None
        async for _ in Attempts(db):
            row = await read_row(db, place)
            if row is None or not _is_forward(rekeying, row):
                return row is None
            await confirm(place, row)
            try:
                await delete([(place, row)])
            except TableOrmError as error:
                last = error
            else:
                return True
        raise LostRace(f"{rekeying}: the forward {place} cannot be deleted; try it again") from last

    await each_row(report, left, delete_again)
    return report


def _is_forward(rekeying: Rekeying, row: Row) -> bool:
    mark = mark_of(row) if is_marker(row) else None
    return mark is not None and mark.state.has_left and entity_kind_of(row) == rekeying.old.kind
