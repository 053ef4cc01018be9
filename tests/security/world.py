"""
What attacks have in common: a file with its owner, and a server of it; and clients that speak TLS as they like.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tableorm_local import serve
from tableorm_local.engine import Engine
from tests.local.server.client import Api, root_of

__all__ = ["serve_file", "speak_tls", "until"]


@asynccontextmanager
async def serve_file(path: Path) -> AsyncGenerator[tuple[Engine, Api], None]:
    """Open a file with all rights, and serve it to a client that sends what it is told."""
    owner = Engine(path)
    await owner.open()
    try:
        async with serve(path, port=0) as server, aiohttp.ClientSession() as session:
            yield owner, Api(session, root_of(server))
    finally:
        await owner.close()


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so, for ten seconds at most."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)


async def speak_tls(made: socket.socket, context: ssl.SSLContext) -> Callable[..., Awaitable[None]]:
    """Agree upon a key with the server, and return what sends to it, each text by itself. It reads no more."""
    loop = asyncio.get_running_loop()
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    channel = context.wrap_bio(arrived, leaving, server_hostname="127.0.0.1")
    while True:
        try:
            channel.do_handshake()
            break
        except ssl.SSLWantReadError:
            await loop.sock_sendall(made, leaving.read())
            arrived.write(await loop.sock_recv(made, 65_536))
    # What ends the handshake goes with what is sent first.

    async def send(*texts: bytes, junk: bytes = b"") -> None:
        for text in texts:
            channel.write(text)
        await loop.sock_sendall(made, leaving.read() + junk)

    return send
