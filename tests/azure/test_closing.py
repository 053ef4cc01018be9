"""
Closing a backend while requests are under way.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tableorm.stores import Operation, Verb
from tableorm.testing.base import refusal, row
from tests.azure.stub import ETAG, Answer, Stub

INSERT = Operation(Verb.INSERT, row(A=1))


def _when(arrived: asyncio.Event, then: asyncio.Event) -> Callable[[], Awaitable[object]]:
    async def wait() -> None:
        arrived.set()
        await then.wait()

    return wait


async def test_closing_waits_for_what_is_under_way(stub: Stub) -> None:
    """Also for requests that wait for a connection, which aiohttp would cancel without a word."""
    arrived, closing = asyncio.Event(), asyncio.Event()
    stub.answers = [Answer(204, {"ETag": ETAG}, before=_when(arrived, closing))]
    async with stub.backend(connections=1) as backend:
        tasks = [asyncio.create_task(backend.tables.write("Table1", INSERT)) for _ in range(3)]
        await arrived.wait()
        asyncio.get_running_loop().call_soon(closing.set)

    assert await asyncio.gather(*tasks) == [ETAG] * 3


async def test_closing_does_not_wait_for_ever(stub: Stub) -> None:
    """What is under way ends by its own time-out at the latest."""
    arrived, forever = asyncio.Event(), asyncio.Event()
    stub.answers = [Answer(204, before=_when(arrived, forever))]
    async with stub.backend(timeout=0.1) as backend:
        task = asyncio.create_task(refusal(backend.tables.write("Table1", INSERT)))
        await arrived.wait()

    assert (await task).doubt
    forever.set()
