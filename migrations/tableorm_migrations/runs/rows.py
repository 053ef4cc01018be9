"""
What is stored of a shared run: a row that says what it is, and, while it is under way, a row for each range of keys.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Self

import attrs

from tableorm import Database, Entity, Mapped, field
from tableorm.audit.ranges import AuditRange
from tableorm.models.reserved import UPKEEP_TABLE
from tableorm.stores import Row

__all__ = ["RowSum", "Run", "RunCounts", "RunRange", "RunRow", "name_row", "read_run"]

# The failures that a row holds, each of at most so many characters, are no more text than a property may hold.
_RANGE_FAILURES = 20
_RUN_FAILURES = 50
_MOST_CHARACTERS = 300


@attrs.frozen
class RowSum:
    """
    A sum of hashes of rows, which is the same in whatever order they are added.

    Args:
        rows: How many rows were added.
        digest: The sum of their hashes of 128 bits modulo 2**128, in hexadecimal digits.
    """

    rows: int = 0
    digest: str = "0"

    def __attrs_post_init__(self) -> None:
        int(self.digest, 16)  # a ValueError makes the row that says something else one that cannot be decoded

    def plus(self, other: Self) -> Self:
        """Return the sum of the rows here and elsewhere."""
        return self.plus_hashes(other.rows, int(other.digest, 16))

    def plus_hashes(self, rows: int, hashes: int) -> Self:
        """Return the sum with some more rows, given the sum of their hashes."""
        return type(self)(self.rows + rows, f"{(int(self.digest, 16) + hashes) % 2**128:x}")


@attrs.frozen(kw_only=True)
class RunCounts:
    """
    What was counted in a range, or in all ranges of a run.

    Args:
        entities: Entities that were read.
        written: Entities that were written.
        failed: Entities that could not be brought in order.
        failures: The first of these, with the reasons.
        others: What else was counted, by the word for it: "dropped", "transactions".
        sums: Sums of rows that are compared, by name.
        latest: When the last of the rows was written that were read, in ticks of the store's clock; 0 for never.
    """

    entities: int = 0
    written: int = 0
    failed: int = 0
    failures: list[str] = attrs.field(factory=list[str])
    others: dict[str, int] = attrs.field(factory=dict[str, int])
    sums: dict[str, RowSum] = attrs.field(factory=dict[str, RowSum])
    latest: int = 0

    @classmethod
    def of(cls, *, entities: int, written: int, failed: int, failures: Iterable[object]) -> Self:
        """Return counts; of failures only the first ones are kept, cut to a length that a row can store."""
        kept = [_shorten(str(each)) for each in [*failures][:_RANGE_FAILURES]]
        return cls(entities=entities, written=written, failed=failed, failures=kept)

    def plus(self, other: Self, most: int = _RANGE_FAILURES) -> Self:
        """Return what was counted here and elsewhere, with at most so many failures."""
        nothing = RowSum()
        return type(self)(
            entities=self.entities + other.entities,
            written=self.written + other.written,
            failed=self.failed + other.failed,
            failures=[_shorten(each) for each in [*self.failures, *other.failures][:most]],
            others={name: self.others.get(name, 0) + other.others.get(name, 0) for name in self.others | other.others},
            sums={
                name: self.sums.get(name, nothing).plus(other.sums.get(name, nothing))
                for name in self.sums | other.sums
            },
            latest=max(self.latest, other.latest),
        )

    @classmethod
    def total(cls, counts: "Iterable[Self]") -> Self:
        """Return what was counted in several ranges."""
        total = cls()
        for each in counts:
            total = total.plus(each, _RUN_FAILURES)
        return total


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
    counts: Mapped[RunCounts] = field(factory=RunCounts)


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
    part: Mapped[AuditRange]
    counts: Mapped[RunCounts] = field(factory=RunCounts)
    owner: Mapped[str] = field(default="")
    taken: Mapped[str] = field(default="")
    lease: Mapped[float] = field(default=0.0)
    beat: Mapped[int] = field(default=0)


async def read_run(db: Database, name: str) -> tuple[Run | None, list[RunRange]]:
    """
    Return a run and its ranges, which are none once it has ended; None and no ranges if there is no such run.

    The rows may be read by several requests: then ranges of an earlier generation of the run are left out.

    Raises:
        TableNotFound: No run was ever begun.
    """
    rows = await db.select(RunRow).where(RunRow.name == name).all()
    run = next((row for row in rows if isinstance(row, Run)), None)
    if run is None or run.state != "open":
        return run, []
    return run, [row for row in rows if isinstance(row, RunRange) and row.generation == run.generation]


def _shorten(text: str) -> str:
    """Return a text on one line, which JSON needs no more than twice the room for."""
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def name_row(row: Row) -> str:
    """Return the keys of a row, as failures name it."""
    return f"({row['PartitionKey']!r}, {row['RowKey']!r})"
