"""
What an audit found: damages, and the report of them.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs
import msgspec

from .ranges import AuditRange, write_cursor

__all__ = ["FINDINGS_KEPT", "AuditCounts", "AuditReport", "BuildReport", "Damage", "Finding"]

FINDINGS_KEPT = 1_000
"""Findings that a report holds; it counts all."""


class Damage(StrEnum):
    """What is wrong with a row that is derived from an entity, or with what the entity notes of it."""

    MISSING = "missing"
    """The entity has no copy where the index wants one."""
    STALE = "stale"
    """The copy is not as the entity is."""
    ORPHAN = "orphan"
    """A copy of no entity: that is gone, or has its copy elsewhere."""
    NOTE = "note"
    """The entity notes something else than what is there."""
    UNDECLARED = "undeclared"
    """A copy in an index that the model does not have."""
    TAKEN = "taken"
    """Another entity has the value of a unique index."""
    BLOCKED = "blocked"
    """A row of another kind is where the copy belongs."""
    UNREADABLE = "unreadable"
    """The entity does not fit its model, so that nobody knows what it ought to have."""
    DANGLING = "dangling"
    """An entity refers to one that does not exist, or counts in it."""


_REMEDIES = {
    Damage.MISSING: "repair writes it",
    Damage.STALE: "repair replaces it by what the entity says",
    Damage.ORPHAN: "repair deletes it",
    Damage.NOTE: "repair corrects the note",
    Damage.UNDECLARED: "repair deletes the copy and the note of it",
    Damage.TAKEN: "repair leaves that to you: change one of the two, then repair",
    Damage.BLOCKED: "repair leaves that to you: change the index's row_key, or remove that row, then repair",
    Damage.UNREADABLE: "repair leaves that to you: correct the row, or the model, then repair",
    Damage.DANGLING: "repair leaves that to you: insert what is referred to, or refer to another, then repair",
}


@attrs.frozen
class Finding:
    """
    Something that is wrong.

    Args:
        damage: What kind of damage it is.
        model: Name of the model.
        index: Name of the index, list, count, sum or embedded copies; of a wrong count or sum the field that keeps it.
            None if it is of none, or of all.
        partition_key: Of the entity.
        row_key: Of the entity, as stored; "" if a copy, or the row of a list, does not tell.
        address: RowKey of the copy, the row of the list, or the other entity; None if there is none that it is about.
        problem: What is wrong, in words.
        repaired: Whether it was repaired.
        refused: Why its repair was tried and is not possible; None if it is, or was not tried.
    """

    damage: Damage
    model: str
    index: str | None
    partition_key: str
    row_key: str
    address: str | None
    problem: str
    repaired: bool = False
    refused: str | None = None

    @property
    def remedy(self) -> str:
        """What `repair=True` does about it."""
        if self.refused is not None:
            return f"its repair is refused ({self.refused}): correct the row, or the model, then repair"
        return _REMEDIES[self.damage]

    @property
    def place(self) -> tuple[str, ...]:
        """Sorts findings by entity."""
        return self.partition_key, self.row_key, self.model, self.index or "", self.address or ""

    def __str__(self) -> str:
        name = self.model if self.index is None else f"{self.model}.{self.index}"
        end = "repaired" if self.repaired else self.remedy
        return f"{name} ({self.partition_key!r}, {self.row_key!r}): {self.damage}: {self.problem}; {end}"

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary of plain values."""
        return {**attrs.asdict(self), "damage": str(self.damage)}


