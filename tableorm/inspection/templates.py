"""
Key templates of the rows of one kind: keys are divided into atoms and separators, and each place gets the strictest key
format that all of its texts are of, or the property that repeats it.
"""

import contextlib
import datetime as dt
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import attrs

from ..errors import TableOrmError
from ..keys.format import Format
from ..keys.formats import make_format, spread_hash
from ..keys.parse import parse_template
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

_TYPES: Mapping[str, Any] = {
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
_CHANCES = 10**6  # how unlikely it must be that remainders of hashes are the numbers in keys by chance
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


def _guess(texts: Sequence[str]) -> Guess:
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
    form = make_format(_TYPES[kind], spec) if kind in _TYPES else None
    return form if isinstance(form, Format) else None


def _find_repeating(texts: Sequence[str], properties: Mapping[str, tuple[Edm, Sequence[Any]]]) -> Guess | None:
    """
    Return the format in which the texts are the values of a property; None if they are those of none.

    Args:
        texts: The texts, one for each row.
        properties: Type and values of the properties that all of the rows have.
    """
    for name, (kind, values) in properties.items():
        for spec in itertools.chain(_specs(kind, len(texts[0])), _find_spread(texts, kind, values)):
            form = _format(TYPE_NAMES[kind], spec)
            with contextlib.suppress(*MISFITS):
                if form is not None and all(
                    form.to_text(value) == text for text, value in zip(texts, values, strict=True)
                ):
                    return Guess(TYPE_NAMES[kind], spec, property=name)
    return None


def _find_spread(texts: Sequence[str], kind: Edm, values: Sequence[Any]) -> Iterator[str]:
    """Yield the format by which the texts may be buckets of the values of a property."""
    form = _format(TYPE_NAMES[kind], "ticks" if kind is Edm.DATETIME else "")
    buckets = 0
    with contextlib.suppress(*MISFITS):
        for text, value in zip(texts, values, strict=True):
            # A hash less its remainder is divisible by the number of buckets.
            buckets = math.gcd(buckets, spread_hash(form.to_text(value)) - int(text)) if form else 1
            if buckets == 1:
                return
        if 2 ** len({*values}) > _CHANCES:  # of few values, a multiple of the number divides all as well
            yield f"spread({buckets})"


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


_GUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_ATOMS = re.compile(
    rf"(?:\{{{_GUID}\}}|{_GUID}(?![^\W_]))"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z)?(?![^\W_])"
    r"|[^\W_]+"
    rf"|(?P<separator>(?:(?!\{{{_GUID}\}})[\W_])+)"
)
_LEAST_ROWS = 5  # with which a word that all keys have is taken for a part of the template

Values = Mapping[str, tuple[Edm, Sequence[Any]]]
"""Type and values of the properties that all rows of a group have."""


@attrs.frozen
class Place:
    """
    A part of a template: literal text, or a field.

    Args:
        literal: The text; "" for a field.
        guess: What the field holds; None for literal text.
        texts: The texts of the field, one for each row.
    """

    literal: str = ""
    guess: Guess | None = None
    texts: tuple[str, ...] = ()


def template_text(places: Sequence[Place], names: Mapping[tuple[Guess, tuple[str, ...]], str]) -> str:
    """Return a template as it is declared, with the names that the fields have got."""
    text = ""
    for place in places:
        if place.guess is None:
            text += place.literal.replace("{", "{{").replace("}", "}}")
        else:
            spec = place.guess.spec and f":{place.guess.spec}"
            text += f"{{{names[place.guess, place.texts]}{spec}}}"
    return text


def find_places(keys: Sequence[str], values: Values, *, verbatim: bool, head: str = "") -> list[Place] | None:
    """
    Return the parts of a template by which tableorm reads all of the keys and makes them again; None if there is none.

    Args:
        keys: The keys, one for each row.
        values: What properties may be repeated in keys.
        verbatim: Whether keys hold texts as they are.
        head: What all keys begin with, and what is literal text.
    """
    rests = [key[len(head) :] for key in keys]
    for columns in _divide(rests, values):
        places = [Place(head)]
        for place in (place for texts in columns for place in _fill(texts, values)):
            if place.guess is None and places[-1].guess is None:
                places[-1] = Place(places[-1].literal + place.literal)
            else:
                places.append(place)
        if _reads(places, keys, verbatim=verbatim):
            return places
    return None


