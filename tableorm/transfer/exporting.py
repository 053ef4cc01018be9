"""
Exporting the rows of a table to a file, in the order in which the store has them.
"""

import asyncio
from functools import partial
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from ..connection.connection import Connection
from ..jobs.counts import JobCounts
from ..jobs.process import RunOptions, work_on
from ..jobs.ranges import JobRange
from ..jobs.scan import Steps, walk
from ..stores import Row
from ..writes.bulk.pacing import Pace
from .content import plain_row
from .copying import Selection, transfer_job
from .files import File, Format, format_of, writing
from .formats import CsvSink, JsonSink
from .parquet import ParquetSink
from .report import TransferReport

_SINKS: dict[Format, type[JsonSink | CsvSink | ParquetSink]] = {
    "jsonl": JsonSink,
    "csv": CsvSink,
    "parquet": ParquetSink,
}


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
    selection, kind = Selection.of("export_rows", (table,), where), format_of("export_rows", file, format)
    with writing(file, overwrite=overwrite) as opened, TemporaryFile() as spool:
        sink = _SINKS[kind](opened, cast("BinaryIO", spool))

        def work(part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
            counts = JobCounts()

            async def deal(rows: list[Row]) -> None:
                await asyncio.to_thread(sink.add, rows if system else [*map(plain_row, rows)])
                counts.entities += len(rows)
                counts.written += len(rows)

            return walk(db, part, selection.filter_of(table), deal, counts, "export_rows", pace)

        job = transfer_job(selection, f"export {table}", partial(selection.plan, db), work)
        report = await work_on(db, job, options, None)
        await asyncio.to_thread(sink.finish)
    return report
