"""
Giving back: what is deleted while one looks for the deleted is found too.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm_local.engine import Engine
from tableorm_local.engine.sqlite import Connection


async def test_deletion_during_the_last_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that ends after a look began, and before its end is known, is looked for again."""
    loop, engine, again = asyncio.get_running_loop(), Engine(path), asyncio.Event()
    looks = 0

    def look(connection: Connection, rows: int) -> bool:
        nonlocal looks
        looks += 1
        loop.call_soon_threadsafe(engine.reclaim if looks == 1 else again.set)
        return False

    monkeypatch.setattr("tableorm_local.engine.reclaim._RECLAIMERS", (look,))
    await engine.open()
    engine.reclaim()
    async with asyncio.timeout(60):
        await again.wait()
    await engine.close()

    assert looks == 2
