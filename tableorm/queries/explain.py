"""
Explanations: what a query will send and what that costs, for people and for assertions. Nothing is sent for it.
"""

from typing import Any

import attrs

from ..derived.index.schema import IndexSchema
from ..protocol.filters import to_odata
from ..protocol.limits import MAX_PAGE
from .planning.plan import Access, Point, QueryPlan, Range

__all__ = ["ExplainedRequest", "Explanation", "explain"]


@attrs.frozen
class ExplainedRequest:
    """
    One request, as the service gets it (before percent-encoding); a range is repeated for each of its pages.

    Args:
        access: How it finds rows.
        path: Resource: `Directory(PartitionKey='Sales',RowKey='empid_000223')` or `Directory()`.
        filter: `$filter`; None without one.
        select: `$select`; None for all properties.
        top: `$top` of the first page; None for one row by its keys.
        client_side: Conditions that are evaluated here, on the rows that come back.
    """

    access: Access
    path: str
    filter: str | None
    select: tuple[str, ...] | None
    top: int | None
    client_side: tuple[str, ...]

    def __str__(self) -> str:
        options = [
            f"${name}={value}"
            for name, value in (
                ("filter", self.filter),
                ("select", None if self.select is None else ",".join(self.select)),
                ("top", self.top),
            )
            if value is not None
        ]
        return f"GET {self.path}" + ("?" + "&".join(options) if options else "")


@attrs.frozen
class Explanation:
    """
    What a query will send. Print it, assert on it, or take it as a dictionary.

    Args:
        query: The query, as text.
        access: How rows are found; of several requests the costliest.
        path: Through which keys: "primary key", or "index Employee.by_email".
        requests: In key order.
        client_side: Conditions that are evaluated here.
        min_transactions: Storage transactions that it takes at least.
        max_transactions: At most; None if that depends on how many rows there are.
        ordered: Whether results come in key order.
        concurrency: Requests that run at the same time, at most.
        follows: Whether for each row that is found its primary is read too, since copies hold keys alone.
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
    follows: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, ready for JSON."""
        found = attrs.asdict(self)
        found["access"] = self.access.value
        found["requests"] = [
            attrs.asdict(request) | {"access": request.access.value, "url": str(request)} for request in self.requests
        ]
        return found

    def __str__(self) -> str:
        lines = [self.query, f"  access: {self.access.value}, by {self.path}"]
        for request in self.requests[:_SHOWN]:
            lines.append(f"  {request.access.value}: {request}")
            lines += [f"    then here: {condition}" for condition in request.client_side]
        if self.follows:
            lines.append("  for each row found: GET the row that it is a copy of, several at the same time")
        if len(self.requests) > _SHOWN:
            lines.append(f"  ... and {len(self.requests) - _SHOWN} more requests")
        if len(self.requests) > 1:
            order = "in key order" if self.ordered else "as they come"
            lines.append(f"  {min(self.concurrency, len(self.requests))} at the same time, results {order}")
        return "\n".join([*lines, f"  cost: {self._cost()}"])

    def _cost(self) -> str:
        low, high = self.min_transactions, self.max_transactions
        if high is not None:
            return (
                f"{low} storage transaction{'s' * (low != 1)}"
                if low == high
                else f"{low} to {high} storage transactions"
            )
        text = f"{low} storage transaction{'s' * (low != 1)} at least, one more for each {MAX_PAGE} rows found"
        if self.access is Access.TABLE_SCAN:
            text += " and for each partition server on the way"
        return text


_SHOWN = 10


def explain(
    query: str, plan: QueryPlan, limit: int | None, *, ordered: bool, concurrency: int, twice: bool = False
) -> Explanation:
    """
    Explain a plan.

    Args:
        query: As text.
        plan: Its plan.
        limit: Its limit.
        ordered: Whether results come in key order.
        concurrency: Requests at the same time.
        twice: Whether a row may have to be read once more.
    """
    requests = () if limit == 0 else plan.requests
    explained = tuple(_explained(plan, request, limit) for request in requests)
    here = tuple(dict.fromkeys(text for request in explained for text in request.client_side))
    points = all(request.top is None for request in explained)
    follows, twice = plan.kinds.follows, twice or plan.kinds.follows
    # With a limit the first requests may be enough.
    least = len(explained) if limit is None else min(len(explained), 1)
    most = len(explained) * (1 + twice) if points or plan.access in (Access.POINT, Access.POINTS) else None
    access = plan.access if explained else Access.NOTHING
    copies = ", ".join(schema.name for schema in plan.kinds.schemas if isinstance(schema, IndexSchema))
    path = f"index {copies}" if copies else "primary key"
    return Explanation(
        query, access, path, explained, here, least, most, ordered=ordered, concurrency=concurrency, follows=follows
    )


def _explained(plan: QueryPlan, request: Point | Range, limit: int | None) -> ExplainedRequest:
    table = plan.kinds.table
    if isinstance(request, Point):
        keys = f"PartitionKey={_quoted(request.partition_key)},RowKey={_quoted(request.row_key)}"
        return ExplainedRequest(Access.POINT, f"{table}({keys})", None, plan.select, None, ())
    found = request.query.filter
    local = tuple(str(each.condition) for each in request.local)
    top = MAX_PAGE if limit is None or local else min(limit, MAX_PAGE)
    text = None if found is None else to_odata(found)
    return ExplainedRequest(request.access, f"{table}()", text, request.query.select, top, local)


def _quoted(key: str) -> str:
    return "'" + key.replace("'", "''") + "'"
