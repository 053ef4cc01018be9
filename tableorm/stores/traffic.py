"""
Counters of requests sent, repeated and throttled: kept by a backend that repeats requests itself, else by the mapper.
"""

import attrs

__all__ = ["Traffic"]


@attrs.define
class Traffic:
    """
    Counters of requests since a database was opened.

    Args:
        attempts: Requests that were sent, repeated ones included; only a backend counts them.
        retries: Requests that repeated an earlier one.
        throttled: Answers that refused a request because there were too many.
    """

    attempts: int = 0
    retries: int = 0
    throttled: int = 0
