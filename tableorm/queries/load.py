"""
Loading: the rows of pages made into entities, some at a time, so that other tasks get turns.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from ..connection.connection import TURN
from ..stores import Row
from .planning.plan import AnyRequest
from .prefetch import fetch_pages
from .run import QueryExecution, Source

__all__ = ["LoadPacer", "load_entities"]

_FIRST_PART = 4
_ROUNDS_OF_A_PART = 4  # requests one after the other, of each that are sent at the same time, between two parts
_PART_SECONDS = 0.002  # no part shall keep the event loop for longer than this


class LoadPacer:
    """What decides how many rows are made into entities between two turns of the event loop."""

    def __init__(self) -> None:
        self.size = _FIRST_PART

    def part(self, run: QueryExecution, rows: list[Row], start: int) -> list[Row]:
        """Return the rows of a page that are loaded next, of those from `start` on."""
        if not run.plan.target.fetches_primaries:
            return rows[start : start + self.size]
        most = run.concurrency * _ROUNDS_OF_A_PART  # a request for each, which are sent at the same time
        return rows[start : start + (most if run.wanted is None else max(1, min(most, run.wanted)))]

    async def load(self, run: QueryExecution, request: AnyRequest, part: list[Row]) -> list[Any]:
        """Return the entities of some rows. The next part is smaller if they took long, or larger."""
        await run.db.yield_to_loop(len(part))
        if run.plan.target.fetches_primaries:
            return await run.load_rows(request, part)
        begun = time.perf_counter()
        loaded = await run.load_rows(request, part)
        # Rows differ: a thousand of one kind keep the event loop for as long as a few of another.
        quick = time.perf_counter() - begun < _PART_SECONDS
        self.size = min(self.size * 2, TURN) if quick else max(self.size // 2, 1)
        if not quick:
            await asyncio.sleep(0)
        return loaded


async def load_entities(
    sources: Sequence[Source], concurrency: int, *, ordered: bool
) -> AsyncGenerator[list[Any], None]:
    """
    Load the entities of some requests, some at a time; other tasks get turns between them.

    Args:
        sources: The requests.
        concurrency: How many run at the same time.
        ordered: Whether they come in key order; otherwise as they arrive.
    """
    pacer = LoadPacer()
    pages = fetch_pages(sources, min(concurrency, len(sources)), ordered=ordered)
    try:
        async for page in pages:
            run, start = page.run, 0
            while start < len(page.rows):
                part = pacer.part(run, page.rows, start)
                start += len(part)
                loaded = await pacer.load(run, page.request, part)
                if run.wanted is not None:
                    loaded = loaded[: run.wanted]
                    run.wanted -= len(loaded)
                yield loaded
                if run.wanted == 0:
                    break
    finally:
        await pages.aclose()
