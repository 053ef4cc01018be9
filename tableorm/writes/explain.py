"""
What a write would send, as a value that can be printed and compared: `db.explain_write`.
"""

import attrs
import msgspec
from msgspec import structs

from ..stores import Operation, Verb
from . import plan_writes
from .commit import derived_plan
from .complete import needs_row
from .derive import derive, derives
from .encode import encode
from .plan import Change, Mode, WritePlan

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
        steps: The operations.
        transaction: Whether those that write go as one request, an entity group transaction.
    """

    steps: tuple[WriteStep, ...]
    transaction: bool = False

    @property
    def cost(self) -> int:
        """Storage transactions, as they are billed: one for each request."""
        reads = sum(step.method == "GET" for step in self.steps)
        return reads + 1 if self.transaction else len(self.steps)

    @property
    def bytes_sent(self) -> int:
        """Bytes of all bodies that are known."""
        return sum(len(step.body or b"") for step in self.steps)

    def __str__(self) -> str:
        noun = "request" if self.cost == 1 else "requests"
        reads = [str(step) for step in self.steps if step.method == "GET"]
        writes = [str(step) for step in self.steps if step.method != "GET"]
        if self.transaction:
            writes = ["POST /$batch", *("  " + text.replace("\n", "\n  ") for text in writes)]
        return "\n".join([*reads, *writes, f"({self.cost} {noun}, {self.bytes_sent} bytes)"])


AS_READ = "the ETag that was read"


def explain(change: Change) -> WriteExplanation:
    """
    The requests of a change.

    Raises:
        EncodeError: A value does not fit its field.
        LimitExceeded: A limit of the service would be passed.
    """
    path = _path(change.table, change.partition_key, change.row_key)
    if needs_row(change):
        etag = AS_READ if change.if_match in (None, "*") else change.if_match
        method = "DELETE" if change.mode is Mode.DELETE else "PUT"
        guarded = change.schema is not None and change.schema.guarded
        return WriteExplanation((WriteStep("GET", path), WriteStep(method, path, etag, None)), transaction=guarded)
    write = encode(change, 0, _TOKEN)
    if write is None:
        return WriteExplanation(())
    if not derives(write):
        plan = plan_writes((write,))
        return WriteExplanation((_step(plan, write.operation),))
    derived = derive((write,))
    read = [effect for effect in derived.effects.values() if effect.reads]
    known = {address: effect for address, effect in derived.effects.items() if not effect.reads}
    plan = derived_plan(structs.replace(derived, effects=known, fills=[]), {}, transaction=False)
    paths = [_path(change.table, change.partition_key, effect.address) for effect in read]
    steps = [WriteStep("GET", each) for each in paths]
    steps += (_step(plan, each.operation) for each in plan.writes)
    steps += (WriteStep("PATCH", each, AS_READ, None) for each in paths)
    return WriteExplanation(tuple(steps), len(steps) - len(paths) > 1)


def _step(plan: WritePlan, operation: Operation) -> WriteStep:
    verb, row = operation.verb, operation.row
    if verb is Verb.INSERT:
        return WriteStep("POST", f"/{plan.table}", None, msgspec.json.encode(row))
    path = _path(plan.table, row["PartitionKey"], row["RowKey"])
    properties = {name: value for name, value in row.items() if name not in ("PartitionKey", "RowKey")}
    body = b"" if verb is Verb.DELETE else msgspec.json.encode(properties)
    return WriteStep(_METHODS[verb], path, operation.if_match, body)


def _path(table: str, partition_key: str, row_key: str) -> str:
    quoted = [key.replace("'", "''") for key in (partition_key, row_key)]
    return f"/{table}(PartitionKey='{quoted[0]}',RowKey='{quoted[1]}')"
