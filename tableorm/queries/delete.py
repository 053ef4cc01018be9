"""
Deleting what a query finds.
"""

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..models.visibility import is_live
from ..stores import Row, utc_now
from ..writes.bulk.bulk import Bulk, delete_found, report_kept
from ..writes.bulk.report import BulkReport
from .execution import FetchedPage
from .misfits import Misfit
from .run import apply_filters, find_nearby, load_rows

_PART = 100  # index entries whose primaries are read at the same time


async def delete_results(bulk: Bulk, pages: AsyncGenerator[FetchedPage, None], if_match: str | None) -> BulkReport:
    """
    Delete what a query finds: its rows, or the entities whose index entries it finds, if they are as their entries say.

    Args:
        bulk: What deletes them, not yet open.
        pages: The pages of its rows, each with the query, of which `run.wanted` entities are deleted.
        if_match: "*" deletes them whatever became of them; None those that are still as they were found.
    """
    async with bulk, aclosing(pages):
        async for page in pages:
            delete = _delete_rows if page.run.plan.target.primaries is None else _delete_entities
            await delete(bulk, page, if_match)
    return bulk.report


async def _delete_rows(bulk: Bulk, page: FetchedPage, if_match: str | None) -> None:
    run = page.run
    for row in page.rows:
        try:
            found = run.wanted != 0 and bool(apply_filters(page.request, [row]))
            change = delete_call(bulk, run.plan.target.kinds, row, if_match) if found else None
        except Exception as error:  # noqa: BLE001  # what a row or a discriminator raises stops no other row
            report_kept(bulk, _key(PropertyBag, run.plan.target.kinds, row), error)
            continue
        if change is not None:
            await change
            if run.wanted is not None:
                run.wanted -= 1


def _key(model: type[Any], kinds: KindSet, row: Row) -> Key[Any]:
    return Key(model, kinds.table, row["PartitionKey"], row["RowKey"])


def needs_whole_rows(kinds: KindSet) -> bool:
    """Return whether rows of these kinds must be read in full to be deleted by `delete_call`."""
    # What a manifest says is compared with the fields, of which any may count; and so may they for an upgrade.
    return any(schema.tracked or (schema.expiry is not None and schema.version > 1) for schema in kinds.schemas)


def delete_call(
    bulk: Bulk, kinds: KindSet, row: Row, if_match: str | None = None, *, expired: bool = False
) -> Coroutine[Any, Any, None] | None:
    """
    Return the call that deletes a row; None if the row is not of these kinds.

    Args:
        bulk: What deletes it.
        kinds: The kinds. Of those whose entities expire only the entities that have not are deleted.
        row: The row, with its keys and what tells its kind; in full if `needs_whole_rows` says so.
        if_match: "*" deletes the row whatever became of it; None if it is still as it was found.
        expired: Whether the entities that have expired are deleted instead, and no others.

    Raises:
        DecodeError: The keys of the row do not fit its model, so that nobody knows whether the conditions hold; or
            something else does not, so that nobody knows whether its entity has expired.
    """
    resolved = kinds.resolve(row)
    if resolved is None and (not kinds.bags or kinds.derives(row)):
        return None
    if resolved is not None and resolved[0].expiry is not None and _has_expired(kinds, *resolved, row) is not expired:
        return None
    if resolved is not None:
        resolved[0].decode_part(row, frozenset())  # conditions may be about keys, which are not as those of the model
        row = resolved[0].unseal(row)
    key = _key(PropertyBag if resolved is None else resolved[0].model, kinds, row)
    # The maintained fields of an entity of an older version may have other names: it is read in full.
    older = resolved is not None and resolved[1] < resolved[0].version and bool(resolved[0].maintained)
    if if_match is None and not older:
        return delete_found(bulk, key, row)
    return bulk.delete(key, if_match=if_match or row["odata.etag"])


def _has_expired(kinds: KindSet, schema: Schema, version: int, row: Row) -> bool:
    assert schema.expiry is not None
    old = version < schema.version
    entity = kinds.load(row.copy()) if old else schema.decode_part(row, frozenset((schema.expiry.name,)))
    return not is_live(entity, utc_now())


async def _delete_entities(bulk: Bulk, page: FetchedPage, if_match: str | None) -> None:
    run = page.run

    def report(misfit: Misfit) -> bool:
        report_kept(bulk, Key(PropertyBag, run.plan.target.kinds.table, *misfit.position), misfit.error)
        return True

    run.take_misfit = report
    await find_nearby(run, page.request, page.rows if run.wanted is None else page.rows[: run.wanted])
    for start in range(0, len(page.rows), _PART):
        if run.wanted == 0:
            break
        for entity in await load_rows(run, page.request, page.rows[start : start + _PART]):
            if run.wanted == 0:
                break
            await bulk.delete(entity, if_match=if_match)
            if run.wanted is not None:
                run.wanted -= 1