def _divide(keys: Sequence[str], values: Values) -> Iterator[list[tuple[str, ...]]]:
    """Yield ways to divide keys into places, the finest first."""
    whole = [(*keys,)]
    if _find_repeating(keys, values) or _guess(keys).type != "str":
        yield whole
    texts = [each for kind, each in values.values() if kind is Edm.STRING]
    repeated = [sorted({each[row] for each in texts}, key=len, reverse=True) for row in range(len(keys))]
    for known in (repeated, itertools.repeat(list[str]())):
        rows = [_find_atoms(key, some) for key, some in zip(keys, known, strict=False)]
        shapes = [[text if separates else None for text, separates in row] for row in rows]
        head = _count_common(shapes)
        shortest = min(map(len, shapes))
        tail = _count_common(shapes, -1)
        if head == shortest == max(map(len, shapes)):
            yield [tuple(text for text, _ in column) for column in zip(*rows, strict=True)]
        # Free text in the middle begins and ends at a separator.
        while head and shapes[0][head - 1] is None:
            head -= 1
        tail = min(tail, shortest - head)
        while tail and shapes[0][-tail] is None:
            tail -= 1
        for end in (tail, 0):
            yield [
                *(tuple(row[at][0] for row in rows) for at in range(head)),
                tuple("".join(text for text, _ in row[head : len(row) - end]) for row in rows),
                *(tuple(row[at - end][0] for row in rows) for at in range(end)),
            ]
    yield whole


def _find_atoms(key: str, known: Sequence[str]) -> list[tuple[str, bool]]:
    """Return the atoms of a key, and for each whether it separates others; texts that are known are atoms."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(key):
        text = next((each for each in known if each and _stands_at(key, at, each)), None)
        match = _ATOMS.match(key, at)
        assert match is not None
        found.append((text or match[0], not text and match["separator"] is not None))
        at += len(found[-1][0])
    return found


def _stands_at(key: str, at: int, text: str) -> bool:
    end = at + len(text)
    return key.startswith(text, at) and (end == len(key) or not (key[end].isalnum() and text[-1].isalnum()))


def _fill(texts: tuple[str, ...], values: Values) -> list[Place]:
    """Return the parts of a template for a column of keys: a field, literal text, or literal text and a field."""
    repeating = _find_repeating(texts, values)
    if repeating is not None:
        return [Place("", repeating, texts)]
    found = _guess(texts)
    same = len({*texts}) == 1
    if found.type == "str":
        if same and (len(texts) >= _LEAST_ROWS or not texts[0].isalnum()):
            return [Place(texts[0])]
        head = texts[0][: _count_common(texts)].rstrip("0123456789")
        rests = tuple(text[len(head) :] for text in texts)
        if head and all(rests):
            rest = _find_repeating(rests, values) or _guess(rests)
            if rest.type != "str" or rest.property:
                return [Place(head), Place("", rest, rests)]
    return [Place("", found, texts)]


def find_period(digits: str, places: Iterable[Place]) -> tuple[tuple[Guess, tuple[str, ...]], str] | None:
    """
    Return a field in keys and its format in which each of its values is the same digits; None if there is none.

    Args:
        digits: The last digits of the name of a table.
        places: The parts of both templates.
    """
    for place in places:
        guess = place.guess
        if guess is None or not holds_all(guess) or len(place.texts) < _LEAST_ROWS:
            continue
        own = _format(guess.type, guess.spec)
        for spec in (*_PARTS_OF_MOMENTS, f"0{len(digits)}d"):
            form = _format(guess.type, spec)
            with contextlib.suppress(*MISFITS):
                if form and own and all(form.to_text(own.from_text(text)) == digits for text in place.texts):
                    return (guess, place.texts), spec
    return None


def _reads(places: Sequence[Place], keys: Sequence[str], *, verbatim: bool) -> bool:
    """Return whether tableorm takes the template, and reads at each place of the keys what is there."""
    fields = {(place.guess, place.texts): f"f{number}" for number, place in enumerate(places) if place.guess}
    types = {name: _TYPES[each.type] for (each, _), name in fields.items()}
    try:
        template = parse_template(template_text(places, fields), "", "", types, verbatim=verbatim)
        for number, key in enumerate(keys):
            template.parse(key)  # a text with a `^` may be none that is written so
            found = template.match(key)
            if found is None or [*found.groups()] != [place.texts[number] for place in places if place.guess]:
                return False
    except (TableOrmError, ValueError):
        return False
    return True


def _count_common(rows: Sequence[Sequence[object]], step: int = 1) -> int:
    """Return how many items all rows have in common at their beginning, or with the step -1 at their end."""
    columns = zip(*(row[::step] for row in rows), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len({*column}) == 1, columns))
