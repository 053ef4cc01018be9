"""
Rewriting rows of older versions: each is read, upgraded, and written under the ETag it was read with.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import attrs

from tableorm import Conflict, Database, Entity, EntityNotFound, Key, ModelError, OutcomeUnknown, PreconditionFailed
from tableorm.audit.audit import Steps, check_arguments, work_on_ranges
from tableorm.audit.ranges import AuditRange, audit_ranges_of, purpose_of, read_cursor, write_cursor
from tableorm.audit.scan import pages
from tableorm.connection.connection import connection_of
from tableorm.connection.races import ATTEMPTS
from tableorm.models.entity import schema_of
from tableorm.models.kinds import KindSet
from tableorm.models.periods import require_plain_tables
from tableorm.models.schema import Schema, concrete
from tableorm.stores import Row, RowAddress
from tableorm.writes.bulk.pacing import Pace
from tableorm.writes.modify_together import modify_target

from .report import RewriteCounts, RewriteReport

__all__ = ["find_rewritten", "rewrite", "rewrite_range"]

# Somebody else has written the row since it was read: it is read again.
_CHANGED_MEANWHILE = (PreconditionFailed, Conflict, OutcomeUnknown)


async def rewrite(
    db: Database,
    *models: type[Entity],
    parallel: int = 8,
    cursor: str | None = None,
    on_progress: Callable[[RewriteReport], object] | None = None,
) -> RewriteReport:
    """
    Write every row of an older version as the current version of its model, while other programs read and write.

    Without it a row is upgraded in memory, each time it is read. When every row and every program has the current
    version, the functions that `upgrade` registers can be removed. A row is written only if nobody has changed it since
    it was read; if somebody has, it is read again. What is derived from an entity, such as its index entries, is
    written with it. A row that cannot be upgraded or written stays as it is, and is reported.

    Args:
        db: The open database.
        models: The models; an abstract base stands for all of its classes.
        parallel: How many ranges of keys are worked on at the same time.
        cursor: Where to resume: `RewriteReport.cursor` of an earlier call.
        on_progress: Called with the report so far, again and again. Store its `cursor` to resume after a crash.

    Returns:
        What was done. Programs that still write an older version make more such rows: rewrite again after the last of
        them has ended.

    Raises:
        ModelError: There is no model, or one without a kind, whose rows do not tell their version.
        CursorError: The cursor is of other models, or damaged.
        TableNotFound: There is no such table.
    """
    connection = connection_of(db)
    connection.require_open()
    connection.boundary.check_whole_table("rewrite()")
    check_arguments("rewrite", parallel, on_progress)
    schemas, kinds = find_rewritten("rewrite", models)
    purpose = purpose_of("rewrite", schemas)
    if cursor is None:
        ranges = [each for some in kinds.values() for each in audit_ranges_of(some.table, some.schemas, parallel)]
        counts = RewriteCounts()
    else:
        ranges, counts = read_cursor(purpose, cursor, "rewrite", RewriteCounts, kinds)
    begun = time.monotonic() - counts.seconds

    def report() -> RewriteReport:
        counts.seconds = time.monotonic() - begun
        return RewriteReport(
            entities=counts.entities,
            rewritten=counts.rewritten,
            failed=counts.failed,
            failures=tuple(counts.failures),
            requests=counts.requests,
            seconds=counts.seconds,
            cursor=partial(write_cursor, purpose, tuple(ranges), attrs.evolve(counts)),
        )

    def work(part: AuditRange) -> Steps[RewriteCounts]:
        return rewrite_range(db, kinds[part.table], part)

    await work_on_ranges(ranges, work, counts, parallel, report, on_progress)
    return report()


def find_rewritten(verb: str, models: Sequence[type[Entity]]) -> tuple[list[Schema], dict[str, KindSet]]:
    """
    Return the concrete models that are rewritten, and their kinds by table.

    Args:
        verb: The name of the function, for messages.
        models: The models that it was given.

    Raises:
        ModelError: There is none, or one has no kind.
    """
    if not models:
        raise ModelError(f"{verb}() needs at least one model: give those whose rows are to be rewritten")
    schemas: list[Schema] = list(dict.fromkeys(schema for model in models for schema in concrete(schema_of(model))))
    for schema in schemas:
        if schema.kind is None:
            raise ModelError(f"{verb}({schema.name}) is refused: it has kind=None, so its rows have no version")
    if not schemas:
        names = ", ".join(model.__name__ for model in models)
        raise ModelError(f"{names}: no concrete class is declared yet; import or declare it before {verb}()")
    require_plain_tables(verb, schemas)
    tables = sorted({schema.table_name() for schema in schemas})
    return schemas, {
        table: KindSet.of([each.model for each in schemas if each.table == table], table) for table in tables
    }


async def rewrite_range(
    db: Database, kinds: KindSet, part: AuditRange, pace: Pace | None = None
) -> Steps[RewriteCounts]:
    """
    Rewrite the rows of a range, page by page. Yield how far it is, and what was counted since.

    Args:
        db: The open database.
        kinds: The models of the table.
        part: The range, without what is done of it.
        pace: Limits how many rows are read in a second; None for any number.
    """
    counts, ordered = RewriteCounts(), db.store.capabilities.ordered
    async with aclosing(
        pages(connection_of(db), part.table, kinds.filter, part.left, counts, "rewrite", pace, kinds=kinds)
    ) as found:
        async for rows in found:
            await _rewrite_rows(db, kinds, rows, counts)
            if rows and ordered:
                last = rows[-1]
                part = attrs.evolve(part, partition=last["PartitionKey"], row=last["RowKey"])
                yield part, counts.take()
    yield attrs.evolve(part, done=True), counts.take()


async def _rewrite_rows(db: Database, kinds: KindSet, rows: Sequence[Row], counts: RewriteCounts) -> None:
    """Write those of some rows that have an older version, as entity group transactions."""
    keys: dict[int, Key[Any]] = {}
    old: list[Any] = []
    for row in rows:
        try:
            resolved = kinds.resolve(row)
            if resolved is None:
                continue
            counts.entities += 1
            if resolved[1] >= resolved[0].version:
                continue
            entity: Any = kinds.load(row)
        except Exception as error:  # noqa: BLE001 - upgrades are the user's: one bad row is a failure, and no more
            counts.record(RowAddress.of_row(kinds.table, row), error)
            continue
        old.append(entity)
        keys[id(entity)] = Key(resolved[0].model, kinds.table, row["PartitionKey"], row["RowKey"])
        await connection_of(db).yield_to_loop(1)
    if not old:
        return
    async with db.bulk(errors="report") as bulk:
        for entity in old:
            try:
                await bulk.save(entity)
            except Exception as error:  # noqa: BLE001 - what a row cannot be written for concerns no other row
                key = keys.pop(id(entity))
                counts.record(RowAddress.of(key), error)
    refused = {id(failure.entity): failure.error for failure in bulk.report.failed}
    for number, key in keys.items():
        reason = refused.get(number)
        if reason is None:
            counts.rewritten += 1
        elif isinstance(reason, _CHANGED_MEANWHILE):
            await _rewrite_one(db, kinds, key, counts)
        elif not isinstance(reason, EntityNotFound):
            counts.record(RowAddress.of(key), reason)


async def _rewrite_one(db: Database, kinds: KindSet, key: Key[Any], counts: RewriteCounts) -> None:
    """Read a row anew that somebody else has written meanwhile, and write it, if its version is still older."""

    def load(model: type[Any], table: str, row: Row) -> Any:
        """Return the entity of the row, also if it has expired: it is read until it is swept."""
        del model, table
        return kinds.load(row)

    try:
        await modify_target(connection_of(db), load, key, _keep, {}, attempts=ATTEMPTS, create=None, if_match=None)
    except EntityNotFound:
        return
    except Exception as error:  # noqa: BLE001 - as above
        counts.record(RowAddress.of(key), error)
    else:
        counts.rewritten += 1


def _keep(entity: Any) -> None:
    """Change nothing: saving an upgraded entity writes it."""
    del entity
