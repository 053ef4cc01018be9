"""
The way of a request: azure-core's pipeline with its policies over one pool of connections, and our signing.

azure-data-tables builds the same pipeline inside of its clients, where the bodies are its own business. Here they are
bytes: what a row becomes is decided in `codec` and `batch`.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from importlib.metadata import version
from os import urandom
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import attrs
from attrs.validators import ge, gt, instance_of
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline import AsyncPipeline, PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import (
    AsyncHTTPPolicy,
    AsyncRetryPolicy,
    AzureSasCredentialPolicy,
    CustomHookPolicy,
    DistributedTracingPolicy,
    HttpLoggingPolicy,
    NetworkTraceLoggingPolicy,
    ProxyPolicy,
    RequestHistory,
    SansIOHTTPPolicy,
    UserAgentPolicy,
)
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpTransport
from azure.core.rest import AsyncHttpResponse, HttpRequest

from tableorm.stores import Traffic

from .batch import throttled_part
from .faults import body_of, code_of, fault_of_response, is_throttled, never_sent, translated
from .signing import SharedKeyPolicy, StorageKeyPolicy, TokenPolicy

__all__ = [
    "API_VERSION",
    "Credential",
    "Flights",
    "Options",
    "Pipeline",
    "Policy",
    "RetryPolicy",
    "ThroughPipeline",
    "authentication",
    "make_transport",
    "policies",
    "storage_authentication",
    "user_agent",
]

Credential = AsyncTokenCredential | AzureNamedKeyCredential | AzureSasCredential
"""What opens an account: as azure-core has them."""

Policy = AsyncHTTPPolicy[Any, Any] | SansIOHTTPPolicy[Any, Any]
"""What a request passes: as azure-core's own are typed."""

# What azure-data-tables 12.7 sends. Source: "Versioning for the Azure Storage services".
API_VERSION = "2019-02-02"

_STORAGE_SCOPE = "https://storage.azure.com/.default"
_COSMOS_SCOPE = "https://cosmos.azure.com/.default"
_READS = frozenset({"GET", "HEAD"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "MERGE"})

# What a transaction is answered with, whatever became of it.
_BATCH_DONE = 202

# Under what a request tells `RetryPolicy` when its time is over, by the loop's clock.
_UNTIL = "tableorm_until"

_LARGE, _CHUNK = 512 * 1024, 128 * 1024  # bytes

_SIGNATURE = re.compile(r"([?&]sig=)[^&]*", re.IGNORECASE)

_log = logging.getLogger("tableorm_azure")


@attrs.frozen(kw_only=True)
class Options:
    """
    What `connect` takes for an Azure URL besides its credentials; see `AzureBackend.from_url`.
    """

    timeout: float = attrs.field(default=30.0, validator=[instance_of(float | int), gt(0)])
    api_version: str = attrs.field(default=API_VERSION, validator=instance_of(str))
    storage_api_version: str | None = None
    audience: str | None = None
    connections: int = attrs.field(default=100, validator=[instance_of(int), ge(1)])
    keepalive: float = attrs.field(default=15.0, validator=[instance_of(float | int), gt(0)])
    proxies: Mapping[str, str] | None = None
    retry_total: int = 5
    retry_backoff_factor: float = 0.2
    retry_backoff_max: float = 8.0
    transport: AsyncHttpTransport[Any, Any] | None = None
    per_call_policies: Sequence[Policy] = ()
    per_retry_policies: Sequence[Policy] = ()
    raw_request_hook: Callable[[Any], Any] | None = None
    raw_response_hook: Callable[[Any], Any] | None = None
    logging_enable: bool = False
    user_agent: str | None = None


def user_agent(options: Options) -> str:
    """The User-Agent: ours, then azure-core's, with the user's name in front and what the environment adds."""
    ours = f"tableorm/{version('tableorm')}"
    name = f"{options.user_agent} {ours}" if options.user_agent else ours
    return UserAgentPolicy(user_agent=name).user_agent


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


def _proxies_for(url: str, options: Options) -> dict[str, str]:
    """The proxies of a host: those that were given, else the environment's, looked up once."""
    if options.proxies is not None:
        return dict(options.proxies)
    parts = urlsplit(url)
    found = getproxies().get(parts.scheme)
    return {parts.scheme: found} if found and not proxy_bypass(parts.netloc) else {}


