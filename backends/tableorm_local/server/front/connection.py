"""
Connections: what each of them may hold before it is known who sends, and what one that holds too much is told.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpRequestParser, HttpVersion11, RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong, TransferEncodingError
from aiohttp.streams import EMPTY_PAYLOAD

from tableorm.protocol.codes import Fault

from ...engine import FairSlots, FairTurns
from ..security.accounts import network_of
from ..wire.answers import RETRY_SECONDS
from .limits import Budget, Limits
from .metrics import Metrics

__all__ = [
    "Connection",
    "ConnectionServer",
    "TooMuchWaitsError",
    "caller_of",
    "end_request",
    "must_close",
    "receive_much",
    "wait_for_all",
]

_logger = logging.getLogger("tableorm.server")

# A connection is not read further while twice as many bytes of a body have arrived that nobody has read. They count
# nowhere, as nobody has asked for them: so they are few.
_READ_AHEAD = 4 * 1024
# Bytes that are received at once, before somebody reads a body, and meanwhile. The former is a whole head: where
# something is left in the socket as it is closed, the client does not get the answer.
_FEW_BYTES, _MANY_BYTES = 64 * 1024, 256 * 1024
# Bytes that are parsed at once of a body in chunks, each of which may be a chunk or two.
_PIECE_BYTES = 16 * 1024
# What may stand between the bytes of such a body: so many bytes, and some for each byte of the body. Chunks of three
# bytes are good, as programs send that make a body piece by piece.
_FRAMING_BYTES, _FRAMING_SHARE = 16 * 1024, 2
# How many connections agree upon a key at once: all of them may send what costs most at the same moment.
_HANDSHAKES = 64
# The bytes of a head besides method, target and headers.
_LINE_BYTES = len("  HTTP/1.1\r\n\r\n")
_BUSY = (
    "HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n"
    f"Retry-After: {RETRY_SECONDS}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
).encode()


# What a request takes in memory besides the bytes of its head, and each header of it besides its bytes; and how often
# these are kept, as bytes and as text.
_REQUEST_COST, _HEADER_COST, _COPIES = 3_000, 200, 3


def _cost_of(size: int, headers: int) -> int:
    """Return how many bytes of memory a head takes."""
    return _REQUEST_COST + _HEADER_COST * headers + _COPIES * size


def _check_coding(message: RawRequestMessage) -> None:
    """Refuse a request whose body has another coding than chunks, which aiohttp would not decode."""
    codings = message.headers.getall("Transfer-Encoding", [])
    if [each.lower() for each in codings] != ["chunked"]:
        raise TransferEncodingError("its header Transfer-Encoding must be chunked")


class TooMuchWaitsError(HttpProcessingError):
    """All connections together hold too much that nobody has looked at yet."""


_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_Refuse = Callable[[int, BaseException | None, str | None], web.StreamResponse]
_Messages = Sequence[tuple[RawRequestMessage, StreamReader]]


class _BoundedParser:
    """
    A parser of requests that bounds what it keeps: the bytes of a head, and what all parsers hold together.

    What counts are heads and trailers that are not complete, requests that are not answered, and the last request that
    was: the parser and aiohttp's connection keep its head until the next one comes.

    aiohttp itself bounds each header and their number, and keeps up to 32 requests.

    Attributes:
        caller: Who takes from the budget: the client's address, known once it is connected.
        closes: Whether the connection is closed after its request, as what it would keep is too much.
        received: How many bytes have arrived.
    """

    def __init__(self, parser: "HttpRequestParser", limits: Limits, budget: Budget) -> None:
        self._parser, self._most, self._budget = parser, limits.head_bytes, budget
        self._most_headers = limits.headers
        self.caller = ""
        self.closes = False
        self.received = 0
        # The body of the last request, and the bytes that came after it.
        self._body: StreamReader = EMPTY_PAYLOAD
        self._head_bytes = 0
        # Whether that body comes in chunks, whose sizes stand between them; and how many bytes are such sizes or
        # trailers, which cannot be told apart.
        self._framed = False
        self._frame_bytes = 0
        # What stands between the bytes of that body so far.
        self._framing = 0
        # What arrived and is not parsed yet, as nobody has read what came before.
        self._rest = b""
        # What each request takes that is not answered yet, or if all are, what the last one took.
        self._costs: deque[int] = deque()
        self._is_answered = False
        self._held = 0
        self._paused = self._failed = False

    def feed_data(self, data: bytes) -> tuple[_Messages, bool, bytes]:
        """
        Read what has arrived.

        Raises:
            HttpProcessingError: It is not HTTP, or too much; nothing is read after that.
        """
        self.received += len(data)
        if self._failed:
            return (), False, b""
        try:
            return self._feed_pieces(data)
        except HttpProcessingError as error:
            self._failed = True
            self.release()
            if not self._body.is_eof():
                self._body.set_exception(error)
            raise

    def _feed_pieces(self, data: bytes) -> tuple[_Messages, bool, bytes]:
        if not (self._rest or (len(data) > _PIECE_BYTES and (self._framed or b"chunked" in data.lower()))):
            return self._feed(data)
        # What the parser itself keeps comes first.
        end, data = 0 if self._rest else _PIECE_BYTES, self._rest + data
        messages, upgraded, tail = self._feed(data[:end])
        while end < len(data) and not (upgraded or self._paused):
            at, end = end, end + _PIECE_BYTES
            more, upgraded, tail = self._feed(data[at:end])
            messages = [*messages, *more]
        self._rest = b"" if upgraded else data[end:]
        return messages, upgraded, tail + data[end:] if upgraded else tail

    def _feed(self, data: bytes) -> tuple[_Messages, bool, bytes]:
        body, within_body = self._body, not self._body.is_eof()
        before, self._paused = body.total_bytes, False
        messages, upgraded, tail = self._parser.feed_data(data)
        for message, _ in messages:
            if message.chunked:
                _check_coding(message)
        grown = body.total_bytes - before
        if within_body and self._framed:
            self._framing += len(data) - grown
            kept = _PIECE_BYTES if self._paused else 0
            if self._framing > _FRAMING_BYTES + _FRAMING_SHARE * body.total_bytes + kept and not messages:
                raise TransferEncodingError("too much stands between the bytes of its body")
        if not (data or messages):
            return messages, upgraded, tail  # the parser was asked to go on, and had nothing
        if messages and self._is_answered:
            self._is_answered = False
            self._costs.clear()
        is_alone = len(messages) == 1 and not (within_body or self._head_bytes or self._costs)
        if is_alone and len(data) <= self._most and data.endswith(b"\r\n\r\n"):
            # A head that came alone and whole, as most do.
            message, self._body = messages[0]
            self._framed, self._framing, self._frame_bytes = message.chunked, 0, 0
            self._costs.append(_cost_of(len(data), len(message.raw_headers)))
            self._count()
            return messages, upgraded, tail
        if grown and len(self._costs) > 1:
            self._costs[-1] += grown
        rest = self._head_bytes + len(data) - grown
        for message, self._body in messages:
            headers = message.raw_headers
            size = sum(map(len, chain.from_iterable(headers))) + 4 * len(headers)
            size += len(message.method) + len(message.path) + _LINE_BYTES
            if size > self._most:
                raise LineTooLong(b"", self._most)
            rest -= size + self._body.total_bytes
            self._costs.append(_cost_of(size, len(headers)) + (self._body.total_bytes if self._costs else 0))
            self._framed, self._framing = message.chunked, max(rest, 0)
        is_whole = self._body.is_eof()
        is_next = bool(messages) or (within_body and is_whole)
        if is_whole and within_body and not messages:
            # The parser keeps trailers with the head. Of a body that is not in chunks there is nothing to add.
            self._costs[-1] += _COPIES * (self._head_bytes + self._frame_bytes)
        if is_next:
            rest = min(rest, len(data))
        if not is_whole and (messages or grown or self._paused):
            # It belongs to the body, and what is not read yet is read when there is room.
            self._frame_bytes = max(min(rest, len(data)), 0) if self._framed and not self._paused else 0
            rest = 0
        elif rest > self._most and not (is_next and self._framed):
            raise LineTooLong(b"", self._most)
        elif is_whole:
            self._frame_bytes = 0
        self._head_bytes = max(rest, 0)
        self._count()
        return messages, upgraded, tail

    def _count(self) -> None:
        """Take from the budget what the connection holds by now, or give back what it does not."""
        partial = self._head_bytes + self._frame_bytes
        amount = sum(self._costs)
        if partial:
            # No header is shorter than four bytes.
            amount += _cost_of(partial, min(partial // 4, self._most_headers))
        if amount == self._held:
            return
        try:
            if amount > self._held:
                self._budget.take(amount - self._held, self.caller)
            else:
                self._budget.give_back(self._held - amount, self.caller)
        except Fault:
            if partial or len(self._costs) > 1:
                raise TooMuchWaitsError(code=503, message="too much waits") from None
            # A request that is alone is answered at once. It counts where requests at work do, and nothing of it stays.
            self.closes, amount = True, 0
            self._budget.give_back(self._held, self.caller)
        self._held = amount

    def end_request(self) -> None:
        """Count the first request no longer, unless it is the last one."""
        if len(self._costs) <= 1:
            self._is_answered = True
        else:
            self._costs.popleft()
            self._count()

    def release(self) -> None:
        """Count nothing any longer."""
        self._budget.give_back(self._held, self.caller)
        self._held = 0
        self._rest = b""
        self._costs.clear()

    def pause_reading(self) -> None:
        """Keep what arrives until `feed_data` is called again."""
        self._paused = True
        self._parser.pause_reading()

    def message_consumed(self) -> None:
        """Make room for another request."""
        self._parser.message_consumed()

    def set_upgraded(self, val: bool) -> None:  # noqa: FBT001 - aiohttp's signature
        """Read on after a request to speak another protocol, which is declined."""
        self._parser.set_upgraded(val)


class Connection(web.RequestHandler):
    """A connection. One too many is told that the server is busy; what is not HTTP gets the service's errors."""

    __slots__ = ("_bounds", "_link", "_pauses", "_places", "_server", "_untaken")

    def __init__(self, server: "ConnectionServer", places: Sequence[Budget]) -> None:
        limits = server.limits
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_seconds,
            logger=_logger,
            access_log=None,  # type: ignore[arg-type] # None turns it off
            max_line_size=limits.url_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.headers,
            # The front discards what is left of a body, up to a limit, and decompresses what it reads.
            lingering_time=0.0,
            auto_decompress=False,
            read_bufsize=_READ_AHEAD,
        )
        self._server, self._places = server, list(places)
        self._bounds = _BoundedParser(cast("HttpRequestParser", self._parser), limits, server.waiting)
        self._parser = cast("Any", self._bounds)
        # aiohttp forgets its transport once that is to be closed, which is done when the client has taken everything.
        self._link: asyncio.Transport | None = None
        # With TLS there are two that wait for the client: the socket, and what encrypts.
        self._pauses = 0
        self._untaken: asyncio.TimerHandle | None = None

    def end_request(self) -> None:
        """Count the request no longer that was answered."""
        self._bounds.end_request()

    @property
    def closes(self) -> bool:
        """Whether the connection is closed after its request, as what it would keep is too much."""
        return self._bounds.closes

    @property
    def received(self) -> int:
        """How many bytes have arrived, decrypted."""
        return self._bounds.received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, or say that there is none."""
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._link = transport
        server, caller = self._server, caller_of(transport)
        self._bounds.caller = caller
        receive_much(transport, much=False)
        wait_for_all(transport)
        try:
            server.places.take(1, caller)
            self._places.append(server.places)
        except Fault:
            server.metrics.count_refusal("connection")
            transport.write(_BUSY)
            self.force_close()

    def pause_writing(self) -> None:
        """Note that the client takes no more now: it has so long to take what waits for it."""
        self._pauses += 1
        if self._pauses > 1:
            return
        super().pause_writing()
        assert self._link is not None
        seconds = self._server.limits.write_seconds
        self._untaken = asyncio.get_running_loop().call_later(seconds, self._link.abort)

    def resume_writing(self) -> None:
        """Note that the client has taken everything."""
        self._pauses -= 1
        if not self._pauses:
            self._stop_timer()
            super().resume_writing()

    def _stop_timer(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give back all that the connection holds."""
        self._stop_timer()
        self._bounds.release()
        while self._places:
            self._places.pop().give_back(1, self._bounds.caller)
        super().connection_lost(exc)

    def close(self) -> None:
        """End the connection, once no request is under way."""
        # Called when the server stops. A request that is under way still needs what the client sends.
        if self._current_request is not None:
            return
        if self._messages:
            super().close()
        else:
            self.force_close()  # aiohttp would read nothing more, and leave the client waiting

    def log_exception(self, *args: object, **kw: object) -> None:
        """Log what goes wrong in the server itself."""
        # A malformed body has been answered; aiohttp reads on and finds the same fault again.
        if not isinstance(kw.get("exc_info"), (web.RequestPayloadError, HttpProcessingError)):
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - the base's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP, or a request that failed unexpectedly."""
        if status >= 500:
            _logger.error("unexpected error in the server", exc_info=exc)
        return self._server.refuse(status, exc, message)


