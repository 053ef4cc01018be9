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
        requests: How many requests can run or wait. The next one gets status 503.
        pages: How many pages of entities are built in parallel. Others wait.
        url_bytes: The maximum size of a request line.
        header_bytes: The maximum size of a header.
        headers: The maximum number of headers of a request.
        body_bytes: The maximum size of a body, after decompression.
        idle_seconds: The time after which a connection without a complete request is closed.
        body_seconds: The time within which a body must arrive.
        write_seconds: The time within which a client must read a response.
        stop_seconds: The time within which running requests must finish when the server stops.
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
