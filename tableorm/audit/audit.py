"""
`db.audit`: segment by segment, rows are summed up and candidates verified; workers share the ranges of keys.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

import attrs

from ..connection.connection import Connection
from ..connection.index_states import find_unreadable
from ..connection.logger import make_logger
from ..connection.tasks import work_off
from ..errors import AccessDenied, ModelError, TableNotFound, shown
from ..jobs.plan import MOST_RANGES, plan_ranges
from ..jobs.process import Job, RunOptions, work_on
from ..jobs.ranges import JobRange, purpose_of, ranges_of
from ..jobs.scan import Steps, family_filter, partition_start
from ..keys.ranges import EVERYTHING, KeyRegion
from ..models.entity import Entity, schema_of
from ..models.kinds import KindSet
from ..models.periods import require_plain_tables
from ..models.schema import Schema, concrete
from ..protocol.filters import Filter
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, Row, RowQuery
from ..writes.bulk.pacing import Pace
from .check import AuditedMaintainer
from .context import OUT_OF_REACH, AuditContext, SnapshotTurns
from .first_look import Candidate, FirstLook, Verification
from .report import AuditCounts, AuditReport, make_report
from .segment import Segment
from .table_audit import TableAudit, with_related

_LOG = make_logger("tableorm.audit")

SMALL = MAX_PAGE
"""The most rows of one range, which one request reads."""

SEGMENT = 20_000
"""Rows that are summed up before candidates are verified, if a partition ends there."""


@attrs.frozen(kw_only=True)
class OtherRanges:
    """
    What an audit reads besides the rows of its models.

    Args:
        name: What stands for the table in its ranges: no name of a table, so that it differs from all of these.
        table: The table, which several processes divide; None if it is read as a whole.
        schemas: The models that it has entities of.
        work: Works on a range.
    """

    name: str
    table: str | None
    schemas: Sequence[Schema]
    work: Callable[[JobRange, Pace | None], Steps[AuditCounts]]


async def audit(
    db: Connection,
    models: Sequence[type[Entity]],
    options: RunOptions[AuditReport],
    *,
    cursor: str | None,
    repair: bool,
    others: Sequence[OtherRanges] = (),
) -> AuditReport:
    """
    Audit the entities of some models; see `Database.audit`.
    """
    if type(repair) is not bool:
        raise ModelError(f"audit(repair={shown(repair)}) is rejected: give True or False")
    if not models:
        raise ModelError("audit() needs at least one model: give those whose entities are to be checked")
    schemas = with_related(list(dict.fromkeys(schema for model in models for schema in _concrete_schemas(model))))
    require_plain_tables("audit", schemas)
    tables = {schema.table_name() for schema in schemas}
    derived = [each for schema in schemas for each in schema.derived.values()]
    tables |= {str(each.table) for each in derived if not each.in_blobs}
    kinds = {table: _kinds_in(table, schemas) for table in sorted(tables)}
    guests = {
        table: [s for s in schemas if s not in own.schemas and any(table in e.tables for e in s.derived.values())]
        for table, own in kinds.items()
    }
    by_name = {each.name: each for each in others}
    parallel, turns, asked = options.parallel, SnapshotTurns(), AuditCounts()
    # An index that is not complete lacks entries, which is no damage.
    await find_unreadable(db, [d.declaration for d in derived if d.declaration and d.building is None])

    def make_context(table: str, pace: Pace | None = None) -> AuditContext:
        return AuditContext(db=db, kinds=kinds[table], repair=repair, guests=guests[table], pace=pace, turns=turns)

    async def plan() -> list[JobRange]:
        if options.name is not None:
            tables = [(table, own.schemas) for table, own in kinds.items()]
            share = max(1, MOST_RANGES // (len(tables) + len(others)))
            ranges = await plan_ranges(db, "audit", tables, most=MOST_RANGES - share * len(others))
            return ranges + [part for each in others for part in await _divide(db, each, share)]
        ranges = [JobRange(table=each.name, partitions=EVERYTHING) for each in others]
        for some in kinds.values():
            is_small = parallel > 1 and await _is_small(db, some, guests[some.table], asked)
            ranges += ranges_of(some.table, some.schemas, 1 if is_small else parallel)
        return ranges

    async def check_blobs(counts: AuditCounts) -> None:
        counts.add(asked)
        for each in derived:
            if isinstance(each, AuditedMaintainer):
                context = make_context(each.schema.table_name())
                await each.audit_blobs(context)
                counts.add(context.counts)

    names = ", ".join(sorted(schema.name for schema in schemas))
    job = Job(
        verb="audit",
        what=f"{'repair' if repair else 'audit'} {names}",
        purpose=purpose_of(
            " ".join(["repair" if repair and options.name is not None else "audit", *sorted(by_name)]), schemas
        ),
        tables=[*kinds, *by_name],
        plan=plan,
        work=lambda part, pace: (
            by_name[part.table].work(part, pace)
            if part.table in by_name
            else audit_range(make_context(part.table, pace), part, parallel)
        ),
        counts=AuditCounts,
        report=make_report,
        judge=check_blobs,
    )
    return await work_on(db, job, options, cursor)


async def _divide(db: Connection, other: OtherRanges, most: int) -> list[JobRange]:
    """Return the ranges of what a shared audit reads besides; none if there is no such table."""
    ranges = [JobRange(table=other.name, partitions=EVERYTHING)]
    if other.table is not None:
        with suppress(TableNotFound, AccessDenied):
            ranges = await plan_ranges(db, "audit", [(other.table, other.schemas)], most=most)
    return [attrs.evolve(each, table=other.name) for each in ranges]


async def _is_small(db: Connection, kinds: KindSet, guests: Sequence[Schema], counts: AuditCounts) -> bool:
    """Return whether a table has so few rows to check that one request reads them: dividing it would take many."""
    counts.requests += 1
    query = RowQuery(where=_rows_to_check(kinds, guests), select=("PartitionKey", "RowKey"))
    page = await db.read_page("audit", kinds.table, query, SMALL)
    return page.continuation is None


def _rows_to_check(kinds: KindSet, guests: Sequence[Schema]) -> Filter | None:
    return family_filter(kinds, guests, markers=bool(kinds.schemas))


def _kinds_in(table: str, schemas: Sequence[Schema]) -> KindSet:
    """Return those of some models that are of a table; none if it has derived rows of others alone."""
    models = [each.model for each in schemas if each.table == table]
    return KindSet.of(models) if models else KindSet((), table, bags=False)


def _concrete_schemas(model: type[Entity]) -> list[Schema]:
    schemas = concrete(schema_of(model))
    if not schemas:
        raise ModelError(f"{model.__name__} is abstract and has no concrete classes yet; import or declare them")
    for schema in schemas:
        if schema.kind is None:
            raise ModelError(f"{schema.name} has kind=None, so nothing is derived from it that could be audited")
    return schemas


async def audit_range(context: AuditContext, part: JobRange, parallel: int) -> Steps[AuditCounts]:
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

    async def verify_candidates(part: JobRange, last: str | None) -> JobRange:
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
    async def run(verify: Verification) -> None:
        await context.turns.take()  # an embedded store answers without waiting
        try:
            await verify()
        except OUT_OF_REACH:
            raise
        except Exception as error:  # noqa: BLE001 - a row may be as nobody has thought of
            _LOG.warning("a row of table %s is left undecided: %s", context.kinds.table, error, exc_info=error)
            context.counts.leave()

    await work_off(run, verifications, min(parallel, len(verifications)))
