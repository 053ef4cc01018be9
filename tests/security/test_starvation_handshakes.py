"""
Handshakes of TLS cost the server more than the client: those of one address take turns, and are few at a time.
"""

import asyncio
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tableorm_local import serve


async def test_handshakes_of_an_address_take_turns(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    100 connections of one address begin at once: in one turn of the event loop one of their handshakes begins, and half
    of all that may be under way are. Then one of another address begins at once.
    """
    loop, turn, begun = asyncio.get_running_loop(), 0, Counter[int]()
    going_on, all_begun = asyncio.Event(), asyncio.Event()

    def count_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count_turn)

    async def start_tls(*_: Any, **__: Any) -> None:
        begun[turn] += 1
        if begun.total() == 33:
            all_begun.set()
        await going_on.wait()
        raise ConnectionResetError

    monkeypatch.setattr(loop, "start_tls", start_tls)
    connections = list[socket.socket]()

    async def connect(address: str) -> None:
        made = socket.socket()
        made.setblocking(False)
        made.bind((address, 0))
        connections.append(made)
        await loop.sock_connect(made, ("127.0.0.1", server.port))

    async with serve(None, port=0, cert=certificate) as server:
        count_turn()
        await asyncio.gather(*[connect("127.0.0.1") for _ in range(100)])
        await asyncio.sleep(0.3)
        assert begun.total() == 32
        await connect("127.0.0.2")
        await all_begun.wait()
        going_on.set()
        for made in connections:
            made.close()
    assert max(begun.values()) <= 2


async def test_a_server_stops_after_its_handshakes(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake under way is cancelled when the server stops, which waits for its end."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def start_tls(*_: Any, **__: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await end.wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", start_tls)

    async def serve_until_it_begins() -> None:
        async with serve(None, port=0, cert=certificate) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await begun.wait()
        writer.close()

    serving = asyncio.create_task(serve_until_it_begins())
    await begun.wait()
    await asyncio.wait([serving], timeout=0.1)
    assert not serving.done()
    end.set()
    await serving
