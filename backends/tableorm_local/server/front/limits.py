"""
Limits of the server: how much one client, or all of them together, can make it hold.
"""

import sys
from collections import Counter

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import MAX_TRANSACTION_BYTES

__all__ = ["Budget", "Limits", "fit_descriptors"]


@attrs.frozen(kw_only=True)
class Limits:
    """
    The limits of one process of the server.

    One caller gets at most about half of `connections`, `tls_connections`, `handshakes`, `requests`, `waiting_bytes`
    and `buffered_bytes`.

    Args:
        connections: How many connections are open at the same time, if the process may have as many files open. The
            next one gets status 503, and is closed.
        tls_connections: How many of these have TLS, or are about to; each has 256 KiB of buffers. The next one is
            closed.
        handshakes: How many connections were accepted and do not speak TLS yet. The next one is closed.
        requests: How many requests are worked on or wait. The next one gets status 503.
        pages: How many pages of entities are built at the same time. Others wait for their turn.
        waiting_bytes: Memory for heads of requests, of all connections together: of heads that are not complete, of
            requests that are not answered, and of the last request of each connection that stays open. Beyond it a
            request that came alone is answered, and its connection closed; other connections get status 503.
        buffered_bytes: Bytes of bodies that arrive and of answers that are not sent yet, all together.
        url_bytes: Bytes of a request line.
        header_bytes: Bytes of one header.
        headers: Headers of a request.
        head_bytes: Bytes of the request line and all headers together.
        body_bytes: Bytes of a request's body, once it is decompressed.
        handshake_seconds: Time in which a connection must speak TLS.
        idle_seconds: Time after which a connection without a complete request is closed.
        body_seconds: Time in which a body must have arrived.
        write_seconds: Time in which a client must have taken an answer.
        stop_seconds: Time in which the requests that are worked on must end when the server stops.
    """

    connections: int = 10_000
    tls_connections: int = 2_000
    handshakes: int = 512
    requests: int = 4_000
    pages: int = 32
    waiting_bytes: int = 128 * 1024 * 1024
    buffered_bytes: int = 256 * 1024 * 1024
    url_bytes: int = 64 * 1024
    header_bytes: int = 16 * 1024
    headers: int = 100
    head_bytes: int = 64 * 1024
    body_bytes: int = MAX_TRANSACTION_BYTES
    handshake_seconds: float = 10.0
    idle_seconds: float = 75.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    stop_seconds: float = 30.0


# What is left for other files than connections: those of the data, and connections that are accepted to be refused.
_OTHER_DESCRIPTORS = 256


def fit_descriptors(limits: Limits) -> Limits:
    """Return limits under which connections do not use up the files that the process may have open."""
    most = _count_descriptors()
    if most is None:
        return limits
    room = most - min(_OTHER_DESCRIPTORS, most // 2)
    handshakes = min(limits.handshakes, room // 8)
    return attrs.evolve(limits, connections=min(limits.connections, room - handshakes), handshakes=handshakes)


def _count_descriptors() -> int | None:
    """Return how many files the process may have open; None if the system does not say, as on Windows."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - Windows does not have it

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if most == resource.RLIM_INFINITY else most


class Budget:
    """
    An amount that callers take from, and give back to, shared fairly among them.

    A caller gets some if as much is free as it holds already and asks for. So one caller holds half of it, the next one
    half of the rest, and somebody new nearly always finds some.

    Args:
        total: The amount.
        what: What there is too much of if somebody gets nothing, for the message.
    """

    def __init__(self, total: int, what: str) -> None:
        self._total, self._what = total, what
        self.used = 0
        self._held = Counter[str]()

    def take(self, amount: int, caller: str) -> None:
        """Take some. Fault ServerBusy if there is not enough for this caller."""
        if amount and not self.has(amount, caller):
            raise Fault(Code.SERVER_BUSY, f"The server is busy: {self._what}. Try again later.")
        self.hold(amount, caller)

    def has(self, amount: int, caller: str) -> bool:
        """Return whether there is enough for this caller."""
        return self._held[caller] + amount <= self._total - self.used

    def give_back(self, amount: int, caller: str) -> None:
        """Give back what was taken."""
        self.hold(-amount, caller)

    def hold(self, amount: int, caller: str) -> None:
        """Take some in any case."""
        self.used += amount
        self._held[caller] += amount
        if not self._held[caller]:
            del self._held[caller]
