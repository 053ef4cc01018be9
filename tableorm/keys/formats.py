"""
Key formats: how one field's value becomes part of a key, and back. Those of dates and moments are in `moments`.
"""

import contextlib
import datetime as dt
import enum
import re
import typing
from hashlib import blake2b
from typing import Any, cast
from uuid import UUID

import attrs

from ..protocol.edm import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, MAX_TICKS, check_text
from ..types import Int32
from .format import DIGITS, Format, Order, fixed_format, type_error, unreachable
from .moments import date_format, moment_format

_HEX = "0-9a-fA-F"
_LETTERS = frozenset("aeflrstu")  # of "true" and "false"


def make_format(annotation: Any, spec: str) -> Format | str:
    """
    Return the format of a field in a key, or text that says what is wrong with it.

    Args:
        annotation: The type of the field.
        spec: What follows the colon in the template.
    """
    if spec == "each":
        return _each_format(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum_format(annotation, spec)
    if spec.startswith("spread"):
        return _spread_format(annotation, spec)
    if annotation is str:
        return _text_format(spec)
    if annotation is bool:
        return _BOOLS.get(spec) or f"does not know the format {spec!r} of a bool; there is 'True', for True and False"
    if annotation is int:
        return _int_format(spec, INT64_MIN, INT64_MAX)
    if annotation == Int32:
        return _int_format(spec, INT32_MIN, INT32_MAX)
    if annotation is UUID:
        return _uuid_format(spec)
    if annotation is dt.date:
        return date_format(spec or "%Y-%m-%d", moment=False)
    if annotation is dt.datetime:
        return moment_format(spec)
    name: str = getattr(cast(object, annotation), "__name__", "value of this type")
    return f"cannot hold a {name}: only str, int, bool, datetime, date, UUID and enums of them have a key text"


def _check_text_value(value: Any) -> str:
    if not isinstance(value, str):
        raise type_error(value, "a str")
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
    found = re.fullmatch(r"desc\(([1-9][0-9]?)\)", spec)
    if found is None:
        return f"does not know the format {spec!r} of a str; there are 'lower', and such as 'desc(26)': greatest first"
    return _text_down(int(found[1]))


_LETTERS_OR_DIGITS = "0-9A-Za-z"
_ALPHANUMERIC = "".join(sorted(DIGITS)) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abcdefghijklmnopqrstuvwxyz"
_TURNED = str.maketrans(_ALPHANUMERIC, _ALPHANUMERIC[::-1])


def _text_down(width: int) -> Format:
    """Return the format of texts of letters and digits, greatest first: each character stands for its opposite."""
    fits = re.compile(f"[{_LETTERS_OR_DIGITS}]{{{width}}}").fullmatch

    def from_text(text: str) -> str:
        return text.translate(_TURNED)

    def to_text(value: Any) -> str:
        if not fits(_check_text_value(value)):
            raise ValueError(f"cannot hold {value[:40]!r}: desc({width}) needs {width} of the characters 0-9, A-Z, a-z")
        return from_text(value)

    return fixed_format(
        "#" * width,
        _LETTERS_OR_DIGITS,
        text=f"desc({width})",
        to_text=to_text,
        from_text=from_text,
        order=Order.REVERSED,
    )


def _write_bool(value: Any) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    raise type_error(value, "a bool")


_BOOL = Format(
    text="bool",
    to_text=_write_bool,
    from_text=lambda text: text == "true",
    pattern="(?:true|false)",
    atoms=None,
    alphabet=_LETTERS,
    order=Order.NONE,
)


def _write_capital_bool(value: Any) -> str:
    return _write_bool(value).capitalize()


_CAPITAL_BOOL = attrs.evolve(
    _BOOL,
    text="True",
    to_text=_write_capital_bool,
    from_text="True".__eq__,
    pattern="(?:True|False)",
    alphabet=_LETTERS | {"T", "F"},
)
_BOOLS = {"": _BOOL, "True": _CAPITAL_BOOL}


_LAST_UUID = (1 << 128) - 1
_UUID_SHAPES = {"D": "8-4-4-4-12", "N": "32", "B": "{8-4-4-4-12}"}


def _uuid_format(spec: str) -> Format | str:
    """Return a format of UUIDs; letters name their forms as in .NET: D with dashes, N without, B in braces."""
    found = re.fullmatch(r"([DNB]?)(?:(?:^|_)(upper))?(?:(?:^|_)(desc))?|", spec)
    if found is None or spec.startswith("_"):
        return (
            f"does not know the format {spec!r} of a UUID; there are N without dashes, B in braces, upper, desc for "
            "the greatest first, and such as N_upper_desc"
        )
    name, upper, down = found[1] or "D", found[2] is not None, found[3] is not None
    case = str.upper if upper else str.lower
    shape = re.sub("[0-9]+", lambda count: "#" * int(count[0]), _UUID_SHAPES[name])

    def to_text(value: Any) -> str:
        if not isinstance(value, UUID):
            raise type_error(value, "a UUID", "UUID(text)" if isinstance(value, str) else "")
        text = str(UUID(int=_LAST_UUID - value.int) if down else value)
        text = text.replace("-", "") if name == "N" else f"{{{text}}}" if name == "B" else text
        return case(text)

    def from_text(text: str) -> UUID:
        # Less to do than for UUID(text), which takes other forms too.
        number = int(text.strip("{}").replace("-", ""), 16)
        value = UUID(int=_LAST_UUID - number if down else number)
        if text != case(text):
            raise unreachable(text, value, case(text))
        return value

    return fixed_format(
        shape,
        _HEX,
        text=spec or "uuid",
        to_text=to_text,
        from_text=from_text,
        order=Order.REVERSED if down else Order.SAME,
    )


def _int_format(spec: str, lowest: int, highest: int) -> Format | str:
    top = MAX_TICKS if spec in ("ticks", "ticks_desc") else None
    found = re.fullmatch(r"0([1-9][0-9]?)([dxX])(_desc)?", spec if top is None else spec.replace("ticks", "019d"))
    if found is None and spec:
        return (
            f"does not know the format {spec!r} of an int; write a width such as 06d, 08x for hexadecimal digits, "
            "06d_desc for the greatest first, or ticks_desc for the newest"
        )
    width, form = (int(found[1]), found[2]) if found is not None else (0, "d")
    descending = found is not None and found[3] is not None
    base = 10 if form == "d" else 16
    # Whatever the type: stored keys stay the same if an Int32 becomes an int.
    most: int = base**width - 1 if top is None else top
    low, high = (0, min(most, highest)) if width else (lowest, highest)

    def to_text(value: Any) -> str:
        if type(value) is int and low <= value <= high:
            number = most - value if descending else value
            return (str(number) if form == "d" else format(number, form)).zfill(width)
        if type(value) is not int:
            raise type_error(value, "an int")
        if top is not None:
            raise ValueError(f"cannot hold {value}: ticks are 0 to {high}")
        if width:
            raise ValueError(f"cannot hold {value} in {width} digits; 0 to {high} fit")
        raise ValueError(f"cannot hold {value}: the type of the field holds {low} to {high}")

    def from_text(text: str) -> int:
        value = most - int(text, base) if descending else int(text, base)
        if not low <= value <= high:
            problem = f"{text!r} is {value}, and the field holds {low} to {high}"
            raise ValueError(f"{problem}; declare it as a str, or read the row as a PropertyBag")
        if (not width or base == 16) and to_text(value) != text:
            raise unreachable(text, value, to_text(value))
        return value

    options: dict[str, Any] = {"to_text": to_text, "from_text": from_text, "low": low, "high": high}
    if width:
        return fixed_format(
            "#" * width,
            "0-9" if base == 10 else _HEX,
            text=spec,
            order=Order.REVERSED if descending else Order.SAME,
            decimal=base == 10 and not descending,
            **options,
        )
    return Format(
        text="int",
        pattern="-?[0-9]+",
        atoms=None,
        alphabet=DIGITS | {"-"},
        order=Order.NONE,
        decimal=True,
        **options,
    )


def spread_hash(text: str) -> int:
    """Return the hash whose remainder is a bucket. It is part of the format of stored keys: it never changes."""
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=8).digest(), "big")


