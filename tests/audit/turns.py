"""
How many entities an audit looks at in one turn of the event loop.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest

from tableorm.audit.context import AuditContext, EntitySnapshot
from tableorm.connection.tasks import stop_tasks
from tableorm.stores import Row

MOST = 10
"""So many take a millisecond or two."""


@attrs.define
class Snapshots:
    """
    Snapshots of rows that were made.

    Args:
        total: How many.
        in_turn: Since the last turn of the event loop.
        most: In one turn, at most.
    """

    total: int = 0
    in_turn: int = 0
    most: int = 0


@asynccontextmanager
async def count_snapshots(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Snapshots, None]:
    """Count the snapshots that audits make in the block, in each turn of the event loop."""
    counts, make = Snapshots(), AuditContext.snapshot

    def snapshot(context: AuditContext, row: Row) -> EntitySnapshot | None:
        counts.total += 1
        counts.in_turn += 1
        counts.most = max(counts.most, counts.in_turn)
        return make(context, row)

    async def begin_turns() -> None:
        while True:
            counts.in_turn = 0
            await asyncio.sleep(0)

    with monkeypatch.context() as patch:
        patch.setattr(AuditContext, "snapshot", snapshot)
        task = asyncio.create_task(begin_turns())
        try:
            yield counts
        finally:
            await stop_tasks([task])
