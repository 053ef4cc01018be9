"""
What one process does for a shared run: it begins the run or joins it, takes ranges, works on them, and ends the run
when all of them are done.
"""

import asyncio
import inspect
import math
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Generic, TypeVar, cast

import attrs

from ..connection.connection import Connection
from ..connection.tasks import finish, stop_tasks, work_together
from ..errors import LostRace, ModelError, TableNotFound, TableOrmError, counted, shown, without_own_frames
from ..models.reserved import UPKEEP_TABLE
from ..models.write_tokens import new_token
from ..stores import utc_now
from ..writes.bulk.pacing import Pace
from ..writes.commit import write_change
from ..writes.stages.change import save_change
from .counts import MOST_FAILURES, JobCounts
from .lease import BEATS, Lease, may_lose_race
from .ranges import JobRange, read_cursor, write_cursor
from .report import Progress, RunReport, report_run, share_of
from .rows import Run, RunRange, counts_of, partition_of, read_run, transaction
from .scan import Steps

C = TypeVar("C", bound=JobCounts)
R = TypeVar("R")

_LONGEST_NAME = 200
# Seconds until a process that finds nothing to do looks again: first the shortest, then always half as many more.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LONGEST_LEASE = 3600.0
_MOST_LOOKS = 5  # in a row at a run that stands still and has not all of its ranges: then these were written by others
_MOST_BEGINNINGS = 10  # of which others begin the run first in all but one, or something is in its place


@attrs.define(eq=False)
class Crew:
    """
    The workers of this process, for jobs in which they wait for each other.

    Attributes:
        expects_more: Tells whether soon more workers will be at work than this number.
    """

    expects_more: Callable[[int], bool] = lambda _: False


@attrs.frozen(kw_only=True, eq=False)
class Job(Generic[C, R]):
    """
    Work on ranges of keys.

    Args:
        verb: Name of the function, for messages.
        what: What it does, for people: "rewrite Member".
        purpose: A hash of that, of the models, and of their declarations.
        tables: The tables of which its ranges are.
        plan: Makes its ranges; all that are `building` are done before any other is begun.
        work: Works on a range from where it stands, at a pace.
        counts: The type of what is counted.
        report: Makes a report of how far it is.
        no_older_writers: Whether no program is left that writes without what is built.
        finish: What is done before the run ends, if nothing failed and no program was left that writes without what is
            built. It may be done twice. None for nothing.
        judge: Adds to what was counted in all what only all ranges together show. It may be called twice. None for
            nothing.
        crew: Is told of the workers of this process.
    """

    verb: str
    what: str
    purpose: str
    tables: Collection[str]
    plan: Callable[[], Awaitable[list[JobRange]]]
    work: Callable[[JobRange, Pace | None], Steps[C]]
    counts: type[C]
    report: Callable[[Progress[C]], R]
    no_older_writers: bool = False
    finish: Callable[[], Awaitable[object]] | None = None
    judge: Callable[[C], Awaitable[object]] | None = None
    crew: Crew = attrs.field(factory=Crew)


@attrs.frozen(kw_only=True, eq=False)
class RunJob(Job[JobCounts, RunReport]):
    """A job that is always shared, and has the report of a run."""

    counts: type[JobCounts] = JobCounts
    report: Callable[[Progress[JobCounts]], RunReport] = report_run


@attrs.frozen(kw_only=True)
class RunOptions(Generic[R]):
    """
    How a process takes part in a run.

    Args:
        name: Name of the run; None for one that is made from what it does.
        parallel: How many ranges it works on at the same time.
        lease: After how many seconds others take over its ranges if it has died.
        rate: How many rows it reads in a second; None for any number.
        on_progress: Called with the report so far.
    """

    name: str | None = None
    parallel: int = 8
    lease: float = 30.0
    rate: float | None = None
    on_progress: Callable[[R], object] | None = None

    def check(self, verb: str) -> None:
        """Refuse what no run takes. Raises ModelError."""
        if type(self.parallel) is not int or self.parallel < 1:
            raise ModelError(f"{verb}(parallel={self.parallel!r}) is rejected: give a number from 1 up")
        told = self.on_progress
        if told is not None and (not callable(cast("object", told)) or inspect.iscoroutinefunction(told)):
            raise ModelError(
                f"{verb}(on_progress={shown(told)}) is rejected: give a plain function, which is not awaited"
            )
        if self.name is not None and not (
            isinstance(cast("object", self.name), str) and 0 < len(self.name) <= _LONGEST_NAME
        ):
            raise ModelError(
                f"{verb}(name={shown(self.name)}) is rejected: give a string of 1 to {_LONGEST_NAME} characters"
            )
        if not _is_positive(self.lease):
            raise ModelError(f"{verb}(lease={shown(self.lease)}) is rejected: give a number of seconds above 0")
        if self.rate is not None and not _is_positive(self.rate):
            raise ModelError(f"{verb}(rate={shown(self.rate)}) is rejected: give a number of rows a second above 0")

    @property
    def pace(self) -> Pace | None:
        """A pace for all that this process reads; None for any number of rows."""
        return None if self.rate is None else Pace(self.rate)


