"""
Change feeds: what was changed in a partition, in the order of the commits.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...errors import ModelError, shown
from ...models.derivation import Derivation
from ...models.manifest import ManifestEntry
from ...models.placement import declared_models
from ...models.schema import Schema
from ...writes.maintainer import EntryAndEffects, Source
from ...writes.plan import Effect, PlannedWrite
from .audit import FeedCheck
from .effect import note_write

_SHORTEST = dt.timedelta(hours=1)  # far longer than a request lives, which a change of the feed may have to prove


class Feed(Derivation):
    """
    A change feed, declared in the body of the class.

        class Employee(Entity, ...):
            changes = Feed(keep=dt.timedelta(days=7))

    Every transaction that writes entities also records their keys, their kinds and what it did, under the next number
    of its partition. `db.changes(Employee, department="Sales")` reads the changes in that order, without gaps.

    All models of a partition that declare a feed share it. Each transaction has two more rows, and all writers of a
    partition compete for one of them: whoever loses the race reads the number again.

    Args:
        keep: How long to keep changes at least, before `db.sweep` deletes them: an hour or more, and the same in every
            feed of the table.

    Raises:
        ModelError: `keep` is not a valid duration; or, when the class is created, the feed does not fit the model.
    """

    _instead = "; db.changes(...) reads it"

    def __init__(self, *, keep: dt.timedelta) -> None:
        super().__init__()
        if not isinstance(cast("object", keep), dt.timedelta) or keep < _SHORTEST:
            raise ModelError(f"Feed(keep={shown(keep)}) is rejected: give a timedelta of an hour or longer")
        self.keep = keep

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> "FeedMaintainer":
        """Return the change feed of a model."""
        return FeedMaintainer(self.name, schema, self.keep)


class FeedMaintainer(AuditedMaintainer):
    """
    The change feed of a model, to which its entities' writes are added.

    Args:
        name: Name of the declaration.
        schema: The schema of the model.
        keep: How long changes are kept at least.
    """

    entry_type = ManifestEntry  # no manifest notes it
    buildable = False
    is_feed = True
    rows_per_chunk = 2

    def __init__(self, name: str, schema: Schema, keep: dt.timedelta) -> None:
        super().__init__(name, schema)
        self.keep = keep
        other = next(iter(schema.derived_as(FeedMaintainer)), None)
        if other is not None:
            raise ModelError(
                f"{self.label}: {schema.name} has the change feed {other!r} already; leave one of them out"
            )
        if schema.maintained:
            kept = schema.maintained[0].name
            raise ModelError(
                f"{self.label}: other entities keep {schema.name}.{kept}, and a change feed does not note what they "
                "write; leave out the feed, or keep the field in a model without one"
            )
        if "after" in schema.key_names:
            raise ModelError(
                f"{self.label}: {schema.name}.after is part of the key, and db.changes has an option 'after'; call the "
                "field otherwise"
            )

    def describe(self) -> dict[str, Any]:
        """Return what was declared, as JSON has it. How long changes are kept may differ between programs."""
        return {"pattern": "Feed"}

    def check(self) -> None:
        """Refuse to keep changes for another time than another feed of the table. Raises ModelError."""
        for model in declared_models(self.schema):
            for other in model.derived_as(FeedMaintainer).values():
                if str(model.table).lower() == str(self.table).lower() and other.keep != self.keep:
                    raise ModelError(
                        f"{self.label} is kept for {self.keep}, and {other.label} of the same table for {other.keep}: "
                        "they may share partitions; give both the same time"
                    )

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> None:
        """Return None: the manifest does not say it, since it follows from the write alone."""

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note the write."""
        return None, [note_write(source.write)]

    def effects_of_delete(self, write: PlannedWrite) -> list[Effect]:
        """Note the delete."""
        return [note_write(write)]

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note nothing: the entity stays as it is."""
        return None, []

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the feeds of the table."""
        return (FeedCheck(context, self.schema, self.name),)


def feed_of(schema: Schema) -> FeedMaintainer | None:
    """Return the change feed of a model; None if it has none."""
    return next(iter(schema.derived_as(FeedMaintainer).values()), None)
