"""
HTTP: between aiohttp's server and the service. Whatever is too large, too slow or too much is rejected here.
"""

import asyncio
import contextlib
import datetime as dt
import gzip
import logging

import attrs
from aiohttp import web

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import text_from_datetime

from ..dispatch import Service
from ..security.accounts import is_loopback
from ..security.browsers import check_browser, names_this_machine
from ..wire.addressing import is_host_style, place_of
from ..wire.answers import error_answer, new_request_id, standard_headers
from ..wire.calls import Answer, Incoming, internal_error, invalid_input
from ..wire.options import DEFAULT_VERSION, check_client_request_id, options_of, version_of
from .access_log import HTTP_LOGGER, AccessLog, Entry, show_header, show_target
from .limits import Limits
from .metrics import Metrics
from .request_body import RequestBody

_logger = logging.getLogger("tableorm.server")

# Smaller answers are not worth compressing; those from the second size on are compressed in a thread.
_COMPRESS_FROM = 1024
_COMPRESS_IN_THREAD = 64 * 1024
# Fewer than the threads that asyncio has for everything.
_THREADS_TO_COMPRESS = 4

# How long requests have to end that were told to.
_LAST_SECONDS = 0.1

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
        self._at_work = 0
        self._arriving = set[asyncio.Timeout]()
        self._compressing = asyncio.Semaphore(_THREADS_TO_COMPRESS)
        self._stopping = False
        self.server = web.Server(
            self._handle,
            # What nobody waits for any longer is not worked on.
            handler_cancellation=True,
            keepalive_timeout=limits.idle_seconds,
            logger=HTTP_LOGGER,
            access_log=None,
            max_line_size=limits.url_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.headers,
            # The front discards what is left of a body, up to a limit, and decompresses what it reads.
            lingering_time=0.0,
            auto_decompress=False,
        )

    async def drain(self) -> None:
        """Close the connections, those with a request under way once it is answered; wait at most `stop_seconds`."""
        self._stopping = True
        self.server.pre_shutdown()
        now = asyncio.get_running_loop().time()
        for each in self._arriving:
            each.reschedule(now)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.limits.stop_seconds):
                    await self.server.shutdown(self.limits.stop_seconds)
        finally:  # also if nobody waits for the requests any longer
            await self.server.shutdown(_LAST_SECONDS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._is_own_page(request):
            return await self._answer_page(request)
        exchange = _Exchange(request, RequestBody(request, self.limits, self._arriving))
        if self._at_work >= self.limits.requests:
            self.metrics.count_refusal()
            busy = Fault(Code.SERVER_BUSY, "The server is busy: too many requests are waiting. Try again later.")
            exchange.answer = error_answer(busy, exchange.id)
            response = await self._send(exchange)
            self._record(exchange)
            return response
        self._at_work += 1
        try:
            exchange.answer = await self._answer(exchange)
            response = await self._send(exchange)
        finally:
            self._at_work -= 1
            self._record(exchange)
        if not request.content.is_eof():
            await exchange.body.discard()
        return response

    async def _answer(self, exchange: _Exchange) -> Answer:
        xml = exchange.is_xml
        try:
            return await self._ask_service(exchange)
        except Fault as fault:
            if fault.code == Code.INTERNAL_ERROR:
                _logger.error("request %s: %s", exchange.id, fault.message)  # noqa: TRY400 - the message says what is wrong
            # A body that did not arrive in time is not read further.
            exchange.body.ends |= fault.code == Code.OPERATION_TIMED_OUT
            return error_answer(fault, exchange.id, xml=xml)
        except TimeoutError:
            exchange.body.ends = True
            if self._stopping:
                stops = Fault(Code.SERVER_BUSY, "The server stops, and did not wait for the body of the request.")
                return error_answer(stops, exchange.id, xml=xml)
            late = Fault(Code.OPERATION_TIMED_OUT, "The body of the request did not arrive in time.")
            # With the service's own status for the code, 500, clients would take it for a fault of the server.
            return attrs.evolve(error_answer(late, exchange.id, xml=xml), status=408)
        except ConnectionError:
            return _CLIENT_GONE
        except Exception:
            _logger.exception("request %s failed unexpectedly", exchange.id)
            return error_answer(internal_error(), exchange.id, xml=xml)

    async def _ask_service(self, exchange: _Exchange) -> Answer:
        request = exchange.request
        if _has_odd_coding(request):
            raise invalid_input("the header Transfer-Encoding must be chunked.")
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
            read_body=exchange.body.read,
        )
        return await self.service.answer(incoming, exchange.set_operation)

    async def _send(self, exchange: _Exchange) -> web.StreamResponse:
        request = exchange.request
        headers = standard_headers(exchange.id, exchange.version, exchange.client_id) | exchange.cors
        if len(exchange.answer.body) >= _COMPRESS_FROM and self._compresses(request):
            exchange.answer = attrs.evolve(exchange.answer, body=await self._compress(exchange.answer.body))
            headers["Content-Encoding"] = "gzip"
            headers["Vary"] = ", ".join(filter(None, [headers.get("Vary"), "Accept-Encoding"]))
        response = _make_response(exchange.answer, headers)
        exchange.sent = len(exchange.answer.body)
        if exchange.body.ends or self._stopping or _has_doubtful_end(request):
            # Nobody knows whether a body that was not asked for still comes, or another request in its place.
            response.force_close()
        await self._write(request, response)
        # aiohttp keeps the last response of a connection until its next request.
        response.body = None
        return response

    async def _write(self, request: web.BaseRequest, response: web.Response) -> None:
        """Send an answer, and wait until the client has taken it. Its connection ends if that takes too long."""
        transport = request.transport
        if transport is None:
            return  # the client has gone
        # A writer waits until the system has taken all. asyncio's TLS takes 0 to mean that nothing may be written.
        transport.set_write_buffer_limits(high=0 if transport.get_extra_info("ssl_object") is None else 1)
        try:
            async with asyncio.timeout(self.limits.write_seconds):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            transport.abort()
        except ConnectionError:
            pass

    async def _compress(self, body: bytes) -> bytes:
        # The lowest level: the higher ones are slower than the network.
        if len(body) < _COMPRESS_IN_THREAD:
            return gzip.compress(body, 1)
        async with self._compressing:
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
        if not request.content.is_eof():
            await RequestBody(request, self.limits, self._arriving).discard()
        if request.raw_path == "/healthz":
            return web.Response(text="ok\n")
        # A name that a web page lets stand for this machine is not one of this machine.
        is_here = is_loopback(_address_of(request)) and names_this_machine(_host_of(request))
        if not (self._open_metrics or is_here):
            return web.Response(status=404)
        self.update_gauges()
        text = await asyncio.to_thread(self.metrics.render)
        if text is None:
            return web.Response(
                status=501, text="metrics need prometheus_client: install tableorm with its extra 'metrics'\n"
            )
        return web.Response(body=text, headers={"Content-Type": self.metrics.content_type})

    def update_gauges(self) -> None:
        """Set the gauges of the metrics to the values of this moment."""
        self.metrics.set_gauges(connections=len(self.server.connections), requests_at_work=self._at_work)


