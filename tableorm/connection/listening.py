"""
Listening to writes: whoever keeps rows in memory is told which this program writes.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

from ..stores import StoreLayer, StoreRequest, TableStore

Listener = Callable[[StoreRequest], None]
"""A method that is told of each request that writes, when it has ended: acknowledged, refused, or in doubt."""


class HeardStore(StoreLayer):
    """
    Tells listeners of writes, as long as their objects are in use.

    Args:
        below: The store below it.
        listeners: The listeners.
    """

    def __init__(self, below: TableStore, listeners: set[WeakMethod[Listener]]) -> None:
        super().__init__(below)
        self._listeners = listeners

    async def send(self, request: StoreRequest) -> Any:
        """Send a request to the store below; return what that returns, and raise what it raises."""
        try:
            return await request.sent_to(self.below)
        finally:
            if request.operations or request.method == "delete_table":
                for each in [*self._listeners]:
                    listener = each()
                    if listener is None:
                        self._listeners.discard(each)
                    else:
                        listener(request)
