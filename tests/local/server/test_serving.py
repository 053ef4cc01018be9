"""
A server that is at work: what it counts and logs, what it gives back, and what a failed start leaves behind.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

import asyncio
import io
import json
import socket
import ssl
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm_local.engine import Engine
from tableorm_local.server import Account, Server, serve, serving
from tableorm_local.server.dispatch import Service
from tableorm_local.server.security.cors import CorsRule, write_rules
from tableorm_local.server.serving import read_certificate
from tests.local.server.client import Api, Wire, head, make_certificate, served

ROW = {"PartitionKey": "p", "RowKey": "r"}
LARGE = ROW | {f"B{number}": "x" * 30_000 for number in range(4)}


async def test_a_start_that_fails_leaves_nothing_open(server: Server, tmp_path: Path) -> None:
    """Where the port is taken, the data is closed again, and so is the access log."""
    before = set(threading.enumerate())
    other = serve(tmp_path / "data.tables", port=server.port, access_log=io.BytesIO())
    assert set(threading.enumerate()) > before
    with pytest.raises(OSError, match="in use"):
        await other.start()
    started = [each for each in set(threading.enumerate()) - before if each.name.startswith("tableorm")]
    for thread in started:
        thread.join(10)

    assert not any(each.is_alive() for each in started)
    async with serve(tmp_path / "data.tables", port=0):
        pass
    assert {each.name for each in tmp_path.iterdir()} == {"data.tables", "data.tables-lock"}


async def test_a_name_that_stands_for_an_address_of_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server with the published key listens there, also if the name is `localhost`; one with another key does."""
    listeners, bind_name = list[socket.socket](), serving.bind

    def bind_elsewhere(_: str, port: int, *, share: bool) -> socket.socket:
        listeners.append(bind_name("0.0.0.0", port, share=share))
        return listeners[-1]

    monkeypatch.setattr(serving, "bind", bind_elsewhere)
    with pytest.raises(OSError, match="the name does not stand for a loopback address"):
        await serve(None, host="localhost", port=0).start()
    assert listeners[0].fileno() == -1
    async with serve(None, host="localhost", port=0, accounts=[Account(name="own", keys=("b3du",))]) as server:
        assert server.port


async def test_a_port_can_be_used_again_at_once(server: Server) -> None:
    """A server listens where another one has just ended, whose connections the system still remembers."""
    wire = await Wire.connect(server, head("GET", "/Tables", "Connection: close"))
    assert b" 200 OK" in await wire.everything()
    await server.stop()

    async with serve(None, port=server.port) as again:
        assert again.port == server.port


async def test_a_body_of_a_page_that_comes_late(server: Server) -> None:
    """The body of such a request is waited for, so that it is not taken for the next request."""
    wire = await Wire.connect(server)
    for _ in range(2):
        wire.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        await asyncio.sleep(0.05)
        wire.writer.write(b"12345")
        assert (await wire.reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_compressed_answer_to_a_page_of_another_origin() -> None:
    """Caches are told both of what it depends on: the origin, and what the client accepts."""
    rule = CorsRule(origins=("https://a.example",), methods=("GET",), headers=(), exposed=(), max_age=0)
    async with served(compress_for_all=True) as api:
        root = ET.Element("StorageServiceProperties")
        write_rules(ET.SubElement(root, "Cors"), [rule])
        assert (await api("PUT", "/", ET.tostring(root), query="restype=service&comp=properties")).status == 202
        await api("POST", "/Tables", {"TableName": "Tab"})
        await api("POST", "/Tab", LARGE, Prefer="return-no-content")
        answered = [
            (await api("GET", "/Tab()", Accept_Encoding=accepted, Origin="https://a.example")).headers["Vary"]
            for accepted in ("gzip", "identity")
        ]

    assert answered == ["Origin, Accept-Encoding", "Origin"]


@pytest.mark.parametrize(
    ("error", "status", "code", "ends", "logged"),
    [
        (Fault(Code.INTERNAL_ERROR, "it is damaged"), 500, "InternalError", False, "it is damaged"),
        (Fault(Code.ENTITY_NOT_FOUND, "none"), 404, "EntityNotFound", False, None),
        (Fault(Code.OPERATION_TIMED_OUT, "late"), 500, "OperationTimedOut", True, None),
        (TimeoutError(), 408, "OperationTimedOut", True, None),
        (ConnectionResetError(), 400, "ClientGone", False, None),
        (LookupError("odd"), 500, "InternalError", False, "failed unexpectedly"),
    ],
    ids=["damage", "fault", "late", "late body", "gone", "unexpected"],
)
async def test_what_the_service_raises(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    status: int,
    code: str,
    logged: str | None,
    *,
    ends: bool,
) -> None:
    """It is answered and has its entry; what is the server's own fault is logged as well."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Service, "answer", fail)
    log = io.BytesIO()
    async with serve(None, port=0, access_log=log) as server:
        wire = await Wire.connect(server, head("GET", "/Tab"))
        top = (await wire.reader.readuntil(b"\r\n\r\n")).decode()
    entry = json.loads(log.getvalue())

    assert top.startswith(f"HTTP/1.1 {status} ")
    assert ("Connection: close" in top) is ends
    assert (f"x-ms-error-code: {code}" in top) is (code != "ClientGone")
    assert (entry["status"], entry["code"]) == (status, code)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (logged is not None)
    if logged is not None:
        assert logged in messages[0]
        assert entry["id"] in messages[0]


class FailingStream(io.BytesIO):
    """A stream that fails now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = [OSError("no space"), ValueError("closed")]

    def write(self, data: Any) -> int:
        if self.errors:
            raise self.errors.pop()
        return super().write(data)


async def test_a_log_that_fails_stops_nothing() -> None:
    """Entries that cannot be written are lost; those after them are written."""
    log = FailingStream()
    async with served(access_log=log) as api:
        for _ in range(4):
            assert (await api("GET", "/Tables")).status == 200
    assert len(log.getvalue().splitlines()) == 2


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_was_just_accepted_ends_with_the_server(turns: int) -> None:
    """Whenever a server stops, so many turns of the event loop after a client connects, it waits for no such client."""
    unexpected = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
    server = serve(None, port=0)
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port)):
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await server.stop()
    assert not unexpected


