"""
Rewriting rows of older versions: each is read, upgraded, and written under the ETag it was read with.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tableorm import (
    Conflict,
    Database,
    Entity,
    EntityNotFound,
    Key,
    ModelError,
    OutcomeUnknown,
    PreconditionFailed,
    RunReport,
)
from tableorm.connection.connection import connection_of
from tableorm.connection.races import Attempts, is_race
from tableorm.connection.rows import read_row
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.plan import plan_ranges
from tableorm.jobs.process import RunJob, RunOptions, carry_out
from tableorm.jobs.ranges import JobRange, purpose_of
from tableorm.jobs.scan import Steps, walk
from tableorm.models.entity import concrete_schemas
from tableorm.models.kinds import KindSet
from tableorm.models.periods import require_plain_tables
from tableorm.models.schema import Schema
from tableorm.models.state import state_of
from tableorm.stores import Row, RowAddress, row_keys
from tableorm.writes.bulk.pacing import Pace

# Another program has written the row since it was read: it is read again.
_CHANGED_MEANWHILE = (PreconditionFailed, Conflict, OutcomeUnknown)


async def rewrite(
    db: Database,
    *models: type[Entity],
    name: str | None = None,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[RunReport], object] | None = None,
) -> RunReport:
    """
    Write every row of an older version as the current version of its model, while other programs read and write.

        report = await rewrite(db, Parcel)
        print(report.complete, report.written)

    Without a rewrite, a row is upgraded in memory each time it's read. Once every row and every program has the current
    version, you can remove the functions registered with `upgrade`. A row is written under the ETag it was read with;
    if another client has changed it, it's read again. Derived rows, such as index entries, are written with it. A row
    that can't be upgraded or written stays unchanged and is reported. Rows in which a field with
    `encrypted(accept_plain=True)` isn't encrypted yet are written too.

    This is a shared run: any number of processes can make the same call, in parallel or later, and work on different
    key ranges. If one is killed, the others take over its ranges; if all are killed, the next call resumes.

    Args:
        db: The open database.
        models: The models; an abstract base stands for all of its subclasses.
        name: The name of the run. A finished run isn't repeated under its name, unless something failed. Without a
            name, each call after a finished run starts another one.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far.

    Returns:
        The work of all processes, once the last one has finished. Programs that still write an older version
        add such rows: rewrite again after the last of them has ended.

    Raises:
        ModelError: No model was passed, or one has no kind; an argument is rejected; or the run of that name belongs
            to other models, or to other versions or declarations of them.
        AccessDenied: In a scope, because a run covers whole tables.
        TableNotFound: There is no such table.
    """
    connection = connection_of(db)
    connection.require_whole_tables("rewrite()")
    schemas, kinds = _find_rewritten(models)
    versions = ",".join(sorted(f"{each.table}/{each.kind}:{each.version}" for each in schemas))
    tables = [(each.table, each.schemas) for each in kinds.values()]

    def work(part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
        some, counts = kinds[part.table], JobCounts()

        async def deal(rows: list[Row]) -> None:
            await _rewrite_rows(db, some, rows, counts)

        return walk(connection, part, some.filter, deal, counts, "rewrite", pace, kinds=some)

    job = RunJob(
        verb="rewrite",
        what=f"rewrite {', '.join(sorted(schema.name for schema in schemas))}",
        purpose=purpose_of(f"rewrite {versions}", schemas),
        tables=kinds,
        plan=partial(plan_ranges, connection, "rewrite", tables),
        work=work,
    )
    options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    return await carry_out(connection, job, options)


def _find_rewritten(models: Sequence[type[Entity]]) -> tuple[list[Schema], dict[str, KindSet]]:
    """
    Return the concrete models that are rewritten, and their kinds by table.

    Raises:
        ModelError: There is none, or one has no kind.
    """
    if not models:
        raise ModelError("rewrite() needs at least one model: give those whose rows are to be rewritten")
    schemas = concrete_schemas(models)
    for schema in schemas:
        if schema.kind is None:
            raise ModelError(f"rewrite({schema.name}) is rejected: it has kind=None, so its rows have no version")
    if not schemas:
        names = ", ".join(model.__name__ for model in models)
        raise ModelError(f"{names}: no concrete class is declared yet; import or declare it before rewrite()")
    require_plain_tables("rewrite", schemas)
    tables = sorted({schema.table_name() for schema in schemas})
    return schemas, {
        table: KindSet.of([each.model for each in schemas if each.table == table], table) for table in tables
    }


async def _rewrite_rows(db: Database, kinds: KindSet, rows: Sequence[Row], counts: JobCounts) -> None:
    """Write those of some rows that have an older version, or are not encrypted yet, as entity group transactions."""
    keys: dict[int, Key[Any]] = {}
    old: list[Any] = []
    for row in rows:
        try:
            resolved = kinds.resolve(row)
            if resolved is None:
                continue
            counts.entities += 1
            if resolved[1] >= resolved[0].version and resolved[0].keyed is None:
                continue
            entity: Any = kinds.load(row)
            if not state_of(entity).upgraded:
                continue
        except Exception as error:  # noqa: BLE001 - upgrades are the user's: one bad row is a failure, and no more
            counts.fail(RowAddress.of_row(kinds.table, row), error)
            continue
        old.append(entity)
        keys[id(entity)] = Key(resolved[0].model, kinds.table, *row_keys(row))
        await connection_of(db).yield_to_loop(1)
    if not old:
        return
    async with db.bulk(errors="report") as bulk:
        for entity in old:
            try:
                await bulk.save(entity)
            except Exception as error:  # noqa: BLE001 - what a row cannot be written for concerns no other row
                key = keys.pop(id(entity))
                counts.fail(RowAddress.of(key), error)
    refused = {id(failure.entity): failure.error for failure in bulk.report.failed}
    for number, key in keys.items():
        reason = refused.get(number)
        if reason is None:
            counts.written += 1
        elif isinstance(reason, _CHANGED_MEANWHILE):
            await _rewrite_one(db, kinds, key, counts)
        elif not isinstance(reason, EntityNotFound):
            counts.fail(RowAddress.of(key), reason)


async def _rewrite_one(db: Database, kinds: KindSet, key: Key[Any], counts: JobCounts) -> None:
    """Read a row anew that another program has written meanwhile, and write it, if its version is still older."""
    connection, address = connection_of(db), RowAddress.of(key)
    try:
        async for _ in Attempts(connection, races=f"rewrite of {key}: others wrote it first"):
            row = await read_row(connection, address, name=key.model.__name__)
            entity = None if row is None else kinds.load(row)  # also if it has expired: it is read until it is swept
            if entity is None:
                return
            try:
                await db.save(entity)
            except _CHANGED_MEANWHILE as error:
                if is_race(error) or isinstance(error, OutcomeUnknown):
                    continue
                raise
            counts.written += 1
            return
    except EntityNotFound:
        return
    except Exception as error:  # noqa: BLE001 - as above
        counts.fail(address, error)
