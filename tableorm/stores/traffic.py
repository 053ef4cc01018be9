"""
Traffic: what a backend counts of its requests, and what it tells of the one that is under way.
"""

from collections.abc import Callable
from contextvars import ContextVar

import attrs


@attrs.define
class Traffic:
    """
    Counters of requests since a database was opened.

    A backend that repeats requests itself keeps them; otherwise the mapper does.

    Args:
        attempts: Requests that were sent, repeated ones included; only a backend counts them.
        retries: Requests that repeated an earlier one.
        throttled: Responses that rejected a request because there were too many.
    """

    attempts: int = 0
    retries: int = 0
    throttled: int = 0


@attrs.define(eq=False)
class Transfer:
    """
    A request under way that somebody observes.

    Args:
        on_repetition: Called with the outcome of each attempt that is followed by another one.
        bytes_sent: Bytes of the bodies that were sent; None if the backend does not tell.
        bytes_received: Bytes of the bodies that were received; None if the backend does not tell.
    """

    on_repetition: Callable[[str], None]
    bytes_sent: int | None = None
    bytes_received: int | None = None


CURRENT: ContextVar[Transfer | None] = ContextVar("tableorm_transfer", default=None)
"""The request under way in the current task; None if nobody observes it."""


def note_bytes(sent: int, received: int) -> None:
    """Record how many bytes of bodies the current request has sent and received, if it's observed."""
    transfer = CURRENT.get()
    if transfer is not None:
        transfer.bytes_sent = (transfer.bytes_sent or 0) + sent
        transfer.bytes_received = (transfer.bytes_received or 0) + received


def note_repetition(outcome: str) -> None:
    """Record the outcome of an attempt at the current request that will be retried."""
    transfer = CURRENT.get()
    if transfer is not None:
        transfer.on_repetition(outcome)
