"""
Sweeps: entities that have expired are deleted, each under the ETag that its row was read with, so that nobody loses
what was written meanwhile. Change feeds are trimmed.

Where an index begins with the field that says when an entity expires, its entries name what is to be deleted, the
oldest first. They go with their entities, so that a sweep which is interrupted begins anew. Otherwise whole tables are
read by ranges of keys, as an audit reads them; the service sends no more than the rows that have expired, and those
that count the changes of a feed.
"""

import datetime as dt
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import attrs

from ..connection.connection import Connection
from ..connection.rows import read_row
from ..connection.tasks import map_together
from ..derived.feed.feed import feed_of
from ..derived.feed.rows import COUNTER_KEY, trim_feed
from ..derived.index.schema import EntrySchema
from ..errors import (
    DecodeError,
    EntityNotFound,
    LimitExceeded,
    ModelError,
    NotSupported,
    PreconditionFailed,
    ScanRefused,
    TableOrmError,
)
from ..jobs.counts import JobCounts
from ..jobs.plan import MOST_RANGES, plan_ranges
from ..jobs.process import Job, RunOptions, work_on
from ..jobs.ranges import JobRange, purpose_of, ranges_of
from ..jobs.scan import Steps, walk
from ..keys.ranges import EVERYTHING
from ..models.entity import Entity, schema_of
from ..models.kinds import KindSet
from ..models.periods import require_plain_tables
from ..models.reserved import ENTITY_TYPE
from ..models.schema import Schema, concrete
from ..protocol.filters import And, Compare, Filter, Op, Or, compare_value, constant
from ..stores import Row, RowAddress, utc_now
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.pacing import Pace
from .cursors import sources_of
from .delete import delete_call, needs_whole_rows
from .execution import QueryExecution
from .planning.plan import Access
from .projection import Projection
from .query import start_query
from .run import apply_filters, fetch_pages, requests_ahead
from .select import Select
from .sweep_report import SweepReport, make_report


@attrs.frozen(kw_only=True)
class _SweptTable:
    """
    The part of a table that is swept by ranges of keys.

    Args:
        kinds: The kinds whose entities are deleted when they have expired.
        keep: How long the changes of its feeds are kept; None if they stay as they are.
    """

    kinds: KindSet
    keep: dt.timedelta | None


