"""
Answers that a client does not take: after some time its connection ends.
"""

import asyncio
import io
import json
import socket

import aiohttp
import pytest

from tableorm_local import serve
from tableorm_local.server import Limits, serving
from tests.local.server.client import Api, head, root_of


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system buffer little of what the server sends."""
    bind = serving.bind

    def bind_small(host: str, port: int, *, share: bool) -> socket.socket:
        listener = bind(host, port, share=share)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(serving, "bind", bind_small)


@pytest.mark.parametrize("headers", [(), ("Connection: close",)], ids=["goes on", "closes"])
async def test_who_takes_no_answer_is_let_go(session: aiohttp.ClientSession, headers: tuple[str, ...]) -> None:
    """The rest of an answer is not kept for ever: the request ends, and so does the connection."""
    log, limits = io.BytesIO(), Limits(idle_seconds=30, write_seconds=0.3, stop_seconds=0.5)
    async with serve(None, port=0, limits=limits, access_log=log) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        row = {"PartitionKey": "a", "RowKey": "r", "Text": "x" * 30_000}
        assert (await api("POST", "/Tab", row, Prefer="return-no-content")).status == 204
        deaf, loop = socket.socket(), asyncio.get_running_loop()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, ("127.0.0.1", server.port))
        await loop.sock_sendall(deaf, head("GET", "/Tab(PartitionKey='a',RowKey='r')", *headers))
        async with asyncio.timeout(20):
            while b"QueryEntity" not in log.getvalue():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)
            taken = 0
            try:
                while part := await loop.sock_recv(deaf, 65_536):
                    taken += len(part)
            except ConnectionResetError:
                pass
        deaf.close()
    entry = json.loads(log.getvalue().splitlines()[-1])

    assert entry["seconds"] >= 0.3
    assert taken < 30_000
