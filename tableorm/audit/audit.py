"""
`db.audit`: segment by segment, rows are summed up and candidates verified; workers share the ranges of keys.
"""

import inspect
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar, cast

import attrs

from ..connection.connection import Connection
from ..connection.index_states import find_unreadable
from ..connection.logger import make_logger
from ..connection.tasks import work_together
from ..errors import ModelError, shown
from ..keys.ranges import KeyRegion
from ..models.entity import Entity, schema_of
from ..models.kinds import KindSet
from ..models.periods import require_plain_tables
from ..models.schema import Schema, concrete
from ..protocol.filters import Filter
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, Row, RowQuery
from .check import AuditedMaintainer
from .context import OUT_OF_REACH, AuditContext, SnapshotTurns
from .first_look import Candidate, FirstLook, Verification
from .ranges import AuditRange, RangeCounts, RangeReport, audit_ranges_of, purpose_of, read_cursor
from .report import AuditCounts, AuditReport, make_report
from .scan import family_filter, partition_start
from .segment import Segment
from .table_audit import TableAudit, with_related

__all__ = ["SEGMENT", "SMALL", "Steps", "audit", "audit_range", "check_arguments", "work_on_ranges"]

_LOG = make_logger("tableorm.audit")

C = TypeVar("C", bound=RangeCounts)
R = TypeVar("R", bound=RangeReport)

Steps = AsyncGenerator[tuple[AuditRange, C], None]
"""Work on a range: how far it is, and what was counted since, again and again."""

SMALL = MAX_PAGE
"""The most rows of one range, which one request reads."""

SEGMENT = 20_000
"""Rows that are summed up before candidates are verified, if a partition ends there."""


async def audit(
    db: Connection,
    models: Sequence[type[Entity]],
    *,
    parallel: int,
    cursor: str | None,
    repair: bool,
    on_progress: Callable[[AuditReport], object] | None,
) -> AuditReport:
    """
    Audit the entities of some models; see `Database.audit`.
    """
    db.require_open()
    check_arguments("audit", parallel, on_progress)
    if type(repair) is not bool:
        raise ModelError(f"audit(repair={shown(repair)}) is refused: give True or False")
    if not models:
        raise ModelError("audit() needs at least one model: give those whose entities are to be checked")
    schemas = with_related(list(dict.fromkeys(schema for model in models for schema in _concrete_schemas(model))))
    require_plain_tables("audit", schemas)
    purpose = purpose_of("audit", schemas)
    tables = {schema.table_name() for schema in schemas}
    tables |= {str(each.table) for schema in schemas for each in schema.derived.values() if not each.in_blobs}
    kinds = {table: _kinds_in(table, schemas) for table in sorted(tables)}
    guests = {
        table: [s for s in schemas if s not in own.schemas and any(e.table == table for e in s.derived.values())]
        for table, own in kinds.items()
    }
    if cursor is None:
        ranges, counts = list[AuditRange](), AuditCounts()
        for some in kinds.values():
            is_small = parallel > 1 and await _is_small(db, some, guests[some.table], counts)
            ranges += audit_ranges_of(some.table, some.schemas, 1 if is_small else parallel)
    else:
        ranges, counts = read_cursor(purpose, cursor, "audit", AuditCounts, kinds)
    begun, turns = time.monotonic() - counts.seconds, SnapshotTurns()
    # An index that is not complete lacks entries, which is no damage.
    derived = [each for schema in schemas for each in schema.derived.values()]
    await find_unreadable(db, [d.declaration for d in derived if d.declaration and d.building is None])

    def report() -> AuditReport:
        counts.seconds = time.monotonic() - begun
        return make_report(counts, purpose, ranges)

    def work(part: AuditRange) -> Steps[AuditCounts]:
        some, others = kinds[part.table], guests[part.table]
        return audit_range(AuditContext(db=db, kinds=some, repair=repair, guests=others, turns=turns), part, parallel)

    await work_on_ranges(ranges, work, counts, parallel, report, on_progress)
    for schema in schemas:
        for each in schema.derived.values():
            if isinstance(each, AuditedMaintainer) and each.in_blobs:
                context = AuditContext(db=db, kinds=kinds[schema.table_name()], repair=repair, turns=turns)
                await each.audit_blobs(context)
                counts.add(context.counts)
    return report()


async def _is_small(db: Connection, kinds: KindSet, guests: Sequence[Schema], counts: AuditCounts) -> bool:
    """Return whether a table has so few rows to check that one request reads them: dividing it would take many."""
    counts.requests += 1
    store, _ = db.sending("query", "")
    query = RowQuery(where=_rows_to_check(kinds, guests), select=("PartitionKey", "RowKey"))
    page = await db.call("audit", kinds.table, store.query(kinds.table, query, SMALL))
    return page.continuation is None


def _rows_to_check(kinds: KindSet, guests: Sequence[Schema]) -> Filter | None:
    return family_filter(kinds, guests, markers=bool(kinds.schemas))


