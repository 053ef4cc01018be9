"""
The jobs of an online re-key: all rows of one table, and then of the other, are read by pages and dealt with.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial

import attrs

from tableorm import DecodeError
from tableorm.audit.ranges import AuditRange
from tableorm.audit.scan import pages
from tableorm.models.kinds import KindSet
from tableorm.models.marker_rows import FORWARD, TENTATIVE, is_marker
from tableorm.models.reserved import ENTITY_TYPE
from tableorm.models.schema import Schema
from tableorm.protocol.filters import Filter
from tableorm.rekey.report import WindowReport
from tableorm.stores import Row
from tableorm.writes.bulk.pacing import Pace

from ..runs.plan import plan_ranges
from ..runs.process import Job, RunSteps
from ..runs.rows import RunCounts
from .phases import OnlineRekey
from .window import CHUNK, MOST_RANGES, ROWS, WINDOW, Batch, PageBatch, Window, work_in_batches

__all__ = ["Side", "Write", "make_job", "read_side", "written_side"]

Write = Callable[[Iterable[Row]], Awaitable[WindowReport]]
"""Does something with rows, and returns what became of them."""


@attrs.frozen(kw_only=True, eq=False)
class Side:
    """
    What a job does with the rows of a table.

    Args:
        schema: The model whose rows are read.
        where: The condition of these rows; None for all of the table.
        join: Gives a worker the batch that deals with the rows of a range.
        ranges: How many ranges the table is divided into at most.
        ahead: Whether each worker reads a page while it deals with the one before.
    """

    schema: Schema
    where: Filter | None
    join: Callable[[], AbstractAsyncContextManager[Batch]]
    ranges: int = MOST_RANGES
    ahead: bool = True


def read_side(schema: Schema, where: Filter | None, deal: Callable[[list[Row]], Awaitable[RunCounts]]) -> Side:
    """
    Return a side whose rows are dealt with page by page.

    Args:
        schema: The model whose rows are read.
        where: The condition of these rows.
        deal: Deals with those of a page, and returns what was counted.
    """
    return Side(schema=schema, where=where, join=lambda: nullcontext(PageBatch(deal)))


def written_side(
    rekey: OnlineRekey,
    kinds: KindSet,
    where: Filter | None,
    write: Write,
    parallel: int,
    partition_of: Callable[[Row], str] | None = None,
    *,
    ranges: int = MOST_RANGES,
    chunk: int = CHUNK,
) -> Side:
    """
    Return a side whose rows are written, together with those of the other workers.

    Args:
        rekey: The re-key.
        kinds: The model whose rows are read. Where keys tell its kind, a store returns rows of others too, which are
            passed over.
        where: The condition of these rows.
        write: Writes them.
        parallel: How many workers there are.
        partition_of: Returns the partition whose rows are best written at a time; None for that of the row, whose rows
            come together, so that few of them wait.
        ranges: How many ranges the table is divided into at most.
        chunk: How many rows are written at a time.
    """

    async def write_rows(rows: Iterable[Row]) -> RunCounts:
        report = await write(rows)
        failures = [f"{each.place}: {each.error}" for each in (*report.collisions, *report.failures)]
        counts = RunCounts.of(entities=0, written=report.moved, failed=len(failures), failures=failures)
        others = {"transactions": report.transactions, "operations in these": report.operations}
        return attrs.evolve(counts, others=others)

    async def sort(rows: Sequence[Row]) -> tuple[list[tuple[str, Row]], RunCounts]:
        found: list[tuple[str, Row]] = []
        for number, row in enumerate(rows):
            if number % 100 == 99:
                await rekey.connection.yield_to_loop(1)
            if _is_of(kinds, row):
                found.append((row["PartitionKey"] if partition_of is None else partition_of(row), row))
        return found, RunCounts.of(entities=len(found), written=0, failed=0, failures=())

    (schema,) = kinds.schemas
    most = max(1, (CHUNK if partition_of is None else WINDOW) // parallel)
    window = Window(sort, write_rows, most, rekey.crew, chunk)
    return Side(schema=schema, where=where, join=window.join, ranges=ranges, ahead=False)


def _is_of(kinds: KindSet, row: Row) -> bool:
    """Return whether a row is an entity of a model, or a marker row of one."""
    (schema,) = kinds.schemas
    if is_marker(row):
        return str(row[ENTITY_TYPE]).partition(":")[0] in (f"{schema.kind}{TENTATIVE}", f"{schema.kind}{FORWARD}")
    try:
        return kinds.resolve(row) is not None
    except DecodeError:  # who reads it as an entity tells what is wrong
        return True


def make_job(
    rekey: OnlineRekey, what: str, *sides: Side, judge: Callable[[RunCounts], Awaitable[RunCounts]] | None = None
) -> Job:
    """
    Return a job that deals with all rows of one side, and then with all of the other, if there are two.

    Args:
        rekey: The re-key.
        what: What it does, for people.
        sides: One side or two.
        judge: Returns what was counted, with the failures that only all ranges together show.
    """
    return Job(
        verb=rekey.verb,
        what=f"{what} {rekey}",
        purpose=rekey.rekeying.digest,
        tables={side.schema.table_name() for side in sides},
        plan=partial(_plan, rekey, sides),
        work=partial(_work, rekey, sides),
        judge=judge,
        crew=rekey.crew,
    )


async def _plan(rekey: OnlineRekey, sides: Sequence[Side]) -> list[AuditRange]:
    ranges: list[AuditRange] = []
    for number, side in enumerate(sides):
        tables = [(side.schema.table_name(), [side.schema])]
        found = await plan_ranges(rekey.db, rekey.verb, tables, most=side.ranges, rows=ROWS)
        ranges += [attrs.evolve(each, building=number + 1 < len(sides)) for each in found]
    return ranges


async def _work(rekey: OnlineRekey, sides: Sequence[Side], part: AuditRange, pace: Pace | None) -> RunSteps:
    """Deal with the rows of a range."""
    side = sides[0] if part.building else sides[-1]
    db, ordered = rekey.connection, rekey.db.store.capabilities.ordered
    found = pages(db, part.table, side.where, part.left, None, rekey.verb, pace, ahead=side.ahead)
    async with side.join() as batch, aclosing(work_in_batches(part, found, batch, ordered=ordered)) as steps:
        async for step in steps:
            yield step
