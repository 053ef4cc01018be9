"""
Queries that differ in the values of their conditions alone, read with fewer requests than one for each.

Of queries whose results lie in one partition, each in a range of keys of its own, several are read by one range from
the first to the last, a page at a time: each page begins where the next result can be. So there are never more requests
than one by one, though more rows, those in between. Where a page has brought too few results, what is left is read one
by one, several at the same time.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import attrs
import msgspec

from ..connection.connection import Connection
from ..connection.tasks import map_together, stop_tasks
from ..protocol.edm import utf16_key
from ..protocol.filters import Filter
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, Row, RowQuery
from ..stores.intervals import high_of, hull, low_of, meet, overlaps
from .execution import CONCURRENCY, Allowance, FetchedPage, QueryExecution
from .explain import ExplainedRequest, explain_request
from .misfits import MisfitPolicy, TakeMisfit, take_last_misfit, taker_of
from .planning.plan import QueryPlan, Range
from .query import Query, limit_of, plan_query, start_query
from .run import LoadPacer, fetch_request

E = TypeVar("E")

_ENOUGH = 4
"""A page that ends so many queries was worth it, however many other rows it has brought."""


@attrs.define(eq=False)
class _Part:
    """
    One of the queries.

    Args:
        number: Which one.
        request: Its own request.
        bounds: The RowKeys of its results, of those that were not read yet.
        left: How many more it wants; None for all.
        begun: Whether some were read.
    """

    number: int
    request: Range
    bounds: Bounds
    left: int | None
    begun: bool = False


def _range_of(plan: QueryPlan | None) -> Range | None:
    """Return the one range within a partition that a plan reads; None if it reads anything else."""
    if plan is None or len(plan.requests) != 1 or plan.target.fetches_primaries:
        return None
    request = plan.requests[0]
    return request if isinstance(request, Range) and request.query.partition.point else None


def _divide(plans: Sequence[QueryPlan | None], limits: Sequence[int | None]) -> tuple[list[list[_Part]], list[int]]:
    """Return the queries that are read together, in key order, and the numbers of the others."""
    found: defaultdict[tuple[int, str | None, Filter | None], list[_Part]] = defaultdict(list)
    alone: list[int] = []
    for number, plan in enumerate(plans):
        one = _range_of(plan)
        if plan is None or one is None or limits[number] == 0:
            alone.append(number)
        else:
            part = _Part(number, one, one.query.row, limits[number])
            found[id(plan.target), one.query.partition.lower, one.query.where].append(part)
    groups: list[list[_Part]] = []
    for parts in found.values():
        parts.sort(key=lambda part: low_of(part.bounds))
        # Where one range reaches into the next, a row could be a result of both.
        if len(parts) > 1 and not any(overlaps(one.bounds, two.bounds) for one, two in pairwise(parts)):
            groups.append(parts)
        else:
            alone += [part.number for part in parts]
    return groups, sorted(alone)


def _joined(parts: Sequence[_Part]) -> Range:
    """Return the range from the first of some queries to the last, without what is evaluated here."""
    first = parts[0].request
    query = attrs.evolve(first.query, row=hull([parts[0].bounds, parts[-1].bounds]))
    return attrs.evolve(first, query=query, client_filters=())


async def read_queries(queries: Sequence[Query[E]], policies: Sequence[MisfitPolicy]) -> list[list[E]]:
    """
    Read queries of the same kinds, which differ in the values of their conditions alone.

    Args:
        queries: The queries.
        policies: What becomes of the misfits of each.

    Returns:
        The results of each query, in key order.

    Raises:
        ScanRefused: One would visit every partition.
        DecodeError: A row does not fit its model.
    """
    found: list[list[E]] = [[] for _ in queries]
    plans: list[QueryPlan | None] = [None] * len(queries)
    if plan_query(queries[0], assumed=True) is not None:
        (first,) = await start_query(queries[0])  # afterwards it is known which indexes can be read
        if not first.sorted_here:
            plans = [plan_query(query, assumed=False) for query in queries]
    groups, alone = _divide(plans, [limit_of(query) for query in queries])
    takers = [taker_of(policy) for policy in policies]

    async def read_group(parts: list[_Part]) -> None:
        (run,) = await start_query(queries[parts[0].number])
        alone.extend(await _read_ranges(run, parts, takers, found))

    await map_together(read_group, groups)
    each = max(1, CONCURRENCY // max(1, len(alone)))

    async def read_alone(number: int) -> None:
        plan, query = plans[number], queries[number].misfits(policies[number])
        plain = plan is not None and len(plan.requests) == 1 and not plan.target.fetches_primaries
        found[number] = await (query if plain else query.concurrency(each)).all()

    await map_together(read_alone, alone)
    return found


def keys_read(query: Query[Any], model: type[Any]) -> Filter | None:
    """
    Return the condition on keys, if a query finds all rows of a model in one range of them; None if it does not.

    Raises:
        ScanRefused: It would visit every partition.
    """
    plan = plan_query(query, assumed=True)
    request = _range_of(plan)
    if plan is None or request is None or plan.target.single is not model.__schema__ or plan.target.drops_rows:
        return None
    whole = RowQuery(request.query.partition, request.query.row, plan.target.filter)
    return attrs.evolve(whole, where=None).filter if whole == request.query and not request.client_filters else None


async def _read_ranges(
    first: QueryExecution, parts: list[_Part], takers: Sequence[TakeMisfit], found: list[list[Any]]
) -> list[int]:
    """
    Read some queries by ranges that go from one to the next.

    Args:
        first: The first of them.
        parts: The queries, in key order.
        takers: What takes their misfits, by number.
        found: Takes their results, by number.

    Returns:
        The numbers of those that are better read one by one.
    """
    left, now, trusted = [*parts], [*parts], True
    continuation: str | None = None
    loading: asyncio.Task[None] | None = None  # of the page before, while the next one is fetched
    try:
        while left:
            limited = any(part.left is not None for part in now)
            # Of a query whose first page was too short, rows of others may lie in between.
            short = limited and not now[0].begun
            wanted = 2 * sum(part.left or 0 for part in now) if short else MAX_PAGE
            request = _joined(now)
            plan = msgspec.structs.replace(first.plan, requests=(request,))
            run = attrs.evolve(first, plan=plan, limit=None, allowance=Allowance(min(wanted, MAX_PAGE)))
            page = await fetch_request(run, request, continuation)
            if loading is not None:
                await loading
            by_part = _assign(page.rows, now)
            loading = asyncio.create_task(_load_parts(run, by_part, takers, found))
            if limited or page.continuation is None:
                await loading
            continuation, before = None, len(left)
            if page.continuation is None:
                left = left[len(now) :]
            elif page.rows:  # the next page begins behind the last row, or where the next result can be
                left = _behind(left, page.rows[-1]["RowKey"])
            else:  # only the store knows where it goes on
                continuation = page.continuation
                continue
            useful = sum(len(rows) for _, rows in by_part)
            trusted = trusted and (before - len(left) >= _ENOUGH or 2 * useful >= len(page.rows))
            if not trusted and left and not left[0].begun:
                await loading
                return [part.number for part in left]
            now = left if trusted else left[:1]
        if loading is not None:
            await loading
    finally:
        await stop_tasks([loading])
    return []


def _assign(rows: Sequence[Row], parts: Sequence[_Part]) -> list[tuple[_Part, list[Row]]]:
    """Return the rows of each query, of those of a page. Both are in key order."""
    keys = [utf16_key(row["RowKey"]) for row in rows]
    found: list[tuple[_Part, list[Row]]] = []
    end = 0
    for part in parts:
        low, excluded = low_of(part.bounds)
        start = (bisect_right if excluded else bisect_left)(keys, low, end)
        if start == len(keys):
            break
        unbounded, high, included = high_of(part.bounds)
        end = len(keys) if unbounded else (bisect_right if included else bisect_left)(keys, high, start)
        if start < end:
            found.append((part, [*rows[start:end]]))
    return found


async def _load_parts(
    first: QueryExecution,
    by_part: Sequence[tuple[_Part, list[Row]]],
    takers: Sequence[TakeMisfit],
    found: list[list[Any]],
) -> None:
    """Give each query the entities of its rows."""
    run, pacer = attrs.evolve(first), LoadPacer()
    for part, rows in by_part:
        run.take_misfit, run.allowance = takers[part.number], Allowance(None)
        page, start = FetchedPage(run, part.request, 0, rows, None), 0
        while start < len(rows) and part.left != 0:
            run.wanted = part.left
            read, entities = await pacer.load(page, start)
            start += len(read)
            misfit = take_last_misfit(entities)
            entities = entities if part.left is None else entities[: part.left]
            found[part.number] += entities
            part.left = None if part.left is None else part.left - len(entities)
            if misfit is not None and part.left != 0:
                raise misfit.error


def _behind(parts: Sequence[_Part], last: str) -> list[_Part]:
    """Return what is left of some queries behind a row."""
    left: list[_Part] = []
    for part in parts:
        rest = meet(part.bounds, Bounds(last, lower_open=True))
        if rest is not None and part.left != 0:
            part.begun = part.begun or rest != part.bounds
            part.bounds = rest
            left.append(part)
    return left


def explain_queries(db: Connection, queries: Sequence[Query[Any]]) -> tuple[list[ExplainedRequest], int | None]:
    """
    Return the requests that `read_queries` would send, and how many these can become where ranges bring too little;
    None if that depends on what is found. A request is sent once more for each further thousand rows.
    """
    ordered = db.store.capabilities.ordered
    plans = [plan_query(query, assumed=True) if ordered else None for query in queries]
    explained = [query.explain() for query in queries]
    groups, alone = _divide(plans, [limit_of(query) for query in queries])
    requests: list[ExplainedRequest] = []
    for parts in groups:
        plan = plans[parts[0].number]
        assert plan is not None
        requests.append(explain_request(plan, _joined(parts), None, db.prefix + plan.target.table))
    for number in alone:
        requests += explained[number].requests
    if any(each.fetches_primaries for each in explained):
        return requests, None
    drops = any(plan is None or plan.target.drops_rows for plan in plans)
    most = 0
    for request in (request for each in explained for request in each.requests):
        # All rows of a short page may be none of its results; the next page is a full one.
        short = request.top is not None and request.top < MAX_PAGE
        most += 2 if short and (drops or request.client_side) else 1
    return requests, most
