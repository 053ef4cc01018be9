"""
The pace of a bulk: how many operations it sends a second, and how many transactions at the same time.
"""

import asyncio
from contextlib import suppress

from ...protocol.limits import MAX_TRANSACTION_OPERATIONS


class Pace:
    """
    A limit of operations a second: a transaction may be sent when the time of those before it has passed.

    Args:
        rate: Operations a second; None for no limit.

    Attributes:
        chunk: How many operations a transaction may have.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate, self._next = rate, 0.0
        self._over = asyncio.Event()
        # No transaction has more operations than may be sent in a second.
        self.chunk = MAX_TRANSACTION_OPERATIONS if rate is None else max(1, min(MAX_TRANSACTION_OPERATIONS, int(rate)))

    async def wait(self, count: int) -> bool:
        """Wait until `count` operations may be sent. Return False if `stop` was called first."""
        if self._rate is None:
            return True
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        self._next = start + count / self._rate
        if start > now:
            with suppress(TimeoutError):
                async with asyncio.timeout(start - now):
                    await self._over.wait()
                    return False
        return True

    def stop(self) -> None:
        """End all waiting."""
        self._over.set()


class AdaptiveConcurrency:
    """
    How many transactions may be under way: half as many when the store refuses because it is asked for too much, and
    then one more after another while it keeps up.

    Args:
        most: How many there may be at first, and at most.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._limit = float(most)
        self._ignored = 0

    @property
    def now(self) -> int:
        """How many there may be now."""
        return int(self._limit)

    def narrow(self) -> None:
        """Halve the number after a refusal; refusals of requests that were sent at the same time are ignored."""
        if self._ignored:
            self._ignored -= 1
            return
        self._ignored = self.now
        self._limit = max(1.0, self._limit / 2)

    def widen(self) -> None:
        """Raise the number a little after a success."""
        self._ignored = max(0, self._ignored - 1)
        self._limit = min(float(self.most), self._limit + 1 / self._limit)
