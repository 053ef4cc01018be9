"""
EDM types: how each value is written as the service's JSON and read back, without loss.

A property of a row is its JSON value and, where JSON alone does not tell the type, a sibling member
`NAME@odata.type` (section "Property types" of the Table service REST reference).
"""

import contextlib
import datetime as dt
import math
import re
from base64 import b64decode, b64encode
from enum import StrEnum
from functools import lru_cache
from typing import Any
from uuid import UUID

ANNOTATION = "@odata.type"
SYSTEM_MEMBERS = frozenset({"PartitionKey", "RowKey", "Timestamp", "odata.etag"})
"""Members of a row that are not the user's properties."""

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

TICKS_PER_SECOND = 10_000_000
"""A tick is 100 ns; ticks count from 0001-01-01T00:00:00Z, as in .NET."""
TICKS_PER_MICROSECOND = 10
"""A datetime of Python is exact to the microsecond, so it stands for as many ticks."""
EPOCH = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
# 1601-01-01: the service refuses earlier dates. Source: "Understanding the Table service data model".
MIN_TICKS = 504_911_232_000_000_000
MAX_TICKS = 3_155_378_975_999_999_999  # 9999-12-31T23:59:59.9999999Z

Value = str | int | float | bool | dt.datetime | UUID | bytes
"""A property's value in Python."""


class BrokenText(str):
    """The text of a stored row that has half of a surrogate pair: it has no UTF-8 form, so it is not a String."""

    __slots__ = ()


class Edm(StrEnum):
    """
    The types of the Table service. Source: "Understanding the Table service data model", "Property types".
    """

    __hash__ = str.__hash__  # an enum's own is a Python function, several times slower

    STRING = "Edm.String"
    BOOLEAN = "Edm.Boolean"
    INT32 = "Edm.Int32"
    INT64 = "Edm.Int64"
    DOUBLE = "Edm.Double"
    DATETIME = "Edm.DateTime"
    GUID = "Edm.Guid"
    BINARY = "Edm.Binary"


_EDM_TYPES: dict[str, Edm] = {kind.value: kind for kind in Edm}


def edm_type(name: str) -> Edm:
    """
    Return the type of this name: what `Edm(name)` returns, in a fraction of the time.

    Raises:
        ValueError: There is none.
    """
    try:
        return _EDM_TYPES[name]
    except (KeyError, TypeError):
        return Edm(name)


def utf16_length(text: str) -> int:
    """Return the length of `text` in UTF-16 code units, the unit of the service's limits."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_key(text: str) -> bytes:
    """
    Return bytes that sort as the UTF-16 code units of `text` do, which is how the service orders keys (CESU-8).

    They are UTF-8, except that a character outside the BMP is written as its two surrogates.
    """
    if text.isascii() or max(text) <= "\uffff":
        return text.encode("utf-8", "surrogatepass")
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(map(chr, codes)).encode("utf-8", "surrogatepass")


def utf16_units(text: str) -> bytes:
    """
    Return the UTF-16 code units of `text`, which sort as `utf16_key` does.

    They are made in a three-hundredth of the time if the text is long and not in ASCII, but are not what keys are
    stored as.
    """
    return text.encode("utf-16-be", "surrogatepass")


def check_text(text: str) -> str | None:
    """Return what is wrong with `text` as a String, or None: a surrogate without its partner has no UTF-8 form."""
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"has a lone surrogate U+{ord(text[error.start]):04X} at position {error.start}"
    return None


class OutOfRangeError(ValueError):
    """A value that can be read, and is beyond what its type holds. The service has a code of its own for it."""


# The offset is at most 14 hours, as in XML Schema.
_DATETIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d++))?)?(Z|[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00))?",
    re.ASCII,
)


# The form in which the service itself writes a DateTime.
_TOO_FINE = re.compile(r"\.[0-9]{8}")
_CANONICAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{7}Z")


def ticks_from_text(text: str) -> int:
    """
    Return the ticks of a DateTime in the service's text, which has 0 to 7 fractional digits.

    More digits, such as those of nanoseconds, are rounded to seven, a half to the even one. So does the parser of .NET,
    in which the service is written. Source: .NET, `XmlConvert.ToDateTime`.

    Raises:
        OutOfRangeError: `text` is outside 1601-01-01 to 9999-12-31.
        ValueError: `text` is not a date.
    """
    if _CANONICAL.fullmatch(text):
        ticks = ticks_from_datetime(dt.datetime.fromisoformat(text)) + int(text[26])
        if ticks >= MIN_TICKS:
            return ticks
    found = _DATETIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is not an Edm.DateTime such as 2024-02-29T12:34:56.7891234Z")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = dt.datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=dt.UTC)
    ticks = (moment - EPOCH) // dt.timedelta(seconds=1) * TICKS_PER_SECOND
    ticks += _round_fraction(fraction or "")
    if zone and zone != "Z":
        sign = 1 if zone[0] == "+" else -1
        ticks -= sign * (int(zone[1:3]) * 60 + int(zone[4:6])) * 60 * TICKS_PER_SECOND
    if not MIN_TICKS <= ticks <= MAX_TICKS:
        raise OutOfRangeError(f"{text[:40]!r} is outside the range of Edm.DateTime, 1601-01-01 to 9999-12-31")
    return ticks


def _round_fraction(digits: str) -> int:
    """Return the fraction of a second in ticks: a half is rounded to the even tick."""
    ticks, rest = int(digits[:7].ljust(7, "0")), digits[7:].rstrip("0")
    return ticks + (rest > "5" or (rest == "5" and ticks % 2))


def check_datetime(text: str) -> None:
    """
    Refuse a text that a row cannot have as a DateTime. This is faster than `ticks_from_text`, since it counts no ticks.

    Raises:
        OutOfRangeError: `text` is outside 1601-01-01 to 9999-12-31.
        ValueError: `text` is not a date, or has more than 7 fractional digits.
    """
    if text >= "1601" and _CANONICAL.fullmatch(text):
        dt.datetime.fromisoformat(text)
        return
    ticks_from_text(text)
    if _TOO_FINE.search(text):
        raise ValueError(f"{text[:40]!r} has more fractional digits than the 7 of an Edm.DateTime")


@lru_cache(maxsize=256)
def second_texts(second: int) -> tuple[str, str]:
    """Return the text of a second as a Timestamp has it, and as an ETag has it."""
    # Writes of one second share this part; formatting a datetime anew costs more than the rest of the text.
    text = (EPOCH + dt.timedelta(seconds=second)).isoformat()[:19]
    return text, text.replace(":", "%3A")


def text_from_ticks(ticks: int) -> str:
    """Return the service's text of `ticks`: `2024-02-29T12:34:56.7891234Z`."""
    return marks_from_ticks(ticks)[0]


