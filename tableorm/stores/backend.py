"""
The interface of a backend: one store of tables and, where it has them, of queues and of blobs.
"""

from typing import Any, Protocol

from .blobs import BlobStore
from .queues import QueueStore
from .tables import TableStore


class Backend(Protocol):
    """
    What `connect` opens: an entry point of the group `tableorm.backends` names a class with these members.

    A class may also have `joint = True`. Then its `from_url` gets the arguments `queues` and `blobs` of `connect` among
    the options, if it handles their URLs, and serves them over the same connections. `known_options`, a `frozenset`,
    names its options: beside the tables of another backend it gets those that are not among the `known_options` of that
    one. A backend that repeats requests itself may have a member `traffic`, the `Traffic` that it has counted. A member
    `url` says where it is, without secrets, for people to read; a member `place` is equal for backends of one database.
    """

    @classmethod
    def handles(cls, url: str) -> bool:
        """Return whether this backend opens `url`."""
        ...

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> "Backend":
        """
        Make a backend that is not open yet. `options` are the remaining arguments of `connect`.

        Raises:
            TypeError: This backend does not know an option, which the message names.
        """
        ...

    @property
    def tables(self) -> TableStore:
        """The tables."""
        ...

    @property
    def queues(self) -> QueueStore | None:
        """The queues, or None if this backend has none."""
        ...

    @property
    def blobs(self) -> BlobStore | None:
        """The blobs, or None if this backend has none."""
        ...

    async def open(self) -> None:
        """Open the backend; failures are errors of `tableorm.errors`."""
        ...

    async def close(self) -> None:
        """Finish what was acknowledged and release everything. Closing again does nothing."""
        ...
