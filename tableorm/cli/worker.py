"""
The command `tableorm worker`, which carries out what writes have left to do, until it is told to stop.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from ..outbox.workflow import Workflow
from ..writes.archive_copy import BlobArchive, DatabaseArchive
from .arguments import DATABASE, OwnCommand, count, flag, models, open_existing, pick, resume
from .output import emit, report


async def _work(args: argparse.Namespace) -> int:
    """
    `tableorm worker URL MODULE[:MODEL]` works until it is interrupted or terminated; then it finishes what it has
    begun, and prints how many messages had which outcome. Another signal ends it at once.

    Examples:
        tableorm worker local:./hr.tables hr.models
        tableorm worker local:./hr.tables hr.models:Employee --drain
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("tableorm.worker").setLevel(logging.DEBUG if args.verbose else logging.INFO)
    async with open_existing(args) as db:
        worker = db.worker(*args.models, **pick(args, "concurrency", "visibility", "tries"))
        async with worker:
            waiting = asyncio.ensure_future(worker.drain() if args.drain else asyncio.Event().wait())
            _on_signals(waiting.cancel)
            with suppress(asyncio.CancelledError):
                await waiting
    counts = {str(outcome): count for outcome, count in sorted(worker.counts.items())}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    emit(args, counts, f"finished: {summary or 'nothing'}")
    if waiting.cancelled():
        report("stopped; the same command resumes with the messages that are left", "dim")
    return 0


def _on_signals(stop: Callable[[], object]) -> None:
    """Call a function at the first signal to stop; the next one does what it always does."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def note() -> None:
        stop()
        report("stopping once the work in progress is done; another signal stops immediately", "dim")
        for number in numbers:
            loop.remove_signal_handler(number)

    # On Windows event loops know no signals; there Ctrl-C interrupts.
    with suppress(NotImplementedError):
        for number in numbers:
            loop.add_signal_handler(number, note)


WORKER = OwnCommand(
    "finish interrupted cross-partition writes in the background",
    _work,
    *DATABASE,
    models(Workflow, BlobArchive, DatabaseArchive, plain_tables=True),
    flag("--drain", "exit when the queue is empty"),
    flag("--verbose", "log the traceback of each failed attempt"),
    count("--concurrency", "number of messages to process in parallel", 32),
    count("--visibility", "if this worker dies, others take over its messages after this many seconds", 60),
    count("--tries", "number of failed attempts after which a message is dropped, unless its workflow sets it", 10),
    resume("the same command finishes what was begun"),
)
