"""
The jobs of re-keys: all rows of one table, and then of the other, are read by pages and dealt with.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from tableorm import DecodeError, RunReport
from tableorm.connection.connection import Connection
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.plan import LEAST_ROWS, plan_ranges
from tableorm.jobs.process import Crew, Job, RunJob
from tableorm.jobs.ranges import JobRange
from tableorm.jobs.scan import Steps, walk
from tableorm.models.kinds import KindSet
from tableorm.models.marker_rows import FORWARD, TENTATIVE, is_marker
from tableorm.models.reserved import ENTITY_TYPE
from tableorm.models.schema import Schema
from tableorm.protocol.filters import Filter
from tableorm.rekey.chunks import WindowReport
from tableorm.stores import Row
from tableorm.writes.bulk.pacing import Pace

from .phases import OnlineRekey
from .window import CHUNK, MOST_RANGES, WINDOW, Window

Write = Callable[[Iterable[Row]], Awaitable[WindowReport]]
"""Does something with rows, and returns what became of them."""

Deal = Callable[[list[Row], JobCounts], Awaitable[None]]
"""Deals with the rows of a page, and counts."""


@attrs.frozen(kw_only=True, eq=False)
class Side:
    """
    What a job does with the rows of a table.

    Args:
        db: Where they are.
        schema: The model whose rows are read.
        where: The condition of these rows; None for all of the table.
        deal: Deals with them, page by page; or a window, which deals with those of all workers together.
        ranges: How many ranges the table is divided into at most.
    """

    db: Connection
    schema: Schema
    where: Filter | None
    deal: Deal | Window
    ranges: int = MOST_RANGES

    def work(self, verb: str, part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
        """Deal with the rows of a range."""
        if isinstance(self.deal, Window):
            return self.deal.walk(self.db, part, self.where, verb, pace)
        deal, counts = self.deal, JobCounts()

        async def deal_and_count(rows: list[Row]) -> None:
            await deal(rows, counts)

        return walk(self.db, part, self.where, deal_and_count, counts, verb, pace)


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

    async def write_rows(rows: Iterable[Row], counts: JobCounts) -> None:
        report = await write(rows)
        for each in (*report.collisions, *report.failures):
            counts.fail(each.place, str(each.error))
        counts.written += report.moved
        counts.count("transactions", report.transactions)
        counts.count("operations in these", report.operations)

    async def sort(rows: Sequence[Row], counts: JobCounts) -> list[tuple[str, Row]]:
        found: list[tuple[str, Row]] = []
        for number, row in enumerate(rows):
            if number % 100 == 99:
                await rekey.connection.yield_to_loop(1)
            if _is_of(kinds, row):
                found.append((row["PartitionKey"] if partition_of is None else partition_of(row), row))
        counts.entities += len(found)
        return found

    (schema,) = kinds.schemas
    most = max(1, (CHUNK if partition_of is None else WINDOW) // parallel)
    window = Window(sort, write_rows, most, rekey.crew, chunk)
    return Side(db=rekey.connection, schema=schema, where=where, deal=window, ranges=ranges)


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
    verb: str,
    what: str,
    purpose: str,
    *sides: Side,
    crew: Crew | None = None,
    prepare: Callable[[], Awaitable[object]] | None = None,
    judge: Callable[[JobCounts], Awaitable[object]] | None = None,
) -> Job[JobCounts, RunReport]:
    """
    Return a job that deals with all rows of one side, and then with all of the other, if there are two.

    Args:
        verb: Name of the function that was called.
        what: What it does, for people.
        purpose: A hash of that, and of the models.
        sides: One side or two.
        crew: The workers of the process, if they wait for each other.
        prepare: What is done before the run begins.
        judge: Adds to what was counted what only all ranges together show.
    """

    async def plan() -> list[JobRange]:
        ranges: list[JobRange] = []
        for number, side in enumerate(sides, 1):
            tables = [(side.schema.table_name(), [side.schema])]
            found = await plan_ranges(side.db, verb, tables, most=side.ranges, rows=LEAST_ROWS)
            ranges += [attrs.evolve(each, building=number < len(sides)) for each in found]
        if prepare is not None:
            await prepare()
        return ranges

    return RunJob(
        verb=verb,
        what=what,
        purpose=purpose,
        tables={side.schema.table_name() for side in sides},
        plan=plan,
        work=lambda part, pace: (sides[0] if part.building else sides[-1]).work(verb, part, pace),
        judge=judge,
        crew=crew or Crew(),
    )


def rekey_job(
    rekey: OnlineRekey, what: str, *sides: Side, judge: Callable[[JobCounts], Awaitable[object]] | None = None
) -> Job[JobCounts, RunReport]:
    """Return a job of an online re-key, as `make_job` does."""
    return make_job(rekey.verb, f"{what} {rekey}", rekey.rekeying.digest, *sides, crew=rekey.crew, judge=judge)
