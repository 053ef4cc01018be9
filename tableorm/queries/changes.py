"""
Changes: what the change feed of a partition says, in order and without a gap.

The counter is read first: every change up to the one that it counts last was committed before, so each of them is found
unless it was trimmed since, however many are committed meanwhile.
"""

import datetime as dt
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import attrs

from ..connection.connection import Connection
from ..connection.rows import time_of
from ..derived.feed.feed import feed_of
from ..derived.feed.rows import Counter, change_key, parse_change, read_changes, read_counter
from ..errors import CursorError, DecodeError, ModelError, TemplateError, near, shown
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.marker_rows import CHANGE_KIND
from ..models.placement import declared_models
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..protocol.key_range import KeyRange
from ..protocol.limits import MAX_PAGE
from ..stores import Row, row_keys
from .misuse import not_a_plain_stream
from .polling import PollPause

_read_cursor = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9]{1,15})").fullmatch


@attrs.frozen(kw_only=True)
class ChangedEntity:
    """
    What a transaction did to an entity.

    Args:
        key: The key of the entity. Its model is `PropertyBag` if the program has no model of this kind.
        kind: The kind of the entity.
        verb: "insert", "update" or "delete": what happened to the row, whichever method was called.
    """

    key: Key[Any]
    kind: str
    verb: str


@attrs.frozen(kw_only=True)
class CommittedChange:
    """
    What a transaction changed in a partition.

    Args:
        number: Its number in the partition, one more than that of the change before it.
        time: When it was committed, by the service's clock. Don't rely on it for the order.
        entities: The entities that it wrote.
        cursor: Where to resume after it: `db.changes(..., after=cursor)`.
    """

    number: int
    time: dt.datetime
    entities: tuple[ChangedEntity, ...]
    cursor: str


