"""
How fast a bulk sends: at a rate that is given, and as many transactions at a time as the store keeps up with.
"""

import asyncio
from contextlib import suppress

from ...protocol.limits import MAX_TRANSACTION_OPERATIONS

__all__ = ["AdaptiveConcurrency", "Pace"]


class Pace:
    """
    So many operations a second: a chunk may go when those before it have had their time.

    Args:
        rate: Operations a second; None for any number.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate, self._next = rate, 0.0
        self._over = asyncio.Event()
        # Not more at once than in a second.
        self.chunk = MAX_TRANSACTION_OPERATIONS if rate is None else max(1, min(MAX_TRANSACTION_OPERATIONS, int(rate)))

    async def wait(self, count: int) -> bool:
        """Until `count` operations may go; False if `stop` was called before."""
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
        """Let nothing wait any more."""
        self._over.set()


class AdaptiveConcurrency:
    """
    How many transactions may be under way: half as many when the store is asked for too much, and then more, one by
    one, as long as it keeps up.

    Args:
        most: At first, and at most.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._width = float(most)
        self._ignored = 0

    @property
    def now(self) -> int:
        """At this moment."""
        return int(self._width)

    def narrow(self) -> None:
        """The store has refused: what was sent together with that request is refused for the same reason."""
        if self._ignored:
            self._ignored -= 1
            return
        self._ignored = self.now
        self._width = max(1.0, self._width / 2)

    def widen(self) -> None:
        """The store has kept up."""
        self._ignored = max(0, self._ignored - 1)
        self._width = min(float(self.most), self._width + 1 / self._width)