async def test_an_event_loop_whose_sockets_have_no_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On such a loop, as Windows has, a server stops as on others: nobody can connect any more."""
    server = serve(None, port=0)
    await server.start()
    monkeypatch.setattr(asyncio.get_running_loop(), "remove_reader", Mock(side_effect=NotImplementedError))
    await server.stop()

    with pytest.raises(ConnectionRefusedError):
        await Wire.connect(server)


async def test_a_stop_waits_for_requests_at_work(server: Server, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Connections without a request end at once. A request at work is answered, and told that its connection ends; one
    whose body still arrives is told to come again.
    """
    at_work, go_on, write = asyncio.Event(), asyncio.Event(), Engine.write

    async def wait(engine: Engine, *given: Any) -> Any:
        at_work.set()
        await go_on.wait()
        return await write(engine, *given)

    monkeypatch.setattr(Engine, "write", wait)
    body, (working, arriving, idle, new) = json.dumps(ROW).encode(), [await Wire.connect(server) for _ in range(4)]
    idle.writer.write(head("GET", "/Tables"))
    assert await idle.status() == 200
    arriving.writer.write(head("POST", "/Tab", f"Content-Length: {len(body)}", "Expect: 100-continue"))
    assert await arriving.status() == 100
    working.writer.write(head("POST", "/Tab", f"Content-Length: {len(body)}") + body)
    await at_work.wait()
    stopping = asyncio.create_task(server.stop())
    async with asyncio.timeout(20):
        ended = [await wire.everything() for wire in (idle, new, arriving)]
        go_on.set()
        answer = await working.everything()
        await stopping

    assert [each[-1:] for each in ended[:2]] == [b"}", b""]
    assert ended[2].startswith(b"HTTP/1.1 503 ") and b"x-ms-error-code: ServerBusy\r\n" in ended[2]
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert b"Connection: close\r\n" in answer


async def test_a_certificate_that_is_replaced(tmp_path: Path) -> None:
    """New connections get the new certificate; the old one stays in use if the new one cannot be read."""
    first, second = (make_certificate(tmp_path / name) for name in ("first", "second"))
    used, mismatch = list[str](), pytest.raises(OSError, match=r"(?i)mismatch")
    async with serve(None, port=0, cert=first[0], cert_key=first[1]) as server:
        for files, problem in ((first, nullcontext()), (second, nullcontext()), ((first[0], second[1]), mismatch)):
            with problem:
                server.replace_certificate(*files)
            used.append(await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port)))

    assert used == [first[0].read_text(), second[0].read_text(), second[0].read_text()]
    assert read_certificate(*first).options & ssl.OP_NO_RENEGOTIATION


async def test_connections_that_come_at_once(server: Server) -> None:
    """Hundreds of clients connect while the event loop does something else, and wait until it accepts them."""
    connections = [socket.create_connection(("127.0.0.1", server.port), timeout=0.5) for _ in range(200)]
    await asyncio.sleep(0)
    for each in connections:
        each.close()
