"""
What a user puts between program and service: policies, hooks, tracing, logs; for tables, queues and blobs alike.
"""

import asyncio
import gc
import logging
import warnings
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import AsyncHTTPPolicy, SansIOHTTPPolicy
from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tableorm import NotSupported
from tableorm.protocol.codes import Code
from tableorm.stores import RetryPolicy
from tableorm.testing.contract.base import new_name, refusal, row
from tableorm_azure import AzureBackend
from tests.azure.stub import KEY as STUB_KEY
from tests.azure.stub import Answer, Stub, Token, error_answer, page_answer, row_answer, secure_stub
from tests.azurite import Azurite
from tests.rows import insert_row

Call = Callable[[Any], Awaitable[object]]


# A request to each service by each way: our own, and through each client of the SDK.
CALLS: dict[str, Call] = {
    "row": lambda backend: backend.tables.get("Table1", "p", "r"),
    "tables": lambda backend: backend.tables.list_tables(),
    "queue": lambda backend: backend.queues.length("queue1"),
    "blob": lambda backend: backend.blobs.info("box", "name"),
}
FOUND = {
    "row": row_answer(),
    "tables": page_answer(),
    "queue": Answer(200, {"x-ms-approximate-messages-count": "3"}),
    "blob": Answer(
        200, {"ETag": '"1"', "Last-Modified": "Thu, 29 Feb 2024 12:00:00 GMT", "x-ms-blob-type": "BlockBlob"}
    ),
}

each_call = pytest.mark.parametrize("name", list(CALLS))


async def supply() -> str:
    """A token of the tables, from a function."""
    return "sig=secrettables"


class Recorder(SansIOHTTPPolicy[Any, Any]):
    """A user's policy, which changes what is signed."""

    def __init__(self, name: str = "x-ms-client-request-id") -> None:
        self.name, self.seen = name, list[str]()

    def on_request(self, request: PipelineRequest[Any]) -> None:
        request.http_request.headers[self.name] = "mine"
        self.seen.append(request.http_request.method)

    def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
        self.seen.append(str(response.http_response.status_code))


@each_call
async def test_policies_and_hooks_of_every_service(stub: Stub, name: str) -> None:
    """Those of each call see it once, those of each attempt and the hooks see all, and what they change is sent."""
    call, attempt, hooks = Recorder("x-ms-call"), Recorder("x-ms-attempt"), list[str]()

    def see_request(request: PipelineRequest[Any]) -> None:
        hooks.append(request.http_request.method)

    def see_response(response: PipelineResponse[Any, Any]) -> None:
        hooks.append(str(response.http_response.status_code))

    stub.answers = [Answer(500), FOUND[name]]
    async with stub.backend(
        per_call_policies=[call],
        per_retry_policies=[attempt],
        raw_request_hook=see_request,
        raw_response_hook=see_response,
    ) as backend:
        await CALLS[name](backend)
        assert (backend.traffic.attempts, backend.traffic.retries) == (2, 1)

    method = stub.requests[0].method
    assert call.seen == [method, "200"]
    assert attempt.seen == hooks == [method, "500", method, "200"]
    assert all(request.headers["x-ms-call"] == request.headers["x-ms-attempt"] == "mine" for request in stub.requests)


class Passing(AsyncHTTPPolicy[Any, Any]):
    """A user's policy that calls the next one, when others had their turn."""

    def __init__(self) -> None:
        self.passed = 0

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        await asyncio.sleep(0.001)
        request.http_request.headers["x-ms-client-request-id"] = f"{self.passed}"
        response: PipelineResponse[Any, Any] = await self.next.send(request)
        self.passed += 1
        return response


async def test_a_policy_that_calls_the_next_one(azurite: Azurite) -> None:
    """One object serves requests of every service at the same time, and each goes its own way and is signed for it."""
    call, attempt = Passing(), Passing()
    options: dict[str, Any] = {"per_call_policies": [call], "per_retry_policies": [attempt]}
    backend: Any = AzureBackend.from_url(azurite.connection_string, timeout=30.0, options=options)
    async with backend:
        calls: list[Awaitable[object]] = []
        for _ in range(5):
            calls += [backend.tables.list_tables(), backend.queues.list_queues("none-")]
            calls += [backend.blobs.list_containers("none-"), refusal(backend.tables.get("Absent", "p", "r"))]
        await asyncio.gather(*calls)

    assert (call.passed, attempt.passed) == (20, 20)


