"""
What an audit found: kinds of damage, findings, and the reports of them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs
import msgspec

from ..errors import counted
from ..jobs.counts import JobCounts
from ..jobs.ranges import RangeReport, plain_values
from ..jobs.report import Progress, RunReport, report_of

_KEPT = 1_000
_ROOM = 10_000  # characters of findings in a row


class Damage(StrEnum):
    """
    What is wrong with a row that is derived from an entity, such as an index entry, or with the entity's manifest,
    which lists the rows that are derived from it.
    """

    MISSING = "missing"
    """An index entry is missing, or the entity's key in an index list."""
    STALE = "stale"
    """An index entry differs from its entity; or a count, sum or embedded copy is wrong."""
    ORPHAN = "orphan"
    """A derived row, or a blob, belongs to no entity: the entity was deleted, or has its derived row elsewhere."""
    MANIFEST = "manifest"
    """The manifest of the entity does not agree with the rows that there are."""
    UNDECLARED = "undeclared"
    """A derived row belongs to an index, or something else, that the model does not declare."""
    TAKEN = "taken"
    """Two entities have the same value of a unique index."""
    BLOCKED = "blocked"
    """A row of another kind has the key that the derived row must have."""
    FOREIGN = "foreign"
    """A row says that it is an index entry and names no entity; or it says that it is part of an index list that has no
    such row."""
    UNREADABLE = "unreadable"
    """The entity does not fit its model, so it is unknown which derived rows it must have."""
    UNFINISHED = "unfinished"
    """A write was committed long ago, and its decision row says that rows in other partitions have still to follow; or
    a row of a move has been left for long."""
    DANGLING = "dangling"
    """An entity refers to another one, or is counted in it, that does not exist; or has a blob that is not there."""
    GAP = "gap"
    """A change feed lacks a change, or its counter does not count the changes that are there."""


_REMEDIES = {
    Damage.MISSING: "repair writes it",
    Damage.STALE: "repair replaces it with the values of the entity",
    Damage.ORPHAN: "repair deletes it",
    Damage.MANIFEST: "repair corrects the manifest",
    Damage.UNDECLARED: "repair deletes the row, or the key in the list, and the entry in the manifest",
    Damage.TAKEN: "repair leaves that to you: change one of the two, then repair",
    Damage.BLOCKED: "repair leaves that to you: change the index's row_key, or remove that row, then repair",
    Damage.FOREIGN: "repair leaves that to you: find out who wrote the row, then delete it",
    Damage.UNREADABLE: "repair leaves that to you: correct the row, or the model, then repair",
    Damage.UNFINISHED: "repair finishes the pending work, like a worker",
    Damage.GAP: "repair trims the feed up to the last change that is missing; readers before it are told",
    Damage.DANGLING: "repair leaves that to you: insert the missing entity, or refer to another one, then repair",
}


LEFT_TO_USERS = frozenset({Damage.TAKEN, Damage.BLOCKED, Damage.FOREIGN, Damage.UNREADABLE, Damage.DANGLING})
"""What no audit repairs."""

_UNFINISHED_REMEDY = "run a worker that knows what it names, or remove the cause, then audit again"


@attrs.frozen(kw_only=True)
class Finding:
    """
    One problem that an audit found.

    Args:
        damage: The kind of damage.
        model: The name of the model.
        index: The name of the index, list, count, sum or embedded copies; for a wrong count or sum, the field that
            holds it. None if the damage concerns none of them, or all.
        partition_key: The PartitionKey of the entity.
        row_key: The RowKey of the entity; "" if the derived row doesn't name it.
        address: The RowKey of the index entry, the row of the list, or the other entity; None if there is no other row.
        problem: The problem in words.
        repaired: Whether it was repaired.
        refused: Why repairing it failed; None if that wasn't tried or didn't fail.
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
            unfinished = self.damage is Damage.UNFINISHED
            remedy = _UNFINISHED_REMEDY if unfinished else "correct the row, or the model, then repair"
            return f"its repair is rejected ({self.refused}): {remedy}"
        return _REMEDIES[self.damage]

    def __str__(self) -> str:
        name = self.model if self.index is None else f"{self.model}.{self.index}"
        end = "repaired" if self.repaired else self.remedy
        return f"{name} ({self.partition_key!r}, {self.row_key!r}): {self.damage}: {self.problem}; {end}"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values that JSON can represent."""
        return plain_values(self)