def _kinds_in(table: str, schemas: Sequence[Schema]) -> KindSet:
    """Return those of some models that are of a table; none if it has derived rows of others alone."""
    models = [each.model for each in schemas if each.table == table]
    return KindSet.of(models) if models else KindSet((), table, bags=False)


def check_arguments(what: str, parallel: int, on_progress: Callable[..., object] | None) -> None:
    """
    Refuse arguments that no call which reads whole tables takes.

    Raises:
        ModelError: `parallel` is not a number from 1 up, or `on_progress` is not a plain function.
    """
    if type(parallel) is not int or parallel < 1:
        raise ModelError(f"{what}(parallel={parallel!r}) is refused: give a number from 1 up")
    if on_progress is not None and (
        not callable(cast("object", on_progress)) or inspect.iscoroutinefunction(on_progress)
    ):
        raise ModelError(
            f"{what}(on_progress={shown(on_progress)}) is refused: give a plain function, which is not awaited"
        )


def _concrete_schemas(model: type[Entity]) -> list[Schema]:
    schemas = concrete(schema_of(model))
    if not schemas:
        raise ModelError(f"{model.__name__} is abstract and has no concrete classes yet; import or declare them")
    for schema in schemas:
        if schema.kind is None:
            raise ModelError(f"{schema.name} has kind=None, so nothing is derived from it that could be audited")
    return schemas


async def work_on_ranges(
    ranges: list[AuditRange],
    work: Callable[[AuditRange], Steps[C]],
    counts: C,
    parallel: int,
    report: Callable[[], R],
    on_progress: Callable[[R], object] | None,
    *,
    building: bool = False,
) -> None:
    """
    Work on all ranges that are not done.

    Args:
        ranges: The ranges; each is replaced by how far it is, again and again.
        work: Works on a range, and yields again and again how far it is and what was found since.
        counts: Gets what is found.
        parallel: How many ranges are worked on at the same time.
        report: Makes the report so far.
        on_progress: Called with the report after each step.
        building: Which of the ranges: those where an index is built, or those where rows are checked.
    """
    todo = iter([number for number, each in enumerate(ranges) if not each.done and each.building is building])

    async def worker() -> None:
        for number in todo:
            async with aclosing(work(ranges[number])) as steps:
                async for done, found in steps:
                    # Both at once, so that who goes on from here counts nothing twice.
                    ranges[number] = done
                    counts.add(found)
                    if on_progress is not None:
                        on_progress(report())

    await work_together(worker, parallel)


async def audit_range(context: AuditContext, part: AuditRange, parallel: int) -> Steps[AuditCounts]:
    """
    Audit a range, segment by segment. Yield how far it is, and what was found since.

    Args:
        context: The rows of the table; its counts are those of this range alone.
        part: The range, without what is done of it.
        parallel: How many candidates are verified at the same time.
    """
    counts = context.counts
    where = _rows_to_check(context.kinds, context.guests)
    table = TableAudit(context)
    segment, count, last = Segment(table), 0, None
    look = FirstLook(context, parallel)

    async def verify_candidates(part: AuditRange, last: str | None) -> AuditRange:
        """Verify the candidates of the segment, which goes up to the partition `last`; return what is left."""
        if segment.close():
            regions = part.left
            if last is not None:
                regions = [cut for each in regions if (cut := each.meet(KeyRegion(Bounds(None, last)))) is not None]
            for phase in segment.phases:
                async with aclosing(context.pages(where, regions, "audit")) as found:
                    async for rows in found:
                        candidates: list[Candidate] = []
                        async for some in context.in_turns(rows):
                            candidates += segment.candidates(phase, some)
                        await _run(context, await look.find_left(candidates), parallel)
        return part if last is None else attrs.evolve(part, partition=last)

    async with aclosing(context.pages(where, part.left, "audit")) as found:
        async for rows in found:
            start = 0
            if rows and context.db.store.capabilities.ordered and count + len(rows) >= SEGMENT:
                cut = partition_start(rows, last)
                if cut is not None:
                    await _add_rows(context, segment, rows[:cut])
                    last = rows[cut - 1]["PartitionKey"] if cut else last
                    part = await verify_candidates(part, last)
                    yield part, counts.take()
                    segment, count, start = Segment(table), 0, cut
            await _add_rows(context, segment, rows[start:])
            count += len(rows) - start
            last = rows[-1]["PartitionKey"] if rows else last
    part = await verify_candidates(part, None)
    yield attrs.evolve(part, done=True), counts


async def _add_rows(context: AuditContext, segment: Segment, rows: Sequence[Row]) -> None:
    async for some in context.in_turns(rows):
        segment.add(some)


async def _run(context: AuditContext, verifications: Sequence[Verification], parallel: int) -> None:
    todo = iter(verifications)

    async def worker() -> None:
        for verify in todo:
            await context.turns.take()  # an embedded store answers without waiting
            try:
                await verify()
            except OUT_OF_REACH:
                raise
            except Exception as error:  # noqa: BLE001 - a row may be as nobody has thought of
                _LOG.warning("a row of table %s is left undecided: %s", context.kinds.table, error, exc_info=error)
                context.counts.undecided += 1

    await work_together(worker, min(parallel, len(verifications)))
