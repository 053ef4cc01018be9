"""
Reading many rows whose keys are known with few requests.

The service answers `RowKey eq 'a' or RowKey eq 'b'` by reading the whole partition. But rows whose keys lie close
together can be read by a range from the first of them to the last. Nobody knows beforehand how many other rows are in
between. So a range ends after twice as many rows as are wanted; where it has brought too few of these, it is the last
one of its partition, and the caller reads what is left row by row.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..keys.ranges import KeyPosition, key_order
from ..protocol.codes import Fault
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, Row, RowAddress, RowPage, RowQuery, row_keys
from .connection import Connection
from .observe import QueryWork
from .period_tables import NO_TABLE
from .rows import is_place, read_row
from .tasks import map_together
from .translate import translate

_FEW = 4
"""So many rows of a partition are read one by one: these requests are sent at the same time."""

_TRUST = 2
"""How many ranges may bring too few rows, one after the other, before no more are tried."""

_READS_AT_ONCE = 8


class NearbyRows:
    """
    Reads rows of one table by ranges of keys, where these lie close together. It learns whether they do: one object is
    for one query.

    Args:
        db: Where the rows are.
        table: Name of the table.
        select: The properties to read; None for all.
        name: The model or index that is read, for messages and counters.
        concurrency: Requests at the same time, at most.
        across: Whether a range may go across partitions, for rows of partitions of which few are wanted.
        work: The query that it is part of, for who is warned of slow ones; None if nobody is.

    Attributes:
        requests: How many it has sent.
    """

    def __init__(
        self,
        db: Connection,
        table: str,
        select: tuple[str, ...] | None = None,
        *,
        name: str = "",
        concurrency: int,
        across: bool = False,
        work: QueryWork | None = None,
    ) -> None:
        self._db, self._table, self._name, self._work = db, table, name, work
        self._select = None if select is None else tuple(dict.fromkeys(("PartitionKey", "RowKey", *select)))
        self._concurrency, self._across = concurrency, across
        # A store without an order gives other rows first; and a row that a token does not open is not absent.
        self._trust = _TRUST if db.store.capabilities.ordered else 0
        self._tells_absent = db.guarded is None
        self._width = min(_TRUST, concurrency)
        self.requests = 0

    async def read(self, keys: Iterable[KeyPosition]) -> Mapping[KeyPosition, Row | None]:
        """
        Read those of some rows that ranges bring. The caller reads the others, and decides what may be read: a range
        brings the rows in between too, which are dropped.

        Args:
            keys: PartitionKeys and RowKeys, in any order.

        Returns:
            Rows by their keys; None for a row that is not there. What was not found out is not in it.

        Raises:
            TableOrmError: The store refused, but for want of the table.
        """
        found: dict[KeyPosition, Row | None] = {}
        if self._trust <= 0:
            return found
        left = deque(self._divide(keys))
        while left and self._trust > 0:
            some = [left.popleft() for _ in range(min(self._width, len(left)))]
            poor = 0
            for wanted, page in zip(some, await map_together(self._fetch, some), strict=True):
                behind = self._take(wanted, page, found)
                if behind is None:
                    poor += 1
                elif len(behind) > _FEW:
                    left.append(behind)
            self._trust = min(_TRUST, self._trust + len(some) - 2 * poor)
            self._width = min(_TRUST if poor else 2 * self._width, self._concurrency)
        return found

    def plan(self, keys: Iterable[KeyPosition]) -> list[RowQuery]:
        """Return the ranges that are read first for some rows, as far as `read` does so."""
        return [*map(self._query, self._divide(keys))] if self._trust > 0 else []

    def _query(self, wanted: Sequence[KeyPosition]) -> RowQuery:
        """Return the range from the first row that is wanted to the last: of one partition, or of several."""
        first, last = wanted[0], wanted[-1]
        if first[0] == last[0]:
            return RowQuery(Bounds.only(first[0]), Bounds(first[1], last[1]), select=self._select)
        return RowQuery(Bounds(first[0], last[0]), select=self._select)

    def _divide(self, keys: Iterable[KeyPosition]) -> list[list[KeyPosition]]:
        """
        Return for which rows, in order, each range is read: for partitions of which more than a few are wanted, the
        most first.
        """
        by_partition: defaultdict[str, set[str]] = defaultdict(set)
        for partition_key, row_key in keys:
            by_partition[partition_key].add(row_key)
        partitions: list[list[KeyPosition]] = []
        rest: list[KeyPosition] = []
        for partition_key, rows in by_partition.items():
            if len(rows) <= _FEW and not self._across:
                continue
            # One key that no row can have, which a forged row may say, would spoil the request of all.
            possible = [
                (partition_key, each) for each in rows if is_place(RowAddress(self._table, partition_key, each))
            ]
            if len(possible) > _FEW:
                partitions.append(sorted(possible, key=key_order))
            elif self._across:
                rest += possible
        partitions.sort(key=len, reverse=True)
        return partitions if len(rest) <= _FEW else [*partitions, sorted(rest, key=key_order)]

    async def _fetch(self, wanted: Sequence[KeyPosition]) -> RowPage:
        """Read the range from the first row that is wanted to the last, at most twice as many rows as are wanted."""
        store, counts = self._db.sending("query", self._name, work=self._work)
        self.requests += 1
        try:
            page = await store.query(self._table, self._query(wanted), min(2 * len(wanted), MAX_PAGE))
        except Fault as fault:
            if fault.code in NO_TABLE:
                return RowPage([], "")  # what that means is a matter of the caller, who reads the rows one by one
            raise translate(fault, f"query of {self._name}" if self._name else "query", self._table) from None
        counts.rows += len(page.rows)
        return page

    def _take(
        self, wanted: Sequence[KeyPosition], page: RowPage, found: dict[KeyPosition, Row | None]
    ) -> list[KeyPosition] | None:
        """Take from a page what is wanted; return what is behind it, or None if that was less than half of it."""
        rows = {row_keys(row): row for row in page.rows}
        if page.continuation is not None and not rows:
            return None
        # Up to here all is known; everything is, if no other page follows.
        end = None if page.continuation is None else key_order(next(reversed(rows)))
        told = 0
        behind: list[KeyPosition] = []
        for keys in wanted:
            row = rows.get(keys)
            if row is None and end is not None and key_order(keys) > end:
                behind.append(keys)
            elif row is not None or self._tells_absent:
                found[keys] = row
                told += 1
        return behind if told > 0 and 2 * told >= len(rows) else None


async def read_rows(
    db: Connection,
    table: str,
    keys: Collection[KeyPosition],
    select: tuple[str, ...] | None = None,
    *,
    name: str = "",
) -> dict[KeyPosition, Row | None]:
    """
    Read rows of one table: by ranges of keys, and those that these do not bring one by one.

    Args:
        db: Where the rows are.
        table: Name of the table.
        keys: PartitionKeys and RowKeys, in any order.
        select: The properties to read; None for all.
        name: The model that is read, for messages and counters.

    Returns:
        The row of each key; None where there is none.

    Raises:
        TableOrmError: The store refused.
    """
    nearby = NearbyRows(db, table, select, name=name, concurrency=_READS_AT_ONCE, across=len(keys) > _FEW)
    found = dict(await nearby.read(keys))
    left = [key for key in keys if key not in found]

    async def read(key: KeyPosition) -> Row | None:
        return await read_row(db, RowAddress(table, *key), select, name)

    return found | dict(zip(left, await map_together(read, left), strict=True))
