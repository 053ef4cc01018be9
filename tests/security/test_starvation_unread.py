"""
Bodies that arrive before anybody reads them: they are memory of the server, whoever sends them.
"""

import asyncio
import gc
import socket
import tracemalloc
from pathlib import Path

import pytest

from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import RowPage
from tableorm_local import serve
from tableorm_local.engine import Engine
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tableorm_local.server.front.limits import Limits

MIB = 1024 * 1024


async def test_bodies_that_nobody_reads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries that wait, each with a body of 400 KB that no query has, hold less than 128 KiB each."""
    going_on = asyncio.Event()

    async def wait(*_: object) -> RowPage:
        await going_on.wait()
        return RowPage([], None)

    engine = Engine(tmp_path / "data.tables")
    await engine.open()
    await engine.create_table("Tab")
    await engine.close()
    monkeypatch.setattr(Engine, "query", wait)
    token = sign_sas(
        TableSas(sv="2019-02-02", tn="Tab", se="2099-01-01", sp="r", spk="a", epk="a"),
        DEVELOPMENT_ACCOUNT,
        decode_key(DEVELOPMENT_KEY),
    )
    head = f"GET /{DEVELOPMENT_ACCOUNT}/Tab()?{token} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400000\r\n\r\n"
    limits = Limits(buffered_bytes=MIB, waiting_bytes=MIB, stop_seconds=0.5)
    async with serve(tmp_path / "data.tables", port=0, limits=limits) as server:
        connections = list[socket.socket]()
        sent = bytes(65_536)
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(60):
                made = socket.socket()
                made.setblocking(False)
                await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", server.port))
                connections.append(made)
                await asyncio.get_running_loop().sock_sendall(made, head.encode())
                for _ in range(6):
                    made.send(sent)
                    await asyncio.sleep(0)
            await asyncio.sleep(0.2)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        going_on.set()
        for made in connections:
            made.close()
    assert held < 60 * 128 * 1024
