"""
Commands to move an entity to another partition or table, as messages to workers.

Unlike a doorbell, the message says all that there is to do: anybody can carry it out, any number of times, at any time.
It is about one version of the source: once that has changed in another way, the command does nothing any more.
"""

from typing import Any

from ..stores import RowAddress
from .doorbell import QueueMessage, decode_message

__all__ = ["MOVE_COMMAND", "MOVE_WORK", "MoveCommand", "move_of"]

MOVE_COMMAND = "move"
"""The type of these messages."""

MOVE_WORK = "command move:1"
"""What stands for such a command in place of a kind, in the decision row of one that workers have given up."""

_FORMAT = 1


class MoveCommand(QueueMessage, frozen=True, kw_only=True, tag=MOVE_COMMAND):
    """
    A move that was begun.

    Args:
        move: The id of the move, a token.
        kind: The kind of the entity with its version, as stored.
        source: Where the entity is.
        etag: The ETag of its row.
        to_kind: The kind that it has afterwards, with its version.
        target: Where it goes.
        fields: The fields that it gets, by name; each as the properties that a row would have.
    """

    move: str
    kind: str
    source: RowAddress
    etag: str
    to_kind: str
    target: RowAddress
    fields: dict[str, dict[str, Any]]
    format: int = _FORMAT

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that a worker has to know."""
        return (self.kind, self.to_kind)

    def __str__(self) -> str:
        return f"move of {self.kind} {self.source} to {self.to_kind} {self.target}"


def move_of(body: bytes) -> MoveCommand:
    """
    Return the command of a message.

    Raises:
        NotSupported: A newer program has put the message: leave it to one.
        ValueError: The message is not such a command.
    """
    return decode_message(body, MoveCommand, _FORMAT, "a command to move an entity")
