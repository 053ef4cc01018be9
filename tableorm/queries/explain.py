"""
Explanations: what a query will send and what that costs, for people and for assertions. Nothing is sent for it.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from ..connection.requests import request_line, row_path
from ..expressions import Expression
from ..protocol.filters import to_odata
from ..protocol.limits import MAX_PAGE
from ..protocol.notebook import html_table
from ..stores import RowAddress, RowQuery
from .planning.normalize import properties_of
from .planning.plan import RANKS, Access, Point, QueryPlan, Range
from .planning.target import QueryTarget


@attrs.frozen(kw_only=True)
class ExplainedRequest:
    """
    One request as the service receives it, before percent-encoding. A range is requested once for each of its pages.

    Args:
        access: How it finds rows.
        path: The resource, such as `Directory(PartitionKey='Sales',RowKey='emp_000223')` or `Directory()`.
        filter: `$filter`, or None.
        select: `$select`; None for all properties.
        top: `$top` of the first page; None for a single row read by its keys.
        client_side: Conditions that are evaluated in this program, on the rows that come back.
    """

    access: Access
    path: str
    filter: str | None = None
    select: tuple[str, ...] | None = None
    top: int | None = None
    client_side: tuple[str, ...] = ()

    def __str__(self) -> str:
        return request_line(self.path, self.filter, self.select, self.top)


def table_of_requests(explained: Any) -> str:
    """Return the requests of an explanation as a table for notebooks."""
    return html_table(
        str(explained).splitlines()[0],
        (
            {"access": each.access.value, "request": str(each), "then here": "; ".join(each.client_side)}
            for each in explained.requests
        ),
    )


@attrs.frozen(kw_only=True)
class Explanation:
    """
    What a query will send. You can print it, make assertions about it, or convert it to a dictionary.

    Args:
        query: The query, as a string.
        access: How rows are found; for several requests, the most expensive way.
        path: The keys by which they are found: "primary key", or "index Employee.by_email".
        requests: The requests, in key order.
        client_side: Conditions that are evaluated in this program, on these rows or on entities that are read after
            them.
        min_transactions: The minimum number of storage transactions.
        max_transactions: The maximum number; None if it depends on the number of rows.
        ordered: Whether results come in key order.
        concurrency: The maximum number of requests at a time.
        fetches_primaries: Whether the entities are read after their index entries, because the entries hold only keys
            or may be outdated. Keys that lie close together are read by ranges, others one by one.
        primary_select: `$select` of these reads; None for all properties.
        primary_conditions: Conditions that are evaluated in this program on the entities that these reads return.
        merged_partitions: The number of partitions (hash buckets of a key) whose results are merged in the order of
            RowKeys; 0 if results come in key order, or unordered.
        not_loaded: Fields that are missing from entities made from index entries: maintained fields, and those that
            `include=` leaves out.
        kinds: The kinds that the `EntityType` of rows must match; rows without that property are skipped. None if no
            property holds the kind, or if values are hidden.
        then: The relations that are loaded for the entities of each page; `Database.explain_load` shows their requests,
            which are not counted here.
    """

    query: str
    access: Access
    path: str
    requests: tuple[ExplainedRequest, ...]
    client_side: tuple[str, ...]
    min_transactions: int
    max_transactions: int | None
    ordered: bool
    concurrency: int
    fetches_primaries: bool = False
    primary_select: tuple[str, ...] | None = None
    primary_conditions: tuple[str, ...] = ()
    merged_partitions: int = 0
    not_loaded: tuple[str, ...] = ()
    kinds: tuple[str, ...] | None = None
    then: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values that JSON can represent."""
        found = attrs.asdict(self)
        found["access"] = self.access.value
        found["requests"] = [
            attrs.asdict(request) | {"access": request.access.value, "url": str(request)} for request in self.requests
        ]
        return found

    _repr_html_ = table_of_requests

    def __str__(self) -> str:
        lines = [self.query, f"  access: {self.access.value}, by {self.path}"]
        if self.kinds is not None:
            lines.append(f"  only rows of kind {' or '.join(map(repr, self.kinds))}; {WITHOUT_KIND}")
        for request in self.requests[:_SHOWN]:
            lines.append(f"  {request.access.value}: {request}")
            lines += [f"    then here: {condition}" for condition in request.client_side]
        if self.fetches_primaries:
            select = "" if self.primary_select is None else f"with $select={','.join(self.primary_select)}, "
            lines.append(
                f"  for the rows found: GET the rows that they are copies of, {select}by ranges of keys where they lie "
                "close together, otherwise one by one, several in parallel"
            )
            lines += [f"    then here: {condition}" for condition in self.primary_conditions]
        if self.not_loaded:
            names = ", ".join(self.not_loaded)
            lines.append(f"  not loaded: {names}, which the index does not hold; refresh(entity) reads all")
        if len(self.requests) > _SHOWN:
            lines.append(f"  ... and {len(self.requests) - _SHOWN} more requests")
        if len(self.requests) > 1:
            order = "in key order" if self.ordered else "as they come"
            if self.merged_partitions:
                order = f"merged by RowKey from {self.merged_partitions} partitions"
            lines.append(f"  {min(self.concurrency, len(self.requests))} in parallel, results {order}")
        lines.append(f"  cost: {self._cost()}")
        return "\n".join([*lines, *(f"  then {each}, for what was found on each page" for each in self.then)])

    def _cost(self) -> str:
        low, high = self.min_transactions, self.max_transactions
        amount = f"{low:,}" if high is None or low == high else f"{low:,} to {high:,}"
        text = f"{amount} storage transaction{'s' * (amount != '1')}"
        if high is None:
            text += f" at least, one more for each {MAX_PAGE:,} rows found"
            if self.fetches_primaries:
                text += ", up to one more for each of them"
            if self.then:
                text += ", and those of relations"
        return text + " and for each partition server on the way" * (
            self.access in (Access.PARTITION_RANGE, Access.TABLE_SCAN)
        )


