"""
Retries: how often, and after which pauses, a request is sent again that failed for a reason which passes.
"""

import asyncio
import random
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import attrs
from attrs.validators import ge

from ..protocol.codes import Fault
from .traffic import note_repetition


@attrs.frozen
class RetryPolicy:
    """
    How requests are retried after transient faults: throttling, a timeout, a refused or reset connection, or a 5xx
    response.

        db = connect(url, retry=RetryPolicy(deadline=10, attempts=5))

    The n-th pause is random, up to `base * 2**n` seconds; it is never longer than `cap`, and never shorter than what
    the service asked for in Retry-After. After a lost race, the pause is a fifth of that, at most one second. With
    `base=0`, as tests want it, there are no pauses except those that the service asks for.

    Args:
        deadline: The seconds after which no further attempt is made, counted from the first one.
        attempts: The maximum number of attempts, including the first. After a lost reply to a write, counting starts
            over.
        base: See above, in seconds.
        cap: The longest pause in seconds, unless the service asks for more.

    Raises:
        ValueError: There would be no attempt, or a time is negative.
    """

    deadline: float = attrs.field(default=30.0, validator=ge(0))
    attempts: int = attrs.field(default=12, validator=ge(1))
    base: float = attrs.field(default=0.05, validator=ge(0))
    cap: float = attrs.field(default=5.0, validator=ge(0))


def pause_after(failures: int, policy: RetryPolicy) -> float:
    """Seconds to wait after so many failures: a random share of a time that doubles, up to `cap`."""
    return random.random() * min(policy.cap, policy.base * 2.0 ** min(failures, 60))


_single: ContextVar[bool] = ContextVar("tableorm_single_try", default=False)


@contextmanager
def single_try() -> Generator[None]:
    """Keep stores from repeating the requests of a block, because the caller counts and repeats them."""
    before = _single.set(True)
    try:
        yield
    finally:
        _single.reset(before)


class RetryBudget:
    """
    The attempts at one call: how many are left, and until when.

    Args:
        policy: The policy.
        begun: When the first attempt began, by the loop's clock; now if not given.
        until: When the time of the call is over, by the loop's clock, if that may be before the policy's deadline.
    """

    def __init__(self, policy: RetryPolicy, begun: float | None = None, until: float | None = None) -> None:
        self._policy = policy
        deadline = (asyncio.get_running_loop().time() if begun is None else begun) + policy.deadline
        self._until = deadline if until is None else min(until, deadline)
        self._failures = 0

    async def another(self, fault: Fault) -> bool:
        """Wait until it is time for another attempt; False, at once, if there is none."""
        self._failures += 1
        if self._failures >= self._policy.attempts or _single.get():
            return False
        pause = max(pause_after(self._failures, self._policy), fault.retry_after or 0.0)
        if asyncio.get_running_loop().time() + pause > self._until:
            return False
        note_repetition(fault.code)
        await asyncio.sleep(pause)
        return True
