"""
What a page of the documentation shows of the requests that its code sends: `sent = Sent(db)` in hidden code at its
beginning, and later `<!-- output of sent.show() -->` before what was sent.
"""

import json
import re
from collections.abc import Iterator

from tableorm import Database, ObservedRequest
from tableorm.stores import METHODS, Operation, Verb


class Sent:
    """
    The requests of an open database, written as the service gets them before percent-encoding.

    Args:
        db: The database, observed from now on.
    """

    def __init__(self, db: Database) -> None:
        self._lines: list[str] = []
        self._seen = db.observe(lambda request: self._lines.extend(_lines_of(request)), show_values=True)
        self._seen.__enter__()

    def show(self) -> None:
        """Print the requests since the last call."""
        print(*self._lines, sep="\n")
        self._lines.clear()

    def forget(self) -> None:
        """Leave out the requests since the last call."""
        self._lines.clear()


def _lines_of(request: ObservedRequest) -> Iterator[str]:
    if request.operation == "get":
        yield request.line
    elif request.operation == "query":
        top = [] if request.top is None else [f"$top={request.top}"]
        chosen = [] if request.select is None else ["$select=" + ",".join(request.select)]
        terms = _terms_of(request.filter) if request.filter else []
        yield f"GET {request.table}()?" + "&".join([*top, *chosen, *["$filter="] * bool(terms)])
        yield from ("    " + "and " * (number > 0) + term for number, term in enumerate(terms))
    else:
        indent = "  " * (request.operation == "transaction")
        if indent:
            yield "POST $batch"
        for operation in request.operations:
            yield from (indent + line for line in _write_lines(request.table, operation))


def _terms_of(condition: str) -> list[str]:
    """Return the conditions that must all hold; none of them has parentheses within parentheses."""
    if " or " in re.sub("[(][^)]*[)]", "", condition):
        return [condition]
    return re.split(" and (?![^(]*[)])", condition)


def _write_lines(table: str, operation: Operation) -> Iterator[str]:
    verb, row = operation.verb, dict(operation.row)
    if verb is Verb.INSERT:
        yield f"POST {table}"
    else:
        yield f"{METHODS[verb]} {table}(PartitionKey='{row.pop('PartitionKey')}',RowKey='{row.pop('RowKey')}')"
        if operation.if_match is not None:
            yield "If-Match: " + ("*" if operation.if_match == "*" else "the ETag")
    if verb is not Verb.DELETE:
        for name in {"_w", "Feed"} & row.keys():  # differ in each run
            row[name] = re.sub("[^,]+", "TOKEN", row[name])
        yield json.dumps(row)
