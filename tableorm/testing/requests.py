"""
Assertions about the requests that a program sends.
"""

from collections.abc import Generator
from contextlib import contextmanager

from ..connection.observe import Observation
from ..database.database import Database


@contextmanager
def assert_requests(db: Database, count: int) -> Generator[Observation]:
    """
    Fail, and list the requests, unless the block sends exactly this many. A transaction counts as one.

        with assert_requests(db, 1) as seen:
            await db.get(Order, number=7)

    Args:
        db: The database; requests of its scopes count too.
        count: The expected number of requests.
    """
    with db.observe() as seen:
        yield seen
    sent = len(seen.requests)
    if sent != count:
        raise AssertionError(f"{sent} request{'s' * (sent != 1)} instead of {count}:\n{seen}")
