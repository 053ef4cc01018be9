"""
Files of rows: written in full or not at all, and read twice.
"""

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import BinaryIO, Literal, cast, get_args

from ..errors import ModelError, shown

File = str | os.PathLike[str] | BinaryIO
"""The path of a file, "-" for stdin or stdout, or a binary file that is open."""

Format = Literal["jsonl", "csv", "parquet"]
"""The format of a file of rows."""

_ENDINGS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}


def format_of(verb: str, file: File, given: Format | None) -> Format:
    """
    Return the format of a file: what is given, or what its name ends with; JSON Lines for one without a name.

    Raises:
        ModelError: There is no such format, or the name tells none.
    """
    if given is None:
        ending = Path(file).suffix.lower() if isinstance(file, str | os.PathLike) and file != "-" else ".jsonl"
        given = _ENDINGS.get(ending)
    if given is None or given not in get_args(Format):
        raise ModelError(
            f"{verb}({shown(file)}) is rejected: the name does not tell the format; end it with .jsonl, .csv or "
            ".parquet, or give format='jsonl', 'csv' or 'parquet'"
        )
    return given


def name_of(file: File) -> str:
    """Return the name of a file, for messages."""
    return os.fspath(file) if isinstance(file, str | os.PathLike) else str(getattr(file, "name", "the file"))


@contextmanager
def writing(file: File, *, overwrite: bool) -> Generator[BinaryIO]:
    """
    Give a file to write to. One that is named gets its name at the end, when all of it is on the disk; only its owner
    may read it.

    Raises:
        FileExistsError: There is a file of that name, and it is not to be overwritten.
    """
    if file == "-":
        file = sys.stdout.buffer
    if not isinstance(file, str | os.PathLike):
        yield file
        file.flush()
        return
    path = Path(file)
    if path.exists() and not overwrite:
        raise FileExistsError(errno.EEXIST, "there is such a file; overwrite=True or --overwrite replaces it", path)
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


@contextmanager
def reading(file: File) -> Generator[BinaryIO]:
    """Give a file to read, at its beginning; what cannot be read twice is copied to a temporary file before."""
    if file == "-":
        file = sys.stdin.buffer
    if isinstance(file, str | os.PathLike):
        with Path(file).open("rb") as opened:
            yield opened
    elif file.seekable():
        yield file
    else:
        with TemporaryFile() as copy:
            copyfileobj(file, copy)
            copy.seek(0)
            yield copy
