"""
`inspect_table`: models for a table that other programs have written.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable

from ..connection.connection import Connected, connection_of
from ..connection.tasks import work_off
from ..errors import AccessDenied, ModelError, shown
from ..inspection import Proposal, propose
from ..jobs.plan import MOST_RANGES, plan_ranges
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowQuery

_PARALLEL = 8
_ROWS_PER_RANGE = 50  # at least: rows of one partition have more in common than those of two


async def inspect_table(
    db: Connected,
    table: str,
    *,
    rows: int | None = None,
    on_progress: Callable[[int, float], None] | None = None,
) -> Proposal:
    """
    Read rows of a table that other programs have written, and return the text of a module of models for them. Nothing
    is written.

        print(await inspect_table(db, "Directory", rows=10_000))

    All rows are read, and held in memory together. With `rows` these are the first rows of evenly spread ranges
    of PartitionKeys. The names of all tables, if the client may list them, show whether each period has a table.

    Args:
        db: The open database.
        table: The name of the table.
        rows: About how many rows to read; None for all.
        on_progress: Called after each page with how many rows were read, and the share of the ranges that are done.

    Raises:
        ModelError: An argument is rejected, or the table has a name that no model can have.
        AccessDenied: The database is a scope.
        TableNotFound: There is no such table.
        TableOrmError: The store refused a request, or did not answer.
    """
    if rows is not None and (type(rows) is not int or rows < 1):
        raise ModelError(f"inspect_table({table!r}, rows={shown(rows)}) is rejected: give 1 or more")
    connection = connection_of(db)
    connection.require_whole_tables(f"inspect_table({table!r})")
    most = _PARALLEL if rows is None else max(1, min(MOST_RANGES, rows // _ROWS_PER_RANGE))
    ranges = await plan_ranges(connection, "inspect_table", [(table, ())], most=most, many=True)
    share = math.inf if rows is None else math.ceil(rows / len(ranges))
    found: list[list[Row]] = [[] for _ in ranges]
    done, whole = 0, True

    async def read(number: int) -> None:
        nonlocal done, whole
        own, continuation = found[number], None
        while True:
            size = int(min(MAX_PAGE, share - len(own)))
            query = RowQuery(ranges[number].partitions)
            page = await connection.read_page(f"inspect {table}", table, query, size, continuation)
            own += page.rows
            continuation = page.continuation
            if on_progress is not None:
                on_progress(sum(map(len, found)), done / len(ranges))
            if continuation is None or len(own) >= share:
                break
        done += 1
        whole = whole and continuation is None

    await work_off(read, range(len(ranges)), _PARALLEL)
    tables: list[str] = []
    with contextlib.suppress(AccessDenied):  # a token may be one for this table only
        tables = await connection.list_tables()
    # It takes seconds for 10,000 rows: other tasks go on meanwhile.
    return await asyncio.to_thread(propose, table, [row for some in found for row in some], whole=whole, tables=tables)
