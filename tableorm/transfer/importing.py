"""
Importing rows from a file. All of it is read and checked before anything is sent; then it is read again, and written.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from os import SEEK_END
from typing import BinaryIO

from ..connection.connection import Connection
from ..connection.tasks import work_together
from ..jobs.counts import JobCounts
from ..jobs.process import RunOptions
from ..jobs.report import Progress
from ..protocol.codes import Fault
from ..protocol.limits import check_row
from ..stores import Row
from .content import plain_row
from .files import File, Format, format_of, name_of, reading
from .formats import Source, bad_row, chunks, csv_rows, json_lines
from .parquet import parquet_rows
from .report import TransferReport, make_report
from .writing import IfExists, RowWriter, check_if_exists

_SOURCES: dict[Format, Callable[[BinaryIO, str], Source]] = {
    "jsonl": json_lines,
    "csv": csv_rows,
    "parquet": parquet_rows,
}
_CHUNK_ROWS, _CHUNK_BYTES = 1_000, 1 << 22


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
    read, name = _SOURCES[format_of("import_rows", file, format)], name_of(file)
    with reading(file) as opened:
        begun, size = time.monotonic(), opened.seek(0, SEEK_END)
        counts, checked = JobCounts(), 0

        def report() -> TransferReport:
            counts.seconds = time.monotonic() - begun
            share = (checked + (opened.tell() if counts.entities else 0)) / (2 * size) if size else 1.0
            return make_report(Progress(counts=counts, share=share))

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
        opened.seek(0, SEEK_END)
        return report()


def _check(name: str, rows: Sequence[tuple[int, Row]]) -> None:
    """Refuse rows of a file that the service would refuse. Raises InvalidInput."""
    for number, row in rows:
        try:
            check_row(plain_row(row))
        except Fault as fault:
            field, problem = fault.property or "", fault.message.rstrip(".")
            for said in (f"{field}: ", f"{field} ", f"{row.get(field)!r} "):  # the error names these itself
                problem = problem.removeprefix(said)
            raise bad_row(name, number, problem, row, field, row.get(field)) from fault
