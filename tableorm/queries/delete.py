"""
Deleting what a query finds.
"""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from typing import Any

from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..stores import Row
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.report import BulkReport
from .run import FetchedPage, QueryExecution

__all__ = ["delete_entities", "delete_rows"]


async def delete_rows(
    bulk: Bulk, run: QueryExecution, pages: AsyncGenerator[FetchedPage, None], if_match: str | None
) -> BulkReport:
    """
    Delete the rows that a query finds.

    Args:
        bulk: What deletes them, not yet open.
        run: The query, of which `run.wanted` rows are deleted.
        pages: The pages of its rows.
        if_match: "*" deletes the rows whatever became of them; None those that are still as they were found.
    """
    async with bulk, aclosing(pages):
        async for page in pages:
            for row in run.apply_filters(page.request, page.rows):
                if run.wanted != 0 and await _delete_row(bulk, run, row, if_match) and run.wanted is not None:
                    run.wanted -= 1
    return bulk.report


async def _delete_row(bulk: Bulk, run: QueryExecution, row: Row, if_match: str | None) -> bool:
    """Delete a row; return False if it is not a result of the query."""
    kinds = run.plan.target.kinds
    resolved = kinds.resolve(row)
    if resolved is None and (not kinds.bags or kinds.derives(row)):
        return False
    model = PropertyBag if resolved is None else resolved[0].model
    key: Key[Any] = Key(model, kinds.table, row["PartitionKey"], row["RowKey"])
    # The maintained fields of an entity of an older version may have other names: it is read in full.
    older = resolved is not None and resolved[1] < resolved[0].version and bool(resolved[0].maintained)
    if if_match is None and not older:
        await bulk.delete_found(key, row)
    else:
        await bulk.delete(key, if_match=if_match or row["odata.etag"])
    return True


async def delete_entities(bulk: Bulk, entities: AsyncIterable[Any], if_match: str | None) -> BulkReport:
    """
    Delete the entities whose index entries a query finds, if they are as their entries say.

    Args:
        bulk: What deletes them, not yet open.
        entities: The entities.
        if_match: "*" deletes them whatever became of them.
    """
    async with bulk:
        async for entity in entities:
            await bulk.delete(entity, if_match=if_match)
    return bulk.report
