"""
The body of a request: how much of it is read, decompressed and discarded.

Nothing is read before the service asks for the body, which it does once the request is authorized.
"""

import asyncio
import contextlib
import zlib

from aiohttp import web

from tableorm.protocol.codes import Code, Fault

from ..wire.calls import invalid_input
from .limits import Limits

# Bytes that are decompressed at once: about 100 us of work.
_SLICE_BYTES = 64 * 1024
# A client that was rejected may read the answer only once it has sent its body; one that sends nothing has none.
_SILENCE_SECONDS = 2.0


class RequestBody:
    """
    The body of a request.

    Args:
        request: The request.
        limits: How much is read, and how long.
        arriving: The waits for bodies that arrive. The server ends them when it stops.

    Attributes:
        received: The bytes that were read, as they were sent.
        ends: Whether the rest is not read, or may never come, so that the connection must end.
    """

    def __init__(self, request: web.BaseRequest, limits: Limits, arriving: set[asyncio.Timeout]) -> None:
        self._request, self._limits, self._arriving = request, limits, arriving
        self.received = 0
        # A client that waits for the answer 100 may send its body after another answer, or not.
        self._awaits_continue = self.ends = "Expect" in request.headers

    async def read(self) -> bytes:
        """
        Read all of it, decompressed.

        Raises:
            Fault: RequestBodyTooLarge; InvalidInput if it is malformed; InvalidHeaderValue.
            TimeoutError: It does not arrive in time, or the server stops.
            ConnectionResetError: The client has gone.
        """
        request = self._request
        if (request.content_length or 0) > self._limits.body_bytes:
            raise self._too_large_fault()
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate"):
            problem = f"The header Content-Encoding must be gzip, deflate or identity (got {encoding[:40]!r})."
            raise Fault(Code.INVALID_HEADER_VALUE, problem)
        self._send_continue()
        try:
            body = await self._receive()
        except web.RequestPayloadError as error:
            self.ends = True
            raise invalid_input(f"the body is not encoded as it says ({type(error).__name__}).") from None
        except RuntimeError:
            # What aiohttp raises if the connection was closed before the request was looked at.
            if request.transport is not None:
                raise
            raise ConnectionResetError("the client has gone") from None
        return body if encoding == "identity" or not body else await self._decompress(body, encoding)

    async def _receive(self) -> bytes:
        content, parts = self._request.content, list[bytes]()
        if content.is_eof():  # it needs no timer, which takes longer to set and cancel than the body to read
            parts.append(await content.readany())
            self._count(parts[0])
            return parts[0]
        time_limit = asyncio.timeout(self._limits.body_seconds)
        try:
            async with time_limit:
                self._arriving.add(time_limit)
                while part := await content.readany():
                    self._count(part)
                    parts.append(part)
        finally:
            self._arriving.discard(time_limit)
        return b"".join(parts)

    def _count(self, part: bytes) -> None:
        self.received += len(part)
        if self.received > self._limits.body_bytes:
            raise self._too_large_fault()

    async def discard(self) -> None:
        """
        Read what the client still sends, so that it gets to read the answer: as many bytes as a body may have, in the
        time that a body may take, until it sends nothing for a while.
        """
        if self._awaits_continue:
            return
        content, left = self._request.content, self._limits.body_bytes - self.received
        now = asyncio.get_running_loop().time
        latest = now() + self._limits.body_seconds
        # Whatever is wrong ends the connection. TimeoutError is an OSError.
        with contextlib.suppress(OSError, web.RequestPayloadError, RuntimeError):
            # One timer, as each turn of the event loop more is one more read of the socket.
            async with asyncio.timeout(0) as silence:
                while left > 0:
                    silence.reschedule(min(latest, now() + _SILENCE_SECONDS))
                    part = await content.readany()
                    if not part:
                        return
                    left -= len(part)
        if not content.is_eof() and self._request.transport is not None:
            self._request.transport.close()

    def _send_continue(self) -> None:
        """Tell a client that waits for it to send the body: one without the right to write was rejected before."""
        request, expected = self._request, self._request.headers.get("Expect")
        if expected is None:
            return
        if expected.strip().lower() != "100-continue":
            problem = f"The header Expect must be 100-continue (got {expected[:40]!r})."
            raise Fault(Code.INVALID_HEADER_VALUE, problem)
        if request.transport is not None and request.version >= (1, 1):
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._awaits_continue = self.ends = False

    async def _decompress(self, body: bytes, encoding: str) -> bytes:
        """Decompress slice by slice, so that a small body that grows large stops nobody."""
        # Some clients send deflate without the header of zlib, whose first byte ends with 8.
        window = 31 if encoding == "gzip" else 15 if body[0] & 15 == 8 else -15
        decompressor = zlib.decompressobj(window)
        parts, size, view = list[bytes](), 0, memoryview(body)
        while not decompressor.eof:
            given: bytes | memoryview = decompressor.unconsumed_tail
            if not given:
                given, view = view[:_SLICE_BYTES], view[_SLICE_BYTES:]
            try:
                part = decompressor.decompress(given, _SLICE_BYTES)
            except zlib.error as error:
                raise invalid_input(f"the body is not encoded as it says ({error}).") from None
            if not (part or given or decompressor.eof):
                raise invalid_input("the body is not encoded as it says (it ends too early).")
            size += len(part)
            if size > self._limits.body_bytes:
                raise self._too_large_fault()
            parts.append(part)
            if not decompressor.eof:
                await asyncio.sleep(0)
        if view or decompressor.unused_data:
            raise invalid_input("the body is not encoded as it says (more follows after its end).")
        return b"".join(parts)

    def _too_large_fault(self) -> Fault:
        self.ends = True
        return Fault(
            Code.REQUEST_BODY_TOO_LARGE,
            "The request body is too large and exceeds the maximum permissible limit of "
            f"{self._limits.body_bytes} bytes.",
        )