@pytest.fixture
async def joint(azurite: Azurite) -> AsyncIterator[Any]:
    """Azurite by a policy that changes what is signed, at each attempt."""
    recorder = Recorder()
    options: dict[str, Any] = {"per_call_policies": [Recorder("x-ms-meta-call")], "per_retry_policies": [recorder]}
    async with AzureBackend.from_url(azurite.connection_string, timeout=30.0, options=options) as backend:
        yield backend
        assert recorder.seen


async def test_what_a_policy_changes_is_signed(joint: Any) -> None:
    """A service that checks signatures takes requests to which a policy has added what is signed."""
    name = new_name().lower()
    await joint.tables.create_table(name)
    await insert_row(joint.tables, name, row())
    await joint.tables.delete_table(name)
    await joint.queues.create_queue(name)
    await joint.queues.put(name, b"text")
    await joint.queues.delete_queue(name)
    await joint.blobs.create_container(name)
    await joint.blobs.put(name, "a b/é 1+1", b"x" * 5_000_000)
    assert await joint.blobs.read(name, "a b/é 1+1", 10, 3) == b"xxx"
    await joint.blobs.delete_container(name)


@pytest.mark.parametrize(
    "own",
    ["?sv=1&sig=secretown", f"AccountName=other;AccountKey={b64encode(b'o' * 64).decode()};"],
    ids=["sas", "key"],
)
@pytest.mark.parametrize(
    "given", [{"key": STUB_KEY}, {"sas": "sig=secrettables"}, {"sas": supply}], ids=["key", "sas", "function"]
)
@pytest.mark.parametrize("service", ["queue", "blob"])
async def test_what_a_place_says_of_access_opens_it(stub: Stub, service: str, given: dict[str, Any], own: str) -> None:
    """Queues and blobs of another account have a key or token of their own, and never get that of the tables."""
    stub.handler = lambda request: FOUND[service] if "Table" not in request.target else FOUND["row"]
    place = (
        f"{stub.url}{own}" if own[0] == "?" else f"{own}{service.title()}Endpoint={stub.url.replace('stub', 'other')}"
    )
    backend = AzureBackend.from_url(stub.url, timeout=10.0, options={**given, f"{service}s": place})
    async with backend:
        await CALLS[service](backend)
        await CALLS["row"](backend)

    there, here = stub.requests
    if own[0] == "?":
        assert "sig=secretown" in there.target and "authorization" not in there.headers
    else:
        assert "sig=" not in there.target and there.headers["authorization"].startswith("SharedKey other:")
    assert "secretown" not in here.target
    assert ("sig=secrettables" in here.target) == ("sas" in given)
    assert ("authorization" in here.headers) == ("key" in given)


@pytest.mark.parametrize("service", ["queue", "blob"])
def test_a_place_that_nothing_opens(service: str) -> None:
    """A function that supplies tokens does so for tables; queues and blobs have to say what opens them."""
    options = {"sas": supply, f"{service}s": "http://127.0.0.1:1/acc"}
    with pytest.raises(NotSupported, match=f"supplies tokens opens tables only; give {service}s="):
        AzureBackend.from_url("http://127.0.0.1:1/acc", timeout=10.0, options=options)


@each_call
async def test_each_attempt_has_a_date_and_a_signature_of_its_own(stub: Stub, name: str) -> None:
    """After a wait the old ones may be too old; a key renewed meanwhile is used at once."""
    credential = AzureNamedKeyCredential("stub", STUB_KEY)

    async def renew() -> None:
        credential.update("stub", "b3RoZXI=")

    stub.answers = [Answer(500, before=renew), FOUND[name]]
    async with stub.backend(key=None, credential=credential) as backend:
        await CALLS[name](backend)

    first, second = (request.headers["authorization"] for request in stub.requests)
    assert first.startswith("SharedKey stub:") and second.startswith("SharedKey stub:") and first != second


@each_call
async def test_version_and_user_agent_of_every_service(stub: Stub, name: str) -> None:
    """Tables have a version of their own, queues and blobs share the other. The user's agent is in front of ours."""
    stub.answers = [FOUND[name]]
    options: dict[str, Any] = {
        "api_version": "2020-12-06",
        "storage_api_version": "2021-12-02",
        "user_agent": "shop/1.2",
    }
    async with stub.backend(**options) as backend:
        await CALLS[name](backend)

    (request,) = stub.requests
    assert request.headers["x-ms-version"] == ("2021-12-02" if name in ("queue", "blob") else "2020-12-06")
    assert request.headers["user-agent"].startswith("shop/1.2 tableorm/0.")


