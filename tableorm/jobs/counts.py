"""
What is counted while ranges of keys are worked on, and how that is added up.
"""

from collections.abc import Mapping
from typing import Any, Self, cast

import attrs
import msgspec

MOST_FAILURES = 35
"""How many failures are kept: as JSON they are no more text than a property may hold."""

_MOST_OF_A_RANGE = 20
_MOST_CHARACTERS = 440
_ENDING = 130


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

    def __add__(self, other: "RowSum") -> "RowSum":
        digest = (int(self.digest, 16) + int(other.digest, 16)) % 2**128
        return RowSum(self.rows + other.rows, f"{digest:x}")


@attrs.define(kw_only=True)
class JobCounts:
    """
    What was counted in a range, or in all ranges of a job. Subclasses have more fields: numbers, lists with the `most`
    members that they have as metadata, and dictionaries of what can be added.

    Args:
        entities: Entities that were read.
        written: Entities that were written.
        failed: Entities that could not be brought in order.
        failures: The first of these, with the reasons.
        others: What else was counted, by the word for it: "dropped", "transactions".
        sums: Sums of rows that are compared, by name.
        latest: When the last of the rows was written that were read, in ticks of the store's clock; 0 for never.
        requests: Requests that were sent, without repetitions.
        seconds: How long it took.
    """

    entities: int = 0
    written: int = 0
    failed: int = 0
    failures: list[str] = attrs.field(factory=list[str])
    others: dict[str, int] = attrs.field(factory=dict[str, int])
    sums: dict[str, RowSum] = attrs.field(factory=dict[str, RowSum])
    latest: int = 0
    requests: int = 0
    seconds: float = 0.0

    def fail(self, place: object, problem: object = None) -> None:
        """
        Count a failure, and keep it if there are not too many.

        Args:
            place: What is not in order, such as a row; or a whole sentence, without a problem.
            problem: Why; an error, or text.
        """
        self.failed += 1
        if len(self.failures) < MOST_FAILURES:
            if isinstance(place, Mapping):
                place = f"({place['PartitionKey']!r}, {place['RowKey']!r})"
            why = f"{type(problem).__name__}: {problem}" if isinstance(problem, Exception) else problem
            self.failures.append(_shorten(str(place) if why is None else f"{place}: {why}"))

    def count(self, what: str, number: int = 1) -> None:
        """Count something else."""
        self.others[what] = self.others.get(what, 0) + number

    def add(self, other: Self) -> None:
        """Add what was counted elsewhere."""
        for field in attrs.fields(type(self)):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            total = max(ours, theirs) if field.name == "latest" else _add_up(ours, theirs)
            setattr(
                self,
                field.name,
                total[: field.metadata.get("most", MOST_FAILURES)] if isinstance(total, list) else total,
            )

    def take(self) -> Self:
        """Return what was counted since the last call, and begin anew."""
        taken, fresh = attrs.evolve(self), type(self)()
        for field in attrs.fields(type(self)):
            setattr(self, field.name, getattr(fresh, field.name))
        return taken

    def to_stored(self, most: int = _MOST_OF_A_RANGE) -> dict[str, Any]:
        """Return it as a row has it, with so many failures at most."""
        stored: dict[str, Any] = msgspec.to_builtins(self)
        return {**stored, "failures": [_shorten(each) for each in self.failures[:most]]}


def _add_up(ours: Any, theirs: Any) -> Any:
    if not isinstance(ours, dict):
        return ours + theirs
    total: dict[str, Any] = {**theirs}
    for name, value in cast("dict[str, Any]", ours).items():
        total[name] = value + total[name] if name in total else value
    return total


def _shorten(text: str) -> str:
    """
    Return a text on one line, which JSON needs no more than twice the room for. Of a long one the middle is left out:
    an error begins with what it is about, and ends with the remedy.
    """
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - _ENDING - 3]}...{text[-_ENDING:]}"
