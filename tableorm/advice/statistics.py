"""
`measure_table`: how many rows a table has, how large they are, of which kinds, and where they are.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from ..connection.connection import Connected, Connection, connection_of
from ..connection.tasks import map_together, work_off
from ..errors import ModelError, counted, shown
from ..jobs.plan import narrow
from ..keys.ranges import divide
from ..protocol.limits import MAX_PAGE
from ..protocol.redaction import escape_unprintable
from ..stores import Bounds, Row, RowQuery
from .totals import KindStatistics, Totals

_RANGES_PER_WORKER = 4
_MOST_PARTS = 16  # of a range that is divided
_MOST_ROUNDS = 20  # of dividing: some keys can be divided again and again without becoming many ranges
_LARGEST = 10
_HOT = 0.2  # the share of all rows that a prefix of PartitionKeys is reported from
_GIB = 1024**3
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@attrs.frozen
class TableCost:
    """
    What a table costs, in the currency of the prices that were passed.

    Args:
        storage: Storing its rows for a month.
        scan: Reading all of its rows once.
    """

    storage: float
    scan: float


@attrs.frozen(kw_only=True)
class TableStatistics:
    """
    The statistics of a table: of all rows, or of a sample. Nothing is extrapolated.

    Args:
        table: Its name.
        rows: How many rows were read, including index entries and other derived rows.
        size: Their size in bytes, as the service computes it for billing.
        partitions: How many partitions contain them.
        kinds: The rows by kind, the value of the property `EntityType`, the largest first; "" for rows without one.
        largest: The partitions with the most rows, and their number of rows.
        incomplete: Those of the largest partitions of which perhaps only the first rows were counted.
        prefixes: Prefixes of PartitionKeys that cover at least a fifth of the rows, and their number of rows: the
            longest such prefixes, except where a single partition has as many.
        exact: Whether all rows were read; otherwise the figures are those of a sample.
        requests: How many requests were sent.
    """

    table: str
    rows: int
    size: int
    partitions: int
    kinds: Mapping[str, KindStatistics]
    largest: Mapping[str, int]
    incomplete: Sequence[str]
    prefixes: Mapping[str, int]
    exact: bool
    requests: int

    @property
    def scan_requests(self) -> int:
        """The number of requests that read these rows once, at least."""
        return max(1, math.ceil(self.rows / MAX_PAGE))

    def cost(self, *, gib_price: float, request_price: float) -> TableCost:
        """
        Return what these rows cost.

            print(measured.cost(gib_price=0.05, request_price=0.0004).storage)

        Args:
            gib_price: The price of storing a GiB for a month.
            request_price: The price of 10,000 requests.
        """
        return TableCost(self.size / _GIB * gib_price, self.scan_requests / 10_000 * request_price)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a dictionary that JSON can represent."""
        return attrs.asdict(self) | {"scan_requests": self.scan_requests}

    def __str__(self) -> str:
        rows, partitions = counted(self.rows, "row"), counted(self.partitions, "partition")
        lines = [
            f"{self.table}: {'' if self.exact else 'sampled '}{rows} in {partitions}, {_show_size(self.size)}",
            f"  {'all rows were' if self.exact else 'the sample was'} read by {counted(self.requests, 'request')}",
        ]
        sizes = [f"  {_show_size(each.size):>9}" for each in self.kinds.values()]
        lines += self._show("kinds", {kind or "(none)": each.rows for kind, each in self.kinds.items()}, sizes)
        if "" in self.kinds:
            lines.append("    (none): no EntityType; only models with kind=None find these rows")
        lines += self._show("largest partitions", self.largest, more=self.incomplete)
        prefixes = {f"{prefix}...": n for prefix, n in self.prefixes.items()}
        lines += self._show("common PartitionKey prefixes", prefixes)
        return "\n".join(lines)

    def _show(
        self, title: str, rows: Mapping[str, int], sizes: Sequence[str] = (), more: Sequence[str] = ()
    ) -> list[str]:
        if not rows:
            return []
        names = [escape_unprintable(name) for name in rows]
        numbers = [f"{number:,}{'+' if name in more else ' ' * bool(more)}" for name, number in rows.items()]
        width, digits = max(map(len, names)), max(map(len, numbers))
        return [f"  {title}{'' if self.exact else ' in the sample'}"] + [
            f"    {name:<{width}}  {text:>{digits}}  {number / max(1, self.rows):>4.0%}{size}"
            for name, text, number, size in zip(names, numbers, rows.values(), sizes or [""] * len(rows), strict=True)
        ]


