"""
The cache of prepared plans.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from .parameters import QueryShape

__all__ = ["PlanCache"]

T = TypeVar("T")


class PlanCache(Generic[T]):
    """
    What is known of query shapes, up to a total weight. When there is no room left, the cache begins anew.

    A program has as many shapes as its text has queries, which is few. What makes shapes without end, such as an `or`
    of whatever a user ticked, cannot fill the memory.

    Args:
        capacity: The total weight that is kept.
    """

    __slots__ = ("_capacity", "_plans", "_room", "get")

    def __init__(self, capacity: int) -> None:
        self._plans: dict[QueryShape, T] = {}
        self._capacity = self._room = capacity
        self.get: Callable[[QueryShape], T | None] = self._plans.get
        """Return what is known of a shape; None if nothing is."""

    def keep(self, shape: QueryShape, plan: T, weight: int) -> None:
        """Keep what is known of a shape, unless it alone would take more than a tenth of the capacity."""
        if weight * 10 > self._capacity:
            return
        if weight > self._room:
            self._plans.clear()
            self._room = self._capacity
        self._plans[shape] = plan
        self._room -= weight

    def __len__(self) -> int:
        return len(self._plans)
