"""
What writes do to the entries of an eventual index, which are in other partitions than their entities.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...audit.check import AuditedSchema, Check
from ...audit.context import AuditContext
from ...keys.template import Template
from ...models.manifest import ManifestEntry, PlacedEntry
from ...writes.maintainer import Source
from ...writes.plan import Effect
from .eventual_schema import EventualIndexSchema

__all__ = ["EventualIndexMaintainer"]


class EventualIndexMaintainer(AuditedSchema):
    """
    An eventual index of a model.

    Args:
        rows: The schema of its entries.
    """

    entry_type = PlacedEntry
    deferred = True

    def __init__(self, rows: EventualIndexSchema) -> None:
        super().__init__(rows.entry_name, rows.primary)
        self.rows, self.building = rows, rows.building
        self.table, self.partition = rows.table, rows.partition

    def row_templates(self) -> Sequence[Template]:
        """Return the template of the entries' RowKeys."""
        return (self.rows.templates()[1],)

    @property
    def row_schema(self) -> EventualIndexSchema:
        """The schema of its entries."""
        return self.rows

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> PlacedEntry | None:
        """Return where the entity's entry is. Raises TemplateError."""
        del partition_key, row_key
        return self.rows.place(values)

    def effects(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Note in the manifest where the entry is."""
        del before
        return self.rows.place(source.values), []

    def rebuild(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Note in the manifest where the entry is."""
        return self.effects(before, source)

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return no checks."""
        del context
        return ()
