"""
Limits of the server: what one client, or all of them together, can make it hold.
"""

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import MAX_TRANSACTION_BYTES

__all__ = ["Budget", "Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """
    Of one process of the server.

    Args:
        connections: Open at once; one more is told that the server is busy, and closed.
        requests: At work or waiting at once; one more is told that the server is busy.
        pages: Pages of entities that are put together at once; others wait for their turn.
        buffered_bytes: Of bodies that arrive and of answers that are not sent yet, all together.
        url_bytes: Of a request line.
        header_bytes: Of one header.
        headers: How many headers a request may have.
        body_bytes: Of a request's body, once it is decompressed.
        idle_seconds: After which a connection without a complete request is closed.
        body_seconds: In which a body must have arrived.
        write_seconds: In which a client must have taken an answer.
        stop_seconds: How long requests that are at work may take when the server stops.
    """

    connections: int = 10_000
    requests: int = 4_000
    pages: int = 32
    buffered_bytes: int = 256 * 1024 * 1024
    url_bytes: int = 64 * 1024
    header_bytes: int = 16 * 1024
    headers: int = 100
    body_bytes: int = MAX_TRANSACTION_BYTES
    idle_seconds: float = 75.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    stop_seconds: float = 30.0


class Budget:
    """
    An amount that many draw on, and give back.

    Args:
        total: The amount.
    """

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0

    def take(self, amount: int) -> None:
        """Draw on it. Fault ServerBusy if there is not enough left."""
        if self.used + amount > self.total:
            raise Fault(Code.SERVER_BUSY, "The server is busy: too much is being received and sent. Try again later.")
        self.used += amount

    def give_back(self, amount: int) -> None:
        """Give back what was taken."""
        self.used -= amount
