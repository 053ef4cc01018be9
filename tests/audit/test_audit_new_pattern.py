"""
A pattern that is declared in this file alone is audited and repaired: the engine of the audit knows none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tableorm import Database, Entity, Mapped, connect, field
from tableorm.audit.check import WRONG, AuditedMaintainer, Check, IsCandidate, Phase, VerifyEntity
from tableorm.audit.context import AuditContext, EntitySnapshot, Problem, kind_of
from tableorm.audit.report import Damage
from tableorm.models.derivation import Derivation
from tableorm.models.manifest import ManifestEntry, manifest_form
from tableorm.models.reserved import ENTITY_TYPE, WRITE_TOKENS
from tableorm.models.schema import Schema
from tableorm.models.write_tokens import tokens_of, with_token
from tableorm.stores import Bounds, Operation, Row, RowAddress, RowQuery, Verb
from tableorm.writes.maintainer import EntryRules, Source, entry_rules, undo_entry
from tableorm.writes.plan import Effect, PlannedWrite

_ALL = RowQuery(Bounds(), Bounds(), None)

# The pattern: the points of all entities of a group are added up in a row of its own.


@manifest_form("points")
class PointsEntry(ManifestEntry, frozen=True, gc=False):
    """The entity adds points to the row of its group."""

    row_key: str
    kind: str
    points: int


class PointsEffect(Effect, msgspec.Struct, frozen=True, eq=False, gc=False):
    """Points that come to the row of a group, or leave it."""

    row_key: str
    origin: PlannedWrite
    kind: str
    points: int
    reads = True

    @property
    def idle(self) -> bool:
        """Whether nothing comes or leaves."""
        return not self.points

    def merge_with(self, other: Effect) -> Effect:
        """Return both as one."""
        assert isinstance(other, PointsEffect)
        return structs.replace(other, points=self.points + other.points)

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """Return the write of the row, under the ETag it was read with."""
        points = self.points + (0 if stored is None else stored["Points"])
        row = _total_row(self.origin.operation.row["PartitionKey"], self.row_key, self.kind, points)
        row[WRITE_TOKENS] = with_token(tokens_of(stored), token)
        return Operation(Verb.INSERT, row) if stored is None else Operation(Verb.REPLACE, row, stored["odata.etag"])


def _total_row(partition_key: str, row_key: str, kind: str, points: int) -> Row:
    return {"PartitionKey": partition_key, "RowKey": row_key, ENTITY_TYPE: kind, "Points": points}


@entry_rules(PointsEntry)
class _Rules(EntryRules[PointsEntry]):
    def undo(self, name: str, entry: PointsEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Take the points back."""
        return [PointsEffect(entry.row_key, write, entry.kind, -entry.points)]


