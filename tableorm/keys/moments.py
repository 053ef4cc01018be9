"""
Key formats of dates and moments.
"""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from ..protocol.edm import (
    EPOCH,
    MAX_TICKS,
    MIN_TICKS,
    TICKS_PER_MICROSECOND,
    ticks_from_datetime,
)
from ..protocol.limits import FORBIDDEN_IN_KEYS
from .format import Format, Order, fixed_format, type_error

_TICKS_PER_SECOND = 10**7


def moment_format(spec: str) -> Format | str:
    """Return a format of datetimes, or text that says what is wrong with it."""
    found = _MOMENTS.get(spec)
    if found is not None:
        return found
    if "%" in spec:
        return date_format(spec, moment=True)
    known = ", ".join(_MOMENTS)
    return f"needs a format for a datetime: {known}, or one such as %Y%m%d"


def _ticks_of(value: Any) -> int:
    if not isinstance(value, dt.datetime):
        raise type_error(value, "a datetime")
    if value.utcoffset() is None:
        raise ValueError(
            f"needs an aware datetime, got the naive {value!r}; give it a time zone, for example datetime.now(UTC)"
        )
    ticks = ticks_from_datetime(value)
    if not MIN_TICKS <= ticks <= MAX_TICKS:
        raise ValueError(f"cannot hold {value!r}: outside 1601-01-01 to 9999-12-31 in UTC, the range of Edm.DateTime")
    return ticks


