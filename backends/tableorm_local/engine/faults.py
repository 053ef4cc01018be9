"""
Faults of errors: the one place that translates the errors of SQLite and of the operating system.
"""

import errno

import apsw
import msgspec

from tableorm.errors import AccessDenied, NotSupported, TableOrmError, Unavailable
from tableorm.protocol.codes import Code, Fault

DAMAGE = (msgspec.DecodeError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What reading raises if something is stored that the engine never writes."""


def is_missing_table(error: apsw.Error) -> bool:
    """Return whether a statement failed because another connection dropped its table."""
    return isinstance(error, apsw.SQLError) and str(error).startswith("no such table")


def missing_table_fault() -> Fault:
    """Return the service's fault for a table that does not exist."""
    return Fault(Code.TABLE_NOT_FOUND, "The table specified does not exist.")


def not_found_fault() -> Fault:
    """Return the service's fault for a row, or a table to delete, that does not exist."""
    return Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")


def fault_from(error: BaseException, name: str) -> Fault:
    """
    Return the fault for an error in the database `name`.
    """
    if isinstance(error, Fault):
        return error
    if isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno in _FULL):
        return Fault(
            Code.SERVER_BUSY,
            f"{name}: the disk is full; nothing was written. Free space (deleting rows or tables makes room inside the "
            "file), then try again.",
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return busy_fault(name)
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, PermissionError)):
        return read_only_fault(name)
    if isinstance(error, DAMAGE):
        return damage_fault(name, error)
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError, apsw.TooBigError)):
        return Fault(Code.INTERNAL_ERROR, f"{name}: the file is damaged ({error}); restore it from a backup.")
    if isinstance(error, (apsw.IOError, apsw.CantOpenError, OSError)):
        return Fault(
            Code.INTERNAL_ERROR,
            f"{name}: the operating system failed to read or write the file ({error}); check the disk.",
        )
    return Fault(Code.INTERNAL_ERROR, f"{name}: unexpected {type(error).__name__}: {error}.")


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def busy_fault(name: str) -> Fault:
    """Return the fault of a request that waited for another process until its time was over."""
    return Fault(
        Code.SERVER_BUSY,
        f"{name}: another process holds the write lock and did not give it back in time; try again, or open with a "
        "longer `timeout`.",
    )


def damage_fault(name: str, error: BaseException) -> Fault:
    """Return the fault for a stored row that is not what was written."""
    return Fault(Code.INTERNAL_ERROR, f"{name} is damaged: a stored row cannot be read ({error}); restore a backup.")


def read_only_fault(name: str) -> Fault:
    """Return the fault of a write to a file that can only be read."""
    return Fault(
        Code.AUTHORIZATION_FAILURE,
        f"{name}: opened for reading only, because the permissions of the file or its folder allow no more; nothing "
        "was written. Make both writable, then open it again.",
    )


def open_error_from(error: Exception, name: str) -> TableOrmError:
    """
    Return the error that says why the database `name` does not open.
    """
    if isinstance(error, apsw.NotADBError):
        return NotSupported(f"{name} is not a database; give the path of another file.")
    if isinstance(error, (PermissionError, apsw.PermissionsError, apsw.ReadOnlyError, apsw.AuthError)):
        return AccessDenied(
            f"{name}: permission denied; allow this user to read the file and to write to its folder.",
            Code.INSUFFICIENT_PERMISSIONS,
        )
    if isinstance(error, (apsw.CorruptError, apsw.TooBigError, *DAMAGE)):
        return Unavailable(f"{name} is damaged ({error}); restore it from a backup.")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return Unavailable(f"{name} is locked by another process; close that, or open with a longer `timeout`.")
    if isinstance(error, apsw.FullError):
        return Unavailable(f"{name}: the disk is full; free space, then open it again.")
    return Unavailable(f"{name} cannot be opened ({error}); check its folder and the disk.")
