"""
HTTP itself: headers of every answer, HEAD, Expect, compression, what is too large, too slow, too many or no HTTP.
"""

import asyncio
import datetime as dt
import gc
import io
import json
import logging
import sys
import threading
import time
import uuid
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from tableorm.protocol.shared_key import SignedParts, authorization, decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Account, Limits, Server, dispatch, serve
from tableorm_local.server.front import http
from tableorm_local.server.front.access_log import AccessLog, Entry
from tableorm_local.server.wire import options
from tableorm_local.server.wire.calls import Call
from tests.local.server.client import Api, Wire, head, http_date, root_of, served

ROW = {"PartitionKey": "p", "RowKey": "r", "A": 1}


@pytest.fixture
def nothing_left() -> None:
    """What earlier tests left of broken connections is told before this one, not during it."""
    gc.collect()


async def test_headers_of_every_answer(api: Api) -> None:
    """Every answer has the service's headers, echoes the client's id and the version that was asked for."""
    reply = await api("GET", "/Tables")
    for path in ("/Tab()", "/None"):
        reply = await api("GET", path, x_ms_client_request_id="mine", x_ms_version="2020-12-06")
        assert str(uuid.UUID(reply.headers["x-ms-request-id"])) == reply.headers["x-ms-request-id"]
        assert reply.headers["x-ms-client-request-id"] == "mine"
        assert reply.headers["x-ms-version"] == "2020-12-06"
        assert reply.headers["Cache-Control"] == "no-cache"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Server"].startswith("tableorm/")
        assert reply.headers["Date"].endswith("GMT")
    error = reply.json["odata.error"]
    assert error["message"]["lang"] == "en-US"
    assert f"\nRequestId:{reply.headers['x-ms-request-id']}\nTime:20" in error["message"]["value"]
    assert reply.headers["Content-Type"] == "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
    assert reply.headers["DataServiceVersion"] == "3.0;"
    policies = await api("GET", "/Tab", query="comp=acl")
    assert (policies.headers["Content-Type"], "DataServiceVersion" in policies.headers) == ("application/xml", False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x_ms_version": "2013-08-15"}, 200),
        ({"x_ms_version": "2025-01-05"}, 200),
        ({"x_ms_version": "2011-08-18"}, 400),
        ({"x_ms_version": "2019-13-45"}, 400),
        ({"x_ms_version": "latest"}, 400),
        ({"x_ms_client_request_id": "a b"}, 400),
        ({"DataServiceVersion": "3.0;NetFx", "MaxDataServiceVersion": "3.0;"}, 200),
    ],
)
async def test_versions_and_ids(api: Api, headers: dict[str, str], status: int) -> None:
    """A version that there is not, and an id that cannot be echoed, are rejected."""
    reply = await api("GET", "/Tab()", headers=headers)

    assert reply.status == status
    assert status == 200 or reply.code == "InvalidHeaderValue"


async def test_head(api: Api) -> None:
    """HEAD answers as GET does, without the body."""
    await api("POST", "/Tab", ROW)
    path = "/Tab(PartitionKey='p',RowKey='r')"
    full, bare = await api("GET", path), await api("HEAD", path)

    assert (bare.status, bare.body, bare.etag) == (200, b"", full.etag)
    assert bare.headers["Content-Length"] == str(len(full.body))
    assert (await api("HEAD", "/None")).status == 404


async def test_expect(server: Server, api: Api) -> None:
    """100-continue comes once the request is allowed, and not before."""
    body = json.dumps(ROW).encode()
    wire = await Wire.connect(server, head("POST", "/Tab", "Expect: 100-continue", f"Content-Length: {len(body)}"))
    assert await wire.status() == 100
    wire.writer.write(body)
    assert await wire.status() == 201


async def test_a_body_that_was_not_asked_for(server: Server, api: Api) -> None:
    """After a refusal instead of 100-continue the connection ends: another request is not taken for the body."""
    wire = await Wire.connect(server, head("POST", "/None", "Expect: 100-continue", "Content-Length: 10"))
    refused = await wire.reader.readuntil(b"\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 404 ")
    assert b"Connection: close\r\n" in refused
    wire.writer.write(head("DELETE", "/Tables('Tab')"))
    assert b"HTTP/1." not in await wire.everything()
    assert (await api("GET", "/Tab()")).status == 200