def _moment_of(ticks: int, text: str, form: str) -> dt.datetime:
    if ticks % TICKS_PER_MICROSECOND or not MIN_TICKS <= ticks <= MAX_TICKS:
        between = f"{text!r} is a fraction of a microsecond, which no datetime can hold"
        outside = f"{text!r} is outside 1601-01-01 to 9999-12-31, the range of Edm.DateTime"
        other = f"an int in the format {form}" if form in ("ticks", "ticks_desc") else "a str"
        raise ValueError(
            f"{between if MIN_TICKS <= ticks <= MAX_TICKS else outside}, so that no get() finds the row; declare the "
            f"field as {other}, or read the row as a PropertyBag"
        )
    return EPOCH + dt.timedelta(0, 0, ticks // TICKS_PER_MICROSECOND)


_LOW_MOMENT = EPOCH + dt.timedelta(microseconds=MIN_TICKS // 10)
_HIGH_MOMENT = EPOCH + dt.timedelta(microseconds=MAX_TICKS // 10)
_TICKS_AFTER = TICKS_PER_MICROSECOND - 1
"""How many ticks of its microsecond follow the one that a datetime is written as."""

_UNITS = {_TICKS_PER_SECOND: "seconds", 10**4: "milliseconds", 10: "microseconds"}


def _counting_format(
    name: str,
    shape: str,
    order: Order,
    scale: int,
    origin: int,
    top: int,
    write: Callable[[int], str],
    read: Callable[[str], int],
) -> Format:
    """
    Return a format whose texts are a count of units, from a moment on.

    Args:
        name: Its name.
        shape: What its texts look like, as `fixed_format` takes it.
        order: How texts sort.
        scale: How many ticks a unit has.
        origin: The ticks of the moment that has the count 0.
        top: The greatest count.
        write: Makes a count a text.
        read: Makes a text a count.
    """

    def to_text(value: Any) -> str:
        count, rest = divmod(_ticks_of(value) - origin, scale)
        if rest:
            raise ValueError(f"cannot hold {value!r}: {name} counts whole {_UNITS[scale]}; round it")
        return written(count, value)

    # Moments between two units are compared, though no key has them.
    def to_first_text(value: Any) -> str:
        return written(-((origin - _ticks_of(value)) // scale), value)

    def to_last_text(value: Any) -> str:
        return written((_ticks_of(value) + _TICKS_AFTER - origin) // scale, value)

    def written(count: int, value: Any) -> str:
        if not 0 <= count <= top:
            raise ValueError(f"cannot hold {value!r}: {name} holds {low} to {high}")
        return write(count)

    def from_text(text: str) -> dt.datetime:
        return _moment_of(read(text) * scale + origin, text, name)

    last = min(origin + top * scale, (MAX_TICKS - origin) // scale * scale + origin)
    low, high = (EPOCH + dt.timedelta(microseconds=t // 10) for t in (max(MIN_TICKS, origin), last))
    return fixed_format(
        shape,
        "0-9",
        text=name,
        order=order,
        to_text=to_text,
        from_text=from_text,
        low=low,
        high=high,
        to_first_text=to_first_text if scale > TICKS_PER_MICROSECOND else None,
        to_last_text=to_last_text,
    )


def _number_format(text: str, scale: int, origin: int, width: int, *, down: bool) -> Format:
    """Return a format of numbers, padded with zeros; counted down from the greatest one if the newest come first."""
    # Source: table design guide, "Log tail pattern": DateTime.MaxValue.Ticks minus the ticks, 19 digits.
    top = MAX_TICKS if text.startswith("ticks") else 10**width - 1
    first, step, order = (top, -1, Order.REVERSED) if down else (0, 1, Order.SAME)

    def write(count: int) -> str:
        return str(first + step * count).zfill(width)

    def read(key: str) -> int:
        return (int(key) - first) * step

    return _counting_format(text, "#" * width, order, scale, origin, top, write, read)


def _iso_format(digits: int) -> Format:
    """Return the format of ISO 8601 in UTC, with some digits of a second."""
    unit: int = 10**digits
    shape = "####-##-##T##:##:##" + ("." + "#" * digits if digits else "") + "Z"

    def write(count: int) -> str:
        seconds, fraction = divmod(count, unit)
        text = (EPOCH + dt.timedelta(seconds=seconds)).isoformat()[:19]
        return f"{text}.{str(fraction).zfill(digits)}Z" if digits else f"{text}Z"

    def read(text: str) -> int:
        seconds = (dt.datetime.fromisoformat(text[:19] + "+00:00") - EPOCH) // dt.timedelta(seconds=1)
        return seconds * unit + int(text[20:-1] or 0)

    scale = _TICKS_PER_SECOND // unit
    return _counting_format(f"iso{digits or ''}", shape, Order.SAME, scale, 0, MAX_TICKS // scale, write, read)


_EPOCH_TICKS = ticks_from_datetime(dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
_NUMBERS = {
    "ticks": (1, 0, 19),
    # The widths that these numbers have today: until 2286, and from 2001 on without zeros in front.
    "epoch_s": (_TICKS_PER_SECOND, _EPOCH_TICKS, 10),
    "epoch_ms": (10**4, _EPOCH_TICKS, 13),
    "epoch_us": (10, _EPOCH_TICKS, 16),
}
_MOMENTS = {
    name + end: _number_format(name + end, *numbers, down=bool(end))
    for name, numbers in _NUMBERS.items()
    for end in ("", "_desc")
} | {f"iso{digits or ''}": _iso_format(digits) for digits in (0, 3, 6, 7)}

_WIDTHS = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "f": 6}
_SIGNIFICANCE = "YmdHMSf"
_PARTS = {"Y": "year", "m": "month", "d": "day", "H": "hour", "M": "minute", "S": "second", "f": "microsecond"}


def date_format(spec: str, *, moment: bool) -> Format | str:
    """Return a format of dates, or of moments, from its `%` letters; or text that says what is wrong with it."""
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
            raise type_error(value, "a date")
        return "".join(text or f"{getattr(value, _PARTS[letter]):0{_WIDTHS[letter]}d}" for letter, text, _ in pieces)

    groups = (re.escape(text) or f"(?P<{letter}>[0-9]{{{_WIDTHS[letter]}}})" for letter, text, _ in pieces)
    reader = re.compile("".join(groups))

    def from_text(text: str) -> dt.date:
        found = reader.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not of the form {spec}")
        return dt.date(int(found["Y"]), int(found["m"]), int(found["d"]))

    return fixed_format(
        "".join(text or "#" * _WIDTHS[letter] for letter, text, _ in pieces),
        "0-9",
        text=spec,
        to_text=to_text,
        # A lossy text is never read back: the field is stored beside it.
        from_text=from_text if full else str,
        order=Order.SAME if ordered else Order.NONE,
        full=full,
        low=_LOW_MOMENT if moment else dt.date.min,
        high=_HIGH_MOMENT if moment else dt.date.max,
    )
