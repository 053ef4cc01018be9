"""
Redaction: leaves the signatures of tokens out of texts that are shown, however they are written there, and escapes what
a terminal would obey.
"""

import re
from html import unescape
from urllib.parse import unquote

__all__ = ["escape_unprintable", "without_signature"]


def without_signature(text: str) -> str:
    """
    Return the target of a request, or another text, as it was sent, without the signatures of tokens.

    A URL that was encoded once more, or pasted with `&amp;`, has its signature behind other characters than it should.
    What looks like one in any of the forms that the text decodes to is left out; then the decoded text is returned.
    """
    shown = _SIGNATURE.sub(r"\1REDACTED", text)
    decoded = _decode(shown)
    if decoded is None:
        return "REDACTED: it is encoded too often"
    if any(found[2] != "REDACTED" for found in _SIGNATURE.finditer(decoded)):
        shown = _SIGNATURE.sub(r"\1REDACTED", decoded)
    return shown


_SIGNATURE = re.compile(r"(sig[\s+\0]*[=:])([^&;?#'\"\r\n]*)", re.IGNORECASE)
_MOST_DECODED = 10
_ENCODED_PERCENT = re.compile("%(?:25)+")
# Python refuses to read numbers of thousands of digits. No character has one of more than seven.
_NUMBER = re.compile("&#0*([0-9]{0,8})[0-9]*")
_JSON_ESCAPE = re.compile(r"\\u00([0-7][0-9a-f])", re.IGNORECASE)


def _decode(text: str) -> str | None:
    """Decode a text as far as it can be decoded; None if it can be more often than anybody encodes it."""
    for _ in range(_MOST_DECODED):
        # All at once: a text of 64 KiB may say `%` with 30,000 levels.
        once = unquote(_ENCODED_PERCENT.sub("%", text), errors="surrogateescape")
        once = unescape(_NUMBER.sub(r"&#\1", once))
        once = _JSON_ESCAPE.sub(lambda found: chr(int(found[1], 16)), once)
        if once == text:
            return text
        text = once
    return None


def escape_unprintable(text: str) -> str:
    r"""Return the text with `\uXXXX`, as in JSON, for what a terminal would obey instead of showing it."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
