"""
`Check`: what a pattern tells the audit of what it derives from entities; the audit itself knows no pattern.

A declaration of a model offers its checks by `AuditedSchema.checks`. Each check answers two questions: which claims
follow from an entity and from a derived row (`claims`, `row_claims`, `contributions`), and what is wrong where these do
not agree (`compare`, `verify_row`, `verify_totals`).
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Literal, Protocol

import attrs

from ..connection.connection import Connection
from ..models.kinds import KindSet
from ..models.manifest import ManifestEntry
from ..models.reserved import ENTITY_TYPE, ENTITY_VERSION
from ..models.schema import Schema
from ..stores import Operation, Row
from ..writes.maintainer import Maintainer
from .report import AuditCounts, Damage, Finding

__all__ = [
    "WRONG",
    "AuditContext",
    "AuditedSchema",
    "Check",
    "EntitySnapshot",
    "IsCandidate",
    "Phase",
    "Problem",
    "VerifyEntity",
    "VerifyTotals",
    "finding_of",
    "kind_of",
]


WRONG = 1
"""The number to claim where something is certainly wrong: a sum with it is zero only by a chance of one in 2**60."""


class Phase(IntEnum):
    """When the candidates of a segment are verified: one phase after the other, each building on those before it."""

    BEFORE = 0
    """Derived rows that must be readable before entities can be compared with them."""
    ENTITIES = 1
    """Entities with their derived rows, and derived rows that name the entity they belong to."""
    AFTER = 2
    """What all entities together determine, once each of them is right."""


@attrs.frozen(eq=False, kw_only=True)
class EntitySnapshot:
    """
    An entity as it was read, with what its manifest says and what it ought to say.

    Args:
        schema: Its model.
        row: Its row.
        age: How its version compares with the model's. The derived rows of an older entity are right as they are until
            a write upgrades it. A newer one, which a newer program wrote, is compared with its own manifest alone.
        manifest: What its manifest says, by name of the declaration.
        legible: Whether the manifest could be read.
        problem: Why the row does not fit its model; None if it does.
        expected: What its manifest ought to say. Where nobody knows that, because the entity is newer than the model or
            does not fit it, what the manifest does say.
        derived_rows: The derived rows that it ought to have, by name of the declaration, as far as they are known.
    """

    schema: Schema
    row: Row
    age: Literal["current", "older", "newer"] = "current"
    manifest: Mapping[str, ManifestEntry] = attrs.Factory(dict[str, ManifestEntry])
    legible: bool = True
    problem: str | None = None
    expected: Mapping[str, ManifestEntry] = attrs.Factory(dict[str, ManifestEntry])
    derived_rows: Mapping[str, Row] = attrs.Factory(dict[str, Row])

    @property
    def version(self) -> str:
        """The entity's version, as its derived rows have it."""
        return str(self.row.get(ENTITY_TYPE, "")).partition(":")[2] or str(self.row.get(ENTITY_VERSION, ""))


@attrs.frozen(eq=False)
class Problem:
    """
    Something that is wrong with what is derived from an entity.

    Args:
        damage: The kind of damage.
        name: Name of the declaration; None for all of them.
        address: RowKey of the derived row; None if the problem is about no row.
        text: The problem in words.
        rebuilt: Whether deriving this entity's rows anew repairs it.
        rival: The derived row of another entity that is where the row of this one belongs.
        first: RowKey of an entity that has to be repaired before this one can be; None if there is none.
        refused: Why the repair was tried and failed; None if it was not tried or did not fail.
    """

    damage: Damage
    name: str | None
    address: str | None
    text: str
    rebuilt: bool = True
    rival: Row | None = None
    first: str | None = None
    refused: str | None = None


IsCandidate = Callable[[str], bool]
"""Tells whether the claims on an address of the partition do not agree."""

VerifyEntity = Callable[[str, str, AuditCounts], Awaitable[None]]
"""Verifies, and repairs, the entity with this PartitionKey and RowKey."""


class AuditContext(Protocol):
    """What a check can use: the rows of one table, and which entities they are."""

    @property
    def db(self) -> Connection:
        """The open database."""
        ...

    @property
    def kinds(self) -> KindSet:
        """The models that are audited in this table."""
        ...

    @property
    def repair(self) -> bool:
        """Whether to repair what is wrong."""
        ...

    @property
    def only(self) -> str | None:
        """Name of the one declaration that is checked; None for all."""
        ...

    def snapshot(self, row: Row) -> EntitySnapshot | None:
        """Return the entity of a row; None if the row is of another kind, or is a derived row."""
        ...

    def checks(self, snapshot: EntitySnapshot) -> "Sequence[Check]":
        """Return the checks of an entity."""
        ...

    def check_of(self, row: Row) -> "Check | None":
        """Return the check that a derived row belongs to; None for entities, and for rows that are not checked."""
        ...

    async def read(self, partition_key: str, row_key: str, counts: AuditCounts) -> Row | None:
        """Read a row; None if there is none, or its RowKey, taken from a damaged row, is not a key."""
        ...

    async def read_all(self, partition_key: str, row_keys: Iterable[str], counts: AuditCounts) -> list[Row | None]:
        """Read several rows of a partition."""
        ...

    async def pause(self, attempt: int) -> None:
        """Wait before something is looked at again; not before the first attempt, which is 0."""
        ...

    async def send(self, operations: Sequence[Operation], counts: AuditCounts) -> bool:
        """
        Apply a transaction. Return False if somebody else has written meanwhile or the outcome is unknown: look again.

        Raises:
            TableOrmError: The store refused it for another reason.
        """
        ...


