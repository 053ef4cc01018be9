"""
What steps of an offline re-key have in common: they go through a range page by page, and delete what they have read.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing

import attrs

from tableorm import Conflict, Database, EntityNotFound, Key
from tableorm.audit.ranges import AuditRange
from tableorm.audit.scan import pages
from tableorm.connection.connection import connection_of
from tableorm.models.kinds import KindSet
from tableorm.models.schema import Schema
from tableorm.stores import Row
from tableorm.writes.bulk.bulk import delete_found
from tableorm.writes.bulk.pacing import Pace

from ..runs.process import RunSteps
from ..runs.rows import RunCounts
from .window import PageBatch, work_in_batches

__all__ = ["delete_rows", "work_by_pages"]


async def work_by_pages(
    verb: str,
    db: Database,
    kinds: KindSet,
    part: AuditRange,
    pace: Pace | None,
    deal: Callable[[list[Row]], Awaitable[RunCounts]],
) -> RunSteps:
    """
    Deal with the rows of a range, page by page.

    Args:
        verb: Name of the function that was called.
        db: Where the rows are.
        kinds: The models of the rows that are read.
        part: The range.
        pace: Limits how many rows are read in a second; None for any number.
        deal: Deals with the rows of a page, and returns what was counted.
    """
    found = pages(connection_of(db), part.table, kinds.filter, part.left, None, verb, pace)
    batches = work_in_batches(part, found, PageBatch(deal), ordered=db.store.capabilities.ordered)
    async with aclosing(batches) as steps:
        async for step in steps:
            yield step


async def delete_rows(db: Database, schema: Schema, rows: Iterable[Row]) -> RunCounts:
    """
    Delete the entities of some rows, and what is derived from them, if the rows are still as they were read.

    Args:
        db: Where the rows are.
        schema: The model of the entities.
        rows: The rows; one may come twice.

    Returns:
        Those that were deleted as `written`, and as failures those that were not; one that is gone is neither.
    """
    table = schema.table_name()
    by_key = {Key(schema.model, table, row["PartitionKey"], row["RowKey"]): row for row in rows}
    async with db.bulk(errors="report") as bulk:
        for key, row in by_key.items():
            await delete_found(bulk, key, row)
    failures = [
        f"{each.entity}: {'was written meanwhile, and stays' if isinstance(each.error, Conflict) else each.error}"
        for each in bulk.report.failed
        if not isinstance(each.error, EntityNotFound)
    ]
    deleted = len(by_key) - bulk.report.failures
    counts = RunCounts.of(entities=0, written=deleted, failed=len(failures), failures=failures)
    return attrs.evolve(counts, others={"transactions": bulk.report.requests})
