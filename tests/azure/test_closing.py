"""
Closing a backend while requests are under way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import AsyncHTTPPolicy

from tableorm.testing.contract.base import refusal
from tableorm_azure.pipeline import InFlight
from tests.azure.stub import ETAG, Answer, Stub
from tests.azure.test_pipeline import INSERT


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


async def test_closing_waits_for_the_last_request_alone() -> None:
    """It goes on as soon as none is under way, and at once if none was."""
    in_flight = InFlight()
    await in_flight.wait_until_none(1e9)
    in_flight.add()
    in_flight.add()
    waiting = asyncio.create_task(in_flight.wait_until_none(1e9))

    in_flight.remove()
    await asyncio.sleep(0)
    assert not waiting.done()
    in_flight.remove()
    await waiting


class Deaf(AsyncHTTPPolicy[Any, Any]):
    """Goes on waiting when it is told that the request's time is over."""

    def __init__(self) -> None:
        self.told, self.answered = asyncio.Event(), asyncio.Event()

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told.set()
            await self.answered.wait()
        return await self.next.send(request)


async def test_closing_gives_up_what_does_not_end(stub: Stub) -> None:
    """A user's policy that does not stop when it is cancelled keeps nobody from closing."""
    deaf = Deaf()
    try:
        async with stub.backend(timeout=0.01, per_call_policies=[deaf]) as backend:
            task = asyncio.create_task(refusal(backend.tables.write("Table1", INSERT)))
            await deaf.told.wait()

        assert not task.done()
    finally:
        deaf.answered.set()
    await task
    assert stub.requests == []
