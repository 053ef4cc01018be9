"""
Scans: one page of a query as a walk over key ranges of a table, in slices that hold nothing between them.

Each slice is a statement of its own that starts at the key where the previous one stopped. So the event loop runs other
tasks between slices, no read transaction outlives a slice, and any process can continue a page at any time.
"""

import time
from collections.abc import Callable, Iterable
from itertools import compress, islice
from zlib import crc32

import apsw

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import Edm, check_text, utf16_key
from tableorm.protocol.filters import And, Compare, Filter, Not, matcher
from tableorm.protocol.limits import check_filter
from tableorm.protocol.url_text import from_url_text, to_url_text
from tableorm.stores import Bounds, Row, RowPage, RowQuery, project

from .catalog import Table
from .faults import missing_table_fault
from .sqlite import Connection, Cursor
from .writes import decode

# Outside of an interval of RowKeys, stepping over a few rows is faster than seeking the next partition.
_STEPS_BEFORE_SEEK = 8
# A page ends when its rows have so many bytes, as in the service. Otherwise it could have 1000 rows of 1 MiB.
_PAGE_BYTES = 4 * 1024 * 1024
# Between two looks at the clock, so many rows, bytes and comparisons of a filter: some 100 or 200 us of work each.
_BATCH_ROWS = 100
_BATCH_BYTES = 64 * 1024
_BATCH_COMPARISONS = 400
_VERSION = b"\x01"

# Which keys of a table's B-tree can hold the rows that a query asks for: a row outside of an interval never satisfies
# the query; a row inside of it need not satisfy it.

_END = b"\xff"  # no byte of a key is as large

Interval = tuple[bytes, bytes]
"""The keys from the first one on, and before the second."""

EVERYTHING: Interval = (b"", _END)
_NOTHING: Interval = (_END, b"")
_ANYWHERE = EVERYTHING, EVERYTHING
_KEYS = frozenset({"PartitionKey", "RowKey"})


def partition_interval(bounds: Bounds) -> Interval:
    """Return the keys of all rows in those partitions: PK + 0 is a partition's start, PK + 1 is past its end."""
    return _make_interval("PartitionKey", bounds, b"\0", b"\1")


def row_interval(bounds: Bounds) -> Interval:
    """Return the RowKeys within bounds, as they follow the PartitionKey and its separator."""
    return _make_interval("RowKey", bounds, b"", b"\0")


def filter_intervals(where: Filter) -> tuple[Interval, Interval]:
    """
    Return the keys between the first and the last row that can satisfy a filter, and the same of RowKeys.

    A range of keys that starts and ends within partitions is a filter on both keys, which is one interval here.
    """
    if isinstance(where, Not):
        return _ANYWHERE
    if isinstance(where, Compare):
        if where.property not in _KEYS or where.constant.type is not Edm.STRING:
            return _ANYWHERE
        bounds = Bounds.of(where.op, where.constant.value)
        if where.property == "PartitionKey":
            return partition_interval(bounds), EVERYTHING
        return EVERYTHING, row_interval(bounds)
    every = isinstance(where, And)
    found = [each for term in where.terms if (each := filter_intervals(term)) is not _ANYWHERE]
    if not found if every else len(found) < len(where.terms):
        return _ANYWHERE
    join = intersect if every else _unite
    keys, rows = join(keys for keys, _ in found), join(rows for _, rows in found)
    return narrow_to_rows(keys, rows) or keys, rows


def narrow_to_rows(keys: Interval, rows: Interval) -> Interval | None:
    """Return the keys with these RowKeys if all are of a single partition; None if they may be of several."""
    low, high = keys
    start = low[: low.find(b"\0") + 1]
    if not start or not (high.startswith(start) or high == start[:-1] + b"\1"):
        return None
    return max(low, start + rows[0]), min(high, start + rows[1])


def intersect(intervals: Iterable[Interval]) -> Interval:
    """Return what lies in all of the intervals."""
    lows, highs = zip(EVERYTHING, *intervals, strict=True)
    return max(lows), min(highs)


