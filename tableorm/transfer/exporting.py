"""
Exporting the rows of a table to a file, in the order in which the store has them.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from ..connection.connection import Connection
from ..jobs.counts import JobCounts
from ..jobs.process import RunOptions, work_on
from ..jobs.ranges import JobRange
from ..jobs.scan import Steps, walk
from ..queries.arrow import load_pyarrow
from ..stores import Row
from ..writes.bulk.pacing import Pace
from .content import plain_row
from .copying import Selection, transfer_job
from .files import File, Format, format_of, writing
from .formats import encode_row, write_csv
from .parquet import write_parquet
from .report import TransferReport

# What makes another format of a temporary file of JSON Lines.
_WRITERS: dict[Format, Callable[[BinaryIO, BinaryIO], None]] = {"csv": write_csv, "parquet": write_parquet}


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
    if kind == "parquet":
        load_pyarrow("Parquet")  # before anything is read
    write = _WRITERS.get(kind)
    with writing(file, overwrite=overwrite) as opened, TemporaryFile() as temporary:
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
