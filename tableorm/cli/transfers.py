"""
The commands `tableorm copy`, `export` and `import`, which take rows as they are stored along.
"""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from typing import Any, get_args

from ..database.database import Database
from ..errors import TableOrmError
from ..models.reserved import BLOB_LISTS
from ..transfer.files import Format
from ..transfer.report import TransferReport
from ..transfer.writing import IfExists
from .arguments import (
    add_count,
    add_database,
    add_flag,
    add_name,
    add_run,
    add_source_and_target,
    add_state,
    add_table,
    add_tables,
    open_existing,
    open_target,
    pick,
    run_options,
)
from .output import report
from .progress import ProgressReporter, print_report

_PATIENCE = 5.0  # seconds of waiting for the blobs of a database, whose tables are what the command is about


class Copy:
    """
    `tableorm copy FROM TO [TABLE ...]` copies rows as they are stored, from one database to another. With `--verify` it
    then compares the two.

    The exit status is 0 if all rows were copied, and are equal; 1 if some could not be, or differ; 2 after wrong usage.

    Examples:
        tableorm copy local:./hr.tables local:./copy.tables
        tableorm copy local:./a.tables local:./b.tables Directory --verify
    """

    help = "copy rows to another database, and compare both"

    def configure(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        add_source_and_target(parser)
        add_tables(parser, optional=True)
        _add_where(parser)
        _add_if_exists(parser)
        add_flag(parser, "--verify", "compare all rows of both sides afterwards")
        add_name(parser)
        add_run(parser)
        add_state(parser, "copy")
        parser.set_defaults(resume="the same command resumes: existing rows are not written again")

    async def run(self, args: Namespace) -> int:
        """Copy, and print the report."""
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


class Export:
    """
    `tableorm export URL TABLE FILE` writes the rows of a table to a file: JSON Lines, CSV or Parquet, as its name ends;
    `-` is stdout.

    Examples:
        tableorm export local:./hr.tables Directory employees.csv
        tableorm export local:./hr.tables Directory -
    """

    help = "write the rows of a table to a file"

    def configure(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        _add_file(parser, "write to; - for stdout")
        _add_where(parser)
        add_flag(parser, "--system", "write Timestamps and ETags too")
        add_flag(parser, "--overwrite", "replace a file of that name")
        add_count(parser, "--rate", "read at most N rows per second")

    async def run(self, args: Namespace) -> int:
        """Export, and print the report: on stderr if the rows are on stdout."""
        async with open_existing(args) as db:
            exported = await db.export_rows(
                args.table,
                args.file,
                **pick(args, "format", "where", "system", "overwrite", "rate"),
                on_progress=ProgressReporter(None).note,
            )
        return print_report(exported, args, sys.stderr if args.file == "-" else sys.stdout)


class Import:
    r"""
    `tableorm import URL TABLE FILE` writes the rows of a file to a table, after all of them were checked; `-` is stdin.

    The exit status is 0 if all rows are in the table, and 1 if some could not be written.

    Examples:
        tableorm import local:./hr.tables Directory employees.csv \
            --if-exists replace
    """

    help = "write the rows of a file to a table"

    def configure(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        _add_file(parser, "read; - for stdin")
        _add_if_exists(parser)
        add_count(parser, "--parallel", "transactions in parallel; default: 8", 8)
        add_count(parser, "--rate", "write at most N rows per second")

    async def run(self, args: Namespace) -> int:
        """Import, and print the report."""
        async with open_existing(args, create=True) as db:
            imported = await db.import_rows(
                args.file,
                args.table,
                **pick(args, "format", "if_exists", "parallel", "rate"),
                on_progress=ProgressReporter(None).note,
            )
        return print_report(imported, args)


def _add_file(parser: ArgumentParser, what: str) -> None:
    add_table(parser)
    parser.add_argument("file", metavar="FILE", help=f"what to {what}")
    parser.add_argument(
        "--format",
        choices=get_args(Format),
        help="format of the file, if its name does not determine it; default for -: jsonl",
    )


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


def _add_where(parser: ArgumentParser) -> None:
    parser.add_argument("--where", metavar="FILTER", help='only rows that satisfy this OData filter: "Age ge 30"')


def _add_if_exists(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--if-exists",
        choices=get_args(IfExists),
        default="fail",
        help="what to do with an existing row with other content: report it as a failure (the default), skip it, or "
        "replace it",
    )


COPY = Copy()
EXPORT = Export()
IMPORT = Import()
