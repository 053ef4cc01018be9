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

import apsw

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import ANNOTATION
from tableorm.protocol.filters import Filter, matcher
from tableorm.protocol.limits import MAX_PAGE, check_filter
from tableorm.stores import Row, RowPage, RowQuery

from .catalog import Table
from .faults import missing_table_fault
from .key_intervals import (
    EVERYTHING,
    Interval,
    count_comparisons,
    filter_interval,
    filter_rows,
    intersect,
    narrow_to_rows,
    partition_interval,
    row_interval,
)
from .sqlite import Connection, Cursor
from .writes import decode

__all__ = ["PageScan", "check_limit", "project"]

# Outside of an interval of RowKeys, stepping over a few rows is faster than seeking the next partition.
_STEPS_BEFORE_SEEK = 8
# A page ends when its rows have so many bytes, as in the service. Otherwise it could have 1000 rows of 1 MiB.
_PAGE_BYTES = 4 * 1024 * 1024
# Between two looks at the clock, so many rows, bytes and comparisons of a filter: some 100 us of work each.
_BATCH_ROWS = 50
_BATCH_BYTES = 64 * 1024
_BATCH_COMPARISONS = 400
_VERSION = b"\x01"


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
        self._test: Callable[[Row], bool] | None = None
        self._batch = _BATCH_ROWS
        keys, rows = partition_interval(query.partition), row_interval(query.row)
        if query.where is not None:
            self._test = _compile_filter(query.where)
            self._batch = max(1, min(_BATCH_ROWS, _BATCH_COMPARISONS // max(1, count_comparisons(query.where))))
            keys, rows = intersect((keys, filter_interval(query.where))), intersect((rows, filter_rows(query.where)))
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
        """Take every row, in batches that have room in the page whichever rows pass the filter."""
        rows = iter(cursor)
        while not self._full:
            count, room = min(self._batch, self._limit - len(self._found)), min(_BATCH_BYTES, _PAGE_BYTES - self._bytes)
            bodies, size, key = list[bytes](), 0, self._low
            for key, body in islice(rows, count):  # noqa: B007 - the last key is used below
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
        """Take only the rows whose RowKey is in an interval, in each of several partitions."""
        outside = 0
        for key, body in cursor:
            if self._full:
                return True
            self._check_order(key)
            self._low = key + b"\0"
            cut = key.index(0)
            row_key = key[cut + 1 :]
            if rows[0] <= row_key < rows[1]:
                outside = 0
                self._take([body], len(body))
            else:
                outside += 1
                if outside >= _STEPS_BEFORE_SEEK:
                    self._low = key[:cut] + (b"\0" + rows[0] if row_key < rows[0] else b"\1")
                    return False
            if time.perf_counter() > until:
                return False
        self._low = self._high
        return True

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
        self._bytes += size

    @property
    def _full(self) -> bool:
        return len(self._found) == self._limit or self._bytes >= _PAGE_BYTES

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
