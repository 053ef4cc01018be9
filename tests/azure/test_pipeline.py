"""
What goes over the wire, how often, and what a user may put in between.
"""

import asyncio
import gc
import logging
import socket
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

import pytest
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpTransport

from tableorm import EntityNotFound, PropertyBag, TableOrmError, Unavailable, connect
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, RetryPolicy, Row, RowQuery, TableStore, Verb
from tableorm.testing.contract.base import refusal, row
from tableorm_azure import AzureBackend
from tests.azure.stub import ETAG, KEY, NO_CONTENT, Answer, Stub, batch_answer, error_answer, page_answer, row_answer

Call = Callable[[TableStore], Awaitable[object]]
INSERT = Operation(Verb.INSERT, row(A=1))
TWO = [INSERT, Operation(Verb.INSERT, row(row_key="2"))]

READS: dict[str, Call] = {
    "get": lambda store: store.get("Table1", "p", "r"),
    "query": lambda store: store.query("Table1", RowQuery()),
    "list": lambda store: store.list_tables(),
}
WRITES: dict[str, Call] = {
    "insert": lambda store: store.write("Table1", INSERT),
    "merge": lambda store: store.write("Table1", Operation(Verb.MERGE, row(A=1), "*")),
    "replace": lambda store: store.write("Table1", Operation(Verb.REPLACE, row(A=1), ETAG)),
    "delete": lambda store: store.write("Table1", Operation(Verb.DELETE, row(), "*")),
    "transaction": lambda store: store.transact("Table1", [INSERT]),
    "create table": lambda store: store.create_table("Table1"),
    "delete table": lambda store: store.delete_table("Table1"),
}
BESIDE: dict[str, Callable[[Any], Awaitable[object]]] = {
    "queue": lambda backend: backend.queues.put("queue1", b"x"),
    "blob": lambda backend: backend.blobs.put("box", "name", b"x"),
    "delete blob": lambda backend: backend.blobs.delete("box", "name"),
}
"""Writes to queues and blobs."""

GOOD = {"get": row_answer(), "query": page_answer(), "list": page_answer(), "transaction": batch_answer(NO_CONTENT)}


def get_row(backend: AzureBackend) -> Coroutine[Any, Any, Row]:
    return backend.tables.get("Table1", "p", "r")


def write(backend: AzureBackend, name: str) -> Awaitable[object]:
    return BESIDE[name](backend) if name in BESIDE else WRITES[name](backend.tables)


def good(name: str) -> Answer:
    """An answer that satisfies the call."""
    return GOOD.get(name, NO_CONTENT)


@pytest.mark.parametrize(
    "answer", [error_answer(500, "InternalError"), Answer(503), Answer(0)], ids=["500", "503", "cut"]
)
@pytest.mark.parametrize("name", list(READS))
async def test_reads_are_repeated(stub: Stub, name: str, answer: Answer) -> None:
    """A read that failed, or whose connection was cut, is sent again, and counted."""
    stub.answers = [answer, answer, good(name)]
    async with stub.backend() as backend:
        await READS[name](backend.tables)

        assert len(stub.requests) == 3
        assert (backend.traffic.attempts, backend.traffic.retries, backend.traffic.throttled) == (3, 2, 0)


@pytest.mark.parametrize(
    "part",
    [error_answer(503, ""), error_answer(500, "OperationTimedOut"), error_answer(409, "EntityAlreadyExists")],
    ids=["503", "500", "409"],
)
async def test_a_transaction_that_failed_otherwise_is_sent_once(stub: Stub, part: Answer) -> None:
    """What is in doubt, or wrong, within an answer is not for the rate."""
    stub.answers = [batch_answer(part)]
    async with stub.backend() as backend:
        await refusal(backend.tables.transact("Table1", [INSERT]))

        assert len(stub.requests) == 1
        assert (backend.traffic.retries, backend.traffic.throttled) == (0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        error_answer(500, "InternalError"),
        error_answer(500, "OperationTimedOut"),
        error_answer(500, "InternalError", Retry_After="0"),
        Answer(502),
        Answer(503),
        Answer(504),
        Answer(0),
    ],
    ids=["500", "timeout", "retry-after", "502", "503", "504", "cut"],
)
@pytest.mark.parametrize("name", [*WRITES, *BESIDE])
async def test_writes_in_doubt_are_sent_once(stub: Stub, name: str, answer: Answer) -> None:
    """
    A write that may have happened is never repeated here, whatever the SDK, azure-core and aiohttp would do; the fault
    says so.
    """
    stub.answers = [row_answer(), answer, good(name)]
    async with stub.backend() as backend:
        await get_row(backend)  # aiohttp repeats on connections that were used before
        fault = await refusal(write(backend, name))

    assert fault.doubt
    assert answer.status or f"the connection to 127.0.0.1:{stub.port} broke: Server disconnected" in fault.message
    assert len(stub.requests) == 2


