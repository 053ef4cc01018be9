"""
Requests that cost little each cost much together: those of one caller take turns too.
"""

import asyncio
import socket
from pathlib import Path

import pytest

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
