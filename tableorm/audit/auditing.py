"""
`db.audit`: segments of rows are summed up; where a sum is not zero its rows are judged; workers share the keys.
"""

import inspect
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial

import attrs

from ..connection import TURN
from ..entity import Entity, schema_of
from ..errors import ModelError
from ..kinds import Kinds
from ..protocol.filters import Filter
from ..ranges import Rectangle
from ..reader import Reader
from ..running import work_together
from ..schema import Schema, concrete
from ..stores import Bounds, Row
from .judging import Judge
from .judging_lists import judge_keys, judge_shape
from .judging_sums import judge_keepers
from .listed import Lists
from .looking import with_related
from .report import AuditReport, Tally
from .scanning import boundary, family_filter, pages
from .stretches import Stretch, purpose_of, read_cursor, stretches_of

__all__ = ["SEGMENT", "Sums", "audit", "audited", "check_call", "go_through", "report_of"]

SEGMENT = 20_000
"""Rows that are summed up before suspects are judged, if a partition ends there."""

_SUMS = 1 << 16
_WIDTH = 8  # bytes of a sum; of what passes that the rest is left out, and sums that are right are zero all the same
_MASK = (1 << 8 * _WIDTH) - 1
_ZEROS = bytes(_SUMS * _WIDTH)


_Judging = Callable[[Tally], Awaitable[None]]


class Sums:
    """
    Sums of what entities claim less what derived rows are, each of the rows with some hash of their keys.

    Numbers are hashes of this process, which nobody can foresee; sums are never stored.

    Args:
        judge: Knows what is claimed.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        # Of a list with as many numbers each worker would need ten times the memory.
        self._sums = array("Q", _ZEROS)
        self._suspects: set[int] = set()
        self._judged: set[tuple[str, str]] = set()

    def add(self, rows: Sequence[Row], tally: Tally) -> None:
        """Sum up some rows."""
        judge, sums = self._judge, self._sums
        for row in rows:
            partition_key = row["PartitionKey"]
            owner = judge.owner_of(row)
            if owner is not None:
                tally.copies += 1
                for address, number in owner.claimed(row):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] - number) & _MASK
                continue
            seen = judge.seen(row)
            if seen is None:
                continue
            tally.entities += 1
            for check in judge.checks(seen):
                for address, number in check.claims(seen):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] + number) & _MASK
                for _, address, number in check.adds(seen):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] + number) & _MASK

    def close(self) -> bool:
        """All is added: whether anything is suspect."""
        if self._sums.tobytes() != _ZEROS:
            self._suspects = {number for number, total in enumerate(self._sums) if total}
        return bool(self._suspects)

    def _is_bad(self, partition_key: str, address: str) -> bool:
        return hash((partition_key, address)) % _SUMS in self._suspects

    def suspects(self, rows: Sequence[Row]) -> list[_Judging]:
        """How to judge those of some rows that are suspect: entities, and copies of them."""
        judge = self._judge
        found: list[_Judging] = []
        for row in rows:
            partition_key, row_key = row["PartitionKey"], row["RowKey"]
            owner = judge.owner_of(row)
            if owner is not None:
                if not isinstance(owner, Lists) and self._is_bad(partition_key, row_key):
                    found.append(partial(judge.derived, partition_key, row_key))
                continue
            seen = judge.seen(row)
            if seen is None:
                continue
            claims = (claim for check in judge.checks(seen) for claim in check.claims(seen))
            if any(self._is_bad(partition_key, address) for address, _ in claims):
                found.append(partial(judge.entity, partition_key, row_key))
        return found

    def shapes(self, rows: Sequence[Row]) -> list[_Judging]:
        """How to judge whether suspect rows of lists are found: before entities, which are judged by what is there."""
        return [partial(judge_shape, self._judge, row["PartitionKey"], row["RowKey"]) for row in self._of_lists(rows)]

    def rest(self, rows: Sequence[Row]) -> list[_Judging]:
        """How to judge what is suspect beside, when entities are right: keys in lists, counts and sums."""
        judge = self._judge
        found: list[_Judging] = []
        for row in self._of_lists(rows):
            partition_key = row["PartitionKey"]
            is_bad = partial(self._is_bad, partition_key)
            found.append(partial(judge_keys, judge, partition_key, row["RowKey"], is_bad))
        keepers: defaultdict[str, set[str]] = defaultdict(set)
        for row in rows if judge.tallies else ():
            seen = None if judge.owner_of(row) is not None else judge.seen(row)
            partition_key = row["PartitionKey"]
            for check in () if seen is None else judge.checks(seen):
                for keeper, address, _ in check.adds(seen) if seen is not None else ():
                    place = partition_key, keeper
                    if place not in self._judged and self._is_bad(partition_key, address):
                        self._judged.add(place)
                        keepers[partition_key].add(keeper)
        for partition_key, some in keepers.items():
            found.append(partial(judge_keepers, judge, partition_key, some, judge.entity))
        return found

    def _of_lists(self, rows: Sequence[Row]) -> Iterator[Row]:
        judge = self._judge
        for row in rows if judge.has_lists else ():
            owner, partition_key = judge.owner_of(row), row["PartitionKey"]
            if isinstance(owner, Lists) and any(self._is_bad(partition_key, each) for each, _ in owner.claimed(row)):
                yield row


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


async def _judged(suspects: Sequence[_Judging], part: Tally, parallel: int) -> None:
    if not suspects:
        return
    todo = iter(suspects)

    async def worker() -> None:
        for judge in todo:
            await judge(part)

    await work_together(worker, min(parallel, len(suspects)))