@each_call
async def test_proxies_of_every_service(stub: Stub, name: str) -> None:
    """Each goes through the proxy that was given, to an endpoint that only the proxy knows."""
    stub.answers = [FOUND[name]]
    urls = {service: f"http://{service}.example.org/stub" for service in ("table", "queue", "blob")}
    options = {
        "key": STUB_KEY,
        "queues": urls["queue"],
        "blobs": urls["blob"],
        "proxies": {"http": f"http://127.0.0.1:{stub.port}"},
    }
    async with AzureBackend.from_url(urls["table"], timeout=10.0, options=options) as backend:
        await CALLS[name](backend)

    place = {"queue": "queue", "blob": "blob"}.get(name, "table")
    assert stub.requests[0].target.startswith(urls[place])


@pytest.fixture
async def secure(certificate: Path) -> AsyncIterator[Stub]:
    """A stub that is served over https."""
    async with secure_stub(certificate) as stub:
        yield stub


SCOPES: list[tuple[dict[str, Any], str]] = [
    ({}, "https://storage.azure.com/.default"),
    ({"audience": "https://storage.azure.us"}, "https://storage.azure.us/.default"),
    ({"audience": "https://storage.azure.us/.default"}, "https://storage.azure.us/.default"),
]


@pytest.mark.parametrize(("options", "scope"), SCOPES)
@each_call
async def test_a_token_for_every_service(secure: Stub, name: str, options: dict[str, Any], scope: str) -> None:
    """It is asked for the one scope, also of another cloud, and sent."""
    secure.answers = [FOUND[name]]
    credential = Token()
    async with secure.backend(key=None, credential=credential, **options) as backend:
        await CALLS[name](backend)

    assert set(credential.scopes) == {scope}
    assert [request.headers["authorization"] for request in secure.requests] == ["Bearer secret-token"]


CHALLENGE = "Bearer authorization_uri=https://login.example.org/tenant-1/oauth2/authorize resource_id=https://management.azure.com"


@each_call
async def test_a_token_of_the_tenant_that_the_service_names(secure: Stub, name: str) -> None:
    """
    A credential of another tenant is asked again, with that one; the request is sent again, and no other one. No token
    is asked for another resource, such as Azure's management, which the server could use there.
    """
    secure.answers = [Answer(401, {"WWW-Authenticate": CHALLENGE}), FOUND[name]]
    credential = Token()
    async with secure.backend(key=None, credential=credential) as backend:
        await CALLS[name](backend)
        await CALLS[name](backend)

    assert "tenant-1" in credential.tenants and set(credential.scopes) == {SCOPES[0][1]}
    assert len(secure.requests) == 3


@pytest.mark.parametrize("challenge", [{}, {"WWW-Authenticate": "Basic"}, {"WWW-Authenticate": CHALLENGE}], ids=str)
async def test_a_token_that_does_not_open(secure: Stub, challenge: dict[str, str]) -> None:
    """What is rejected again, or for another reason, is denied."""
    secure.answers = [Answer(401, challenge)]
    async with secure.backend(key=None, credential=Token()) as backend:
        fault = await refusal(CALLS["row"](backend))

    assert (fault.code, fault.doubt) == (Code.NO_AUTHENTICATION, False)
    assert len(secure.requests) <= 2


@pytest.mark.parametrize("service", ["tables", "queues", "blobs"])
async def test_a_token_in_the_clear_is_refused(stub: Stub, service: str) -> None:
    """Of queues and blobs too, beside tables that are served over https."""
    options: dict[str, Any] = {"credential": Token(), service: stub.url}
    url = options.pop("tables", "https://acc.table.cosmos.azure.com")
    with pytest.raises(NotSupported, match="HTTPS"):
        await AzureBackend.from_url(url, timeout=5.0, options=options).open()


async def test_nothing_of_any_service_is_left_open(stub: Stub) -> None:
    """Opened, used, closed and opened again, no session and no connector complains."""
    backend = stub.backend()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            await backend.open()
            for name, call in CALLS.items():
                stub.answers = [FOUND[name]]
                await call(backend)
            await backend.close()
        del backend
        gc.collect()


# Tracing

