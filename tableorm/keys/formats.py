"""
Key formats: how one field's value becomes part of a key, and back.

A format tells the template what it needs to be unambiguous: how wide its text is, which characters it can hold, whether
it keeps order, and whether the text holds the value in full.
"""

import contextlib
import datetime as dt
import enum
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, cast
from uuid import UUID

import attrs

from ..protocol.edm import (
    EPOCH,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    MAX_TICKS,
    MIN_TICKS,
    TICKS_PER_MICROSECOND,
    check_text,
    ticks_from_datetime,
)
from ..protocol.limits import FORBIDDEN_IN_KEYS
from ..types import Int32

__all__ = ["ESCAPE", "ESCAPE_CHARACTERS", "Format", "Order", "escape", "make_format", "unescape"]

# Rare in text, and never legal unescaped in a URL, so that every client sends it percent-encoded and
# none can take it for something else ('%' itself has broken clients that decode twice).
ESCAPE = "^"
ESCAPE_CHARACTERS = frozenset("^uU0123456789ABCDEF")
"""The characters that escapes are written with; none of these can separate two texts."""

DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_LETTERS = frozenset("aeflrstu")  # of "true" and "false"


class Order(enum.Enum):
    """How the order of texts relates to the order of values."""

    SAME = "same"
    REVERSED = "reversed"
    NONE = "none"


@attrs.frozen(kw_only=True)
class Format:
    """
    How one field stands in a key.

    Args:
        text: The name of the format in messages.
        to_text: Makes a value text; its ValueError says what does not fit and why.
        from_text: Makes a text the value; ValueError if it is not the very text that `to_text` makes of one, because no
            `get` of the value would find the row.
        pattern: A regular expression for all its texts; for free text, for one character.
        atoms: The text as a sequence of character sets, one per position; None if its length varies.
        alphabet: The characters that it can hold; None for free text.
        order: Whether texts sort as values do.
        full: Whether the text holds the value completely.
        free: Whether it is free text, whose characters are escaped where they would be ambiguous.
        decimal: Whether it is an integer that stands for itself, padded or not.
        low: The smallest value that has a text, where values have bounds.
        high: The largest value that has a text, where values have bounds.
        buckets: How many texts a hash bucket has; 0 for other formats.
        to_last_text: Makes the text of the last of all that a value stands for; None if it stands for itself alone.
    """

    text: str
    to_text: Callable[[Any], str]
    from_text: Callable[[str], Any]
    pattern: str
    atoms: tuple[frozenset[str], ...] | None
    alphabet: frozenset[str] | None
    order: Order
    full: bool = True
    free: bool = False
    decimal: bool = False
    low: Any = None
    high: Any = None
    buckets: int = 0
    to_last_text: Callable[[Any], str] | None = None

    @property
    def bucket_texts(self) -> list[str]:
        """The texts of a hash bucket, in order."""
        return [f"{number:0{len(self.atoms or ())}d}" for number in range(self.buckets)]


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
        raise _unreachable(text, value, escape(value, also))
    return value


def _unreachable(text: str, value: object, written: str) -> ValueError:
    """Return the error for a stored text of a value that keys hold as another text."""
    return ValueError(
        f"keys hold {value!r} as {written!r}, not as {text!r}, so that no get() and no condition finds the row; write "
        "the row under that key, or read it as a PropertyBag"
    )


def _unescape_match(found: re.Match[str]) -> str:
    code = int(found[1] or found[2] or found[3], 16)
    # Not a character, or half of one: nothing that escape() writes.
    return found[0] if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF else chr(code)


def make_format(annotation: Any, spec: str) -> Format | str:
    """
    Return the format of a field in a key, or text that says what is wrong with it.

    Args:
        annotation: The type of the field.
        spec: What follows the colon in the template.
    """
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum_format(annotation, spec)
    if spec.startswith("spread"):
        return _spread_format(annotation, spec)
    if annotation is str:
        return _text_format(spec)
    if annotation is bool:
        return _BOOL if not spec else f"does not know the format {spec!r} of a bool; it takes none"
    if annotation is int:
        return _int_format(spec, INT64_MIN, INT64_MAX)
    if annotation == Int32:
        return _int_format(spec, INT32_MIN, INT32_MAX)
    if annotation is UUID:
        return _UUID if not spec else f"does not know the format {spec!r} of a UUID; it takes none"
    if annotation is dt.date:
        return _date_format(spec or "%Y-%m-%d", moment=False)
    if annotation is dt.datetime:
        if spec in ("ticks", "ticks_desc"):
            return _TICKS if spec == "ticks" else _TICKS_DESC
        if "%" in spec:
            return _date_format(spec, moment=True)
        return "needs a format for a datetime: ticks, ticks_desc, or one such as %Y%m%d"
    name: str = getattr(cast(object, annotation), "__name__", "value of this type")
    return f"cannot hold a {name}: only str, int, bool, datetime, date, UUID and enums of them have a key text"


