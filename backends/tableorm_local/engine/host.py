"""
What the queues and the blobs use of the engine that holds the file.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tableorm.stores import Capabilities

from .sqlite import Connection
from .write_session import Work

__all__ = ["Host"]

T = TypeVar("T")


class Host(Protocol):
    """An engine, open or not; each call tells."""

    @property
    def capabilities(self) -> Capabilities:
        """What holds for everything in the file."""
        ...

    async def read(self, read: Callable[[Connection], T]) -> T:
        """Call `read` on the event loop; again while another process keeps us from reading."""
        ...

    async def submit(self, work: Work) -> Any:
        """Do `work` in a transaction; its result, when it is durable."""
        ...

    def reclaim(self) -> None:
        """Start to give back pages of what was deleted."""
        ...
