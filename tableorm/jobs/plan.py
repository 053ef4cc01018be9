"""
The plan of a run: ranges of keys of which each holds rows, so that several processes have something to share.

The table is asked where its rows are: keys such as `tenant_00017` are but a small part of all keys that there can be.
Each range costs several requests, so a small table may be divided into few: then all of its keys are read.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

import attrs

from ..connection.connection import Connection
from ..connection.tasks import map_together
from ..errors import ModelError
from ..keys.ranges import divide, divided_at
from ..models.schema import Schema
from ..protocol.edm import utf16_key
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, RowQuery
from ..stores.intervals import EVERYTHING, common_prefix, meet, successor
from .ranges import JobRange

MOST_RANGES = 96
"""More would not fit into one transaction with the row of the run."""

LEAST_ROWS = 1_000
"""How many rows each range of a small table has at least: what a range costs besides is little then."""

SMALL_PAGES = 16
"""How many pages of keys are read to learn whether a table is small."""

# Each round finds rows in smaller ranges; keys need more than a few if they begin alike in groups within groups.
_ROUNDS = 8
_KEYS = ("PartitionKey", "RowKey")


async def plan_ranges(
    db: Connection,
    verb: str,
    tables: Sequence[tuple[str, Sequence[Schema]]],
    *,
    build: bool = False,
    most: int = MOST_RANGES,
    many: bool = False,
) -> list[JobRange]:
    """
    Return the ranges of a run, which together are all keys of some tables.

    Args:
        db: The open database.
        verb: Name of the function, for messages.
        tables: The tables, each with the models that it has entities of.
        build: Whether each range comes twice, to build in it, and to audit it afterwards.
        most: How many ranges there are at most.
        many: Whether a small table has as many ranges as there may be, too.

    Raises:
        ModelError: There are too many tables.
        TableNotFound: There is no such table.
    """
    if len(tables) > MOST_RANGES:
        raise ModelError(
            f"{verb}() is rejected: the models are in {len(tables)} tables, and a run has at most {MOST_RANGES} "
            "ranges; give the models of fewer tables at a time"
        )
    parts = most // len(tables) // (1 + build)
    found: list[JobRange] = []
    for table, schemas in tables:
        bounds = await _divide_table(db, verb, table, schemas, parts, many=many)
        found += [JobRange(table=table, partitions=each, building=build) for each in bounds]
    return found + [JobRange(table=each.table, partitions=each.partitions) for each in found if build]


async def _divide_table(
    db: Connection, verb: str, table: str, schemas: Sequence[Schema], parts: int, *, many: bool
) -> Sequence[Bounds]:
    """Return intervals of PartitionKeys, in order: about equal shares of the rows, or of the keys near those in use."""
    starts: Sequence[str | None] | None = None if many else await _divide_small(db, verb, table, parts)
    if starts is None:
        starts = await _divide_keys(db, verb, table, schemas, parts)
    return divided_at(starts)


async def _divide_small(db: Connection, verb: str, table: str, parts: int) -> Sequence[str] | None:
    """Return the PartitionKeys with which ranges of a small table begin, but for the first one; None if it is large."""
    partitions: list[str] = []
    continuation: str | None = None
    for _ in range(SMALL_PAGES):
        page = await db.read_page(verb, table, RowQuery(select=_KEYS), MAX_PAGE, continuation)
        partitions += [row["PartitionKey"] for row in page.rows]
        continuation = page.continuation
        if continuation is None:
            break
    else:
        return None
    partitions.sort(key=utf16_key)
    parts = max(1, min(parts, len(partitions) // LEAST_ROWS))
    starts = dict.fromkeys(partitions[len(partitions) * number // parts] for number in range(1, parts))
    return [each for each in starts if each != partitions[0]]


async def _divide_keys(
    db: Connection, verb: str, table: str, schemas: Sequence[Schema], parts: int
) -> Sequence[str | None]:
    """Return the PartitionKeys with which ranges begin that are about equal shares of the keys near those in use."""
    shares = [EVERYTHING]
    find = partial(_find_partition, db, verb, table)
    for _ in range(_ROUNDS):
        narrowed = await map_together(partial(narrow, find), shares)
        shares = [share for share in narrowed if share is not None]
        divisible = sum(not share.point for share in shares)
        each = (parts - len(shares) + divisible) // divisible if divisible else 0
        if each < 2:
            break
        templates = [schema.partition for schema in schemas]
        shares = [part for share in shares for part in ([share] if share.point else divide(share, templates, each))]
    return [share.lower for share in shares[1:]]


async def narrow(find_first: Callable[[Bounds], Awaitable[str | None]], share: Bounds) -> Bounds | None:
    """
    Return a range of PartitionKeys without what is empty at its ends, as far as a few requests tell; None if no key in
    it is in use.

    Args:
        find_first: Returns the first key in use of a range; None if there is none.
        share: The range.
    """
    first = await find_first(share)
    if first is None or share.point:
        return None if first is None else share
    second = await find_first(attrs.evolve(share, lower=first, lower_open=True))
    if second is None:
        return Bounds.only(first)
    # Each key that begins otherwise is behind all that begin alike, and the next one tells where they part.
    shared = common_prefix(first, second)
    while (end := successor(shared) if shared else None) is not None:
        rest = meet(share, Bounds(end))
        other = None if rest is None else await find_first(rest)
        if other is None:
            return meet(share, Bounds(first, end, upper_open=True))
        shared = common_prefix(shared, other)
    return attrs.evolve(share, lower=first, lower_open=False)


async def _find_partition(db: Connection, verb: str, table: str, bounds: Bounds) -> str | None:
    """Return a PartitionKey within some bounds, the first one if the store has an order; None if there is none."""
    async with aclosing(db.read_rows(verb, table, RowQuery(bounds, select=_KEYS), 1)) as rows:
        row = await anext(rows, None)
    return None if row is None else str(row["PartitionKey"])
