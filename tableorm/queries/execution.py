"""
A query while it runs: what it asks for and how, what it still wants, and its requests.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from ..connection.connection import Connection
from ..connection.nearby import NearbyRows
from ..connection.observe import QueryWork
from ..keys.ranges import KeyPosition
from ..stores import Row
from .misfits import TakeMisfit, raise_misfits
from .planning.index_following import PrimaryFetch
from .planning.plan import AnyRequest, QueryPlan

CONCURRENCY = 16
"""Requests of a query that run at the same time, unless it says otherwise."""


@attrs.frozen
class Position:
    """
    How far a query got.

    Args:
        after: The last key that was dealt with; None if none was.
        skip: How many of the requests for keys after it are done.
        continuation: Where the next one goes on in the store; None for its start.
        wanted: How many entities its limit still allows; None without a limit.
    """

    after: KeyPosition | None = None
    skip: int = 0
    continuation: str | None = None
    wanted: int | None = None


@attrs.define(eq=False)
class Allowance:
    """
    What a query may still give and send, with all of its parts.

    Args:
        wanted: How many entities are still wanted; None for all.
        max_requests: Requests at the same time, beside those of other queries; None if only all together are bounded.
        running: How many of its requests run, or wait with what they got.
    """

    wanted: int | None
    max_requests: int | None = None
    running: int = 0


@attrs.define(eq=False, kw_only=True)
class QueryExecution:
    """
    One query of the rows of a table while it runs: by itself, or as a part of a query of several tables.

    Args:
        db: The database.
        plan: The plan of the query.
        load: Makes rows into entities, in order: None for what is not a result, the row itself if it has to be read
            again, in full.
        limit: The limit of the query, which cursors know.
        allowance: How many entities are still wanted, and how many requests may be sent at the same time.
        position: Where it begins.
        before: What stands before its cursors, where it is a part of another query.
        name: What is read, for messages.
        concurrency: Requests at the same time, at most.
        ordered: Whether its results are to come in key order.
        sorted_here: Whether rows are sorted here for that, since the store gives them in no order.
        one_by_one: Whether its results come in key order although those of other queries come in between.
        may_lack_table: Whether its table may be absent, and then has no rows.
        primaries: How the primaries of index entries are fetched after them; None if primary rows are read.
        nearby: Reads primaries whose keys lie close together; None if none are read.
        found_nearby: What it has found, by keys; None for a primary that is not there.
        work: Its requests, for who is warned of slow queries; None if nobody is.
        turns: Bounds the requests of several queries that run together; None if the caller bounds them.
        take_misfit: Takes the rows that do not fit their model.
        misfit_at: The keys of the row at which it has ended, as that was not taken.
    """

    db: Connection
    plan: QueryPlan
    load: Callable[[list[Row]], list[Any]]
    limit: int | None
    allowance: Allowance
    name: str
    position: Position = Position()
    before: str = ""
    concurrency: int = CONCURRENCY
    ordered: bool = True
    sorted_here: bool = False
    one_by_one: bool = False
    may_lack_table: bool = False
    primaries: PrimaryFetch | None = None
    nearby: NearbyRows | None = None
    found_nearby: Mapping[KeyPosition, Row | None] = attrs.field(factory=dict[KeyPosition, Row | None])
    work: QueryWork | None = None
    turns: asyncio.Semaphore | None = None
    take_misfit: TakeMisfit = raise_misfits
    misfit_at: KeyPosition | None = None

    @property
    def wanted(self) -> int | None:
        """How many entities are still wanted; None for all."""
        return self.allowance.wanted

    @wanted.setter
    def wanted(self, count: int | None) -> None:
        self.allowance.wanted = count


def bound_together(runs: Sequence[QueryExecution], concurrency: int) -> None:
    """Let queries that run together send no more than so many requests at the same time."""
    if [run for run in runs if run.plan.merged]:  # which send several requests in place of one
        turns = asyncio.Semaphore(concurrency)
        for run in runs:
            run.turns = turns


class UnsentRequest(msgspec.Struct, frozen=True, eq=False):
    """
    A request of a query that has not begun.

    Args:
        run: The query.
        request: The request.
        continuation: Where the store goes on; None for the start of the request.
    """

    run: QueryExecution
    request: AnyRequest
    continuation: str | None


class FetchedPage(msgspec.Struct, frozen=True, eq=False):
    """
    A page that was fetched; a struct, since pages can be short, and there are many.

    Args:
        run: The query that it belongs to.
        request: The request of that query.
        index: The number of that request among those that were given.
        rows: The rows that came.
        continuation: Where the request goes on; None if it is done.
    """

    run: QueryExecution
    request: AnyRequest
    index: int
    rows: list[Row]
    continuation: str | None
