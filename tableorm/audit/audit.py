"""
`db.audit`: segments of rows are summed up; where a sum is not zero its rows are judged; workers share the keys.
"""

import inspect
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import attrs

from ..connection.connection import TURN
from ..connection.tasks import work_together
from ..database.reading import Reader
from ..errors import ModelError
from ..keys.ranges import KeyRegion
from ..models.entity import Entity, schema_of
from ..models.kinds import KindSet
from ..models.schema import Schema, concrete
from ..protocol.filters import Filter
from ..stores import Bounds, Row
from .judge import Verifier
from .ranges import AuditRange, audit_ranges_of, purpose_of, read_cursor
from .report import AuditCounts, AuditReport
from .rows import with_related
from .scan import boundary, family_filter, pages
from .sums import Judging, Sums

__all__ = ["SEGMENT", "audit", "audited", "check_call", "go_through", "report_of"]

SEGMENT = 20_000
"""Rows that are summed up before suspects are judged, if a partition ends there."""


async def audit(
    db: Reader,
    models: Sequence[type[Entity]],
    *,
    parallel: int,
    cursor: str | None,
    repair: bool,
    on_progress: Callable[[AuditReport], object] | None,
) -> AuditReport:
    """
    See `Database.audit`.
    """
    db.require_open()
    check_call("audit", parallel, on_progress)
    if not models:
        raise ModelError("audit() is refused: give the models whose entities are to be checked")
    schemas = with_related(list(dict.fromkeys(schema for model in models for schema in _concrete(model))))
    purpose = purpose_of("audit", schemas)
    tables = {
        name: [s for s in schemas if s.table_name() == name] for name in sorted({s.table_name() for s in schemas})
    }
    if cursor is None:
        ranges = [each for name, some in tables.items() for each in audit_ranges_of(name, some, parallel)]
        counts = AuditCounts()
    else:
        ranges, state = read_cursor(purpose, cursor, "audit")
        counts = AuditCounts.of_state(state)
    judges = {
        name: Verifier(db, KindSet.of([schema.model for schema in some], name), repair=repair)
        for name, some in tables.items()
    }
    begun = time.monotonic() - counts.seconds

    def report() -> AuditReport:
        counts.seconds = time.monotonic() - begun
        return report_of(counts, purpose, ranges)

    def told() -> None:
        if on_progress is not None:
            on_progress(report())

    async def work(audit_range: AuditRange) -> AsyncGenerator[tuple[AuditRange, AuditCounts], None]:
        async for each in audited(db, judges[audit_range.table], audit_range, parallel):
            yield each

    await go_through(ranges, work, counts, parallel, told)
    return report()


def report_of(counts: AuditCounts, purpose: bytes, ranges: Sequence[AuditRange]) -> AuditReport:
    """The report of what was counted."""
    return AuditReport(
        counts.entities,
        counts.copies,
        dict(sorted(counts.counts.items())),
        tuple(sorted(counts.findings, key=lambda finding: finding.place)),
        counts.repaired,
        counts.undecided,
        counts.requests,
        counts.seconds,
        purpose=purpose,
        ranges=tuple(ranges),
    )


def check_call(what: str, parallel: int, on_progress: Callable[..., object] | None) -> None:
    """
    Refuse what is the same for all that goes through tables.

    Raises:
        ModelError: `parallel` is no number from 1, or `on_progress` cannot be called so.
    """
    if type(parallel) is not int or parallel < 1:
        raise ModelError(f"{what}(parallel={parallel!r}) is refused: give a number from 1")
    if inspect.iscoroutinefunction(on_progress):
        raise ModelError(
            f"{what}(on_progress={on_progress!r}) is asynchronous, and is not awaited; give a plain function"
        )


def _concrete(model: type[Entity]) -> list[Schema]:
    schemas = concrete(schema_of(model))
    if not schemas:
        raise ModelError(f"{model.__name__} is abstract and has no concrete classes yet; import or declare them")
    for schema in schemas:
        if schema.kind is None:
            raise ModelError(f"{schema.name} has kind=None, so nothing is derived from it that could be audited")
    return schemas


