"""
The writes that a page of the documentation shows: hidden code of the page notes them, and markers print them.

    sent = Requests(db)
    <!-- output of sent() -->           the writes since the last time, in the form in which the Table service gets them
    <!-- output of sent(last=1) -->     the last one of them
"""

import json

from tableorm import Database, ObservedRequest
from tableorm.stores import METHODS, Operation, Verb

__all__ = ["Requests"]


class Requests:
    """The writes to a database from now on."""

    def __init__(self, db: Database) -> None:
        self._noted: list[str] = []
        db.observe(self._note, show_values=True).__enter__()

    def _note(self, request: ObservedRequest) -> None:
        lines = ["POST $batch"] if request.operation == "transaction" else []
        lines += [_text(request.table, operation) for operation in request.operations]
        if lines:
            self._noted.append("\n".join(lines))

    def __call__(self, last: int = 0) -> None:
        """Print what was not printed yet, or the last writes of that, and forget it."""
        print("\n".join(self._noted[-last:]))
        self._noted.clear()


def _text(table: str, operation: Operation) -> str:
    row = dict(operation.row)
    if operation.verb is Verb.INSERT:
        lines = [f"POST {table}"]
    else:
        keys = f"PartitionKey='{row.pop('PartitionKey')}',RowKey='{row.pop('RowKey')}'"
        lines = [f"{METHODS[operation.verb]} {table}({keys})"]
    if operation.if_match is not None:
        lines.append("If-Match: " + ("*" if operation.if_match == "*" else "the ETag"))
    if operation.verb is not Verb.DELETE:
        lines.append(json.dumps(row))
    return "\n".join(lines)
