"""
TLS: what connections may hold before they have agreed upon a key, when nobody knows yet what they want, and after it.
"""

import asyncio
import ssl
import time
from typing import Any

from ...engine import FairTurns
from .connection import Connection, ConnectionServer, caller_of, wait_for_all

__all__ = ["Handshake"]

# What a handshake costs: to sign, on the event loop, takes longer than to copy so many bytes.
_HANDSHAKE_BYTES = 256 * 1024
# Bytes that are decrypted at once. Of the smallest messages of TLS, these take some 10 ms.
_PIECE_BYTES = 8 * 1024
# How many bytes are copied in the time that is spent on messages which bring no data.
_BYTES_PER_SECOND = 256 * 1024 * 1024


class _Between(asyncio.BufferedProtocol):
    """
    Stands between the transport of a socket and asyncio's protocol of TLS.

    That one takes whatever is written, and does not tell the connection when the client takes no more of it; so this
    one does. That one also works on whatever arrives, of which much may be messages of TLS that bring no data, as a
    change of keys. So what takes time and brings little waits for the turn of its caller.

    Args:
        socket: The transport of the socket.
        connection: The connection.
        turns: The turns of callers at the event loop.
        caller: Whose connection it is.
    """

    def __init__(self, socket: asyncio.Transport, connection: Connection, turns: FairTurns, caller: str) -> None:
        inner: Any = socket.get_protocol()
        self._inner: asyncio.BufferedProtocol = inner
        self._socket, self._connection = socket, connection
        self._turns, self._caller = turns, caller
        self._waiting: asyncio.Task[None] | None = None

    def get_buffer(self, sizehint: int) -> Any:
        """Return where to put what arrives."""
        return memoryview(self._inner.get_buffer(sizehint))[:_PIECE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what has arrived, now or when it is the caller's turn. Until then it stays in the buffer."""
        if self._turns.is_over(self._caller):
            self._socket.pause_reading()
            self._waiting = asyncio.create_task(self._decrypt_in_turn(nbytes))
        else:
            self._decrypt(nbytes)

    async def _decrypt_in_turn(self, size: int) -> None:
        await self._turns.work(self._caller)
        self._socket.resume_reading()
        self._decrypt(size)

    def _decrypt(self, size: int) -> None:
        before, began = self._connection.received, time.perf_counter()
        self._inner.buffer_updated(size)
        seconds, vain = time.perf_counter() - began, size - (self._connection.received - before)
        if vain > 0:
            self._turns.count(self._caller, int(seconds * _BYTES_PER_SECOND * vain / size))

    def eof_received(self) -> None:
        """
        Note that no more arrives, and end the connection: asyncio's protocol would keep it open for ever if a body is
        not read, and sends nothing any more.
        """
        self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client takes no more now."""
        self._inner.pause_writing()
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has taken everything, and send what was encrypted meanwhile."""
        self._inner.resume_writing()
        self._connection.resume_writing()


class Handshake(asyncio.Protocol):
    """
    A connection that was accepted; once the handshake is done, one of the server takes its place.

    asyncio's own protocol, which has buffers of 256 KiB as long as the connection is open, is made only if the client's
    address has not too many handshakes under way, nor too many of these connections.

    Args:
        server: Makes the connection, and counts the handshakes.
        context: The certificate.
    """

    def __init__(self, server: ConnectionServer, context: ssl.SSLContext) -> None:
        self._server, self._context = server, context
        self._received = list[bytes]()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, or end the connection at once."""
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        wait_for_all(transport)
        server, caller = self._server, caller_of(transport)
        budgets = server.handshakes, server.encrypted
        if not all(budget.has(1, caller) for budget in budgets):
            server.metrics.count_refusal("connection")
            transport.abort()
            return
        for budget in budgets:
            budget.take(1, caller)
        task = asyncio.create_task(self._shake_hands(transport, caller))
        server.shaking.add(task)
        task.add_done_callback(lambda _: server.handshakes.give_back(1, caller))
        task.add_done_callback(server.shaking.discard)

    def data_received(self, data: bytes) -> None:
        """Keep what arrives together with the end of the handshake."""
        self._received.append(data)

    async def _shake_hands(self, transport: asyncio.Transport, caller: str) -> None:
        server = self._server
        encrypted: asyncio.Transport | None = None
        try:
            async with server.agreeing.hold(caller):
                await server.turns.work(caller, _HANDSHAKE_BYTES)
                encrypted = await asyncio.get_running_loop().start_tls(
                    transport,
                    self,
                    self._context,
                    server_side=True,
                    ssl_handshake_timeout=server.limits.handshake_seconds,
                    ssl_shutdown_timeout=server.limits.handshake_seconds,
                )
        except OSError as error:
            # The client has gone, was too slow, or does not speak TLS. The error would keep the buffers, in a circle.
            error.__traceback__ = None
        finally:
            if encrypted is None or encrypted.is_closing():
                encrypted = None
                transport.abort()
                server.encrypted.give_back(1, caller)
        if encrypted is None:
            return
        connection = server(server.encrypted)
        encrypted.set_protocol(connection)
        connection.connection_made(encrypted)
        transport.set_protocol(_Between(transport, connection, server.turns, caller))
        if transport.get_write_buffer_size():  # it has not taken the end of the handshake
            connection.pause_writing()
        for data in self._received:
            connection.data_received(data)
