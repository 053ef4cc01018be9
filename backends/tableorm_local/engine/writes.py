"""
Writes of rows: each request is checked and encoded when it arrives, so that inside the transaction only SQL remains.

A row is stored as the JSON that the service sends at minimalmetadata: ETag, Timestamp, keys, properties.
"""

from collections.abc import Callable, Sequence
from typing import Any

import apsw
import attrs
import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import (
    ANNOTATION,
    SYSTEM_MEMBERS,
    check_text,
    etag_from_ticks,
    text_from_ticks,
    timestamp_of_etag,
)
from tableorm.protocol.limits import (
    MAX_CUSTOM_PROPERTIES,
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_OPERATIONS,
    MAX_VALUE_BYTES,
    check_key,
    check_properties,
    check_row,
)
from tableorm.stores import Operation, Row, Verb

from .catalog import Table, key_of
from .faults import is_missing_table, table_not_found
from .session import Session, Steps
from .sqlite import Connection

__all__ = [
    "Write",
    "check_transaction",
    "check_transaction_size",
    "decode",
    "prepare",
    "transaction",
    "with_index",
    "write",
]

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Row)
_CONDITIONAL = frozenset({Verb.MERGE, Verb.REPLACE, Verb.DELETE})
_IGNORED = tuple(sorted((SYSTEM_MEMBERS | {name + ANNOTATION for name in SYSTEM_MEMBERS}) - {"PartitionKey", "RowKey"}))
_MERGES = frozenset({Verb.MERGE, Verb.INSERT_OR_MERGE})


decode: Callable[[bytes], Row] = _decoder.decode
"""The row of a stored body."""


@attrs.define
class Write:
    """
    One operation, checked and encoded.

    Args:
        verb: What to do.
        key: The row's key in the B-tree.
        payload: The row as JSON without ETag and Timestamp; empty for a delete.
        row: For a merge, what `payload` was made from.
        if_match: The ETag that the row must have, "*" for any; None if it need not exist.
    """

    verb: Verb
    key: bytes
    payload: bytes
    row: Row | None
    if_match: str | None


def prepare(operation: Operation, *, keys_checked: bool = False) -> Write:
    """
    Check and encode an operation.

    Args:
        operation: What was asked.
        keys_checked: Whether its keys are known to be right.

    Raises:
        Fault: The service would refuse it, whatever is stored.
    """
    verb, row = operation.verb, operation.row
    if not keys_checked:
        check_key("PartitionKey", row.get("PartitionKey"))
        check_key("RowKey", row.get("RowKey"))
    partition_key, row_key = row["PartitionKey"], row["RowKey"]
    if_match = _check_if_match(verb, operation.if_match)
    key = key_of(partition_key, row_key)
    if verb is Verb.DELETE:
        return Write(verb, key, b"", None, if_match)
    clean = _clean(row, partition_key, row_key)
    payload = _encode_payload(clean)
    check_properties(clean, len(payload))
    return Write(verb, key, payload, clean if verb in _MERGES else None, if_match)


def _check_if_match(verb: Verb, tag: str | None) -> str | None:
    if verb in _CONDITIONAL:
        if tag is None:
            raise Fault(Code.INVALID_INPUT, f"A {verb} needs If-Match: the row's ETag, or '*' for any.")
        tag = tag.strip()
        if tag != "*" and timestamp_of_etag(tag) is None:
            raise Fault(
                Code.INVALID_INPUT, f"If-Match {tag[:80]!r} is neither '*' nor an ETag such as {etag_from_ticks(0)}."
            )
    elif tag is not None:
        raise Fault(Code.INVALID_INPUT, f"An {verb} takes no If-Match (got {tag[:80]!r}); use a merge or replace.")
    return tag


def _clean(row: Row, partition_key: str, row_key: str) -> Row:
    """The row without what is not stored: nulls, and members that belong to the service."""
    if None not in row.values() and row.keys().isdisjoint(_IGNORED):
        return row
    clean: Row = {"PartitionKey": partition_key, "RowKey": row_key}
    for name, value in row.items():
        if value is not None and name not in _IGNORED and name not in clean:
            clean[name] = value
    _drop_stray_annotations(clean, row)
    return clean


def _drop_stray_annotations(clean: Row, row: Row) -> None:
    # A null has no type.
    for name, value in row.items():
        if value is None:
            clean.pop(name + ANNOTATION, None)


def _encode_payload(clean: Row) -> bytes:
    try:
        return _encode(clean)
    except (TypeError, ValueError, OverflowError) as error:
        check_row(clean)
        for name, value in clean.items():
            fault = check_text(value) if isinstance(value, str) else None
            if fault:
                raise Fault(Code.INVALID_INPUT, f"{name}: the text {fault}.", property=name) from None
        raise Fault(Code.INVALID_INPUT, f"The row is not valid JSON: {error}.") from None


