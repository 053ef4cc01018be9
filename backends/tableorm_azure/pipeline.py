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

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import note_bytes

from .faults import fault_of_response, translated
from .options import Options, Policy, user_agent
from .retries import DEADLINE

# Decompressed. A page has 4 MiB of rows at most; escapes in JSON and annotations make them several times as long.
_LONGEST_ANSWER = 64 * 1024 * 1024
_LARGE, _CHUNK = 512 * 1024, 128 * 1024  # bytes
_READS = frozenset({"GET", "HEAD"})
_ELSEWHERE = frozenset({300, 301, 302, 303, 307, 308})
_CONTENT = frozenset({200, 206})  # of a blob


def make_transport(options: Options) -> AsyncHttpTransport[Any, Any]:
    """Make the pool of connections. To be called in the event loop that uses it."""
    if options.transport is not None:
        return options.transport
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=options.connections, keepalive_timeout=options.keepalive),
        middlewares=(_send_once,),
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_BoundedResponse,
    )
    # With the environment's settings aiohttp looks for proxies and in .netrc on every call, for about a millisecond.
    # The time-out of a request does not cover an answer that is read as a stream; `read_timeout` covers each piece.
    transport: AsyncHttpTransport[Any, Any] = AioHttpTransport(
        session=session, use_env_settings=False, read_timeout=options.timeout
    )
    return transport


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """
    Keep aiohttp from sending a PUT or DELETE again when the connection breaks, which it does with all methods that HTTP
    calls idempotent. With an ETag the second one fails if the first has succeeded. Only `RepeatPolicy` repeats.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        broken = f"the connection to {request.url.host}:{request.url.port} broke: {error}"
        raise aiohttp.ClientConnectionError(broken) from error


class _BoundedResponse(aiohttp.ClientResponse):
    """
    An answer that is read in full only if it is not far longer than any of the service, decompressed or not, and
    declares no document type: the entities of one could make its XML a hundred times as long.
    """

    async def read(self) -> bytes:
        try:
            body = b"".join([piece async for piece in self._read_pieces()])
            await super().read()  # nothing is left; this gives the connection back
        except BaseException:
            self.close()
            raise
        # With characters U+0000 in it the parser of XML takes UTF-8 for UTF-16.
        if (b"<!DOCTYPE" in body or b"\0" in body) and "xml" in self.headers.get("Content-Type", "").lower():
            text = "The answer declares a document type, or is not in UTF-8, which no answer of the service does."
            raise Fault(Code.INTERNAL_ERROR, text, doubt=self.method != "GET")
        return body

    async def _read_pieces(self) -> AsyncIterator[bytes]:
        left = _LONGEST_ANSWER
        async for piece in self.content.iter_any():  # aiohttp decompresses piece by piece
            left -= len(piece)
            if left < 0:
                text = f"The answer is longer than {_LONGEST_ANSWER >> 20} MiB, which no answer of the service is."
                raise Fault(Code.INTERNAL_ERROR, text, doubt=self.method != "GET")
            yield piece


class _BoundedContent:
    """
    The content of an answer that is read as a stream, which is no longer than the range that was asked for.

    Args:
        content: The content, decompressed.
        most: How many bytes it has at most.
    """

    def __init__(self, content: aiohttp.StreamReader, most: int) -> None:
        self._content, self._most, self._left = content, most, most

    async def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raises Fault if there are too many."""
        piece = await self._content.read(size)
        self._left -= len(piece)
        if self._left < 0:
            text = f"The answer is longer than the {self._most} bytes that were asked for."
            raise Fault(Code.INTERNAL_ERROR, text)
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)  # aiohttp asks it whether it is at its end


class _Chunks:
    """A body in pieces, for each attempt anew: a large body in one piece would keep the event loop busy."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _CHUNK):
            yield self._body[start : start + _CHUNK]


class InFlight:
    """
    The number of requests that are under way. The connections are closed after them: aiohttp would cancel, without an
    error, those that wait for a connection, and cut off the others, so that writes would be in doubt.
    """

    def __init__(self) -> None:
        self._count = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    def add(self) -> None:
        """Count a request that begins."""
        self._count += 1
        self._none_left.clear()

    def remove(self) -> None:
        """Count a request that has ended, or was given up."""
        self._count -= 1
        if not self._count:
            self._none_left.set()

    async def wait_until_none(self, seconds: float) -> None:
        """Wait until all requests have ended, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none_left.wait()


