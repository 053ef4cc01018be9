"""
The backend of `local:` URLs: opens the embedded engine for the mapper.
"""

import os
from typing import Any, ClassVar, Self

from tableorm.errors import ModelError, NotSupported
from tableorm.protocol.redaction import without_named_secrets
from tableorm.stores import BlobStore, GuardedStore, QueueStore, Supplier, TableStore, Tokens

from .access import DEVELOPMENT_ACCOUNT, LocalAccess
from .engine import Engine

_SCHEME = "local:"
_MEMORY = ":memory:"


class LocalBackend:
    """
    Tables, queues and blobs in one file of this machine, without a server.

    Args:
        path: The file, which is created if it is missing. None for a database in memory, which ends with the backend.
        timeout: The most seconds that a call waits for other processes.
        create: Whether to create a missing file.
        account: Name of the account that tokens are for; give a server of the file the same.
        key: Its key, in base64, to sign tokens with; None for the file's own.
        sas: A token, or an async function that supplies one. Then there are only tables, limited to what it allows.

    Attributes:
        tables: The tables.
        access: Gives others access to the tables.
        place: What is equal for backends of one database: the file without links, or the backend itself.
    """

    known_options: ClassVar[frozenset[str]] = frozenset({"account", "create", "key", "sas"})

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        timeout: float = 30.0,
        create: bool = True,
        account: str = DEVELOPMENT_ACCOUNT,
        key: str | None = None,
        sas: str | Supplier | None = None,
    ) -> None:
        self.url = f"{_SCHEME}{_MEMORY if path is None else os.fspath(path)}"
        self.place: object = self if path is None else os.path.realpath(path)
        self._engine = Engine(path, timeout=timeout, create=create and sas is None)
        self.access = LocalAccess(self._engine, account, key, None if sas is None else "a shared access signature")
        self.tables: TableStore = self._engine
        if sas is not None:
            self.tables = GuardedStore(self._engine, Tokens(sas), self.access.admit)

    @classmethod
    def handles(cls, url: str) -> bool:
        """Return whether `url` is `local:PATH` or `local::memory:`."""
        return url.startswith(_SCHEME)

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> Self:
        """
        Make a backend, which is not open yet.

        Args:
            url: `local:PATH`, where PATH is taken literally, relative to the working directory, or `local::memory:`.
            timeout: The most seconds that a call waits for other processes.
            options: `create=False` opens a file only if it exists, as does `sas=`, a token; `account=` and `key=` say
                what tokens are signed with.

        Raises:
            TypeError: There are other options, or `sas` is not a token.
            NotSupported: There is no path, the account or key cannot be used, or a token is given for memory.
        """
        if without_named_secrets(url) != url:  # a path is shown in errors, and a secret must not be
            raise NotSupported(
                "connect('local:...'): the path holds what looks like a token or a key; give it as sas= or key="
            )
        unknown = sorted(options.keys() - cls.known_options)
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise TypeError(
                f"connect({url!r}) does not know {names}; a local database has the options timeout, "
                f"{', '.join(sorted(cls.known_options))}"
            )
        path = url.removeprefix(_SCHEME)
        if not path or "\0" in path:
            raise ModelError(f"connect({url!r}): the URL names no file; give local:PATH or local::memory:")
        if path == _MEMORY and options.get("sas") is not None:
            raise NotSupported(f"{url!r} is a new database, which no token can open; give a token with local:PATH")
        return cls(None if path == _MEMORY else path, timeout=timeout, **options)

    @property
    def queues(self) -> QueueStore:
        """
        The queues.

        Raises:
            NotSupported: A token opened the database.
        """
        self._require_whole("queues")
        return self._engine.queues

    @property
    def blobs(self) -> BlobStore:
        """
        The blobs.

        Raises:
            NotSupported: A token opened the database.
        """
        self._require_whole("blobs")
        return self._engine.blobs

    def _require_whole(self, what: str) -> None:
        if self.tables is not self._engine:
            raise NotSupported(
                f"this database was opened with a shared access signature, which opens tables, not {what}; open "
                f"it without one, or say where the {what} are: connect(url, sas=..., {what}=...)"
            )

    async def open(self) -> None:
        """
        Open the file, or create it, readable by its owner only. Idempotent.

        Raises:
            NotSupported: The file is another program's, or has a newer format, or is not a file.
            AccessDenied: The permissions do not allow it.
            Unavailable: It is damaged or locked, or its folder is missing.
        """
        await self._engine.open()

    async def close(self) -> None:
        """Finish the calls that are under way, and close the file. Idempotent."""
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
