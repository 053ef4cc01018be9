"""
The host: the part of the engine that queues, blobs and settings use.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tableorm.stores import Capabilities

from .sqlite import Connection
from .write_session import Work

__all__ = ["Host"]

T = TypeVar("T")


class Host(Protocol):
    """An engine. A call is refused while that is not open."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of everything in the file."""
        ...

    async def read(self, read: Callable[[Connection], T]) -> T:
        """Run a read on the event loop; after a pause again, as long as another process prevents it."""
        ...

    async def submit(self, work: Work) -> Any:
        """Do `work` in a transaction, and return its result when that is durable."""
        ...

    def reclaim(self) -> None:
        """Start to free the pages of what was deleted."""
        ...