def _is_positive(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < math.inf


def default_name(what: str, purpose: str) -> str:
    """Return the name of a run that was given none."""
    return f"{what[: _LONGEST_NAME - 20]} {purpose[:12]}"


async def is_open(db: Connection, job: Job[Any, Any]) -> bool:
    """Return whether the run of a job that has no name of its own is under way, or was left by processes that died."""
    found: Run | None = None
    with suppress(TableNotFound):
        found, _ = await read_run(db, default_name(job.what, job.purpose))
    return found is not None and found.state == "open"


async def work_on(db: Connection, job: Job[C, R], options: RunOptions[R], cursor: str | None) -> R:
    """
    Do a job: as a run, together with other processes, if it has a name; otherwise in this process alone, whose reports
    have a cursor.

    Args:
        db: The open database.
        job: The job.
        options: How this process takes part in it.
        cursor: Where to resume, working alone; None for the beginning.

    Raises:
        CursorError: The cursor is of another job, or damaged.
        ModelError: A run of that name does something else, or an option is rejected.
        TableOrmError: The store refused.
    """
    try:
        if options.name is None:
            options.check(job.verb)
            return await _work_alone(job, options, cursor)
        if cursor is not None:
            raise ModelError(
                f"{job.verb}(name={shown(options.name)}, cursor=...) is rejected: the store says where a run with a "
                "name resumes; leave one of the two out"
            )
        return await carry_out(db, job, options)
    except TableOrmError as error:
        raise without_own_frames(error) from error.__cause__


async def carry_out(db: Connection, job: Job[C, R], options: RunOptions[R]) -> R:
    """
    Do a job together with other processes, until it has ended.

    Raises:
        ModelError: A run of that name does something else, or an option is rejected.
        TableOrmError: The store refused; what this process had taken others can take at once.
    """
    options.check(job.verb)
    return await _Process(db, job, options).work_to_end()


async def _work_alone(job: Job[C, R], options: RunOptions[R], cursor: str | None) -> R:
    """Do a job in this process alone."""
    purpose, counts = bytes.fromhex(job.purpose), job.counts()
    if cursor is None:
        ranges = await job.plan()
    else:
        ranges, counts = read_cursor(purpose, cursor, job.verb, job.counts, job.tables)
    begun, pace = time.monotonic() - counts.seconds, options.pace

    def report() -> R:
        counts.seconds = time.monotonic() - begun
        kept = partial(write_cursor, purpose, tuple(ranges), attrs.evolve(counts))
        return job.report(Progress(counts=counts, cursor=kept, share=share_of(ranges)))

    async def worker() -> None:
        for number in todo:
            async with aclosing(job.work(ranges[number], pace)) as steps:
                async for done, found in steps:
                    # Both at once, so that who goes on from here counts nothing twice.
                    ranges[number] = done
                    counts.add(found)
                    if options.on_progress is not None:
                        options.on_progress(report())

    for building in (True, False):
        todo = iter([number for number, each in enumerate(ranges) if not each.done and each.building is building])
        await work_together(worker, options.parallel)
    if job.judge is not None:
        await job.judge(counts)
    return report()


class _Process(Generic[C, R]):
    def __init__(self, db: Connection, job: Job[C, R], options: RunOptions[R]) -> None:
        self._db, self._job, self._options = db, job, options
        self._name = options.name or default_name(job.what, job.purpose)
        self._lease = float(options.lease)
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._pace = options.pace
        self._run: Run | None = None
        self._ranges: dict[int, RunRange] = {}
        # By number, the ETag that a range has, and since when by this clock.
        self._seen: dict[int, tuple[str | None, float]] = {}
        self._forsaken: set[int] = set()
        self._held: dict[int, Lease[C]] = {}
        # Whether the rows were read since a range of this process ended; otherwise they are read before it waits.
        self._fresh = False
        self._ended = asyncio.Event()
        self._turn = asyncio.Lock()
        self._taking = False
        job.crew.expects_more = self._expects_more
        self._torn, self._torn_etag = 0, ""
        self._pause = _SHORTEST_PAUSE

    async def work_to_end(self) -> R:
        """Begin the run or join it, work on it until it has ended, and return its report."""
        await self._look()
        # A run that had ended before this process came is begun anew, unless its name says that once is enough.
        over = self._run.generation if self._run is not None and self._run.state != "open" else 0
        begun = 0
        while True:
            run = self._run
            if run is not None and run.purpose != self._job.purpose:
                raise ModelError(
                    f"{self._job.verb}(name={self._name!r}) is rejected: the run of that name is {run.what!r}, of "
                    f"other models or other declarations of them, and this is {self._job.what!r}; give another name"
                )
            if run is None or (run.state != "open" and self._is_begun_anew(run, over)):
                if begun == _MOST_BEGINNINGS:
                    raise LostRace(
                        f"{self._job.verb}(name={self._name!r}): the run keeps restarting but can't be found; "
                        f"delete what other programs have written into partition {partition_of(self._name)!r} of "
                        f"{UPKEEP_TABLE}"
                    )
                if begun:
                    await asyncio.sleep(_SHORTEST_PAUSE)
                begun += 1
                await self._begin(run)
                await self._look()
            elif run.state == "open":
                await work_together(self._work, self._options.parallel)
            else:
                return self._report(run, counts_of(run, self._job.counts), ())

    def _is_begun_anew(self, run: Run, over: int) -> bool:
        if self._job.no_older_writers and not run.no_older_writers:
            return True
        return run.generation == over and (self._options.name is None or run.state == "failed")

    async def _begin(self, run: Run | None) -> None:
        """Write the run and its ranges, unless another process does."""
        parts, new = await self._job.plan(), run is None
        if run is None:
            run = Run(name=self._name, what=self._job.what, purpose=self._job.purpose, begun=utc_now())
        run.generation, run.state, run.ranges, run.counts = run.generation + 1, "open", len(parts), {}
        run.no_older_writers, run.begun, run.ended = self._job.no_older_writers, utc_now(), None
        ranges = [
            RunRange(name=self._name, number=number, generation=run.generation, part=part)
            for number, part in enumerate(parts)
        ]
        with may_lose_race():
            async with transaction(self._db) as tx:
                tx.insert(run) if new else tx.save(run)
                for each in ranges:
                    tx.insert(each)

    # Looking

    async def _look(self) -> None:
        """Read the rows of the run, and note since when each stands still."""
        try:
            run, ranges = await read_run(self._db, self._name)
        except TableNotFound:
            await self._db.create_table(UPKEEP_TABLE)
            run, ranges = None, []
        now = time.monotonic()
        self._run, self._ranges, self._fresh = run, {}, True
        self._forsaken.clear()
        for each in ranges:
            self._ranges[each.number] = each
            etag, since = self._seen.get(each.number, (None, now))
            if etag != each.etag:
                since = now
            self._seen[each.number] = each.etag, since
            if each.owner and now - since >= min(_LONGEST_LEASE, each.lease):
                self._forsaken.add(each.number)
        if run is not None and run.state == "open":
            self._check_ranges(run)

    def _check_ranges(self, run: Run) -> None:
        """Refuse ranges that other programs have written: a process would wait for them for ever, or work elsewhere."""
        problem = ""
        if not self._is_whole:  # it may have ended, and begun again, while it was read
            self._torn = self._torn + 1 if run.etag == self._torn_etag else 1
            self._torn_etag = str(run.etag)
            if self._torn == _MOST_LOOKS:
                problem = f"says that it has {counted(run.ranges, 'range')}, and {len(self._ranges)} are there"
        for each in self._ranges.values():
            if each.part.table not in self._job.tables:
                problem = (
                    f"has a range of table {shown(each.part.table)}, and is of {', '.join(sorted(self._job.tables))}"
                )
        if problem:
            raise ModelError(
                f"{self._job.verb}: the run {self._name!r} {problem}; another program has written its rows: call "
                f"db.drop_run({self._name!r}), and begin again"
            )

    @property
    def _is_whole(self) -> bool:
        """Whether all ranges were read."""
        return self._run is not None and len(self._ranges) == self._run.ranges

    def _find_free(self) -> RunRange | None:
        """Return a range of the present phase that nobody works on, any one so that processes seldom meet."""
        left = [each for each in self._ranges.values() if not each.part.done] if self._is_whole else []
        present = [each for each in left if each.part.building] or left
        free = [
            each
            for each in present
            if each.number not in self._held and (not each.owner or each.number in self._forsaken)
        ]
        return random.choice(free) if free else None

    def _expects_more(self, working: int) -> bool:
        """Return whether more workers than those have a range, or will take one."""
        if self._taking or len(self._held) > working:
            return True
        return len(self._held) < self._options.parallel and self._find_free() is not None

    # Working

    async def _work(self) -> None:
        """Take one range after the other, until the run has ended."""
        while (lease := await self._take_next()) is not None:
            try:
                await self._work_while_held(lease)
            finally:
                del self._held[lease.row.number]
                if lease.lost:  # a lease that is shorter than a write takes would be lost each time
                    self._lease *= 2
                self._fresh = False
                self._ended.set()

    async def _take_next(self) -> Lease[C] | None:
        """Return a range that this process has taken, as soon as there is one; None when the run has ended."""
        async with self._turn:
            while self._run is not None and self._run.state == "open":
                row = self._find_free()
                if row is not None:
                    lease = await self._take(row)
                    if lease is not None:
                        self._pause = _SHORTEST_PAUSE
                        return lease
                elif self._is_whole and all(each.part.done for each in self._ranges.values()):
                    await self._end(self._run)
                elif self._fresh:
                    self._ended.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._pause):
                            await self._ended.wait()
                    self._pause = min(self._pause * 1.5, _LONGEST_PAUSE, self._options.lease / BEATS)
                await self._look()
        return None

    async def _take(self, row: RunRange) -> Lease[C] | None:
        """Take a range; return None if another process was first."""
        row.owner, row.taken, row.lease = self._owner, new_token(), min(_LONGEST_LEASE, self._lease)
        row.beat += 1
        lease, self._taking = Lease(self._db, row, counts_of(row, self._job.counts)), True
        try:
            with may_lose_race():
                await write_change(self._db, save_change(row))
                if row.etag is not None:
                    self._held[row.number] = lease
                    return lease
        except BaseException:
            await lease.release()  # the row may have been written
            raise
        finally:
            self._taking = False
        return None

    async def _work_while_held(self, lease: Lease[C]) -> None:
        """Work on a range until it is done, or another process has taken it over."""
        tasks = [asyncio.create_task(self._work_on(lease)), asyncio.create_task(lease.keep())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # Also if another worker has failed just now, and this one is cancelled.
            await finish(_give_back(lease, tasks))

    async def _work_on(self, lease: Lease[C]) -> None:
        async with aclosing(self._job.work(lease.part, self._pace)) as steps:
            async for part, counts in steps:
                lease.part = part
                lease.counts.add(counts)
                self._tell_progress()
        await lease.store()

    def _tell_progress(self) -> None:
        if self._options.on_progress is not None and self._run is not None:
            ranges = dict(self._ranges)
            for number, lease in self._held.items():
                ranges[number] = lease.row.evolve(part=lease.part, counts=lease.counts.to_stored())
            self._options.on_progress(self._report(self._run, self._add_up(ranges.values()), ranges.values()))

    def _add_up(self, ranges: Collection[RunRange]) -> C:
        counts = self._job.counts()
        for each in ranges:
            counts.add(counts_of(each, self._job.counts))
        return counts

    def _report(self, run: Run, counts: C, ranges: Collection[RunRange]) -> R:
        counts.seconds = run.seconds
        share = share_of([each.part for each in ranges]) if run.state == "open" else 1.0
        return self._job.report(Progress(counts=counts, run=run, ranges=ranges, share=share))

    async def _end(self, run: Run) -> None:
        """Store that the run has ended, and delete the rows of its ranges, unless another process does."""
        counts = self._add_up(self._ranges.values())
        if self._job.judge is not None:
            await self._job.judge(counts)
        if run.no_older_writers and not counts.failed and self._job.finish is not None:
            await self._job.finish()
        run.state, run.ended, run.counts = (
            "failed" if counts.failed else "done",
            utc_now(),
            counts.to_stored(MOST_FAILURES),
        )
        with may_lose_race():
            async with transaction(self._db) as tx:
                tx.save(run)
                for each in self._ranges.values():
                    tx.delete(each)


async def _give_back(lease: Lease[Any], tasks: "list[asyncio.Task[None]]") -> None:
    await stop_tasks(tasks)
    await lease.release()