@attrs.define(kw_only=True)
class AuditCounts(JobCounts):
    """
    What was found so far, while it is being counted. The names are those of `AuditReport`.
    """

    derived_rows: int = 0
    repaired: int = 0
    undecided: int = 0
    orphans: int = 0
    counts: dict[str, int] = attrs.field(factory=dict[str, int])
    findings: list[Finding] = attrs.field(factory=list[Finding], metadata={"most": _KEPT})

    def record(self, finding: Finding) -> None:
        """Count a finding, and keep it if there are not too many."""
        name = str(finding.damage)
        self.counts[name] = self.counts.get(name, 0) + 1
        if finding.repaired:
            self.repaired += 1
            self.written += 1
        else:
            self.fail(finding)
        if len(self.findings) < _KEPT:
            self.findings.append(finding)

    def leave(self, count: int = 1) -> None:
        """Count rows of which nobody knows whether they are right, since others wrote during each look at them."""
        self.undecided += count
        self.fail(
            f"others wrote during each look at {counted(count, 'row')}, so nobody knows whether it is right; "
            "look again while they write less"
        )

    def to_stored(self, most: int = 20) -> dict[str, Any]:
        """Return it as a row has it, with so many failures at most, and as many findings as there is room for."""
        room, kept = _ROOM, list[Finding]()
        for each in self.findings:
            room -= len(msgspec.json.encode(each))
            if room < 0:
                break
            kept.append(each)
        return super(AuditCounts, attrs.evolve(self, findings=kept)).to_stored(most)


@attrs.frozen(eq=False, kw_only=True)
class AuditReport(RangeReport):
    """
    What an audit has found so far, or in total once it has finished.

    Args:
        entities: The number of entities that were checked.
        derived_rows: The number of index entries and rows of index lists that were checked.
        counts: The number of findings by kind of damage: {"missing": 3}.
        findings: The first 1,000 findings, in the order of their entities; fewer for a shared audit.
        repaired: How many of all findings were repaired.
        undecided: The number of rows that couldn't be verified, because others kept writing them or because of an error
            that the logger `tableorm.audit` reports. Run the audit again.
        orphans: The number of entities without their parent, by `many(..., on_delete="keep")` of these models, or since
            they were inserted after a cascade to other partitions. They aren't findings.
        share: How much is done, 0.0 to 1.0, estimated from the keys.
        requests: The number of requests, without retries; a repair counts as one.
        seconds: How long it took, including earlier parts if it was resumed.
    """

    derived_rows: int = 0
    counts: Mapping[str, int] = attrs.Factory(dict[str, int])
    findings: tuple[Finding, ...] = ()
    repaired: int = 0
    undecided: int = 0
    orphans: int = 0

    @property
    def found(self) -> int:
        """The total number of findings."""
        return sum(self.counts.values())

    @property
    def clean(self) -> bool:
        """Whether everything is correct: nothing was found or everything was repaired, and nothing is undecided."""
        return self.found == self.repaired and not self.undecided

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can represent."""
        return {**super().to_dict(), "found": self.found, "clean": self.clean}

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        findings = f"{counted(self.found, 'finding')} ({counts}), {self.repaired:,} repaired"
        found = findings if self.found else "nothing found"
        busy = f", {self.undecided:,} undecided" if self.undecided else ""
        busy += f", {counted(self.orphans, 'orphan')}" if self.orphans else ""
        checked = f"{counted(self.entities, 'entity')} and {counted(self.derived_rows, 'derived row')} checked"
        return f"{checked}: {found}{busy}; {counted(self.requests, 'request')} in {self.seconds:.1f} s"


@attrs.frozen(kw_only=True)
class BuildReport(RunReport):
    """
    What `db.build_index` has done so far, or in total once it has finished. Its `written` counts entities that got
    their index entry, were added to the list, or were counted; its `failures` list what can't be built, such as a
    unique value that two entities share.

    Args:
        readable: Whether it is complete and used by queries from now on: the store has recorded that, or isn't asked. A
            count or sum can be read at any time.
    """

    readable: bool = False

    def __str__(self) -> str:
        left = ". It is not read yet: build it with no_older_writers=True when every program that writes declares it."
        return f"{super().__str__()}{left if self.complete and not self.readable else ''}"


def make_report(progress: Progress[AuditCounts]) -> AuditReport:
    """Return the report of what was counted."""
    counts = progress.counts
    by_damage, findings = dict(sorted(counts.counts.items())), tuple(sorted(counts.findings, key=_sort_key))
    return report_of(AuditReport, progress, counts=by_damage, findings=findings)


def _sort_key(finding: Finding) -> tuple[str, ...]:
    """Return the key by which findings are sorted: by entity first."""
    return finding.partition_key, finding.row_key, finding.model, finding.index or "", finding.address or ""
