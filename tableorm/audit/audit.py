"""
`db.audit`: segment by segment, rows are summed up and candidates verified; workers share the ranges of keys.
"""

import inspect
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import attrs

from ..connection.connection import TURN, Connection
from ..connection.tasks import work_together
from ..errors import ModelError
from ..keys.ranges import KeyRegion
from ..models.entity import Entity, schema_of
from ..models.kinds import KindSet
from ..models.schema import Schema, concrete
from ..protocol.filters import Filter
from ..stores import Bounds, Row
from .ranges import AuditRange, audit_ranges_of, purpose_of, read_cursor
from .report import AuditCounts, AuditReport
from .scan import family_filter, pages, partition_start
from .segment import Segment, Verification
from .table_audit import TableAudit, with_related
from .verify import Verifier

__all__ = ["SEGMENT", "audit", "audit_range", "check_arguments", "make_report", "work_on_ranges"]

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
    if not models:
        raise ModelError("audit() needs at least one model: give those whose entities are to be checked")
    schemas = with_related(list(dict.fromkeys(schema for model in models for schema in _concrete_schemas(model))))
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
    verifiers: dict[str, Verifier] = {}
    for name, some in tables.items():
        kinds = KindSet.of([schema.model for schema in some], name)
        verifiers[name] = Verifier(TableAudit(db, kinds, repair=repair))
    begun = time.monotonic() - counts.seconds

    def report() -> AuditReport:
        counts.seconds = time.monotonic() - begun
        return make_report(counts, purpose, ranges)

    def tell() -> None:
        if on_progress is not None:
            on_progress(report())

    def work(part: AuditRange) -> AsyncGenerator[tuple[AuditRange, AuditCounts], None]:
        return audit_range(verifiers[part.table], part, parallel)

    await work_on_ranges(ranges, work, counts, parallel, tell)
    return report()


def make_report(counts: AuditCounts, purpose: bytes, ranges: Sequence[AuditRange]) -> AuditReport:
    """Return the report of what was counted."""
    return AuditReport(
        entities=counts.entities,
        derived_rows=counts.derived_rows,
        counts=dict(sorted(counts.counts.items())),
        findings=tuple(sorted(counts.findings, key=lambda finding: finding.place)),
        repaired=counts.repaired,
        undecided=counts.undecided,
        requests=counts.requests,
        seconds=counts.seconds,
        purpose=purpose,
        ranges=tuple(ranges),
    )


def check_arguments(what: str, parallel: int, on_progress: Callable[..., object] | None) -> None:
    """
    Refuse arguments that no call which reads whole tables takes.

    Raises:
        ModelError: `parallel` is not a number from 1 up, or `on_progress` is asynchronous.
    """
    if type(parallel) is not int or parallel < 1:
        raise ModelError(f"{what}(parallel={parallel!r}) is refused: give a number from 1 up")
    if inspect.iscoroutinefunction(on_progress):
        raise ModelError(
            f"{what}(on_progress={on_progress!r}) is asynchronous, and is not awaited; give a plain function"
        )


def _concrete_schemas(model: type[Entity]) -> list[Schema]:
    schemas = concrete(schema_of(model))
    if not schemas:
        raise ModelError(f"{model.__name__} is abstract and has no concrete classes yet; import or declare them")
    for schema in schemas:
        if schema.kind is None:
            raise ModelError(f"{schema.name} has kind=None, so nothing is derived from it that could be audited")
    return schemas


class _Counts(Protocol):
    """What is counted while ranges are worked on."""

    def add(self, other: Any) -> None:
        """Add what was counted elsewhere."""
        ...


C = TypeVar("C", bound=_Counts)


async def work_on_ranges(
    ranges: list[AuditRange],
    work: Callable[[AuditRange], AsyncGenerator[tuple[AuditRange, C], None]],
    counts: C,
    parallel: int,
    tell: Callable[[], None],
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
        tell: Called after each step.
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
                    tell()

    await work_together(worker, parallel)


async def audit_range(
    verifier: Verifier, part: AuditRange, parallel: int
) -> AsyncGenerator[tuple[AuditRange, AuditCounts], None]:
    """
    Audit a range, segment by segment. Yield how far it is, and what was found since.

    Args:
        verifier: Verifies candidates.
        part: The range, without what is done of it.
        parallel: How many candidates are verified at the same time.
    """
    db = verifier.table.db
    ordered = db.store.capabilities.ordered
    reader = _RangeReader(verifier, family_filter(verifier.table.kinds), parallel)
    segment, count, last = Segment(verifier), 0, None
    async with aclosing(reader.pages(part, part.left)) as found:
        async for rows in found:
            start = 0
            if rows and ordered and count + len(rows) >= SEGMENT:
                cut = partition_start(rows, last)
                if cut is not None:
                    await _add_rows(db, segment, rows[:cut], reader.counts)
                    last = rows[cut - 1]["PartitionKey"] if cut else last
                    part = await reader.verify_candidates(segment, part, last)
                    yield part, reader.counts.take()
                    segment, count, start = Segment(verifier), 0, cut
            await _add_rows(db, segment, rows[start:], reader.counts)
            count += len(rows) - start
            last = rows[-1]["PartitionKey"] if rows else last
    part = await reader.verify_candidates(segment, part, None)
    yield attrs.evolve(part, done=True), reader.counts


async def _add_rows(db: Connection, segment: Segment, rows: Sequence[Row], counts: AuditCounts) -> None:
    for start in range(0, len(rows), TURN):
        some = rows[start : start + TURN]
        segment.add(some, counts)
        await db.yield_to_loop(len(some))


@attrs.frozen(eq=False)
class _RangeReader:
    """
    Reads the rows of a range: once to sum them up, and again where there are candidates.

    Args:
        verifier: Verifies candidates.
        where: The condition that the rows satisfy.
        parallel: How many candidates are verified at the same time.
        counts: Gets what is found.
    """

    verifier: Verifier
    where: Filter | None
    parallel: int
    counts: AuditCounts = attrs.field(factory=AuditCounts)

    def pages(self, part: AuditRange, regions: Sequence[KeyRegion]) -> AsyncGenerator[list[Row], None]:
        """Yield the rows of some keys of a range."""
        return pages(self.verifier.table.db, part.table, self.where, regions, self.counts, "audit")

    async def verify_candidates(self, segment: Segment, part: AuditRange, last: str | None) -> AuditRange:
        """
        Verify the candidates of a segment. Return the range without the segment.

        Args:
            segment: Its rows have been added.
            part: The range.
            last: The last partition of the segment; None if it is the end of the range.
        """
        if segment.close():
            regions = part.left
            if last is not None:
                regions = [cut for each in regions if (cut := each.meet(KeyRegion(Bounds(None, last)))) is not None]
            for phase in segment.phases:
                async with aclosing(self.pages(part, regions)) as found:
                    async for rows in found:
                        for start in range(0, len(rows), TURN):
                            some = rows[start : start + TURN]
                            await self._run(segment.verifications(phase, some))
                            await self.verifier.table.db.yield_to_loop(len(some))
        return part if last is None else attrs.evolve(part, partition=last, row=None)

    async def _run(self, verifications: Sequence[Verification]) -> None:
        if not verifications:
            return
        todo = iter(verifications)

        async def worker() -> None:
            for verify in todo:
                await verify(self.counts)

        await work_together(worker, min(self.parallel, len(verifications)))
