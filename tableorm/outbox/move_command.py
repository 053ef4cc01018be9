"""
Commands to move an entity to another partition or table, as messages to workers.

Unlike a doorbell, the message says all that there is to do: anybody can carry it out, any number of times, at any time.
It is about one version of the source: once that has changed in another way, the command does nothing any more.
"""

from typing import Any

import msgspec

from ..connection.connection import Connection
from ..connection.rows import read_row
from ..errors import NotSupported
from ..models.marker_rows import MoveState, Place, is_forward, is_marker, mark_of
from ..protocol.limits import check_message
from ..stores import Row

__all__ = ["MOVE_COMMAND", "MoveCommand", "move_of", "read_live", "read_place"]

MOVE_COMMAND = "move"
"""The type of these messages."""

_FORMAT = 1


class MoveCommand(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag=MOVE_COMMAND):
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
    source: Place
    etag: str
    to_kind: str
    target: Place
    fields: dict[str, dict[str, Any]]
    format: int = _FORMAT

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that a worker has to know."""
        return (self.kind, self.to_kind)

    def __str__(self) -> str:
        return f"move of {self.kind} {self.source} to {self.to_kind} {self.target}"

    def to_message(self) -> bytes:
        """Return the body of the message."""
        body = msgspec.json.encode(self)
        check_message(body)
        return body


class _AnyFormat(msgspec.Struct, frozen=True, gc=False):
    format: int


def move_of(body: bytes) -> MoveCommand:
    """
    Return the command of a message.

    Raises:
        NotSupported: A newer program has put the message: leave it to one.
        ValueError: The message is not such a command.
    """
    try:
        found = msgspec.json.decode(body, type=_AnyFormat).format
        if found > _FORMAT:
            raise NotSupported(
                f"the message has the format {found}, and this program knows {_FORMAT}; leave it to a newer program, "
                "or update this one"
            )
        return msgspec.json.decode(body, type=MoveCommand)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"the message is not a command to move an entity: {error}") from None


async def read_place(db: Connection, place: Place) -> Row | None:
    """Return the row at a place; None if there is none."""
    return await read_row(db, place.table, place.partition_key, place.row_key)


async def _is_live(db: Connection, row: Row, place: Place) -> bool:
    """Return whether a row is tentative and its move was committed, so that it is the row of the entity."""
    mark = mark_of(row)
    if mark is None or mark.state is not MoveState.TENTATIVE:
        return False
    return is_forward(await read_place(db, mark.other), mark.move, place)


async def read_live(db: Connection, table: str, partition_key: str, row_key: str) -> Row | None:
    """
    Read a row that was found to be a marker row, and tell whether it is the row of an entity.

    A tentative row is read again if its source is not its forward: the two reads are not one moment, and the move may
    have been completed between them.

    Returns:
        The row of an entity, or a tentative row that is one; None if there is no entity.
    """
    before: str | None = None
    while True:
        row = await read_row(db, table, partition_key, row_key)
        if row is None or not is_marker(row):
            return row
        if await _is_live(db, row, Place(table, partition_key, row_key)):
            return row
        mark = mark_of(row)
        if mark is None or mark.state is MoveState.FORWARD or row["odata.etag"] == before:
            return None
        before = row["odata.etag"]
