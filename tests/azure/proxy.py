"""
A loopback proxy between a client and a server that loses requests and answers when it is told to.

It forwards bytes, so that what is lost is what a network loses: a whole request, or an answer to one that was done.
"""

import asyncio
import contextlib
from enum import Enum, auto
from typing import Self
from urllib.parse import urlsplit

__all__ = ["FaultProxy", "Loss"]


class Loss(Enum):
    """What happens to the next request."""

    NOTHING = auto()
    REQUEST = auto()
    ANSWER = auto()
    HALF_AN_ANSWER = auto()
    SILENCE = auto()


class FaultProxy:
    """
    The proxy. `losses` are used up, one by each request; then all goes well.

    Args:
        url: Of the server, with its path.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.losses: list[Loss] = []
        self.done = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Of the server, by way of the proxy."""
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}{self._parts.path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, away = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while await self._forward(reader, writer, there, away):
                    pass
        finally:
            self._tasks.discard(task)
            away.close()
            writer.close()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        away: asyncio.StreamWriter,
    ) -> bool:
        request = await _message(reader)
        loss = self.losses.pop(0) if self.losses else Loss.NOTHING
        if loss is Loss.REQUEST:
            return False
        away.write(request)
        answer = await _message(there)
        self.done.set()
        if loss is Loss.ANSWER:
            return False
        if loss is Loss.SILENCE:
            await asyncio.Event().wait()
        writer.write(answer if loss is Loss.NOTHING else answer[:-7])
        await writer.drain()
        return loss is Loss.NOTHING


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A whole request or answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while not body.endswith(b"\r\n0\r\n\r\n") and body != b"0\r\n\r\n":
            body += await reader.readuntil(b"\r\n")
        return head + body
    return head + await reader.readexactly(int(headers.get("content-length", "0")))
