"""
Files of rows: exporting those of a table, in the order in which the store has them, and importing.

A file is written in full or not at all. One that is imported is read twice: all of it is checked before any of it is
sent.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import BinaryIO, Literal, cast, get_args

from ..connection.connection import Connection
from ..connection.tasks import work_together
from ..errors import ModelError, shown
from ..jobs.counts import JobCounts
from ..jobs.process import RunOptions, work_on
from ..jobs.ranges import JobRange
from ..jobs.report import Progress, report_of
from ..jobs.scan import Steps, walk
from ..protocol.codes import Fault
from ..protocol.limits import check_row
from ..queries.arrow import load_pyarrow
from ..stores import Row
from ..stores.draft import write_draft
from ..writes.bulk.pacing import Pace
from .content import plain_row
from .copying import Selection, transfer_job
from .formats import KEYS, Source, bad_row, chunks, csv_rows, encode_row, json_lines, write_csv
from .parquet import parquet_rows, write_parquet
from .report import TransferReport
from .writing import IfExists, RowWriter, check_if_exists

File = str | os.PathLike[str] | BinaryIO
"""The path of a file, "-" for stdin or stdout, or a binary file that is open."""

Format = Literal["jsonl", "csv", "parquet"]
"""The format of a file of rows."""

_ENDINGS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}

# What makes another format of a temporary file of JSON Lines.
_WRITERS: dict[Format, Callable[[BinaryIO, BinaryIO], None]] = {"csv": write_csv, "parquet": write_parquet}
_SOURCES: dict[Format, Callable[[BinaryIO, str], Source]] = {
    "jsonl": json_lines,
    "csv": csv_rows,
    "parquet": parquet_rows,
}
_CHUNK_ROWS, _CHUNK_BYTES = 1_000, 1 << 22


async def export_rows(
    db: Connection,
    table: str,
    file: File,
    options: RunOptions[TransferReport],
    *,
    where: str | None,
    format: Format | None,  # noqa: A002
    system: bool,
    overwrite: bool,
) -> TransferReport:
    """Write the rows of a table to a file; see `Database.export_rows`."""
    db.require_whole_tables("export_rows()")
    selection, kind = Selection.of("export_rows", (table,), where), _format_of("export_rows", file, format)
    if kind == "parquet":
        load_pyarrow("Parquet")  # before anything is read
    write = _WRITERS.get(kind)
    with _writing(file, overwrite=overwrite) as opened, TemporaryFile() as temporary:
        spool = opened if write is None else cast("BinaryIO", temporary)

        def work(part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
            counts = JobCounts()

            async def deal(rows: list[Row]) -> None:
                await asyncio.to_thread(spool.writelines, map(encode_row, rows if system else map(plain_row, rows)))
                counts.entities += len(rows)
                counts.written += len(rows)

            return walk(db, part, selection.filter_of(table), deal, counts, "export_rows", pace)

        job = transfer_job(selection, f"export {table}", partial(selection.plan, db), work)
        report = await work_on(db, job, options, None)
        if write is not None:
            await asyncio.to_thread(write, spool, opened)
    return report


async def import_rows(
    db: Connection,
    file: File,
    table: str,
    options: RunOptions[TransferReport],
    *,
    format: Format | None,  # noqa: A002
    if_exists: IfExists,
) -> TransferReport:
    """Write the rows of a file to a table; see `Database.import_rows`."""
    db.require_whole_tables("import_rows()")
    check_if_exists("import_rows", if_exists)
    options.check("import_rows")
    read, name = _SOURCES[_format_of("import_rows", file, format)], _name_of(file)
    with _reading(file) as opened:
        begun, size = time.monotonic(), opened.seek(0, os.SEEK_END)
        counts, checked = JobCounts(), 0

        def report() -> TransferReport:
            counts.seconds = time.monotonic() - begun
            share = (checked + (opened.tell() if counts.entities else 0)) / (2 * size) if size else 1.0
            return report_of(TransferReport, Progress(counts=counts, share=share))

        def tell() -> None:
            if options.on_progress is not None:
                options.on_progress(report())

        opened.seek(0)
        with closing(chunks(read(opened, name), _CHUNK_ROWS, _CHUNK_BYTES)) as found:
            while rows := await asyncio.to_thread(next, found, None):
                await asyncio.to_thread(_check, name, rows)
                checked = opened.tell()
                tell()
        checked = size
        await db.create_table(table)
        turns = asyncio.Semaphore(options.parallel)
        writer = RowWriter(db, table, if_exists, f"import of rows to table {table}", turns)
        opened.seek(0)
        turn, pace = asyncio.Lock(), options.pace
        most = _CHUNK_ROWS if pace is None else pace.chunk
        found = chunks(read(opened, name), most, _CHUNK_BYTES)

        async def work() -> None:
            while True:
                async with turn:
                    rows = await asyncio.to_thread(next, found, None)
                if rows is None:
                    return
                if pace is not None:
                    await pace.wait(len(rows))
                counts.entities += len(rows)
                await writer.write([plain_row(row) for _, row in rows], counts)
                tell()

        with closing(found):
            await work_together(work, options.parallel)
        opened.seek(0, os.SEEK_END)
        return report()


def _check(name: str, rows: Sequence[tuple[int, Row]]) -> None:
    """Refuse rows of a file that the service would refuse. Raises InvalidInput."""
    for number, row in rows:
        if missing := [key for key in KEYS if key not in row]:
            raise bad_row(name, number, f"are there, but no {' and no '.join(missing)}", value=[*row])
        try:
            check_row(plain_row(row))
        except Fault as fault:
            field, problem = fault.property or "", fault.message.rstrip(".")
            for said in (f"{field}: ", f"{field} ", f"{row.get(field)!r} "):  # the error names these itself
                problem = problem.removeprefix(said)
            raise bad_row(name, number, problem, row, field, row.get(field)) from None


# Opening files


def _format_of(verb: str, file: File, given: Format | None) -> Format:
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
            f"{verb}({shown(file)}) is rejected: the file's name doesn't show its format; end it with .jsonl, .csv or "
            ".parquet, or give format='jsonl', 'csv' or 'parquet'"
        )
    return given


def _name_of(file: File) -> str:
    """Return the name of a file, for messages."""
    return os.fspath(file) if isinstance(file, str | os.PathLike) else str(getattr(file, "name", "the file"))


@contextmanager
def _writing(file: File, *, overwrite: bool) -> Generator[BinaryIO]:
    """
    Give a file to write to; one that is named as a draft, which gets its name at the end.

    Raises:
        FileExistsError: There is a file of that name, and it is not to be overwritten.
    """
    if file == "-":
        file = sys.stdout.buffer
    if not isinstance(file, str | os.PathLike):
        yield file
        file.flush()
        return
    with write_draft(file, overwrite=overwrite) as draft:
        yield draft


@contextmanager
def _reading(file: File) -> Generator[BinaryIO]:
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