class PointsMaintainer(AuditedMaintainer):
    """The points of a model."""

    entry_type = PointsEntry

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> PointsEntry:
        """Return what the entity adds."""
        return PointsEntry(f"points_{values['group']}", f"{self.schema.kind}#{self.name}", values["points"])

    def effects(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Take back what the entity has added, and add what it adds now."""
        entry = self.entry(source.values, source.partition_key, source.row_key)
        if entry == before:
            return entry, []
        undone = [] if before is None else undo_entry(self.name, before, source.write)
        return entry, [*undone, PointsEffect(entry.row_key, source.write, entry.kind, entry.points)]

    def rebuild(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Return the entry alone, unless the entity was never counted."""
        if source.write.change.counts:
            return self.effects(before, source)
        return self.entry(source.values, source.partition_key, source.row_key), []

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return its check."""
        return (PointsCheck(context, self.schema, self.name),)


class Points(Derivation):
    """The points of the entities of a group, added up: `total = Points()`."""

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> PointsMaintainer:
        """Return it for a model."""
        return PointsMaintainer(self.name, schema)


class PointsCheck(Check):
    """The check of the points."""

    row_phases = frozenset({Phase.AFTER})

    def __init__(self, context: AuditContext, schema: Schema, name: str) -> None:
        super().__init__(context, schema, name)
        self.verify_totals = verify_points

    def owns(self, kind: str) -> bool:
        """Return whether it is the kind of the groups' rows."""
        return kind == f"{self.schema.kind}#{self.name}"

    def claims(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """Claim WRONG where the manifest says other points."""
        right = snapshot.manifest.get(self.name) == snapshot.expected.get(self.name)
        return () if right else ((snapshot.row["RowKey"], WRONG),)

    def contributions(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """Return the points."""
        entry = snapshot.expected.get(self.name)
        return ((entry.row_key, entry.row_key, entry.points),) if isinstance(entry, PointsEntry) else ()

    def row_claims(self, row: Row) -> Iterable[tuple[str, int]]:
        """Claim the points of a group."""
        return ((row["RowKey"], row["Points"]),)

    def compare(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        """Compare the manifest."""
        if any(self.claims(snapshot)):
            yield Problem(Damage.MANIFEST, self.name, None, "its manifest says other points")

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify the row of a group, which may have no entities any more."""
        await _verify_points(self.context, self, address)


async def verify_points(
    context: AuditContext, partition_key: str, holders: Collection[str], verify: VerifyEntity
) -> None:
    """Verify the rows of groups that have entities and no row; those that are there are verified as rows."""
    (schema,) = context.kinds.schemas
    (check,) = [PointsCheck(context, schema, name) for name in schema.derived]
    for address in (context.at(partition_key, row_key) for row_key in holders):
        if await context.read(address) is None:
            await _verify_points(context, check, address)


async def _verify_points(context: AuditContext, check: PointsCheck, address: RowAddress) -> None:
    stored, partition_key, row_key = await context.read(address), address.partition_key, address.row_key
    points = 0
    async with aclosing(context.rows(partition_key)) as found:
        async for rows in found:
            for snapshot in filter(None, map(context.snapshot, rows)):
                points += sum(added for holder, _, added in check.contributions(snapshot) if holder == row_key)
    if points == (0 if stored is None else stored["Points"]):
        return
    row = _total_row(partition_key, row_key, f"{check.schema.kind}#{check.name}", points)
    fresh = Operation(Verb.INSERT, row) if stored is None else Operation(Verb.REPLACE, row, stored["odata.etag"])
    repaired = context.repair and await context.send([fresh])
    damage = Damage.MISSING if stored is None else Damage.STALE
    problem = Problem(damage, check.name, row_key, f"the group has {points} points")
    context.record(check.schema, address.beside(""), problem, repaired=repaired)


class Player(Entity, table="Players", partition_key="{club}", row_key="player_{id}"):
    """Declares the pattern."""

    club: Mapped[str]
    id: Mapped[int]
    group: Mapped[str]
    points: Mapped[int] = field(default=0)

    total = Points()


class PlayerOfOld(Entity, table="Players", kind="Player", partition_key="{club}", row_key="player_{id}"):
    """The same in a program that does not know the pattern."""

    club: Mapped[str]
    id: Mapped[int]
    group: Mapped[str]
    points: Mapped[int] = field(default=0)


def _player(number: int) -> Player:
    return Player(club="Chess", id=number, group="ab"[number % 2], points=10 + number)


async def _totals(db: Database) -> dict[str, int]:
    found = await db.store.query("Players", _ALL, 100, None)
    return {row["RowKey"]: row["Points"] for row in found.rows if "#" in kind_of(row)}


@pytest.mark.parametrize("repair", [False, True])
async def test_new_pattern_is_audited(repair: bool) -> None:
    """A wrong row, a missing one, one of no entities, and a wrong manifest are found, and repaired if asked to."""
    async with connect("local::memory:") as db:
        await db.create_tables(Player)
        for number in range(6):
            await db.insert(_player(number))
        await db.modify(Player, lambda player: player.evolve(points=20), club="Chess", id=0)
        right = {"points_a": 20 + 12 + 14, "points_b": 11 + 13 + 15}
        assert await _totals(db) == right
        assert (await db.audit(Player)).found == 0
        keys = {"PartitionKey": "Chess"}
        await db.store.write("Players", Operation(Verb.MERGE, {**keys, "RowKey": "points_a", "Points": 7}, "*"))
        await db.store.write("Players", Operation(Verb.DELETE, {**keys, "RowKey": "points_b"}, "*"))
        lost = {**keys, "RowKey": "points_c", ENTITY_TYPE: "Player#total", "Points": 3}
        await db.store.write("Players", Operation(Verb.INSERT, lost))
        await db.store.write("Players", Operation(Verb.MERGE, {**keys, "RowKey": "player_5", "_ix": "{}"}, "*"))

        report = await db.audit(Player, repair=repair)

        found = [(str(each.damage), each.index, each.row_key, each.address, each.repaired) for each in report.findings]
        assert found == [
            ("stale", "total", "", "points_a", repair),
            ("missing", "total", "", "points_b", repair),
            ("stale", "total", "", "points_c", repair),
            ("manifest", "total", "player_5", None, repair),
        ]
        if repair:
            assert await _totals(db) == {**right, "points_c": 0}
            assert (await db.audit(Player)).found == 0


async def test_new_pattern_is_built() -> None:
    """`db.build_index` derives it for entities that were there before it was declared."""
    async with connect("local::memory:") as db:
        await db.create_tables(Player)
        for number in range(6):
            await db.insert(PlayerOfOld(club="Chess", id=number, group="a", points=1))

        built = await db.build_index(Player.total)

        assert (built.built, built.complete) == (6, True)
        assert await _totals(db) == {"points_a": 6}