async def sweep(
    db: Connection, models: Sequence[type[Entity]], options: RunOptions[SweepReport], *, cursor: str | None
) -> SweepReport:
    """Delete the entities of some models that have expired, and trim their feeds; see `Database.sweep`."""
    options.check("sweep")
    if not models:
        raise ModelError(
            "sweep() needs at least one model: give models whose entities expire or that have a change feed"
        )
    schemas = list(dict.fromkeys(schema for model in models for schema in _find_swept(model)))
    require_plain_tables("sweep", schemas)
    db.used_models.add(*schemas)
    indexes = {schema: run for schema in schemas if (run := await _find_index(db, schema)) is not None}
    scanned = [schema for schema in schemas if schema not in indexes or feed_of(schema) is not None]
    by_table = [
        (table, [schema for schema in scanned if schema.table == table])
        for table in sorted({schema.table_name() for schema in scanned})
    ]
    tables = {
        table: _SweptTable(
            kinds=KindSet.of([each.model for each in own if each.expiry and each not in indexes], table),
            keep=next((feed.keep for each in own if (feed := feed_of(each)) is not None), None),
        )
        for table, own in by_table
    }
    # What indexes name is deleted first. A range of that is never done in part.
    by_index = {
        schema.table_name(): JobRange(table=schema.table_name(), partitions=EVERYTHING, building=True)
        for schema in indexes
    }

    async def plan() -> list[JobRange]:
        if options.name is not None and by_table:
            most = MOST_RANGES - len(by_index)
            return [*by_index.values(), *await plan_ranges(db, "sweep", by_table, most=most)]
        return [*by_index.values(), *(each for table in by_table for each in ranges_of(*table, options.parallel))]

    def work(part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
        if part.building:
            return _sweep_indexes(db, indexes, part, pace)
        return _sweep_range(db, tables[part.table], part, pace)

    job = Job(
        verb="sweep",
        what=f"sweep {', '.join(sorted(schema.name for schema in schemas))}",
        purpose=purpose_of(f"sweep {','.join(tables)}", schemas),
        tables={*tables, *by_index},
        plan=plan,
        work=work,
        counts=JobCounts,
        report=make_report,
    )
    return await work_on(db, job, options, cursor)


def is_swept(schema: Schema) -> bool:
    """Return whether entities of a model expire, or whether it has a change feed."""
    return schema.expiry is not None or feed_of(schema) is not None


def _find_swept(model: type[Entity]) -> list[Schema]:
    """
    Return the concrete models of a model whose entities expire, or that have a change feed.

    Raises:
        ModelError: There are none.
    """
    found = [each for each in concrete(schema_of(model)) if is_swept(each)]
    if not found:
        raise ModelError(
            f"sweep({model.__name__}) is rejected: its entities never expire, and it has no change feed; declare "
            "expires: Mapped[datetime | None] = field(default=None, expiry=True), or changes = Feed(keep=...)"
        )
    return found


# By an index


async def _find_index(db: Connection, schema: Schema) -> QueryExecution | None:
    """Return the query for all entries of entities that have expired, by an index that is read in order of that."""
    if schema.expiry is None:
        return None
    name = schema.expiry.name
    for each in schema.derived.values():
        rows = each.row_schema
        # An entity that never expires may lack an entry; any other must have one.
        if not isinstance(rows, EntrySchema) or rows.where is not None or not {*rows.needed} <= {name}:
            continue
        if not any(template.fields[:1] == (name,) for template in rows.templates()):
            continue
        kinds = KindSet.alone(rows)
        where = (getattr(schema.model, name) <= utc_now(),)
        try:
            (run,) = await start_query(Select[Any](db, kinds, (schema.model,), where).unordered())
        except (ScanRefused, NotSupported):
            continue  # it is in all partitions, or not complete yet
        if run.plan.access is not Access.PARTITION_SCAN:
            return run
    return None


async def _sweep_indexes(
    db: Connection, indexes: Mapping[Schema, QueryExecution], part: JobRange, pace: Pace | None
) -> Steps[JobCounts]:
    """Delete the entities of a table that the entries of indexes name."""
    for schema, run in indexes.items():
        if schema.table_name() == part.table:
            async with aclosing(_sweep_index(db, schema, run, pace)) as steps:
                async for counts in steps:
                    yield part, counts
    yield attrs.evolve(part, done=True), JobCounts()


async def _sweep_index(
    db: Connection, schema: Schema, run: QueryExecution, pace: Pace | None
) -> AsyncGenerator[JobCounts, None]:
    """Delete the entities of the entries that a query finds, and yield what was counted since."""
    kinds = KindSet.alone(schema)
    counts, size = JobCounts(), None if pace is None else pace.chunk
    sources = sources_of(run)

    async def read(entry: Row) -> Row | None:
        try:
            found = run.plan.target.kinds.schema_of_row(entry)
            if isinstance(found, EntrySchema):
                return await read_row(db, RowAddress(kinds.table, *found.owner_keys(entry)), name=schema.name)
        except (DecodeError, LimitExceeded) as error:  # it names no key that a row can have, and stops no other entry
            counts.fail(RowAddress.of_row(run.plan.target.table, entry), error)
        return None

    async with aclosing(fetch_pages(sources, requests_ahead(run), ordered=False)) as found:
        async for page in found:
            counts.requests += 1
            entries = apply_filters(page.request, page.rows)
            for start in range(0, len(entries), size or len(entries) or 1):
                some = entries[start : start + size] if size else entries
                if pace is not None:
                    await pace.wait(len(some))
                rows = await map_together(read, some)
                counts.requests += len(some)
                await _delete_expired(db, kinds, [row for row in rows if row is not None], counts)
                yield counts.take()


# By ranges of keys


def _sweep_range(db: Connection, table: _SweptTable, part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
    """Delete the entities of a range, page by page. Yield how far it is, and what was counted since."""
    counts, kinds = JobCounts(), table.kinds
    select = None if needs_whole_rows(kinds) else Projection.of(kinds, ()).select

    async def deal(rows: list[Row]) -> None:
        await _delete_expired(db, kinds, [row for row in rows if row["RowKey"] != COUNTER_KEY], counts)
        for row in rows if table.keep is not None else ():
            if row["RowKey"] == COUNTER_KEY:
                await _trim(db, table, row["PartitionKey"], pace, counts)

    return walk(db, part, _filter_of(table), deal, counts, "sweep", pace, select, kinds=kinds)


async def _trim(db: Connection, table: _SweptTable, partition_key: str, pace: Pace | None, counts: JobCounts) -> None:
    """Trim the change feed of a partition."""
    assert table.keep is not None
    name = table.kinds.table
    try:
        while deleted := await trim_feed(db, name, partition_key, table.keep, pace):
            counts.count("trimmed", deleted)
            counts.requests += 1
    except TableOrmError as error:
        counts.fail(RowAddress(name, partition_key, COUNTER_KEY), error)


def _filter_of(table: _SweptTable) -> Filter | None:
    """
    Return the condition on rows of entities that may have expired, and on the counters of feeds. Of older versions
    these are all, since their time may be in another property. None if the rows of older versions are not told by their
    kind.
    """
    kinds = table.kinds
    terms: list[Filter] = [] if table.keep is None else [Compare("RowKey", Op.EQ, constant(COUNTER_KEY))]
    now = constant(utc_now())
    for schema in kinds.schemas:
        assert schema.expiry is not None
        own = KindSet((schema,), kinds.table, bags=False).filter
        due: Filter = compare_value(schema.expiry.member.property, Op.LE, now)
        if schema.version > 1:
            if own is None:
                return None
            due = Or((due, Compare(ENTITY_TYPE, Op.NE, constant(schema.kind_properties[ENTITY_TYPE]))))
        terms.append(due if own is None else And((own, due)))
    return terms[0] if len(terms) == 1 else Or(tuple(terms))


async def _delete_expired(db: Connection, kinds: KindSet, rows: Sequence[Row], counts: JobCounts) -> None:
    """Delete those of some rows whose entities have expired, if they are still as they were read."""
    counts.entities += len(rows)
    async with Bulk(db, errors="report") as bulk:
        for row in rows:
            try:
                found = kinds.resolve(row)
                if found is not None and found[1] > found[0].version:
                    continue  # only a newer program knows when it expires
                change = delete_call(bulk, kinds, row, expired=True)
                if change is not None:
                    await change
            except Exception as error:  # noqa: BLE001  # what a row or a function of its model raises stops no other row
                counts.fail(RowAddress.of_row(kinds.table, row), error)
    counts.written += bulk.report.written
    counts.requests += bulk.report.requests
    for failure in bulk.report.failed:
        if isinstance(failure.error, (PreconditionFailed, EntityNotFound)):
            counts.count("kept")
        else:
            key: Any = failure.entity
            counts.fail(RowAddress.of(key), failure.error)
