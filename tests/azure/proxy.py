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

_SLOW_SECONDS = 0.03


class Loss(Enum):
    """
    What happens to the next request: it, its answer, or half of that is lost; its answer is slow; or the connection
    breaks, and it arrives when the test says so.
    """

    NOTHING = auto()
    REQUEST = auto()
    ANSWER = auto()
    HALF_AN_ANSWER = auto()
    SLOW = auto()
    LATE = auto()


class FaultProxy:
    """
    The proxy. `losses` are used up, one by each request; then all goes well.

    Args:
        url: Of the server, with its path.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.losses: list[Loss] = []
        self._late: list[bytes] = []
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

    async def deliver(self) -> int:
        """Let the server have what is late; how many requests that were."""
        late, self._late = self._late, []
        for request in late:
            there, away = await self._connect()
            away.write(request)
            await _message(there)
            away.close()
        return len(late)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._parts.hostname, self._parts.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, away = await self._connect()
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
        if loss is Loss.LATE:
            self._late.append(request)
        if loss in (Loss.REQUEST, Loss.LATE):
            return False
        away.write(request)
        answer = await _message(there)
        if loss is Loss.ANSWER:
            return False
        if loss is Loss.SLOW:
            await asyncio.sleep(_SLOW_SECONDS)
        whole = loss is not Loss.HALF_AN_ANSWER
        writer.write(answer if whole else answer[:-7])
        await writer.drain()
        return whole


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
