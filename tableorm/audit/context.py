"""
What the checks of an audit work with: the rows of one table, and which entities they are.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Literal

import attrs

from ..connection.connection import Connection
from ..connection.index_states import known_unreadable
from ..connection.rows import is_place, read_row, write_as_read
from ..errors import AccessDenied, DecodeError, TableNotFound, Throttled, Unavailable
from ..jobs.scan import pages
from ..keys.ranges import KeyRegion
from ..models.index_declaration import IndexDeclaration
from ..models.kinds import KindSet, kind_of
from ..models.manifest import ManifestEntry, manifest_of
from ..models.reserved import ENTITY_TYPE, ENTITY_VERSION
from ..models.schema import Schema
from ..protocol.filters import Filter
from ..stores import Bounds, Operation, Row, RowAddress, row_keys
from ..writes.bulk.pacing import Pace
from .report import LEFT_TO_USERS, AuditCounts, Damage, Finding

OUT_OF_REACH = (AccessDenied, TableNotFound, Throttled, Unavailable)
"""What concerns a whole table. Whatever else is raised for a row concerns that one alone, and ends no audit."""


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
        return str(self.row.get(ENTITY_TYPE)).partition(":")[2] or str(self.row.get(ENTITY_VERSION, ""))

    @property
    def is_current(self) -> bool:
        """Whether it fits its model, and is of its version."""
        return self.age == "current" and self.problem is None

    @property
    def is_known(self) -> bool:
        """Whether it fits its model, and its manifest could be read."""
        return self.problem is None and self.legible

    def entries(self, name: str) -> tuple[ManifestEntry | None, ManifestEntry | None]:
        """Return what its manifest says of a declaration, and what it ought to say."""
        return self.manifest.get(name), self.expected.get(name)


@attrs.frozen(eq=False)
class Problem:
    """
    Something that is wrong with what is derived from an entity.

    Args:
        damage: The kind of damage.
        name: Name of the declaration; None for all of them.
        address: RowKey of the derived row; None if the problem is about no row.
        text: The problem in words.
        rebuilt: Whether an audit can repair it, as by deriving this entity's rows anew: usually all but what is left to
            users.
        rival: The derived row of another entity that is where the row of this one belongs.
        first: RowKey of an entity that has to be repaired before this one can be; None if there is none.
        refused: Why the repair was tried and failed; None if it was not tried or did not fail.
    """

    damage: Damage
    name: str | None
    address: str | None
    text: str
    rebuilt: bool = attrs.Factory(lambda self: self.damage not in LEFT_TO_USERS, takes_self=True)
    rival: Row | None = None
    first: str | None = None
    refused: str | None = None


_MOST_IN_A_TURN = 10  # snapshots, which take a millisecond or two together


class SnapshotTurns:
    """Bounds how many snapshots all that work on one audit make in one turn of the event loop."""

    def __init__(self) -> None:
        self._made, self._lock = 0, asyncio.Lock()

    async def take(self, count: int = 1) -> None:
        """Wait until so many snapshots may be made, which the caller then makes at once; other tasks run in between."""
        async with self._lock:  # who comes later waits too, so that each goes on in a turn of its own
            self._made += count
            if self._made > _MOST_IN_A_TURN:
                self._made = count
                await asyncio.sleep(0)


@attrs.frozen(eq=False, kw_only=True)
class AuditContext:
    """
    The rows of one table, read and written one by one, and what an audit has found of them.

    Args:
        db: The open database.
        kinds: The models that are audited in the table.
        repair: Whether to repair what is wrong.
        only: Name of the one declaration that is checked; None for all.
        guests: Audited models of other tables, of which derived rows are in this one.
        pace: Limits how many rows are read by the page in a second; None for any number.
        turns: Those of the audit, which others take part in.
        counts: What was found.
    """

    db: Connection
    kinds: KindSet
    repair: bool
    only: str | None = None
    guests: Sequence[Schema] = ()
    pace: Pace | None = None
    turns: SnapshotTurns
    counts: AuditCounts = attrs.field(factory=AuditCounts)

    def is_incomplete(self, declaration: IndexDeclaration | None, *, building: bool | None) -> bool:
        """
        Return whether entities may be missing in an index or a list, which is no damage: the store does not say that it
        is complete. The audit that belongs to a build of it accepts no such entity.

        Args:
            declaration: The index or the list; None for what has no state.
            building: What the declaration says of it; None if that is left to the store.
        """
        if declaration is None or self.only == declaration.name:
            return False
        return bool(known_unreadable(self.db, [declaration], assumed=False)) if building is None else building

    def snapshot(self, row: Row | None) -> EntitySnapshot | None:
        """Return the entity of a row; None if there is none, or the row is of another kind, or is a derived row."""
        if row is None or "#" in (kind := kind_of(row)):
            return None
        try:
            resolved = self.kinds.resolve(row)
        except Exception as error:  # noqa: BLE001 - discriminators are the user's: one bad row is a finding
            schemas = self.kinds.schemas
            schema = next((each for each in schemas if each.kind == kind), schemas[0])
            problem = error.problem if isinstance(error, DecodeError) else f"{type(error).__name__}: {error}"
            return EntitySnapshot(schema=schema, row=row, problem=problem)
        return None if resolved is None else self._snapshot(*resolved, row)

    def _snapshot(self, schema: Schema, version: int, row: Row) -> EntitySnapshot:
        manifest: dict[str, ManifestEntry] = {}
        legible = True
        try:
            manifest = manifest_of(row)
        except DecodeError:
            legible = False
        snapshot = EntitySnapshot(schema=schema, row=row, manifest=manifest, legible=legible, expected=manifest)
        if version > schema.version:
            return attrs.evolve(snapshot, age="newer")
        current = version == schema.version
        expected: dict[str, ManifestEntry] = {}
        derived_rows: dict[str, Row] = {}
        partition_key, row_key = row_keys(row)
        try:
            for name in manifest.keys() & schema.derived.keys():
                manifest[name] = schema.derived[name].current_entry(manifest[name])
            plain = schema.unseal(row) if current and schema.stages else row
            values: Mapping[str, Any] = (schema.decode(plain) if current else self.kinds.load(row.copy())).__dict__
            for name, each in schema.derived.items():
                entry = each.entry(values, partition_key, row_key)
                if entry is None:
                    continue
                expected[name] = entry
                derived_row = each.derive_row(entry, values, plain) if current else None
                if derived_row is not None:
                    derived_rows[name] = derived_row
        except Exception as error:  # noqa: BLE001 - upgrades and `where=` are the user's: one bad row is a finding
            return attrs.evolve(snapshot, problem=f"{type(error).__name__}: {error}")
        age: Literal["current", "older"] = "current" if current else "older"
        return attrs.evolve(snapshot, age=age, expected=expected, derived_rows=derived_rows)

    @property
    def all_schemas(self) -> Sequence[Schema]:
        """The models of the table, and those that have derived rows in it."""
        return (*self.kinds.schemas, *self.guests)

    # Reading and writing

    def at(self, partition_key: str, row_key: str) -> RowAddress:
        """Return the address of a row of the table."""
        return RowAddress(self.kinds.table, partition_key, row_key)

    async def read(self, address: RowAddress, name: str = "") -> Row | None:
        """
        Read a row of any table; None if there is none, or no row can be there, which a damaged one says. `name` is that
        of the declaration.
        """
        if not is_place(address):
            return None
        self.counts.requests += 1
        with suppress(TableNotFound):
            return await read_row(self.db, address, name=name or self.kinds.names)
        return None

    async def read_all(self, partition_key: str, row_keys: Iterable[str]) -> list[Row | None]:
        """Read several rows of a partition."""
        return list(await asyncio.gather(*(self.read(self.at(partition_key, each)) for each in row_keys)))

    def pages(self, where: Filter | None, regions: Sequence[KeyRegion], what: str) -> AsyncGenerator[list[Row], None]:
        """Yield the rows of some ranges of keys that satisfy a condition, by pages; `what` is named in messages."""
        return pages(self.db, self.kinds.table, where, regions, self.counts, what, self.pace, kinds=self.kinds)

    async def rows(self, partition_key: str, where: Filter | None = None) -> AsyncGenerator[Sequence[Row], None]:
        """Yield all rows of a partition that satisfy a condition, some at a time; other tasks run in between."""
        async with aclosing(self.pages(where, [KeyRegion(Bounds.only(partition_key))], "audit")) as found:
            async for rows in found:
                async for some in self.in_turns(rows):
                    yield some

    async def in_turns(self, rows: Sequence[Row]) -> AsyncGenerator[Sequence[Row], None]:
        """Yield rows, of which the caller makes snapshots at once, some at a time; other tasks run in between."""
        for start in range(0, len(rows), _MOST_IN_A_TURN):
            some = rows[start : start + _MOST_IN_A_TURN]
            await self.turns.take(len(some))
            yield some

    async def settle(self, address: RowAddress, stored: Row | None, repairs: Sequence[Operation] = ()) -> bool:
        """
        Repair a row; or, if rows are not repaired, make sure that it is still as it was. Return False if another writer
        has written it meanwhile: look again.

        Args:
            address: Where it is.
            stored: The row as it was read; None if there was none.
            repairs: The operations that repair it; empty if none does.

        Raises:
            TableOrmError: The store refused a repair for another reason.
        """
        if self.repair and repairs:
            return await self.send(repairs)
        again = await self.read(address)
        if stored is None or again is None:
            return again is stored
        return bool(again["odata.etag"] == stored["odata.etag"])

    async def send(self, operations: Sequence[Operation], table: str | None = None) -> bool:
        """
        Apply a transaction, to the table that is audited if no other is named. Return False if another writer has
        written meanwhile or the outcome is unknown: look again.

        Raises:
            TableOrmError: The store refused it for another reason.
        """
        self.counts.requests += 1
        what = "the first row of a repair by audit(repair=True)"
        return await write_as_read(self.db, table or self.kinds.table, operations, name="", what=what)

    def record(self, schema: Schema, entity: RowAddress, problem: Problem) -> None:
        """
        Count what was found. It was repaired if rows are, it can be, and that was not rejected.

        Args:
            schema: The model.
            entity: Where the entity is; its RowKey is "" if nobody knows it.
            problem: What is wrong.
        """
        finding = Finding(
            damage=problem.damage,
            model=schema.name,
            index=problem.name,
            partition_key=entity.partition_key,
            row_key=entity.row_key,
            address=problem.address,
            problem=problem.text,
            repaired=self.repair and problem.rebuilt and problem.refused is None,
            refused=problem.refused,
        )
        self.counts.record(finding)
