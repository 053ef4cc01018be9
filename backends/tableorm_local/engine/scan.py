"""
Scans: one page of a query as a walk over key ranges of a table, in slices that hold nothing between them.

Each slice is a statement of its own that starts at the key where the previous one stopped. So the event loop runs other
tasks between slices, no read transaction outlives a slice, and any process can continue a page at any time.
"""

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from itertools import compress, islice
from zlib import crc32

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import ANNOTATION, utf16_key
from tableorm.protocol.filters import Filter, matcher
from tableorm.protocol.limits import MAX_PAGE, check_filter
from tableorm.stores import Bounds, Row, RowPage, RowQuery

from .catalog import Table
from .sqlite import Connection, Cursor
from .writes import decode

__all__ = ["PageScan", "check_limit", "project"]

# Outside of an interval of RowKeys, stepping over a few rows is faster than seeking the next partition.
_STEPS_BEFORE_SEEK = 8
# A page ends when its rows have so many bytes, as in the service. Otherwise it could have 1000 rows of 1 MiB.
_PAGE_BYTES = 4 * 1024 * 1024
# Rows between two looks at the clock: about 100 us of work.
_BATCH = 50
_FIRST_BATCH = 4
_LARGE = 8 * 1024  # bytes of a row that takes long by itself
_END = b"\xff"  # no byte of a key is as large
_VERSION = b"\x01"

_ANY = Bounds()

_Interval = tuple[bytes, bytes]
"""The keys from the first one on, and before the second."""


def check_limit(limit: int) -> None:
    """
    Refuse a page size that the service would refuse.

    Raises:
        Fault: InvalidInput.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise Fault(Code.INVALID_INPUT, f"A page has 1 to {MAX_PAGE} rows (got {limit}).")


def project(row: Row, select: tuple[str, ...]) -> Row:
    """Return the ETag and the named properties of a row with their types; an absent one is None."""
    result: Row = {"odata.etag": row["odata.etag"]}
    for name in select:
        result[name] = row.get(name)
        annotation = name + ANNOTATION
        if annotation in row:
            result[annotation] = row[annotation]
    return result


def _encode_bound(name: str, text: str) -> bytes:
    try:
        return utf16_key(text)
    except UnicodeEncodeError as error:
        raise Fault(
            Code.INVALID_INPUT, f"The bound {text[:80]!r} of {name} has a lone surrogate at position {error.start}."
        ) from None


def _encode_bounds(name: str, bounds: Bounds) -> tuple[bytes | None, bytes | None, bool, bool]:
    """
    Return bounds as bytes (lower, upper, lower_open, upper_open).

    Keys have no U+0000, so a bound that has one is just after the text in front of it.
    """
    lower, upper, lower_open, upper_open = bounds.lower, bounds.upper, bounds.lower_open, bounds.upper_open
    if lower is not None and "\0" in lower:
        lower, lower_open = lower[: lower.index("\0")], True
    if upper is not None and "\0" in upper:
        upper, upper_open = upper[: upper.index("\0")], False
    return (
        None if lower is None else _encode_bound(name, lower),
        None if upper is None else _encode_bound(name, upper),
        lower_open,
        upper_open,
    )


def _partition_interval(bounds: Bounds) -> _Interval:
    """Return the keys of all rows in those partitions: PK + 0 is a partition's start, PK + 1 is past its end."""
    lower, upper, lower_open, upper_open = _encode_bounds("PartitionKey", bounds)
    low = b"" if lower is None else lower + (b"\1" if lower_open else b"\0")
    high = _END if upper is None else upper + (b"\0" if upper_open else b"\1")
    return low, high


def _row_interval(bounds: Bounds) -> _Interval:
    lower, upper, lower_open, upper_open = _encode_bounds("RowKey", bounds)
    low = b"" if lower is None else lower + (b"\0" if lower_open else b"")
    high = _END if upper is None else upper + (b"" if upper_open else b"\0")
    return low, high


def _compile_filter(where: Filter) -> Callable[[Row], bool]:
    try:
        return matcher(where)
    except ValueError:
        check_filter(where)  # raises a Fault if the client made the mistake
        raise


