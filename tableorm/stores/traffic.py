"""
What becomes of requests on their way: counted by a backend that repeats them itself, else by the mapper.
"""

import attrs

__all__ = ["Traffic"]


@attrs.define
class Traffic:
    """
    What has become of requests on their way, since a database was opened.

    Args:
        attempts: Requests, repeated ones included; only a backend counts them.
        retries: How many requests were repetitions.
        throttled: Answers that refused a request for its rate.
    """

    attempts: int = 0
    retries: int = 0
    throttled: int = 0
