"""
The command `tableorm worker`, which carries out what writes have left to do, until it is told to stop.
"""

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import suppress

import attrs

from ..connection.tasks import stop_tasks
from ..outbox.workflow import Workflow
from ..writes.archive_copy import BlobArchive, DatabaseArchive
from .arguments import add_database, add_models, open_existing, parse_count
from .output import report, to_json

__all__ = ["WORKER", "WorkerCommand"]


@attrs.frozen
class WorkerCommand:
    """
    `tableorm worker URL MODULE[:MODEL]` works until it is interrupted or terminated; then it finishes what it has
    begun, and prints how many messages had which outcome. Another signal ends it at once.

    Examples:
        tableorm worker local:./hr.tables hr.models
        tableorm worker local:./hr.tables hr.models:Employee --drain
    """

    help: str = "carry out what writes have left to do in other partitions"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        add_models(parser, Workflow, instances=(BlobArchive, DatabaseArchive), plain_tables=True)
        parser.add_argument("--drain", action="store_true", help="end when the queue is empty")
        parser.add_argument("--verbose", action="store_true", help="log the traceback of each try that failed")
        for name, default, what in (
            ("concurrency", 32, "how many messages to work on at the same time"),
            ("visibility", 60, "for how many seconds others wait if this worker dies"),
            ("tries", 10, "after how many tries that failed a message is dropped, if its workflow does not say that"),
        ):
            parser.add_argument(f"--{name}", metavar="N", type=parse_count, default=default, help=what)
        parser.set_defaults(resume="what was begun is done by the next worker")

    async def run(self, args: argparse.Namespace) -> int:
        """Work."""
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
        logging.getLogger("tableorm.worker").setLevel(logging.DEBUG if args.verbose else logging.INFO)
        stop = asyncio.Event()
        _on_signals(stop)
        async with open_existing(args) as db:
            worker = db.worker(*args.models, concurrency=args.concurrency, visibility=args.visibility, tries=args.tries)
            async with worker:
                stopped = asyncio.create_task(stop.wait())
                drained = asyncio.create_task(worker.drain()) if args.drain else stopped
                done, _ = await asyncio.wait({stopped, drained}, return_when=asyncio.FIRST_COMPLETED)
                await stop_tasks({stopped, drained} - done)
                for task in done:
                    task.result()
        print(to_json(worker.counts))
        return 0


def _on_signals(stop: asyncio.Event) -> None:
    """Set an event at the first signal to stop; the next one does what it always does."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def note() -> None:
        stop.set()
        report("ending when what was begun is done; another signal ends it at once", "dim")
        for number in numbers:
            loop.remove_signal_handler(number)

    # On Windows event loops know no signals; there Ctrl-C interrupts.
    with suppress(NotImplementedError):
        for number in numbers:
            loop.add_signal_handler(number, note)


WORKER = WorkerCommand()
