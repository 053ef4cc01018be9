"""
Counters of what a database has sent and received.
"""

import attrs

from ..stores import Traffic

__all__ = ["Stats"]


@attrs.define
class Stats:
    """
    What a database has sent and received since it was opened.

    Args:
        requests: Requests to the store; a transaction is one.
        rows: Rows read.
        operations: Rows written or deleted.
        traffic: What became of the requests on their way.
    """

    requests: int = 0
    rows: int = 0
    operations: int = 0
    traffic: Traffic = attrs.Factory(Traffic)

    @property
    def retries(self) -> int:
        """Requests that were sent again, by the mapper or below it."""
        return self.traffic.retries

    @property
    def throttled(self) -> int:
        """Answers that refused a request for its rate; most of these requests went through later."""
        return self.traffic.throttled

    def snapshot(self) -> "Stats":
        """A copy that stays as it is."""
        return attrs.evolve(self, traffic=attrs.evolve(self.traffic))
