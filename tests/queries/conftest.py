"""
A database for each test of queries: in a file, in memory, and on the emulator of Azure. None of these tests hangs.
"""

import signal
from collections.abc import Iterator

import pytest

from tests.database.conftest import db
from tests.torture import choose_rounds

__all__ = ["db", "fail_if_it_hangs"]


class Hanging(BaseException):
    """A test takes far longer than it should. No test catches it."""


@pytest.fixture(autouse=True)
def fail_if_it_hangs(request: pytest.FixtureRequest) -> Iterator[None]:
    """
    A query that waits for a page that never comes ends its test after a while, instead of the whole run.

    What explores at length takes long, and so does hypothesis when it makes an example smaller: its tests look after
    themselves.
    """
    explores = getattr(request.function, "is_hypothesis_test", False)
    seconds = 0 if explores else choose_rounds(30, 0)

    def end(*_: object) -> None:
        raise Hanging(f"the test is not over after {seconds} s: something waits for what never comes")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
