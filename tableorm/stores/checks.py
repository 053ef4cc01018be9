"""
What every store checks before it performs an operation, and how a row becomes JSON.

A service would refuse the same operations, but only after the upload and with less to say. Here all backends raise the
same Fault.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..protocol.codes import Code, Fault
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS, check_text, etag_from_ticks, is_entity_tag
from ..protocol.limits import MAX_PAGE, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS, check_key, check_row
from ..protocol.sas import Action
from .tables import Operation, Row, Verb

CONDITIONAL = frozenset({Verb.MERGE, Verb.REPLACE, Verb.DELETE})
MERGES = frozenset({Verb.MERGE, Verb.INSERT_OR_MERGE})

_ACCESS = {
    Verb.INSERT: Action.INSERT,
    Verb.MERGE: Action.UPDATE,
    Verb.REPLACE: Action.UPDATE,
    Verb.INSERT_OR_MERGE: Action.UPSERT,
    Verb.INSERT_OR_REPLACE: Action.UPSERT,
    Verb.DELETE: Action.DELETE,
}
_encode = msgspec.json.Encoder().encode
_IGNORED = tuple(sorted((SYSTEM_MEMBERS | {name + ANNOTATION for name in SYSTEM_MEMBERS}) - {"PartitionKey", "RowKey"}))


def access_of(verb: Verb) -> Action:
    """Return the right that an operation needs. Source: REST, "Create a service SAS", "Permissions for a table"."""
    return _ACCESS[verb]


def check_if_match(verb: Verb, tag: str | None) -> str | None:
    """
    Return the ETag that an operation sends, without blanks around it.

    Raises:
        Fault: InvalidInput: the ETag is missing, malformed, or given for a verb that takes none.
    """
    if verb in CONDITIONAL:
        if tag is None:
            raise Fault(Code.INVALID_INPUT, f"A {verb} needs If-Match: the row's ETag, or '*' for any.")
        tag = tag.strip()
        if tag != "*" and not is_entity_tag(tag):
            raise Fault(
                Code.INVALID_INPUT, f"If-Match {tag[:80]!r} is neither '*' nor an ETag such as {etag_from_ticks(0)}."
            )
    elif tag is not None:
        raise Fault(Code.INVALID_INPUT, f"An {verb} takes no If-Match (got {tag[:80]!r}); use merge or replace.")
    return tag


def clean_row(row: Row, partition_key: str, row_key: str) -> Row:
    """
    Return the row without what is not stored: nulls, and members that belong to the service.

    A row that has none of these is returned itself, not copied.
    """
    if None not in row.values() and row.keys().isdisjoint(_IGNORED):
        return row
    clean: Row = {"PartitionKey": partition_key, "RowKey": row_key}
    for name, value in row.items():
        if value is not None and name not in _IGNORED and name not in clean:
            clean[name] = value
    for name, value in row.items():
        if value is None:  # a null has no type
            clean.pop(name + ANNOTATION, None)
    return clean


def encode_row(clean: Row) -> bytes:
    """
    Encode a row as JSON.

    Raises:
        Fault: InvalidInput: the service cannot store a value; the message names its property.
    """
    try:
        return _encode(clean)
    except (TypeError, ValueError, OverflowError) as error:
        check_row(clean)
        for name, value in clean.items():
            fault = check_text(value) if isinstance(value, str) else None
            if fault:
                raise Fault(Code.INVALID_INPUT, f"{name}: the text {fault}.", property=name) from None
        raise Fault(Code.INVALID_INPUT, f"The row is not valid JSON: {error}.") from None


def check_page_limit(limit: int) -> None:
    """
    Refuse a page size that the service would refuse.

    Raises:
        Fault: InvalidInput.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise Fault(Code.INVALID_INPUT, f"A page has 1 to {MAX_PAGE} rows (got {limit}).")


def project(row: Row, select: Sequence[str]) -> Row:
    """Return the ETag and the named properties of a row with their types; an absent one is None."""
    result: Row = {"odata.etag": row["odata.etag"]} if "odata.etag" in row else {}
    for name in select:
        result[name] = row.get(name)
        annotation = name + ANNOTATION
        if annotation in row:
            result[annotation] = row[annotation]
    return result


def check_transaction(operations: Sequence[Operation]) -> None:
    """
    Check a transaction as a whole: its number of operations, that they share a partition, that no row occurs twice.

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
                Code.DUPLICATE_ROW,
                f"The batch request contains RowKey {row_key[:80]!r} twice; a row occurs once.",
                index,
            )
        seen.add(row_key)


def check_transaction_size(size: int) -> None:
    """
    Refuse a transaction whose rows together have more than `MAX_TRANSACTION_BYTES` as JSON.

    Raises:
        Fault: RequestBodyTooLarge.
    """
    if size > MAX_TRANSACTION_BYTES:
        raise Fault(
            Code.REQUEST_BODY_TOO_LARGE,
            f"The request body is too large: {size} bytes or more, {MAX_TRANSACTION_BYTES} are allowed.",
        )


def with_index(fault: Fault, index: int) -> Fault:
    """Return the fault as that of operation `index` of a transaction."""
    code, message, _, *rest = fault.args
    return Fault(code, message, index, *rest)
