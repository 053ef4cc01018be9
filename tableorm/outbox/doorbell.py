"""
Messages to workers: doorbells, which tell that decision rows may have work for them, and commands to move an entity.

A doorbell is put before its changes commit, so that no committed change is without one. It is only a hint: a worker
that finds no decision row makes the change void before it drops the message, and one that does not know the kinds
leaves the message to others. Messages of other types are for other work, and have another word as their `type`.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from ..errors import NotSupported
from ..models.manifest import PlacedEntry
from ..protocol.limits import check_message
from ..stores import RowAddress

T = TypeVar("T")

_FORMAT = 1

TOKEN = r"\A[A-Za-z0-9_-]{12,64}\Z"  # noqa: S105 - no secret
"""The pattern of the tokens of changes."""


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """
    A unique value that a change claims for an entity.

    Args:
        row_key: RowKey of the entity.
        place: Where the row is that reserves the value.
    """

    row_key: str
    place: PlacedEntry


class Begun(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """
    A change that was begun.

    Args:
        table: Name of the table of the entities, as the program knows it.
        partition_key: PartitionKey of the entities.
        token: The token of the change.
        claims: The unique values that it claims, which nobody gives back but a worker if its writer dies.
    """

    table: str
    partition_key: str
    token: Annotated[str, msgspec.Meta(pattern=TOKEN)]
    claims: tuple[Claim, ...] = ()

    @property
    def characters(self) -> int:
        """About how long it is in a message."""
        claimed = ((each.row_key, each.place.partition_key, each.place.row_key) for each in self.claims)
        return len(self.partition_key) + sum(len(key) for keys in claimed for key in keys)


class QueueMessage(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """What workers are told: a doorbell, a command to move an entity, or that an upload was begun."""

    def to_message(self) -> bytes:
        """Return the body of the message."""
        body = msgspec.json.encode(self)
        check_message(body)
        return body


class Doorbell(QueueMessage, frozen=True, kw_only=True, tag="doorbell"):
    """
    Changes that were begun.

    Args:
        changes: The changes; a bulk rings once for many.
        kinds: The kinds of their entities with their versions, as stored, each once.
    """

    changes: tuple[Begun, ...]
    kinds: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    format: int = _FORMAT


class AnyFormat(msgspec.Struct, frozen=True, gc=False):
    """What all formats of a message, or of a decision row, have in common."""

    format: int


def doorbell_of(body: bytes) -> Doorbell:
    """
    Return the doorbell of a message.

    Raises:
        NotSupported: A newer program has put the message: leave it to one.
        ValueError: The message is not a doorbell.
    """
    return decode_message(body, Doorbell, _FORMAT, "a doorbell")


def decode_message(body: bytes, form: type[T], newest: int, what: str) -> T:
    """
    Return what a message says.

    Args:
        body: The body of the message.
        form: The class of such messages.
        newest: The newest format that this program knows.
        what: What such a message is called.

    Raises:
        NotSupported: A newer program has put the message: leave it to one.
        ValueError: The message is not such a one.
    """
    try:
        found = msgspec.json.decode(body, type=AnyFormat).format
        if found > newest:
            raise NotSupported(
                f"the message has the format {found}, and this program knows {newest}; leave it to a newer program, "
                "or update this one"
            )
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"the message is not {what}: {error}") from None


MOVE_COMMAND = "move"
"""The type of commands to move an entity to another partition or table."""

MOVE_WORK = "command move:1"
"""What stands for such a command in place of a kind, in the decision row of one that workers have given up."""

_MOVE_FORMAT = 1


class MoveCommand(QueueMessage, frozen=True, kw_only=True, tag=MOVE_COMMAND):
    """
    A move that was begun. Unlike a doorbell, the message says all that there is to do: anybody can carry it out, any
    number of times, at any time. It is about one version of the source: once that has changed in another way, the
    command does nothing any more.

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
    format: int = _MOVE_FORMAT

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
    return decode_message(body, MoveCommand, _MOVE_FORMAT, "a command to move an entity")
