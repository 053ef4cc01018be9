"""
`connect`: from a URL to a database, through the backends that are installed.
"""

from importlib.metadata import entry_points
from typing import Any

from .database import Database
from .errors import NotSupported
from .retry import RetryPolicy
from .stores import Backend

__all__ = ["connect"]

GROUP = "tableorm.backends"


def connect(
    url: str,
    *,
    timeout: float = 30.0,
    retry: RetryPolicy | None = None,
    queues: str | None = None,
    blobs: str | None = None,
    **options: Any,
) -> Database:
    """
    Find the backend that opens a URL; `async with` opens the database.

    Args:
        url: `local:PATH` for the embedded engine, `local::memory:` for one in memory; others as backends are installed.
        timeout: Seconds that a request may take in all, its repetitions included.
        retry: How requests are repeated after transient faults; the default repeats them for `timeout` seconds.
        queues: URL of the queues, if they are elsewhere than the tables, or that backend has none.
        blobs: URL of the blobs, likewise.
        options: What the backend of `url` takes besides, such as credentials.

    Raises:
        NotSupported: No installed backend opens such a URL.
        TypeError: The backend does not know an option.
    """
    return Database(
        _backend(url, timeout, options),
        queues=None if queues is None else _backend(queues, timeout, {}),
        blobs=None if blobs is None else _backend(blobs, timeout, {}),
        retry=retry or RetryPolicy(deadline=timeout),
    )


def _backend(url: str, timeout: float, options: dict[str, Any]) -> Backend:
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        backend: type[Backend] = entry.load()
        if backend.handles(url):
            return backend.from_url(url, timeout=timeout, options=options)
    names = ", ".join(entry.name for entry in found) or "none"
    # A connection string holds a key: only the start of what is not a plain scheme is shown.
    scheme = url.partition(":")[0] + ":" if ":" in url and ";" not in url else url[:12] + "..."
    raise NotSupported(
        f"no installed backend opens {scheme!r}; installed are: {names}. The embedded engine is 'local:PATH' or "
        f"'local::memory:'; a backend for other URLs is a package with an entry point in the group {GROUP!r}"
    )
