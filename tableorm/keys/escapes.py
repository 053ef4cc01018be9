"""
Escapes: how free text stands in a key with characters that keys forbid, or that separate it from what follows.
"""

import re

from ..protocol.limits import FORBIDDEN_IN_KEYS
from .format import unreachable

# Rare in text, and never legal unescaped in a URL, so that every client sends it percent-encoded and
# none can take it for something else ('%' itself has broken clients that decode twice).
ESCAPE = "^"
ESCAPE_CHARACTERS = frozenset("^uU0123456789ABCDEF")
"""The characters that escapes are written with; none of these can separate two texts."""


def escape(text: str, also: str) -> str:
    """
    Return a text with the escape character, what keys forbid, and the characters of `also` as `^2F` or `^u2013`.

    It goes character by character, so the escaped form of a prefix is a prefix of the escaped form.
    """
    if text.isalnum() and not also.isalnum():  # `also` is one character or none
        return text  # no punctuation at all: the common case, several times faster
    if ESCAPE not in text and not FORBIDDEN_IN_KEYS.search(text) and (not also or also not in text):
        return text
    return "".join(
        char if char not in also and char != ESCAPE and not FORBIDDEN_IN_KEYS.match(char) else _escape_character(char)
        for char in text
    )


def _escape_character(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"{ESCAPE}{code:02X}"
    return f"{ESCAPE}u{code:04X}" if code <= 0xFFFF else f"{ESCAPE}U{code:06X}"


_ESCAPES = re.compile(r"\^(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{6})|([0-9A-Fa-f]{2}))")


def unescape(text: str, also: str) -> str:
    """
    Return the value that `escape` writes as this text.

    Raises:
        ValueError: It writes none so. Another program may have left a `^` as it is, or written an escape otherwise.
    """
    if ESCAPE not in text:
        return text
    value = _ESCAPES.sub(_unescape_match, text)
    if escape(value, also) != text:
        raise unreachable(text, value, escape(value, also), "declare the model with keys='verbatim', ")
    return value


def _unescape_match(found: re.Match[str]) -> str:
    code = int(found[1] or found[2] or found[3], 16)
    # Not a character, or half of one: nothing that escape() writes.
    return found[0] if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF else chr(code)
