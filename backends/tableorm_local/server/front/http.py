"""
HTTP: between aiohttp's connections and the service; what is too large, too slow or too much ends here.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import gzip
import logging
from collections.abc import Awaitable, Callable

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
from ..wire.options import DEFAULT_VERSION, check_client_request_id, options_of, version_of
from .access_log import AccessLog, Entry, shown, without_signature
from .limits import Budget, Limits
from .metrics import CONTENT_TYPE, Metrics

__all__ = ["Front"]

_logger = logging.getLogger("tableorm.server")

# Smaller answers are not worth it; larger ones than the second are compressed in a thread.
_COMPRESS_FROM = 1024
_COMPRESS_IN_THREAD = 64 * 1024
# With its head it is less than what asyncio buffers before it has anybody wait, 64 KiB.
_NEVER_WAITS = 16 * 1024


class _Connection(web.RequestHandler):
    """A connection; one too many is told so, and what is no HTTP is answered in the service's words."""

    __slots__ = ("_first", "_front")

    def __init__(self, front: "Front", server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        limits = front.limits
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_seconds,
            logger=_logger,
            access_log=None,  # type: ignore[arg-type] # None is what turns it off
            max_line_size=limits.url_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.headers,
            lingering_time=2.0,
        )
        self._front = front
        # Between requests aiohttp sees to it; before the first, not every version does.
        self._first = loop.call_later(limits.idle_seconds, self.force_close)

    def greeted(self) -> None:
        """A request has come."""
        self._first.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first.cancel()
        super().connection_lost(exc)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._front.is_full and isinstance(transport, asyncio.Transport):
            self._front.metrics.counts.turned_away("connection")
            transport.write(_BUSY)
            self.force_close()

    def close(self) -> None:
        # When the server stops; what is under way still needs what the client sends.
        if self._current_request is None:
            super().close()

    def log_exception(self, *args: object, **kw: object) -> None:
        # A body that is not what it says has been answered; reading on would only find that again.
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
    """Makes connections of ours."""

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
    The request of a message, also if its target names a host that cannot be one, such as `http://xn--/`.

    aiohttp decodes that host outside of all handlers: the error would end what reads the connection, and leave it open
    for good. Here it means nothing, as the target is read as it was sent.
    """
    loop = asyncio.get_running_loop()
    try:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)
    except ValueError:
        message = message._replace(url=message.url.relative())
        return web.BaseRequest(message, payload, protocol, writer, task, loop)


class _Exchange:
    """One request and what is known of it so far."""

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
        # Whether what is left of the body, if anything, is not worth reading.
        self.ends = False
        # Whether the client waits to be told to send its body, or not to.
        self.awaits = "Expect" in request.headers

    def called(self, operation: str) -> None:
        self.operation = operation


class Front:
    """
    Takes requests, and sends answers.

    Args:
        service: What answers them.
        limits: What it may hold.
        log: Where requests are noted; None for nowhere.
        metrics: Where they are counted.
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
        """Let connections go, those with a request under way once it is answered; not for longer than is allowed."""
        self._stopping = True
        self.server.pre_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop_seconds):
                await self._idle.wait()

    def refusal(self, status: int, exc: BaseException | None, message: str | None) -> web.StreamResponse:
        """The answer to what is no request, or to one that failed unforeseen; the connection ends with it."""
        if status >= 500:
            fault = Fault(
                Code.INTERNAL_ERROR, "Server encountered an internal error. Please try again after some time."
            )
        elif isinstance(exc, LineTooLong):
            fault = Fault(Code.INVALID_URI, "The request line or a header is too long.")
        else:
            why = "".join(char if " " <= char <= "~" else "?" for char in (message or "")[:100])
            fault = Fault(Code.INVALID_INPUT, f"One of the request inputs is not valid: it is no HTTP: {why}.")
        request_id = new_request_id()
        answer = error_answer(fault, request_id, dt.datetime.now(dt.UTC))
        self.metrics.counts.done("Malformed", answer.status, 0.0, 0, len(answer.body))
        response = _response(answer, standard_headers(request_id, DEFAULT_VERSION, None))
        response.force_close()
        return response

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, _Connection):
            request.protocol.greeted()
        page = self._page(request)
        if page is not None:
            return page
        exchange = _Exchange(request)
        if self._at_work >= self.limits.requests:
            self.metrics.counts.turned_away("request")
            busy = Fault(Code.SERVER_BUSY, "The server is busy: too many requests are waiting. Try again later.")
            return await self._send(exchange, error_answer(busy, exchange.id, dt.datetime.now(dt.UTC)))
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
        now, xml = dt.datetime.now(dt.UTC), exchange.is_xml
        try:
            return await self._ask(exchange)
        except Fault as fault:
            if fault.code == Code.INTERNAL_ERROR:
                _logger.error("request %s: %s", exchange.id, fault.message)  # noqa: TRY400 - it says what is wrong
            # The rest of a body that did not arrive in time is not waited for.
            exchange.ends = exchange.ends or fault.code == Code.OPERATION_TIMED_OUT
            return error_answer(fault, exchange.id, now, xml=xml)
        except TimeoutError:
            late = Fault(Code.OPERATION_TIMED_OUT, "The body of the request did not arrive in time.")
            answer = error_answer(late, exchange.id, now, xml=xml)
            # The service's own status for the code would have clients take it for a fault of the server.
            answer.status = 408
            exchange.ends = True
            return answer
        except ConnectionError:
            # The client has gone; what is answered reaches nobody.
            return Answer(400, {}, reason="ClientGone")
        except Exception:
            _logger.exception("request %s failed unforeseen", exchange.id)
            wrong = Fault(
                Code.INTERNAL_ERROR, "Server encountered an internal error. Please try again after some time."
            )
            return error_answer(wrong, exchange.id, now, xml=xml)

    async def _ask(self, exchange: _Exchange) -> Answer:
        request = exchange.request
        target, _, query = request.raw_path.partition("?")
        place = place_of(self.service.accounts, request.scheme, request.headers.get("Host", ""), target)
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
            read_body=lambda: self._read(exchange),
        )
        return await self.service.answer(incoming, exchange.called)

    async def _read(self, exchange: _Exchange) -> bytes:
        """
        The body of a request, decompressed.

        Raises:
            Fault: RequestBodyTooLarge, ServerBusy; InvalidInput if it is malformed.
            TimeoutError: It does not arrive.
        """
        request, most = exchange.request, self.limits.body_bytes
        if (request.content_length or 0) > most:
            exchange.ends = True
            raise _too_large(most)
        expected = request.headers.get("Expect")
        if expected is not None:
            if expected.strip().lower() != "100-continue":
                raise Fault(Code.INVALID_HEADER_VALUE, f"There is no Expect: {expected[:40]!r}, only 100-continue.")
            # Only now: who may not send is refused before it sends.
            if request.transport is not None and request.version >= (1, 1):
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            exchange.awaits = False
        parts = list[bytes]()
        # What has arrived already is not waited for; to set a timer and to cancel it would take longer than to read it.
        patience = None if request.content.is_eof() else self.limits.body_seconds
        try:
            async with asyncio.timeout(patience):
                while part := await request.content.readany():
                    self._budget.take(len(part))
                    exchange.received += len(part)
                    if exchange.received > most:
                        exchange.ends = True
                        raise _too_large(most)
                    parts.append(part)
        except (web.RequestPayloadError, HttpProcessingError) as error:
            exchange.ends = True
            raise Fault(
                Code.INVALID_INPUT,
                f"One of the request inputs is not valid: the body is not encoded as it says ({type(error).__name__}).",
            ) from None
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
            # A low level: the network is faster than the higher ones.
            compress = functools.partial(gzip.compress, body, 1)
            body = compress() if len(body) < _COMPRESS_IN_THREAD else await asyncio.to_thread(compress)
            headers["Content-Encoding"] = "gzip"
            headers["Vary"] = ", ".join(filter(None, [headers.get("Vary"), "Accept-Encoding"]))
        response = _response(answer, headers, body)
        sent = len(body)
        if exchange.ends or exchange.awaits or self._stopping:
            # Of a body that was not asked for nobody knows whether it comes, or another request in its place.
            response.force_close()
        try:
            self._budget.take(sent)
        except Fault as fault:
            self.metrics.counts.turned_away("request")
            answer = error_answer(fault, exchange.id, dt.datetime.now(dt.UTC), xml=exchange.is_xml)
            response, sent = _response(answer, headers | {"Content-Encoding": "identity"}), 0
        try:
            async with asyncio.timeout(None if _is_taken(request, sent) else self.limits.write_seconds):
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
        self._note(exchange, answer, sent)
        return response

    def _compresses(self, request: web.BaseRequest) -> bool:
        # Within a machine copying is faster than compressing.
        accepted = request.headers.get("Accept-Encoding", "")
        return "gzip" in accepted and (self._compress_for_all or not is_loopback(request.remote or ""))

    def _note(self, exchange: _Exchange, answer: Answer, sent: int) -> None:
        seconds = asyncio.get_running_loop().time() - exchange.started
        self.metrics.counts.done(exchange.operation, answer.status, seconds, exchange.received, sent)
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
                    agent=shown(request.headers.get("User-Agent", "")),
                )
            )

    def _page(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """The pages of the server itself; None for everything else."""
        if request.raw_path not in ("/healthz", "/metrics") or request.method not in ("GET", "HEAD"):
            return None
        if is_host_style(request.headers.get("Host", "")):
            return None
        if request.raw_path == "/healthz":
            return web.Response(text="ok\n")
        if not (self._open_metrics or is_loopback(request.remote or "")):
            return web.Response(status=404)
        self.gauge()
        return web.Response(body=self.metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})

    def gauge(self) -> None:
        """Put into the metrics how things are at this moment."""
        self.metrics.counts.now = {
            "connections": len(self.server.connections),
            "requests_at_work": self._at_work,
            "buffered_bytes": self._budget.used,
        }


def _is_taken(request: web.BaseRequest, size: int) -> bool:
    """Whether a body of this size goes to the system, or into the buffer before it, without waiting for the client."""
    transport = request.transport
    return size < _NEVER_WAITS and transport is not None and not transport.get_write_buffer_size()


def _too_large(most: int) -> Fault:
    return Fault(
        Code.REQUEST_BODY_TOO_LARGE,
        f"The request body is too large and exceeds the maximum permissible limit of {most} bytes.",
    )


def _response(answer: Answer, headers: dict[str, str], body: bytes | None = None) -> web.Response:
    all_headers = headers | answer.headers
    if answer.body:
        all_headers["Content-Type"] = answer.content_type
        if answer.content_type.startswith("application/json"):
            all_headers["DataServiceVersion"] = "3.0;"
    return web.Response(status=answer.status, headers=all_headers, body=answer.body if body is None else body)