def etag_from_ticks(ticks: int) -> str:
    """Return the ETag of a row last written at `ticks`. Source: the service derives it from the Timestamp."""
    return marks_from_ticks(ticks)[1]


def marks_from_ticks(ticks: int) -> tuple[str, str]:
    """Return Timestamp and ETag of a row last written at `ticks`; making both costs little more than making one."""
    second, fraction = divmod(ticks, TICKS_PER_SECOND)
    text, escaped = second_texts(second)
    rest = f".{str(fraction).zfill(7)}Z"  # half the time of a format
    return text + rest, f"W/\"datetime'{escaped}{rest}'\""


# Source: RFC 9110, "ETag"; besides, a tag of the service may have spaces.
_ENTITY_TAG = re.compile(r'(?:W/)?"[ !\x23-\x7e\x80-\xff]*"')


def is_entity_tag(text: str) -> bool:
    """Return whether `text` is one ETag as HTTP has them, which need not be one of the service's."""
    return _ENTITY_TAG.fullmatch(text) is not None


def timestamp_of_etag(etag: str) -> str | None:
    """Return the Timestamp that `etag` was made from, or None if it has another form."""
    if etag.startswith("W/\"datetime'") and etag.endswith("'\""):
        stamp = etag[12:-2]
        # A line end would end the header of an operation in a transaction; a quote ends the first ETag of a list.
        if stamp[:1].isdigit() and stamp.isascii() and stamp.isprintable() and '"' not in stamp:
            return stamp.replace("%3A", ":")
    return None


def ticks_from_datetime(moment: dt.datetime) -> int:
    """Return the ticks of an aware datetime, exact to its microsecond. ValueError if it is naive."""
    if moment.utcoffset() is None:
        raise ValueError(f"{moment!r} is naive; give it a time zone, for example datetime.now(UTC)")
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * TICKS_PER_SECOND + delta.microseconds * 10


def text_from_datetime(moment: dt.datetime) -> str:
    """
    Return the service's text of an aware datetime, in UTC with 7 fractional digits.

    Raises:
        ValueError: `moment` is naive, or outside 1601-01-01 to 9999-12-31 in UTC.
    """
    if moment.tzinfo is not dt.UTC:
        if moment.utcoffset() is None:
            raise ValueError(f"{moment!r} is naive; give it a time zone, for example datetime.now(UTC)")
        try:
            moment = moment.astimezone(dt.UTC)
        except OverflowError:
            raise ValueError(f"{moment!r} is outside the range of Edm.DateTime, 1601-01-01 to 9999-12-31") from None
    if moment.year < 1601:
        raise ValueError(f"{moment!r} is before 1601-01-01, the first Edm.DateTime")
    return moment.isoformat(timespec="microseconds")[:26] + "0Z"


def datetime_from_text(text: str) -> dt.datetime:
    """Return the service's text as an aware datetime in UTC; digits beyond the microsecond are cut."""
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is not dt.UTC:
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    return moment


def bytes_from_text(text: str) -> bytes:
    """Return the bytes of a Binary in the service's text. ValueError if it is not base64."""
    # Python would let any padding pass behind whole groups of four.
    if len(text) % 4 == 0 and not text.endswith("==="):
        with contextlib.suppress(ValueError):
            return b64decode(text, validate=True)
    raise ValueError(f"{text[:40]!r} is not base64")


