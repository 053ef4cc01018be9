"""
Statistics: what a database has sent and received since it was opened.
"""

import attrs

from ..stores import Traffic


@attrs.define
class Counts:
    """
    Counters of the requests that perform one operation for one model.

    Args:
        requests: The number of requests to the store; a transaction is one.
        rows: The number of rows read.
        operations: The number of rows written or deleted.
    """

    requests: int = 0
    rows: int = 0
    operations: int = 0


@attrs.define
class Stats:
    """
    What a database has sent and received since it was opened, in total and by operation and model.

        print(db.stats.requests, db.stats.counts["query", "Employee"].rows)

    Args:
        counts: The counters by operation and model. Operations are those of `ObservedRequest`, and "repetition" for
            reads that the mapper sent again. The model of a transaction is that of its first operation; it is "" if
            there is none.
        traffic: What happened to the requests on their way.
        lag: How many seconds the oldest message that a worker last found had been in the queue; 0 if it found none,
            None while no worker runs. This compares the clocks of two machines.
    """

    counts: dict[tuple[str, str], Counts] = attrs.Factory(dict[tuple[str, str], Counts])
    traffic: Traffic = attrs.Factory(Traffic)
    lag: float | None = None

    @property
    def requests(self) -> int:
        """The number of requests to the store; a transaction is one."""
        return sum(each.requests for each in self.counts.values())

    @property
    def rows(self) -> int:
        """The number of rows read."""
        return sum(each.rows for each in self.counts.values())

    @property
    def operations(self) -> int:
        """The number of rows written or deleted."""
        return sum(each.operations for each in self.counts.values())

    @property
    def retries(self) -> int:
        """The number of requests that were sent again, by the mapper or by a layer below it."""
        return self.traffic.retries

    @property
    def throttled(self) -> int:
        """
        The number of responses that rejected a request because of its rate. Most of these requests succeeded later.
        """
        return self.traffic.throttled

    def snapshot(self) -> "Stats":
        """Return a copy that no longer changes."""
        counts = {key: attrs.evolve(each) for key, each in self.counts.items()}
        return Stats(counts, attrs.evolve(self.traffic), self.lag)
