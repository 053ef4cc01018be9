"""
Answers that a client does not take: they count as long as the server has them, and their connection ends.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tableorm_local import serve
from tableorm_local.server import serving
from tableorm_local.server.front.limits import Budget, Limits
from tests.local.server.client import Api, head, root_of
from tests.security.world import speak_tls, until


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
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_who_takes_no_answer_is_let_go(
    budgets: dict[str, Budget], certificate: Path, headers: tuple[str, ...], *, encrypted: bool
) -> None:
    """
    The rest of an answer that the client does not take, though it is not long, takes from the budget; after some time
    the connection ends, also one that is to be closed after that answer.
    """
    limits = Limits(idle_seconds=30, write_seconds=0.3, stop_seconds=0.5)
    context = ssl.create_default_context(cafile=str(certificate)) if encrypted else None
    async with (
        serve(None, port=0, limits=limits, cert=certificate if encrypted else None) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context or True)) as session,
    ):
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        row = {"PartitionKey": "a", "RowKey": "r", "Text": "x" * 30_000}
        assert (await api("POST", "/Tab", row, Prefer="return-no-content")).status == 204
        await session.close()
        places = budgets["too many connections are open"]
        buffered = budgets["too much is being received and sent"]
        await until(lambda: places.used == 0)
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", server.port))
        send = await speak_tls(deaf, context) if context is not None else _send_plain(deaf)
        await send(head("GET", "/Tab(PartitionKey='a',RowKey='r')", *headers))
        await until(lambda: buffered.used > 20_000)
        await until(lambda: places.used == 0)
        deaf.close()
    assert buffered.used == 0


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_who_takes_an_answer_late_gets_it(
    budgets: dict[str, Budget], certificate: Path, monkeypatch: pytest.MonkeyPatch, *, encrypted: bool
) -> None:
    """The answer is given back once the client has taken it, and the connection goes on, also after its time."""
    context, loop = ssl.create_default_context(cafile=str(certificate)), asyncio.get_running_loop()
    limits, timers, call_later = Limits(write_seconds=1234.5), list[asyncio.TimerHandle](), loop.call_later

    def note_timer(delay: float, callback: Callable[..., object], *given: Any, **options: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, callback, *given, **options)
        timers.extend([timer] if delay == limits.write_seconds else [])
        return timer

    monkeypatch.setattr(loop, "call_later", note_timer)
    async with serve(None, port=0, limits=limits, cert=certificate if encrypted else None) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            api = Api(session, root_of(server))
            await api("POST", "/Tables", {"TableName": "Tab"})
            row = {"PartitionKey": "a", "RowKey": "r", "Text": "x" * 30_000}
            assert (await api("POST", "/Tab", row, Prefer="return-no-content")).status == 204
        places = budgets["too many connections are open"]
        buffered = budgets["too much is being received and sent"]
        await until(lambda: places.used == 0)
        late = socket.socket()
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        late.setblocking(False)
        await loop.sock_connect(late, ("127.0.0.1", server.port))
        send = await speak_tls(late, context) if encrypted else _send_plain(late)
        for _ in range(2):
            await send(head("GET", "/Tab(PartitionKey='a',RowKey='r')"))
            await until(lambda: buffered.used > 20_000)
            taken = 0
            while taken < 30_000:
                taken += len(await loop.sock_recv(late, 65_536))
            await until(lambda: buffered.used == 0)
            assert places.used == 1
            assert timers and all(each.cancelled() for each in timers)
        late.close()


def _send_plain(made: socket.socket) -> Callable[[bytes], Awaitable[None]]:
    async def send(data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(made, data)

    return send
