"""
One table under audit: which models it has, which checks they have, and its rows, read and written one by one.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..connection.connection import Connection
from ..connection.rows import read_row
from ..connection.translate import translate
from ..errors import DecodeError
from ..models.kinds import KindSet
from ..models.manifest import ManifestEntry, manifest_of
from ..models.schema import Schema, concrete
from ..protocol.codes import Code, Fault
from ..protocol.limits import check_key
from ..stores import Operation, Row
from ..writes.races import pause_of
from .check import AuditedSchema, Check, EntitySnapshot, kind_of
from .entries import EntityCheck, EntryCheck
from .report import AuditCounts

__all__ = ["TableAudit", "with_related"]

_LOST_RACE = frozenset(
    {Code.ENTITY_EXISTS, Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND, Code.CONDITION_NOT_SATISFIED}
)


def with_related(schemas: Sequence[Schema]) -> list[Schema]:
    """
    Return models, and those that their declarations change or read: what is right in one, the other says. A related
    model without a kind, or with the kind of another one, is left out, because its rows cannot be told from others.

    Args:
        schemas: The models.
    """
    found = list(schemas)
    for schema in found:  # it grows meanwhile
        related = [other for each in schema.derived.values() for other in each.related()]
        for other in (each for target in related for each in concrete(target)):
            if other.kind is not None and all((s.table, s.kind) != (other.table, other.kind) for s in found):
                found.append(other)
    return found


class TableAudit:
    """
    The rows of a table, with the checks of its models: what `AuditContext` offers to the checks.

    Args:
        db: The open database.
        kinds: The models of the table.
        repair: Whether to repair what is wrong.
        only: Name of the one declaration that is checked; None for all.
    """

    def __init__(self, db: Connection, kinds: KindSet, *, repair: bool, only: str | None = None) -> None:
        self.db, self.kinds, self.repair, self.only = db, kinds, repair, only
        self._by_kind = {str(schema.kind): schema for schema in kinds.schemas}
        # Checks by model: of declarations that are to be checked; and all, by name, since each says what to expect.
        self._checks: dict[int, list[Check]] = {id(schema): [] for schema in kinds.schemas}
        self._by_name: dict[int, dict[str, Check]] = {id(schema): {} for schema in kinds.schemas}
        self._by_row_kind: dict[str, Check | None] = {}
        for schema in kinds.schemas:
            for each in schema.derived.values():
                for check in each.checks(self) if isinstance(each, AuditedSchema) else ():
                    self._add(check, checked=only is None or only == each.name)
        for schema in kinds.schemas if only is None else ():
            checks = self._checks[id(schema)]
            declared = [check.name for check in checks if isinstance(check, EntryCheck)]
            checks.insert(0, EntityCheck(self, schema, declared))

    def _add(self, check: Check, *, checked: bool) -> None:
        self._by_name[id(check.schema)].setdefault(check.name, check)
        others = self._checks[id(check.schema)]
        if checked and all(check.identity != other.identity for other in others):
            others.append(check)

    @property
    def all_checks(self) -> list[Check]:
        """All checks that are made, of all models."""
        return [check for checks in self._checks.values() for check in checks]

    def checks(self, snapshot: EntitySnapshot) -> Sequence[Check]:
        """Return what is checked of an entity."""
        return self._checks[id(snapshot.schema)]

    def check_of(self, row: Row) -> Check | None:
        """Return the check that a derived row belongs to; None for entities, and for rows that are not checked."""
        kind = kind_of(row)
        if "#" not in kind:
            return None
        if kind not in self._by_row_kind:
            schema = self._by_kind.get(kind.partition("#")[0])
            checks = () if schema is None else self._checks[id(schema)]
            # The check of the entity itself takes what no declaration owns.
            owners = [check for check in checks if check.owns(kind)]
            owners.sort(key=lambda check: isinstance(check, EntityCheck))
            self._by_row_kind[kind] = next(iter(owners), None)
        check = self._by_row_kind[kind]
        return check if check is None or check.accepts(row) else None

    def snapshot(self, row: Row) -> EntitySnapshot | None:
        """Return the entity of a row; None if the row is of another kind, or is a derived row."""
        if "#" in kind_of(row):
            return None
        try:
            resolved = self.kinds.resolve(row)
        except DecodeError as error:
            schema = self._by_kind.get(kind_of(row), self.kinds.schemas[0])
            return EntitySnapshot(schema=schema, row=row, problem=error.problem)
        return None if resolved is None else self._snapshot(*resolved, row)

    def _snapshot(self, schema: Schema, version: int, row: Row) -> EntitySnapshot:
        manifest: dict[str, ManifestEntry] = {}
        legible = True
        try:
            manifest = manifest_of(row)
        except DecodeError:
            legible = False
        if version > schema.version:
            return EntitySnapshot(
                schema=schema,
                row=row,
                age="newer",
                manifest=manifest,
                legible=legible,
                expected=manifest,
            )
        current = version == schema.version
        expected: dict[str, ManifestEntry] = {}
        derived_rows: dict[str, Row] = {}
        partition_key, row_key, by_name = row["PartitionKey"], row["RowKey"], self._by_name[id(schema)]
        try:
            for name in manifest.keys() & schema.derived.keys():
                manifest[name] = schema.derived[name].current_entry(manifest[name])
            values: Mapping[str, Any] = (schema.decode(row) if current else self.kinds.load(row.copy())).__dict__
            for name, each in schema.derived.items():
                entry = each.entry(values, partition_key, row_key)
                if entry is None:
                    continue
                expected[name] = entry
                derived_row = by_name[name].derive_row(entry, values, row) if current and name in by_name else None
                if derived_row is not None:
                    derived_rows[name] = derived_row
        except Exception as error:  # noqa: BLE001 - upgrades and `where=` are the user's: one bad row is a finding
            problem = f"{type(error).__name__}: {error}"
            return EntitySnapshot(
                schema=schema,
                row=row,
                manifest=manifest,
                legible=legible,
                problem=problem,
                expected=manifest,
            )
        return EntitySnapshot(
            schema=schema,
            row=row,
            age="current" if current else "older",
            manifest=manifest,
            legible=legible,
            expected=expected,
            derived_rows=derived_rows,
        )

    # Reading and writing

    async def read(self, partition_key: str, row_key: str, counts: AuditCounts) -> Row | None:
        """Read a row; None if there is none, or its RowKey, taken from a damaged row, is not a key."""
        try:
            check_key("RowKey", row_key)
        except Fault:
            return None
        counts.requests += 1
        return await read_row(self.db, self.kinds.table, partition_key, row_key)

    async def read_all(self, partition_key: str, row_keys: Iterable[str], counts: AuditCounts) -> list[Row | None]:
        """Read several rows of a partition."""
        return list(await asyncio.gather(*(self.read(partition_key, each, counts) for each in row_keys)))

    async def pause(self, attempt: int) -> None:
        """Wait before something is looked at again; not before the first attempt, which is 0."""
        if attempt:
            await asyncio.sleep(pause_of(self.db, attempt))

    async def send(self, operations: Sequence[Operation], counts: AuditCounts) -> bool:
        """
        Apply a transaction. Return False if somebody else has written meanwhile or the outcome is unknown: look again.

        Raises:
            TableOrmError: The store refused it for another reason.
        """
        counts.requests += 1
        self.db.stats.requests += 1
        try:
            await self.db.require_open().transact(self.kinds.table, list(operations))
        except Fault as fault:
            if fault.code in _LOST_RACE or fault.transient:
                return False
            raise translate(fault, "audit(repair=True)", self.kinds.table) from fault
        return True
