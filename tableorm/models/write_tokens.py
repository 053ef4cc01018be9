"""
Write tokens: how a row says which writes made it, so that a writer whose reply was lost can recognise its own.

A token is 72 random bits, 12 characters of base64url, drawn anew for every logical write. A row that carries them has
the tokens of its last three writes in the property `_w`, newest first, with commas between. A conditional writer puts
its token in front of those that it read; an insert, and a write without condition, begins anew.
"""

import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence

from ..protocol.edm import ANNOTATION
from ..stores import Row
from .reserved import WRITE_TOKENS

KEPT = 3
"""How many tokens a row carries. After as many writes of others, a writer no longer finds its own."""


_is_token = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_BYTES = 9
_DRAWN = 256  # tokens at a time: to ask the system for each would take longer than all else that a token takes
_ready: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ready.clear)  # parent and child must not draw the same


def new_token() -> str:
    """Return a new write token, at random; no two are alike."""
    try:
        return _ready.pop()  # of several threads each gets another
    except IndexError:
        drawn = os.urandom(_BYTES * _DRAWN)
        tokens = [urlsafe_b64encode(drawn[n : n + _BYTES]).decode() for n in range(0, len(drawn), _BYTES)]
        token = tokens.pop()
        _ready.extend(tokens)
        return token


def tokens_of(row: Row | None) -> tuple[str, ...]:
    """
    Return the tokens on a row, newest first. A property of that name and of another type is another program's, and
    holds none.
    """
    text = None if row is None else row.get(WRITE_TOKENS)
    if row is None or not isinstance(text, str) or not text or WRITE_TOKENS + ANNOTATION in row:
        return ()
    return tuple(text.split(","))


def newest_token(row: Row | None) -> str:
    """
    Return the newest token on a row, which another row is to hold; "" if it has none, or something else in its place:
    whoever may write a row decides what it says.
    """
    newest = next(iter(tokens_of(row)), "")
    return newest if _is_token(newest) else ""


def with_token(tail: Sequence[str], token: str) -> str:
    """Return what a row stores after a write: the token of the write, then those of the writes before it."""
    return ",".join([token, *tail[: KEPT - 1]])


def with_tokens_of(row: Row, source: Row) -> Row:
    """Give a derived row the tokens of the row it is derived from: finding one of them proves the write of both."""
    if WRITE_TOKENS in source:
        row[WRITE_TOKENS] = source[WRITE_TOKENS]
    return row
