"""
The command `tableorm audit`.
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

from ..audit.report import AuditReport
from ..models.entity import Entity
from .tables import URL_HELP, open_existing

__all__ = ["AUDIT", "Audit", "parse_count"]


_SECONDS = 1.0  # between two lines of progress, and two states


@attrs.frozen
class Audit:
    """
    `tableorm audit URL MODULE:MODEL` checks what is derived from the entities of models, and repairs it if asked to.

    The exit status is 0 if nothing is wrong any more, 1 if something is, 2 after wrong usage.
    """

    help: str = "check what is derived from entities, and repair it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", metavar="URL", help=URL_HELP)
        parser.add_argument("models", metavar="MODULE:MODEL", nargs="+", type=_model, help="such as hr.models:Employee")
        parser.add_argument("--repair", action="store_true", help="repair what is found")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")
        parser.add_argument(
            "--parallel", metavar="N", type=parse_count, default=8, help="ranges of keys read at a time"
        )
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
            print(
                f"{report.entities} entities, {report.derived_rows} derived rows, {report.found} findings",
                file=sys.stderr,
            )
            _keep(state, report)

        async with open_existing(args.url) as db:
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


def parse_count(text: str) -> int:
    """Return the whole number from 1 up that a command-line argument gives."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


AUDIT = Audit()
