"""
What a write would send, as a value that can be printed and compared: `db.explain_write`.
"""

import attrs
import msgspec

from ..stores import Verb
from .check import check
from .complete import needs_row
from .encode import encode
from .place import place
from .plan import Change

__all__ = ["WriteExplanation", "WriteStep", "explain"]

_METHODS = {
    Verb.INSERT: "POST",
    Verb.MERGE: "PATCH",
    Verb.REPLACE: "PUT",
    Verb.INSERT_OR_MERGE: "PATCH",
    Verb.INSERT_OR_REPLACE: "PUT",
    Verb.DELETE: "DELETE",
}
_TOKEN = "-" * 12  # a real one is drawn when it is sent


@attrs.frozen
class WriteStep:
    """
    One request.

    Args:
        method: GET, POST (insert), PATCH (merge), PUT (replace) or DELETE.
        path: Table and keys.
        if_match: The ETag in `If-Match`, "*", or None if there is no such header: PATCH and PUT are then upserts.
        body: The row as JSON; None if it depends on what is read before. A write token in it stands as `------------`.
    """

    method: str
    path: str
    if_match: str | None = None
    body: bytes | None = b""

    def __str__(self) -> str:
        lines = [f"{self.method} {self.path}"]
        if self.if_match is not None:
            lines.append(f"If-Match: {self.if_match}")
        if self.body is None:
            lines.append("(what was read, with what is to be written)")
        elif self.body:
            lines.append(self.body.decode("utf-8"))
        return "\n".join(lines)


@attrs.frozen
class WriteExplanation:
    """
    What a write sends, in order; nothing if nothing changed.

    Args:
        steps: The requests.
    """

    steps: tuple[WriteStep, ...]

    @property
    def cost(self) -> int:
        """Storage transactions, as they are billed: one for each request."""
        return len(self.steps)

    @property
    def bytes_sent(self) -> int:
        """Bytes of all bodies that are known."""
        return sum(len(step.body or b"") for step in self.steps)

    def __str__(self) -> str:
        noun = "request" if self.cost == 1 else "requests"
        return "\n".join([*map(str, self.steps), f"({self.cost} {noun}, {self.bytes_sent} bytes)"])


AS_READ = "the ETag that was read"


def explain(change: Change) -> WriteExplanation:
    """
    The requests of a change.

    Raises:
        EncodeError: A value does not fit its field.
        LimitExceeded: A limit of the service would be passed.
    """
    quoted = [key.replace("'", "''") for key in (change.partition_key, change.row_key)]
    path = f"/{change.table}(PartitionKey='{quoted[0]}',RowKey='{quoted[1]}')"
    if needs_row(change):
        etag = AS_READ if change.if_match in (None, "*") else change.if_match
        return WriteExplanation((WriteStep("GET", path), WriteStep("PUT", path, etag, None)))
    write = encode(change, 0, _TOKEN)
    if write is None:
        return WriteExplanation(())
    check(place((write,)))
    verb, row = write.operation.verb, write.operation.row
    if verb is Verb.INSERT:
        return WriteExplanation((WriteStep("POST", f"/{change.table}", None, msgspec.json.encode(row)),))
    properties = {name: value for name, value in row.items() if name not in ("PartitionKey", "RowKey")}
    body = b"" if verb is Verb.DELETE else msgspec.json.encode(properties)
    return WriteExplanation((WriteStep(_METHODS[verb], path, write.operation.if_match, body),))
