"""
Doorbells: messages that tell a worker that a decision row may have work for it.

A doorbell is put before the change commits, so that no committed change is without one. It is only a hint: a worker
that finds no decision row makes the change void before it drops the message, and one that does not know the kind leaves
the message to others.
"""

import msgspec

from ..errors import NotSupported
from ..protocol.limits import check_message

__all__ = ["Doorbell", "doorbell_of"]

_FORMAT = 1


class Doorbell(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    A change that was begun.

    Args:
        table: Name of the entity's table, as the program knows it.
        partition_key: PartitionKey of the entity.
        token: The token of the change.
        kind: The kind of the entity with its version, as stored.
    """

    table: str
    partition_key: str
    token: str
    kind: str
    format: int = _FORMAT

    def to_message(self) -> bytes:
        """Return the body of the message."""
        body = msgspec.json.encode(self)
        check_message(body)
        return body


class _AnyFormat(msgspec.Struct, frozen=True, gc=False):
    format: int


def doorbell_of(body: bytes) -> Doorbell:
    """
    Return the doorbell of a message.

    Raises:
        NotSupported: A newer program has put the message: leave it to one.
        ValueError: The message is not a doorbell.
    """
    try:
        found = msgspec.json.decode(body, type=_AnyFormat).format
        if found > _FORMAT:
            raise NotSupported(
                f"the message has the format {found}, and this program knows {_FORMAT}; leave it to a newer program, "
                "or update this one"
            )
        return msgspec.json.decode(body, type=Doorbell)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"the message is not a doorbell: {error}") from None