VerifyTotals = Callable[[AuditContext, str, Collection[str], VerifyEntity, AuditCounts], Awaitable[None]]
"""
Verifies what the entities of one partition together determine. Takes the context, the PartitionKey, the RowKeys of the
entities that hold the totals, a function that verifies one entity, and the counts, which get the findings.
"""


class AuditedSchema(Maintainer):
    """
    A declaration, bound to its model, that the audit checks too: the interface that a pattern implements in full.

    Attributes:
        buildable: Whether `db.build_index` can derive it for entities that were there before.
    """

    buildable = True

    def checks(self, context: AuditContext) -> "Sequence[Check]":
        """
        Return its checks: of its own model, and of related ones.

        Args:
            context: The rows of the table; each check is of one of its models.
        """
        raise NotImplementedError


class Check:
    """
    What is checked of the entities of one model for one declaration.

    All entities and derived rows of a segment make claims: pairs of an address, which is any text that is unique in its
    partition, and a number. What entities claim and what derived rows claim must add up to the same at each address;
    where it does not, those that claim it are candidates and are verified one by one. The address of a row is its
    RowKey.

    Args:
        context: The rows of the table.
        schema: The model whose entities are checked.
        name: Name of the declaration, or of the field that findings are about.

    Attributes:
        verify_totals: Verifies what `contributions` add up to, in `Phase.AFTER`; None for a check without any. Checks
            that have the same function are verified by one call for each partition.
    """

    row_phases: Collection[Phase] = ()
    """The phases in which `verify_row` is called with candidates among the derived rows that it owns."""

    def __init__(self, context: AuditContext, schema: Schema, name: str) -> None:
        self.context, self.schema, self.name = context, schema, name
        self.verify_totals: VerifyTotals | None = None

    @property
    def identity(self) -> Hashable:
        """Equal for checks of one model that check the same thing, of which the audit uses the first alone."""
        return id(self)

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """
        Return the derived row that an entity ought to have; None if the pattern has no row for each entity.

        Args:
            entry: What its manifest ought to say.
            values: The fields of the entity, in full.
            row: Its row, which is of the model's version.
        """
        del entry, values, row
        return None

    # Claims

    def owns(self, kind: str) -> bool:
        """Return whether derived rows of this kind belong to this check."""
        del kind
        return False

    def accepts(self, row: Row) -> bool:
        """Return whether a derived row is checked; False leaves a row out although its kind belongs to this check."""
        del row
        return True

    def claims(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """
        Return what an entity claims. The claims of entities and of derived rows add up to the same if and only if the
        derived rows, and what the manifests say of them, are right.
        """
        del snapshot
        return ()

    def row_claims(self, row: Row) -> Iterable[tuple[str, int]]:
        """Return what a derived row claims. A number of 0 stands for a row that is not there."""
        del row
        return ()

    def contributions(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """
        Return what an entity adds to totals that some entity holds, and takes away for those that it holds itself: the
        RowKey of the holder, an address, and a number. Where they do not add up to zero the holder is a candidate, not
        each entity that adds to it.
        """
        del snapshot
        return ()

    # Candidates

    def addresses(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        """
        Return the RowKeys of the rows to read with a candidate entity. It is asked again, with the rows that were
        found, until it names no other.
        """
        del snapshot, found
        return set()

    def compare(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        """Return what is wrong with an entity and the rows at its addresses."""
        del snapshot, found
        return ()

    async def confirm(self, snapshot: EntitySnapshot, problem: Problem, counts: AuditCounts) -> Problem:
        """Look at further rows before a problem is reported, perhaps repair them; return the problem as it is then."""
        del snapshot, counts
        return problem

    async def verify_row(
        self, partition_key: str, row_key: str, phase: Phase, is_candidate: IsCandidate, counts: AuditCounts
    ) -> None:
        """
        Verify a derived row that it owns by itself, and repair it.

        Args:
            partition_key: Its PartitionKey.
            row_key: Its RowKey.
            phase: One of `row_phases`.
            is_candidate: Whether the claims on an address of the partition do not agree.
            counts: Gets the findings.
        """
        del partition_key, row_key, phase, is_candidate, counts


def kind_of(row: Row) -> str:
    """Return the kind that a row says it is of, without the version; "" if it says none."""
    text = row.get(ENTITY_TYPE)
    return text.partition(":")[0] if isinstance(text, str) else ""


def finding_of(snapshot: EntitySnapshot, problem: Problem, *, repaired: bool) -> Finding:
    """Return the finding of a problem of an entity."""
    return Finding(
        damage=problem.damage,
        model=snapshot.schema.name,
        index=problem.name,
        partition_key=snapshot.row["PartitionKey"],
        row_key=snapshot.row["RowKey"],
        address=problem.address,
        problem=problem.text,
        repaired=repaired and problem.rebuilt,
        refused=problem.refused,
    )
