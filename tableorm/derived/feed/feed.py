"""
Change feeds: what was changed in a partition, in the order of the commits.

A transaction advances the counter of the feed of its partition, and inserts a row beside it.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
from msgspec import structs

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...errors import DecodeError, ModelError, shown
from ...models.derivation import Derivation
from ...models.manifest import ManifestEntry
from ...models.marker_rows import FEED_KIND
from ...models.placement import declared_models
from ...models.schema import Schema
from ...stores import Operation, Row, Verb
from ...writes.maintainer import EntryAndEffects, Source
from ...writes.patch import Value
from ...writes.plan import Effect, PlannedWrite
from .audit import FeedCheck
from .rows import COUNTER_KEY, Counter, NotedChange, change_key, change_row, counter_of


class FeedEffect(Effect, Value, frozen=True):
    """
    The note of what a transaction changes.

    Args:
        row_key: RowKey of the counter.
        origin: The first write of the transaction that is noted.
        changes: What the transaction does, in the order of its writes.
    """

    row_key: str
    origin: PlannedWrite
    changes: tuple[NotedChange, ...]
    reads = True
    replaces = True
    inserts = 1

    def merge_with(self, other: Effect) -> Effect:
        """Return the note of the changes of both."""
        assert isinstance(other, FeedEffect)
        return structs.replace(self, changes=self.changes + other.changes)

    def operation(self, stored: Row | None, token: str) -> Operation:
        """Return the write that advances the counter, under the ETag that was read. Raises DecodeError."""
        counter = _advance(stored, token)
        row = counter.to_row(self._partition_key, token)
        return Operation(Verb.INSERT, row) if stored is None else Operation(Verb.REPLACE, row, counter.etag)

    def further_operations(self, stored: Row | None, token: str) -> list[Operation]:
        """Return the insert of the change. Raises DecodeError."""
        row = change_row(self._partition_key, _advance(stored, token), self.changes, token)
        return [Operation(Verb.INSERT, row)]

    def survives_conflict(self, row_key: str) -> bool:
        """Return whether it is the row of the change, and not the counter."""
        return row_key != self.row_key

    def check_survivor(self, row_key: str, stored: Row | None) -> None:
        """Refuse to go on if the counter does not count a change that is there. Raises DecodeError."""
        last = 0 if stored is None else counter_of(stored).last
        if change_key(last) < row_key:
            raise DecodeError(
                f"counts {last} changes of the change feed, which has the row {row_key!r}; another program has changed "
                "it: repair it with `tableorm audit --repair`",
                FEED_KIND,
                (self._partition_key, COUNTER_KEY),
            )

    def apply_to(self, write: PlannedWrite) -> PlannedWrite:
        """Refuse a write of the counter itself, by a bag. Raises ModelError."""
        raise ModelError(
            f"{write.change} is rejected: the row counts the changes of the partition, and the same transaction writes "
            f"entities that have a change feed, as {self.origin.change}; write it in a transaction of its own"
        )

    @property
    def _partition_key(self) -> str:
        return self.origin.change.partition_key


_VERBS = {Verb.INSERT: "insert", Verb.DELETE: "delete"}


def _advance(stored: Row | None, token: str) -> Counter:
    """Return the counter with the next change. A feed is told by the token of the transaction that begins it."""
    counter = Counter(feed=token) if stored is None else counter_of(stored)
    return attrs.evolve(counter, last=counter.last + 1)


def note_write(write: PlannedWrite) -> FeedEffect:
    """Return the note of a write of an entity."""
    change, operation = write.change, write.operation
    kind = "" if change.schema is None else str(change.schema.kind)
    noted = NotedChange(_VERBS.get(operation.verb, "update"), kind, operation.row["RowKey"])
    return FeedEffect(COUNTER_KEY, write, (noted,))


_SHORTEST = dt.timedelta(hours=1)  # far longer than a request lives, which a change of the feed may have to prove


class Feed(Derivation):
    """
    A change feed, declared in the body of the class.

        class Employee(Entity, ...):
            changes = Feed(keep=dt.timedelta(days=7))

    Every transaction that writes entities also records their keys, their kinds and what it did, under the next number
    of its partition. `db.changes(Employee, department="Sales")` reads the changes in that order, without gaps.

    All models of a partition that declare a feed share it. Each transaction has two more rows, and all writers of a
    partition compete for one of them: the losers of a race read the number again.

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
