"""
From a store's `Fault` to the error that a user sees, which names the model and the key.
"""

from typing import TypeVar

from ..errors import (
    AccessDenied,
    AccountNotFound,
    Conflict,
    EntityExists,
    EntityNotFound,
    LimitExceeded,
    PreconditionFailed,
    TableNotFound,
    TableOrmError,
    Throttled,
    Unavailable,
)
from ..protocol.codes import THROTTLING, TRANSIENT, Code, Fault

E = TypeVar("E", bound=TableOrmError)

_ERRORS: dict[str, type[TableOrmError]] = {
    **dict.fromkeys(TRANSIENT, Unavailable),
    **dict.fromkeys(THROTTLING, Throttled),
    Code.APPEND_POSITION_NOT_MET: PreconditionFailed,
    Code.AUTHENTICATION_FAILED: AccessDenied,
    Code.BLOB_EXISTS: EntityExists,
    Code.BLOB_NOT_FOUND: EntityNotFound,
    Code.BLOCK_COUNT_EXCEEDED: LimitExceeded,
    Code.CONDITION_NOT_MET: PreconditionFailed,
    Code.CONTAINER_BEING_DELETED: Conflict,
    Code.CONTAINER_EXISTS: Conflict,
    Code.INSUFFICIENT_PERMISSIONS: AccessDenied,
    Code.NO_HOST: Unavailable,
    Code.INVALID_AUTHENTICATION_INFO: AccessDenied,
    Code.NO_AUTHENTICATION: AccessDenied,
    Code.ENTITY_TOO_LARGE: LimitExceeded,
    Code.KEY_OUT_OF_RANGE: LimitExceeded,
    Code.MESSAGE_NOT_FOUND: EntityNotFound,
    Code.MESSAGE_TOO_LARGE: LimitExceeded,
    Code.METADATA_TOO_LARGE: LimitExceeded,
    Code.PROPERTY_NAME_TOO_LONG: LimitExceeded,
    Code.POP_RECEIPT_MISMATCH: PreconditionFailed,
    Code.PROPERTY_VALUE_TOO_LARGE: LimitExceeded,
    Code.QUEUE_BEING_DELETED: Conflict,
    Code.QUEUE_EXISTS: Conflict,
    Code.REQUEST_BODY_TOO_LARGE: LimitExceeded,
    Code.TOO_MANY_PROPERTIES: LimitExceeded,
    Code.TORN_ROWS: Conflict,
}


# What there is none of, without its name in the store, which may have a prefix.
_MISSING: dict[str, str] = {
    Code.QUEUE_NOT_FOUND: "queue; create it with db.queues.create_queue()",
    Code.CONTAINER_NOT_FOUND: "container; create it with db.blobs.create_container()",
}


def with_fault(error: E, fault: Fault) -> E:
    """Return an error with what the store said, of which it keeps no frames, and which no traceback shows."""
    # What the program was handling meanwhile, the context of the first of them, keeps its own.
    seen: BaseException | None = fault
    while seen is not None:
        seen.__traceback__, seen = None, seen.__cause__
    error.fault, error.__suppress_context__ = fault, True
    return error


def translate(fault: Fault, what: str, table: str, entity: object = None, key: object = None) -> TableOrmError:
    """
    The error for a refused request. Raise it `from None`: it has the fault.

    Args:
        fault: What the store said.
        what: What was attempted on what, as the start of a sentence: "insert of Employee ('Sales', 'empid_000010')".
        table: Name of the table.
        entity: What was to be written, for `Conflict`.
        key: The key, for `EntityNotFound`.
    """
    code = fault.code
    error: TableOrmError
    if code == Code.ENTITY_EXISTS:
        error = EntityExists(
            f"{what}: table {table} has a row with this key already; read it and save, or use another key", code, entity
        )
    elif code == Code.CONDITION_NOT_SATISFIED:
        error = PreconditionFailed(
            f"{what}: the row has changed since it was read; read it again and repeat the change", code, entity
        )
    elif table and code in (Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND):
        error = EntityNotFound(f"{what}: table {table} has no such row", code, key)
    elif code == Code.TABLE_NOT_FOUND:
        error = TableNotFound(f"{what}: there is no table {table!r}; create it with db.create_tables()", code, table)
    elif code == Code.NO_ACCOUNT:
        error = AccountNotFound(
            f"{what}: the server does not know the account; check the URL passed to connect()",
            Code.RESOURCE_NOT_FOUND,
        )
    elif code in _MISSING:
        error = TableOrmError(f"{what}: there is no such {_MISSING[code]}", code)
    elif code in (Code.TABLE_EXISTS, Code.TABLE_BEING_DELETED):
        error = Conflict(f"{what}: {fault.message}", code, entity)
    else:
        kind = AccessDenied if code.startswith("Authorization") else _ERRORS.get(code, TableOrmError)
        named = f" ({code}, request ID {fault.request_id})" if fault.request_id else ""
        error = kind(f"{what}: {fault.message}{named}", code)
    return with_fault(error, fault)
