"""
Backups: a copy of a file as it is at one moment, while programs write.
"""

import errno
import os
from pathlib import Path

import apsw

from tableorm.errors import Unavailable
from tableorm.stores.draft import write_draft

from .damage import find_damage
from .faults import open_error_from
from .files import connect_immutable, open_file

_TIMEOUT = 30.0  # seconds to wait for other processes at most
_STEPS = 100_000  # of SQLite, after each of which Python takes notice of Ctrl-C


def back_up_file(path: str, copy: str, *, overwrite: bool) -> None:
    """
    Copy a database file, check the copy, and give it its name. Blocks.

    Args:
        path: The file.
        copy: The name of the copy.
        overwrite: Whether a file of that name is replaced.

    Raises:
        TableOrmError: The file cannot be opened, or the copy is damaged.
        OSError: The copy cannot be written, or exists already.
    """
    files = open_file(os.path.realpath(path), _TIMEOUT, create=False)
    try:
        if Path(copy).exists() and Path(copy).samefile(path):  # programs would go on in what it was before
            raise FileExistsError(errno.EEXIST, "it is the database itself; give another name", copy)
        with write_draft(copy, overwrite=overwrite) as draft:
            # SQLite attaches the copy for this statement alone.
            files.reader.limit(apsw.SQLITE_LIMIT_ATTACHED, 1)
            files.reader.set_progress_handler(lambda: False, _STEPS)
            files.reader.execute("VACUUM INTO ?", (draft.name,))
            _check(draft.name, path)
    except apsw.Error as error:
        raise open_error_from(error, repr(path)) from error
    finally:
        files.close()


def _check(draft: str, path: str) -> None:
    connection = connect_immutable(draft)
    try:
        problem = find_damage(connection)
    finally:
        connection.close()
    if problem is not None:
        raise Unavailable(f"the copy of {path!r} is damaged, and was deleted: {problem}; run `tableorm check {path}`")
