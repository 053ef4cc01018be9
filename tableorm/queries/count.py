"""
Counting what a query finds.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..connection.connection import TURN
from ..errors import DecodeError
from ..stores import Row
from .execution import FetchedPage, QueryExecution
from .misfits import misfit_of
from .run import apply_filters


async def count_rows(pages: AsyncGenerator[FetchedPage, None], limit: int | None) -> int:
    """
    Count the rows that a query finds, without decoding them.

    Args:
        pages: The pages of its rows.
        limit: The greatest count that is wanted; None for any.
    """
    total = 0
    async with aclosing(pages):
        async for page in pages:
            run, bags = page.run, page.run.plan.target.kinds.bags
            for start in range(0, len(page.rows), TURN):
                rows = apply_filters(page.request, page.rows[start : start + TURN])
                total += len(rows) if bags else _count_own(run, rows)
                await run.db.yield_to_loop(len(rows))
            if limit is not None and total >= limit:
                return limit
    return total


def _count_own(run: QueryExecution, rows: list[Row]) -> int:
    """Return how many rows are of the kinds of a query. Raises DecodeError for a misfit that is not taken."""
    resolve, total = run.plan.target.kinds.resolve, 0
    for row in rows:
        try:
            total += resolve(row) is not None
        except DecodeError as error:
            if not run.take_misfit(misfit_of(row, error)):
                raise
    return total
