"""
What writes do to keep values unique across partitions: an index in other partitions with `unique=True`.

Its entry reserves the value for an entity, and holds nothing but the keys of that entity. It is made before the
transaction that gives the entity its value, and deleted after one that takes the value away; the steps are in
`tableorm.outbox.reservations`. A write that leaves the value alone leaves the entry alone.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import structs

from ...audit.check import Check
from ...audit.context import AuditContext
from ...connection.connection import Connection
from ...errors import EntityExists, TableOrmError, UniqueViolation, shown
from ...models.manifest import ManifestEntry, PlacedEntry, ReservedEntry
from ...models.reserved import ENTITY_TYPE
from ...models.schema import relatives
from ...outbox.reservations import Held, reserve
from ...protocol.codes import Code
from ...stores import Row
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules
from ...writes.plan import PlannedWrite
from .audit import UniqueIndexCheck
from .eventual import EventualIndexMaintainer


class UniqueIndexMaintainer(EventualIndexMaintainer):
    """
    An index in other partitions of which no two entities have the same key.

    Args:
        rows: The schema of its entries.
    """

    entry_type = ReservedEntry
    movable = False

    def current_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Return an entry without the token of its claim, which the values of an entity do not tell."""
        return structs.replace(entry, token="") if isinstance(entry, ReservedEntry) else entry

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """Return the entry that the entity ought to have."""
        return self.rows.entry_row(values, row, entry, entry.token) if isinstance(entry, ReservedEntry) else None

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ReservedEntry | None:
        """Return where the entity's entry is, without the token of its claim. Raises TemplateError."""
        del partition_key, row_key
        return _claim(self.rows.place(values), "")

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note in the manifest where the entry is, and the claim of a new value."""
        claim = _claim(self.rows.place(source.values), source.claim)
        # The row that reserves the value names the class of the entity, which may have been another one.
        converted = source.upgraded and len(relatives(self.schema)) > 1
        if isinstance(before, ReservedEntry) and claim is not None and before.place == claim.place and not converted:
            return before, []
        return claim, []

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Claim the value anew, whatever the manifest says."""
        del before
        return _claim(self.rows.place(source.values), source.claim), []

    def leaves_work(self, before: ManifestEntry | None, after: ManifestEntry | None, source: Source) -> bool:
        """Return whether another value is claimed, or none any more: an entry holds nothing but its keys."""
        del source
        return before != after

    def refuse_claim(self, claim: ReservedEntry, write: PlannedWrite, held: Held | None) -> TableOrmError:
        """Return the error of a write that claims a value which another entity has."""
        change, label = write.origin, self.rows.label
        partition, row = self.rows.templates()
        values = _values(self.rows.primary.decode(dict(write.after or {})).__dict__, (*partition.fields, *row.fields))
        if held is not None and held.holder is None:
            return EntityExists(
                f"{change}: index {label} needs the row ({claim.partition_key!r}, {claim.row_key!r}) of table "
                f"{claim.table}, where a row of kind {shown(held.stored.get(ENTITY_TYPE))} is that belongs to no "
                f"entity of {self.schema.name} within reach; change the keys of the index, or remove that row",
                Code.ENTITY_EXISTS,
                change.subject,
                index=label,
            )
        holder, remedy = "another entity of this transaction", "choose another value, or change that entity first"
        if held is not None and held.holder is not None:
            if self.schema.expiry is not None:  # the reserving row does not say when
                remedy += "; if it has expired, it keeps the value until db.sweep() deletes it"
            holder = f"the entity ({held.holder.partition_key!r}, {held.holder.row_key!r})"
        given = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return UniqueViolation(
            f"{change}: {holder} has {given} already, and index {label} is unique; {remedy}",
            Code.ENTITY_EXISTS,
            change.subject,
            index=label,
            values=values,
        )

    async def reserve(
        self,
        db: Connection,
        claim: ReservedEntry,
        entries: Sequence[ManifestEntry],
        write: PlannedWrite,
        givers: Collection[str],
    ) -> None:
        """Reserve a value. Takes and raises what `Maintainer.reserve` does."""
        assert write.after is not None
        values = self.rows.primary.decode(dict(write.after)).__dict__
        row = self.rows.entry_row(values, write.after, claim, claim.token)
        given_up = {e.token for e in entries if isinstance(e, ReservedEntry) and e.place == claim.place and e != claim}
        held = await reserve(
            db, claim, row, schema=self.schema, given_up=given_up, givers=givers, label=self.rows.label
        )
        if held is not None:
            raise self.refuse_claim(claim, write, held)

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the entries."""
        return (UniqueIndexCheck(context, self.rows),)


@entry_rules(ReservedEntry)
class _ReservedRules(EntryRules[ReservedEntry]):
    """Nothing is undone by a write: its value is released afterwards."""


def _claim(place: PlacedEntry | None, token: str) -> ReservedEntry | None:
    """Return the claim of a value, as the manifest of an entity has it; None if the entity has no such value."""
    return None if place is None else ReservedEntry(place.partition_key, place.row_key, place.table, token)


def _values(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: values.get(name) for name in dict.fromkeys(names)}
