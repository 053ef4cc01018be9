"""
What a transaction does to the change feed of its partition: it advances the counter, and inserts a row beside it.
"""

import attrs
from msgspec import structs

from ...errors import DecodeError, ModelError
from ...models.marker_rows import FEED_KIND
from ...stores import Operation, Row, Verb
from ...writes.patch import Value
from ...writes.plan import Effect, PlannedWrite
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
