"""
Errors of SQLite and of the operating system: each is told as a fault or an error that says what to do.
"""

import errno

import apsw
import msgspec
import pytest

from tableorm.errors import AccessDenied, NotSupported, TableOrmError, Unavailable
from tableorm.protocol.codes import Code, Fault
from tableorm_local.engine.faults import fault_from, is_missing_table, open_error_from

BUSY, DENIED, BROKEN = Code.SERVER_BUSY, Code.AUTHORIZATION_FAILURE, Code.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (apsw.FullError("full"), BUSY, "the disk is full; nothing was written"),
        (OSError(errno.ENOSPC, "no space"), BUSY, "the disk is full"),
        (apsw.BusyError("busy"), BUSY, "another process holds the write lock"),
        (apsw.ReadOnlyError("read-only"), DENIED, "opened for reading only"),
        (PermissionError(errno.EACCES, "no"), DENIED, "opened for reading only"),
        (msgspec.DecodeError("JSON"), BROKEN, r"is damaged: a stored row cannot be read \(JSON\); restore a backup"),
        (RecursionError("deep"), BROKEN, "is damaged: a stored row"),
        (ValueError("value"), BROKEN, "is damaged: a stored row"),
        (apsw.CorruptError("malformed"), BROKEN, r"the file is damaged \(malformed\); restore it from a backup"),
        (apsw.IOError("disk"), BROKEN, r"failed to read or write the file \(disk\); check the disk"),
        (OSError(errno.EIO, "input"), BROKEN, "failed to read or write the file"),
        (apsw.SQLError("no such column"), BROKEN, "unexpected SQLError: no such column"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_the_fault_of_an_error(error: Exception, code: Code, said: str) -> None:
    """A fault has the code that clients go by, and names the database, the problem and the remedy."""
    with pytest.raises(Fault, match=f"'data'.*{said}") as caught:
        raise fault_from(error, "'data'")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (apsw.NotADBError("x"), NotSupported, "is not a database; give the path of another file"),
        (PermissionError("x"), AccessDenied, "permission denied; allow this user to read the file"),
        (apsw.ReadOnlyError("x"), AccessDenied, "permission denied"),
        (apsw.CorruptError("x"), Unavailable, r"is damaged \(x\); restore it from a backup"),
        (apsw.BusyError("x"), Unavailable, "is locked by another process; close that"),
        (apsw.FullError("x"), Unavailable, "the disk is full; free space, then open it again"),
        (OSError("x"), Unavailable, r"cannot be opened \(x\); check its folder and the disk"),
        (apsw.IOError("x"), Unavailable, r"cannot be opened \(x\)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_the_error_of_a_file_that_does_not_open(error: Exception, kind: type[TableOrmError], said: str) -> None:
    """It is one of the project's errors, and names the database, the problem and the remedy."""
    with pytest.raises(TableOrmError, match=f"'data'.*{said}") as caught:
        raise open_error_from(error, "'data'")
    assert type(caught.value) is kind
    if kind is AccessDenied:
        assert caught.value.code == Code.INSUFFICIENT_PERMISSIONS


@pytest.mark.parametrize(
    ("error", "is_missing"),
    [
        (apsw.SQLError("no such table: t1"), True),
        (apsw.SQLError("no such column: t1"), False),
        (apsw.CorruptError("no such table: t1"), False),
    ],
)
def test_a_statement_of_a_dropped_table_is_told_apart(error: apsw.Error, is_missing: bool) -> None:
    """Only the error that SQLite raises for a table that is not there means that the table was dropped."""
    assert is_missing_table(error) is is_missing