def _type_error(value: object, wanted: str, remedy: str = "") -> ValueError:
    return ValueError(f"needs {wanted}, got {value!r} ({type(value).__name__}){remedy and f'; give {remedy}'}")


def _check_text_value(value: Any) -> str:
    if not isinstance(value, str):
        raise _type_error(value, "a str")
    fault = check_text(value)
    if fault:
        raise ValueError(f"cannot hold {value[:40]!r}: it {fault}")
    return value


def _write_lower(value: Any) -> str:
    return _check_text_value(value).lower()


_TEXT = Format(
    text="text",
    to_text=_check_text_value,
    from_text=str,
    pattern=".",
    atoms=None,
    alphabet=None,
    order=Order.SAME,
    free=True,
)
_LOWER = attrs.evolve(_TEXT, text="lower", to_text=_write_lower, order=Order.NONE, full=False)


def _text_format(spec: str) -> Format | str:
    if spec in ("", "lower"):
        return _LOWER if spec else _TEXT
    return f"does not know the format {spec!r} of a str; there is 'lower'"


def _write_bool(value: Any) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    raise _type_error(value, "a bool")


_BOOL = Format(
    text="bool",
    to_text=_write_bool,
    from_text=lambda text: text == "true",
    pattern="(?:true|false)",
    atoms=None,
    alphabet=_LETTERS,
    order=Order.NONE,
)


def _write_uuid(value: Any) -> str:
    if not isinstance(value, UUID):
        raise _type_error(value, "a UUID", "UUID(text)" if isinstance(value, str) else "")
    return str(value)


_DASH = frozenset("-")


def _read_uuid(text: str) -> UUID:
    if text != text.lower():
        raise _unreachable(text, UUID(text), text.lower())
    return UUID(int=int(text.replace("-", ""), 16))  # less to do than for UUID(text), which takes other forms too


_UUID = Format(
    text="uuid",
    to_text=_write_uuid,
    from_text=_read_uuid,
    pattern=r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    atoms=tuple(_DASH if i in (8, 13, 18, 23) else _HEX for i in range(36)),
    alphabet=_HEX | _DASH,
    order=Order.SAME,
)


def _int_format(spec: str, lowest: int, highest: int) -> Format | str:
    found = re.fullmatch(r"0([1-9][0-9]?)d(_desc)?", spec)
    if found is None and spec:
        return f"does not know the format {spec!r} of an int; write a width such as 06d, or 06d_desc: greatest first"
    width = 0 if found is None else int(found[1])
    descending = found is not None and found[2] is not None
    nines: int = 10**width - 1  # whatever the type: stored keys stay the same if an Int32 becomes an int
    low, high = (0, min(nines, highest)) if width else (lowest, highest)

    def to_text(value: Any) -> str:
        if type(value) is int and low <= value <= high:
            return str(nines - value if descending else value).zfill(width)
        if type(value) is not int:
            raise _type_error(value, "an int")
        if width:
            raise ValueError(f"cannot hold {value} in {width} digits; 0 to {high} fit")
        raise ValueError(f"cannot hold {value}: the type of the field holds {low} to {high}")

    def from_text(text: str) -> int:
        value = nines - int(text) if descending else int(text)
        if not low <= value <= high:
            problem = f"{text!r} is {value}, and the field holds {low} to {high}"
            raise ValueError(f"{problem}; declare it as a str, or read the row as a PropertyBag")
        if not width and str(value) != text:
            raise _unreachable(text, value, str(value))
        return value

    plain = Format(
        text="int",
        to_text=to_text,
        from_text=from_text,
        pattern=r"-?[0-9]+",
        atoms=None,
        alphabet=DIGITS | _DASH,
        order=Order.NONE,
        decimal=True,
        low=low,
        high=high,
    )
    if not width:
        return plain
    return attrs.evolve(
        plain,
        text=spec,
        pattern=f"[0-9]{{{width}}}",
        atoms=(DIGITS,) * width,
        alphabet=DIGITS,
        order=Order.REVERSED if descending else Order.SAME,
        decimal=not descending,
    )


