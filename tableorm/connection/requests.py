"""
Requests as people and programs see them: the record of one that was sent, and its text.
"""

import attrs
import msgspec

from ..protocol.redaction import escape_unprintable
from ..stores import METHODS, Operation, RowAddress

OK = "ok"
"""The outcome of a request that succeeded."""

_OTHER = {
    "create-table": "POST Tables('{table}')",
    "delete-table": "DELETE Tables('{table}')",
    "list-tables": "GET Tables",
    "get-policies": "GET {table}?comp=acl",
    "set-policies": "PUT {table}?comp=acl",
    "create-queue": "PUT {table}",
    "delete-queue": "DELETE {table}",
    "list-queues": "GET ?comp=list",
    "queue-length": "GET {table}?comp=metadata",
    "put-message": "POST {table}/messages",
    "take-messages": "GET {table}/messages",
    "renew-message": "PUT {table}/messages/ID",
    "delete-message": "DELETE {table}/messages/ID",
    "peek-messages": "GET {table}/messages?peekonly=true",
    "clear-messages": "DELETE {table}/messages",
    "create-container": "PUT {table}",
    "delete-container": "DELETE {table}",
    "list-containers": "GET ?comp=list",
    "blob-info": "HEAD {table}/BLOB",
    "get-blob": "GET {table}/BLOB",
    "put-blob": "PUT {table}/BLOB",
    "append-blob": "PUT {table}/BLOB?comp=appendblock",
    "delete-blob": "DELETE {table}/BLOB",
    "list-blobs": "GET {table}?comp=list",
}

_NAMED = 5  # operations of a transaction on its line
_KEYS = frozenset({"PartitionKey", "RowKey"})


def row_path(address: RowAddress) -> str:
    """Return the path of a row, before percent-encoding: `Directory(PartitionKey='Sales',RowKey='empid_000010')`."""
    return f"{address.table}(PartitionKey={_quote(address.partition_key)},RowKey={_quote(address.row_key)})"


def _quote(key: str) -> str:
    return "'" + key.replace("'", "''") + "'"


def request_line(path: str, filter: str | None, select: tuple[str, ...] | None, top: int | None) -> str:  # noqa: A002 - the service's word
    """Return a request that reads, before percent-encoding: `GET Directory()?$filter=PartitionKey eq 'Sales'`."""
    options = {"filter": filter, "select": None if select is None else ",".join(select), "top": top}
    given = [f"${name}={value}" for name, value in options.items() if value is not None]
    return f"GET {path}" + ("?" + "&".join(given) if given else "")


def _values(operation: Operation) -> str:
    """Return the values that an operation writes, as far as it has them."""
    values = {name: value for name, value in operation.row.items() if name not in _KEYS}
    return f" {msgspec.json.encode(values).decode()}" if values else ""


@attrs.frozen(kw_only=True)
class ObservedRequest:
    """
    A request that was sent, and its outcome. Every attempt of a retried request is one of its own.

    It contains no property values unless you asked for them: in a filter, `{}` replaces every constant that isn't
    compared with PartitionKey or RowKey, and operations only have their keys.

    Args:
        operation: What it does: "get", "query", the value of a `tableorm.stores.Verb` such as "merge", "transaction",
            "create-table", "delete-table", "list-tables", "get-policies", "set-policies", or "ping" (with a token;
            without one, a ping lists the tables); for queues "create-queue", "delete-queue", "list-queues",
            "queue-length", "put-message", "take-messages", "peek-messages", "renew-message", "delete-message", or
            "clear-messages"; for blobs "create-container", "delete-container", "list-containers", "blob-info",
            "get-blob", "put-blob", "append-blob", "delete-blob", or "list-blobs".
        table: The name of the table, queue or container; "" if there is none.
        model: The model that it is for, or the index, such as "Order.by_status", if the program named one. For a
            transaction, the model of its first operation; "" if there is none.
        partition_key: The PartitionKey of the row or the transaction; None for other requests.
        row_key: The RowKey of the row; None for other requests.
        filter: `$filter` of a query, or None.
        select: The requested properties; None for all.
        top: The maximum number of rows that a query requests.
        operations: The operations of a write or a transaction.
        rows: The number of rows read, written or deleted.
        bytes_sent: The size of the request bodies in bytes; None if the backend doesn't report it, like the embedded
            engine.
        bytes_received: The size of the response bodies in bytes; None if the backend doesn't report it.
        seconds: How long it took. The pause before a retry counts towards the retry.
        attempt: Which attempt this was, from 1.
        outcome: "ok", the service's error code, or the class of another error, such as "CancelledError".
    """

    operation: str
    table: str
    model: str
    partition_key: str | None = None
    row_key: str | None = None
    filter: str | None = None
    select: tuple[str, ...] | None = None
    top: int | None = None
    operations: tuple[Operation, ...] = ()
    rows: int = 0
    bytes_sent: int | None = None
    bytes_received: int | None = None
    seconds: float = 0.0
    attempt: int = 1
    outcome: str = OK

    @property
    def line(self) -> str:
        """
        The request in one line, as the service receives it before percent-encoding, with the keys from an insert's
        body, and the values of a write if you asked for them.
        """
        if self.operation == "transaction":
            named = [f"{each.verb} {_quote(each.row['RowKey'])}{_values(each)}" for each in self.operations[:_NAMED]]
            rest = len(self.operations) - len(named)
            more = [f"and {rest} more"] if rest else []
            keys = f"PartitionKey={_quote(self.partition_key or '')}"
            text = f"POST $batch of {self.table}({keys}): {', '.join([*named, *more])}"
        elif self.partition_key is not None and self.row_key is not None:
            path = row_path(RowAddress(self.table, self.partition_key, self.row_key))
            method = METHODS.get(self.operation)  # type: ignore[call-overload]
            text = request_line(path, None, self.select, None) if method is None else f"{method} {path}"
            text += "".join(map(_values, self.operations))
        elif self.operation == "query":
            text = request_line(f"{self.table}()", self.filter, self.select, self.top)
        else:
            text = _OTHER.get(self.operation, self.operation).format(table=self.table)
        return escape_unprintable(text)

    def __str__(self) -> str:
        told = [self.outcome]
        if self.outcome == OK and self.rows:
            told.append(f"{self.rows} row{'s' * (self.rows != 1)}")
        if self.bytes_sent is not None or self.bytes_received is not None:
            told.append(f"{(self.bytes_sent or 0) + (self.bytes_received or 0)} bytes")
        told.append(f"{1000 * self.seconds:.1f} ms")
        if self.attempt > 1:
            told.append(f"attempt {self.attempt}")
        return f"{self.line} -> {escape_unprintable(', '.join(told))}"