class ConnectionServer(web.Server):
    """
    Makes the connections.

    Args:
        handler: Answers a request.
        refuse: Answers what is not HTTP, or a request that failed unexpectedly, given the status, error and message.
        limits: How much clients can make connections hold.
        metrics: Counts the refusals.
        turns: The turns of callers at the event loop.

    Attributes:
        places: How many connections are open.
        encrypted: How many connections speak TLS, or do not yet.
        waiting: What all connections hold of requests.
        handshakes: How many connections do not speak TLS yet.
        agreeing: Slots for those of them that agree upon a key now.
        shaking: The tasks of these.
    """

    def __init__(self, handler: _Handler, refuse: _Refuse, limits: Limits, metrics: Metrics, turns: FairTurns) -> None:
        # What nobody waits for any longer is not worked on.
        super().__init__(handler, request_factory=_request_of, handler_cancellation=True)
        self.refuse, self.limits, self.metrics, self.turns = refuse, limits, metrics, turns
        self.places = Budget(limits.connections, "too many connections are open")
        self.encrypted = Budget(limits.tls_connections, "too many connections are open")
        self.handshakes = Budget(limits.handshakes, "too many connections begin")
        self.agreeing = FairSlots(_HANDSHAKES)
        self.shaking = set[asyncio.Task[None]]()
        self.waiting = Budget(limits.waiting_bytes, "too much waits to be read")

    def __call__(self, *places: Budget) -> Connection:
        """Make a connection. When it is lost, it gives a place back to each of these budgets."""
        return Connection(self, places)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """End all connections."""
        for task in self.shaking:
            task.cancel()
        await asyncio.gather(*self.shaking, return_exceptions=True)
        await super().shutdown(timeout)


