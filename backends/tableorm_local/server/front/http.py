"""
HTTP: between aiohttp's connections and the service. Whatever is too large, too slow or too much is refused here.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import gzip
import logging

import attrs
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import text_from_datetime

from ...engine import REQUEST_BYTES, FairSlots
from ..dispatch import Service
from ..security.accounts import is_loopback, network_of
from ..security.browsers import check_browser, names_this_machine
from ..wire.addressing import is_host_style, place_of
from ..wire.answers import error_answer, new_request_id, standard_headers
from ..wire.calls import Answer, Incoming, internal_error, invalid_input
from ..wire.options import DEFAULT_VERSION, check_client_request_id, options_of, version_of
from .access_log import AccessLog, Entry, show_header, show_target
from .connection import ConnectionServer, TooMuchWaitsError, end_request, must_close
from .limits import Budget, Limits
from .metrics import Metrics
from .request_body import RequestBody

__all__ = ["Front"]

_logger = logging.getLogger("tableorm.server")

# Smaller answers are not worth compressing; those from the second size on are compressed in a thread.
_COMPRESS_FROM = 1024
_COMPRESS_IN_THREAD = 64 * 1024
# Fewer than the threads that asyncio has for everything.
_THREADS_TO_COMPRESS = 4
# An answer to a write that is longer than its body by no more than this is sent, however little is free for answers.
_LITTLE_MORE = 16 * 1024
# A target beyond this length takes turns. To decode it takes as long as to copy so many bytes for each character.
_LONG_TARGET = 2 * 1024
_BYTES_PER_CHARACTER = 40

# What the access log has of a request whose client did not wait for the answer.
_CLIENT_GONE = Answer(400, reason="ClientGone")


class _Exchange:
    """A request, and what is known about it so far."""

    def __init__(self, request: web.BaseRequest, body: RequestBody) -> None:
        self.request = request
        self.id = new_request_id()
        self.started = asyncio.get_running_loop().time()
        self.answer = _CLIENT_GONE  # until there is another one
        self.sent = 0
        self.operation = "Unknown"
        self.version = DEFAULT_VERSION
        self.client_id: str | None = None
        self.body = body
        self.is_xml = "comp=" in request.raw_path
        self.cors: dict[str, str] = {}

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
        open_metrics: bool,
        compress_for_all: bool,
    ) -> None:
        self.service, self.limits, self.log, self.metrics = service, limits, log, metrics
        self._compress_for_all = compress_for_all
        self._open_metrics = open_metrics
        self._budget = Budget(limits.buffered_bytes, "too much is being received and sent")
        self._places = Budget(limits.requests, "too many requests are waiting")
        self._compressing = FairSlots(_THREADS_TO_COMPRESS)
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.server = ConnectionServer(self._handle, self._refuse, limits, metrics, service.turns)

    async def drain(self) -> None:
        """Close the connections, those with a request under way once it is answered; wait at most `stop_seconds`."""
        self._stopping = True
        self.server.pre_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop_seconds):
                await self._idle.wait()

    def _refuse(self, status: int, exc: BaseException | None, message: str | None) -> web.StreamResponse:
        """Answer what is not HTTP, or a request that failed unexpectedly, and end the connection."""
        if status >= 500:
            fault = internal_error()
        elif isinstance(exc, TooMuchWaitsError):
            self.metrics.count_refusal("connection")
            fault = Fault(Code.SERVER_BUSY, "The server is busy: too much waits to be read. Try again later.")
        elif isinstance(exc, LineTooLong):
            fault = Fault(Code.INVALID_URI, "The request line, a header or all headers together are too long.")
        else:
            why = "".join(char if " " <= char <= "~" else "?" for char in str(message)[:100])
            fault = invalid_input(f"it is not HTTP: {why}.")
        request_id = new_request_id()
        answer = error_answer(fault, request_id)
        self.metrics.count_request("Malformed", answer.status, seconds=0.0, received=0, sent=len(answer.body))
        response = _make_response(answer, standard_headers(request_id, DEFAULT_VERSION, None))
        response.force_close()
        return response

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await (self._answer_page(request) if self._is_own_page(request) else self._exchange(request))
        finally:
            end_request(request)

    async def _exchange(self, request: web.BaseRequest) -> web.StreamResponse:
        # Who sends it is not known before it is authenticated; until then it counts for the client's address.
        body = RequestBody(request, self.limits, self._budget, network_of(_address_of(request)), self.service.turns)
        exchange = _Exchange(request, body)
        try:
            self._take_place(body.caller)
        except Fault as busy:
            exchange.answer = error_answer(busy, exchange.id)
            response = await self._send(exchange)
            self._record(exchange)
            return response
        self._idle.clear()
        try:
            exchange.answer = await self._answer(exchange)
            response = await self._send(exchange)
        finally:
            self._places.give_back(1, body.caller)
            if not self._places.used:
                self._idle.set()
            body.give_back()
            self._record(exchange)
        if not (request.content.is_eof() or must_close(request)):
            await body.discard()
        return response

    def _take_place(self, caller: str) -> None:
        try:
            self._places.take(1, caller)
        except Fault:
            self.metrics.count_refusal("request")
            raise

    def _move(self, body: RequestBody, caller: str) -> None:
        """Let a request count for the caller that sent it."""
        self._take_place(caller)
        self._places.give_back(1, body.caller)
        body.caller = caller

    async def _answer(self, exchange: _Exchange) -> Answer:
        xml = exchange.is_xml
        try:
            return await self._ask_service(exchange)
        except Fault as fault:
            self.service.turns.count(exchange.body.caller, REQUEST_BYTES)
            if fault.code == Code.INTERNAL_ERROR:
                _logger.error("request %s: %s", exchange.id, fault.message)  # noqa: TRY400 - the message says what is wrong
            # A body that did not arrive in time is not read further.
            exchange.body.ends |= fault.code == Code.OPERATION_TIMED_OUT
            return error_answer(fault, exchange.id, xml=xml)
        except TimeoutError:
            late = Fault(Code.OPERATION_TIMED_OUT, "The body of the request did not arrive in time.")
            exchange.body.ends = True
            # With the service's own status for the code, 500, clients would take it for a fault of the server.
            return attrs.evolve(error_answer(late, exchange.id, xml=xml), status=408)
        except ConnectionError:
            return _CLIENT_GONE
        except Exception:
            _logger.exception("request %s failed unexpectedly", exchange.id)
            return error_answer(internal_error(), exchange.id, xml=xml)

    async def _ask_service(self, exchange: _Exchange) -> Answer:
        request = exchange.request
        length = len(request.raw_path)
        cost = 0 if length <= _LONG_TARGET else _BYTES_PER_CHARACTER * length
        await self.service.turns.work(exchange.body.caller, cost)
        target, _, query = request.raw_path.partition("?")
        place = place_of(self.service.accounts.find, request.scheme, _host_of(request), target)
        exchange.client_id = check_client_request_id(request.headers)
        query = query.partition("#")[0]
        options = options_of(query)
        exchange.version = version_of(request.headers, options)
        if request.method != "OPTIONS" and ("Origin" in request.headers or "Sec-Fetch-Site" in request.headers):
            exchange.cors = await self.service.cors_headers(place, request.headers.get("Origin", ""), request.method)
        if self.service.accounts.is_public(place.account):
            allowed = bool(exchange.cors) or request.method == "OPTIONS"
            check_browser(place.account, request.scheme, request.headers, allowed=allowed)
        incoming = Incoming(
            id=exchange.id,
            verb=request.method,
            place=place,
            query=query,
            options=options,
            headers=request.headers,
            version=exchange.version,
            scheme=request.scheme,
            address=_address_of(request),
            on_caller=functools.partial(self._move, exchange.body),
            read_body=exchange.body.read,
        )
        return await self.service.answer(incoming, exchange.set_operation)

    async def _send(self, exchange: _Exchange) -> web.StreamResponse:
        request, caller = exchange.request, exchange.body.caller
        headers = standard_headers(exchange.id, exchange.version, exchange.client_id) | exchange.cors
        held = self._hold_answer(exchange)
        try:
            if len(exchange.answer.body) >= _COMPRESS_FROM and self._compresses(request):
                body = await self._compress(exchange.answer.body, caller)
                exchange.answer = attrs.evolve(exchange.answer, body=body)
                self._budget.give_back(held - len(body), caller)
                held = len(body)
                headers["Content-Encoding"] = "gzip"
                headers["Vary"] = ", ".join(filter(None, [headers.get("Vary"), "Accept-Encoding"]))
            response = _make_response(exchange.answer, headers)
            exchange.sent = len(exchange.answer.body)
            if exchange.body.ends or self._stopping:
                # Nobody knows whether a body that was not asked for still comes, or another request in its place.
                response.force_close()
            await _write(request, response)
        finally:
            self._budget.give_back(held, caller)
        # aiohttp keeps the last response of a connection until its next request.
        response.body = None
        return response

    def _hold_answer(self, exchange: _Exchange) -> int:
        """Take the bytes of the answer from the budget, and return them; if they are too many, answer that instead."""
        held, caller = len(exchange.answer.body), exchange.body.caller
        writes = exchange.request.method not in ("GET", "HEAD")
        if held <= exchange.body.give_back() + _LITTLE_MORE and writes:
            # What was written must not be answered as if it was not. The answer takes the place of the body.
            self._budget.hold(held, caller)
            return held
        try:
            self._budget.take(held, caller)
        except Fault as fault:
            self.metrics.count_refusal("request")
            if writes:
                fault = Fault(Code.OPERATION_TIMED_OUT, f"{fault.message} What was asked may have been done.")
            exchange.answer = error_answer(fault, exchange.id, xml=exchange.is_xml)
            return 0
        return held

    async def _compress(self, body: bytes, caller: str) -> bytes:
        # The lowest level: the higher ones are slower than the network.
        if len(body) < _COMPRESS_IN_THREAD:
            await self.service.turns.work(caller, len(body))
            return gzip.compress(body, 1)
        async with self._compressing.hold(caller):
            return await asyncio.to_thread(gzip.compress, body, 1)

    def _compresses(self, request: web.BaseRequest) -> bool:
        # Within a machine copying is faster than compressing.
        accepted = request.headers.get("Accept-Encoding", "")
        return "gzip" in accepted and (self._compress_for_all or not is_loopback(_address_of(request)))

    def _record(self, exchange: _Exchange) -> None:
        answer, sent = exchange.answer, exchange.sent
        seconds = asyncio.get_running_loop().time() - exchange.started
        self.metrics.count_request(
            exchange.operation, answer.status, seconds=seconds, received=exchange.body.received, sent=sent
        )
        if self.log is not None:
            request = exchange.request
            self.log.add(
                Entry(
                    time=text_from_datetime(dt.datetime.now(dt.UTC)),
                    id=exchange.id,
                    client=_address_of(request),
                    verb=show_header(request.method),
                    url=show_target(self.service.accounts.find, _host_of(request), request.raw_path),
                    operation=exchange.operation,
                    status=answer.status,
                    code=answer.reason,
                    seconds=round(seconds, 6),
                    received=exchange.body.received,
                    sent=sent,
                    client_id=show_header(exchange.client_id or ""),
                    agent=show_header(request.headers.get("User-Agent", "")),
                )
            )

    def _is_own_page(self, request: web.BaseRequest) -> bool:
        """Return whether a request is for a page of the server itself, not for an account."""
        if request.raw_path not in ("/healthz", "/metrics") or request.method not in ("GET", "HEAD"):
            return False
        host = _host_of(request)
        if request.raw_path == "/healthz":
            # Probes give any host. What is signed may be for a table of that name.
            return not (is_host_style(host) and "Authorization" in request.headers)
        return not is_host_style(host) and (not self.service.accounts.any_public or names_this_machine(host))

    async def _answer_page(self, request: web.BaseRequest) -> web.StreamResponse:
        caller = network_of(_address_of(request))
        await self.service.turns.work(caller, REQUEST_BYTES)
        if not request.content.is_eof():
            await RequestBody(request, self.limits, self._budget, caller, self.service.turns).discard()
        if request.raw_path == "/healthz":
            return web.Response(text="ok\n")
        # A name that a web page lets stand for this machine is not one of this machine.
        is_here = is_loopback(_address_of(request)) and names_this_machine(_host_of(request))
        if not (self._open_metrics or is_here):
            return web.Response(status=404)
        self.update_gauges()
        text = await asyncio.to_thread(self.metrics.render)
        if text is None:
            return web.Response(status=501, text="metrics need prometheus_client: pip install 'tableorm[metrics]'\n")
        return web.Response(body=text, headers={"Content-Type": self.metrics.content_type})

    def update_gauges(self) -> None:
        """Set the gauges of the metrics to the values of this moment."""
        self.metrics.set_gauges(
            connections=len(self.server.connections) + self.server.handshakes.used,
            requests_at_work=self._places.used,
            buffered_bytes=self._budget.used,
            waiting_bytes=self.server.waiting.used,
        )


def _address_of(request: web.BaseRequest) -> str:
    """Return the address of the client; an empty text if aiohttp does not know it any more."""
    return request.remote or ""


def _host_of(request: web.BaseRequest) -> str:
    return request.headers.get("Host", "")


async def _write(request: web.BaseRequest, response: web.Response) -> None:
    """Send an answer, and wait until the client has taken it. Its connection ends if that takes too long."""
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await response.write_eof()


def _make_response(answer: Answer, headers: dict[str, str]) -> web.Response:
    all_headers = {**headers, **answer.headers}
    if answer.body:
        all_headers["Content-Type"] = answer.content_type
        if answer.content_type.startswith("application/json"):
            all_headers["DataServiceVersion"] = "3.0;"
    return web.Response(status=answer.status, headers=all_headers, body=answer.body)