async def go_through(
    ranges: list[AuditRange],
    work: Callable[[AuditRange], AsyncGenerator[tuple[AuditRange, AuditCounts], None]],
    counts: AuditCounts,
    parallel: int,
    told: Callable[[], None],
    *,
    building: bool = False,
) -> None:
    """
    Work on all ranges that are not done.

    Args:
        ranges: Get how far they are.
        work: Gives, again and again, how far a audit_range is, and what was found since.
        counts: Gets what is found.
        parallel: How many ranges are worked on at the same time.
        told: Called after each.
        building: Which of the ranges: those where copies are built, or where they are checked.
    """
    todo = iter(
        [n for n, audit_range in enumerate(ranges) if not audit_range.done and audit_range.building is building]
    )

    async def worker() -> None:
        for number in todo:
            async with aclosing(work(ranges[number])) as parts:
                async for audit_range, part in parts:
                    # Both at once: who goes on from here counts nothing twice.
                    ranges[number] = audit_range
                    counts.add(part)
                    told()

    await work_together(worker, parallel)


async def audited(
    db: Reader, judge: Verifier, audit_range: AuditRange, parallel: int
) -> AsyncGenerator[tuple[AuditRange, AuditCounts], None]:
    """
    Audit a audit_range, segment by segment.

    Args:
        db: Where.
        judge: Judges suspects.
        audit_range: What is left of it.
        parallel: Suspects that are judged at the same time.
    """
    where = family_filter(judge.kinds)
    ordered = db.store.capabilities.ordered
    sums, part, count, last = Sums(judge), AuditCounts(), 0, None
    async with aclosing(pages(db, audit_range.table, where, audit_range.left, part, "audit")) as found:
        async for rows in found:
            start = 0
            if rows and ordered and count + len(rows) >= SEGMENT:
                cut = boundary(rows, last)
                if cut is not None:
                    await _sum_up(db, sums, rows[:cut], part)
                    last = rows[cut - 1]["PartitionKey"] if cut else last
                    audit_range = await _closed(db, judge, sums, audit_range, part, last, where, parallel)
                    yield audit_range, part.take()
                    sums, count, start = Sums(judge), 0, cut
            await _sum_up(db, sums, rows[start:], part)
            count += len(rows) - start
            last = rows[-1]["PartitionKey"] if rows else last
    audit_range = await _closed(db, judge, sums, audit_range, part, None, where, parallel)
    yield attrs.evolve(audit_range, done=True), part


async def _sum_up(db: Reader, sums: Sums, rows: Sequence[Row], part: AuditCounts) -> None:
    for start in range(0, len(rows), TURN):
        some = rows[start : start + TURN]
        sums.add(some, part)
        await db.yield_to_loop(len(some))


async def _closed(
    db: Reader,
    judge: Verifier,
    sums: Sums,
    audit_range: AuditRange,
    part: AuditCounts,
    last: str | None,
    where: Filter | None,
    parallel: int,
) -> AuditRange:
    """Verifier the suspects of a segment, up to a partition or the end; the audit_range without it."""
    if sums.close():
        regions = audit_range.left
        if last is not None:
            regions = [cut for each in regions if (cut := each.meet(KeyRegion(Bounds(None, last)))) is not None]
        passes = [sums.suspects]
        if judge.has_lists:
            passes.insert(0, sums.shapes)
        if judge.has_lists or judge.aggregates:
            passes.append(sums.rest)
        for each in passes:
            async with aclosing(pages(db, audit_range.table, where, regions, part, "audit")) as found:
                async for rows in found:
                    for start in range(0, len(rows), TURN):
                        some = rows[start : start + TURN]
                        await _judged(each(some), part, parallel)
                        await db.yield_to_loop(len(some))
    return audit_range if last is None else attrs.evolve(audit_range, partition=last, row=None)


async def _judged(suspects: Sequence[Judging], part: AuditCounts, parallel: int) -> None:
    if not suspects:
        return
    todo = iter(suspects)

    async def worker() -> None:
        for judge in todo:
            await judge(part)

    await work_together(worker, min(parallel, len(suspects)))
