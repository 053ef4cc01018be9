"""
`db.build_index`: entities that were there before a declaration get what it derives from them, while others write.

First by the page, many entities in one transaction, each under the ETag it was read with. What is rejected, because
somebody has written meanwhile or a value is taken, is left to the audit that follows.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import groupby
from typing import Any, cast

import attrs

from ..connection.connection import Connection
from ..connection.index_states import find_unreadable, make_readable
from ..errors import ModelError, shown
from ..jobs.plan import MOST_RANGES, plan_ranges
from ..jobs.process import Job, RunOptions, carry_out
from ..jobs.ranges import JobRange, purpose_of
from ..jobs.report import run_report
from ..jobs.scan import Steps, walk
from ..models.derivation import DerivationOf
from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.schema import Schema, concrete
from ..models.write_tokens import new_token
from ..protocol.limits import MAX_TRANSACTION_OPERATIONS
from ..stores import Row
from ..writes.bulk.pacing import Pace
from ..writes.commit import commit
from .audit import audit_range
from .check import AuditedMaintainer
from .context import OUT_OF_REACH, AuditContext, SnapshotTurns
from .report import AuditCounts, BuildReport
from .table_audit import rebuild_write, with_related


async def build_index(
    db: Connection, index: DerivationOf[Entity], options: RunOptions[BuildReport], *, no_older_writers: bool
) -> BuildReport:
    """
    Derive what is declared for entities that were there before; see `Database.build_index`.
    """
    options.check("build_index")
    if type(no_older_writers) is not bool:
        raise ModelError(f"build_index(no_older_writers={shown(no_older_writers)}) is rejected: give True or False")
    declared = _find_declarations(index)
    schemas: list[Schema] = concrete(index.model.__schema__)
    if not schemas:
        raise ModelError(f"{index.model.__name__} is abstract and has no concrete classes yet; import or declare them")
    if any(each.related() for each in declared):
        schemas = [each for each in with_related(schemas) if each.table == schemas[0].table]
    kinds, table = KindSet.of([schema.model for schema in schemas]), schemas[0].table_name()
    limit, turns = asyncio.Semaphore(options.parallel), SnapshotTurns()

    async def work(part: JobRange, pace: Pace | None) -> Steps[AuditCounts]:
        """Build or audit a range, from where it stands."""
        context = AuditContext(db=db, kinds=kinds, repair=True, only=index.name, pace=pace, turns=turns)
        steps = (
            walk(
                db,
                part,
                kinds.filter,
                partial(_build_rows, context, limit),
                context.counts,
                "build_index",
                pace,
                kinds=kinds,
            )
            if part.building
            else audit_range(context, part, options.parallel)
        )
        async with aclosing(steps) as all_steps:
            async for done, counts in all_steps:
                counts.entities *= part.building  # each is counted once
                yield done, counts

    async def settle(*, readable: bool) -> bool:
        """Tell the store that the index is readable, if it is. Return whether it is read from now on."""
        asked = [each.declaration for each in declared if each.declaration and each.building is not False]
        if readable:
            await make_readable(db, asked)
        return not await find_unreadable(db, asked)

    layouts = json.dumps([dict(each.describe()) for each in declared], sort_keys=True)
    job = Job(
        verb="build_index",
        what=f"build {index}",
        purpose=purpose_of(f"build {index.name} {layouts}", schemas),
        tables=(table,),
        plan=partial(plan_ranges, db, "build_index", [(table, schemas)], build=True, most=MOST_RANGES // 2),
        work=work,
        counts=AuditCounts,
        report=partial(run_report, BuildReport),
        no_older_writers=no_older_writers,
        finish=partial(settle, readable=True),
    )
    report = await carry_out(db, job, options)
    return attrs.evolve(report, readable=await settle(readable=no_older_writers)) if report.complete else report


def _find_declarations(index: object) -> list[AuditedMaintainer]:
    """
    Return what is to be built, in each concrete class.

    Raises:
        ModelError: It is not a declaration of a class, or not one that can be built.
    """
    given = index.__name__ if isinstance(index, type) else shown(index)
    model: object = cast("Any", index).model if isinstance(index, DerivationOf) else index
    schema: object = getattr(model, "__schema__", None) if isinstance(model, type) else None
    derived = [each.derived for each in concrete(schema)] if isinstance(schema, Schema) else []
    buildable = [
        {name: each for name, each in some.items() if isinstance(each, AuditedMaintainer) and each.buildable}
        for some in derived
    ]
    if isinstance(index, DerivationOf) and all(index.name in some for some in buildable):
        return [some[index.name] for some in buildable]
    known = ", ".join(dict.fromkeys(name for some in buildable for name in some)) or "none"
    raise ModelError(
        f"build_index({given}) is rejected: give an index of a class, as in Employee.by_email, or a list, a count, "
        f"or a sum{f'; {schema.name} has {known}' if isinstance(schema, Schema) else ''}"
    )


async def _build_rows(context: AuditContext, limit: asyncio.Semaphore, rows: Sequence[Row]) -> None:
    """
    Derive what is declared for many entities in one transaction.

    Args:
        context: The rows of the table; its `only` is what is built.
        limit: How many transactions are under way at the same time.
        rows: The rows of a page.
    """
    incomplete: list[_Incomplete] = []
    async for some in context.in_turns(rows):
        row_keys = [_rows_to_write(context, row) for row in some]
        incomplete += [(keys, row) for keys, row in zip(row_keys, some, strict=True) if keys is not None]
    partitions = [list(group) for _, group in groupby(incomplete, key=_partition_of)]
    # Those of a partition after each other: they may write the same list, or the same count.
    await asyncio.gather(*(_write(context, limit, [*_chunks(group)]) for group in partitions))


_Incomplete = tuple[list[str], Row]
"""An entity that lacks what is built: RowKeys of what has to be written with it, and its row."""


def _rows_to_write(context: AuditContext, row: Row) -> list[str] | None:
    """
    Return the RowKeys of what has to be written with an entity whose manifest does not say what it ought to; None if it
    does, or if the entity is left to the audit.
    """
    snapshot, name = context.snapshot(row), str(context.only)
    if snapshot is None or name not in snapshot.schema.derived:
        return None
    context.counts.entities += 1
    noted, due = snapshot.entries(name)
    if noted == due or not snapshot.legible:
        return None  # the audit says what is wrong with an entity, if something is
    entries = [entry for entry in (due, noted) if entry is not None]
    keys = [entry.local_key for entry in entries if entry.local_key is not None]
    return keys + [key for entry in entries if not entry.local_key for key in entry.entry_keys]


async def _write(context: AuditContext, limit: asyncio.Semaphore, chunks: Sequence[Sequence[Row]]) -> None:
    """Write entities of a partition, each chunk in one transaction; in halves if that is rejected."""
    todo, names = [*reversed(chunks)], (str(context.only),)
    while todo:
        some = todo.pop()
        token = new_token()
        async with limit:
            context.counts.requests += 1
            try:
                writes = [rebuild_write(context.kinds, row, names, token, counts=True) for row in some]
                await commit(context.db, writes)
            except OUT_OF_REACH:
                raise
            except Exception:  # noqa: BLE001 - the audit that follows says what is wrong
                half = len(some) // 2
                todo += [some[half:], some[:half]] if half else []
            else:
                context.counts.written += len(some)


def _partition_of(incomplete: _Incomplete) -> str:
    partition_key: str = incomplete[1]["PartitionKey"]
    return partition_key


def _chunks(incomplete: Sequence[_Incomplete]) -> Iterator[Sequence[Row]]:
    """
    Yield entities of a partition that fit into one transaction with what is written with them. Those that write the
    same row come together, so that it is written once.
    """
    chunk: list[Row] = []
    written: set[str] = set()
    for row_keys, row in sorted(incomplete, key=lambda each: each[0]):
        # One is left for the decision row, where there is one.
        if len(chunk) + 2 + len(written.union(row_keys)) > MAX_TRANSACTION_OPERATIONS:
            yield chunk
            chunk, written = [], set()
        chunk.append(row)
        written.update(row_keys)
    if chunk:
        yield chunk
