"""
The backend `local:`: opens the embedded engine for the mapper.
"""

import os
from typing import Any, Self

from tableorm.errors import AccessDenied, NotSupported, TableOrmError, Unavailable
from tableorm.stores import BlobStore, QueueStore, TableStore

from .engine import Engine, OpenError, Reason

__all__ = ["LocalBackend", "error_of"]

_SCHEME = "local:"
_MEMORY = ":memory:"
_ERRORS: dict[Reason, type[TableOrmError]] = {
    Reason.UNSUPPORTED: NotSupported,
    Reason.DENIED: AccessDenied,
    Reason.UNAVAILABLE: Unavailable,
}


class LocalBackend:
    """
    Tables, queues and blobs in one file of this machine, without a server.

    Args:
        path: The file; it is created if there is none. None for a database in memory, which ends with the backend.
        timeout: Seconds that a call waits for other processes at most.
        create: Whether to create the file if there is none.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, timeout: float = 30.0, create: bool = True) -> None:
        self._engine = Engine(path, timeout=timeout, create=create)

    @classmethod
    def handles(cls, url: str) -> bool:
        """Whether `url` is `local:PATH` or `local::memory:`."""
        return url.startswith(_SCHEME)

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> Self:
        """
        A backend that is not open yet.

        Args:
            url: `local:PATH`, where PATH is taken literally, relative to the working directory, or `local::memory:`.
            timeout: Seconds that a call waits for other processes at most.
            options: `create=False` opens a file only if there is one.

        Raises:
            TypeError: There are other options.
            NotSupported: No path.
        """
        unknown = sorted(options.keys() - {"create"})
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise TypeError(
                f"connect({url!r}) does not know {names}; a local database has the options timeout and create"
            )
        path = url.removeprefix(_SCHEME)
        if not path or "\0" in path:
            raise NotSupported(f"{url!r} names no file; give local:PATH or local::memory:")
        return cls(None if path == _MEMORY else path, timeout=timeout, create=bool(options.get("create", True)))

    @property
    def tables(self) -> TableStore:
        """The tables."""
        return self._engine

    @property
    def queues(self) -> QueueStore:
        """The queues."""
        return self._engine.queues

    @property
    def blobs(self) -> BlobStore:
        """The blobs."""
        return self._engine.blobs

    async def open(self) -> None:
        """
        Open the file, or create it, readable by its owner only. Idempotent.

        Raises:
            NotSupported: The file is another program's, or of a newer format, or no file.
            AccessDenied: Its permissions.
            Unavailable: It is damaged or locked, or its folder is missing.
        """
        try:
            await self._engine.open()
        except OpenError as error:
            raise error_of(error) from error

    async def close(self) -> None:
        """Finish what was acknowledged and release everything. Idempotent."""
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def error_of(error: OpenError) -> TableOrmError:
    """The error of tableorm for a database that cannot be opened."""
    return _ERRORS[error.reason](error.message)