@not_a_plain_stream
class ChangeStream:
    """
    The changes of a partition, made by `db.changes`. `async for` returns those that were committed before it starts.

    Args:
        db: Where the partition is.
        schema: A model of the partition that has a change feed.
        partition_key: The PartitionKey.
        after: The cursor to start after; None for the oldest change that is kept.
    """

    def __init__(self, db: Connection, schema: Schema, partition_key: str, after: str | None) -> None:
        self._db, self._table, self._partition_key = db, schema.table_name(), partition_key
        self._what = f"changes({schema.name}) of partition {partition_key!r}"
        known = [each for each in declared_models(schema) if each.table_text().lower() == self._table.lower()]
        self._models: Mapping[str, type[Any]] = {str(each.kind): each.model for each in known}
        self._begin = None if after is None else self._parse(after)

    def __repr__(self) -> str:
        return f"<{self._what}>"

    def __aiter__(self) -> AsyncIterator[CommittedChange]:
        return self._read(self._begin)

    async def end(self) -> str | None:
        """
        Return the cursor after the newest change, or None if there are no changes yet.

            cursor = await db.changes(Employee, department="Sales").end()

        To keep a copy of a partition, get this cursor first, then read the entities, and then the changes after it.

        Raises:
            DecodeError: The row that counts the changes is damaged.
            TableNotFound: There is no such table.
        """
        counter = await read_counter(self._db, self._table, self._partition_key)
        return None if counter is None else _cursor(counter.feed, counter.last)

    async def follow(self, *, pause: dt.timedelta = dt.timedelta(seconds=5)) -> AsyncGenerator[CommittedChange, None]:
        """
        Yield the changes so far, and then new ones as they come, until you stop iterating.

            async for change in db.changes(Employee, department="Sales").follow():
                print(change.entities)

        Args:
            pause: The longest pause between two polls; it's shorter while changes keep coming.

        Raises:
            ModelError: `pause` is not a valid duration.
            CursorError: The changes after the cursor were trimmed; this can also happen while following.
            DecodeError: A row of the feed is damaged or missing.
        """
        if not isinstance(cast("object", pause), dt.timedelta) or pause <= dt.timedelta(0):
            raise ModelError(f"{self._what}: follow(pause={shown(pause)}) is rejected: give a timedelta above 0")
        position, pauses = self._begin, PollPause(pause.total_seconds())
        while True:
            found = False
            if position is None:
                counter = await self._read_counter(None)
                position = None if counter is None else (counter.feed, counter.trimmed)
            async for change in self._read(position):
                position, found = self._parse(change.cursor), True
                yield change
            await pauses.wait(found=found)

    async def _read(self, position: tuple[str, int] | None) -> AsyncGenerator[CommittedChange, None]:
        """Yield the changes from behind a position to the newest one that there is now."""
        counter = await self._read_counter(position)
        if counter is None:
            return
        number = counter.trimmed if position is None else position[1]
        while number < counter.last:
            last = min(counter.last, number + MAX_PAGE)
            rows = await read_changes(self._db, self._table, self._partition_key, number + 1, last, _whole)
            while number < last and number + 1 in rows:
                number += 1
                try:
                    change = self._change_of(counter.feed, number, rows[number])
                except DecodeError as error:
                    error.cursor = _cursor(counter.feed, number)
                    raise
                position = counter.feed, number
                yield change
            if number < last:
                again = await self._read_counter(position)
                if again is None or again.trimmed <= number:
                    raise DecodeError(
                        f"is missing in the change feed of table {self._table}: another program has deleted it; run "
                        "`tableorm audit --repair`, which trims the feed up to this change",
                        CHANGE_KIND,
                        (self._partition_key, change_key(number + 1)),
                    )
                number = again.trimmed  # nothing was given yet, and no cursor asks for what was trimmed

    async def _read_counter(self, position: tuple[str, int] | None) -> Counter | None:
        """Read the counter. Raises CursorError if the feed does not go on from a position."""
        counter = await read_counter(self._db, self._table, self._partition_key)
        if position is None:
            return counter
        feed, number = position
        cursor = f"{self._what}: the cursor {_cursor(feed, number)!r}"
        if counter is None or counter.feed != feed or number > counter.last:
            raise CursorError(
                f"{cursor} belongs to another change feed, or the table was dropped since; call end(), read the "
                f"entities, then continue from the cursor that end() returned"
            )
        if number < counter.trimmed:
            raise CursorError(
                f"{cursor} is too old: the changes up to {counter.trimmed} were trimmed; call end(), read the "
                f"entities, then continue from the cursor that end() returned"
            )
        return counter

    def _parse(self, cursor: str) -> tuple[str, int]:
        found = _read_cursor(cursor) if isinstance(cast("object", cursor), str) else None
        if found is None:
            raise CursorError(f"{self._what}: {shown(cursor, 40)} is not a cursor; pass change.cursor unchanged")
        return found[1], int(found[2])

    def _change_of(self, feed: str, number: int, row: Row) -> CommittedChange:
        own, noted = parse_change(row)
        if own != feed:
            raise DecodeError("belongs to another change feed", CHANGE_KIND, row_keys(row))
        table, partition_key = self._table, self._partition_key
        return CommittedChange(
            number=number,
            time=time_of(row, CHANGE_KIND),
            entities=tuple(
                ChangedEntity(
                    key=Key(self._models.get(each.kind, PropertyBag), table, partition_key, each.row_key),
                    kind=each.kind,
                    verb=each.verb,
                )
                for each in noted
            ),
            cursor=_cursor(feed, number),
        )


def _whole(row: Row) -> Row:
    return row


def _cursor(feed: str, number: int) -> str:
    return f"{feed}.{number}"


def open_changes(db: Connection, model: type[Entity], after: str | None, fields: dict[str, Any]) -> ChangeStream:
    """
    Return the changes of a partition; see `Database.changes`.
    """
    schema = schema_of(model)
    what = f"changes({schema.name})"
    if schema.abstract:
        raise ModelError(f"{what} is rejected: the model is abstract; name one of its concrete classes")
    if feed_of(schema) is None:
        raise ModelError(
            f"{what} is rejected: the model has no change feed; declare one: changes = Feed(keep=timedelta(days=7))"
        )
    partition, _ = schema.templates()
    names = frozenset(partition.fields)
    fields = db.boundary.fill_key(schema, fields, names)
    for name in fields.keys() - names:
        raise TemplateError(
            f"has no field {name!r}; {near(name, names, 'field')}",
            schema.name,
            "partition_key",
            partition.text,
        )
    missing = names - fields.keys()
    if missing:
        raise TemplateError(
            f"needs {', '.join(sorted(missing))}, because each partition has a separate change feed",
            schema.name,
            "partition_key",
            partition.text,
        )
    key = partition.format(fields)
    db.boundary.check_range(what, schema, fields, fields, KeyRange(start_partition=key, end_partition=key))
    db.used_models.add(schema)
    return ChangeStream(db, schema, key, after)