def caller_of(transport: asyncio.BaseTransport) -> str:
    """Return whom a connection counts for: the address of the client, an empty text if that is not known any more."""
    return network_of((transport.get_extra_info("peername") or ("",))[0])


def receive_much(transport: asyncio.BaseTransport | None, *, much: bool) -> None:
    """Receive much of a body at once, because somebody reads it, or little, because nobody does."""
    loose: Any = transport
    with suppress(AttributeError):  # not every event loop has such transports
        loose.max_size = _MANY_BYTES if much else _FEW_BYTES


def wait_for_all(transport: asyncio.WriteTransport) -> None:
    """Let a writer wait until the system has taken all that it has written: until then an answer counts."""
    # asyncio's transports for TLS take 0 to mean that nothing may be written.
    transport.set_write_buffer_limits(high=0 if transport.get_extra_info("ssl_object") is None else 1)


def end_request(request: web.BaseRequest) -> None:
    """Count a request no longer among those that wait."""
    cast("Connection", request.protocol).end_request()


def must_close(request: web.BaseRequest) -> bool:
    """Return whether the connection of a request is closed once the request is answered, and not read further."""
    return cast("Connection", request.protocol).closes


def _request_of(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """
    Make the request of a message, without the host of its target, such as `http://xn--/`: we read the target as it was
    sent.

    aiohttp decodes that host at once, before anybody takes turns. A long one takes it half a second. One that is not
    valid raises an error outside of all handlers, which would leave the connection open for ever.
    """
    loop = asyncio.get_running_loop()
    # Programs that speak HTTP/1.0 know no chunks, so one on the way may find another end of the body.
    has_doubtful_end = message.chunked and message.version < HttpVersion11
    if cast("Connection", protocol).closes or message.upgrade or has_doubtful_end:
        # aiohttp loses what follows a request to speak another protocol, or takes the middle of it for a request.
        message = message._replace(should_close=True)
    if message.url.absolute:
        message = message._replace(url=message.url.relative())
    return web.BaseRequest(message, payload, protocol, writer, task, loop)