def _spread_format(annotation: Any, spec: str) -> Format | str:
    found = re.fullmatch(r"spread\(([1-9][0-9]{0,3})\)", spec)
    if found is None:
        return f"does not know the format {spec!r}; write a number of buckets such as spread(16), 1 to 9999"
    buckets = int(found[1])
    inner = make_format(annotation, "ticks" if annotation is dt.datetime else "")
    if isinstance(inner, str):
        return inner
    width = len(str(buckets - 1))

    def to_text(value: Any) -> str:
        return str(spread_hash(inner.to_text(value)) % buckets).zfill(width)

    return fixed_format(
        "#" * width,
        "0-9",
        text=spec,
        to_text=to_text,
        from_text=str,
        order=Order.NONE,
        full=False,
        buckets=buckets,
    )


def _each_format(annotation: Any) -> Format | str:
    link: Any = getattr(annotation, "element_text", None)  # of a list of keys
    of = typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else None
    inner = attrs.evolve(_TEXT, to_text=link, from_text=link, order=Order.NONE) if link else make_format(of, "")
    if isinstance(inner, str) or of in (bool, dt.date, dt.datetime):
        return "cannot take 'each' of this type: it takes a list of str, int, UUID, of an enum of these, or of keys"
    return attrs.evolve(inner, text="each", full=False, each=True)


def _enum_format(annotation: type[enum.Enum], spec: str) -> Format | str:
    kinds: set[type[Any]] = {type(member.value) for member in annotation}
    if kinds not in ({str}, {int}):
        return f"cannot hold {annotation.__name__}: its values must all be str or all be int"
    inner = make_format(kinds.pop(), spec)
    if isinstance(inner, str):
        return inner

    def to_text(value: Any) -> str:
        if not isinstance(value, annotation):
            raise type_error(value, f"a {annotation.__name__}")
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
            raise unreachable(text, member, inner.to_text(member.value))
        return member

    return attrs.evolve(inner, to_text=to_text, from_text=from_text, decimal=False, low=None, high=None)