def _unite(intervals: Iterable[Interval]) -> Interval:
    lows, highs = zip(_NOTHING, *intervals, strict=True)
    return min(lows), max(highs)


def count_comparisons(where: Filter) -> int:
    """Return how many comparisons a filter has."""
    if isinstance(where, Compare):
        return 1
    return count_comparisons(where.term) if isinstance(where, Not) else sum(map(count_comparisons, where.terms))


def _make_interval(name: str, bounds: Bounds, before: bytes, after: bytes) -> Interval:
    """
    Return bounds of a key as bytes, where `before` makes a bound the start of what has that key, and `after` its end.

    Keys have no U+0000, so a bound that has one is just after the text in front of it.
    """
    lower, upper, lower_open, upper_open = bounds.lower, bounds.upper, bounds.lower_open, bounds.upper_open
    if lower is not None and "\0" in lower:
        lower, lower_open = lower[: lower.index("\0")], True
    if upper is not None and "\0" in upper:
        upper, upper_open = upper[: upper.index("\0")], False
    for bound in (lower or "", upper or ""):
        if not bound.isascii() and (fault := check_text(bound)):
            raise Fault(Code.INVALID_INPUT, f"The bound {bound[:80]!r} of {name} {fault}.")
    low = b"" if lower is None else utf16_key(lower)
    high = _END if upper is None else low if upper == lower else utf16_key(upper)
    return (
        low if lower is None else low + (after if lower_open else before),
        high if upper is None else high + (before if upper_open else after),
    )