def _ticks_of(value: Any) -> int:
    if not isinstance(value, dt.datetime):
        raise _type_error(value, "a datetime")
    if value.utcoffset() is None:
        raise ValueError(
            f"needs an aware datetime, got the naive {value!r}; give it a time zone, for example datetime.now(UTC)"
        )
    ticks = ticks_from_datetime(value)
    if not MIN_TICKS <= ticks <= MAX_TICKS:
        raise ValueError(f"cannot hold {value!r}: outside 1601-01-01 to 9999-12-31 in UTC, the range of Edm.DateTime")
    return ticks


def _moment_of(ticks: int, text: str) -> dt.datetime:
    if ticks % TICKS_PER_MICROSECOND or not MIN_TICKS <= ticks <= MAX_TICKS:
        between = f"{text!r} is a moment between two microseconds, which no datetime is"
        outside = f"{text!r} is no moment from 1601-01-01 to 9999-12-31, the range of Edm.DateTime"
        raise ValueError(
            f"{between if MIN_TICKS <= ticks <= MAX_TICKS else outside}, so that no get() finds the row; declare the "
            "field as an int in the format 019d, or read the row as a PropertyBag"
        )
    return EPOCH + dt.timedelta(0, 0, ticks // TICKS_PER_MICROSECOND)


_TICKS_AFTER = TICKS_PER_MICROSECOND - 1
"""How many ticks of its microsecond follow the one that a datetime is written as."""


_LOW_MOMENT = EPOCH + dt.timedelta(microseconds=MIN_TICKS // 10)
_HIGH_MOMENT = EPOCH + dt.timedelta(microseconds=MAX_TICKS // 10)
# Source: table design guide, "Log tail pattern": DateTime.MaxValue.Ticks minus the ticks, 19 digits.
_TICKS = Format(
    text="ticks",
    to_text=lambda value: f"{_ticks_of(value):019d}",
    from_text=lambda text: _moment_of(int(text), text),
    pattern="[0-9]{19}",
    atoms=(DIGITS,) * 19,
    alphabet=DIGITS,
    order=Order.SAME,
    low=_LOW_MOMENT,
    high=_HIGH_MOMENT,
    to_last_text=lambda value: f"{_ticks_of(value) + _TICKS_AFTER:019d}",
)


def _write_ticks_down(value: Any) -> str:
    return f"{MAX_TICKS - _ticks_of(value):019d}"


def _write_last_ticks_down(value: Any) -> str:
    return f"{MAX_TICKS - _ticks_of(value) - _TICKS_AFTER:019d}"


def _read_ticks_down(text: str) -> dt.datetime:
    return _moment_of(MAX_TICKS - int(text), text)


_TICKS_DESC = attrs.evolve(
    _TICKS,
    text="ticks_desc",
    to_text=_write_ticks_down,
    from_text=_read_ticks_down,
    order=Order.REVERSED,
    to_last_text=_write_last_ticks_down,
)

_WIDTHS = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "f": 6}
_SIGNIFICANCE = "YmdHMSf"
_PARTS: dict[str, Callable[[Any], int]] = {
    "Y": lambda value: value.year,
    "m": lambda value: value.month,
    "d": lambda value: value.day,
    "H": lambda value: value.hour,
    "M": lambda value: value.minute,
    "S": lambda value: value.second,
    "f": lambda value: value.microsecond,
}


def _date_format(spec: str, *, moment: bool) -> Format | str:
    pieces = re.findall(r"%(.)|([^%]+)|(%$)", spec)
    if any(end for _, _, end in pieces):
        return f"ends in '%' in the format {spec!r}"
    letters = [letter for letter, _, _ in pieces if letter]
    allowed = _SIGNIFICANCE if moment else "Ymd"
    odd = [letter for letter in letters if letter not in allowed]
    if odd:
        return f"does not know %{odd[0]} in the format {spec!r}; there are {', '.join('%' + c for c in allowed)}"
    if not letters or len(set(letters)) != len(letters):
        return f"names nothing, or something twice, in the format {spec!r}"
    literals = "".join(text for _, text, _ in pieces)
    if FORBIDDEN_IN_KEYS.search(literals):
        return f"has a character in the format {spec!r} that keys forbid"
    # Most significant first and without a gap: only then do texts sort as the moments do.
    ordered = "".join(letters) == _SIGNIFICANCE[: len(letters)]
    full = not moment and set(letters) == {"Y", "m", "d"}

    def to_text(value: Any) -> str:
        if moment:
            _ticks_of(value)
            value = value.astimezone(dt.UTC)
        elif not isinstance(value, dt.date) or isinstance(value, dt.datetime):
            raise _type_error(value, "a date")
        return "".join(text or f"{_PARTS[letter](value):0{_WIDTHS[letter]}d}" for letter, text, _ in pieces)

    pattern = "".join(re.escape(text) or f"[0-9]{{{_WIDTHS[letter]}}}" for letter, text, _ in pieces)
    groups = (re.escape(text) or f"(?P<{letter}>[0-9]{{{_WIDTHS[letter]}}})" for letter, text, _ in pieces)
    reader = re.compile("".join(groups))

    def from_text(text: str) -> dt.date:
        found = reader.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not of the form {spec}")
        return dt.date(int(found["Y"]), int(found["m"]), int(found["d"]))

    atoms: list[frozenset[str]] = []
    for letter, text, _ in pieces:
        atoms += [frozenset(char) for char in text] if text else [DIGITS] * _WIDTHS[letter]
    return Format(
        text=spec,
        to_text=to_text,
        # A lossy text is never read back: the field is stored beside it.
        from_text=from_text if full else str,
        pattern=pattern,
        atoms=tuple(atoms),
        alphabet=DIGITS | frozenset(literals),
        order=Order.SAME if ordered else Order.NONE,
        full=full,
        low=_LOW_MOMENT if moment else dt.date.min,
        high=_HIGH_MOMENT if moment else dt.date.max,
    )


def _spread_format(annotation: Any, spec: str) -> Format | str:
    found = re.fullmatch(r"spread\(([1-9][0-9]{0,3})\)", spec)
    if found is None:
        return f"does not know the format {spec!r}; write a number of buckets such as spread(16), 1 to 9999"
    buckets = int(found[1])
    inner = make_format(annotation, "ticks" if annotation is dt.datetime else "")
    if isinstance(inner, str):
        return inner
    digits = make_format(int, f"0{len(str(buckets - 1))}d")
    assert isinstance(digits, Format)
    write = digits.to_text

    def to_text(value: Any) -> str:
        # The hash is part of the format of stored keys: it never changes.
        digest = blake2b(inner.to_text(value).encode("utf-8"), digest_size=8).digest()
        return write(int.from_bytes(digest, "big") % buckets)

    return attrs.evolve(
        digits,
        text=spec,
        to_text=to_text,
        from_text=str,
        order=Order.NONE,
        full=False,
        decimal=False,
        low=None,
        high=None,
        buckets=buckets,
    )


def _enum_format(annotation: type[enum.Enum], spec: str) -> Format | str:
    kinds: set[type[Any]] = {type(member.value) for member in annotation}
    if kinds not in ({str}, {int}):
        return f"cannot hold {annotation.__name__}: its values must all be str or all be int"
    inner = make_format(kinds.pop(), spec)
    if isinstance(inner, str):
        return inner

    def to_text(value: Any) -> str:
        if not isinstance(value, annotation):
            raise _type_error(value, f"a {annotation.__name__}")
        return inner.to_text(value.value)

    members: dict[str, enum.Enum] = {}
    for each in annotation:
        with contextlib.suppress(ValueError):  # one that does not fit the format has no text
            members[inner.to_text(each.value)] = each

    def from_text(text: str) -> enum.Enum:
        member = members.get(text)
        if member is not None:
            return member
        member = annotation(inner.from_text(text))
        if inner.to_text(member.value) != text:  # an enum can take other values for a member, in `_missing_`
            raise _unreachable(text, member, inner.to_text(member.value))
        return member

    return attrs.evolve(inner, to_text=to_text, from_text=from_text, decimal=False, low=None, high=None)