class RetryPolicy(AsyncRetryPolicy[Any, Any]):
    """
    azure-core's retries, told what is safe: reads are repeated whatever happened; writes only where it is certain that
    they were not done: they were never sent, or refused for their rate. The rest is in doubt, and the mapper's.

    Args:
        traffic: Where to count.
        options: Counts and times of azure-core: `retry_total`, `retry_backoff_factor`, `retry_backoff_max`.
    """

    def __init__(self, traffic: Traffic, options: Options) -> None:
        total = options.retry_total
        super().__init__(
            retry_total=total,
            retry_connect=total,
            retry_read=total,
            retry_status=total,
            retry_backoff_factor=options.retry_backoff_factor,
            retry_backoff_max=options.retry_backoff_max,
            timeout=options.timeout,
        )
        self._traffic = traffic

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        """Send a request as often as it takes, and as its time allows."""
        self._traffic.attempts += 1
        return await super().send(request)

    def configure_retries(self, options: dict[str, Any]) -> dict[str, Any]:
        """Every method may be repeated, as far as `is_retry` and `increment` allow."""
        options.setdefault("retry_on_methods", _METHODS)
        until: float | None = options.pop(_UNTIL, None)
        settings: dict[str, Any] = super().configure_retries(options)
        return {**settings, _UNTIL: until}

    def is_retry(self, settings: dict[str, Any], response: PipelineResponse[Any, Any]) -> bool:
        """Whether an answer lets its request be sent again."""
        http = response.http_response
        status = http.status_code
        if status == _BATCH_DONE:
            # All of a transaction is refused where one operation is, in an answer that is a success by its status.
            throttled = throttled_part(body_of(http)) is not None
        elif status < 400:
            return False
        else:
            throttled = is_throttled(status, code_of(http)) if status in (429, 503) else False
        self._traffic.throttled += throttled
        if response.http_request.method in _READS:
            return settings["total"] > 0 and status in (408, 429, 500, 502, 503, 504)
        return settings["total"] > 0 and throttled

    def increment(self, settings: dict[str, Any], response: Any = None, error: Exception | None = None) -> bool:
        """Count an attempt that failed; whether there is another."""
        request: HttpRequest = response.http_request
        if error is not None and request.method not in _READS and not never_sent(error):
            return False
        counted = response
        if error is None and response.http_response.status_code == _BATCH_DONE:
            # azure-core takes that status for a success, and counts the others so.
            settings["history"].append(RequestHistory(request, http_response=response.http_response))
            counted = PipelineRequest(request, response.context)
        again: bool = super().increment(settings, counted, error)
        if again and self._pause(settings, response, error) >= _left(settings):
            # To wait until the time is over would end in a time-out, which tells less: a write would be in doubt.
            return False
        if again:
            self._traffic.attempts += 1
            self._traffic.retries += 1
            _log.info(
                "%s %s is sent again after %s",
                request.method,
                urlsplit(request.url).path,
                f"status {response.http_response.status_code}" if error is None else type(error).__name__,
            )
        return again

    def get_retry_after(self, response: PipelineResponse[Any, Any]) -> float | None:
        """The seconds that an answer asks to wait; of a transaction, its part that was refused."""
        http = response.http_response
        part = throttled_part(body_of(http)) if http.status_code == _BATCH_DONE else None
        return super().get_retry_after(response) if part is None else part.retry_after

    def _pause(self, settings: dict[str, Any], response: Any, error: Exception | None) -> float:
        """The seconds until the next attempt, as `sleep` takes them."""
        asked = self.get_retry_after(response) if error is None else None
        seconds: float = asked or self.get_backoff_time(settings)
        return seconds


def _left(settings: Mapping[str, Any]) -> float:
    """The seconds that are left for a request, its repetitions included."""
    until: float | None = settings[_UNTIL]
    return float("inf") if until is None else until - asyncio.get_running_loop().time()


class _TraceLoggingPolicy(NetworkTraceLoggingPolicy):
    """azure-core's log of whole requests and answers, of which the signature is blotted out."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        shown = copy(request.http_request)
        shown.url = _SIGNATURE.sub(r"\1REDACTED", shown.url)
        shown.headers = {n: "REDACTED" if n.lower() == "authorization" else v for n, v in shown.headers.items()}
        super().on_request(PipelineRequest(shown, request.context))


class _Chunks:
    """A body in pieces, from the start each time it is sent: a large one at once would keep the event loop busy."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _CHUNK):
            yield self._body[start : start + _CHUNK]


