"""
Reading rows page by page; the next page is on its way while one is worked on.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

import attrs

from ..connection.connection import Connection
from ..connection.tasks import stop_tasks
from ..keys.ranges import KeyRegion
from ..models.kinds import KindSet, filter_of_kinds
from ..models.schema import Schema
from ..protocol.filters import Filter, Or
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowPage, RowQuery
from ..writes.bulk.pacing import Pace
from .counts import JobCounts
from .ranges import JobRange

C = TypeVar("C", bound=JobCounts)

Steps = AsyncGenerator[tuple[JobRange, C], None]
"""Work on a range: how far it is, and what was counted since, again and again."""


async def pages(
    db: Connection,
    table: str,
    where: Filter | None,
    regions: Sequence[KeyRegion],
    counts: JobCounts | None,
    what: str,
    pace: Pace | None = None,
    select: tuple[str, ...] | None = None,
    *,
    ahead: bool = True,
    kinds: KindSet | None = None,
) -> AsyncGenerator[list[Row], None]:
    """
    Yield the rows of some ranges of keys, by pages.

    Args:
        db: The open database.
        table: Name of the table.
        where: The condition that the rows satisfy; None for all rows.
        regions: The ranges.
        counts: Counts the requests; None if nothing does.
        what: Name of the operation, for messages.
        pace: Limits how many rows are read in a second; None for any number.
        select: The properties to read; None for all.
        ahead: Whether the next page is read while one is worked on. Many readers that wait for each other would hold as
            many pages.
        kinds: The models whose entities are read, so that the rows of each are joined; None for rows as they are
            stored.

    Raises:
        TableOrmError: The store refused.
    """
    size = MAX_PAGE if pace is None else pace.chunk
    if kinds is not None:
        db.used_models.add(*kinds.schemas)

    async def fetch(query: RowQuery, continuation: str | None) -> RowPage:
        if counts is not None:
            counts.requests += 1
        return await db.read_page(what, table, query, size, continuation, model="" if kinds is None else kinds.names)

    for region in regions:
        query = RowQuery(region.partition, region.row, where, select)
        task: asyncio.Task[RowPage] | None = asyncio.create_task(fetch(query, None))
        try:
            while task is not None:
                found = [await task]
                following = found[0].continuation
                if pace is not None:
                    await pace.wait(len(found[0].rows))
                task = asyncio.create_task(fetch(query, following)) if following is not None and ahead else None
                yield found.pop().rows  # which nothing here holds while they are worked on
                if following is not None and not ahead:
                    task = asyncio.create_task(fetch(query, following))
        finally:
            await stop_tasks([task])


async def walk(
    db: Connection,
    part: JobRange,
    where: Filter | None,
    deal: Callable[[list[Row]], Awaitable[object]],
    counts: C,
    what: str,
    pace: Pace | None,
    select: tuple[str, ...] | None = None,
    *,
    kinds: KindSet | None = None,
) -> Steps[C]:
    """
    Deal with the rows of a range, page by page. Yield how far it is, and what was counted since.

    Args:
        db: The open database.
        part: The range, without what is done of it.
        where: The condition that the rows satisfy; None for all rows.
        deal: Deals with the rows of a page.
        counts: Where that counts.
        what: Name of the operation, for messages.
        pace: Limits how many rows are read in a second; None for any number.
        select: The properties to read; None for all.
        kinds: As `pages` has it.
    """
    async with aclosing(pages(db, part.table, where, part.left, counts, what, pace, select, kinds=kinds)) as found:
        async for rows in found:
            await deal(rows)
            # Where rows come in no order, a range that was not read to its end is read again from its beginning.
            if rows and db.store.capabilities.ordered:
                part = part.up_to(rows[-1])
                yield part, counts.take()
    yield attrs.evolve(part, done=True), counts.take()


def partition_start(rows: Sequence[Row], before: str | None) -> int | None:
    """
    Return the position at which the last partition of some rows in key order begins; None if no other is before it.

    Args:
        rows: The rows.
        before: The PartitionKey of the row before them; None if there is none.
    """
    last = rows[-1]["PartitionKey"]
    for number in range(len(rows) - 1, 0, -1):
        if rows[number - 1]["PartitionKey"] != last:
            return number
    return 0 if before is not None and before != last else None


def family_filter(kinds: KindSet, guests: Sequence[Schema] = (), *, markers: bool = False) -> Filter | None:
    """
    Return the condition that the rows of entities, and all rows derived from them, satisfy: their kinds are `Employee`
    or `Employee#by_email`, with or without a version behind a colon. None if properties do not tell.

    Args:
        kinds: The models of one table.
        guests: Models of other tables, of which derived rows are in this one.
        markers: Whether marker rows that are of no model, such as decision rows, satisfy it too.
    """
    if kinds.schemas and kinds.filter is None:
        return None
    terms: list[Filter] = [filter_of_kinds(str(schema.kind), f"{schema.kind};") for schema in kinds.schemas]
    terms += [filter_of_kinds(f"{schema.kind}#", f"{schema.kind}$") for schema in guests]
    if markers:
        terms.append(filter_of_kinds("#_", "#`"))
    return terms[0] if len(terms) == 1 else Or(tuple(terms))
