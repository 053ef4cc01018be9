"""
The body of a request: how much of it is read, decompressed and discarded.

Nothing is read before the service asks for the body, which it does once the request is authorized.
"""

import asyncio
import contextlib
import zlib

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tableorm.protocol.codes import Code, Fault

from ...engine import FairTurns
from ..wire.calls import invalid_input
from .connection import receive_much
from .limits import Budget, Limits

__all__ = ["RequestBody"]

# Bytes that are decompressed at once: about 100 us of work.
_SLICE_BYTES = 64 * 1024
# A client that was refused may read the answer only once it has sent its body; one that sends nothing has none.
_SILENCE_SECONDS = 2.0


class RequestBody:
    """
    The body of a request.

    Args:
        request: The request.
        limits: How much is read.
        budget: What all bodies take from, as long as they are held.
        caller: Who takes it.
        turns: The turns of callers at the event loop.

    Attributes:
        caller: Who takes it, which is known better once the request is authenticated, before anything is read.
        received: The bytes that were read, as they were sent.
        ends: Whether the rest is not read, or may never come, so that the connection must end.
    """

    def __init__(self, request: web.BaseRequest, limits: Limits, budget: Budget, caller: str, turns: FairTurns) -> None:
        self._request, self._limits, self._budget, self._turns = request, limits, budget, turns
        self.caller = caller
        self._held = 0
        self.received = 0
        # A client that waits for the answer 100 may send its body after another answer, or not.
        self._awaits_continue = self.ends = "Expect" in request.headers

    async def read(self) -> bytes:
        """
        Read all of it, decompressed.

        Raises:
            Fault: RequestBodyTooLarge, ServerBusy; InvalidInput if it is malformed; InvalidHeaderValue.
            TimeoutError: It does not arrive in time.
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
        parts = list[bytes]()
        # A body that has arrived needs no timer, which would take longer to set and cancel than the body to read.
        patience = None if request.content.is_eof() else self._limits.body_seconds
        receive_much(request.transport, much=True)
        try:
            async with asyncio.timeout(patience):
                while part := await request.content.readany():
                    self.received += len(part)
                    self._hold(len(part), self.received)
                    parts.append(part)
                    if not request.content.is_eof():
                        await self._take_turn(len(part))
        except (web.RequestPayloadError, HttpProcessingError) as error:
            self.ends = True
            raise invalid_input(f"the body is not encoded as it says ({type(error).__name__}).") from None
        except RuntimeError:
            # What aiohttp raises if the connection was closed before the request was looked at.
            if request.transport is not None:
                raise
            raise ConnectionResetError("the client has gone") from None
        finally:
            receive_much(request.transport, much=False)
        body = b"".join(parts)
        return body if encoding == "identity" or not body else await self._decompress(body, encoding)

    async def discard(self) -> None:
        """
        Read what the client still sends, so that it gets to read the answer: as many bytes as a body may have, in the
        time that a body may take, until it sends nothing for a while.
        """
        content, left = self._request.content, self._limits.body_bytes - self.received
        if self._awaits_continue:
            return
        # Whatever is wrong ends the connection. TimeoutError is an OSError.
        with contextlib.suppress(OSError, web.RequestPayloadError, HttpProcessingError, RuntimeError):
            async with asyncio.timeout(self._limits.body_seconds):
                while left > 0 and (part := await asyncio.wait_for(content.readany(), _SILENCE_SECONDS)):
                    left -= len(part)
                    await self._take_turn(len(part))

    async def _take_turn(self, size: int) -> None:
        """Count bytes that have arrived. Let other requests of the caller take their turns if they were many."""
        self._turns.count(self.caller, size)
        await self._turns.work(self.caller)

    def give_back(self) -> int:
        """Give back what the body has taken from the budget. Return how many bytes that are."""
        held, self._held = self._held, 0
        self._budget.give_back(held, self.caller)
        return held

    def _send_continue(self) -> None:
        """Tell a client that waits for it to send the body: one without the right to write was refused before."""
        request, expected = self._request, self._request.headers.get("Expect")
        if expected is None:
            return
        if expected.strip().lower() != "100-continue":
            problem = f"The header Expect must be 100-continue (got {expected[:40]!r})."
            raise Fault(Code.INVALID_HEADER_VALUE, problem)
        if request.transport is not None and request.version >= (1, 1):
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._awaits_continue = self.ends = False

    def _hold(self, amount: int, size: int) -> None:
        """Take from the budget for a body that has become so large."""
        if size > self._limits.body_bytes:
            raise self._too_large_fault()
        self._budget.take(amount, self.caller)
        self._held += amount

    async def _decompress(self, body: bytes, encoding: str) -> bytes:
        """Decompress slice by slice, in turns, so that a small body that grows large stops nobody."""
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
            self._hold(len(part), size)
            parts.append(part)
            if not decompressor.eof:
                await self._take_turn(len(part))
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
