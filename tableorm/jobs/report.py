"""
The report of a shared run: what all processes together have done so far, or in all when it has ended.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import attrs

from ..connection.connection import Connection
from ..errors import ModelError, TableNotFound, counted
from ..stores.intervals import common_prefix
from .counts import JobCounts
from .ranges import JobRange, plain_values
from .rows import Run, RunRange, RunRow, counts_of, read_runs, transaction

C = TypeVar("C", bound=JobCounts)
R = TypeVar("R")


def _no_cursor() -> None:
    """Return None: a shared run has no cursor, since the store says what is done."""


@attrs.frozen(kw_only=True, eq=False)
class Progress(Generic[C]):
    """
    How far a job is, of which it makes its report.

    Args:
        counts: What was counted so far.
        run: What the store says of it; None if it is done by one process, which keeps a cursor.
        ranges: Its ranges, as far as they are in the store.
        cursor: Returns where to go on.
        share: Which part is done, if all ranges are alike: 0.0 to 1.0.
    """

    counts: C
    run: Run | None = None
    ranges: Collection[RunRange] = ()
    cursor: Callable[[], str | None] = _no_cursor
    share: float = 1.0


@attrs.frozen(kw_only=True)
class RangeProgress:
    """
    The progress in one range that a process works on.

    Args:
        number: The number of the range, from 0.
        entities: The number of its entities that were read.
        share: How much of it is done, 0.0 to 1.0, estimated from the last keys that were read.
    """

    number: int
    entities: int
    share: float


@attrs.frozen(kw_only=True)
class RunReport:
    """
    What a shared run has done so far, in all processes together, or in total once it has finished.

    Args:
        name: The name of the run.
        what: What it does: "rewrite Member", "build Employee.by_email".
        state: "open" while it is in progress; then "done", or "failed" if something could not be done.
        ranges: The number of key ranges. A build counts each twice, because an audit follows.
        ranges_done: How many of these are done.
        owners: The processes that own ranges, as "host:process". A process that died keeps its ranges until another one
            takes over.
        entities: The number of entities that were read.
        written: The number of entities that were written. Writes made just before a process died aren't counted.
        failed: The number of entities that could not be handled.
        failures: The first 35 of these failures, with their reasons.
        others: Other counters by name, such as "dropped" and "transactions".
        working: The ranges that processes are working on.
        seconds: How long it took, or has been running.
    """

    name: str
    what: str
    state: str
    ranges: int
    ranges_done: int
    owners: tuple[str, ...]
    entities: int
    written: int
    failed: int
    failures: tuple[str, ...]
    others: Mapping[str, int]
    working: tuple[RangeProgress, ...]
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether it has finished without failures."""
        return self.state == "done"

    @property
    def rate(self) -> float:
        """The number of entities per second."""
        return self.entities / self.seconds if self.seconds else 0.0

    @property
    def share(self) -> float:
        """How much is done, 0.0 to 1.0, assuming that all ranges are alike."""
        return (self.ranges_done + sum(each.share for each in self.working)) / self.ranges if self.ranges else 1.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take at this rate; None if nothing is done yet."""
        return self.seconds * (1 / self.share - 1) if self.share else None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can represent."""
        return {
            **plain_values(self),
            "complete": self.complete,
            "rate": self.rate,
            "share": self.share,
            "seconds_left": self.seconds_left,
        }

    def __str__(self) -> str:
        label = self.name if self.what in self.name else f"{self.name} ({self.what})"
        text = f"{label}: {counted(self.entities, 'entity')} read, {self.written:,} written"
        others = {what.removesuffix("s") if number == 1 else what: number for what, number in self.others.items()}
        text += "".join(f", {number:,} {what}" for what, number in others.items() if number)
        text += f", {self.failed:,} failed" if self.failed else ""
        if self.state == "open":
            owners = f", by {', '.join(self.owners)}" if self.owners else ""
            return f"{text}; {self.ranges_done} of {counted(self.ranges, 'range')} done{owners}"
        return f"{text}; {self.state} in {self.seconds:.1f} s"