@pytest.mark.parametrize(
    ("compress_for_all", "is_here", "packed"), [(False, True, False), (True, True, True), (False, False, True)]
)
async def test_gzip_of_answers(
    monkeypatch: pytest.MonkeyPatch,
    *,
    compress_for_all: bool,
    is_here: bool,
    packed: bool,
) -> None:
    """A large answer is compressed for those who accept that; for this machine only if the server is told to."""
    async with served("Tab", compress_for_all=compress_for_all) as api:
        await api("POST", "/Tab", ROW | {f"B{n}": "x" * 30_000 for n in range(4)})
        monkeypatch.setattr(http, "is_loopback", Mock(return_value=is_here))
        for accept in ("gzip", "identity"):
            reply = await api("GET", "/Tab()", Accept_Encoding=accept)
            assert len(reply.rows) == 1
            assert (reply.headers.get("Content-Encoding") == "gzip") is (packed and accept == "gzip")


@pytest.mark.parametrize("arrives", [b"zz\r\n", b"2\r\n{}\r\nzz\r\n"])
async def test_a_body_that_breaks_off_as_nonsense(caplog: pytest.LogCaptureFixture, arrives: bytes) -> None:
    """Chunks that are none end the connection, once the time for a body is over; it is no error of the server."""
    async with served(limits=Limits(body_seconds=0.2)) as api:
        wire = await Wire.connect(api, head("POST", "/Tables", "Transfer-Encoding: chunked", "Expect: 100-continue"))
        assert await wire.status() == 100
        wire.writer.write(arrives)
        async with asyncio.timeout(20):
            answer = await wire.everything()

    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 "))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_host_style(server: Server, api: Api) -> None:
    """The host may name the account instead of the path; links are made accordingly, with the secondary beside it."""
    await api("POST", "/Tab", ROW)

    async def ask(host: str, path: str) -> tuple[int, bytes]:
        date = http_date()
        parts = SignedParts(verb="GET", account=DEVELOPMENT_ACCOUNT, path=path, date=date)
        signed = authorization(parts, decode_key(DEVELOPMENT_KEY))
        headers = {"Host": host, "x-ms-date": date, "Authorization": signed}
        async with api.session.get(f"{api.root}{path}", headers=headers) as response:
            return response.status, await response.read()

    host = "devstoreaccount1.table.core.localhost"
    status, body = await ask(host, "/Tab()")
    assert (status, json.loads(body)["odata.metadata"]) == (200, f"http://{host}/$metadata#Tab")
    assert (await ask("devstoreaccount1-secondary.table.localhost", "/Tab()"))[0] == 200
    assert (await ask("other.table.core.localhost", "/Tab()"))[0] == 404
    assert (await ask(host, "/healthz"))[0] == 404


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/devstoreaccount1/Tables", 403),
        ("/devstoreaccount1/Tables?a=b#c", 403),
        ("http://[/devstoreaccount1/Tables", 400),
        ("*", 400),
        ("//", 404),
        ("/", 404),
        ("/devstoreaccount1", 403),
    ],
)
async def test_request_targets(server: Server, target: str, status: int) -> None:
    """A target may be absolute; what is none is rejected."""
    assert await Wire.ask(server, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) == status


async def test_a_fragment_of_a_target(server: Server) -> None:
    """What follows `#` is of the client alone, and passed over."""
    assert await Wire.ask(server, head("GET", "/Tables?timeout=3#more")) == 200


@pytest.mark.parametrize("target", [b"/devstoreaccount1/Tab\xff()", b"/devstoreaccount1/Tab()?$select=\xff"])
async def test_raw_bytes_in_a_target(server: Server, api: Api, target: bytes) -> None:
    """A target that is not UTF-8 is rejected, also when it is signed."""
    shown = target.decode("utf-8", "surrogateescape")
    date, path = http_date(), shown.partition("?")[0]
    parts = SignedParts(verb="GET", account=DEVELOPMENT_ACCOUNT, path=path, date=date)
    signed = authorization(parts, decode_key(DEVELOPMENT_KEY))
    lines = f" HTTP/1.1\r\nHost: localhost\r\nx-ms-date: {date}\r\nAuthorization: {signed}\r\n\r\n"

    assert await Wire.ask(server, b"GET " + target + lines.encode()) == 400