class Pipeline:
    """
    Sends requests and raises faults.

    Args:
        transport: The pool of connections, which its maker opens and closes.
        policies: The policies that each request passes.
        options: Time-out, API version and user agent.
        in_flight: Counts the requests that are under way.
    """

    def __init__(
        self,
        transport: AsyncHttpTransport[Any, Any],
        policies: Sequence[Policy],
        options: Options,
        in_flight: InFlight | None = None,
    ) -> None:
        self.transport = transport
        self._in_flight = in_flight or InFlight()
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
        Send a request for tables, and return its answer, read in full.

        Args:
            method: `GET`, or one that writes.
            url: With its query, percent-encoded.
            headers: The headers besides those that every request has.
            body: The body, whose Content-Type is among the headers.

        Raises:
            Fault: The service refused the request, or there was no answer.
        """
        # The same id as azure-core's policy makes, in a twentieth of its time.
        sent = {**self._headers, "x-ms-client-request-id": urandom(16).hex(), **(headers or {})}
        request = HttpRequest(method, url, headers=sent, content=body)
        write = method != "GET"
        with translated(write=write):
            response = await self.run(request)
        note_bytes(len(body or b""), len(response.content))
        if response.status_code >= 300:
            raise fault_of_response(response.status_code, response.headers, response.content, write=write)
        return response

    async def run(self, request: HttpRequest, *, stream: bool = False) -> AsyncHttpResponse:
        """Send a request as it is. Raises the errors of azure-core, and TimeoutError."""
        body: object = request.content
        if isinstance(body, bytes) and len(body) > _LARGE:
            headers = {**request.headers, "Content-Length": str(len(body))}
            request = HttpRequest(request.method, request.url, headers=headers, content=_Chunks(body))
        self._in_flight.add()
        try:
            async with asyncio.timeout(self._timeout) as limit:
                done = await self._pipeline.run(request, stream=stream, **{DEADLINE: limit.when()})
        except TimeoutError:
            host = request.url.split("/")[2]
            late = f"{host} did not answer within the {self._timeout} seconds of connect(timeout=)"
            raise TimeoutError(late) from None
        finally:
            self._in_flight.remove()
        return done.http_response


class PipelineTransport(AsyncHttpTransport[HttpRequest, AsyncHttpResponse]):
    """
    A pipeline as the transport of a client of the SDK. The client, which repeats nothing itself, so has our retries and
    the connections that all clients share.

    Args:
        pipeline: Sends the requests. Its maker closes it.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def send(self, request: HttpRequest, *, stream: bool = False, **_: Any) -> AsyncHttpResponse:
        """
        Send a request. Other options are left over from policies of the SDK.

        Raises:
            Fault: The answer is too long, or names another address.
        """
        response = await self._pipeline.run(request, stream=stream)
        # The service sends UTF-8. Another charset hides what the SDK reads, and some take Python long to decode.
        response.encoding = "utf-8"
        if "Location" in response.headers and response.status_code in _ELSEWHERE:
            # The SDK would follow it: the key would sign whatever path the server names, and a token go to any host.
            await response.close()
            text = f"The answer {response.status_code} names another address, which is not followed."
            raise Fault(Code.INTERNAL_ERROR, text, doubt=request.method not in _READS)
        streamed = stream and response.status_code in _CONTENT
        if stream and not streamed:
            await response.read()  # as the SDK would
        found = getattr(response, "internal_response", None)
        if streamed and isinstance(found, _BoundedResponse):
            content: Any = _BoundedContent(found.content, _range_length(request.headers.get("x-ms-range", "")))
            found.content = content  # the SDK reads a stream by this method alone
        return response

    async def open(self) -> None:
        """Do nothing: the connections do not belong to this client."""

    async def close(self) -> None:
        """Do nothing: the connections do not belong to this client."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


def _range_length(asked: str) -> int:
    """Return how many bytes the range `bytes=FIRST-LAST` has; without a last one what the longest answer has."""
    first, dash, last = asked.removeprefix("bytes=").partition("-")
    return int(last) - int(first) + 1 if dash and last else _LONGEST_ANSWER
