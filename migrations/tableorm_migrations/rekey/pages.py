"""
What steps of an offline re-key have in common: they delete entities that they have read.
"""

from collections.abc import Iterable

from tableorm import Conflict, Database, EntityNotFound, Key
from tableorm.jobs.counts import JobCounts
from tableorm.models.schema import Schema
from tableorm.stores import Row
from tableorm.writes.bulk.bulk import delete_found


async def delete_rows(db: Database, schema: Schema, rows: Iterable[Row], counts: JobCounts) -> None:
    """
    Delete the entities of some rows, and what is derived from them, if the rows are still as they were read.

    Args:
        db: Where the rows are.
        schema: The model of the entities.
        rows: The rows; one may come twice.
        counts: Counts those that were deleted as `written`, and as failures those that were not; one that is gone is
            neither.
    """
    table = schema.table_name()
    by_key = {Key(schema.model, table, row["PartitionKey"], row["RowKey"]): row for row in rows}
    async with db.bulk(errors="report") as bulk:
        for key, row in by_key.items():
            await delete_found(bulk, key, row)
    for each in bulk.report.failed:
        if not isinstance(each.error, EntityNotFound):
            changed = isinstance(each.error, Conflict)
            counts.fail(each.entity, "was written meanwhile, and stays" if changed else str(each.error))
    counts.written += len(by_key) - bulk.report.failures
    counts.count("transactions", bulk.report.requests)
