"""
HTTP: between aiohttp's connections and the service. Whatever is too large, too slow or too much is refused here.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import gzip
import logging
from collections.abc import Awaitable, Callable

import attrs
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import text_from_datetime

from ..dispatch import Incoming, Service
from ..security.accounts import is_loopback
from ..wire.addressing import is_host_style, place_of
from ..wire.answers import RETRY_SECONDS, error_answer, new_request_id, standard_headers
from ..wire.calls import Answer
from ..wire.faults import internal_error, invalid_input
from ..wire.options import DEFAULT_VERSION, check_client_request_id, options_of, version_of
from .access_log import AccessLog, Entry, shorten, without_signature
from .limits import Budget, Limits
from .metrics import Metrics

__all__ = ["Front"]

_logger = logging.getLogger("tableorm.server")

# Smaller answers are not worth compressing; those from the second size on are compressed in a thread.
_COMPRESS_FROM = 1024
_COMPRESS_IN_THREAD = 64 * 1024
# An answer smaller than this fits, with its head, into the 64 KiB that asyncio buffers before a writer must wait.
_NEVER_WAITS = 16 * 1024


class _Connection(web.RequestHandler):
    """A connection. One too many is told that the server is busy; what is not HTTP gets the service's errors."""

    __slots__ = ("_first", "_front")

    def __init__(self, front: "Front", server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        limits = front.limits
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_seconds,
            logger=_logger,
            access_log=None,  # type: ignore[arg-type] # None turns it off
            max_line_size=limits.url_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.headers,
            lingering_time=2.0,
        )
        self._front = front
        # Between requests aiohttp closes idle connections; before the first, not every version does.
        self._first = loop.call_later(limits.idle_seconds, self.force_close)

    def keep_open(self) -> None:
        """Let the connection live on: its first request has come."""
        self._first.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first.cancel()
        super().connection_lost(exc)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._front.is_full and isinstance(transport, asyncio.Transport):
            self._front.metrics.count_refusal("connection")
            transport.write(_BUSY)
            self.force_close()

    def close(self) -> None:
        # Called when the server stops. A request that is under way still needs what the client sends.
        if self._current_request is None:
            super().close()

    def log_exception(self, *args: object, **kw: object) -> None:
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
        if status >= 500:
            _logger.error("unexpected error in the server", exc_info=exc)
        return self._front.refusal(status, exc, message)


_BUSY = (
    "HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n"
    f"Retry-After: {RETRY_SECONDS}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
).encode()


class _Server(web.Server):
    """Makes a `_Connection` for each connection."""

    def __init__(self, front: "Front", handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handler, request_factory=_request_of)
        self._front = front

    def __call__(self) -> web.RequestHandler:
        return _Connection(self._front, self, asyncio.get_running_loop())


def _request_of(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """
    Make the request of a message, also if its target names a host that is not valid, such as `http://xn--/`.

    aiohttp decodes that host outside of all handlers: the error would end the task that reads the connection, and leave
    the connection open for ever. The host is not needed, as we read the target as it was sent.
    """
    loop = asyncio.get_running_loop()
    try:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)
    except ValueError:
        message = message._replace(url=message.url.relative())
        return web.BaseRequest(message, payload, protocol, writer, task, loop)


class _Exchange:
    """A request, and what is known about it so far."""

    def __init__(self, request: web.BaseRequest) -> None:
        self.request = request
        self.id = new_request_id()
        self.started = asyncio.get_running_loop().time()
        self.operation = "Unknown"
        self.version = DEFAULT_VERSION
        self.client_id: str | None = None
        self.received = 0
        self.is_xml = "comp=" in request.raw_path
        self.cors: dict[str, str] = {}
        # Whether the rest of the body is not read, so that the connection must end.
        self.ends = False
        # Whether the client waits for the answer 100 before it sends its body.
        self.awaits_continue = "Expect" in request.headers

    def set_operation(self, operation: str) -> None:
        self.operation = operation


