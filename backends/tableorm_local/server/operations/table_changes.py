"""
Changes of tables: one after the other, with pauses where there are thousands of tables.

After each change the engine reads the names of all tables again, in one piece, at the next read of anybody. The pauses
grow with what that takes: however many tables somebody makes, others have most of the time.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from tableorm.protocol.codes import Fault

from ...engine import Engine
from ..wire.calls import Answer

# How long nothing is changed, in units of what it took to read the names again; and what needs no pause.
_REST, _SHORT_SECONDS = 19, 0.002


class TableChanges:
    """Where tables are made and deleted, whoever asks for it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._rests_until = 0.0

    async def run(self, engine: Engine, change: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return what a change answers. Once it has begun it ends, also if nobody waits for the answer any longer."""
        async with self._lock:
            await asyncio.sleep(self._rests_until - time.monotonic())
            task = asyncio.create_task(self._change(engine, change()))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.wait([task])
                if not task.cancelled():
                    task.exception()  # nobody is told
                raise

    async def _change(self, engine: Engine, change: Awaitable[Answer]) -> Answer:
        try:
            return await change
        finally:
            began = time.monotonic()
            with suppress(Fault):  # what the change answers is the answer
                await engine.list_tables(limit=1)
            seconds = time.monotonic() - began
            if seconds > _SHORT_SECONDS:
                self._rests_until = began + (_REST + 1) * seconds