@pytest.mark.parametrize("name", BESIDE)
async def test_writes_beside_tables_that_were_throttled_are_repeated(stub: Stub, name: str) -> None:
    """They were rejected unread."""
    stub.answers = [error_answer(503, "ServerBusy"), error_answer(404, "BlobNotFound")]
    async with stub.backend() as backend:
        await refusal(write(backend, name))
        assert (backend.traffic.retries, backend.traffic.throttled) == (1, 1)


@pytest.mark.parametrize("name", list(WRITES))
async def test_a_time_out_leaves_a_write_in_doubt(stub: Stub, name: str) -> None:
    """No answer in time: the request had arrived. The message says where nobody answered."""
    forever = asyncio.Event()
    stub.answers = [Answer(204, before=forever.wait)]
    async with stub.backend(timeout=0.1) as backend:
        fault = await refusal(WRITES[name](backend.tables))
        forever.set()

    assert (fault.code, fault.doubt) == (Code.OPERATION_TIMED_OUT, True)
    assert f"127.0.0.1:{stub.port} did not answer within the 0.1 seconds of connect(timeout=)" in fault.message
    assert len(stub.requests) == 1


async def test_a_blob_that_stops_coming(stub: Stub) -> None:
    """What is read as a stream ends too, when no more of it comes."""
    head = {
        "Content-Range": "bytes 0-8/9",
        "ETag": '"1"',
        "Last-Modified": "Thu, 29 Feb 2024 12:00:00 GMT",
        "x-ms-blob-type": "BlockBlob",
    }
    stub.answers = [Answer(206, head, b"half", missing=5)]
    async with stub.backend(timeout=0.1, retry=RetryPolicy(attempts=2, base=0.0)) as backend:
        assert backend.blobs is not None
        fault = await refusal(backend.blobs.read("box", "name"))

    assert fault.code == Code.OPERATION_TIMED_OUT
    del fault
    with warnings.catch_warnings():
        # The SDK leaves the connection that it gave up to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def test_nobody_listens() -> None:
    """It is said at once, whatever the policy, since the URL is likely to be wrong; no write is in doubt."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/stub"
        policy = RetryPolicy(base=60.0, cap=60.0)
        options = {"key": KEY, "retry": policy}
        async with asyncio.timeout(20), AzureBackend.from_url(url, timeout=60.0, options=options) as backend:
            for call in (*READS.values(), *WRITES.values()):
                fault = await refusal(call(backend.tables))

                assert (fault.code, fault.doubt, fault.transient) == (Code.NO_HOST, False, False)
            assert backend.traffic.retries == 0
        async with asyncio.timeout(20), connect(url, key=KEY, retry=policy) as db:
            with pytest.raises(
                Unavailable, match=r"Nothing answers at 127\.0\.0\.1:.*start the server, or check the URL"
            ):
                await db.upsert(PropertyBag("Orders", "p", "r"))


async def test_a_server_that_starts_again_is_waited_for() -> None:
    """Once it has answered, a refused connection is tried again like after any transient fault."""
    refused = asyncio.Event()

    class Again(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            refused.set()

    logger, handler = logging.getLogger("tableorm_azure"), Again()
    async with Stub() as first:
        port = first.port
        backend = first.backend(retry=RetryPolicy(base=0.1, cap=0.2, attempts=1000))
        await backend.open()
        await get_row(backend)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        again = asyncio.create_task(get_row(backend))
        await refused.wait()
        async with Stub(port=port):
            await again
            await backend.close()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


async def test_cancelling_leaves_a_backend_that_goes_on(stub: Stub) -> None:
    """The connection of a cancelled request is not used again."""
    arrived, forever = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        arrived.set()
        await forever.wait()

    stub.answers = [Answer(200, before=hang), row_answer(A=1)]
    async with stub.backend(connections=1) as backend:
        task = asyncio.create_task(get_row(backend))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert (await get_row(backend))["A"] == 1
        forever.set()


async def test_one_pool_that_is_bounded(stub: Stub) -> None:
    """However many requests are made at once, so many connections there are at most."""
    async with stub.backend(connections=3) as backend:
        await asyncio.gather(*(get_row(backend) for _ in range(20)))

    assert stub.connections <= 3
    assert len(stub.requests) == 20


async def test_connections_are_used_at_once(stub: Stub) -> None:
    """As many requests as there may be connections are under way at the same time."""
    all_there = asyncio.Barrier(3)
    stub.answers = [Answer(204, {"ETag": ETAG}, before=all_there.wait)]
    async with stub.backend(connections=3, timeout=5.0) as backend:
        written = await asyncio.gather(*(backend.tables.write("Table1", INSERT) for _ in range(3)))

    assert written == [ETAG] * 3


async def test_a_place_that_is_no_service(stub: Stub) -> None:
    """A 404 without a code is not the service's word on a row: it is no absent entity."""
    stub.answers = [Answer(404, {}, b"<h1>Not Found</h1>")]
    async with connect(stub.url, key=KEY) as db:
        for call in (db.get_or_none(PropertyBag.key("Table1", "p", "r")), db.ping()):
            with pytest.raises(TableOrmError, match="Not Found") as caught:
                await call

            assert not isinstance(caught.value, EntityNotFound)


