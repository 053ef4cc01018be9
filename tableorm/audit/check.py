"""
`Check`: what a pattern tells the audit of what it derives from entities; the audit itself knows no pattern.

A declaration of a model offers its checks by `AuditedMaintainer.checks`. Each check answers two questions: which claims
follow from an entity and from a derived row (`claims`, `row_claims`, `contributions`), and what is wrong where these do
not agree (`compare`, `verify_row`, `verify_totals`).
"""

import datetime as dt
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ..connection.races import Attempts
from ..connection.rows import delete_as_read, time_of
from ..models.kinds import kind_of
from ..models.schema import Schema
from ..stores import CLOCK, Row, RowAddress
from ..writes.maintainer import Maintainer
from .context import AuditContext, EntitySnapshot, Problem
from .first_look import FirstLook
from .report import Damage

WRONG = 1
"""
The number that an entity claims where something is certainly wrong. A row claims -WRONG, since what rows claim is taken
away: so one wrong claim never makes up for another, and a sum with them is zero only by a chance of one in 2**60.
"""


class Phase(IntEnum):
    """When the candidates of a segment are verified: one phase after the other, each building on those before it."""

    BEFORE = 0
    """Derived rows that must be readable before entities can be compared with them."""
    ENTITIES = 1
    """Entities with their derived rows, and derived rows that name the entity they belong to."""
    AFTER = 2
    """What all entities together determine, once each of them is right."""


Claims = Iterable[tuple[str, int]]
"""What an entity or a row claims: addresses of the partition, each with a number."""
FoundRows = Mapping[str, Row | None]
"""Rows of the partition of an entity that were read, by RowKey; None for one that is not there."""
IsCandidate = Callable[[str], bool]
"""Tells whether the claims on an address of the partition do not agree."""

VerifyEntity = Callable[[RowAddress], Awaitable[None]]
"""Verifies, and repairs, the entity at this address."""


VerifyTotals = Callable[[AuditContext, str, Collection[str], VerifyEntity], Awaitable[None]]
"""
Verifies what the entities of one partition together determine. Takes the context, the PartitionKey, the RowKeys of the
entities that hold the totals, and a function that verifies one entity.
"""


def claim_if_old(row: Row, name: str, age: dt.timedelta) -> Claims:
    """
    Claim that a row must be looked at, if it is so old that its writer must have ended long since.

    Args:
        row: The row.
        name: What it is, for messages.
        age: How old it has to be.
    """
    return ((f"\n\n{row['RowKey']}", -WRONG),) if CLOCK.now() - time_of(row, name) > age else ()


class AuditedMaintainer(Maintainer):
    """
    A declaration, bound to its model, that the audit checks too: the interface that a pattern implements in full.

    Attributes:
        buildable: Whether `db.build_index` can derive it for entities that were there before.
    """

    buildable = True

    def describe(self) -> Mapping[str, Any]:
        """
        Return what was declared, as JSON has it. Declarations that keep equal rows have equal descriptions, but for
        `where=`, a function, of which only the presence is told.
        """
        raise NotImplementedError

    def checks(self, context: AuditContext) -> "Sequence[Check]":
        """
        Return its checks: of its own model, and of related ones.

        Args:
            context: The rows of the table; each check is of one of its models.
        """
        raise NotImplementedError

    async def audit_blobs(self, context: AuditContext) -> None:
        """
        Check the blobs that it has, if it has any, once all entities were checked; repair them.

        Args:
            context: The rows of the table of the entities.
        """


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

    marks: bool = False
    """Whether the rows that it owns are marker rows of its model."""
    row_kinds: Collection[str] = ()
    """The kinds of marker rows that it checks, which are of no model."""
    kind: str = ""
    """The kind of the derived rows that belong to it, if all are of one."""
    row_phases: Collection[Phase] = ()
    """The phases in which `verify_row` is called with candidates among the derived rows that it owns."""
    looks_first: bool = False
    """Whether a first look can show that candidates are right: see `is_right` and `is_row_right`."""

    def __init__(self, context: AuditContext, schema: Schema, name: str) -> None:
        self.context, self.schema, self.name = context, schema, name
        self.verify_totals: VerifyTotals | None = None

    @property
    def identity(self) -> Hashable:
        """Equal for checks of one model that check the same thing, of which the audit uses the first alone."""
        return id(self)

    # Claims

    def owns(self, kind: str) -> bool:
        """Return whether derived rows of this kind, which no `row_kinds` name, belong to this check."""
        return kind == self.kind

    def accepts(self, row: Row) -> bool:
        """Return whether a derived row is checked; False leaves a row out although its kind belongs to this check."""
        return True

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """
        Return what an entity claims. The claims of entities and of derived rows add up to the same if and only if the
        derived rows, and what the manifests say of them, are right.
        """
        return ()

    def row_claims(self, row: Row) -> Claims:
        """Return what a derived row claims. A number of 0 stands for a row that is not there."""
        return ()

    def contributions(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """
        Return what an entity adds to totals that some entity holds, and takes away for those that it holds itself: the
        RowKey of the holder, an address, and a number. Where they do not add up to zero the holder is a candidate, not
        each entity that adds to it.
        """
        return ()

    # Candidates

    def addresses(self, snapshot: EntitySnapshot, found: FoundRows) -> set[str]:
        """
        Return the RowKeys of the rows to read with a candidate entity. It is asked again, with the rows that were
        found, until it names no other.
        """
        return set()

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Return what is wrong with an entity and the rows at its addresses."""
        return ()

    async def inspect(self, snapshot: EntitySnapshot) -> Iterable[Problem]:
        """
        Return what is wrong with the rows of an entity in other partitions. Where these alone are wrong, it repairs
        and records them itself.
        """
        return ()

    async def is_right(self, snapshot: EntitySnapshot, look: FirstLook) -> bool:
        """Return whether a first look finds nothing for an entity that is a candidate; otherwise it is verified."""
        raise NotImplementedError

    async def is_row_right(self, row: Row, look: FirstLook) -> bool:
        """Return whether a first look finds nothing for a derived row; otherwise it is verified."""
        raise NotImplementedError

    async def confirm(self, snapshot: EntitySnapshot, problem: Problem) -> Problem:
        """Look at further rows before a problem is reported, perhaps repair them; return the problem as it is then."""
        return problem

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """
        Verify a derived row that it owns by itself, and repair it: if not said otherwise, delete what `judge` condemns.

        Args:
            address: Where the row is.
            phase: One of `row_phases`.
            is_candidate: Whether the claims on an address of the partition do not agree.
        """
        async for _ in Attempts(self.context.db):
            row = await self.context.read(address)
            if row is None or not self.owns(kind_of(row)) or not self.accepts(row):
                return
            found = await self.judge(row)
            if found is None:
                return
            entity, problem = found
            # Under the ETag that it had before its entity was read: who makes it a row of the entity writes it.
            if await self.context.settle(address, row, [delete_as_read(row)] if problem.rebuilt else []):
                self.context.record(self.schema, entity, problem)
                return
        self.context.counts.leave()

    def record(self, at: RowAddress, damage: Damage, text: str, **options: Any) -> None:
        """Take note of what is wrong with a row by itself, whichever entity it is of; with options of `Problem`."""
        self.context.record(self.schema, at.beside(""), Problem(damage, self.name or None, at.row_key, text, **options))

    async def judge(self, row: Row) -> tuple[RowAddress, Problem] | None:
        """
        Return what is wrong with a derived row by itself, and the entity that it names; None if nothing is. Deleting
        the row repairs it, if anything does.
        """
        raise NotImplementedError
