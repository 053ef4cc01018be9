"""
The effects of embedded copies: an entity takes the fields of another one, and the other one's manifest says so.
"""

from collections.abc import Mapping

from ...errors import Conflict, NotSupported, ReferenceNotFound
from ...models.manifest import HolderEntry, ManifestEntry, SourceEntry
from ...protocol.codes import Code
from ...protocol.edm import ANNOTATION
from ...stores import Row
from ...writes.maintainer import EntryRules, Fill, Source, entry_rules
from ...writes.plan import Change, Effect, PlannedWrite
from ..entity_patch import EntityPatch
from .schema import find_embed

__all__ = ["FillCopies", "copies_of"]


class FillCopies(Fill, frozen=True, eq=False, gc=False):
    """
    The copies that an entity has to hold of another one.

    Args:
        properties: By property of the entity the property of the other one.
        label: The declaration, for messages.
    """

    properties: Mapping[str, str]
    label: str

    def apply_to(self, write: PlannedWrite, source: Row | None) -> PlannedWrite:
        """Return the write with the copies; without any if the entity refers to none."""
        if source is None and self.source is not None:
            raise ReferenceNotFound(
                f"{write.origin}: {self.label} refers to {self.source!r} of this partition, which does not exist",
                Code.RESOURCE_NOT_FOUND,
                (write.change.partition_key, self.source),
            )
        members = copies_of({theirs: mine for mine, theirs in self.properties.items()}, source or {})
        return EntityPatch(address=self.row_key, origin=write, members=members).apply_to(write)


def copies_of(properties: Mapping[str, str], row: Row) -> Row:
    """
    Return the members that hold copies of a row; None for what the row does not have.

    Args:
        properties: By property of the row the property that is its copy.
        row: The row.
    """
    return {copy + end: row.get(name + end) for name, copy in properties.items() for end in ("", ANNOTATION)}


@entry_rules(SourceEntry)
class _SourceRules(EntryRules[SourceEntry]):
    def undo(self, name: str, entry: SourceEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Let the other entity's manifest forget the holder."""
        del name, checked
        return [EntityPatch(address=entry.row_key, origin=write, entries={entry.holder_name: None})]


@entry_rules(HolderEntry)
class _HolderRules(EntryRules[HolderEntry]):
    def undo(self, name: str, entry: HolderEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Do nothing: only the holder takes it back, and until then a delete is refused."""
        del name, entry, write, checked
        return []

    def follow(self, name: str, entry: HolderEntry, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Change the copies that the holder has of properties that change."""
        schema = source.write.change.schema
        assert schema is not None
        holder, properties = entry.row_key, entry.properties
        if source.upgraded and not all(mine in schema.by_property for mine in properties):
            embed = find_embed(schema, name)
            if embed is None:
                raise NotSupported(
                    f"{source.write.change}: the entity {holder!r} of this partition holds copies of it "
                    f"({name.partition(':')[0]}), and what they are called after the upgrade to version "
                    f"{schema.version} only that one's model says; import it, with Embedded as it is now"
                )
            # The holder may be of an older version as well, and is upgraded then.
            entry = embed.holder_entry(holder)
            members = copies_of(entry.properties, source.row)
            return entry, [EntityPatch(address=holder, origin=source.write, members=members, target=embed.schema)]
        members = copies_of({mine: copy for mine, copy in properties.items() if mine in source.changed}, source.row)
        return entry, [EntityPatch(address=holder, origin=source.write, members=members)] if members else []

    def refuse_delete(self, name: str, entry: HolderEntry, change: Change) -> None:
        """Refuse to delete an entity that others hold copies of."""
        raise Conflict(
            f"{change}: the entity {entry.row_key!r} of this partition holds copies of it "
            f"({name.partition(':')[0]}); let that refer to another one first, or in the same transaction",
            None,
            change.subject,
        )
