"""
Copying rows from one database to another, and comparing the rows of two.

Both are jobs by ranges of keys. A run that processes share is kept by the target, so that nothing is written to the
source. The mapper's own records are copied last: the state of an index says that it is complete.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs

from ..connection.connection import Connection
from ..connection.nearby import read_rows
from ..connection.tasks import map_together
from ..errors import ModelError
from ..jobs.counts import JobCounts
from ..jobs.plan import MOST_RANGES, plan_ranges
from ..jobs.process import Job, RunOptions, work_on
from ..jobs.ranges import JobRange, purpose_of
from ..jobs.report import report_of
from ..jobs.scan import Steps, walk
from ..models.reserved import is_reserved_table
from ..outbox.decision import is_pending
from ..protocol.edm import Edm
from ..protocol.filter_text import FilterSyntaxError, parse_filter
from ..protocol.filters import And, Compare, Constant, Filter, Op, Or
from ..stores import Bounds, Row, row_keys
from ..stores.intervals import EVERYTHING, meet
from ..writes.bulk.pacing import Pace
from .blobs import BlobTransfer, prepare_blobs
from .content import differing_properties, plain_row
from .report import TransferReport
from .writing import IfExists, RowWriter, check_if_exists

_KEYS = ("PartitionKey", "RowKey")


@attrs.frozen
class Selection:
    """
    The rows of some tables that are transferred.

    Args:
        verb: Name of the function, for messages.
        tables: Names of the tables.
        where: The filter that the rows satisfy, as text; None for all rows.
        condition: The same.
    """

    verb: str
    tables: tuple[str, ...]
    where: str | None
    condition: Filter | None

    @classmethod
    def of(cls, verb: str, tables: Sequence[str], where: str | None) -> "Selection":
        """
        Return the rows that satisfy a filter, given as text.

        Raises:
            ModelError: The text is not a filter.
        """
        try:
            return cls(verb, tuple(dict.fromkeys(tables)), where, None if where is None else parse_filter(where))
        except FilterSyntaxError as error:
            raise ModelError(f"{verb}(where=...) is rejected: {error}") from None

    def filter_of(self, table: str) -> Filter | None:
        """Return the condition of the rows of a table: shared runs stay with the database that they are of."""
        terms = [] if self.condition is None else [self.condition]
        if is_reserved_table(table):
            low, high = Constant(Edm.STRING, "run "), Constant(Edm.STRING, "run!")
            terms.append(Or((Compare("PartitionKey", Op.LT, low), Compare("PartitionKey", Op.GE, high))))
        return And(tuple(terms)) if len(terms) > 1 else terms[0] if terms else None

    async def plan(self, db: Connection, *, building: bool | None = None, most: int = MOST_RANGES) -> list[JobRange]:
        """Return ranges of the tables in a database; those of the mapper's own records are worked on last."""
        bounds = self._find_bounds()
        if bounds is None:
            return []
        most = max(1, most // max(1, len(self.tables)))

        async def divide(table: str) -> list[JobRange]:
            first = not is_reserved_table(table) if building is None else building
            parts = [JobRange(table=table, partitions=bounds)]
            if not bounds.point:
                parts = await plan_ranges(db, self.verb, [(table, [])], most=most)
            shares = [(part, meet(part.partitions, bounds)) for part in parts]
            return [attrs.evolve(part, partitions=each, building=first) for part, each in shares if each is not None]

        return [part for parts in await map_together(divide, self.tables) for part in parts]

    def _find_bounds(self) -> Bounds | None:
        """Return the PartitionKeys that the filter allows, so that others are not read; None if there are none."""
        bounds: Bounds | None = EVERYTHING
        terms = self.condition.terms if isinstance(self.condition, And) else (self.condition,)
        for term in terms:
            if not isinstance(term, Compare) or term.property != "PartitionKey" or term.constant.type is not Edm.STRING:
                continue
            if bounds is not None:
                bounds = meet(bounds, Bounds.of(term.op, str(term.constant.value)))
        return bounds


async def _select(
    verb: str, db: Connection, target: Connection, tables: Sequence[str], where: str | None, name: str | None
) -> Selection:
    for each in (db, target):
        each.require_whole_tables(f"{verb}()")
    one, other = ((getattr(each.backend, "place", each.backend), each.prefix.lower()) for each in (db, target))
    if one == other:
        raise ModelError(f"{verb}() is rejected: both sides are one database; give another one as the target")
    if not tables:
        tables = await db.list_tables()
    if name is not None and len(tables) > MOST_RANGES:
        raise ModelError(
            f"{verb}(name={name!r}) is rejected: there are {len(tables)} tables, and a run has at most {MOST_RANGES} "
            "ranges; name fewer tables at a time, or leave out the name of the run"
        )
    return Selection.of(verb, tables, where)


def transfer_job(
    selection: Selection,
    what: str,
    plan: Callable[[], Awaitable[list[JobRange]]],
    work: Callable[[JobRange, Pace | None], Steps[JobCounts]],
    *more: str,
) -> Job[JobCounts, TransferReport]:
    """
    Return a job on rows as they are stored.

    Args:
        selection: The rows.
        what: What the job does, for people.
        plan: Makes its ranges.
        work: Works on a range.
        more: What else a call has to have in common with another one that it resumes.
    """
    told = "\n".join([selection.verb, *selection.tables, str(selection.where), *more])
    return Job(
        verb=selection.verb,
        what=what,
        purpose=purpose_of(told, ()),
        tables=selection.tables,
        plan=plan,
        work=work,
        counts=JobCounts,
        report=partial(report_of, TransferReport),
    )


def _places(*sides: Connection) -> list[str]:
    return [text for each in sides for text in (each.url, each.prefix)]


async def copy_rows(
    db: Connection,
    target: Connection,
    tables: Sequence[str],
    options: RunOptions[TransferReport],
    *,
    where: str | None,
    if_exists: IfExists,
    cursor: str | None,
) -> TransferReport:
    """Copy rows from one database to another; see `Database.copy_rows`."""
    check_if_exists("copy_rows", if_exists)
    options.check("copy_rows")
    selection = await _select("copy_rows", db, target, tables, where, options.name)
    looks = await prepare_blobs(db, target, selection.tables)
    turns = asyncio.Semaphore(2 * options.parallel)
    blobs = BlobTransfer(db, target, asyncio.Semaphore(options.parallel), looks)
    writers = {
        table: RowWriter(target, table, if_exists, f"copy of rows to table {table}", turns)
        for table in selection.tables
    }

    async def plan() -> list[JobRange]:
        parts = await selection.plan(db)
        await map_together(target.create_table, selection.tables)
        return parts

    def work(part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
        counts, writer = JobCounts(), writers[part.table]

        async def deal(rows: list[Row]) -> None:
            counts.entities += len(rows)
            counts.count("pending", sum(map(is_pending, rows)))
            await blobs.copy(rows, counts)
            await writer.write(map(plain_row, rows), counts)

        return walk(db, part, selection.filter_of(part.table), deal, counts, "copy_rows", pace)

    what = f"copy {', '.join(selection.tables)} from {db.url}"
    job = transfer_job(selection, what, plan, work, if_exists, *_places(db, target))
    return await work_on(target, job, options, cursor)


async def compare_rows(
    db: Connection,
    target: Connection,
    tables: Sequence[str],
    options: RunOptions[TransferReport],
    *,
    where: str | None,
    cursor: str | None,
) -> TransferReport:
    """Compare the rows of two databases; see `Database.compare_rows`."""
    options.check("compare_rows")
    selection = await _select("compare_rows", db, target, tables, where, options.name)
    blobs = BlobTransfer(db, target, asyncio.Semaphore(options.parallel))

    async def plan() -> list[JobRange]:
        half = MOST_RANGES // 2
        return [
            *await selection.plan(db, building=True, most=half),
            *await selection.plan(target, building=False, most=half),
        ]

    def work(part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
        counts, table = JobCounts(), part.table

        async def compare(rows: list[Row]) -> None:
            counts.entities += len(rows)
            there = await read_rows(target, table, [*map(row_keys, rows)])
            for row in rows:
                await db.yield_to_loop(1)
                other = there[row_keys(row)]
                differing = [] if other is None else differing_properties(row, other)
                if other is None:
                    counts.fail(row, f"is missing in table {table} of the target")
                elif differing:
                    counts.fail(row, f"differs in table {table} of the target: {', '.join(differing)}")
                else:
                    counts.count("equal")
            await blobs.compare([row for row in rows if there[row_keys(row)] is not None], counts)

        async def find_extra(rows: list[Row]) -> None:
            there = await read_rows(db, table, [*map(row_keys, rows)], _KEYS)
            for row in rows:
                if there[row_keys(row)] is None:
                    counts.fail(row, f"is in table {table} of the target alone")

        where = selection.filter_of(table)
        if part.building:
            return walk(db, part, where, compare, counts, "compare_rows", pace)
        return walk(target, part, where, find_extra, counts, "compare_rows", pace, _KEYS)

    what = f"compare {', '.join(selection.tables)} with {db.url}"
    job = transfer_job(selection, what, plan, work, *_places(db, target))
    return await work_on(target, job, options, cursor)
