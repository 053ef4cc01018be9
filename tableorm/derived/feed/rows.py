"""
The rows of a change feed, read and trimmed: one for each transaction of the partition, under its number, and one that
counts them.

    ~f_000000000000041  #_change   Feed, Changes: [["update", "Employee", "empid_000010"]]
    ~f_000000000000042  #_change
    ~f_counter          #_feed     Feed, Last: 42, Trimmed: 40

Each transaction reads the counter, writes it under the ETag that it has read, and inserts a row with the next number.
So the numbers are without a gap, and in the order in which the transactions were committed; no clock is asked. What is
trimmed is deleted by the transaction that notes it in the counter, so that there is exactly one row for each number
from the one behind `Trimmed` to `Last`. `Feed` is drawn when the first change is noted: it tells a feed from one that
was there before, in a table that was dropped.

So a reader that asks for what was trimmed is told; and whoever trims at the same time, or has died, leaves nothing to
do but what is still there.
"""

import datetime as dt
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, TypeVar

import attrs
import msgspec

from ...connection.connection import Connection
from ...connection.races import Attempts
from ...connection.rows import read_row, time_of, write_as_read
from ...errors import DecodeError, shown
from ...jobs.scan import pages
from ...keys.ranges import KeyRegion
from ...models.marker_rows import CHANGE_KIND, FEED_HEAD, FEED_KIND
from ...models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ...models.write_tokens import new_token, tokens_of, with_token
from ...protocol.edm import ANNOTATION, Edm
from ...protocol.limits import MAX_ENTITY_BYTES, MAX_TRANSACTION_OPERATIONS, MAX_VALUE_BYTES
from ...stores import Bounds, Operation, Row, RowAddress, Verb, row_keys, utc_now
from ...writes.bulk.pacing import Pace

COUNTER_KEY = f"{FEED_HEAD}counter"
"""RowKey of the row that counts the changes of a partition."""

_DIGITS = 15

MOST_CHANGES = 10**_DIGITS - 1
"""The largest number that the key of a change can have."""

MOST_COUNTED = 10 ** (_DIGITS - 1)
"""The number up to which changes are counted: three million years, at one a second. A larger one was made up."""

_FEED, _CHANGES, _LAST, _TRIMMED = "Feed", "Changes", "Last", "Trimmed"
_PIECE = MAX_VALUE_BYTES // 4  # characters of a property, of which each is at most four bytes


class NotedChange(NamedTuple):
    """
    What a transaction has done to an entity.

    Args:
        verb: "insert", "update" or "delete".
        kind: The kind of the entity.
        row_key: Its RowKey.
    """

    verb: str
    kind: str
    row_key: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[Literal["insert", "update", "delete"], str, str]]).decode
_match_feed = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch  # what a cursor can hold


def _is_feed(value: object) -> bool:
    return isinstance(value, str) and _match_feed(value) is not None


@attrs.frozen(kw_only=True)
class Counter:
    """
    How far the change feed of a partition is.

    Args:
        feed: What tells it from other feeds.
        last: The number of the newest change; 0 if there is none.
        trimmed: The number up to which the rows are deleted.
        tokens: The tokens of the last writes of its row.
        etag: The ETag of its row; None if it is not stored yet.
    """

    feed: str
    last: int = 0
    trimmed: int = 0
    tokens: Sequence[str] = ()
    etag: str | None = None

    def to_row(self, partition_key: str, token: str) -> Row:
        """Return the row that a write with this token stores."""
        return {
            "PartitionKey": partition_key,
            "RowKey": COUNTER_KEY,
            ENTITY_TYPE: FEED_KIND,
            WRITE_TOKENS: with_token(self.tokens, token),
            _FEED: self.feed,
            **_long(_LAST, self.last),
            **_long(_TRIMMED, self.trimmed),
        }


def _long(name: str, value: int) -> Row:
    return {name: str(value), name + ANNOTATION: Edm.INT64.value}


def counter_of(row: Row) -> Counter:
    """
    Return what the row says that counts the changes of a partition.

    Raises:
        DecodeError: It says what no program writes.
    """
    try:
        counter = Counter(
            feed=row[_FEED],
            last=int(row[_LAST]),
            trimmed=int(row[_TRIMMED]),
            tokens=tokens_of(row),
            etag=row["odata.etag"],
        )
    except (KeyError, ValueError, TypeError):
        counter = Counter(feed="", last=-1)
    sound = _is_feed(counter.feed) and 0 <= counter.trimmed <= counter.last < MOST_COUNTED
    if row.get(ENTITY_TYPE) != FEED_KIND or not sound:
        raise DecodeError(
            f"is not the counter of a change feed ({_LAST} is {shown(row.get(_LAST))}, {_TRIMMED} is "
            f"{shown(row.get(_TRIMMED))}); another program has written it: repair it with `tableorm audit --repair`",
            FEED_KIND,
            row_keys(row),
        )
    return counter


def change_key(number: int) -> str:
    """Return the RowKey of the change with a number."""
    return f"{FEED_HEAD}{number:0{_DIGITS}d}"


def number_of(row_key: str) -> int | None:
    """Return the number of the change with a RowKey; None if that is none."""
    digits = row_key.removeprefix(FEED_HEAD)
    told = len(digits) == _DIGITS and digits.isascii() and digits.isdigit() and row_key == change_key(int(digits))
    return int(digits) if told else None


