"""
Metrics: what the server counts. Without prometheus_client nothing is counted; `prometheus` has the class that counts.

Several processes at one address add up what they count in a folder, as prometheus_client does it.
"""

import contextlib
import os
from collections.abc import Generator

# prometheus_client reads it when it is imported. Source: prometheus_client, "Multiprocess Mode".
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """Metrics that count nothing."""

    content_type: str  # what `render` returns, if it returns anything

    def count_request(self, operation: str, status: int, *, seconds: float, received: int, sent: int) -> None:
        """Count a request that was answered, and the bytes of its body and of its answer's."""

    def count_refusal(self) -> None:
        """Count a request that was rejected because the server was busy."""

    def set_gauges(self, **values: int) -> None:
        """Tell how many connections and requests at work there are at this moment."""

    def render(self) -> bytes | None:
        """Return the metrics of all processes as Prometheus reads them; None if nothing is counted. Blocks."""
        return None


@contextlib.contextmanager
def share_metrics(folder: str | os.PathLike[str]) -> Generator[None, None, None]:
    """Have the processes that this one starts in the block add up their metrics in a folder."""
    before = os.environ.get(_FOLDER)
    os.environ[_FOLDER] = os.fspath(folder)
    try:
        yield
    finally:
        del os.environ[_FOLDER]
        if before is not None:
            os.environ[_FOLDER] = before


def drop_process(folder: str | os.PathLike[str], pid: int) -> None:
    """Drop the gauges of a process that ended. What it has counted stays in the sums."""
    with contextlib.suppress(ImportError):
        from prometheus_client import multiprocess  # noqa: PLC0415 - it may be missing

        multiprocess.mark_process_dead(pid, os.fspath(folder))  # type: ignore[no-untyped-call] # pyright: ignore[reportUnknownMemberType]
