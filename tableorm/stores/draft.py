"""
Files that are written in full or not at all: exports, and backups of databases.
"""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, cast


@contextmanager
def write_draft(file: str | os.PathLike[str], *, overwrite: bool) -> Generator[BinaryIO]:
    """
    Give a file to write to, which gets its name at the end, when all of it is on the disk; only its owner may read it.

    Raises:
        FileExistsError: There is a file of that name, and it is not to be overwritten; or a folder or a device.
        FileNotFoundError: Its folder does not exist.
        OSError: It cannot be written. The error names `file`, and not the draft, which nobody asked for.
    """
    path = Path(file)
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it is a folder or a device; give the path of a file", file)
    if path.exists() and not overwrite:
        raise FileExistsError(
            errno.EEXIST, "the file already exists; use overwrite=True or --overwrite to replace it", file
        )
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist; create it first", file)
    try:
        draft = NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115 - closed below
        try:
            with draft:
                yield cast("BinaryIO", draft)
                draft.flush()
                os.fsync(draft.fileno())
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink()
            raise
    except OSError as error:
        if Path(str(error.filename)).name.startswith(f".{path.name}."):
            error.filename = os.fspath(file)
        raise
