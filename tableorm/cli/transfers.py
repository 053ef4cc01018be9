"""
The commands `tableorm copy`, `export` and `import`, which take rows as they are stored along.
"""

import asyncio
import sys
from argparse import Namespace
from contextlib import suppress
from typing import Any, get_args

from ..database.database import Database
from ..errors import TableOrmError
from ..models.reserved import BLOB_LISTS
from ..transfer.files import Format
from ..transfer.report import TransferReport
from ..transfer.writing import IfExists
from .arguments import (
    ANY_TABLES,
    DATABASE,
    NAME,
    SOURCE_AND_TARGET,
    TABLE,
    Argument,
    OwnCommand,
    count,
    flag,
    open_existing,
    open_target,
    option,
    pick,
    resume,
    run_options,
    shared_run,
    state,
)
from .output import report
from .progress import ProgressReporter, print_report

_PATIENCE = 5.0  # seconds of waiting for the blobs of a database, whose tables are what the command is about


async def _copy(args: Namespace) -> int:
    """
    `tableorm copy FROM TO [TABLE ...]` copies rows as they are stored, from one database to another. With `--verify` it
    then compares the two.

    The exit status is 0 if all rows were copied, and are equal; 1 if some could not be, or differ; 2 after wrong usage.

    Examples:
        tableorm copy local:./hr.tables local:./copy.tables
        tableorm copy local:./a.tables local:./b.tables Directory --verify
    """
    progress = ProgressReporter(args.state)
    options: dict[str, Any] = run_options(args) | {"where": args.where, "on_progress": progress.note}
    async with open_existing(args) as db, open_target(args) as target:
        with progress:
            copied = await db.copy_rows(
                target, *args.tables, if_exists=args.if_exists, cursor=progress.read_cursor(), **options
            )
        await _tell_what_is_left(db, copied)
        status = print_report(copied, args)
        if args.verify:
            options["name"] = args.name and f"{args.name} verify"
            status |= print_report(await db.compare_rows(target, *args.tables, **options), args)
    return status


async def _export(args: Namespace) -> int:
    """
    `tableorm export URL TABLE FILE` writes the rows of a table to a file: JSON Lines, CSV or Parquet, as its name ends;
    `-` is stdout.

    Examples:
        tableorm export local:./hr.tables Directory employees.csv
        tableorm export local:./hr.tables Directory -
    """
    async with open_existing(args) as db:
        exported = await db.export_rows(
            args.table,
            args.file,
            **pick(args, "format", "where", "system", "overwrite", "rate"),
            on_progress=ProgressReporter(None).note,
        )
    return print_report(exported, args, sys.stderr if args.file == "-" else sys.stdout)


async def _import(args: Namespace) -> int:
    r"""
    `tableorm import URL TABLE FILE` writes the rows of a file to a table, after all of them were checked; `-` is stdin.

    The exit status is 0 if all rows are in the table, and 1 if some could not be written.

    Examples:
        tableorm import local:./hr.tables Directory employees.csv \
            --if-exists replace
    """
    async with open_existing(args, create=True) as db:
        imported = await db.import_rows(
            args.file,
            args.table,
            **pick(args, "format", "if_exists", "parallel", "rate"),
            on_progress=ProgressReporter(None).note,
        )
    return print_report(imported, args)


async def _tell_what_is_left(db: Database, copied: TransferReport) -> None:
    """Print what is not copied of the source: index lists in blobs, and what its workers have still to do."""
    if copied.pending:
        report(
            f"workers have not completed {copied.pending} writes of FROM: run a worker there until it has nothing to "
            "do, then copy again; or run `tableorm outbox retry TO TABLE` and a worker of TO"
        )
    with suppress(TableOrmError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            if (await db.blobs.list_blobs(BLOB_LISTS, limit=1)).blobs:
                report("index lists in blobs are not copied; `tableorm migrate build-index` makes them in TO")


def _file(what: str) -> tuple[Argument, ...]:
    return (
        TABLE,
        option("file", metavar="FILE", help=f"what to {what}"),
        option(
            "--format",
            choices=get_args(Format),
            help="format of the file, if its name does not determine it; default for -: jsonl",
        ),
    )


_WHERE = option("--where", metavar="FILTER", help='only rows that satisfy this OData filter: "Age ge 30"')
_IF_EXISTS = option(
    "--if-exists",
    choices=get_args(IfExists),
    default="fail",
    help="what to do with an existing row with other content: report it as a failure (the default), skip it, or "
    "replace it",
)

COPY = OwnCommand(
    "copy rows to another database, and compare both",
    _copy,
    *SOURCE_AND_TARGET,
    ANY_TABLES,
    _WHERE,
    _IF_EXISTS,
    flag("--verify", "compare all rows of both sides afterwards"),
    NAME,
    *shared_run(),
    *state("copy"),
    resume("the same command resumes: existing rows are not written again"),
)
EXPORT = OwnCommand(
    "write the rows of a table to a file",
    _export,
    *DATABASE,
    *_file("write to; - for stdout"),
    _WHERE,
    flag("--system", "write Timestamps and ETags too"),
    flag("--overwrite", "replace a file of that name"),
    count("--rate", "read at most N rows per second"),
)
IMPORT = OwnCommand(
    "write the rows of a file to a table",
    _import,
    *DATABASE,
    *_file("read; - for stdin"),
    _IF_EXISTS,
    count("--parallel", "transactions in parallel; default: 8", 8),
    count("--rate", "write at most N rows per second"),
)