class PageScan:
    """
    One page under construction.

    Args:
        query: The rows to find.
        limit: The most rows of the page.
        table: Name of the table in lower case, which continuations are bound to.
        continuation: The continuation of the previous page.
        count_more: Returns how many bytes a row has in the answer besides those that are stored.

    Raises:
        Fault: InvalidInput: the continuation is malformed or belongs to another table, a bound has a lone surrogate,
            or the filter nests too deeply.
    """

    def __init__(
        self,
        query: RowQuery,
        limit: int,
        table: str,
        continuation: str | None,
        count_more: Callable[[Row], int] | None,
    ) -> None:
        self._limit, self._count_more = limit, count_more
        self._table = table
        self._select = query.select
        self._test: Callable[[Row], bool] | None = None
        # What a row has besides is known once it is taken, and may be much.
        self._batch = _BATCH_ROWS if count_more is None else _BATCH_ROWS // 4
        keys, rows = partition_interval(query.partition), row_interval(query.row)
        if query.where is not None:
            try:
                self._test = matcher(query.where)
            except ValueError:
                check_filter(query.where)
                raise
            self._batch = max(1, min(self._batch, _BATCH_COMPARISONS // max(1, count_comparisons(query.where))))
            its_keys, its_rows = filter_intervals(query.where)
            keys, rows = intersect((keys, its_keys)), intersect((rows, its_rows))
        narrow = narrow_to_rows(keys, rows)
        self._low, self._high = narrow or keys
        # The RowKeys to find in each of several partitions.
        self._rows = rows if narrow is None and rows != EVERYTHING else None
        if rows[0] >= rows[1]:
            self._high = self._low
        if continuation is not None:
            # Not before the query's own start: a client may forge a continuation, and bounds may be permissions.
            self._low = max(self._low, self._read_continuation(continuation))
        self._found: list[Row] = []
        self._bytes = 0
        self._more = True
        self._number: int | None = None
        self.seconds = 0.0

    def advance(self, connection: Connection, table: Table, seconds: float) -> bool:
        """Work for about `seconds`. Return True when the page is complete. `self.seconds` adds up the work."""
        if self._number not in (None, table.id):
            raise missing_table_fault()  # The page does not go on in another table that got the name meanwhile.
        start = time.perf_counter()
        until = start + seconds
        done = False
        while not done and time.perf_counter() < until:
            done = self._walk(connection, table, until)
            self._number = table.id
            if self._low >= self._high:
                self._more = False
        self.seconds += time.perf_counter() - start
        return done

    def page(self) -> RowPage:
        """Return the rows that were found so far, and where to go on."""
        return RowPage(self._found, self._make_continuation() if self._more else None)

    def _walk(self, connection: Connection, table: Table, until: float) -> bool:
        """Run one statement. Return True when the page is complete, False to run another, there or elsewhere."""
        cursor = connection.execute(table.scan, (self._low, self._high))
        try:
            done = self._walk_all(cursor, until) if self._rows is None else self._walk_within(cursor, self._rows, until)
        finally:
            cursor.close()
        return done

    def _walk_all(self, cursor: Cursor, until: float) -> bool:
        """Take every row, in batches that have room in the page."""
        rows = iter(cursor)
        while not self._full:
            count, room = self._batch_room()
            bodies, size, key = list[bytes](), 0, self._low
            for key, body in islice(rows, count):  # noqa: B007 - the last key counts
                bodies.append(body)
                size += len(body)
                if size >= room:
                    break
            self._check_order(key)
            if bodies:
                self._take(bodies, size)
                self._low = key + b"\0"
            if len(bodies) < count and size < room:
                self._low = self._high
                return True
            if time.perf_counter() > until:
                return False
        following, _ = next(rows, (self._high, b""))
        self._check_order(following)
        self._low = following
        return True

    def _walk_within(self, cursor: Cursor, rows: Interval, until: float) -> bool:
        """Take only the rows whose RowKey is in an interval, in each of several partitions, in batches likewise."""
        first, end = rows
        entries = iter(cursor)
        while not self._full:
            count, room = self._batch_room()
            bodies, size, key, cut, outside = list[bytes](), 0, self._low, 0, 0
            for key, body in entries:
                cut = key.index(0)
                if first <= key[cut + 1 :] < end:
                    outside = 0
                    bodies.append(body)
                    size += len(body)
                    if size >= room or len(bodies) == count:
                        break
                else:
                    outside += 1
                    if outside == _STEPS_BEFORE_SEEK:
                        break
            else:
                self._check_order(key)
                self._take(bodies, size)
                self._low = self._high
                return True
            self._check_order(key)
            self._take(bodies, size)
            self._low = key + b"\0"
            if outside:
                self._low = key[:cut] + (b"\0" + first if key[cut + 1 :] < first else b"\1")
                return False
            if time.perf_counter() > until:
                return False
        if next(entries, None) is None:
            self._low = self._high
        return True

    def _batch_room(self) -> tuple[int, int]:
        """Return how many rows, and how many bytes of them, have room in the page whichever pass the filter."""
        return min(self._batch, self._limit - len(self._found)), min(_BATCH_BYTES, _PAGE_BYTES - self._bytes)

    def _check_order(self, key: bytes) -> None:
        # Damaged pages may lead in a circle.
        if key < self._low:
            raise apsw.CorruptError("its keys are out of order")

    def _take(self, bodies: list[bytes], size: int) -> None:
        """Add to the page those of the rows that pass the filter. `size` is the size of all bodies together."""
        rows = list(map(decode, bodies))
        if self._test is not None:
            passes = list(map(self._test, rows))
            if not all(passes):
                rows = list(compress(rows, passes))
                size = sum(map(len, compress(bodies, passes)))
        select = self._select
        self._found += rows if select is None else [project(row, select) for row in rows]
        if self._count_more is not None:
            size += sum(map(self._count_more, rows))
        self._bytes += size

    @property
    def _full(self) -> bool:
        return len(self._found) == self._limit or self._bytes >= _PAGE_BYTES

    def _make_continuation(self) -> str:
        check = crc32(self._table.encode() + b"\0" + self._low).to_bytes(4)
        return to_url_text(_VERSION + check + self._low)

    def _read_continuation(self, continuation: str) -> bytes:
        try:
            raw = from_url_text(continuation)
        except ValueError:
            raw = b""
        low = raw[5:]
        if raw[:5] != _VERSION + crc32(self._table.encode() + b"\0" + low).to_bytes(4):
            raise Fault(
                Code.INVALID_INPUT,
                f"The continuation {continuation[:80]!r} is malformed or of another table than {self._table!r}; "
                "pass the one of the previous page, unchanged.",
            )
        return low
