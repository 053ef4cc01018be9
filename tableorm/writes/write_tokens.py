"""
Write tokens: how a row says which writes made it, so that a writer whose reply was lost can recognise its own.

A token is 72 random bits, 12 characters of base64url, drawn anew for every logical write. A row that carries them has
the tokens of its last three writes in the property `_w`, newest first, with commas between. A conditional writer puts
its token in front of those that it read; an insert, and a write without condition, begins anew.
"""

import os
from base64 import urlsafe_b64encode
from collections.abc import Sequence

from ..models.reserved import WRITE_TOKENS
from ..protocol.edm import ANNOTATION
from ..stores import Row

__all__ = ["KEPT", "new_token", "tokens_of", "with_token"]

KEPT = 3
"""Tokens on a row: after more foreign writes than this less one, a writer no longer finds its own."""


_BYTES = 9
_DRAWN = 256  # tokens at a time: to ask the system for each would take longer than all else that a token takes
_ready: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ready.clear)  # parent and child must not draw the same


def new_token() -> str:
    """A token that nobody had before."""
    try:
        return _ready.pop()  # of several threads each gets another
    except IndexError:
        drawn = os.urandom(_BYTES * _DRAWN)
        tokens = [urlsafe_b64encode(drawn[n : n + _BYTES]).decode() for n in range(0, len(drawn), _BYTES)]
        token = tokens.pop()
        _ready.extend(tokens)
        return token


def tokens_of(row: Row | None) -> tuple[str, ...]:
    """The tokens on a row, newest first; a property of that name and another type is another program's."""
    text = None if row is None else row.get(WRITE_TOKENS)
    if row is None or not isinstance(text, str) or not text or WRITE_TOKENS + ANNOTATION in row:
        return ()
    return tuple(text.split(","))


def with_token(tail: Sequence[str], token: str) -> str:
    """The property with a token in front."""
    return ",".join([token, *tail[: KEPT - 1]])