@pytest.mark.parametrize("host", ["", "Host: \r\n", "Host: a b\r\n", "Host: \xff\r\n"])
async def test_host_is_needed(server: Server, host: str) -> None:
    """Without a proper Host it is not known whom the request is for."""
    request = f"GET /devstoreaccount1/Tables HTTP/1.1\r\n{host}\r\n"

    assert await Wire.ask(server, request.encode("latin-1")) == 400


async def test_too_large(server: Server, api: Api) -> None:
    """
    A body over 4 MiB is 413, told before it is sent if its length is; a URL or header that is too long is 400,
    and so are more than 100 headers.
    """
    assert await Wire.ask(server, head("POST", "/Tab", f"Content-Length: {4 * 1024 * 1024 + 1}")) == 413
    for line in (f"GET /devstoreaccount1/{'x' * 70_000} HTTP/1.1", "GET / HTTP/1.1\r\nX: " + "x" * 20_000):
        assert await Wire.ask(server, f"{line}\r\nHost: localhost\r\n\r\n".encode()) == 400
    for headers, status in ((["X: a"] * 99, 200), (["X: a"] * 100, 400), ([f"X: {'x' * 16_000}"], 200)):
        request = "\r\n".join(["GET /healthz HTTP/1.1", "Host: localhost", *headers, "", ""])
        assert await Wire.ask(server, request.encode()) == status
    where = " or ".join(f"A eq {number}" for number in range(400))
    assert (await api("GET", "/Tab()", query="$filter=" + where.replace(" ", "%20"))).status == 200


@pytest.mark.usefixtures("nothing_left")
async def test_slow_clients(caplog: pytest.LogCaptureFixture) -> None:
    """Who does not send a request, or a body, is let go; others are served meanwhile."""
    async with served("Tab", limits=Limits(idle_seconds=0.2, body_seconds=0.2)) as api:
        silent, partial, bodiless = [await Wire.connect(api) for _ in range(3)]
        partial.writer.write(b"GET /devstoreaccount1/Tab HTTP/1.1\r\nHost: ")
        bodiless.writer.write(head("POST", "/Tab", "Content-Length: 100") + b"{")
        assert await bodiless.status() == 408
        assert await silent.everything() == b""
        assert await partial.everything() == b""
        assert (await api("GET", "/Tables")).status == 200
    assert caplog.records == []


HOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
other.close()
"""


async def test_the_timeout_of_a_request_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes longer is given up with 500 OperationTimedOut: a body that does not come, a lock that is not free."""
    path = tmp_path / "data.tables"

    def tenth_of_seconds(call: Call) -> float | None:
        return (options.seconds_of(call) or 0) / 10 or None

    monkeypatch.setattr(dispatch, "seconds_of", tenth_of_seconds)
    async with serve(path, port=0) as server, aiohttp.ClientSession() as session:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        wire = await Wire.connect(server, head("POST", "/Tab?timeout=1", "Content-Length: 100") + b"{")
        assert b"OperationTimedOut" in await wire.everything()
        # Another process, since locks of one process are no locks to itself.
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, str(path), stdin=PIPE, stdout=PIPE)
        assert other.stdout is not None
        await other.stdout.readline()
        late = await api("POST", "/Tab", ROW, query="timeout=1")
        assert (late.status, late.code) == (500, "OperationTimedOut")
        assert (await api("GET", "/Tab()", query="timeout=1")).rows == []
        await other.communicate(b"\n")
        for seconds in ("", "0", "30"):
            row = "/Tab(PartitionKey='p',RowKey='r')"
            assert (await api("PUT", row, ROW, query=f"timeout={seconds}")).status == 204


async def test_half_closed(server: Server, api: Api) -> None:
    """A client that closes its sending side still gets what it asked for, or nothing; the server goes on."""
    wire = await Wire.connect(server, head("GET", "/Tab()"))
    wire.writer.write_eof()
    assert (await wire.everything())[:12] in (b"", b"HTTP/1.1 200")

    wire = await Wire.connect(server, head("POST", "/Tab", "Content-Length: 100") + b"{")
    await wire.close()
    assert (await api("GET", "/Tab()")).rows == []


