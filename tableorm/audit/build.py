"""
`db.build_index`: entities that were there before an index get their copies, while others write; so with index lists,
and with counts and sums.

First by the page, many entities in one transaction, each under the ETag it was read with. What is refused, because
somebody has written meanwhile or a value is taken, is left to the audit that comes after.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import groupby

import attrs

from ..connection.connection import TURN
from ..database.reading import Reader
from ..derived.aggregate.aggregate import AggregateOf
from ..derived.index.index import IndexOf
from ..derived.index_list.index_list import ListOf
from ..errors import Conflict, DecodeError, EntityNotFound, LimitExceeded, ModelError, OutcomeUnknown, WrongKind
from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.schema import concrete
from ..protocol.limits import MAX_TRANSACTION_OPERATIONS
from ..stores import Row
from ..writes.commit import commit
from ..writes.write_tokens import new_token
from .audit import audited, check_call, go_through, report_of
from .check import EntitySnapshot
from .judge import Verifier, rebuilt
from .ranges import AuditRange, audit_ranges_of, purpose_of, read_cursor
from .report import AuditCounts, BuildReport
from .rows import with_related
from .scan import pages

__all__ = ["build_index"]

_Wanting = tuple[Row, list[str]]
"""An entity, and RowKeys of what has to be written beside it."""

_REFUSED = (Conflict, EntityNotFound, OutcomeUnknown, LimitExceeded, DecodeError, WrongKind)


async def build_index(
    db: Reader,
    index: IndexOf[Entity] | ListOf[Entity] | AggregateOf[Entity],
    *,
    parallel: int,
    cursor: str | None,
    on_progress: Callable[[BuildReport], object] | None,
) -> BuildReport:
    """
    See `Database.build_index`.
    """
    db.require_open()
    check_call("build_index", parallel, on_progress)
    if not isinstance(index, (IndexOf, ListOf, AggregateOf)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ModelError(
            f"build_index({index!r}) is refused: give an index of a class, as in Employee.by_email, or a list, a "
            "count, or a sum"
        )
    name, schemas = index.name, concrete(index.model.__schema__)
    if not schemas:
        raise ModelError(f"{index.model.__name__} is abstract and has no concrete classes yet; import or declare them")
    if isinstance(index, AggregateOf):
        schemas = with_related(schemas)  # those in which it counts
    kinds = KindSet.of([schema.model for schema in schemas])
    purpose = purpose_of(f"build {name}", schemas)
    judge = Verifier(db, kinds, repair=True, only=name)
    built, checked = AuditCounts(), AuditCounts()
    if cursor is None:
        ranges = audit_ranges_of(kinds.table, schemas, parallel, building=True)
        ranges += audit_ranges_of(kinds.table, schemas, parallel)
    else:
        ranges, state = read_cursor(purpose, cursor, f"build_index({index})")
        checked = AuditCounts.of_state(state.pop("audit"))
        built = AuditCounts.of_state(state)
    begun = time.monotonic() - built.seconds
    begun_audit = time.monotonic() - checked.seconds
    auditing = all(audit_range.done for audit_range in ranges if audit_range.building)

    def report() -> BuildReport:
        built.seconds = time.monotonic() - begun
        if auditing:
            checked.seconds = time.monotonic() - begun_audit
        return BuildReport(
            str(index),
            built.entities,
            built.built,
            built.requests + checked.requests,
            built.seconds,
            report_of(checked, b"", ()) if auditing else None,
            purpose=purpose,
            ranges=tuple(ranges),
        )

    def told() -> None:
        if on_progress is not None:
            on_progress(report())

    if not auditing:
        turn = asyncio.Semaphore(parallel)

        def build(audit_range: AuditRange) -> AsyncGenerator[tuple[AuditRange, AuditCounts], None]:
            return _built(db, judge, audit_range, name, turn)

        await go_through(ranges, build, built, parallel, told, building=True)
        auditing, begun_audit = True, time.monotonic()

    def check(audit_range: AuditRange) -> AsyncGenerator[tuple[AuditRange, AuditCounts], None]:
        return audited(db, judge, audit_range, parallel)

    await go_through(ranges, check, checked, parallel, told)
    return report()


async def _built(
    db: Reader, judge: Verifier, audit_range: AuditRange, name: str, turn: asyncio.Semaphore
) -> AsyncGenerator[tuple[AuditRange, AuditCounts], None]:
    """Build a audit_range, page by page."""
    part, ordered = AuditCounts(), db.store.capabilities.ordered
    async with aclosing(
        pages(db, audit_range.table, judge.kinds.filter, audit_range.left, part, "build_index")
    ) as found:
        async for rows in found:
            if not rows:
                continue
            wanting: list[_Wanting] = []
            for start in range(0, len(rows), TURN):
                some = rows[start : start + TURN]
                found_beside = ((row, _rows_beside(judge.seen(row), name, part)) for row in some)
                wanting += [(row, beside) for row, beside in found_beside if beside]
                await db.yield_to_loop(len(some))
            together = [list(group) for _, group in groupby(wanting, key=lambda each: each[0]["PartitionKey"])]
            # Those of a partition after each other: they may write the same list, or the same count.
            await asyncio.gather(*(_write(db, judge, [*_chunks(group)], name, part, turn) for group in together))
            if ordered:
                last = rows[-1]
                audit_range = attrs.evolve(audit_range, partition=last["PartitionKey"], row=last["RowKey"])
            yield audit_range, part.take()
    yield attrs.evolve(audit_range, done=True), part.take()


def _rows_beside(seen: EntitySnapshot | None, name: str, part: AuditCounts) -> list[str]:
    """
    RowKeys of what has to be written beside an entity that notes another copy in the index than it ought to have, or
    another list, or amount; none if all is as it ought to be, or is for the audit.
    """
    if seen is None or name not in seen.schema.derived:
        return []
    part.entities += 1
    if seen.problem is not None or not seen.legible or seen.age == "newer":
        return []  # what is wrong with it the audit says
    address, _ = seen.wants.get(name, (None, None))
    mark, due = seen.marks.get(name), seen.due.get(name) if address is None else address
    return [] if mark == due else [beside for each in (due, mark) for beside in _noted(each)]


def _noted(mark: object) -> list[str]:
    """RowKey of the row that a note is about: of a list that was divided it stands for some of its rows."""
    match mark:
        case str():
            return [mark]
        case {"list": [str(address), str()]} | {"add": [str(address), {}]}:
            return [address]
        case _:
            return []


def _chunks(wanting: Sequence[_Wanting]) -> Iterator[Sequence[Row]]:
    """
    Entities of a partition that fit into one transaction with what is beside them. Those that write the same row come
    together, so that it is written once.
    """
    chunk: list[Row] = []
    all_beside: set[str] = set()
    for row, beside in sorted(wanting, key=lambda each: each[1]):
        if len(chunk) + 1 + len(all_beside.union(beside)) > MAX_TRANSACTION_OPERATIONS:
            yield chunk
            chunk, all_beside = [], set()
        chunk.append(row)
        all_beside.update(beside)
    if chunk:
        yield chunk


async def _write(
    db: Reader, judge: Verifier, chunks: Sequence[Sequence[Row]], name: str, part: AuditCounts, turn: asyncio.Semaphore
) -> None:
    """What some entities of a partition lack, each chunk in one transaction; in halves if that is refused."""
    todo = [*reversed(chunks)]
    while todo:
        some = todo.pop()
        token = new_token()
        async with turn:
            part.requests += 1
            try:
                await commit(db, [rebuilt(judge.kinds, row, (name,), token, counts=True) for row in some])
            except _REFUSED:
                half = len(some) // 2
                todo += [some[half:], some[:half]] if half else []
            else:
                part.built += len(some)
