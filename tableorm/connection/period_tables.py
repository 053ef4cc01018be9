"""
Making the tables of periods: in time, or when a write finds that there is none.
"""

import asyncio
from collections.abc import Sequence

from ..models.periods import PeriodTables, is_of_period
from ..protocol.codes import Code, Fault
from ..stores import CLOCK, Operation, Verb
from .connection import Connection
from .tasks import take_error

_MAKE_ROWS = frozenset({Verb.INSERT, Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE})

NO_TABLE = frozenset({Code.TABLE_NOT_FOUND, Code.TABLE_BEING_DELETED})
"""What the store says of rows of a table that it does not have."""

# Source: Table service REST, "Delete Table": a deleted table is gone after 40 seconds at least.
_LONGEST_WAIT = 90.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_MOST_TRIES = 5


def is_absent(fault: Fault, table: str) -> bool:
    """Return whether a store refused to read a row because there is none, be it for want of the table of a period."""
    return fault.code == Code.RESOURCE_NOT_FOUND or (fault.code in NO_TABLE and is_of_period(table))


async def make_missing_table(
    db: Connection, table: str, operations: Sequence[Operation], fault: Fault, attempt: int
) -> None:
    """
    Make the table that a write did not find, if it is that of a period: then the write can be sent again. Writes that
    miss it at the same time make it once.

    Args:
        db: The connection.
        table: Name of the table.
        operations: What was to be written.
        fault: What the store said of that.
        attempt: Which attempt of the write it was, from 1.

    Raises:
        Fault: It is another table, or something else was wrong; the table cannot be made; or no operation makes rows,
            so that there is none to change.
    """
    if fault.code not in NO_TABLE or not is_of_period(table) or attempt >= _MOST_TRIES:
        raise fault
    if not any(operation.verb in _MAKE_ROWS for operation in operations):
        raise Fault(Code.RESOURCE_NOT_FOUND, f"There is no table {table!r}, so it has no such row.", 0) from fault
    task = db.tables_in_making.get(table)
    if task is None:
        task = db.tables_in_making[table] = asyncio.create_task(make_table(db, table))
        task.add_done_callback(lambda done: _forget(db, table, done))
    await asyncio.shield(task)


def _forget(db: Connection, table: str, done: "asyncio.Task[bool]") -> None:
    del db.tables_in_making[table]
    take_error(done)


async def make_table(db: Connection, table: str) -> bool:
    """
    Make the table of a period, after the table that had its name before is gone.

    Returns:
        Whether it was made; False if there is one.

    Raises:
        Fault: It may not be made, or the table before is still being deleted after a minute and a half.
    """
    waited, pause = 0.0, _FIRST_PAUSE
    while True:
        store, _ = db.sending("create-table", "")
        try:
            await store.create_table(table)
        except Fault as fault:
            if fault.code == Code.TABLE_EXISTS:
                return False
            if fault.code.startswith("Authorization"):
                raise Fault(
                    fault.code,
                    f"There is no table {table!r} for this period, and this client may not make it; let one that may "
                    f"call db.prepare_periods() in time. {fault.message}",
                ) from fault
            if fault.code != Code.TABLE_BEING_DELETED:
                raise
            if waited >= _LONGEST_WAIT:
                raise Fault(
                    fault.code,
                    f"The table {table!r} is still being deleted after {waited:.0f} seconds, so its period takes no "
                    "entities; write it again later.",
                ) from fault
        else:
            return True
        await asyncio.sleep(pause)
        waited, pause = waited + pause, min(2 * pause, _LONGEST_PAUSE)


def coming_tables(periods: PeriodTables, ahead: int) -> list[str]:
    """Return the names of the table of the present period and of the next ones; none if each number has a table."""
    if periods.numbered:
        return []
    names: list[str] = []
    start = periods.start_of(periods.name_of(periods.as_value(CLOCK.now())))
    while start is not None and len(names) <= ahead:
        names.append(periods.name_of(start))
        start = periods.end_of(start)
    return names


async def list_periods(db: Connection, periods: PeriodTables) -> list[str]:
    """Return the names of all tables of periods that there are, in order. Raises AccessDenied."""
    starts = sorted(start for name in await db.list_tables() if (start := periods.start_of(name)) is not None)
    return [periods.name_of(start) for start in starts]  # in one letter case, whoever made them