class PageScan:
    """
    One page under construction.

    Args:
        query: The rows to find.
        limit: The most rows of the page.
        table: Name of the table in lower case, which continuations are bound to.
        continuation: The continuation of the previous page.

    Raises:
        Fault: InvalidInput: the continuation is malformed or belongs to another table, a bound has a lone surrogate,
            or the filter nests too deeply.
    """

    def __init__(self, query: RowQuery, limit: int, table: str, continuation: str | None) -> None:
        self._limit = limit
        self._table = table
        self._select = query.select
        self._test = None if query.where is None else _compile_filter(query.where)
        self._low, self._high = _partition_interval(query.partition)
        self._rows: _Interval | None = None
        if query.row != _ANY:
            rows = _row_interval(query.row)
            if query.partition.point and self._low < self._high:
                start = self._low
                self._low, self._high = start + rows[0], min(start + rows[1], self._high)
            else:
                self._rows = rows
            if rows[0] >= rows[1]:
                self._high = self._low
        if continuation is not None:
            # Not before the query's own start: a client may forge a continuation, and bounds may be permissions.
            self._low = max(self._low, self._read_continuation(continuation))
        self._found: list[Row] = []
        self._bytes = 0
        self._more = True
        self.seconds = 0.0

    def advance(self, connection: Connection, table: Table, seconds: float) -> bool:
        """Work for about `seconds`. Return True when the page is complete. `self.seconds` adds up the work."""
        start = time.perf_counter()
        until = start + seconds
        done = False
        while not done and time.perf_counter() < until:
            done = self._walk(connection, table, until)
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
        """Take every row, in batches."""
        rows, count = iter(cursor), _FIRST_BATCH
        # One row more than the page has room for tells whether more follow.
        while batch := list(islice(rows, min(count, self._limit - len(self._found) + 1))):
            if len(batch[-1][1]) < _LARGE:
                count = _BATCH
                taken = self._take_all(batch)
            else:
                count = 1
                taken = 0
                for _, body in batch:
                    if self._full or (taken and time.perf_counter() > until):
                        break
                    self._take(body)
                    taken += 1
            if taken < len(batch):
                self._low = batch[taken][0]
                return self._full
            if time.perf_counter() > until:
                self._low = batch[-1][0] + b"\0"
                return False
        self._low = self._high
        return True

    def _walk_within(self, cursor: Cursor, rows: _Interval, until: float) -> bool:
        """Take only the rows whose RowKey is in an interval, in each of several partitions."""
        outside = 0
        for key, body in cursor:
            if self._full:
                return True
            self._low = key + b"\0"
            cut = key.index(0)
            row_key = key[cut + 1 :]
            if rows[0] <= row_key < rows[1]:
                outside = 0
                self._take(body)
            else:
                outside += 1
                if outside >= _STEPS_BEFORE_SEEK:
                    self._low = key[:cut] + (b"\0" + rows[0] if row_key < rows[0] else b"\1")
                    return False
            if time.perf_counter() > until:
                return False
        self._low = self._high
        return True

    def _take_all(self, batch: list[tuple[bytes, bytes]]) -> int:
        """Take rows while there is room, without a call for each row. Return how many were taken."""
        found, test, select = self._found, self._test, self._select
        taken = 0
        while taken < len(batch) and not self._full:
            # So many have room whichever pass the filter; those that do not pass leave room for others.
            some = batch[taken : taken + self._limit - len(found)]
            size = sum([len(body) for _, body in some])
            if size > _PAGE_BYTES - self._bytes:
                self._take(some[0][1])
                taken += 1
                continue
            rows = [decode(body) for _, body in some]
            if test is not None:
                passes = [test(row) for row in rows]
                if not all(passes):
                    rows = list(compress(rows, passes))
                    size = sum(len(body) for (_, body), passed in zip(some, passes, strict=True) if passed)
            found += rows if select is None else [project(row, select) for row in rows]
            self._bytes += size
            taken += len(some)
        return taken

    @property
    def _full(self) -> bool:
        return len(self._found) == self._limit or self._bytes >= _PAGE_BYTES

    def _take(self, body: bytes) -> None:
        row = decode(body)
        if self._test is None or self._test(row):
            self._found.append(row if self._select is None else project(row, self._select))
            self._bytes += len(body)

    def _make_continuation(self) -> str:
        check = crc32(self._table.encode() + b"\0" + self._low).to_bytes(4, "big")
        return urlsafe_b64encode(_VERSION + check + self._low).rstrip(b"=").decode("ascii")

    def _read_continuation(self, continuation: str) -> bytes:
        try:
            raw = urlsafe_b64decode(continuation.encode("ascii") + b"=" * (-len(continuation) % 4))
        except ValueError:
            raw = b""
        low = raw[5:]
        if raw[:5] != _VERSION + crc32(self._table.encode() + b"\0" + low).to_bytes(4, "big"):
            raise Fault(
                Code.INVALID_INPUT,
                f"The continuation {continuation[:80]!r} is malformed or of another table than {self._table!r}; "
                "pass the one of the previous page, unchanged.",
            )
        return low
