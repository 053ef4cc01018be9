"""
What writes do to the entries of an index of the elements of a list, of which an entity has one for each element.

Entries of elements that stay are written only if what they hold has changed.
"""

from collections.abc import Mapping
from typing import Any

from ...errors import LimitExceeded
from ...models.manifest import EachEntry, ManifestEntry
from ...models.write_tokens import with_tokens_of
from ...protocol.codes import Code
from ...protocol.limits import MAX_TRANSACTION_OPERATIONS
from ...stores import Row
from ...writes.maintainer import EntryAndEffects, Source, is_proven, undo_entry
from ...writes.plan import Effect
from .effect import IndexEntryEffect, IndexMaintainer

__all__ = ["EachIndexMaintainer"]

_USUAL = 9


class EachIndexMaintainer(IndexMaintainer):
    """An index of a model that has an entry for each element of a list."""

    entry_type = EachEntry

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return how many entries an entity with these fields has, or how many it may have if they are not known."""
        return _USUAL if values is None else len(values.get(self._list) or ())  # what has no room is sent in parts

    @property
    def _list(self) -> str:
        return str(self.rows.templates()[1].each)

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> EachEntry | None:
        """Return the RowKeys of the entity's entries. Raises TemplateError."""
        del partition_key, row_key
        return _entry_of(self.rows.addresses(values))

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """Return the first of the entries that the entity ought to have; the others differ in their RowKeys."""
        return self.rows.entry_row(values, row, entry.entry_keys[0]) if isinstance(entry, EachEntry) else None

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Write the entries of elements that came, or all if what they hold changes; delete those of others."""
        return self._derive(before, source, checked=False)

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Write all entries, after reading those that the manifest names; delete what it names wrongly."""
        entry, effects = self._derive(before, source, checked=True)
        if before is not None and not isinstance(before, EachEntry):
            effects += undo_entry(self.name, before, source.write, checked=True)
        return entry, effects

    def _derive(self, before: ManifestEntry | None, source: Source, *, checked: bool) -> EntryAndEffects:
        rows, write, values = self.rows, source.write, source.values
        due = rows.addresses(values)
        noted = frozenset(before.entry_keys if isinstance(before, EachEntry) else ())
        rewrites = checked or (bool(noted) and rows.concerns(source.changed))
        written = [key for key in due if rewrites or key not in noted]
        gone = sorted(noted.difference(due))
        reads = checked
        if before is not None and (gone or rewrites) and not checked:
            reads = not (self._is_told(source) or is_proven(before, write))
        self._refuse_many(source, len(due), len(written), len(gone))
        effects: list[Effect] = [IndexEntryEffect(rows, key, write, existed=True, reads=reads) for key in gone]
        row = with_tokens_of(rows.entry_row(values, source.row, written[0]), source.row) if written else {}
        for key in written:
            there, own = key in noted, {**values, self._list: due[key]}
            canonical = write.operation.canonical
            effects.append(
                IndexEntryEffect(
                    rows, key, write, there, {**row, "RowKey": key}, own, reads=reads and there, canonical=canonical
                )
            )
        entry = _entry_of(due)
        return before if entry == before else entry, effects

    def _refuse_many(self, source: Source, elements: int, written: int, gone: int) -> None:
        """Refuse a write of more entries than a transaction has room for. Raises LimitExceeded."""
        size, limit = written + gone + 1, MAX_TRANSACTION_OPERATIONS
        if size <= limit:
            return
        raise LimitExceeded(
            f"{source.write.origin}: {self._list} has {elements} elements, so that {written} entries of index "
            f"{self.label} would be written and {gone} deleted, in one transaction of {limit} operations with the "
            "entity; change fewer elements at a time, or store an entity for each of them instead of a list",
            Code.INVALID_INPUT,
            model=self.schema.name,
            field=self._list,
            limit=limit,
            size=size,
        )


def _entry_of(due: Mapping[str, Any]) -> EachEntry | None:
    return EachEntry(tuple(due)) if due else None