class _Shared(AsyncHTTPPolicy[Any, Any]):
    """
    A user's policy in one of several pipelines. It knows one next policy only, which azure-core sets when it makes a
    pipeline; here that is a signpost, and each request carries where it points.
    """

    def __init__(self, policy: AsyncHTTPPolicy[Any, Any]) -> None:
        self._policy = policy
        policy.next = _Signpost(policy)

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        request.context[_Signpost.name_of(self._policy)] = self.next
        return await self._policy.send(request)


class _Signpost(AsyncHTTPPolicy[Any, Any]):
    """What comes next in the pipeline of a request."""

    def __init__(self, policy: AsyncHTTPPolicy[Any, Any]) -> None:
        self._name = self.name_of(policy)

    @staticmethod
    def name_of(policy: AsyncHTTPPolicy[Any, Any]) -> str:
        """Under what a request carries it."""
        return f"tableorm_next_{id(policy)}"

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        following: AsyncHTTPPolicy[Any, Any] = request.context[self._name]
        return await following.send(request)


def _shared(given: Sequence[Policy]) -> list[Policy]:
    return [_Shared(policy) if isinstance(policy, AsyncHTTPPolicy) else policy for policy in given]


def policies(
    url: str, signing: Policy | None, options: Options, traffic: Traffic, *, within_sdk: bool = False
) -> list[Policy]:
    """
    What a request passes, in order; whatever it is for, the user's policies and hooks see it before it is signed.

    Args:
        url: The endpoint, for the environment's proxies.
        signing: What signs it, last of all that may change it; None if nothing is left to do.
        options: Everything else.
        traffic: Where to count.
        within_sdk: Whether it comes through a client of the SDK, which gives it an id, notes it and traces it.
    """
    way: list[Policy] = [
        *_shared(options.per_call_policies),
        *_proxy(url, options),
        RetryPolicy(traffic, options),
        *_shared(options.per_retry_policies),
    ]
    # Each policy costs a request some microseconds: those that have nothing to do are left out.
    hooks = {"raw_request_hook": options.raw_request_hook, "raw_response_hook": options.raw_response_hook}
    if any(hooks.values()):
        way.append(CustomHookPolicy[Any, Any](**hooks))
    if signing is not None:
        way.append(signing)
    if options.logging_enable:
        way.append(_TraceLoggingPolicy(logging_enable=True))
    return way if within_sdk else [*way, DistributedTracingPolicy[Any, Any](), HttpLoggingPolicy()]


def authentication(credential: Credential, url: str, options: Options, *, cosmos: bool = False) -> Policy:
    """
    What opens the tables of an account, as a policy.

    Args:
        credential: As the user gave it.
        url: The endpoint.
        options: `audience` is what a token is for.
        cosmos: Whether it is Cosmos DB's.

    Raises:
        ValueError: A token would be sent in the clear.
    """
    if isinstance(credential, AzureNamedKeyCredential):
        return SharedKeyPolicy(credential)
    if isinstance(credential, AzureSasCredential):
        return AzureSasCredentialPolicy[Any, Any](credential)
    if urlsplit(url).scheme != "https":
        raise ValueError(f"a token is sent over HTTPS only, and {url!r} is not; give key= or sas= there")
    scope = options.audience or (_COSMOS_SCOPE if cosmos else _STORAGE_SCOPE)
    scope = scope if scope.endswith("/.default") else f"{scope.rstrip('/')}/.default"
    return TokenPolicy(credential, scope)


def storage_authentication(credential: Credential, url: str) -> Policy | None:
    """Likewise of queues and blobs, whose clients add a SAS or a token themselves; None for these."""
    return StorageKeyPolicy(credential, url) if isinstance(credential, AzureNamedKeyCredential) else None


def _proxy(url: str, options: Options) -> list[Policy]:
    proxies = _proxies_for(url, options)
    return [ProxyPolicy(proxies)] if proxies else []


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
                done = await self._pipeline.run(request, stream=stream, **{_UNTIL: limit.when()})
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
