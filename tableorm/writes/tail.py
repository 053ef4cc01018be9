"""
Write tokens: how a row says which writes made it, so that a writer whose reply was lost can recognise its own.

A token is 72 random bits, 12 characters of base64url, drawn anew for every logical write. A row that carries them has
the tokens of its last three writes in the property `_w`, newest first, with commas between. A conditional writer puts
its token in front of those that it read; an insert, and a write without condition, begins anew.
"""

import secrets
from collections.abc import Sequence

from ..reserved import WRITE_TAIL
from ..stores import Row

__all__ = ["KEPT", "lengthened", "new_token", "tail_of"]

KEPT = 3
"""Tokens on a row: after more foreign writes than this less one, a writer no longer finds its own."""


def new_token() -> str:
    """A token that nobody had before."""
    return secrets.token_urlsafe(9)


def tail_of(row: Row | None) -> tuple[str, ...]:
    """The tokens on a row, newest first."""
    text = None if row is None else row.get(WRITE_TAIL)
    return tuple(text.split(",")) if isinstance(text, str) and text else ()


def lengthened(tail: Sequence[str], token: str) -> str:
    """The property with a token in front."""
    return ",".join([token, *tail[: KEPT - 1]])