async def test_a_stop_that_is_cancelled() -> None:
    """Who does not wait for what is under way leaves nothing open: neither the connection nor a task."""
    before = asyncio.all_tasks()
    server = serve(None, port=0, limits=Limits(stop_seconds=0.1))
    await server.start()
    async with aiohttp.ClientSession() as session:
        await Api(session, root_of(server))("POST", "/Tables", {"TableName": "Tab"})
    wire = await Wire.connect(server, head("POST", "/Tab", "Content-Length: 10", "Expect: 100-continue"))
    assert await wire.status() == 100
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert b"HTTP/1.1 2" not in await wire.everything()
    assert asyncio.all_tasks() <= before


async def test_too_many_requests() -> None:
    """More requests than may wait are told to come back, with Retry-After; those that wait are done."""
    async with served("Tab", limits=Limits(requests=2)) as api:
        waiting = [await Wire.connect(api) for _ in range(2)]
        for wire in waiting:
            wire.writer.write(head("POST", "/Tab", "Content-Length: 10", "Expect: 100-continue"))
            assert await wire.status() == 100
        refused = await api("GET", "/Tables")
        assert (refused.status, refused.code, refused.headers["Retry-After"]) == (503, "ServerBusy", "1")
        for wire in waiting:
            wire.writer.write(b"{}        ")
            assert await wire.status() == 400
        assert (await api("GET", "/Tables")).status == 200


async def test_what_was_sent_is_not_kept(server: Server, api: Api) -> None:
    """A connection that stays open without a request holds no answer, however large the last one was."""
    await api("POST", "/Tab", ROW | {"B": "x" * 30_000})
    wires = [await Wire.connect(server) for _ in range(5)]
    for wire in wires:
        wire.writer.write(head("GET", "/Tab()"))
        assert await wire.status() == 200
        await wire.reader.readuntil(b"]}")
    assert (await api("GET", "/Tab()")).status == 200
    kept = [each for each in gc.get_objects() if isinstance(each, web.Response) and each.body]
    assert kept == []


async def test_thousand_connections(api: Api, server: Server) -> None:
    """A thousand connections at once, each with a request, are all answered."""
    wires = [await Wire.connect(server) for _ in range(1000)]
    for number, wire in enumerate(wires):
        body = json.dumps(ROW | {"RowKey": f"{number:04}"}).encode()
        wire.writer.write(head("POST", "/Tab", f"Content-Length: {len(body)}", "Prefer: return-no-content") + body)

    assert {await wire.status() for wire in wires} == {204}
    assert len((await api("GET", "/Tab()")).rows) == 1000


async def _sent_bytes(api: Api) -> float:
    async with api.session.get(f"{api.root}/metrics") as metrics:
        lines = (await metrics.text()).splitlines()
    (found,) = (line for line in lines if line.startswith('tableorm_body_bytes_total{direction="sent"}'))
    return float(found.split()[-1])


async def test_pages_of_the_server(api: Api, server: Server) -> None:
    """`/healthz` and `/metrics` need no signature; the counts are of what was asked."""
    before = await _sent_bytes(api)
    answered = [len((await api("GET", "/Tab()")).body) for _ in range(3)]
    assert await _sent_bytes(api) - before == sum(answered) > 0
    async with api.session.get(f"{api.root}/healthz") as health, api.session.get(f"{api.root}/metrics") as metrics:
        assert (health.status, await health.text()) == (200, "ok\n")
        text, kind = await metrics.text(), metrics.headers["Content-Type"]
    async with api.session.head(f"{api.root}/healthz") as health, api.session.post(f"{api.root}/healthz") as posted:
        assert (health.status, health.headers["Content-Length"], posted.status) == (200, "3", 404)
    assert kind == CONTENT_TYPE_LATEST
    assert 'tableorm_requests_total{operation="QueryEntities",status="200"} 3' in text
    assert 'tableorm_request_seconds_count{operation="QueryEntities"} 3' in text
    assert "tableorm_requests_at_work 0.0" in text


