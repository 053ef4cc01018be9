"""
Redaction: leaves keys and the signatures of tokens out of texts that are shown, however they are written there, and
escapes what a terminal would obey.

A text that is known by its parts is shown by the parts that cannot hold a secret; this is for all other texts. It finds
secrets by what stands before them, and long ones by themselves.
"""

import re
from collections.abc import Callable
from html import unescape
from urllib.parse import unquote

REDACTED = "REDACTED"
"""What is shown in place of a secret."""


def without_secrets(text: str) -> str:
    """
    Return a text as it was given, without what is named as a secret, and without what is as long as one.

    A URL that was encoded once more, or pasted with `&amp;`, has its signature behind other characters than it should.
    What looks like one in any of the forms that the text decodes to is left out; then the decoded text is returned.
    """
    return text if _HARMLESS.fullmatch(text) else _redact_decoded(text, _redact_all)


def without_named_secrets(text: str) -> str:
    """Return a text without what is named as a secret alone: the path of a file may be as long as one."""
    return _redact_decoded(text, _redact_named)


def _redact_decoded(text: str, redact: Callable[[str], str]) -> str:
    shown = _redact_named(text)
    decoded = _decode(shown)
    if decoded is None:
        return f"{REDACTED}: it is encoded too often"
    redacted = redact(decoded)
    return shown if redacted == decoded else redacted


# A control character may stand between any two letters of a name.
_NAMES = "|".join(
    r"[\0-\x1f]*".join(name)
    for name in ("sig", "accountkey", "account_key", "authorization", "sharedkey", "sharedkeylite")
)
# After a name come quotes and brackets, in `SharedKey ACCOUNT:` the account; then, perhaps in quotes, the value.
_NAMED = re.compile(
    rf"""((?:{_NAMES})(?:[\s+]{{1,8}}[a-z0-9-]{{1,40}}(?=:))?[^\w&;=:]{{0,8}}[=:][\s'"\\]{{0,8}})([^&;?#'"\r\n]*)""",
    re.IGNORECASE,
)
# `USER:PASSWORD@` in front of a host; the text may have many URLs.
_USER = re.compile(r"(://(?:(?!://)[^@\s:])*:)(?:(?!://)[^@\s])+(?=@)")
# The alphabets of base64. The signature of a token has 44 characters.
_SECRET = 40
_LONG = re.compile(rf"[A-Za-z0-9+/_=-]{{{_SECRET},}}")
# Too short for a secret, and without what stands after a name or begins a code: as most keys of rows are.
_HARMLESS = re.compile(rf"[^=:%&\\]{{0,{_SECRET - 1}}}", re.DOTALL)
_KINDS = [re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]")]


def _redact_named(text: str) -> str:
    return _USER.sub(rf"\1{REDACTED}", _NAMED.sub(rf"\1{REDACTED}", text))


def _redact_all(text: str) -> str:
    return _LONG.sub(_redact_long, _redact_named(text))


def _redact_long(found: re.Match[str]) -> str:
    """Redact what has the length of a secret, but for a path of shorter words."""
    text = found[0]
    path = max(map(len, text.split("/"))) < _SECRET and not all(kind.search(text) for kind in _KINDS)
    return text if path else REDACTED


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
