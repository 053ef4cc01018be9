"""
Statistics: what a database has sent and received since it was opened.
"""

import attrs

from ..stores import Traffic

__all__ = ["Counts", "Stats"]


@attrs.define
class Counts:
    """
    Counters of the requests that do one thing with one model.

    Args:
        requests: Requests to the store; a transaction is one.
        rows: Rows read.
        operations: Rows written or deleted.
    """

    requests: int = 0
    rows: int = 0
    operations: int = 0


@attrs.define
class Stats:
    """
    What a database has sent and received since it was opened, in all, and by operation and model.

    Args:
        counts: The counters of each operation and model: `stats.counts["query", "Employee"].rows`. Operations are those
            of `ObservedRequest`, and "repetition" for reads that the mapper has sent again. The model of a transaction
            is that of its first operation; it is "" where there is none.
        traffic: What became of the requests on their way.
        lag: For how many seconds the oldest message that a worker has found last had been in the queue; 0 if it has
            found none, None while no worker runs. The clocks of two machines are compared.
    """

    counts: dict[tuple[str, str], Counts] = attrs.Factory(dict[tuple[str, str], Counts])
    traffic: Traffic = attrs.Factory(Traffic)
    lag: float | None = None

    @property
    def requests(self) -> int:
        """Requests to the store; a transaction is one."""
        return sum(each.requests for each in self.counts.values())

    @property
    def rows(self) -> int:
        """Rows read."""
        return sum(each.rows for each in self.counts.values())

    @property
    def operations(self) -> int:
        """The number of rows that were written or deleted."""
        return sum(each.operations for each in self.counts.values())

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
        counts = {key: attrs.evolve(each) for key, each in self.counts.items()}
        return Stats(counts, attrs.evolve(self.traffic), self.lag)
