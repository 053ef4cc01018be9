"""
The queue of a bulk for one partition, from which transactions are taken.
"""

from collections import deque

from ...protocol.limits import MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS
from ..plan import PlannedWrite
from .chunk import most_rows, most_shared_rows

__all__ = ["Partition", "PartitionQueue"]

Partition = tuple[str, str]
"""A partition: the name of its table and its PartitionKey."""


class PartitionQueue:
    """
    The operations of one partition that wait, in order, and how many bytes each has at most.

    Args:
        partition: The partition.

    Attributes:
        busy: Whether a transaction of the partition is under way.
        ready: Whether the queue is among those that are sent next.
        derives: Whether some operations need their stored rows, or change other rows.
        alone: The queue by itself. All operations share it: the garbage collector would look at a list for each.
    """

    __slots__ = ("_sizes", "alone", "busy", "derives", "partition", "ready", "writes")

    def __init__(self, partition: Partition) -> None:
        self.partition, self.alone = partition, (self,)  # a cycle, one for each queue
        self.writes: deque[PlannedWrite] = deque()
        self._sizes: deque[int] = deque()
        self.busy = self.ready = self.derives = False

    def append(self, write: PlannedWrite, size: int) -> None:
        """Add an operation of at most `size` bytes."""
        self.writes.append(write)
        self._sizes.append(size)

    def clear(self) -> None:
        """Drop all operations."""
        self.writes.clear()
        self._sizes.clear()

    def take_chunk(self, most: int) -> tuple[list[PlannedWrite], int]:
        """
        Take the operations of the next transaction.

        Args:
            most: How many operations it may have.

        Returns:
            The operations, and how many bytes they have at most.
        """
        chunk: list[PlannedWrite] = []
        row_keys: set[str] = set()
        writes, sizes, size = self.writes, self._sizes, 0
        room = MAX_TRANSACTION_OPERATIONS
        if self.derives:
            schemas = {write.change.schema for write in writes}
            room -= max((most_shared_rows(schema) for schema in schemas if schema is not None), default=0)
        while writes and len(chunk) < most:
            row_key = writes[0].change.address.row_key
            # A transaction writes a row once: the second operation on it waits for the next transaction.
            if row_key in row_keys or (chunk and size + sizes[0] > MAX_TRANSACTION_BYTES):
                break
            if self.derives:
                room -= most_rows(writes[0].change)
                if chunk and room < 0:
                    break
            row_keys.add(row_key)
            chunk.append(writes.popleft())
            size += sizes.popleft()
        return chunk, size
