"""
`measure_table`: how many rows a table has, how large they are, of which kinds, and where they are.
"""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ..connection.connection import Connected, Connection, connection_of
from ..connection.tasks import work_together
from ..errors import ModelError, Unavailable, shown
from ..keys.ranges import KeyRegion
from ..protocol.limits import MAX_KEY_UNITS, MAX_PAGE
from ..protocol.redaction import escape_unprintable
from ..stores import Row, RowQuery
from .key_tree import KeyGroup, KeyTree
from .totals import count_partitions

__all__ = ["KindStatistics", "TableCost", "TableStatistics", "measure_table"]

_PAGE = MAX_PAGE
_REQUESTS = 500
_LEAST_DESCENTS = 4
_TELLING_DESCENTS = 10  # how much parts differ cannot be told from fewer
_GROUPS_PER_WORKER = 4
_LARGEST = 10
_HOT = 0.2  # the share of all rows that a prefix of PartitionKeys is reported from
_GIB = 1024**3
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@attrs.frozen
class KindStatistics:
    """
    The rows of one kind.

    Args:
        rows: How many there are.
        size: Their bytes.
    """

    rows: int
    size: int


@attrs.frozen
class TableCost:
    """
    What a table costs, in the currency of the prices that were given.

    Args:
        storage: Storing its rows for a month.
        scan: Reading all of its rows once.
    """

    storage: float
    scan: float


