"""
Key templates of the rows of one kind: keys are divided into atoms and separators, and each place gets a format.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from ..errors import TableOrmError
from ..keys.parse import parse_template
from ..protocol.edm import Edm
from .guesses import TYPES, Guess, find_repeating, guess

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
    if find_repeating(keys, values) or guess(keys).type != "str":
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
    repeating = find_repeating(texts, values)
    if repeating is not None:
        return [Place("", repeating, texts)]
    found = guess(texts)
    same = len({*texts}) == 1
    if found.type == "str":
        if same and (len(texts) >= _LEAST_ROWS or not texts[0].isalnum()):
            return [Place(texts[0])]
        head = texts[0][: _count_common(texts)].rstrip("0123456789")
        rests = tuple(text[len(head) :] for text in texts)
        if head and all(rests):
            rest = find_repeating(rests, values) or guess(rests)
            if rest.type != "str" or rest.property:
                return [Place(head), Place("", rest, rests)]
    return [Place("", found, texts)]


def _reads(places: Sequence[Place], keys: Sequence[str], *, verbatim: bool) -> bool:
    """Return whether tableorm takes the template, and reads at each place of the keys what is there."""
    fields = {(place.guess, place.texts): f"f{number}" for number, place in enumerate(places) if place.guess}
    types = {name: TYPES[each.type] for (each, _), name in fields.items()}
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
