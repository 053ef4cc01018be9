"""
The pipeline of a request: azure-core's, with our policies and signing, over one pool of connections.

azure-data-tables builds the same pipeline inside of its clients and makes the bodies itself. Here bodies are bytes:
`codec` and `batch` decide what a row becomes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from os import urandom
from typing import Any, Self

import aiohttp
from azure.core.pipeline import AsyncPipeline
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpTransport
from azure.core.rest import AsyncHttpResponse, HttpRequest

from .faults import fault_of_response, translated
from .options import Options, Policy, user_agent
from .retries import DEADLINE

__all__ = ["Flights", "Pipeline", "ThroughPipeline", "make_transport"]

_LARGE, _CHUNK = 512 * 1024, 128 * 1024  # bytes


def make_transport(options: Options) -> AsyncHttpTransport[Any, Any]:
    """The pool of connections; call it in the event loop that uses it."""
    if options.transport is not None:
        return options.transport
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=options.connections, keepalive_timeout=options.keepalive),
        middlewares=(_once,),
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )
    # With the environment's settings aiohttp looks for proxies and in .netrc on every call, for about a millisecond.
    # What is read as a stream is not under the time-out of its request any more: there it is that of every piece.
    transport: AsyncHttpTransport[Any, Any] = AioHttpTransport(
        session=session, use_env_settings=False, read_timeout=options.timeout
    )
    return transport


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """
    Keep aiohttp from sending a PUT or DELETE a second time when the connection breaks, as it does with all that HTTP
    calls idempotent: under an ETag the second fails where the first has succeeded. Repeating is `RetryPolicy`'s alone.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(f"the connection broke: {error}") from error


class _Chunks:
    """A body in pieces, from the start each time it is sent: a large one at once would keep the event loop busy."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _CHUNK):
            yield self._body[start : start + _CHUNK]


class Flights:
    """
    The requests that are under way. Whoever closes the connections waits for them: aiohttp would cancel those that wait
    for a connection, which nobody hears of, and cut the others, so that writes were in doubt.
    """

    def __init__(self) -> None:
        self._count = 0
        self._landed = asyncio.Event()
        self._landed.set()

    def begin(self) -> None:
        """A request sets out."""
        self._count += 1
        self._landed.clear()

    def end(self) -> None:
        """It has come back, or was given up."""
        self._count -= 1
        if not self._count:
            self._landed.set()

    async def landed(self, seconds: float) -> None:
        """Until all have ended, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._landed.wait()


class Pipeline:
    """
    Sends requests and raises faults.

    Args:
        transport: The pool of connections; whoever made it opens and closes it.
        policies: What each request passes.
        options: Time-out, API version and user agent.
        flights: Where to count what is under way.
    """

    def __init__(
        self,
        transport: AsyncHttpTransport[Any, Any],
        policies: Sequence[Policy],
        options: Options,
        flights: "Flights | None" = None,
    ) -> None:
        self.transport = transport
        self._flights = flights or Flights()
        self._pipeline: AsyncPipeline[HttpRequest, AsyncHttpResponse] = AsyncPipeline(transport, policies)
        self._timeout = options.timeout
        self._headers = {
            "x-ms-version": options.api_version,
            "DataServiceVersion": "3.0",
            "MaxDataServiceVersion": "3.0;NetFx",
            "Accept": "application/json;odata=minimalmetadata",
            "User-Agent": user_agent(options),
        }

    async def send(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> AsyncHttpResponse:
        """
        Send a request for tables and wait for the whole answer, which is a success.

        Args:
            method: `GET`, or one that writes.
            url: With its query, percent-encoded.
            headers: Besides those that every request has.
            body: Bytes, with a Content-Type among the headers.

        Raises:
            Fault: The service refused it, or there was no answer.
        """
        # An id as azure-core's policy makes one, at a twentieth of its cost.
        sent = {**self._headers, "x-ms-client-request-id": urandom(16).hex(), **(headers or {})}
        request = HttpRequest(method, url, headers=sent, content=body)
        write = method != "GET"
        with translated(write=write):
            response = await self.run(request)
        if response.status_code >= 300:
            raise fault_of_response(response.status_code, response.headers, response.content, write=write)
        return response

    async def run(self, request: HttpRequest, *, stream: bool = False) -> AsyncHttpResponse:
        """Send a request as it is; raises what azure-core raises, and TimeoutError."""
        body: object = request.content
        if isinstance(body, bytes) and len(body) > _LARGE:
            headers = {**request.headers, "Content-Length": str(len(body))}
            request = HttpRequest(request.method, request.url, headers=headers, content=_Chunks(body))
        self._flights.begin()
        try:
            async with asyncio.timeout(self._timeout) as limit:
                done = await self._pipeline.run(request, stream=stream, **{DEADLINE: limit.when()})
        finally:
            self._flights.end()
        return done.http_response


class ThroughPipeline(AsyncHttpTransport[HttpRequest, AsyncHttpResponse]):
    """
    A pipeline as the transport of a client of the SDK: told to repeat nothing itself, the client has our retries, and
    the connections that all share.

    Args:
        pipeline: The way of every request; whoever made it closes it.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def send(self, request: HttpRequest, *, stream: bool = False, **_: Any) -> AsyncHttpResponse:
        """Send a request. Other options are for policies of the SDK, which leave them behind."""
        return await self._pipeline.run(request, stream=stream)

    async def open(self) -> None:
        """Nothing: the connections are not this client's."""

    async def close(self) -> None:
        """Nothing, likewise."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass
