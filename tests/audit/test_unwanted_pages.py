"""
The page that an audit asks for ahead, when nobody wants it any more.
"""

import asyncio
import gc
from typing import Any

import pytest

from tableorm import AuditReport, Database
from tableorm.audit import audit as auditing
from tableorm.connection.connection import Connection
from tableorm.jobs import scan
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import RowPage, RowQuery
from tests.audit.foreign import Employee, everyone
from tests.database.between import Between


class NoMorePages(Between):
    """A store that refuses every page but the first, or takes its time for them."""

    refused = 0
    slow = False
    under_way = 0

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        if continuation is not None:
            self.refused += 1
            while self.slow:
                await self._wait()
            raise Fault(Code.INVALID_INPUT, "no more pages")
        return await self.inner.tables.query(table, query, limit, continuation)

    async def _wait(self) -> None:
        self.under_way += 1
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)  # a request that is called back takes a while to end
            self.under_way -= 1


class _Stopped(Exception):
    pass


async def some_turns(_: Connection, rows: int = 1) -> None:
    for _turn in range(min(rows, 5)):
        await asyncio.sleep(0)


def stop(report: AuditReport) -> None:
    raise _Stopped(str(report))


@pytest.mark.parametrize("slow", [False, True])
async def test_a_page_that_nobody_wants(monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    """The page before it could not be worked on: nobody hears of its error, and no request outlives the audit."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    monkeypatch.setattr(auditing, "SEGMENT", 5)
    monkeypatch.setattr(scan, "MAX_PAGE", 40)
    monkeypatch.setattr(Connection, "yield_to_loop", some_turns)
    store = NoMorePages()
    store.slow = slow
    async with Database(store) as db:
        await db.create_tables(Employee)
        for number in range(4):
            for employee in everyone(f"D{number}"):
                await db.insert(employee)
        with pytest.raises(_Stopped):
            await db.audit(Employee, parallel=1, on_progress=stop)
        assert store.under_way == 0
    gc.collect()
    await asyncio.sleep(0)

    assert store.refused == 1
    assert heard == []