_SHOWN = 10

WITHOUT_KIND = "rows without EntityType need a model with kind=None"


def explain_together(query: Explanation, parts: Sequence[Explanation]) -> Explanation:
    """Explain a query that consists of parts: it costs what these cost together. What they share is taken from it."""
    most = [each.max_transactions for each in parts]
    return attrs.evolve(
        query,
        access=max((each.access for each in parts), key=RANKS.__getitem__),
        requests=tuple(request for each in parts for request in each.requests),
        min_transactions=sum(each.min_transactions for each in parts),
        max_transactions=None if None in most else sum(each or 0 for each in most),
        client_side=tuple(dict.fromkeys(text for each in parts for text in each.client_side)),
    )


def needed_kinds(target: QueryTarget) -> tuple[str, ...] | None:
    """Return the kinds that a property tells, and of which a primary row has to be."""
    if target.filter is None or target.primaries is not None:
        return None
    return tuple(str(schema.kind) for schema in target.schemas)


def left_out(plan: QueryPlan) -> tuple[str, ...]:
    """Return the fields that the entities of a query by an index lack."""
    if plan.target.fetches_primaries or plan.select is not None:
        return ()
    entries = [(each.primary, each.fields) for each in plan.target.schemas if each.primary is not None]
    return tuple(dict.fromkeys(name for primary, held in entries for name in primary.fields if name not in held))


def explain_request(
    plan: QueryPlan, request: Point | Range, limit: int | None, table: str, *, show_values: bool = True
) -> ExplainedRequest:
    """Explain one request of a plan, to a table by its name in the store; see `explain`."""
    if isinstance(request, Point):
        return explain_point(RowAddress(table, request.partition_key, request.row_key), plan.select)
    conditions = [each.condition for each in request.client_filters]
    top = MAX_PAGE if limit is None or not request.drops_few else min(limit, MAX_PAGE)
    found = explain_range(request.query, table, top, show_values=show_values)
    here = describe(plan.target, conditions, show_values=show_values)
    return attrs.evolve(found, access=request.access, client_side=here)


def explain_point(row: RowAddress, select: tuple[str, ...] | None = None) -> ExplainedRequest:
    """Return the request for a row, of which these properties are read; None for all."""
    return ExplainedRequest(access=Access.POINT, path=row_path(row), select=select)


def explain_range(query: RowQuery, table: str, top: int, *, show_values: bool = True) -> ExplainedRequest:
    """Return the request for rows of a table, whose first page has no more than `top`."""
    text = None if query.filter is None else to_odata(query.filter, show_values=show_values)
    return ExplainedRequest(access=Access.RANGE, path=f"{table}()", filter=text, select=query.select, top=top)


def describe(target: QueryTarget, conditions: Sequence[Expression], *, show_values: bool) -> tuple[str, ...]:
    """Return conditions as text: with the values that they have, or only what they are on."""
    if show_values:
        return tuple(map(str, conditions))
    names = [", ".join(dict.fromkeys(properties_of(target, each))) for each in conditions]
    return tuple(f"a condition on {each or 'keys'}" for each in names)