def change_row(partition_key: str, counter: Counter, changes: Sequence[NotedChange], token: str) -> Row:
    """
    Return the row of the change that a counter counts last.

    Args:
        partition_key: The partition.
        counter: The counter, as the same transaction writes it.
        changes: What the transaction does.
        token: Its write token.
    """
    text = _encode(changes).decode()
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return {
        "PartitionKey": partition_key,
        "RowKey": change_key(counter.last),
        ENTITY_TYPE: CHANGE_KIND,
        WRITE_TOKENS: token,
        _FEED: counter.feed,
        **{_piece_name(number): piece for number, piece in enumerate(pieces)},
    }


def _piece_name(number: int) -> str:
    return f"{_CHANGES}{number or ''}"


def parse_change(row: Row) -> tuple[str, list[NotedChange]]:
    """
    Return what the row of a change says: what tells the feed, and the changes.

    Raises:
        DecodeError: It says what no program writes.
    """
    names = [_piece_name(number) for number in range(len(row)) if _piece_name(number) in row]
    pieces: list[Any] = [row[name] for name in names]
    feed = row.get(_FEED)
    try:
        short = sum(map(len, pieces)) <= MAX_ENTITY_BYTES // 2  # longer JSON would become very many objects
        if row.get(ENTITY_TYPE) == CHANGE_KIND and isinstance(feed, str) and _is_feed(feed) and short:
            return feed, [NotedChange(*each) for each in _decode("".join(pieces))]
    except (msgspec.DecodeError, TypeError):
        pass
    raise DecodeError(
        f"is not a change of a change feed ({_CHANGES} is {shown(row.get(_CHANGES))}); another program has written it: "
        "delete it, and repair the feed with `tableorm audit --repair`",
        CHANGE_KIND,
        row_keys(row),
    )


T = TypeVar("T")


async def read_counter(db: Connection, table: str, partition_key: str) -> Counter | None:
    """Read the counter of the change feed of a partition; None if nothing was noted there. Raises DecodeError."""
    row = await read_row(db, RowAddress(table, partition_key, COUNTER_KEY), name=FEED_KIND)
    return None if row is None else counter_of(row)


async def read_changes(
    db: Connection, table: str, partition_key: str, first: int, last: int, take: Callable[[Row], T]
) -> dict[int, T]:
    """
    Read the rows of the changes from one number to another.

    Args:
        db: Where they are.
        table: The table.
        partition_key: The partition.
        first: The first number.
        last: The last number.
        take: Returns what is kept of a row, since rows may be many and large.

    Returns:
        What is kept, by number.
    """
    if last < first:
        return {}
    region, found = KeyRegion(Bounds.only(partition_key), Bounds(change_key(first), change_key(last))), dict[int, T]()
    async with aclosing(pages(db, table, None, [region], None, "changes")) as all_pages:
        async for rows in all_pages:
            found |= {number: take(row) for row in rows if (number := number_of(row["RowKey"])) is not None}
    return found


_MOST = MAX_TRANSACTION_OPERATIONS - 1  # changes that a transaction deletes beside the write of the counter


def trimming(partition_key: str, counter: Counter, row_keys: Sequence[str]) -> list[Operation]:
    """
    Return the transaction that stores a counter, which was read under its ETag, and deletes rows that are trimmed.

    Args:
        partition_key: The partition.
        counter: The counter as it will be.
        row_keys: RowKeys of the rows.
    """
    row = counter.to_row(partition_key, new_token())
    verb = Verb.INSERT if counter.etag is None else Verb.REPLACE
    return [Operation(verb, row, counter.etag), *(deletion(partition_key, each) for each in row_keys)]


def deletion(partition_key: str, row_key: str) -> Operation:
    """Return the delete of the row of a change."""
    return Operation(Verb.DELETE, {"PartitionKey": partition_key, "RowKey": row_key}, "*")


async def trim_feed(
    db: Connection, table: str, partition_key: str, keep: dt.timedelta, pace: Pace | None = None
) -> int:
    """
    Delete what is older than `keep` of the change feed of a partition, from the oldest change on, as far as a
    transaction has room for it. Return how many changes these were: none if nothing is left to do.

    Args:
        db: Where it is.
        table: The table.
        partition_key: The partition.
        keep: How long changes are kept.
        pace: Limits how many changes are deleted in a second; None for any number.

    Raises:
        DecodeError: The counter is damaged.
        LostRace: Writers of the partition were faster again and again.
    """
    what = f"the change feed of partition {partition_key!r} of table {table}"
    async for _ in Attempts(db, races=f"sweep of {what}: others wrote the partition first"):
        counter = await read_counter(db, table, partition_key)
        if counter is None:
            return 0
        first, most = counter.trimmed + 1, _MOST if pace is None else min(_MOST, pace.chunk)
        last, before = min(counter.last, counter.trimmed + most), utc_now() - keep
        times = await read_changes(db, table, partition_key, first, last, lambda row: time_of(row, CHANGE_KIND))
        kept = next((n for n in range(first, last + 1) if n not in times or times[n] >= before), last + 1)
        if kept == first:
            return 0
        if pace is not None:
            await pace.wait(kept - first)
        shorter = attrs.evolve(counter, trimmed=kept - 1)
        operations = trimming(partition_key, shorter, list(map(change_key, range(first, kept))))
        if await write_as_read(db, table, operations, name=FEED_KIND, what=what):
            return kept - first
    raise AssertionError
