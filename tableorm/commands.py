"""
The built-in commands: list the tables of a database, show rows, and audit what is derived from entities.
"""

import argparse
import asyncio
import importlib
import sys
import time
from operator import attrgetter
from pathlib import Path
from typing import Any

import attrs
import msgspec

from .audit.report import AuditReport
from .database import Database
from .entity import Entity
from .opening import connect
from .protocol.codes import Fault
from .protocol.limits import MAX_PAGE
from .stores import Bounds, RowQuery
from .translate import translate

__all__ = ["AUDIT", "SHOW", "TABLES", "Audit", "Show", "Tables"]

_URL_HELP = "what to open, as for tableorm.connect: local:./hr.tables"


def _look_into(url: str) -> Database:
    # A mistyped path must not become an empty database.
    return connect(url, create=False) if url.startswith("local:") else connect(url)


@attrs.frozen
class Tables:
    """`tableorm tables URL` prints the names of the tables, one per line."""

    help: str = "list the tables"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", metavar="URL", help=_URL_HELP)

    def run(self, args: argparse.Namespace) -> int:
        """Print the names."""
        return asyncio.run(self._run(args.url))

    async def _run(self, url: str) -> int:
        async with _look_into(url) as db:
            for name in await db.tables():
                print(name)
        return 0


@attrs.frozen
class Show:
    """
    `tableorm show URL TABLE` prints rows as lines of JSON, in key order.

    They are as the service sends them: a property whose type JSON does not tell has it in a sibling `NAME@odata.type`.
    """

    help: str = "show the rows of a table as lines of JSON"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", metavar="URL", help=_URL_HELP)
        parser.add_argument("table", metavar="TABLE", help="name of the table")
        parser.add_argument("--partition", metavar="PK", help="only the rows with this PartitionKey")
        parser.add_argument("--limit", metavar="N", type=_count, help="at most so many rows")

    def run(self, args: argparse.Namespace) -> int:
        """Print the rows."""
        partition = Bounds() if args.partition is None else Bounds.only(args.partition)
        return asyncio.run(self._run(args.url, args.table, RowQuery(partition=partition), args.limit))

    async def _run(self, url: str, table: str, query: RowQuery, limit: int | None) -> int:
        encode = msgspec.json.Encoder().encode
        continuation: str | None = None
        async with _look_into(url) as db:
            while True:
                size = MAX_PAGE if limit is None else min(limit, MAX_PAGE)
                try:
                    page = await db.store.query(table, query, limit=size, continuation=continuation)
                except Fault as fault:
                    raise translate(fault, f"show {table}", table) from fault
                for row in page.rows:
                    sys.stdout.buffer.write(encode(row) + b"\n")
                if limit is not None:
                    limit -= len(page.rows)
                continuation = page.continuation
                if continuation is None or limit == 0:
                    return 0


_SECONDS = 1.0  # between two lines of progress, and two states


@attrs.frozen
class Audit:
    """
    `tableorm audit URL MODULE:MODEL` checks the copies in the indexes of models, and repairs them if asked to.

    The exit status is 0 if nothing is wrong any more, 1 if something is, 2 after wrong usage.
    """

    help: str = "check what is derived from entities, and repair it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", metavar="URL", help=_URL_HELP)
        parser.add_argument("models", metavar="MODULE:MODEL", nargs="+", type=_model, help="such as hr.models:Employee")
        parser.add_argument("--repair", action="store_true", help="repair what is found")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")
        parser.add_argument("--parallel", metavar="N", type=_count, default=8, help="stretches of keys read at a time")
        parser.add_argument("--state", metavar="FILE", type=Path, help="where to keep how far it got, to go on from")

    def run(self, args: argparse.Namespace) -> int:
        """Audit, and print the report."""
        state: Path | None = args.state
        cursor = state.read_text(encoding="ascii").strip() if state is not None and state.exists() else None
        report = asyncio.run(self._run(args, state, cursor))
        if args.json:
            print(msgspec.json.encode(report.to_dict()).decode())
        else:
            for finding in report.findings:
                print(finding)
            if report.found > len(report.findings):
                print(f"and {report.found - len(report.findings)} more")
            print(report)
        return 0 if report.clean else 1

    async def _run(self, args: argparse.Namespace, state: Path | None, cursor: str | None) -> AuditReport:
        latest: AuditReport | None = None
        told = time.monotonic()

        def progress(report: AuditReport) -> None:
            nonlocal latest, told
            latest = report
            if time.monotonic() - told < _SECONDS:
                return
            told = time.monotonic()
            print(f"{report.entities} entities, {report.copies} copies, {report.found} findings", file=sys.stderr)
            _keep(state, report)

        async with _look_into(args.url) as db:
            try:
                return await db.audit(
                    *args.models, parallel=args.parallel, cursor=cursor, repair=args.repair, on_progress=progress
                )
            finally:
                # Also when it is interrupted; at the end there is nothing to go on from.
                if latest is not None:
                    _keep(state, latest)


def _keep(state: Path | None, report: AuditReport) -> None:
    """Keep where to go on, in full or not at all."""
    if state is None:
        return
    cursor = report.cursor
    if cursor is None:
        state.unlink(missing_ok=True)
        return
    draft = state.with_name(state.name + ".new")
    draft.write_text(cursor + "\n", encoding="ascii")
    draft.replace(state)


def _model(text: str) -> type[Entity]:
    """The class that `module:Model` names; modules of the working directory are found, as by `python -m`."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(f"{text!r} is no model; give MODULE:MODEL, such as hr.models:Employee")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = attrgetter(name)(importlib.import_module(module))
    except Exception as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Entity)):
        raise argparse.ArgumentTypeError(f"{text!r} is no model, but {found!r}")
    return found


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


TABLES = Tables()
SHOW = Show()
AUDIT = Audit()