class Front:
    """
    Takes requests, has the service answer them, and sends the answers.

    Args:
        service: The service that answers.
        limits: How much clients can make the front hold.
        log: The access log; None for no log.
        metrics: Counts the requests.
        open_metrics: Whether clients of other machines may read `/metrics`.
        compress_for_all: Whether answers to clients of this machine are compressed too, if they accept that.
    """

    def __init__(
        self,
        service: Service,
        limits: Limits,
        log: AccessLog | None,
        *,
        metrics: Metrics,
        open_metrics: bool = False,
        compress_for_all: bool = False,
    ) -> None:
        self.service, self.limits, self.log, self.metrics = service, limits, log, metrics
        self._compress_for_all = compress_for_all
        self._open_metrics = open_metrics
        self._budget = Budget(limits.buffered_bytes)
        self._at_work = 0
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.server = _Server(self, self._handle)

    @property
    def is_full(self) -> bool:
        """Whether there are more connections than there may be."""
        return len(self.server.connections) > self.limits.connections

    async def drain(self) -> None:
        """Close the connections, those with a request under way once it is answered; wait at most `stop_seconds`."""
        self._stopping = True
        self.server.pre_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop_seconds):
                await self._idle.wait()

    def refusal(self, status: int, exc: BaseException | None, message: str | None) -> web.StreamResponse:
        """Answer what is not HTTP, or a request that failed unexpectedly, and end the connection."""
        if status >= 500:
            fault = internal_error()
        elif isinstance(exc, LineTooLong):
            fault = Fault(Code.INVALID_URI, "The request line or a header is too long.")
        else:
            why = "".join(char if " " <= char <= "~" else "?" for char in (message or "")[:100])
            fault = invalid_input(f"it is not HTTP: {why}.")
        request_id = new_request_id()
        answer = error_answer(fault, request_id)
        self.metrics.count_request("Malformed", answer.status, seconds=0.0, received=0, sent=len(answer.body))
        response = _make_response(answer, standard_headers(request_id, DEFAULT_VERSION, None))
        response.force_close()
        return response

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, _Connection):
            request.protocol.keep_open()
        if _is_own_page(request):
            return await self._answer_page(request)
        exchange = _Exchange(request)
        if self._at_work >= self.limits.requests:
            self.metrics.count_refusal("request")
            busy = Fault(Code.SERVER_BUSY, "The server is busy: too many requests are waiting. Try again later.")
            return await self._send(exchange, error_answer(busy, exchange.id))
        self._at_work += 1
        self._idle.clear()
        try:
            return await self._send(exchange, await self._answer(exchange))
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()
            self._budget.give_back(exchange.received)

    async def _answer(self, exchange: _Exchange) -> Answer:
        xml = exchange.is_xml
        try:
            return await self._ask_service(exchange)
        except Fault as fault:
            if fault.code == Code.INTERNAL_ERROR:
                _logger.error("request %s: %s", exchange.id, fault.message)  # noqa: TRY400 - the message says what is wrong
            # A body that did not arrive in time is not read further.
            exchange.ends = exchange.ends or fault.code == Code.OPERATION_TIMED_OUT
            return error_answer(fault, exchange.id, xml=xml)
        except TimeoutError:
            late = Fault(Code.OPERATION_TIMED_OUT, "The body of the request did not arrive in time.")
            exchange.ends = True
            # With the service's own status for the code, 500, clients would take it for a fault of the server.
            return attrs.evolve(error_answer(late, exchange.id, xml=xml), status=408)
        except ConnectionError:
            # The client has gone: the answer is only for the access log.
            return Answer(400, reason="ClientGone")
        except Exception:
            _logger.exception("request %s failed unexpectedly", exchange.id)
            return error_answer(internal_error(), exchange.id, xml=xml)

    async def _ask_service(self, exchange: _Exchange) -> Answer:
        request = exchange.request
        target, _, query = request.raw_path.partition("?")
        place = place_of(self.service.accounts.find, request.scheme, request.headers.get("Host", ""), target)
        exchange.client_id = check_client_request_id(request.headers)
        exchange.version = version_of(request.headers, options_of(query))
        origin = request.headers.get("Origin")
        if origin is not None and request.method != "OPTIONS" and origin.isascii():
            exchange.cors = await self.service.cors_headers(place, origin, request.method)
        incoming = Incoming(
            id=exchange.id,
            verb=request.method,
            methods=request.headers.getall("X-HTTP-Method", []),
            place=place,
            query=query.partition("#")[0],
            headers=request.headers,
            version=exchange.version,
            scheme=request.scheme,
            address=request.remote or "",
            read_body=lambda: self._read_body(exchange),
        )
        return await self.service.answer(incoming, exchange.set_operation)

    async def _read_body(self, exchange: _Exchange) -> bytes:
        """
        Read the body of a request, decompressed.

        Raises:
            Fault: RequestBodyTooLarge, ServerBusy; InvalidInput if it is malformed.
            TimeoutError: The body does not arrive in time.
        """
        request, most = exchange.request, self.limits.body_bytes
        if (request.content_length or 0) > most:
            exchange.ends = True
            raise _too_large_fault(most)
        expected = request.headers.get("Expect")
        if expected is not None:
            if expected.strip().lower() != "100-continue":
                problem = f"The header Expect must be 100-continue (got {expected[:40]!r})."
                raise Fault(Code.INVALID_HEADER_VALUE, problem)
            # Only now: a client without the right to write was refused before it sends its body.
            if request.transport is not None and request.version >= (1, 1):
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            exchange.awaits_continue = False
        parts = list[bytes]()
        # A body that has arrived needs no timer, which would take longer to set and cancel than the body to read.
        patience = None if request.content.is_eof() else self.limits.body_seconds
        try:
            async with asyncio.timeout(patience):
                while part := await request.content.readany():
                    self._budget.take(len(part))
                    exchange.received += len(part)
                    if exchange.received > most:
                        exchange.ends = True
                        raise _too_large_fault(most)
                    parts.append(part)
        except (web.RequestPayloadError, HttpProcessingError) as error:
            exchange.ends = True
            raise invalid_input(f"the body is not encoded as it says ({type(error).__name__}).") from None
        except RuntimeError:
            # What aiohttp raises if the connection was closed before the request was looked at.
            if request.transport is not None:
                raise
            raise ConnectionResetError("the client has gone") from None
        return b"".join(parts)

    async def _send(self, exchange: _Exchange, answer: Answer) -> web.StreamResponse:
        request = exchange.request
        headers = standard_headers(exchange.id, exchange.version, exchange.client_id) | exchange.cors
        body = answer.body
        if len(body) >= _COMPRESS_FROM and self._compresses(request):
            # The lowest level: the higher ones are slower than the network.
            compress = functools.partial(gzip.compress, body, 1)
            body = compress() if len(body) < _COMPRESS_IN_THREAD else await asyncio.to_thread(compress)
            headers["Content-Encoding"] = "gzip"
            headers["Vary"] = ", ".join(filter(None, [headers.get("Vary"), "Accept-Encoding"]))
        response = _make_response(answer, headers, body)
        sent = len(body)
        if exchange.ends or exchange.awaits_continue or self._stopping:
            # Nobody knows whether a body that was not asked for still comes, or another request in its place.
            response.force_close()
        try:
            self._budget.take(sent)
        except Fault as fault:
            self.metrics.count_refusal("request")
            answer = error_answer(fault, exchange.id, xml=exchange.is_xml)
            response, sent = _make_response(answer, headers | {"Content-Encoding": "identity"}), 0
        try:
            async with asyncio.timeout(None if _fits_buffer(request, sent) else self.limits.write_seconds):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self._budget.give_back(sent)
        # aiohttp keeps the last response of a connection until its next request.
        response.body = None
        self._record(exchange, answer, sent)
        return response

    def _compresses(self, request: web.BaseRequest) -> bool:
        # Within a machine copying is faster than compressing.
        accepted = request.headers.get("Accept-Encoding", "")
        return "gzip" in accepted and (self._compress_for_all or not is_loopback(request.remote or ""))

    def _record(self, exchange: _Exchange, answer: Answer, sent: int) -> None:
        seconds = asyncio.get_running_loop().time() - exchange.started
        self.metrics.count_request(
            exchange.operation, answer.status, seconds=seconds, received=exchange.received, sent=sent
        )
        if self.log is not None:
            request = exchange.request
            self.log.add(
                Entry(
                    time=text_from_datetime(dt.datetime.now(dt.UTC)),
                    id=exchange.id,
                    client=request.remote or "",
                    verb=request.method,
                    url=without_signature(request.raw_path),
                    operation=exchange.operation,
                    status=answer.status,
                    code=answer.reason,
                    seconds=round(seconds, 6),
                    received=exchange.received,
                    sent=sent,
                    client_id=exchange.client_id or "",
                    agent=shorten(request.headers.get("User-Agent", "")),
                )
            )

    async def _answer_page(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.raw_path == "/healthz":
            return web.Response(text="ok\n")
        if not (self._open_metrics or is_loopback(request.remote or "")):
            return web.Response(status=404)
        self.update_gauges()
        text = await asyncio.to_thread(self.metrics.render)
        if text is None:
            return web.Response(status=501, text="metrics need prometheus_client: pip install 'tableorm[metrics]'\n")
        return web.Response(body=text, headers={"Content-Type": self.metrics.content_type})

    def update_gauges(self) -> None:
        """Set the gauges of the metrics to the values of this moment."""
        connections = len(self.server.connections)
        self.metrics.set_gauges(connections=connections, requests=self._at_work, buffered_bytes=self._budget.used)


def _is_own_page(request: web.BaseRequest) -> bool:
    """Return whether a request is for a page of the server itself, not for an account."""
    if request.raw_path not in ("/healthz", "/metrics") or request.method not in ("GET", "HEAD"):
        return False
    return not is_host_style(request.headers.get("Host", ""))


def _fits_buffer(request: web.BaseRequest, size: int) -> bool:
    """Return whether a body of this size can be written without waiting for the client."""
    transport = request.transport
    return size < _NEVER_WAITS and transport is not None and not transport.get_write_buffer_size()


def _too_large_fault(most: int) -> Fault:
    return Fault(
        Code.REQUEST_BODY_TOO_LARGE,
        f"The request body is too large and exceeds the maximum permissible limit of {most} bytes.",
    )


def _make_response(answer: Answer, headers: dict[str, str], body: bytes | None = None) -> web.Response:
    all_headers = {**headers, **answer.headers}
    if answer.body:
        all_headers["Content-Type"] = answer.content_type
        if answer.content_type.startswith("application/json"):
            all_headers["DataServiceVersion"] = "3.0;"
    return web.Response(status=answer.status, headers=all_headers, body=answer.body if body is None else body)