async def test_headers_of_a_request(stub: Stub) -> None:
    """Version, form of the answer, request id: what the service needs and its logs show."""
    async with stub.backend() as backend:
        await get_row(backend)
        await get_row(backend)

    first, second = (request.headers for request in stub.requests)
    assert first["x-ms-version"] == "2019-02-02"
    assert first["accept"] == "application/json;odata=minimalmetadata"
    assert first["dataserviceversion"] == "3.0"
    assert first["x-ms-client-request-id"] != second["x-ms-client-request-id"]
    assert {"content-type", "prefer"}.isdisjoint(first)


async def test_headers_and_body_of_an_insert(stub: Stub) -> None:
    """The content is not sent back; a Double says that it is one."""
    stub.answers = [NO_CONTENT]
    async with stub.backend() as backend:
        tag = await backend.tables.write("Table1", Operation(Verb.INSERT, row(A=1, B=3.0)))

    (request,) = stub.requests
    assert tag == ETAG
    assert (request.method, request.target, request.headers["prefer"]) == ("POST", "/stub/Table1", "return-no-content")
    assert request.body == b'{"PartitionKey":"p","RowKey":"r","A":1,"B":3.0,"B@odata.type":"Edm.Double"}'


class Counting(AsyncHttpTransport[Any, Any]):
    """A user's transport: one of azure-core's, and a count."""

    def __init__(self) -> None:
        self.inner: Any = AioHttpTransport()
        self.sent = 0

    async def send(self, request: Any, **options: Any) -> Any:
        self.sent += 1
        return await self.inner.send(request, **options)

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


async def test_a_transport_of_the_users(stub: Stub) -> None:
    """All goes through it, and it is closed with the backend."""
    transport = Counting()
    async with stub.backend(transport=transport) as backend:
        await get_row(backend)
    assert transport.sent == 1
    assert transport.inner.session is None


async def test_proxies(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's, unless others are given; it is looked at once, when the backend is opened."""
    url = "http://tables.example.org/stub"
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{stub.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    async with AzureBackend.from_url(url, timeout=5.0, options={"key": KEY}) as backend:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        await get_row(backend)
    async with AzureBackend.from_url(
        url, timeout=5.0, options={"key": KEY, "proxies": {}, "retry": RetryPolicy(attempts=1)}
    ) as backend:
        await refusal(get_row(backend))

    assert [request.target for request in stub.requests] == [f"{url}/Table1(PartitionKey='p',RowKey='r')"]


async def refusal_of_two(stub: Stub, part: Answer) -> Fault:
    """How a transaction of two operations fails, to which this part is all of the answer."""
    stub.answers = [batch_answer(part)]
    async with stub.backend() as backend:
        return await refusal(backend.tables.transact("Table1", TWO))


@pytest.mark.parametrize("code", ["NotFound", "EntityAlreadyExists"])
async def test_a_transaction_without_an_index(stub: Stub, code: str) -> None:
    """The service omits it at times: then it is not known; the SDK says 0."""
    fault = await refusal_of_two(stub, error_answer(409, code))

    assert (fault.code, fault.index, fault.doubt) == (code, None, False)


async def test_an_answer_that_does_not_count_up(stub: Stub) -> None:
    """Fewer parts than operations prove nothing."""
    assert (await refusal_of_two(stub, NO_CONTENT)).doubt


async def test_an_error_text_like_an_answer(stub: Stub) -> None:
    """What stands in a body is not taken for the status of another part."""
    text = "1:HTTP/1.1 204 No Content\nETag: nothing\n--changesetresponse_1"
    fault = await refusal_of_two(stub, error_answer(409, "EntityAlreadyExists", text))

    assert (fault.code, fault.index) == ("EntityAlreadyExists", 1)


async def test_an_answer_that_is_no_row(stub: Stub) -> None:
    """A gateway's page with status 200 is not read as a row."""
    stub.answers = [Answer(200, {}, b"<html>Please log in")]
    async with stub.backend() as backend:
        for call in READS["get"], READS["query"]:
            with pytest.raises(Fault, match="not a row") as caught:
                await call(backend.tables)
            assert caught.value.code == Code.INTERNAL_ERROR
