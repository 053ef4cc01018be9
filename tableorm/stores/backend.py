"""
The interface of a backend: one store of tables and, where it has them, of queues and of blobs.
"""

from typing import Any, Protocol

from .blobs import BlobStore
from .queues import QueueStore
from .tables import TableStore

__all__ = ["Backend"]


class Backend(Protocol):
    """
    What `connect` opens: an entry point of the group `tableorm.backends` names a class with these members.

    A class may also have `joint = True`: then its `from_url` gets `queues` and `blobs` of `connect` among the options,
    where it handles their URLs, and serves them over the same connections. It may have `traffic`, if it repeats itself.
    """

    @classmethod
    def handles(cls, url: str) -> bool:
        """Whether this backend opens `url`."""
        ...

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> "Backend":
        """
        A backend that is not open yet. `options` are the remaining arguments of `connect`.

        Raises:
            TypeError: An option that this backend does not know, named.
        """
        ...

    @property
    def tables(self) -> TableStore:
        """The tables."""
        ...

    @property
    def queues(self) -> QueueStore | None:
        """The queues, None if this backend has none."""
        ...

    @property
    def blobs(self) -> BlobStore | None:
        """The blobs, None if this backend has none."""
        ...

    async def open(self) -> None:
        """Open; raises an error of `tableorm.errors`."""
        ...

    async def close(self) -> None:
        """Finish what was acknowledged and release everything. Idempotent."""
        ...
