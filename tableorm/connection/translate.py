"""
From a store's `Fault` to the error that a user sees, which names the model and the key.
"""

from ..errors import (
    AccessDenied,
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

__all__ = ["translate"]

_LIMITS = frozenset(
    {
        Code.ENTITY_TOO_LARGE,
        Code.KEY_OUT_OF_RANGE,
        Code.PROPERTY_NAME_TOO_LONG,
        Code.PROPERTY_VALUE_TOO_LARGE,
        Code.REQUEST_BODY_TOO_LARGE,
        Code.TOO_MANY_PROPERTIES,
    }
)
_DENIED = frozenset(
    {
        Code.AUTHENTICATION_FAILED,
        Code.INSUFFICIENT_PERMISSIONS,
        Code.INVALID_AUTHENTICATION_INFO,
        Code.NO_AUTHENTICATION,
    }
)


def translate(fault: Fault, what: str, table: str, entity: object = None, key: object = None) -> TableOrmError:
    """
    The error for a refused request.

    Args:
        fault: What the store said.
        what: What was attempted on what, as the start of a sentence: "insert of Employee ('Sales', 'empid_000010')".
        table: Name of the table.
        entity: What was to be written, for `Conflict`.
        key: The key, for `EntityNotFound`.
    """
    code = fault.code
    if code == Code.ENTITY_EXISTS:
        return EntityExists(
            f"{what}: table {table} has a row with this key already; read it and save, or use another key", code, entity
        )
    if code == Code.CONDITION_NOT_SATISFIED:
        return PreconditionFailed(
            f"{what}: the row has changed since it was read; read it again and repeat the change", code, entity
        )
    if table and code in (Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND):
        return EntityNotFound(f"{what}: table {table} has no such row", code, key)
    if code == Code.TABLE_NOT_FOUND:
        return TableNotFound(f"{what}: there is no table {table!r}; create it with db.create_tables()", code, table)
    if code in _LIMITS:
        return LimitExceeded(f"{what}: {fault.message}", code)
    if code.startswith("Authorization") or code in _DENIED:
        return AccessDenied(f"{what}: {fault.message}", code)
    if code in THROTTLING:
        return Throttled(f"{what}: {fault.message}", code)
    if code in TRANSIENT:
        return Unavailable(f"{what}: {fault.message}", code)
    if code in (Code.TABLE_EXISTS, Code.TABLE_BEING_DELETED):
        return Conflict(f"{what}: {fault.message}", code, entity)
    return TableOrmError(f"{what}: {fault.message}", code)
