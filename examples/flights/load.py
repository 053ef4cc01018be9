"""
Loading: every row of a source into the tables, in entity group transactions, several at a time.
"""

import asyncio
import datetime as dt
from typing import TextIO

import attrs

from tableorm import Database

from .models import MODELS, Load
from .progress import Progress
from .records import Batches
from .source import Source


class LoadError(Exception):
    """The tables hold something that this load must not be mixed with."""


@attrs.frozen
class Loaded:
    """
    What a load did.

    Args:
        rows: How many rows there are of this period, reference data included.
        seconds: How long it took; None if they were there already.
    """

    rows: int
    seconds: float | None


async def load(db: Database, source: Source, *, tasks: int = 4, progress_to: TextIO | None = None) -> Loaded:
    """
    Load a source, once: if it was loaded before, nothing is written.

    Args:
        db: An open database; the tables are created if need be.
        source: What to load.
        tasks: How many transactions wait for the store at the same time.
        progress_to: Where progress is shown; the default is standard error.

    Raises:
        LoadError: A load was interrupted, or another period is there.
    """
    await db.create_tables(*MODELS)
    for earlier in await db.select(Load).all():
        if earlier.period != source.name or earlier.source_sha256 != source.sha256:
            raise LoadError(
                f"this database holds {earlier.period} from the archive {earlier.source_sha256[:8]}..., "
                f"so {source.name} from {source.sha256[:8]}... is not loaded into it; name a database that is empty"
            )
        if earlier.finished is None:
            raise LoadError(
                f"loading {earlier.period} was begun at {earlier.started:%Y-%m-%d %H:%M:%S} UTC and did not end; "
                "delete that database, or name another"
            )
        return Loaded(earlier.rows, None)

    note = Load(period=source.name, source_sha256=source.sha256, started=dt.datetime.now(dt.UTC))
    await db.insert(note)
    batches = await asyncio.to_thread(Batches, source)
    with Progress(batches.total, progress_to) as progress:

        async def work() -> None:
            for batch in batches:
                async with db.transaction() as tx:
                    for entity in batch:
                        tx.insert(entity)
                progress.advance(len(batch))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first failure ends the load; the others say the same
    note.finished, note.rows = dt.datetime.now(dt.UTC), progress.done
    await db.save(note)
    return Loaded(progress.done, progress.seconds)
