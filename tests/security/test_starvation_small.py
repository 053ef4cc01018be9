"""
Requests that cost little each cost much together: those of one caller take turns too.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import StreamReader, web

from tableorm_local import serve
from tableorm_local.engine import CALLER, Engine
from tableorm_local.server import DEVELOPMENT_ACCOUNT
from tests.security.test_starvation import table_token


async def test_small_requests_of_many_connections_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller reads a row by 400 connections at once, then another one: that one does not wait for all of these."""
    callers = list[str]()
    done = asyncio.Event()

    async def get(*_: object) -> dict[str, str]:
        callers.append(CALLER.get())
        if len(callers) == 401:
            done.set()
        return {"odata.etag": "", "PartitionKey": "a", "RowKey": "r"}

    engine = Engine(tmp_path / "data.tables")
    await engine.open()
    await engine.create_table("Tab")
    await engine.close()
    monkeypatch.setattr(Engine, "get", get)
    async with serve(tmp_path / "data.tables", port=0) as server:
        connections = list[socket.socket]()
        for number in range(401):
            made = socket.socket()
            made.setblocking(False)
            made.bind(("127.0.0.2" if number == 400 else "127.0.0.1", 0))
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", server.port))
            connections.append(made)
        await asyncio.sleep(0.2)
        target = f"/{DEVELOPMENT_ACCOUNT}/Tab(PartitionKey='a',RowKey='r')?{table_token(spk='a', epk='b')}"
        for made in connections:
            made.send(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await done.wait()
        for made in connections:
            made.close()
    assert [" 127.0.0.2 " in caller for caller in callers].index(True) < 200


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncGenerator[tuple[list[socket.socket], socket.socket], None]:
    """Connect so many times from one address, and once from another one."""
    made = list[socket.socket]()
    for number in range(count + 1):
        each = socket.socket()
        made.append(each)
        each.setblocking(False)
        each.bind(("127.0.0.2" if number == count else "127.0.0.1", 0))
        await asyncio.get_running_loop().sock_connect(each, ("127.0.0.1", port))
    await asyncio.sleep(0.2)  # all are accepted
    try:
        yield made[:count], made[count]
    finally:
        for each in made:
            each.close()


@asynccontextmanager
async def served(path: Path, monkeypatch: pytest.MonkeyPatch, note: Callable[[str], None]) -> AsyncGenerator[int, None]:
    """Serve a table, and note each row that is read. Yields the port."""

    async def get(*_: object) -> dict[str, str]:
        note("row")
        return {"odata.etag": "", "PartitionKey": "a", "RowKey": "r"}

    engine = Engine(path)
    await engine.open()
    await engine.create_table("Tab")
    await engine.close()
    monkeypatch.setattr(Engine, "get", get)
    async with serve(path, port=0) as server:
        yield server.port


ROW = f"GET /{DEVELOPMENT_ACCOUNT}/Tab(PartitionKey='a',RowKey='r')?{table_token(spk='a', epk='b')} HTTP/1.1\r\n"


async def test_pages_of_the_server_itself_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody asks for /healthz by 300 connections at once, then another one for a row, which waits for few."""
    done, events, make = asyncio.Event(), list[str](), web.Response

    def note(event: str) -> None:
        events.append(event)
        if len(events) == 301:
            done.set()

    def respond(**given: object) -> web.Response:
        if given.get("text"):
            note("page")
        return make(**given)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(web, "Response", respond)
    async with (
        served(tmp_path / "data.tables", monkeypatch, note) as port,
        connected(port, 300) as (many, other),
    ):
        for each in many:
            each.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        other.send(f"{ROW}Host: 127.0.0.1\r\n\r\n".encode())
        await done.wait()
    assert events.index("row") < 150


async def test_bodies_of_refused_requests_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What 200 connections send of bodies that nobody wants is not all read before a row of another address."""
    done, gone_on, events, read = asyncio.Event(), asyncio.Event(), list[str](), StreamReader.readany

    def note(event: str) -> None:
        events.append(event)
        if len(events) == 300:
            gone_on.set()
        if event == "row":
            done.set()

    async def note_part(self: StreamReader) -> bytes:
        part = await read(self)
        note("part")
        return part

    monkeypatch.setattr(StreamReader, "readany", note_part)
    async with (
        served(tmp_path / "data.tables", monkeypatch, note) as port,
        connected(port, 200) as (many, other),
    ):
        for each in many:
            each.send(b"POST /devstoreaccount1/Tab HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000000\r\n\r\n")
        for each in many:
            assert b" 403 " in await asyncio.get_running_loop().sock_recv(each, 4096)
        for each in many:
            each.send(bytes(512 * 1024))
        # What has arrived is read at once, and more of it in turns.
        await gone_on.wait()
        before = len(events)
        other.send(f"{ROW}Host: 127.0.0.1\r\n\r\n".encode())
        await done.wait()
    assert events.index("row") - before < 100