@pytest.mark.parametrize(("open_metrics", "status"), [(False, 404), (True, 200)])
async def test_metrics_for_other_machines(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, *, open_metrics: bool, status: int
) -> None:
    """They are shown to clients of other machines only if the server is told to."""
    monkeypatch.setattr(http, "is_loopback", Mock(return_value=False))
    account = Account(name="own", keys=("b3du",))
    async with (
        serve(None, port=0, accounts=[account], open_metrics=open_metrics) as server,
        session.get(f"{root_of(server)}/metrics") as metrics,
    ):
        assert (metrics.status, "tableorm_connections" in await metrics.text()) == (status, open_metrics)


async def test_access_log(tmp_path: Any) -> None:
    """A line of JSON for each request says who asked for what, and what came of it."""
    path = tmp_path / "access.log"
    with path.open("wb") as stream:
        async with served(access_log=stream) as api:
            await api("POST", "/Tables", {"TableName": "Tab"}, x_ms_client_request_id="mine", User_Agent="me")
            await api("GET", "/None")
        lines = path.read_text().splitlines()  # before the stream is closed
    first, second = map(json.loads, lines)

    assert dt.datetime.fromisoformat(first["time"]).tzinfo is dt.UTC
    assert {name: first[name] for name in ("client", "verb", "url", "operation", "status", "client_id", "agent")} == {
        "client": "127.0.0.1",
        "verb": "POST",
        "url": "/devstoreaccount1/Tables",
        "operation": "CreateTable",
        "status": 201,
        "client_id": "mine",
        "agent": "me",
    }
    assert first["received"] == 19
    assert (second["status"], second["code"]) == (404, "TableNotFound")


async def test_metrics_without_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without prometheus_client `/metrics` answers 501 and names the extra; the server works all the same."""
    monkeypatch.delitem(sys.modules, "tableorm_local.server.front.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with served() as api:
        assert (await api("GET", "/Tables")).status == 200
        async with api.session.get(f"{api.root}/metrics") as metrics:
            assert metrics.status == 501
            assert await metrics.text() == "metrics need prometheus_client: install tableorm with its extra 'metrics'\n"


class SlowStream(io.BytesIO):
    """A stream that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = threading.Event(), threading.Event()

    def write(self, data: Any) -> int:
        self.entered.set()
        self.released.wait()
        return super().write(data)


def entry(number: int) -> Entry:
    return Entry(
        time="t",
        id=str(number),
        client="",
        verb="GET",
        url="/",
        operation="o",
        status=200,
        seconds=0,
        received=0,
        sent=0,
    )


@pytest.fixture
def overfull() -> tuple[AccessLog, SlowStream]:
    """A log whose stream takes nothing, and that was given 10,008 entries."""
    stream = SlowStream()
    log = AccessLog(stream)
    log.add(entry(0))
    assert stream.entered.wait(10)
    for number in range(1, 10_008):
        log.add(entry(number))
    return log, stream


def test_access_log_that_is_not_read(overfull: tuple[AccessLog, SlowStream]) -> None:
    """Whoever writes entries never waits: beyond 10,000 they are dropped."""
    log, stream = overfull
    start = time.monotonic()
    log.close(0.1)
    assert time.monotonic() - start < 5
    stream.released.set()
    while len(stream.getvalue().splitlines()) < 10_001:
        time.sleep(0.01)

    assert [json.loads(line)["id"] for line in stream.getvalue().splitlines()] == [str(n) for n in range(10_001)]


def test_lost_entries_are_counted(overfull: tuple[AccessLog, SlowStream]) -> None:
    """The first entry that finds a place again tells how many before it did not."""
    log, stream = overfull
    stream.released.set()
    while len(stream.getvalue().splitlines()) < 10_001:
        time.sleep(0.01)
    log.add(entry(10_008))
    log.close()

    assert json.loads(stream.getvalue().splitlines()[-1])["lost"] == 7


@pytest.mark.usefixtures("nothing_left")
async def test_body_of_a_connection_that_is_closed_at_once(
    server: Server, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """A request whose connection is closed before it is looked at ends without a fault of the server."""
    for _ in range(20):
        wire = await Wire.connect(server, head("POST", "/Tab", "Content-Length: 100") + b"{")
        wire.writer.transport.abort()
    assert (await api("GET", "/Tab()")).status == 200

    assert caplog.records == []
