"""
Fields of the rows of one kind: the types of their properties, which are optional, and series of them.
"""

import keyword
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import attrs

from ..models.reserved import RESERVED_FIELDS, VERB_OPTIONS, is_reserved_property
from ..protocol.edm import ANNOTATION, Edm, decode, type_of
from ..stores import Row
from .groups import property_names
from .guesses import TYPE_NAMES

__all__ = ["Property", "SeriesOf", "field_name", "find_properties", "find_series", "find_words", "read_values"]

_MOST = 248  # of the 252 that a row holds: some are for what a model may store later
_LEAST_SLOTS = 4
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+|[0-9]+")
_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]{1,3})")
# What a field in a class body would hide from the annotations that follow it, and what begins the names of others.
_TAKEN = RESERVED_FIELDS | VERB_OPTIONS | {"str", "bool", "int", "float", "bytes", "dt", "field", "series", "self"}


@attrs.frozen
class Property:
    """
    A property of the rows of a kind.

    Args:
        name: Its name.
        type: Its type, as a module writes it; None if no field can have it.
        optional: Whether some rows lack it.
        problem: Why no field can have it.
    """

    name: str
    type: str | None
    optional: bool = False
    problem: str = ""


@attrs.frozen
class SeriesOf:
    """
    Properties that are numbered from 0 and of one type.

    Args:
        name: What their names begin with.
        pattern: Their names, with the number as `{i:02d}`.
        type: Their type, as a module writes it.
        length: How many there are.
    """

    name: str
    pattern: str
    type: str
    length: int


def find_properties(rows: Sequence[Row], *, kind: str | None) -> list[Property]:
    """
    Return the properties of rows, in the order in which they are met.

    Args:
        rows: The rows.
        kind: The property that tells the kind to tableorm, which is no field; None if none does.
    """
    types: dict[str, Counter[Edm | None]] = {}
    for row in rows:
        for name in property_names(row):
            types.setdefault(name, Counter())[_type_of(row, name)] += 1
    frequent = {name for name, _ in sorted(types.items(), key=lambda item: -item[1].total())[:_MOST]}
    found: list[Property] = []
    for name, counts in types.items():
        if name == kind:
            continue
        if is_reserved_property(name):
            found.append(Property(name, None, problem="is a reserved name"))
        elif name not in frequent:
            found.append(Property(name, None, problem="is one too many for a row"))
        else:
            found.append(_join(name, counts, len(rows)))
    return found


def _type_of(row: Row, name: str) -> Edm | None:
    try:
        decode(row[name], row.get(name + ANNOTATION))
        return type_of(row, name)
    except ValueError:
        return None


def _join(name: str, counts: Counter[Edm | None], rows: int) -> Property:
    """Return a property by the types that it has in rows: an Int32 is also read as an int or a float."""
    kinds = set(counts)
    kind: Edm | None = next(iter(kinds))
    if len(kinds) > 1:
        wider = kinds - {Edm.INT32}
        kind = wider.pop() if wider in ({Edm.INT64}, {Edm.DOUBLE}) and Edm.INT32 in kinds else None
    if kind is None:
        said = ", ".join(f"{each or 'no type of the service'} in {count}" for each, count in counts.most_common())
        return Property(name, None, problem=f"is {said} rows")
    return Property(name, TYPE_NAMES[kind], optional=counts.total() < rows)


def read_values(rows: Sequence[Row], properties: Sequence[Property]) -> dict[str, tuple[Edm, list[Any]]]:
    """Return the type and the values of each property that all rows have in one type."""
    types = {name: kind for kind, name in TYPE_NAMES.items()}
    return {
        each.name: (types[each.type], [decode(row[each.name], row.get(each.name + ANNOTATION)) for row in rows])
        for each in properties
        if each.type is not None and not each.optional and each.type not in ("float", "bytes")
    }


def find_series(properties: Sequence[Property], taken: Collection[str]) -> list[SeriesOf]:
    """Return the series of properties, without those of which a key repeats one."""
    slots: dict[str, list[tuple[str, str | None]]] = {}
    for each in properties:
        if (found := _NUMBERED.fullmatch(each.name)) and each.name not in taken:
            slots.setdefault(found[1], []).append((found[2], each.type))
    series: list[SeriesOf] = []
    for name, numbered in slots.items():
        length, width = len(numbered), len(numbered[0][0])
        types = {kind for _, kind in numbered}
        for spec in (f"0{width}d", "d"):
            wanted = {f"{number:{spec}}" for number in range(length)}
            if length >= _LEAST_SLOTS and len(types) == 1 and wanted == {number for number, _ in numbered}:
                kind = types.pop()
                if kind is not None:
                    series.append(SeriesOf(name, f"{name}{{i:{spec}}}", kind, length))
                break
    return series


def field_name(text: str, used: Collection[str]) -> str:
    """Return the name of a field for a property or a word, which no other field has."""
    name = "_".join(find_words(text)).lower()
    if not name or not name.isidentifier():
        name = f"field_{name}"
    if keyword.iskeyword(name) or name in _TAKEN:
        name += "_"
    own, number = name, 2
    while own in used:
        own, number = f"{name.rstrip('_')}_{number}", number + 1
    return own


def find_words(text: str) -> list[str]:
    """Return the words of a name such as `order_line`, `OrderLine` or `HTTPStatus`."""
    return _WORDS.findall(text)
