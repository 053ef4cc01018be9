"""
Fields of the rows of one kind: the types of their properties, and which are optional.
"""

import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import attrs

from ..models.reserved import RESERVED_FIELDS, VERB_OPTIONS, is_reserved_property
from ..protocol.edm import ANNOTATION, Edm, decode, type_of
from ..protocol.limits import bad_in_property_name
from ..stores import Row
from .groups import property_names
from .guesses import TYPE_NAMES

_MOST = 248  # of the 252 that a row holds: some are for what a model may store later
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+|[0-9]+")
# What a field in a class body would hide from the annotations that follow it, and what begins the names of others.
_TAKEN = RESERVED_FIELDS | VERB_OPTIONS | {"str", "bool", "int", "float", "bytes", "dt", "field", "self"}


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
            if name != kind:
                types.setdefault(name, Counter())[_type_of(row, name)] += 1
    frequent = {name for name, _ in sorted(types.items(), key=lambda item: -item[1].total())[:_MOST]}
    return [_join(name, counts, len(rows), fits=name in frequent) for name, counts in types.items()]


def _type_of(row: Row, name: str) -> Edm | None:
    try:
        decode(row[name], row.get(name + ANNOTATION))
        return type_of(row, name)
    except ValueError:
        return None


def _join(name: str, counts: Counter[Edm | None], rows: int, *, fits: bool) -> Property:
    """Return a property by the types that it has in rows: an Int32 is also read as an int or a float."""
    if is_reserved_property(name) or bad_in_property_name(name) is not None:
        return Property(name, None, problem="has a name that no field can have")
    if not fits:
        return Property(name, None, problem="is one too many for a row")
    wider = set(counts) - {Edm.INT32} or {Edm.INT32}
    kind = wider.pop() if len(counts) == 1 or wider in ({Edm.INT64}, {Edm.DOUBLE}) else None
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


def field_name(text: str, used: Collection[str]) -> str:
    """Return the name of a field for a property or a word, which no other field has."""
    name = as_name("_".join(find_words(text)).lower())
    if not name or not name.isidentifier():
        name = f"field_{name}"
    if keyword.iskeyword(name) or name in _TAKEN:
        name += "_"
    own, number = name, 2
    while own in used:
        own, number = f"{name.rstrip('_')}_{number}", number + 1
    return own


def as_name(text: str) -> str:
    """Return a text as Python reads it in a name, without what no name has."""
    return "".join(each for each in unicodedata.normalize("NFKC", text) if f"a{each}".isidentifier())


def find_words(text: str) -> list[str]:
    """Return the words of a name such as `order_line`, `OrderLine` or `HTTPStatus`."""
    return _WORDS.findall(text)
