"""
Polling: the pause between two looks at what may have come.
"""

import asyncio

_SHORTEST = 0.05


class PollPause:
    """
    The pause between two polls: short after one that found something, and twice as long after each that did not.

    Args:
        longest: The longest pause, in seconds.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._seconds = 0.0

    async def wait(self, *, found: bool) -> None:
        """Wait for the next poll. `found` says whether the last one found anything."""
        self._seconds = min(_SHORTEST if found else max(self._seconds * 2, _SHORTEST), self._longest)
        await asyncio.sleep(self._seconds)