def check_transaction(operations: Sequence[Operation]) -> None:
    """
    Check what holds of a transaction as a whole: count, one partition, each row once.

    Raises:
        Fault: `index` names the first operation at fault.
    """
    count = len(operations)
    if not 1 <= count <= MAX_TRANSACTION_OPERATIONS:
        raise Fault(
            Code.INVALID_INPUT, f"A transaction has 1 to {MAX_TRANSACTION_OPERATIONS} operations; this one has {count}."
        )
    first: Any = ""
    seen: set[str] = set()
    for index, operation in enumerate(operations):
        row = operation.row
        partition_key: Any = row.get("PartitionKey")
        try:
            if index == 0 or partition_key != first:
                check_key("PartitionKey", partition_key)
            row_key = check_key("RowKey", row.get("RowKey"))
        except Fault as fault:
            raise with_index(fault, index) from None
        if index == 0:
            first = partition_key
        elif partition_key != first:
            raise Fault(
                Code.BATCH_PARTITIONS,
                "All commands in a batch must operate on same entity group: "
                f"PartitionKey {partition_key[:80]!r} differs from {first[:80]!r} of the first.",
                index,
            )
        if row_key in seen:
            raise Fault(
                Code.DUPLICATE_ROW, f"The batch request contains RowKey {row_key[:80]!r} twice; each row once.", index
            )
        seen.add(row_key)


def check_transaction_size(size: int) -> None:
    """
    Refuse a transaction whose rows together have more than `MAX_TRANSACTION_BYTES` as JSON.
    """
    if size > MAX_TRANSACTION_BYTES:
        raise Fault(
            Code.REQUEST_BODY_TOO_LARGE,
            f"The request body is too large: {size} bytes or more, {MAX_TRANSACTION_BYTES} are allowed.",
        )


def with_index(fault: Fault, index: int) -> Fault:
    """The same fault, of operation `index` of a transaction."""
    return Fault(fault.code, fault.message, index, fault.property, fault.doubt, fault.retry_after)


def write(session: Session, table: Table, item: Write) -> str | None:
    """Do a single write; returns the row's new ETag, None after a delete."""
    try:
        return _apply(session, table, item)
    except apsw.SQLError as error:
        if not is_missing_table(error):
            raise
    return _apply(session, _again(session, table), item)


def transaction(session: Session, table: Table, items: Sequence[Write]) -> Steps:
    """Do several writes of one partition, all or nothing; returns what `write` does, for each."""
    try:
        return (yield from _all_or_nothing(session, table, items))
    except apsw.SQLError as error:
        if not is_missing_table(error):
            raise
    return (yield from _all_or_nothing(session, _again(session, table), items))


def _again(session: Session, table: Table) -> Table:
    # Dropped by another connection since its name was looked up; it may have been created again.
    table.stale = True
    again = session.table(table.folded)
    if again is None:
        raise table_not_found()
    return again


def _all_or_nothing(session: Session, table: Table, items: Sequence[Write]) -> Steps:
    connection = session.connection
    connection.execute("SAVEPOINT request")
    results: list[str | None] = []
    try:
        for item in items:
            try:
                results.append(_apply(session, table, item))
            except Fault as fault:
                raise with_index(fault, len(results)) from None
            yield
    except (Fault, apsw.SQLError):
        connection.execute("ROLLBACK TO request")
        connection.execute("RELEASE request")
        raise
    connection.execute("RELEASE request")
    return results


def _apply(session: Session, table: Table, item: Write) -> str | None:
    connection, verb, key = session.connection, item.verb, item.key
    if item.if_match is not None:
        _check_condition(connection, table, key, item.if_match)
    if verb is Verb.DELETE:
        session.tick()
        connection.execute(table.delete, (key,))
        session.dirty = True
        return None
    payload = item.payload
    if item.row is not None:
        stored: bytes | None = connection.execute(table.read, (key,)).get
        if stored is not None:
            payload = _merged(decode(stored), item.row)
    tick = session.tick()
    text = text_from_ticks(tick)
    escaped = text.replace(":", "%3A")
    # Joined by hand: encoding the whole again only to put two members in front would double the work.
    head = f'{{"odata.etag":"W/\\"datetime\'{escaped}\'\\"","Timestamp":"{text}",'.encode("ascii")
    body = head + payload[1:]
    if verb is Verb.INSERT:
        connection.execute(table.insert, (key, tick, body))
        if not connection.changes():
            raise Fault(Code.ENTITY_EXISTS, "The specified entity already exists.")
    else:
        connection.execute(table.put, (key, tick, body))
    session.dirty = True
    return f"W/\"datetime'{escaped}'\""


def _check_condition(connection: Connection, table: Table, key: bytes, tag: str) -> None:
    tick: int | None = connection.execute(table.tick, (key,)).get
    if tick is None:
        raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")
    if tag != "*" and tag != etag_from_ticks(tick):
        raise Fault(Code.CONDITION_NOT_SATISFIED, "The update condition specified in the request was not satisfied.")


def _merged(stored: Row, row: Row) -> bytes:
    del stored["odata.etag"], stored["Timestamp"]
    for name in row:
        # The new value may be of another type, one that JSON tells.
        stored.pop(name + ANNOTATION, None)
    stored.update(row)
    payload = _encode(stored)
    # The parts were checked when they came; only their sum can be too much.
    if len(payload) > MAX_VALUE_BYTES // 2 or len(stored) > MAX_CUSTOM_PROPERTIES:
        check_row(stored, len(payload))
    return payload
