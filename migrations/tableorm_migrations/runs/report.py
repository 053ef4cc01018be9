"""
The report of a shared run: what all processes together have done so far, or in all when it has ended.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import attrs

from tableorm import Database, ModelError, TableNotFound
from tableorm.advice.totals import common_prefix
from tableorm.audit.ranges import AuditRange
from tableorm.connection.connection import connection_of
from tableorm.errors import counted
from tableorm.stores import utc_now

from .rows import Run, RunCounts, RunRange, RunRow

__all__ = ["RangeProgress", "RunReport", "drop_run", "list_runs", "report_run"]


@attrs.frozen(kw_only=True)
class RangeProgress:
    """
    How far a range is that a process works on.

    Args:
        number: The number of the range, from 0.
        entities: Entities that were read of it.
        share: Which part of it is done, judged by where the keys are that were read last: 0.0 to 1.0.
    """

    number: int
    entities: int
    share: float


@attrs.frozen(kw_only=True)
class RunReport:
    """
    What a shared run has done so far, in all processes together; in all when it has ended.

    Args:
        name: Its name.
        what: What it does: "rewrite Member", "build Employee.by_email".
        state: "open" while it is under way; then "done", or "failed" if something is left that could not be done.
        ranges: How many ranges of keys it has; a build has each twice, since it is followed by an audit.
        ranges_done: How many of these are done.
        owners: The processes that have ranges of it, as "host:process"; those of a process that has died are its own
            until another one takes them over.
        entities: Entities that were read.
        written: Entities that were written. What a process wrote just before it died is not counted.
        failed: Entities that could not be brought in order.
        failures: The first 50 of these, with the reasons.
        others: What else was counted, by the word for it: "dropped", "transactions".
        working: The ranges that processes work on now.
        seconds: How long it took, or has been under way.
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
        """Whether it has ended, and nothing failed."""
        return self.state == "done"

    @property
    def rate(self) -> float:
        """Entities per second."""
        return self.entities / self.seconds if self.seconds else 0.0

    @property
    def share(self) -> float:
        """Which part is done, if all ranges are alike: 0.0 to 1.0."""
        return (self.ranges_done + sum(each.share for each in self.working)) / self.ranges if self.ranges else 1.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take, if it goes on like this; None if nothing is done yet."""
        return self.seconds * (1 / self.share - 1) if self.share else None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of plain values, for JSON."""
        return {
            **attrs.asdict(self, value_serializer=_plain_value),
            "complete": self.complete,
            "rate": self.rate,
            "share": self.share,
            "seconds_left": self.seconds_left,
        }

    def __str__(self) -> str:
        text = f"{self.name}: {counted(self.entities, 'entity')} read, {self.written} written"
        others = {what.removesuffix("s") if number == 1 else what: number for what, number in self.others.items()}
        text += "".join(f", {number} {what}" for what, number in others.items() if number)
        text += f", {self.failed} failed" if self.failed else ""
        if self.state == "open":
            owners = f", by {', '.join(self.owners)}" if self.owners else ""
            return f"{text}; {self.ranges_done} of {counted(self.ranges, 'range')} done{owners}"
        return f"{text}; {self.state} in {self.seconds:.1f} s"


async def list_runs(db: Database) -> list[RunReport]:
    """
    Return the reports of all shared runs of a database, by name: those under way, and the last one of each name.

    Args:
        db: The open database.

    Raises:
        AccessDenied: In a scope, since runs are of whole tables.
    """
    connection = connection_of(db)
    connection.require_open()
    connection.boundary.check_whole_table("list_runs()")
    runs: dict[str, Run] = {}
    ranges: dict[str, list[RunRange]] = {}
    try:
        async for row in db.select(RunRow).allow_scan():
            if isinstance(row, Run):
                runs[row.name] = row
            elif isinstance(row, RunRange):
                ranges.setdefault(row.name, []).append(row)
    except TableNotFound:
        return []
    return [
        report_run(run, [each for each in ranges.get(name, ()) if each.generation == run.generation])
        for name, run in sorted(runs.items())
    ]


async def drop_run(db: Database, name: str) -> None:
    """
    Forget a run, for example one that is under way for models as they were once. What it has done stays done.

    End the processes that work on it first; one that does not notice begins the run again.

    Args:
        db: The open database.
        name: Name of the run.

    Raises:
        ModelError: There is no run of that name.
        AccessDenied: In a scope, since runs are of whole tables.
        TransactionFailed: A process has written meanwhile, so it has not ended yet.
    """
    connection = connection_of(db)
    connection.require_open()
    connection.boundary.check_whole_table("drop_run()")
    rows: list[RunRow] = []
    with suppress(TableNotFound):
        rows = await db.select(RunRow).where(RunRow.name == name).all()
    if not rows:
        raise ModelError(f"drop_run({name!r}) is refused: there is no run of that name; see list_runs()")
    async with db.transaction() as tx:
        for row in rows:
            tx.delete(row)


def report_run(run: Run, ranges: Iterable[RunRange]) -> RunReport:
    """
    Return the report of a run.

    Args:
        run: The run.
        ranges: Its ranges; what is in them counts only while it is under way.
    """
    under_way = run.state == "open"
    left = [each for each in ranges if under_way]
    counts = RunCounts.total(each.counts for each in left) if under_way else run.counts
    return RunReport(
        name=run.name,
        what=run.what,
        state=run.state,
        ranges=run.ranges,
        ranges_done=sum(each.part.done for each in left) if under_way else run.ranges,
        owners=tuple(sorted({each.owner for each in left if each.owner and not each.part.done})),
        entities=counts.entities,
        written=counts.written,
        failed=counts.failed,
        failures=tuple(counts.failures),
        others=dict(counts.others),
        working=tuple(
            RangeProgress(number=each.number, entities=each.counts.entities, share=_share_of(each.part))
            for each in left
            if each.owner and not each.part.done
        ),
        seconds=max(0.0, ((run.ended or utc_now()) - run.begun).total_seconds()),
    )


def _share_of(part: AuditRange) -> float:
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


def _plain_value(instance: object, attribute: object, value: Any) -> Any:
    del instance, attribute
    return [*value] if isinstance(value, tuple) else value
