"""
What an audit checks of an index: that each entity has its index entry, and that this holds what the entity does.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from ...audit.check import WRONG, Claims, FoundRows, claim_if_old
from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.decisions import LONGEST_WRITE
from ...audit.entries import EntryCheck, entity_problems
from ...audit.report import Damage
from ...errors import DecodeError, EncryptionError, shown
from ...models.kinds import describe_kind, entry_name_of, kind_of
from ...models.manifest import ManifestEntry, PlacedEntry, ReservedEntry, manifest_of
from ...models.reserved import COPIED_VERSION, COPY_OF, ENTITY_TYPE, OPENED
from ...outbox.reservations import find_holder, find_last_holder, owner_and_token
from ...stores import Row, RowAddress, row_keys
from ...writes.maintainer import Maintainer
from ..placed_check import PlacedCheck, ReadRow
from .schema import EntrySchema, IndexSchema, contents_of

_SPOILT = b"what no entry holds"


class IndexCheck(EntryCheck):
    """
    The check of the entries of an index.

    Args:
        context: The rows of the table.
        index: The index of one model.
    """

    noun = "index entry"

    def __init__(self, context: AuditContext, index: IndexSchema) -> None:
        name = index.entry_name
        # Until an index is complete, entities may lack entries that their manifests do not name.
        lenient = context.is_incomplete(index.declaration, building=index.building)
        super().__init__(context, index.primary, name, lenient=lenient)
        self._index = index
        self._alone = context.only is not None
        self._current = index.kind_properties[ENTITY_TYPE]
        self._kept = index.maintained_properties

    def accepts(self, row: Row) -> bool:
        """Return whether it may be an entry: rows of a list, whose RowKeys hold a `~`, may be left under the name."""
        if isinstance(row.get(COPY_OF), str) or "~" not in row["RowKey"]:
            return True
        template = self._index.row
        assert template is not None
        try:
            template.parse(row["RowKey"])
        except ValueError:
            return False
        return True

    def contents(self, row: Row) -> bytes:
        """Return what an entry holds, without fields that others keep: older programs do not know that they do."""
        kept = self._kept
        if OPENED in row:  # it was read, and not derived
            try:
                row = self._index.unseal(row)
            except EncryptionError:
                return _SPOILT
        return contents_of({n: v for n, v in row.items() if n.partition("@")[0] not in kept} if kept else row)

    def knows_contents(self, row: Row) -> bool:
        """Return whether the entry is of the version of the model."""
        return bool(row[ENTITY_TYPE] == self._current)

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim the entry; alone it also claims WRONG for an entity that cannot be read."""
        if self._alone and not snapshot.is_known:
            return [(snapshot.row["RowKey"], WRONG)]
        return super().claims(snapshot)

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Compare the entry; alone it also says why the entity cannot be read."""
        problems = super().compare(snapshot, found)
        return [*entity_problems(snapshot), *problems] if self._alone else problems


class EventualIndexCheck(PlacedCheck):
    """
    The check of the entries of an eventual index, which are in other partitions than their entities.

    Args:
        context: The rows of the table.
        maintainer: The index of one model.
        index: The schema of its entries.
    """

    def __init__(self, context: AuditContext, maintainer: Maintainer, index: EntrySchema) -> None:
        super().__init__(context, maintainer)
        self._index = index

    async def _compare(
        self, snapshot: EntitySnapshot, noted: ManifestEntry | None, due: ManifestEntry | None, read: ReadRow
    ) -> Sequence[Problem]:
        problems: list[Problem] = []

        def find(damage: Damage, address: str | None, text: str) -> None:
            problems.append(Problem(damage, self.name, address, text))

        if isinstance(due, PlacedEntry):
            row, where = await read(RowAddress.of(due)), _where(due)
            wanted = snapshot.derived_rows.get(self.name)
            if row is None:
                find(Damage.MISSING, due.row_key, f"there is no index entry at {where}")
            elif not self._is_entry_of(row, snapshot.row):
                text = f"a row of kind {shown(kind_of(row))} is at {where}, where the index entry belongs"
                find(Damage.BLOCKED, due.row_key, text)
            elif wanted is not None and _eventual_contents(row) != _eventual_contents(wanted):
                find(Damage.STALE, due.row_key, f"the index entry at {where} differs from its entity")
            elif noted != due:
                text = f"the index entry at {where} is right, but the manifest of the entity does not name it"
                find(Damage.MANIFEST, due.row_key, text)
        if isinstance(noted, PlacedEntry) and noted != due:
            row, where = await read(RowAddress.of(noted)), _where(noted)
            if row is not None and self._is_entry_of(row, snapshot.row):
                text = f"the index entry at {where} was left behind: the entity belongs elsewhere, or nowhere"
                find(Damage.ORPHAN, noted.row_key, text)
            else:
                text = f"its manifest names {where}, and the entity should have no index entry there"
                find(Damage.MANIFEST, noted.row_key, text)
        elif noted is not None and not isinstance(noted, PlacedEntry):
            text = f"its manifest names {shown(noted.to_json())}, and the index is one of other partitions"
            find(Damage.MANIFEST, None, text)
        return problems

    async def judge(self, row: Row) -> tuple[RowAddress, Problem] | None:
        """Return that the entry belongs to no entity, or names none."""
        address, table = RowAddress.of_row(self.context.kinds.table, row), self.schema.table_name()
        what = f"the index entry at {shown(address.row_key)}"
        try:
            owner = RowAddress(table, *self._index.owner_keys(row))
        except DecodeError:
            text = f"{what} names no entity of table {table}, as each that tableorm writes does"
            return address.beside(""), Problem(Damage.FOREIGN, self.name, address.row_key, text)
        if not await self._is_orphan(row, owner):
            return None
        text = f"{what} belongs to no entity: {(owner.partition_key, owner.row_key)} is gone, or has it elsewhere"
        return owner, Problem(Damage.ORPHAN, self.name, address.row_key, text)

    def _named_by(self, row: Row) -> tuple[ManifestEntry, Sequence[RowAddress]]:
        return self._noted_as(row), [RowAddress(self.schema.table_name(), *self._index.owner_keys(row))]

    async def _is_orphan(self, row: Row, owner: RowAddress) -> bool:
        """Return whether the entity that an entry names has none there, nor is getting or losing one there now."""
        return not await self._is_due(self._noted_as(row), owner)

    def _noted_as(self, row: Row) -> ManifestEntry:
        """Return what the manifest of its entity says of an entry."""
        return PlacedEntry(*row_keys(row), self.context.kinds.table)

    def _is_entry_of(self, row: Row, primary: Row) -> bool:
        owner = RowAddress.of_row(self.schema.table_name(), primary)
        return self.owns(kind_of(row)) and row.get(COPY_OF) == owner.to_json()


def _eventual_contents(entry: Row) -> bytes:
    """Return what an entry holds, whichever version of its entity it was written for."""
    return contents_of({name: value for name, value in entry.items() if name != COPIED_VERSION})


class UniqueIndexCheck(EventualIndexCheck):
    """
    The check of the entries of a unique index in other partitions, which reserve values.

    An entry that is missing or wrong is repaired by claiming the value of its entity anew, as a write does. One that
    nobody holds may be that of a write under way: it counts as left behind after an hour, and is deleted only after its
    claim was made void.
    """

    reconciles = False

    def row_claims(self, row: Row) -> Claims:
        """Claim that the entry must be looked at, if its write must have ended long since."""
        return claim_if_old(row, self.schema.name, LONGEST_WRITE)

    async def _compare(
        self, snapshot: EntitySnapshot, noted: ManifestEntry | None, due: ManifestEntry | None, read: ReadRow
    ) -> Sequence[Problem]:
        if isinstance(due, ReservedEntry):
            problem = await self._compare_value(snapshot, due, read, noted=noted == due)
            if problem is not None:
                return [problem]
        if noted is not None and noted != due:
            text = f"its manifest says that it holds {_where(noted)}, which its fields do not say"
            return [Problem(Damage.MANIFEST, self.name, None, text)]
        return ()

    async def _compare_value(
        self, snapshot: EntitySnapshot, due: ReservedEntry, read: ReadRow, *, noted: bool
    ) -> Problem | None:
        row, where = await read(RowAddress.of(due)), _where(due)
        primary = snapshot.row
        own = RowAddress.of_row(self.schema.table_name(), primary)
        found = None if row is None else owner_and_token(row)
        if row is None:
            return Problem(
                Damage.MISSING, self.name, due.row_key, f"nothing reserves its value: there is no row {where}"
            )
        if found is None or entry_name_of(row) != self.name:
            text = f"a row of kind {shown(kind_of(row))} is at {where}, where the row belongs that reserves its value"
            return Problem(Damage.BLOCKED, self.name, due.row_key, text)
        owner, token = found
        if owner != own:
            holder = await find_holder(self.context.db, due.place, [owner])
            if holder is not None:
                text = f"{owner} holds its value: the row {where} reserves it for that entity"
                return Problem(Damage.TAKEN, self.name, due.row_key, text)
            text = f"its value is reserved by the row {where} for {owner}, which does not hold it"
            return Problem(Damage.STALE, self.name, due.row_key, text)
        if not noted:
            text = f"the row {where} reserves its value for it, but its manifest does not say that it holds it"
            return Problem(Damage.MANIFEST, self.name, due.row_key, text)
        if not self.owns(kind_of(row)):
            text = f"the row {where} reserves its value for an entity of another class: it has {describe_kind(row)}"
            return Problem(Damage.STALE, self.name, due.row_key, text)
        claim = manifest_of(primary).get(self.name)
        if isinstance(claim, ReservedEntry) and claim.token != token:
            text = f"the row {where} reserves its value by another claim than that of its manifest"
            return Problem(Damage.STALE, self.name, due.row_key, text)
        return None

    async def _is_orphan(self, row: Row, owner: RowAddress) -> bool:
        """Return whether nobody holds the value of an entry; before a repair, that nobody will by its claim."""
        found = owner_and_token(row)
        if found is None or not await super()._is_orphan(row, owner):
            return False
        place = cast("ReservedEntry", self._noted_as(row)).place
        return not self.context.repair or await find_last_holder(self.context.db, place, *found) is None

    def _noted_as(self, row: Row) -> ManifestEntry:
        return ReservedEntry(*row_keys(row), self.context.kinds.table, "")


def _where(place: ManifestEntry) -> str:
    if isinstance(place, PlacedEntry):
        return f"({place.partition_key!r}, {place.row_key!r}) of table {place.table}"
    return shown(place.to_json())
