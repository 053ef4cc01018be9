"""
Embedded copies: some fields of another entity of the same partition, kept as they are there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...audit.check import AuditedSchema, Check
from ...audit.context import AuditContext
from ...errors import ModelError
from ...models.derivation import Derivation
from ...models.key import Storable
from ...models.manifest import ManifestEntry, SourceEntry
from ...models.schema import Schema
from ...writes.maintainer import Source, undo_entry
from ...writes.plan import Effect
from ..entity_patch import EntityPatch
from .audit import embed_checks
from .effect import FillCopies
from .schema import EmbedSchema

__all__ = ["EmbedMaintainer", "Embedded"]


class Embedded(Derivation):
    """
    Copies of some fields of another entity of the same partition: the department holds its manager's name and address.

    `manager = Embedded(lambda: Employee, {"manager_name": "name"}, department="{name}", id="{manager_id}")` in the body
    of `Department`. When `manager_id` is set the fields are read from that employee; when the employee changes, so do
    they, each in one entity group transaction. An employee that is somewhere embedded cannot be deleted.

    Args:
        model: The other model, or a function that returns it. Its class says `tracked=True`, unless it has indexes.
        fields: For each field of this model that holds a copy, declared `| None` and `field(maintained=True)`, the
            field of the other model that it is a copy of.
        key: The key fields of the other entity: "{field}" of this model, or text. A field that is None embeds nothing.
    """

    instead = "; the copies are in fields of their own"

    def __init__(
        self, model: Callable[[], type[Storable]] | type[Storable], fields: Mapping[str, str], /, **key: str
    ) -> None:
        given: object = fields
        if not isinstance(given, Mapping) or not fields or not key or not all(isinstance(t, str) for t in key.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                'Embedded(...) needs fields and a key, as in Embedded(lambda: Employee, {"manager_name": "name"}, '
                'department="{name}", id="{manager_id}")'
            )
        super().__init__()
        self.model, self.fields, self.key = model, dict(fields), dict(key)

    def bind(self, schema: Schema, annotations: Mapping[str, Any]) -> "EmbedMaintainer":
        """Return what entities of a model embed."""
        del annotations
        for other in schema.derived_as(EmbedSchema).values():
            twice = next((field for field in self.fields if field in other.fields), None)
            if twice is not None:
                raise ModelError(
                    f"{schema.name}.{twice} would hold copies by two Embedded(...); give each fields of its own"
                )
        return EmbedMaintainer(self.name, schema, self.key, model=self.model, fields=self.fields)


class EmbedMaintainer(EmbedSchema, AuditedSchema):
    """What entities of a model embed, kept right by their writes and by those of the other entities."""

    buildable = False

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return 1 for the other entity, unless the entity goes."""
        return int(values is not None)

    def effects(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Take the copies of another entity, if the entity refers to another one now."""
        entry = self.entry(source.values, source.partition_key, source.row_key)
        # An upgrade may have renamed what holds the copies, which the manifest of the other entity names.
        if entry == before and not (entry is not None and source.upgraded):
            return entry, []
        effects: list[Effect] = [] if before is None else undo_entry(self.name, before, source.write)
        return entry, [*effects, *self._fill(entry, source)]

    def rebuild(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        """Take the copies in any case, and let the other entity's manifest say so."""
        entry = self.entry(source.values, source.partition_key, source.row_key)
        effects = self._fill(entry, source)
        if before is not None and before != entry:
            effects += undo_entry(self.name, before, source.write, checked=True)
        return entry, effects

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the checks of the copies, and of what the other entities say of their holders."""
        return embed_checks(context, self)

    def _fill(self, entry: SourceEntry | None, source: Source) -> list[Effect]:
        target, properties = self.target
        address = None if entry is None else entry.row_key
        source.fills.append(FillCopies(source.row_key, address, properties, self.label))
        if entry is None:
            return []
        needed = f"{self.label} is {target.name} {entry.row_key!r} of this partition, which does not exist"
        entries = {entry.holder_name: self.holder_entry(source.row_key)}
        return [EntityPatch(address=entry.row_key, origin=source.write, entries=entries, needed=needed, target=target)]
