"""
What a place in keys holds: the strictest key format that all of its texts are of, and which property repeats it.
"""

import contextlib
import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import attrs

from ..keys.format import Format
from ..keys.formats import make_format
from ..models.schema import MISFITS
from ..protocol.edm import Edm, ticks_from_datetime
from ..types import Int32

TYPE_NAMES = {
    Edm.STRING: "str",
    Edm.BOOLEAN: "bool",
    Edm.INT32: "Int32",
    Edm.INT64: "int",
    Edm.DOUBLE: "float",
    Edm.DATETIME: "dt.datetime",
    Edm.GUID: "UUID",
    Edm.BINARY: "bytes",
}
"""The types of properties as a module writes them."""

TYPES: Mapping[str, Any] = {
    "str": str,
    "bool": bool,
    "Int32": Int32,
    "int": int,
    "dt.datetime": dt.datetime,
    "dt.date": dt.date,
    "UUID": UUID,
}
"""The types of fields in keys."""

_GUIDS = ("", "upper", "N", "N_upper", "B", "B_upper")
_TICKS = ("ticks", "ticks_desc")
_EPOCHS = tuple(f"epoch_{unit}{end}" for unit in ("s", "ms", "us") for end in ("", "_desc"))
_ISO = ("iso", "iso3", "iso6", "iso7")
_PARTS_OF_MOMENTS = ("%Y-%m-%d", "%Y%m%d", "%Y-%m", "%Y%m", "%Y", "%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S")

# Numbers are taken for moments only if all of them are within these years.
_FIRST, _LAST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.datetime(2050, 1, 1, tzinfo=dt.UTC)
_LEAST_HEX_DIGITS = 32  # of all texts together: fewer may be words


@attrs.frozen
class Guess:
    """
    What a place in keys holds.

    Args:
        type: The type of the field, as a module writes it.
        spec: Its key format.
        name: What the field is called if nothing else tells; "" if this tells nothing.
        property: The property that repeats the value; None if there is none.
    """

    type: str
    spec: str = ""
    name: str = ""
    property: str | None = None


_STRICT = (
    *(Guess("UUID", spec, "id") for spec in _GUIDS),
    *(Guess("dt.datetime", spec, "at") for spec in _ISO),
    *(Guess("dt.date", spec, "day") for spec in ("", "%Y%m%d")),
    *(Guess("dt.datetime", spec, "at") for spec in _TICKS + _EPOCHS),
    *(Guess("int", spec, "ticks") for spec in _TICKS),
    *(Guess("bool", spec, "flag") for spec in ("", "True")),
)


def guess(texts: Sequence[str]) -> Guess:
    """Return the strictest format that all of the texts are of; free text if there is no other."""
    return next((each for each in _candidates(texts) if _is_of(each, texts)), Guess("str"))


def _candidates(texts: Sequence[str]) -> Iterator[Guess]:
    yield from _STRICT
    width, fixed = len(texts[0]), len({*map(len, texts)}) == 1
    if all(map(str.isdigit, texts)):
        yield Guess("int", f"0{width}d" if fixed and width > 1 and any(text[0] == "0" for text in texts) else "")
    elif fixed and width > 3 and sum(map(len, texts)) >= _LEAST_HEX_DIGITS:
        yield from (Guess("int", f"0{width}{form}") for form in "xX")


def _is_of(each: Guess, texts: Iterable[str]) -> bool:
    form = _format(each.type, each.spec)
    if form is None:
        return False
    for text in texts:
        try:
            value = form.from_text(text) if re.fullmatch(form.pattern, text) else None
            if value is None or form.to_text(value) != text or not _is_likely(each, value):
                return False
        except MISFITS:
            return False
    return True


def _is_likely(each: Guess, value: Any) -> bool:
    """Return whether a text that can be read as a value also means it."""
    if each.spec in _TICKS and isinstance(value, int):
        return ticks_from_datetime(_FIRST) <= value < ticks_from_datetime(_LAST)
    if isinstance(value, dt.datetime):
        return each.spec in _ISO or _FIRST <= value < _LAST
    if isinstance(value, dt.date):
        return each.spec == "" or 1900 <= value.year < 2100
    # Numbers that are padded to 32 digits are no GUIDs.
    return not isinstance(value, UUID) or value.int >> 96 != 0


@lru_cache(256)
def _format(kind: str, spec: str) -> Format | None:
    form = make_format(TYPES[kind], spec) if kind in TYPES else None
    return form if isinstance(form, Format) else None


def find_repeating(texts: Sequence[str], properties: Mapping[str, tuple[Edm, Sequence[Any]]]) -> Guess | None:
    """
    Return the format in which the texts are the values of a property; None if they are those of none.

    Args:
        texts: The texts, one for each row.
        properties: Type and values of the properties that all of the rows have.
    """
    for name, (kind, values) in properties.items():
        for spec in _specs(kind, len(texts[0])):
            form = _format(TYPE_NAMES[kind], spec)
            with contextlib.suppress(*MISFITS):
                if form is not None and all(
                    form.to_text(value) == text for text, value in zip(texts, values, strict=True)
                ):
                    return Guess(TYPE_NAMES[kind], spec, property=name)
    return None


def _specs(kind: Edm, width: int) -> Sequence[str]:
    """Return the formats in which keys may hold the values of a property."""
    if kind in (Edm.INT32, Edm.INT64):
        return ("", *(f"0{width}{form}" for form in ("d", "d_desc", "x", "X")), *_TICKS)
    other = {
        Edm.STRING: ("", "lower"),
        Edm.BOOLEAN: ("", "True"),
        Edm.GUID: _GUIDS,
        Edm.DATETIME: _TICKS + _EPOCHS + _ISO + _PARTS_OF_MOMENTS,
    }
    return other.get(kind, ())


def holds_all(each: Guess) -> bool:
    """Return whether the texts of a format hold its values in full."""
    form = _format(each.type, each.spec)
    return form is not None and form.full
