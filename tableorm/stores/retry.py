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

__all__ = ["RetryBudget", "RetryPolicy", "pause_after", "single_try"]


@attrs.frozen
class RetryPolicy:
    """
    When a request is sent again after a transient fault: throttling, a time-out, a refused or reset connection, a 5xx.

    The n-th pause is a random time up to `base * 2**n` seconds, never more than `cap`, and never less than what the
    service asked for in Retry-After. After a lost race the pause is a fifth of that, at most one second. With `base=0`
    there are no pauses but those that the service asks for, as tests want it.

    Args:
        deadline: Seconds from the first attempt after which none is begun.
        attempts: Attempts at most, the first included. When the reply to a write is lost, the count begins anew.
        base: Seconds; see above.
        cap: Seconds that a pause takes at most, unless the service asks for more.

    Raises:
        ValueError: There is no attempt, or a time is below 0.
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