async def list_runs(db: Connection) -> list[RunReport]:
    """Return the reports of all shared runs of a database; see `Database.runs`."""
    runs: dict[str, Run] = {}
    ranges: dict[str, list[RunRange]] = {}
    with suppress(TableNotFound):
        async for row in read_runs(db):
            if isinstance(row, Run):
                runs[row.name] = row
            elif isinstance(row, RunRange):
                ranges.setdefault(row.name, []).append(row)
    reports: list[RunReport] = []
    for name, run in sorted(runs.items()):
        left = [each for each in ranges.get(name, ()) if run.state == "open" and each.generation == run.generation]
        counts = counts_of(run, JobCounts)
        for each in left:
            counts.add(counts_of(each, JobCounts))
        reports.append(report_run(Progress(counts=counts, run=run, ranges=left)))
    return reports


async def drop_run(db: Connection, name: str) -> None:
    """Forget a run; see `Database.drop_run`."""
    rows: list[RunRow] = []
    with suppress(TableNotFound):
        rows = [row async for row in read_runs(db, name)]
    if not rows:
        raise ModelError(f"drop_run({name!r}) is rejected: there is no run of that name; see db.runs()")
    async with transaction(db) as tx:
        for row in rows:
            tx.delete(row)


def report_of(kind: type[R], progress: Progress[Any], **values: Any) -> R:
    """
    Return a report.

    Args:
        kind: Its class. Each field has what was counted under its name.
        progress: What was counted.
        values: The fields that have something else.
    """
    counts: JobCounts = progress.counts
    known = {"cursor": progress.cursor, "share": progress.share, **counts.others, **attrs.asdict(counts, recurse=False)}
    known |= {"failures": tuple(counts.failures)} | values
    names: list[str] = [each.alias for each in attrs.fields(cast("Any", kind))]
    return kind(**{name: known[name] for name in names if name in known})


K = TypeVar("K", bound=RunReport)


def run_report(kind: type[K], progress: Progress[Any]) -> K:
    """Return the report of a run, as an object of the class `kind`."""
    run, ranges = progress.run, progress.ranges
    assert run is not None
    owned = [each for each in ranges if each.owner and not each.part.done]
    return report_of(
        kind,
        progress,
        name=run.name,
        what=run.what,
        state=run.state,
        ranges=run.ranges,
        ranges_done=sum(each.part.done for each in ranges) if run.state == "open" else run.ranges,
        owners=tuple(sorted({each.owner for each in owned})),
        others=dict(progress.counts.others),
        working=tuple(
            RangeProgress(number=each.number, entities=counts_of(each, JobCounts).entities, share=_share_of(each.part))
            for each in owned
        ),
        seconds=run.seconds,
    )


def report_run(progress: Progress[JobCounts]) -> RunReport:
    """Return the report of a run."""
    return run_report(RunReport, progress)


def share_of(parts: Collection[JobRange]) -> float:
    """Return which part of some ranges is done, if all are alike: 0.0 to 1.0."""
    return sum(1.0 if each.done else _share_of(each) for each in parts) / len(parts) if parts else 1.0


def _share_of(part: JobRange) -> float:
    """Return which part of a range is done, judged by where the partition is up to which it is."""
    low, high, here = part.partitions.lower or "", part.partitions.upper, part.partition
    if here is None or high is None:
        return 0.0
    alike = len(common_prefix(low, high))
    first, last, position = (_position_of(text[alike:]) for text in (low, high, here))
    return min(1.0, max(0.0, (position - first) / (last - first))) if last > first else 0.0


def _position_of(text: str) -> float:
    """Return where a text is among all texts in their order, from 0 to 1, by its first characters."""
    return sum(min(ord(character), 127) * 128.0 ** -(place + 1) for place, character in enumerate(text[:6]))
