"""
What writes do to the entries of an index of the elements of a list, of which an entity has one for each element.

Entries of elements that stay are written only if what they hold has changed.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ...errors import LimitExceeded
from ...models.manifest import EachEntry, ManifestEntry
from ...models.write_tokens import with_tokens_of
from ...protocol.codes import Code
from ...protocol.limits import MAX_TRANSACTION_OPERATIONS
from ...stores import Row
from ...writes.maintainer import Source, is_proven, undo_entry
from ...writes.plan import Effect
from .effect import IndexEntryEffect, IndexMaintainer

__all__ = ["EachIndexMaintainer"]


class EachIndexMaintainer(IndexMaintainer):
    """An index of a model that has an entry for each element of a list."""

    entry_type = EachEntry

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return how many entries an entity with these fields has."""
        if values is None:
            return MAX_TRANSACTION_OPERATIONS - 2
        return len(self._elements(values)) if super().own_rows(values) else 0

    def _elements(self, values: Mapping[str, Any]) -> list[Any]:
        assert self.rows.each is not None
        return values.get(self.rows.each.name) or []

    def holds_all(self, given: AbstractSet[str]) -> bool:
        """Return whether an element is given, and entries of all such entities tell the rest."""
        return self.rows.each is not None and self.rows.each.name in given and super().holds_all(given)

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> EachEntry | None:
        """Return the RowKeys of the entity's entries. Raises TemplateError."""
        del partition_key, row_key
        return _entry_of(self.rows.addresses(values))

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """Return the first of the entries that the entity ought to have; the others differ in their RowKeys."""
        return self.rows.entry_row(values, row, entry.entry_keys[0]) if isinstance(entry, EachEntry) else None

    def effects(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Write the entries of elements that came, or all if what they hold changes; delete those of others."""
        due = self.rows.addresses(source.values)
        noted = frozenset(() if before is None else before.entry_keys)
        refreshes = bool(noted) and self.rows.concerns(source.changed)
        written = [key for key in due if refreshes or key not in noted]
        gone = sorted(noted.difference(due))
        reads = False
        if before is not None and (gone or refreshes):
            reads = not (self._is_told(source) or is_proven(before, source.write))
        effects = self._writes(due, written, noted, source, reads=reads)
        effects += [IndexEntryEffect(self.rows, key, source.write, existed=True, reads=reads) for key in gone]
        self._refuse_many(source, due, len(effects), len(gone))
        entry = _entry_of(due)
        return before if entry == before else entry, effects

    def rebuild(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Write the entries, after reading those that the manifest names; delete what it names wrongly."""
        due = self.rows.addresses(source.values)
        noted = frozenset(before.entry_keys if isinstance(before, EachEntry) else ())
        effects = self._writes(due, [*due], noted, source, reads=True)
        left = EachEntry(tuple(sorted(noted.difference(due)))) if noted else before
        if left is not None:
            effects += undo_entry(self.name, left, source.write, checked=True)
        self._refuse_many(source, due, len(effects), len(effects) - len(due))
        return _entry_of(due), effects

    def _writes(
        self, due: Mapping[str, Any], written: Sequence[str], noted: AbstractSet[str], source: Source, *, reads: bool
    ) -> list[Effect]:
        """Return the effects that write some of the entries; `reads` says it of those that the manifest names."""
        if not written:
            return []
        rows, write, values = self.rows, source.write, source.values
        assert rows.each is not None
        row = with_tokens_of(rows.entry_row(values, source.row, written[0]), source.row)
        return [
            IndexEntryEffect(
                rows,
                key,
                write,
                existed=key in noted,
                row={**row, "RowKey": key},
                values={**values, rows.each.name: due[key]},
                reads=reads and key in noted,
                canonical=write.operation.canonical,
            )
            for key in written
        ]

    def _refuse_many(self, source: Source, due: Mapping[str, Any], count: int, gone: int) -> None:
        """Refuse a write of more entries than a transaction has room for. Raises LimitExceeded."""
        if count < MAX_TRANSACTION_OPERATIONS:
            return
        name = "" if self.rows.each is None else self.rows.each.name
        raise LimitExceeded(
            f"{source.write.origin}: {name} has {len(due)} elements, so that {count - gone} entries of index "
            f"{self.rows.label} would be written and {gone} deleted, in one transaction of "
            f"{MAX_TRANSACTION_OPERATIONS} operations with the entity; change fewer elements at a time, or store an "
            "entity for each of them instead of a list",
            Code.INVALID_INPUT,
            model=self.schema.name,
            field=name,
            limit=MAX_TRANSACTION_OPERATIONS,
            size=count + 1,
        )


def _entry_of(due: Mapping[str, Any]) -> EachEntry | None:
    return EachEntry(tuple(due)) if due else None
