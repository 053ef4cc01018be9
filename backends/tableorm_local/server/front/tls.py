"""
TLS: what connections may hold before they have agreed upon a key, when nobody knows yet what they want, and after it.
"""

import asyncio
import ssl
from typing import Any, cast

from ..security.accounts import network_of
from .connection import ConnectionServer, wait_for_all

__all__ = ["Handshake"]

# What a handshake costs: to sign, on the event loop, takes longer than to copy so many bytes.
_HANDSHAKE_BYTES = 256 * 1024


class _Between(asyncio.BufferedProtocol):
    """
    Stands between the transport of a socket and asyncio's protocol of TLS. That one takes whatever is written, and does
    not tell the connection when the client takes no more of it; so this one does.

    Args:
        inner: asyncio's protocol.
        connection: The connection.
    """

    def __init__(self, inner: asyncio.BufferedProtocol, connection: asyncio.Protocol) -> None:
        self._inner, self._connection = inner, connection

    def get_buffer(self, sizehint: int) -> Any:
        """Return where to put what arrives."""
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what has arrived."""
        self._inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        """Note that no more arrives."""
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
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
        server, caller = self._server, network_of((transport.get_extra_info("peername") or ("",))[0])
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
                )
        except OSError as error:
            # The client has gone, was too slow, or does not speak TLS. The error would keep the buffers, in a circle.
            error.__traceback__ = None
        finally:
            is_lost = encrypted is None or encrypted.is_closing()
            if is_lost:
                transport.abort()
                server.encrypted.give_back(1, caller)
        if is_lost or encrypted is None:
            return
        connection = server(server.encrypted)
        encrypted.set_protocol(connection)
        connection.connection_made(encrypted)
        transport.set_protocol(_Between(cast("asyncio.BufferedProtocol", transport.get_protocol()), connection))
        if transport.get_write_buffer_size():  # it has not taken the end of the handshake
            connection.pause_writing()
        for data in self._received:
            connection.data_received(data)
