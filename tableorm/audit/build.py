"""
`db.build_index`: entities that were there before a declaration get what it derives from them, while others write.

First by the page, many entities in one transaction, each under the ETag it was read with. What is refused, because
somebody has written meanwhile or a value is taken, is left to the audit that follows.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import groupby
from typing import Any, cast

import attrs

from ..connection.connection import Connection
from ..connection.index_states import find_unreadable, make_readable
from ..errors import ModelError, shown
from ..models.derivation import DerivationOf
from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.schema import Schema, concrete
from ..models.write_tokens import new_token
from ..protocol.limits import MAX_TRANSACTION_OPERATIONS
from ..stores import Row
from ..writes.bulk.pacing import Pace
from ..writes.commit import commit
from .audit import Steps, audit_range, check_arguments, work_on_ranges
from .check import AuditedMaintainer
from .context import OUT_OF_REACH, AuditContext, SnapshotTurns
from .ranges import AuditRange, audit_ranges_of, purpose_of, read_cursor, write_cursor
from .report import AuditCounts, BuildReport, make_report
from .table_audit import rebuild_write, with_related

__all__ = ["IndexBuild", "build_index"]


async def build_index(
    db: Connection,
    index: DerivationOf[Entity],
    *,
    parallel: int,
    cursor: str | None,
    no_older_writers: bool,
    on_progress: Callable[[BuildReport], object] | None,
) -> BuildReport:
    """
    Derive what is declared for entities that were there before; see `Database.build_index`.
    """
    db.require_open()
    check_arguments("build_index", parallel, on_progress)
    if type(no_older_writers) is not bool:
        raise ModelError(f"build_index(no_older_writers={shown(no_older_writers)}) is refused: give True or False")
    work = IndexBuild(db, index, parallel)
    purpose = purpose_of(f"build {index.name}", work.schemas)
    built, checked = AuditCounts(), AuditCounts()
    if cursor is None:
        ranges = work.plan_ranges(parallel)
    else:
        what = f"build_index({index})"
        ranges, (built, checked) = read_cursor(purpose, cursor, what, tuple[AuditCounts, AuditCounts], (work.table,))
    begun = time.monotonic() - built.seconds
    begun_audit = time.monotonic() - checked.seconds
    auditing = all(each.done for each in ranges if each.building)

    def report() -> BuildReport:
        built.seconds = time.monotonic() - begun
        if auditing:
            checked.seconds = time.monotonic() - begun_audit
        return BuildReport(
            index=str(index),
            entities=built.entities,
            built=built.built,
            requests=built.requests + checked.requests,
            seconds=built.seconds,
            audit=make_report(checked) if auditing else None,
            cursor=partial(write_cursor, purpose, tuple(ranges), (attrs.evolve(built), attrs.evolve(checked))),
        )

    if not auditing:
        await work_on_ranges(ranges, work.work_on, built, parallel, report, on_progress, building=True)
        auditing, begun_audit = True, time.monotonic()
    await work_on_ranges(ranges, work.work_on, checked, parallel, report, on_progress)
    finished = report()
    if finished.complete:
        finished = attrs.evolve(finished, readable=await work.make_readable(no_older_writers=no_older_writers))
    return finished


class IndexBuild:
    """
    Work that builds an index range by range, and then audits it range by range.

    Args:
        db: Where the rows are.
        index: What is built.
        parallel: How many transactions are under way at the same time.

    Attributes:
        declared: What is built, in each concrete class.
        schemas: The models that are read.
        table: Name of their table.

    Raises:
        ModelError: It is not a declaration of a class, or not one that can be built.
    """

    def __init__(self, db: Connection, index: DerivationOf[Any], parallel: int) -> None:
        self.declared: list[AuditedMaintainer] = _find_declarations(index)
        self.schemas: list[Schema] = concrete(index.model.__schema__)
        if not self.schemas:
            raise ModelError(
                f"{index.model.__name__} is abstract and has no concrete classes yet; import or declare them"
            )
        if any(each.related() for each in self.declared):
            self.schemas = with_related(self.schemas)
        self._kinds = KindSet.of([schema.model for schema in self.schemas])
        self.table = self.schemas[0].table_name()
        self._db, self._name, self._parallel = db, index.name, parallel
        self._limit, self._turns = asyncio.Semaphore(parallel), SnapshotTurns()

    def plan_ranges(self, workers: int) -> list[AuditRange]:
        """Return the ranges in which the index is built, and those in which it is audited, for some workers."""
        building = audit_ranges_of(self.table, self.schemas, workers, building=True)
        return building + audit_ranges_of(self.table, self.schemas, workers)

    def work_on(self, part: AuditRange, pace: Pace | None = None) -> Steps[AuditCounts]:
        """
        Build or audit a range, from where it stands.

        Args:
            part: The range.
            pace: Limits how many rows are read in a second; None for any number.
        """
        context = AuditContext(
            db=self._db, kinds=self._kinds, repair=True, only=self._name, pace=pace, turns=self._turns
        )
        return _build_range(context, self._limit, part) if part.building else audit_range(context, part, self._parallel)

    async def make_readable(self, *, no_older_writers: bool) -> bool:
        """
        Tell the store that the index is readable, if no older program writes. Return whether it is read from now on.

        Args:
            no_older_writers: Whether every program that writes such entities declares the index, since the build began.
        """
        asked = [each.declaration for each in self.declared if each.declaration and each.building is not False]
        if no_older_writers:
            await make_readable(self._db, asked)
        return not await find_unreadable(self._db, asked)


def _find_declarations(index: object) -> list[AuditedMaintainer]:
    """
    Return what is to be built, in each concrete class.

    Raises:
        ModelError: It is not a declaration of a class, or not one that can be built.
    """
    given = shown(index)
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
        f"build_index({given}) is refused: give an index of a class, as in Employee.by_email, or a list, a count, "
        f"or a sum{f'; {schema.name} has {known}' if isinstance(schema, Schema) else ''}"
    )


async def _build_range(context: AuditContext, limit: asyncio.Semaphore, part: AuditRange) -> Steps[AuditCounts]:
    """
    Build a range, page by page: derive what is declared for many entities in one transaction.

    Args:
        context: The rows of the table; its `only` is what is built.
        limit: How many transactions are under way at the same time.
        part: The range, without what is done of it.
    """
    db, counts = context.db, context.counts
    async with aclosing(context.pages(context.kinds.filter, part.left, "build_index")) as found:
        async for rows in found:
            if not rows:
                continue
            incomplete: list[_Incomplete] = []
            async for some in context.in_turns(rows):
                row_keys = [_rows_to_write(context, row) for row in some]
                incomplete += [(keys, row) for keys, row in zip(row_keys, some, strict=True) if keys is not None]
            partitions = [list(group) for _, group in groupby(incomplete, key=_partition_of)]
            # Those of a partition after each other: they may write the same list, or the same count.
            await asyncio.gather(*(_write(context, limit, [*_chunks(group)]) for group in partitions))
            if db.store.capabilities.ordered:
                part = attrs.evolve(part, partition=rows[-1]["PartitionKey"], row=rows[-1]["RowKey"])
                yield part, counts.take()
    yield attrs.evolve(part, done=True), counts.take()


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
    noted, due = snapshot.manifest.get(name), snapshot.expected.get(name)
    if noted == due or not snapshot.legible:
        return None  # the audit says what is wrong with an entity, if something is
    return [entry.local_key for entry in (due, noted) if entry is not None and entry.local_key is not None]


async def _write(context: AuditContext, limit: asyncio.Semaphore, chunks: Sequence[Sequence[Row]]) -> None:
    """Write entities of a partition, each chunk in one transaction; in halves if that is refused."""
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
                context.counts.built += len(some)


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