async def measure_table(
    db: Connected,
    table: str,
    *,
    sample: int | None = None,
    parallel: int = 8,
    on_progress: Callable[[int, float], None] | None = None,
) -> TableStatistics:
    """
    Count the rows of a table, their bytes and kinds, and find its largest partitions. Nothing is written.

        print(await measure_table(db, "Directory"))

    All rows are read, with at least one request for each 1,000; rows written during the call may or may not be counted.
    With `sample`, only the first rows of evenly spaced ranges of PartitionKeys are read.

    Args:
        db: The open database.
        table: The name of the table.
        sample: The number of ranges whose first page is read; None for all rows. A few more requests find these ranges.
        parallel: Number of key ranges that are read in parallel.
        on_progress: Called after each page with the number of rows read, and the share of the ranges that are done.

    Raises:
        ModelError: An argument is rejected.
        AccessDenied: The database is a scope.
        TableNotFound: There is no such table.
        TableOrmError: The store rejected a request, or didn't respond.
    """
    for name, number in (("sample", 1 if sample is None else sample), ("parallel", parallel)):
        if type(number) is not int or number < 1:
            raise ModelError(f"measure_table({table!r}, {name}={shown(number)}) is rejected: give 1 or more")
    connection = connection_of(db)
    connection.require_whole_tables(f"measure_table({table!r})")
    return await _Measurement(connection, table, on_progress).run(sample, parallel)


class _Measurement:
    """The statistics of a table as they are made."""

    def __init__(self, db: Connection, table: str, on_progress: Callable[[int, float], None] | None) -> None:
        self._db, self._table, self._on_progress = db, table, on_progress
        self._requests = self._done = 0
        self._ranges = 1
        self._totals = Totals()
        self._incomplete = set[str]()  # partitions of which perhaps only the first rows were counted

    async def run(self, sample: int | None, parallel: int) -> TableStatistics:
        # Most tables fit into a page: there a sample is worse and no cheaper.
        await self._read_range(Bounds(), whole=False)
        skipped = False
        if self._incomplete:
            self._totals, self._done = Totals(), 0
            self._incomplete.clear()
            if sample is None:
                ranges = divide(
                    await narrow(self._find_first, Bounds()) or Bounds(), (None,), parallel * _RANGES_PER_WORKER
                )
            else:
                ranges = await self._find_ranges(sample)
            self._ranges = min(sample or len(ranges), len(ranges))
            chosen = [ranges[len(ranges) * number // self._ranges] for number in range(self._ranges)]
            await work_off(partial(self._read_range, whole=sample is None), chosen, min(parallel, len(chosen)))
            skipped = len(chosen) < len(ranges)
        return self._summarize(exact=not (skipped or self._incomplete))

    async def _fetch(self, bounds: Bounds, limit: int, continuation: str | None) -> tuple[list[Row], str | None]:
        """Return a page of a range of partitions, and where the next one begins."""
        self._requests += 1
        what = f"measure {self._table}"
        page = await self._db.read_page(what, self._table, RowQuery(bounds), limit, continuation)
        return page.rows, page.continuation

    async def _find_ranges(self, wanted: int) -> list[Bounds]:
        """
        Return ranges of partitions in key order that together hold all rows, each with some: as many as are wanted or
        some more, or fewer if there are fewer partitions.
        """
        ranges: list[Bounds] = [Bounds()]
        for _ in range(_MOST_ROUNDS):
            found = await map_together(partial(narrow, self._find_first), ranges)
            ranges = [bounds for bounds in found if bounds is not None]
            if len(ranges) >= wanted or all(bounds.point for bounds in ranges):
                break
            parts = min(_MOST_PARTS, 2 * math.ceil(wanted / len(ranges)))
            ranges = [part for bounds in ranges for part in divide(bounds, (None,), parts)]
        return ranges

    async def _find_first(self, bounds: Bounds) -> str | None:
        """Return the first PartitionKey in a range; None if it has no rows."""
        continuation: str | None = None
        while True:  # the service may end a page before the first row
            rows, continuation = await self._fetch(bounds, 1, continuation)
            if rows or continuation is None:
                return str(rows[0]["PartitionKey"]) if rows else None

    async def _read_range(self, bounds: Bounds, *, whole: bool) -> None:
        """Count the rows of a range, or of its first page."""
        continuation: str | None = None
        partition, number = "", 0
        while True:
            rows, continuation = await self._fetch(bounds, MAX_PAGE, continuation)
            self._totals.add_rows(rows)
            for row in rows:
                if row["PartitionKey"] != partition:
                    self._totals.add_partition(partition, number)
                    partition, number = row["PartitionKey"], 0
                number += 1
            if self._on_progress is not None:
                self._on_progress(self._totals.rows, self._done / self._ranges)
            if continuation is None or (rows and not whole):
                self._totals.add_partition(partition, number)
                if continuation is not None:
                    self._incomplete.add(partition)
                self._done += 1
                return

    def _summarize(self, *, exact: bool) -> TableStatistics:
        totals = self._totals
        largest = dict(totals.places.find_largest(_LARGEST))
        return TableStatistics(
            table=self._table,
            rows=totals.rows,
            size=totals.size,
            partitions=totals.partitions,
            kinds=dict(sorted(totals.kinds.items(), key=lambda item: (-item[1].rows, item[0]))),
            largest=largest,
            incomplete=[partition for partition in largest if partition in self._incomplete],
            prefixes=dict(totals.places.find_prefixes(max(1, math.ceil(_HOT * totals.rows)))),
            exact=exact,
            requests=self._requests,
        )


def _show_size(size: float) -> str:
    """Return a number of bytes in the unit that makes it readable."""
    power = min(len(_UNITS) - 1, int(math.log(max(1.0, size), 1024)))
    return f"{size / 1024**power:,.{1 if power else 0}f} {_UNITS[power]}"