def _address_of(request: web.BaseRequest) -> str:
    """Return the address of the client; an empty text if aiohttp does not know it any more."""
    return request.remote or ""


def _host_of(request: web.BaseRequest) -> str:
    return request.headers.get("Host", "")


def _has_odd_coding(request: web.BaseRequest) -> bool:
    """Return whether the body of a request has another coding than chunks, which aiohttp would not decode."""
    codings = request.headers.getall("Transfer-Encoding", [])
    return bool(codings) and [each.lower() for each in codings] != ["chunked"]


def _has_doubtful_end(request: web.BaseRequest) -> bool:
    """
    Return whether a program on the way may see the end of a request elsewhere: one that speaks HTTP/1.0 knows no
    chunks, and after `Upgrade` another protocol might follow.
    """
    is_old = request.version < (1, 1) and "Transfer-Encoding" in request.headers
    return is_old or "Upgrade" in request.headers or _has_odd_coding(request)


def _make_response(answer: Answer, headers: dict[str, str]) -> web.Response:
    all_headers = {**headers, **answer.headers}
    if answer.body:
        all_headers["Content-Type"] = answer.content_type
        if answer.content_type.startswith("application/json"):
            all_headers["DataServiceVersion"] = "3.0;"
    return web.Response(status=answer.status, headers=all_headers, body=answer.body)