@attrs.frozen(kw_only=True)
class TableStatistics:
    """
    What a table holds: all counted, or estimated from a sample.

    Args:
        table: Its name.
        rows: How many rows it has, those of indexes and the like included.
        counted: How many rows were counted, each once: it has at least so many, except for those deleted meanwhile.
        size: Their bytes, as the service counts them for its bill.
        partitions: How many partitions they are in.
        kinds: The rows by their kinds, as the property `EntityType` has them, the largest first; "" for none.
        largest: The partitions with the most rows, and how many these are.
        prefixes: What PartitionKeys begin with under which a fifth of all rows is, and how many these are: the longest
            such prefixes, without partitions that have as many themselves.
        exact: Whether all rows were read.
        rows_error: The standard error of `rows`, as a part of it: two of three estimates are less wrong, if the parts
            of the table that were not reached are like the others. 0 if exact; None if too few were reached to tell.
        size_error: The standard error of `size`, as a part of it.
        requests: How many requests were sent.
        descents: How many parts of the keys were chosen to estimate it; 0 if exact.
    """

    table: str
    rows: int
    counted: int
    size: int
    partitions: int
    kinds: Mapping[str, KindStatistics]
    largest: Mapping[str, int]
    prefixes: Mapping[str, int]
    exact: bool
    rows_error: float | None
    size_error: float | None
    requests: int
    descents: int

    @property
    def scan_requests(self) -> int:
        """How many requests read all rows, at least."""
        return max(1, math.ceil(self.rows / MAX_PAGE))

    def cost(self, *, gib_price: float, request_price: float) -> TableCost:
        """
        Return what the table costs.

        Args:
            gib_price: The price of storing a GiB for a month.
            request_price: The price of 10,000 requests.
        """
        return TableCost(self.size / _GIB * gib_price, self.scan_requests / 10_000 * request_price)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a dictionary that JSON can hold."""
        return attrs.asdict(self) | {"scan_requests": self.scan_requests}

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        rows, size = _count(self.rows, "row"), _show_size(self.size)
        if not self.exact:
            rows += f"{_show_error(self.rows_error)}, at least {self.counted:,},"
            size += _show_error(self.size_error)
        lines = [f"{self.table}: {about}{rows} in {about}{_count(self.partitions, 'partition')}, {about}{size}"]
        requests = _count(self.requests, "request")
        if self.exact:
            lines.append(f"  all rows were read, by {requests}")
        else:
            lines.append(f"  estimated by {requests}, in {_count(self.descents, 'descent')} into the keys at random")
            lines.append(
                "  these are too few to tell how far that may be off; take more requests"
                if self.rows_error is None
                else "  ± is the standard error: two of three estimates are less wrong, if the parts that were not "
                "reached are like the others"
            )
        lines += self._show("kinds", {kind or "(none)": each.rows for kind, each in self.kinds.items()}, self.kinds)
        lines += self._show("largest partitions", self.largest)
        lines += self._show(
            "PartitionKeys that begin alike", {f"{prefix}...": n for prefix, n in self.prefixes.items()}
        )
        lines.append(f"  to read all rows takes {_count(self.scan_requests, 'request')} or more")
        return "\n".join(lines)

    def _show(
        self, title: str, rows: Mapping[str, int], kinds: Mapping[str, KindStatistics] | None = None
    ) -> list[str]:
        if not rows:
            return []
        sizes = [f"  {_show_size(each.size):>10}" for each in kinds.values()] if kinds else [""] * len(rows)
        names = [escape_unprintable(name) for name in rows]
        width = max(24, *map(len, names))
        return [f"  {title}"] + [
            f"    {name:<{width}}  {number:>13,}  {number / max(1, self.rows):>4.0%}{size}"
            for name, number, size in zip(names, rows.values(), sizes, strict=True)
        ]


async def measure_table(
    db: Connected,
    table: str,
    *,
    full: bool = False,
    requests: int = _REQUESTS,
    parallel: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> TableStatistics:
    """
    Count the rows of a table, their bytes and kinds, and find its largest partitions. Nothing is written.

    A table of some hundred thousand rows is read in full. A larger one is estimated from a sample: its keys are divided
    by what they begin with, and of many parts some are chosen at random, and divided again. Each counted row stands for
    those of the parts that were not chosen, so that the estimate is fair wherever the rows are. What is written
    meanwhile is counted or not.

    Args:
        db: The open database.
        table: The name of the table.
        full: Read all rows, however many there are, several ranges of keys at the same time.
        requests: How many requests a sample takes, about: a descent that has begun ends, and there are four at least.
        parallel: How many ranges of keys are read at the same time with `full=True`.
        on_progress: Called after each page with how many rows were read, and how many requests were sent.

    Raises:
        ModelError: An argument is refused.
        AccessDenied: The database is a scope.
        TableNotFound: There is no such table.
        TableOrmError: The store refused a request, or did not answer.
    """
    for name, number in (("requests", requests), ("parallel", parallel)):
        if type(number) is not int or number < 1:
            raise ModelError(f"measure_table({table!r}, {name}={shown(number)}) is refused: give 1 or more")
    connection = connection_of(db)
    connection.require_open()
    connection.boundary.check_whole_table(f"measure_table({table!r})")
    return await _Measurement(connection, table, on_progress or _report_nothing).run(
        full=full, requests=requests, parallel=parallel
    )


def _report_nothing(rows: int, requests: int) -> None:
    """Report nothing, as nobody has asked for."""


class _Measurement:
    """The statistics of a table as they are made."""

    def __init__(self, db: Connection, table: str, on_progress: Callable[[int, int], None]) -> None:
        self._db, self._table, self._on_progress = db, table, on_progress
        self._requests = self._rows = 0

    async def run(self, *, full: bool, requests: int, parallel: int) -> TableStatistics:
        tree = KeyTree(self._read, random.Random(), _PAGE)
        if full:
            await self._read_all(tree, parallel)
            return self._summarize(tree)
        # Most tables are small, and there a sample is worse and no cheaper.
        if await self._scan(tree.root, max(1, requests // 4)):
            return self._summarize(tree)
        scanned = tree.count_rows()
        tree = KeyTree(self._read, random.Random(), _PAGE)
        while not tree.root.known and (self._requests < requests or tree.root.visits < _LEAST_DESCENTS):
            await tree.descend()
        return self._summarize(tree, scanned)

    async def _fetch(self, region: KeyRegion, limit: int, continuation: str | None) -> tuple[list[Row], str | None]:
        """Return a page of a region, and where the next one begins."""
        self._requests += 1
        store, counts = self._db.sending("query", "")
        query = RowQuery(region.partition, region.row)
        page = await self._db.call(
            f"measure {self._table}", self._table, store.query(self._table, query, limit, continuation)
        )
        for row in page.rows[:1] + page.rows[-1:]:
            key = row["PartitionKey"], row["RowKey"]
            if not region.holds(key) or max(map(len, key)) > MAX_KEY_UNITS:  # keys would be divided without end
                raise Unavailable(
                    f"measure {self._table}: the store gave the row {shown(key)}, which was not asked for"
                )
        counts.rows += len(page.rows)
        self._rows += len(page.rows)
        self._on_progress(self._rows, self._requests)
        return page.rows, page.continuation

    async def _read(self, region: KeyRegion, limit: int) -> tuple[list[Row], bool]:
        """Read as `ReadRows` says: a page of the service may be empty although more rows follow."""
        rows, continuation = await self._fetch(region, limit, None)
        while not rows and continuation is not None:
            rows, continuation = await self._fetch(region, limit, continuation)
        return rows, continuation is not None

    async def _read_all(self, tree: KeyTree, parallel: int) -> None:
        """Divide the keys until there is enough to do at the same time, then read all of it."""
        ready = [tree.root]
        while 0 < len(ready) < parallel * _GROUPS_PER_WORKER and parallel > 1:
            group = ready.pop(0)
            await tree.divide(group)
            group.visits, group.known = 1, True
            ready += group.parts or ()
        waiting = iter(ready)

        async def work() -> None:
            for group in waiting:
                await self._scan(group)

        await work_together(work, min(parallel, len(ready)))

    async def _scan(self, group: KeyGroup, most: int | None = None) -> bool:
        """Count all rows of a group, page by page; return False if there are more than so many pages."""
        continuation: str | None = None
        partition, number, pages = "", 0, 0
        while True:
            rows, continuation = await self._fetch(group.region, _PAGE, continuation)
            pages += 1
            group.seen.add_rows(rows)
            for key, some in count_partitions(rows):
                if number and key != partition:
                    group.count_partition(partition, number)
                    number = 0
                partition, number = key, number + some
            if continuation is None:
                break
            if pages == most:
                return False
        if number:
            group.count_partition(partition, number)
        group.visits, group.known = 1, True
        return True

    def _summarize(self, tree: KeyTree, scanned: int = 0) -> TableStatistics:
        totals, exact = tree.sum_up(), tree.root.known
        telling = exact or tree.root.visits >= _TELLING_DESCENTS
        kinds = sorted(totals.kinds.items(), key=lambda item: (-item[1][0], item[0]))
        return TableStatistics(
            table=self._table,
            rows=round(totals.rows),
            counted=max(scanned, tree.count_rows()),
            size=round(totals.size),
            partitions=round(totals.partitions),
            kinds={kind: KindStatistics(round(rows), round(size)) for kind, (rows, size) in kinds},
            largest={key: round(rows) for key, rows in totals.places.find_largest(_LARGEST)},
            prefixes={key: round(rows) for key, rows in totals.places.find_prefixes(max(1.0, _HOT * totals.rows))},
            exact=exact,
            rows_error=tree.find_error(lambda each: each.rows) if telling else None,
            size_error=tree.find_error(lambda each: each.size) if telling else None,
            requests=self._requests,
            descents=0 if exact else tree.root.visits,
        )


def _show_error(error: float | None) -> str:
    return "" if error is None else f" ±{error:.0%}"


def _count(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _show_size(size: float) -> str:
    """Return a number of bytes in the unit that makes it readable."""
    power = min(len(_UNITS) - 1, int(math.log(max(1.0, size), 1024)))
    return f"{size / 1024**power:,.{1 if power else 0}f} {_UNITS[power]}"
