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
from ..keys.ranges import Rectangle
from ..models.entity import Entity, schema_of
from ..models.kinds import Kinds
from ..models.schema import Schema, concrete
from ..protocol.filters import Filter
from ..stores import Bounds, Row
from .judge import Judge
from .ranges import Stretch, purpose_of, read_cursor, stretches_of
from .report import AuditReport, Tally
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
    db.usable()
    check_call("audit", parallel, on_progress)
    if not models:
        raise ModelError("audit() is refused: give the models whose entities are to be checked")
    schemas = with_related(list(dict.fromkeys(schema for model in models for schema in _concrete(model))))
    purpose = purpose_of("audit", schemas)
    tables = {
        name: [s for s in schemas if s.table_name() == name] for name in sorted({s.table_name() for s in schemas})
    }
    if cursor is None:
        stretches = [each for name, some in tables.items() for each in stretches_of(name, some, parallel)]
        tally = Tally()
    else:
        stretches, state = read_cursor(purpose, cursor, "audit")
        tally = Tally.of_state(state)
    judges = {
        name: Judge(db, Kinds.of([schema.model for schema in some], name), repair=repair)
        for name, some in tables.items()
    }
    begun = time.monotonic() - tally.seconds

    def report() -> AuditReport:
        tally.seconds = time.monotonic() - begun
        return report_of(tally, purpose, stretches)

    def told() -> None:
        if on_progress is not None:
            on_progress(report())

    async def work(stretch: Stretch) -> AsyncGenerator[tuple[Stretch, Tally], None]:
        async for each in audited(db, judges[stretch.table], stretch, parallel):
            yield each

    await go_through(stretches, work, tally, parallel, told)
    return report()


def report_of(tally: Tally, purpose: bytes, stretches: Sequence[Stretch]) -> AuditReport:
    """The report of what was counted."""
    return AuditReport(
        tally.entities,
        tally.copies,
        dict(sorted(tally.counts.items())),
        tuple(sorted(tally.findings, key=lambda finding: finding.place)),
        tally.repaired,
        tally.undecided,
        tally.requests,
        tally.seconds,
        purpose=purpose,
        stretches=tuple(stretches),
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
    stretches: list[Stretch],
    work: Callable[[Stretch], AsyncGenerator[tuple[Stretch, Tally], None]],
    tally: Tally,
    parallel: int,
    told: Callable[[], None],
    *,
    building: bool = False,
) -> None:
    """
    Work on all stretches that are not done.

    Args:
        stretches: Get how far they are.
        work: Gives, again and again, how far a stretch is, and what was found since.
        tally: Gets what is found.
        parallel: How many stretches are worked on at the same time.
        told: Called after each.
        building: Which of the stretches: those where copies are built, or where they are checked.
    """
    todo = iter([n for n, stretch in enumerate(stretches) if not stretch.done and stretch.building is building])

    async def worker() -> None:
        for number in todo:
            async with aclosing(work(stretches[number])) as parts:
                async for stretch, part in parts:
                    # Both at once: who goes on from here counts nothing twice.
                    stretches[number] = stretch
                    tally.add(part)
                    told()

    await work_together(worker, parallel)


async def audited(
    db: Reader, judge: Judge, stretch: Stretch, parallel: int
) -> AsyncGenerator[tuple[Stretch, Tally], None]:
    """
    Audit a stretch, segment by segment.

    Args:
        db: Where.
        judge: Judges suspects.
        stretch: What is left of it.
        parallel: Suspects that are judged at the same time.
    """
    where = family_filter(judge.kinds)
    ordered = db.store.capabilities.ordered
    sums, part, count, last = Sums(judge), Tally(), 0, None
    async with aclosing(pages(db, stretch.table, where, stretch.left, part, "audit")) as found:
        async for rows in found:
            start = 0
            if rows and ordered and count + len(rows) >= SEGMENT:
                cut = boundary(rows, last)
                if cut is not None:
                    await _sum_up(db, sums, rows[:cut], part)
                    last = rows[cut - 1]["PartitionKey"] if cut else last
                    stretch = await _closed(db, judge, sums, stretch, part, last, where, parallel)
                    yield stretch, part.take()
                    sums, count, start = Sums(judge), 0, cut
            await _sum_up(db, sums, rows[start:], part)
            count += len(rows) - start
            last = rows[-1]["PartitionKey"] if rows else last
    stretch = await _closed(db, judge, sums, stretch, part, None, where, parallel)
    yield attrs.evolve(stretch, done=True), part


async def _sum_up(db: Reader, sums: Sums, rows: Sequence[Row], part: Tally) -> None:
    for start in range(0, len(rows), TURN):
        some = rows[start : start + TURN]
        sums.add(some, part)
        await db.take_turn(len(some))


async def _closed(
    db: Reader,
    judge: Judge,
    sums: Sums,
    stretch: Stretch,
    part: Tally,
    last: str | None,
    where: Filter | None,
    parallel: int,
) -> Stretch:
    """Judge the suspects of a segment, up to a partition or the end; the stretch without it."""
    if sums.close():
        rectangles = stretch.left
        if last is not None:
            rectangles = [cut for each in rectangles if (cut := each.meet(Rectangle(Bounds(None, last)))) is not None]
        passes = [sums.suspects]
        if judge.has_lists:
            passes.insert(0, sums.shapes)
        if judge.has_lists or judge.tallies:
            passes.append(sums.rest)
        for each in passes:
            async with aclosing(pages(db, stretch.table, where, rectangles, part, "audit")) as found:
                async for rows in found:
                    for start in range(0, len(rows), TURN):
                        some = rows[start : start + TURN]
                        await _judged(each(some), part, parallel)
                        await db.take_turn(len(some))
    return stretch if last is None else attrs.evolve(stretch, partition=last, row=None)


async def _judged(suspects: Sequence[Judging], part: Tally, parallel: int) -> None:
    if not suspects:
        return
    todo = iter(suspects)

    async def worker() -> None:
        for judge in todo:
            await judge(part)

    await work_together(worker, min(parallel, len(suspects)))
