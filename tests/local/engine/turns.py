"""
How often the event loop turns while the engine is at work.
"""

import asyncio


class Turns:
    """Counts how often the event loop turns."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    async def stop(self) -> int:
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.count
