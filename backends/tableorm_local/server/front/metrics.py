"""
Metrics: what the server has done and is doing, as Prometheus reads it.

Several processes that serve one address write what they count into a folder; whichever is asked adds it up.
"""

import contextlib
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

import msgspec

__all__ = ["CONTENT_TYPE", "Counts", "Metrics", "retire", "text_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Of the histogram, in seconds.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Counts(msgspec.Struct, kw_only=True):
    """
    What one process counts.

    Args:
        requests: That were answered, by operation and status with a space between.
        times: How many took how long, by operation: up to each bound, then more.
        seconds: That they took together, by operation.
        received: Bytes of bodies.
        sent: Likewise.
        refused: Connections and requests that were turned away because the server was busy.
        now: Gauges.
    """

    requests: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    times: dict[str, list[int]] = msgspec.field(default_factory=dict[str, list[int]])
    seconds: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    received: int = 0
    sent: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    now: dict[str, float] = msgspec.field(default_factory=dict[str, float])

    def done(self, operation: str, status: int, seconds: float, received: int, sent: int) -> None:
        """A request was answered."""
        key = f"{operation} {status}"
        self.requests[key] = self.requests.get(key, 0) + 1
        times = self.times.setdefault(operation, [0] * (len(_BOUNDS) + 1))
        times[bisect_left(_BOUNDS, seconds)] += 1
        self.seconds[operation] = self.seconds.get(operation, 0.0) + seconds
        self.received += received
        self.sent += sent

    def turned_away(self, what: str) -> None:
        """A connection or a request was turned away."""
        self.refused[what] = self.refused.get(what, 0) + 1


class Metrics:
    """
    Counts of this process, and of those beside it.

    Args:
        folder: Where they tell each other; None if there is only this one.
        name: Of this process, never used again in that folder.
    """

    def __init__(self, folder: Path | None = None, name: str = "") -> None:
        self.counts = Counts()
        self._folder, self._name = folder, f"{name}.json"

    def publish(self) -> None:
        """Tell the others. Raises OSError if the folder is gone."""
        if self._folder is not None:
            _write(self._folder / self._name, self.counts)

    def text(self) -> str:
        """The counts of all."""
        others = list[Counts]()
        for path in sorted(self._folder.glob("*.json")) if self._folder is not None else ():
            if path.name != self._name:
                others.append(_read(path))
        return text_of([self.counts, *others])


def retire(folder: Path, name: str) -> None:
    """Keep what a process has counted that is no more, and forget its gauges: nothing is under way in it."""
    path = folder / f"{name}.json"
    with contextlib.suppress(FileNotFoundError):  # it has told nothing yet
        counts = _read(path)
        counts.now.clear()
        _write(path, counts)


def _read(path: Path) -> Counts:
    return msgspec.json.decode(path.read_bytes(), type=Counts)


def _write(path: Path, counts: Counts) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(msgspec.json.encode(counts))
    fresh.replace(path)


def text_of(all_counts: Iterable[Counts]) -> str:
    """Counts of several processes, added up."""
    total = Counts()
    for counts in all_counts:
        _add(total.requests, counts.requests)
        _add(total.seconds, counts.seconds)
        _add(total.refused, counts.refused)
        _add(total.now, counts.now)
        total.received += counts.received
        total.sent += counts.sent
        for operation, times in counts.times.items():
            old = total.times.get(operation, [0] * len(times))
            total.times[operation] = [one + two for one, two in zip(old, times, strict=True)]
    return "\n".join(_lines(total)) + "\n"


def _add(total: dict[str, int] | dict[str, float], more: dict[str, int] | dict[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value  # type: ignore[assignment] # both are of one kind


def _lines(counts: Counts) -> Iterable[str]:
    yield "# HELP tableorm_requests_total Requests that were answered."
    yield "# TYPE tableorm_requests_total counter"
    for key, count in sorted(counts.requests.items()):
        operation, status = key.split()
        yield f'tableorm_requests_total{{operation="{operation}",status="{status}"}} {count}'
    yield "# HELP tableorm_request_seconds From the end of the headers until the answer was handed on."
    yield "# TYPE tableorm_request_seconds histogram"
    for operation, times in sorted(counts.times.items()):
        total = 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), times, strict=True):
            total += count
            yield f'tableorm_request_seconds_bucket{{operation="{operation}",le="{bound}"}} {total}'
        yield f'tableorm_request_seconds_sum{{operation="{operation}"}} {counts.seconds[operation]:.6f}'
        yield f'tableorm_request_seconds_count{{operation="{operation}"}} {total}'
    yield "# HELP tableorm_body_bytes_total Bytes of bodies."
    yield "# TYPE tableorm_body_bytes_total counter"
    yield f'tableorm_body_bytes_total{{direction="received"}} {counts.received}'
    yield f'tableorm_body_bytes_total{{direction="sent"}} {counts.sent}'
    yield "# HELP tableorm_refused_total Turned away because the server was busy."
    yield "# TYPE tableorm_refused_total counter"
    for what in ("connection", "request"):
        yield f'tableorm_refused_total{{what="{what}"}} {counts.refused.get(what, 0)}'
    for name, value in sorted(counts.now.items()):
        yield f"# TYPE tableorm_{name} gauge"
        yield f"tableorm_{name} {value:g}"