def type_of(row: dict[str, Any], name: str) -> Edm:
    """
    Return the type of a property of a row.

    Raises:
        ValueError: The annotation is not an EDM type, or a JSON value without annotation has none.
    """
    annotation = row.get(name + ANNOTATION)
    if annotation is not None:
        return edm_type(annotation)
    value: object = row[name]
    kind = JSON_TYPES.get(type(value))
    if kind is None:
        raise ValueError(f"{value!r} is not a value of the Table service")
    return kind


JSON_TYPES: dict[type, Edm] = {str: Edm.STRING, bool: Edm.BOOLEAN, int: Edm.INT32, float: Edm.DOUBLE}


def decode(value: object, annotation: str | None) -> Value:
    """
    Return the Python value of a JSON value and its annotation.

    Raises:
        ValueError: They do not fit each other, or the value is outside its type's range.
    """
    kind = JSON_TYPES.get(type(value)) if annotation is None else edm_type(annotation)
    if kind is None:
        raise ValueError(f"{value!r} is not a value of the Table service")
    if type(value) is str:
        return _decode_text(value, kind)
    if type(value) is bool:
        if kind is Edm.BOOLEAN:
            return value
    elif type(value) is int:
        if kind is Edm.INT32 and INT32_MIN <= value <= INT32_MAX:
            return value
    elif type(value) is float and kind is Edm.DOUBLE and math.isfinite(value):
        return value
    raise ValueError(f"{value!r} is not an {kind}")


def _decode_text(text: str, kind: Edm) -> Value:
    match kind:
        case Edm.STRING:
            return text
        case Edm.INT64:
            with contextlib.suppress(ValueError):
                number = int(text)
                if str(number) == text and INT64_MIN <= number <= INT64_MAX:
                    return number
        case Edm.DOUBLE if text in SPECIAL_DOUBLES:
            return SPECIAL_DOUBLES[text]
        case Edm.DATETIME:
            check_datetime(text)
            return datetime_from_text(text)
        case Edm.GUID:
            with contextlib.suppress(ValueError):
                guid = UUID(text)
                if str(guid) == text.lower():
                    return guid
        case Edm.BINARY:
            return bytes_from_text(text)
        case _:
            pass
    raise ValueError(f"{text[:80]!r} is not an {kind}")


SPECIAL_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def special_text(value: float) -> str:
    """Return what stands for a number that JSON has no number for."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def natural_type(value: object) -> Edm:
    """
    Return the type that a Python value is stored with when no type is declared. An int is stored as Int64.

    Raises:
        ValueError: No EDM type holds such a value.
    """
    for kind, edm in _NATURAL_TYPES:
        if isinstance(value, kind):
            return edm
    raise ValueError(f"{value!r} ({type(value).__name__}) is not a value of the Table service")


_NATURAL_TYPES: tuple[tuple[type, Edm], ...] = (
    (str, Edm.STRING),
    (bool, Edm.BOOLEAN),
    (int, Edm.INT64),
    (float, Edm.DOUBLE),
    (dt.datetime, Edm.DATETIME),
    (UUID, Edm.GUID),
    (bytes, Edm.BINARY),
)


def encode(value: Any, kind: Edm) -> tuple[str | int | float | bool, str | None]:
    """
    Return the JSON value and annotation of a Python value of type `kind`.

    Raises:
        ValueError: The value does not fit the type.
    """
    number = isinstance(value, int) and not isinstance(value, bool)
    if kind is Edm.STRING and isinstance(value, str):
        fault = check_text(value)
        if fault:
            raise ValueError(f"{value[:40]!r} {fault}; such text has no UTF-8 form")
        # str() of an enum's member may be the member's name.
        return str.__str__(value), None
    if kind is Edm.BOOLEAN and isinstance(value, bool):
        return value, None
    if kind is Edm.INT32 and number:
        if not INT32_MIN <= value <= INT32_MAX:
            raise ValueError(f"{value} is outside the range of {kind}, {INT32_MIN} to {INT32_MAX}")
        return int(value), None
    if kind is Edm.INT64 and number:
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{value} is outside the range of {kind}, {INT64_MIN} to {INT64_MAX}")
        return str(int(value)), kind.value
    if kind is Edm.DOUBLE and (isinstance(value, float) or number):
        try:
            wide = float(value)
            exact = not number or int(wide) == value
        except OverflowError:
            wide, exact = math.inf, False
        if not exact:
            raise ValueError(f"{value} is not exact as an {kind}; give a float")
        if math.isfinite(wide):
            return wide, None
        return special_text(wide), kind.value
    if kind is Edm.DATETIME and isinstance(value, dt.datetime):
        return text_from_datetime(value), kind.value
    if kind is Edm.GUID and isinstance(value, UUID):
        return str(value), kind.value
    if kind is Edm.BINARY and isinstance(value, bytes):
        return b64encode(value).decode("ascii"), kind.value
    raise ValueError(f"{value!r} ({type(value).__name__}) is not an {kind}")
