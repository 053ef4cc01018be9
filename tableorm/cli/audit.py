"""
The command `tableorm audit`, which checks what is derived from entities, and repairs it if asked to.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

import attrs
import msgspec

from ..audit.report import AuditReport
from ..errors import counted
from ..protocol.redaction import escape_unprintable
from .arguments import add_database, add_models, open_existing, parse_count

__all__ = ["AUDIT", "Audit"]

_SECONDS = 1.0  # between two lines of progress, and between two writes of the state file


@attrs.frozen
class Audit:
    """
    `tableorm audit URL MODULE[:MODEL]` checks what is derived from the entities of models, and repairs it if asked to.

    The exit status is 0 if nothing is wrong, or everything was repaired; 1 if something is wrong; 2 after wrong usage.
    """

    help: str = "check indexes, lists, counts, sums and copies, and repair them"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        add_models(parser)
        parser.add_argument("--repair", action="store_true", help="repair what is found")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")
        parser.add_argument(
            "--parallel",
            metavar="N",
            type=parse_count,
            default=8,
            help="how many ranges of keys to read at the same time",
        )
        parser.add_argument(
            "--state", metavar="FILE", type=Path, help="keeps how far the audit got; another run goes on there"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Run the audit and print its report."""
        state: Path | None = args.state
        cursor = state.read_text(encoding="ascii").strip() if state is not None and state.exists() else None
        report = asyncio.run(self._run(args, state, cursor))
        if args.json:
            print(escape_unprintable(msgspec.json.encode(report.to_dict()).decode()))
        else:
            for finding in report.findings:
                print(escape_unprintable(str(finding)))
            if report.found > len(report.findings):
                print(f"and {report.found - len(report.findings)} more")
            print(report)
        return 0 if report.clean else 1

    async def _run(self, args: argparse.Namespace, state: Path | None, cursor: str | None) -> AuditReport:
        latest: AuditReport | None = None
        reported = time.monotonic()

        def progress(report: AuditReport) -> None:
            nonlocal latest, reported
            latest = report
            if time.monotonic() - reported < _SECONDS:
                return
            reported = time.monotonic()
            counts = (report.entities, "entity"), (report.derived_rows, "derived row"), (report.found, "finding")
            print(", ".join(counted(*count) for count in counts), file=sys.stderr)
            _save_state(state, report)

        async with open_existing(args) as db:
            try:
                return await db.audit(
                    *args.models, parallel=args.parallel, cursor=cursor, repair=args.repair, on_progress=progress
                )
            finally:
                # Also when it was interrupted.
                if latest is not None:
                    _save_state(state, latest)


def _save_state(state: Path | None, report: AuditReport) -> None:
    """Write where to go on to the state file, in full or not at all; remove the file when the audit has ended."""
    if state is None:
        return
    cursor = report.cursor
    if cursor is None:
        state.unlink(missing_ok=True)
        return
    draft = state.with_name(state.name + ".new")
    # It holds keys of rows, so it is made for this user alone, and not where a link in its place leads.
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(cursor + "\n")
    draft.replace(state)


AUDIT = Audit()