@attrs.define
class AuditCounts:
    """
    What was found so far, while it is being counted. The names are those of the report.
    """

    entities: int = 0
    copies: int = 0
    built: int = 0
    repaired: int = 0
    undecided: int = 0
    requests: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = attrs.field(factory=dict[str, int])
    findings: list[Finding] = attrs.field(factory=list[Finding])

    def record(self, finding: Finding) -> None:
        """Count a finding, and keep it if there are not too many."""
        name = str(finding.damage)
        self.counts[name] = self.counts.get(name, 0) + 1
        self.repaired += finding.repaired
        if len(self.findings) < FINDINGS_KEPT:
            self.findings.append(finding)

    def add(self, other: "AuditCounts") -> None:
        """Count what another has counted."""
        for name in ("entities", "copies", "built", "repaired", "undecided", "requests"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.counts = dict(Counter(self.counts) + Counter(other.counts))
        self.findings += other.findings[: FINDINGS_KEPT - len(self.findings)]

    def take(self) -> "AuditCounts":
        """What was counted since this was called last."""
        taken, fresh = attrs.evolve(self), AuditCounts()
        for field in attrs.fields(AuditCounts):
            setattr(self, field.name, getattr(fresh, field.name))
        return taken

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "AuditCounts":
        """From a cursor."""
        return msgspec.convert(state, cls)


@attrs.frozen(eq=False)
class AuditReport:
    """
    What an audit has found so far; all of it at the end.

    Args:
        entities: Entities that were checked.
        copies: Copies that were checked, and rows of index lists.
        counts: How many findings of each kind of damage: {"missing": 3}.
        findings: The first of them that were found, at most 1000, in the order of their entities.
        repaired: How many of all were repaired.
        undecided: Rows that were written so often that no look at them was final; audit again.
        requests: Requests that were sent; repetitions not counted.
        seconds: How long it took, earlier parts included if it was resumed.
    """

    entities: int = 0
    copies: int = 0
    counts: Mapping[str, int] = attrs.Factory(dict[str, int])
    findings: tuple[Finding, ...] = ()
    repaired: int = 0
    undecided: int = 0
    requests: int = 0
    seconds: float = 0.0
    _purpose: bytes = attrs.field(default=b"", alias="purpose", repr=False)
    _stretches: tuple[AuditRange, ...] = attrs.field(default=(), alias="ranges", repr=False)

    @property
    def found(self) -> int:
        """How many findings there are in all."""
        return sum(self.counts.values())

    @property
    def clean(self) -> bool:
        """Whether everything is right: nothing was found, or all of it was repaired, and nothing is undecided."""
        return self.found == self.repaired and not self.undecided

    @property
    def cursor(self) -> str | None:
        """Where to go on: `db.audit(..., cursor=...)`, in any process. None at the end."""
        return write_cursor(self._purpose, self._stretches, _state_of(self))

    @property
    def rate(self) -> float:
        """Entities a second."""
        return self.entities / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary of plain values, for JSON."""
        return _dictionary(self)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        found = f"{self.found} findings ({counts}), {self.repaired} repaired" if self.found else "nothing found"
        busy = f", {self.undecided} undecided" if self.undecided else ""
        return (
            f"{self.entities} entities and {self.copies} copies checked: {found}{busy}; {self.requests} requests in "
            f"{self.seconds:.1f} s"
        )


@attrs.frozen(eq=False)
class BuildReport:
    """
    What became of `db.build_index` so far; all of it at the end.

    Args:
        index: Name of the index, list, count or sum: "Employee.by_email".
        entities: Entities that were looked at.
        built: Those that got their copy, came into the list, or were counted.
        requests: Requests that were sent; repetitions not counted.
        seconds: How long it took, earlier parts included if it was resumed.
        audit: The audit of the index that came after; None before that. What cannot be built, as a unique value of two
            entities, is among its findings.
    """

    index: str
    entities: int = 0
    built: int = 0
    requests: int = 0
    seconds: float = 0.0
    audit: AuditReport | None = None
    _purpose: bytes = attrs.field(default=b"", alias="purpose", repr=False)
    _stretches: tuple[AuditRange, ...] = attrs.field(default=(), alias="ranges", repr=False)

    @property
    def complete(self) -> bool:
        """Whether it came to the end, and each entity has its copy: then the index can be read."""
        return self.audit is not None and self.audit.clean and self.cursor is None

    @property
    def cursor(self) -> str | None:
        """Where to go on: `db.build_index(..., cursor=...)`, in any process. None at the end."""
        audit = attrs.asdict(AuditCounts()) if self.audit is None else _state_of(self.audit)
        return write_cursor(self._purpose, self._stretches, {**_state_of(self), "audit": audit})

    @property
    def rate(self) -> float:
        """Entities a second, the audit included."""
        return self.entities / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary of plain values, for JSON."""
        audit = None if self.audit is None else self.audit.to_dict()
        return {**_dictionary(self), "audit": audit, "complete": self.complete}

    def __str__(self) -> str:
        text = f"{self.index}: {self.built} of {self.entities} entities got a copy, {self.requests} requests in "
        text += f"{self.seconds:.1f} s"
        return text if self.audit is None else f"{text}; then {self.audit}"


def _state_of(report: AuditReport | BuildReport) -> dict[str, Any]:
    """The counts, for a cursor: what `AuditCounts.of_state` takes."""
    known = {field.name for field in attrs.fields(AuditCounts)}
    state = {name: getattr(report, name) for name in known if hasattr(report, name)}
    if isinstance(report, AuditReport):
        state |= {"counts": dict(report.counts), "findings": [each.to_dict() for each in report.findings]}
    return attrs.asdict(AuditCounts()) | state


def _dictionary(report: AuditReport | BuildReport) -> dict[str, Any]:
    found = {
        field.name: getattr(report, field.name)
        for field in attrs.fields(type(report))
        if not field.name.startswith("_") and field.name != "audit"
    }
    if isinstance(report, AuditReport):
        found |= {"counts": dict(report.counts), "findings": [each.to_dict() for each in report.findings]}
        found |= {"found": report.found, "clean": report.clean}
    return found
