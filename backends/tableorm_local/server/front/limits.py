"""
Limits of the server: how much all clients together can make it hold.
"""

import attrs

from tableorm.protocol.limits import MAX_TRANSACTION_BYTES


@attrs.frozen(kw_only=True)
class Limits:
    """
    The limits of one process of the server.

    Args:
        requests: How many requests are worked on or wait. The next one gets status 503.
        pages: How many pages of entities are built at the same time. Others wait for their turn.
        url_bytes: Bytes of a request line.
        header_bytes: Bytes of one header.
        headers: Headers of a request.
        body_bytes: Bytes of a request's body, once it is decompressed.
        idle_seconds: Time after which a connection without a complete request is closed.
        body_seconds: Time in which a body must have arrived.
        write_seconds: Time in which a client must have taken an answer.
        stop_seconds: Time in which the requests that are worked on must end when the server stops.
    """

    requests: int = 4_000
    pages: int = 32
    url_bytes: int = 64 * 1024
    header_bytes: int = 16 * 1024
    headers: int = 100
    body_bytes: int = MAX_TRANSACTION_BYTES
    idle_seconds: float = 75.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    stop_seconds: float = 30.0
