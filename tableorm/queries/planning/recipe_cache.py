"""
A cache that forgets what was asked for least recently.
"""

from collections.abc import Callable
from typing import Generic

from .parameters import Shape, T

__all__ = ["Kept"]


class Kept(Generic[T]):
    """
    What is known of shapes, as much as there is room for: when it is full, it begins anew.

    A program has as many shapes as its text has queries, which is few; what makes shapes without end, such as an `or`
    of whatever a user ticked, gets no more than its share.

    Args:
        room: How much weight there may be at once.
    """

    __slots__ = ("_known", "_left", "_room", "get")

    def __init__(self, room: int) -> None:
        self._known: dict[Shape, T] = {}
        self._room = self._left = room
        self.get: Callable[[Shape], T | None] = self._known.get
        """What is known of a shape; None if it is not known."""

    def keep(self, shape: Shape, known: T, weight: int) -> None:
        """Keep what is known of a shape, if it is no more than a tenth of all that there is room for."""
        if weight * 10 > self._room:
            return
        if weight > self._left:
            self._known.clear()
            self._left = self._room
        self._known[shape] = known
        self._left -= weight

    def __len__(self) -> int:
        return len(self._known)