SECRET = "sv=2019-02-02&sig=c2VjcmV0c2lnbmF0dXJl"


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """Spans that have ended. OpenTelemetry lets a process choose where spans go once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    exporter.shutdown()  # the provider stays, and gets the spans of the mapper from then on


@pytest.fixture(params=["plug-in", "native"])
def spans(request: pytest.FixtureRequest, exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    """Tracing is on, by either way that azure-core has."""
    exporter.clear()
    chosen: Any = settings  # its own types leave much open
    if request.param == "plug-in":
        chosen.tracing_implementation.set_value(OpenTelemetrySpan)
    chosen.tracing_enabled.set_value(True)
    yield exporter
    chosen.tracing_implementation.unset_value()
    chosen.tracing_enabled.unset_value()


def clients(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """The spans of requests; those of the SDK's methods stand around some of them."""
    return [span for span in spans.get_finished_spans() if span.kind is trace.SpanKind.CLIENT]


@each_call
async def test_a_span_for_every_request(stub: Stub, spans: InMemorySpanExporter, name: str) -> None:
    """It is a child of the program's own, tells method and status, goes along in `traceparent`, and shows no secret."""
    stub.answers = [FOUND[name]]
    async with stub.backend(credential=AzureSasCredential(SECRET), key=None) as backend:
        with trace.get_tracer("program").start_as_current_span("work") as own:
            await CALLS[name](backend)

    (span,) = clients(spans)
    assert span.context is not None and span.context.trace_id == own.get_span_context().trace_id
    found = dict(span.attributes or {})
    assert stub.requests[0].method in found.values()
    assert 200 in found.values()
    assert f"{span.context.span_id:016x}" in stub.requests[0].headers["traceparent"]
    assert "c2VjcmV0" not in "".join(each.to_json() for each in spans.get_finished_spans())
    assert "c2VjcmV0" in stub.requests[0].target


async def test_a_span_for_every_attempt_on_a_row(stub: Stub, spans: InMemorySpanExporter) -> None:
    """A request that failed has a span too, and its repetition another."""
    stub.answers = [Answer(500), FOUND["row"]]
    async with stub.backend() as backend:
        await CALLS["row"](backend)

    statuses = [
        value for span in clients(spans) for value in dict(span.attributes or {}).values() if value in (200, 500)
    ]
    assert statuses == [500, 200]


async def test_no_spans_unless_asked_for(stub: Stub, exporter: InMemorySpanExporter) -> None:
    """Tracing is off by default."""
    exporter.clear()
    stub.answers = [FOUND["row"]]
    async with stub.backend() as backend:
        await CALLS["row"](backend)

    assert exporter.get_finished_spans() == ()


# Logs


@pytest.mark.parametrize("sas", [None, SECRET, SECRET.replace("sig", "%73ig"), SECRET.replace("sig=", "sig=%22")])
@each_call
async def test_logs_show_no_secrets(stub: Stub, caplog: pytest.LogCaptureFixture, name: str, sas: str | None) -> None:
    """
    All that azure-core and ours log of a request, its repetition and its failure, at the lowest level, however the name
    of a signature is written.
    """
    stub.answers = [Answer(500), error_answer(403, "AuthenticationFailed"), FOUND[name]]
    given: dict[str, Any] = {"key": STUB_KEY} if sas is None else {"key": None, "sas": sas}
    with caplog.at_level(logging.DEBUG):
        async with stub.backend(logging_enable=True, **given) as backend:
            await refusal(CALLS[name](backend))
            await CALLS[name](backend)

    assert "Request method" in caplog.text and "is sent again after InternalError" in caplog.text
    assert STUB_KEY not in caplog.text
    assert "c2VjcmV0" not in caplog.text
    for request in stub.requests:
        assert sas is not None or request.headers["authorization"].partition(":")[2] not in caplog.text


@pytest.mark.parametrize("answer", [error_answer(403, "AuthenticationFailed"), Answer(0)], ids=["refused", "cut"])
@each_call
async def test_errors_show_no_secrets(stub: Stub, name: str, answer: Answer) -> None:
    """Nor do faults, and the SDK's errors behind them."""
    stub.answers = [answer]
    async with stub.backend(key=None, sas=SECRET, retry=RetryPolicy(attempts=1)) as backend:
        fault = await refusal(CALLS[name](backend))

    assert "c2VjcmV0" in stub.requests[0].target
    assert "c2VjcmV0" not in f"{fault!r} {fault.__cause__!r} {fault.__cause__}"
