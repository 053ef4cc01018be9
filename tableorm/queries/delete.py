"""
Deleting what a query finds.
"""

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

from ..errors import DecodeError
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..stores import Row
from ..writes.bulk.bulk import Bulk, delete_found, report_kept
from ..writes.bulk.report import BulkReport
from .prefetch import FetchedPage
from .run import QueryExecution

__all__ = ["delete_entities", "delete_rows"]

_PART = 100  # index entries whose primaries are read at the same time


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
            for row in page.rows:
                try:
                    found = run.wanted != 0 and bool(run.apply_filters(page.request, [row]))
                    change = _delete_call(bulk, run, row, if_match) if found else None
                except Exception as error:  # noqa: BLE001  # what a row or a discriminator raises stops no other row
                    report_kept(bulk, _key(PropertyBag, run, row), error)
                    continue
                if change is not None:
                    await change
                    if run.wanted is not None:
                        run.wanted -= 1
    return bulk.report


def _key(model: type[Any], run: QueryExecution, row: Row) -> Key[Any]:
    return Key(model, run.plan.target.table, row["PartitionKey"], row["RowKey"])


def _delete_call(bulk: Bulk, run: QueryExecution, row: Row, if_match: str | None) -> Coroutine[Any, Any, None] | None:
    """Return the call that deletes a row; None if it is not a result of the query."""
    kinds = run.plan.target.kinds
    resolved = kinds.resolve(row)
    if resolved is None and (not kinds.bags or kinds.derives(row)):
        return None
    key = _key(PropertyBag if resolved is None else resolved[0].model, run, row)
    # The maintained fields of an entity of an older version may have other names: it is read in full.
    older = resolved is not None and resolved[1] < resolved[0].version and bool(resolved[0].maintained)
    if if_match is None and not older:
        return delete_found(bulk, key, row)
    return bulk.delete(key, if_match=if_match or row["odata.etag"])


async def delete_entities(
    bulk: Bulk, run: QueryExecution, pages: AsyncGenerator[FetchedPage, None], if_match: str | None
) -> BulkReport:
    """
    Delete the entities whose index entries a query finds, if they are as their entries say.

    Args:
        bulk: What deletes them, not yet open.
        run: The query, of which `run.wanted` entities are deleted.
        pages: The pages of its index entries.
        if_match: "*" deletes them whatever became of them.
    """
    async with bulk, aclosing(pages):
        async for page in pages:
            for start in range(0, len(page.rows), _PART):
                for entity in await _load(bulk, run, page, page.rows[start : start + _PART]):
                    if run.wanted == 0:
                        break
                    await bulk.delete(entity, if_match=if_match)
                    if run.wanted is not None:
                        run.wanted -= 1
    return bulk.report


async def _load(bulk: Bulk, run: QueryExecution, page: FetchedPage, rows: list[Row]) -> list[Any]:
    """Return the entities of index entries, without those that cannot be read, which are reported."""
    if run.wanted == 0:
        return []
    try:
        return await run.load_rows(page.request, rows)
    except DecodeError as error:
        if len(rows) == 1:
            report_kept(bulk, _key(PropertyBag, run, rows[0]), error)
            return []
    return [entity for row in rows for entity in await _load(bulk, run, page, [row])]
