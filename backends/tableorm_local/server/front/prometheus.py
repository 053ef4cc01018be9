"""
Metrics for Prometheus, by prometheus_client: the extra `metrics`.
"""

import os

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from .metrics import Metrics

# Upper bounds of the histogram, in seconds.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class PrometheusMetrics(Metrics):
    """Metrics in a registry of their own, so that several servers may run in one program."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "tableorm_requests", "Requests that were answered.", ["operation", "status"], registry=registry
        )
        self._seconds = Histogram(
            "tableorm_request_seconds",
            "Time from the end of the headers until the answer was handed on.",
            ["operation"],
            registry=registry,
            buckets=_BOUNDS,
        )
        self._by_labels: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        body_bytes = Counter("tableorm_body_bytes", "Bytes of bodies.", ["direction"], registry=registry)
        self._received, self._sent = body_bytes.labels("received"), body_bytes.labels("sent")
        self._refused = Counter("tableorm_refused", "Refused because the server was busy.", registry=registry)
        self._gauges = {
            # The sum over the processes that run.
            name: Gauge(f"tableorm_{name}", text, registry=registry, multiprocess_mode="livesum")
            for name, text in (
                ("connections", "Connections that are open."),
                ("requests_at_work", "Requests that are at work."),
            )
        }

    def count_request(self, operation: str, status: int, *, seconds: float, received: int, sent: int) -> None:
        """Count a request that was answered, and the bytes of its body and of its answer's."""
        # `labels` takes longer than counting does; there are few operations and statuses.
        found = self._by_labels.get((operation, status))
        if found is None:
            found = self._requests.labels(operation, status), self._seconds.labels(operation)
            self._by_labels[operation, status] = found
        requests, times = found
        requests.inc()
        times.observe(seconds)
        if received:
            self._received.inc(received)
        if sent:
            self._sent.inc(sent)

    def count_refusal(self) -> None:
        """Count a request that was rejected because the server was busy."""
        self._refused.inc()

    def set_gauges(self, **values: int) -> None:
        """Tell how many connections and requests at work there are at this moment."""
        for name, value in values.items():
            self._gauges[name].set(value)

    def render(self) -> bytes:
        """Return the metrics of all processes as Prometheus reads them. Blocks."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)
