"""
What is stored of a shared run: a row that says what it is, and, while it is under way, a row for each range of keys.
"""

import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from ..connection.connection import Connection
from ..errors import DecodeError
from ..keys.ranges import KeyRegion
from ..models.entity import Entity
from ..models.fields import Mapped, field
from ..models.kinds import KindSet
from ..models.reserved import UPKEEP_TABLE
from ..stores import Bounds, Row, utc_now
from ..writes.transaction import Transaction
from .counts import JobCounts
from .ranges import JobRange
from .scan import pages

C = TypeVar("C", bound=JobCounts)


class RunRow(Entity, table=UPKEEP_TABLE, partition_key="run {name}", row_key="{kind}", abstract=True, write_token=True):
    """
    A row of a run.

    Args:
        name: Name of the run.
    """

    name: Mapped[str]


class Run(RunRow, row_key="run"):
    """
    A run.

    Args:
        what: What is done, for people.
        purpose: A hash of what is done, of the models, and of their declarations.
        begun: When it was begun.
        generation: How often a run of this name was begun.
        state: "open", "done" or "failed".
        no_older_writers: Whether, when it was begun, no program was left that writes without what is built.
        ended: When it ended; None while it is under way.
        ranges: How many ranges it has.
        counts: What was counted in all; nothing before it has ended.
    """

    what: Mapped[str]
    purpose: Mapped[str]
    begun: Mapped[dt.datetime]
    generation: Mapped[int] = field(default=0)
    state: Mapped[str] = field(default="open")
    no_older_writers: Mapped[bool] = field(default=False)
    ended: Mapped[dt.datetime | None] = field(default=None)
    ranges: Mapped[int] = field(default=0)
    counts: Mapped[dict[str, Any]] = field(factory=dict[str, Any])

    @property
    def seconds(self) -> float:
        """How long it took, or has been under way."""
        return max(0.0, ((self.ended or utc_now()) - self.begun).total_seconds())


class RunRange(RunRow, row_key="range_{number:04d}"):
    """
    A range of keys of a run, which one process works on at a time.

    Args:
        number: Its number.
        generation: That of the run.
        part: The keys, and how far they are done.
        counts: What was counted so far.
        owner: Host and process that work on it; "" if none does.
        taken: A text that is another one each time the range is taken.
        lease: For how many seconds the row stands still before others may take the range over.
        beat: How often the row was written.
    """

    number: Mapped[int]
    generation: Mapped[int]
    part: Mapped[JobRange]
    counts: Mapped[dict[str, Any]] = field(factory=dict[str, Any])
    owner: Mapped[str] = field(default="")
    taken: Mapped[str] = field(default="")
    lease: Mapped[float] = field(default=0.0)
    beat: Mapped[int] = field(default=0)


_KINDS = KindSet.of([RunRow])


def partition_of(name: str) -> str:
    """Return the PartitionKey of the rows of a run, in which some characters of its name are escaped."""
    return Run.key(name=name).partition_key


async def read_runs(db: Connection, name: str | None = None) -> AsyncGenerator[RunRow, None]:
    """
    Yield the rows of a run; those of all runs if no name is given.

    Raises:
        TableNotFound: No run was ever begun.
        DecodeError: A row is none of a run.
    """
    region = KeyRegion() if name is None else KeyRegion(Bounds.only(partition_of(name)))
    async with aclosing(pages(db, UPKEEP_TABLE, _KINDS.filter, [region], None, "shared runs")) as found:
        async for rows in found:
            for row in rows:
                loaded = load_run_row(row)
                if loaded is not None:
                    yield loaded


def load_run_row(row: Row) -> RunRow | None:
    """Return what a row says of a run; None if it is no row of one."""
    loaded = _KINDS.load(row)
    return loaded if isinstance(loaded, RunRow) else None


async def read_run(db: Connection, name: str) -> tuple[Run | None, list[RunRange]]:
    """
    Return a run and its ranges, which are none once it has ended; None and no ranges if there is no such run.

    The rows may be read by several requests: then ranges of an earlier generation of the run are left out.

    Raises:
        TableNotFound: No run was ever begun.
    """
    rows = [row async for row in read_runs(db, name)]
    run = next((row for row in rows if isinstance(row, Run)), None)
    if run is None or run.state != "open":
        return run, []
    return run, [row for row in rows if isinstance(row, RunRange) and row.generation == run.generation]


def counts_of(row: Run | RunRange, kind: type[C]) -> C:
    """
    Return what was counted, as a row says.

    Raises:
        DecodeError: The row says something else.
    """
    try:
        return msgspec.convert(row.counts, kind)
    except msgspec.ValidationError as error:
        place = row.key.partition_key, row.key.row_key
        raise DecodeError(f"does not say what was counted: {error}", type(row).__name__, place) from None


def transaction(db: Connection) -> Transaction:
    """Return a transaction."""
    return Transaction(db, repeat=True)
