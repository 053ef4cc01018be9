"""
Fields of a model: the types of properties, which are optional, and names for these and for the places of keys, as a
class body declares them.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from keyword import iskeyword
from typing import Any

import attrs

from ..models.class_body import pascal_case
from ..models.reserved import RESERVED_FIELDS, VERB_OPTIONS, is_reserved_property
from ..protocol.edm import ANNOTATION, Edm, decode, type_of
from ..protocol.limits import bad_in_property_name
from ..stores import Row
from .groups import Group, property_names
from .module_text import quote
from .templates import TYPE_NAMES, Guess, Place, holds_all

_MOST = 248  # of the 252 that a row holds: some are for what a model may store later
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+|[0-9]+")
# What a field in a class body would hide from the annotations that follow it, and what begins the names of others.
_TAKEN = RESERVED_FIELDS | VERB_OPTIONS | {"str", "bool", "int", "float", "bytes", "dt", "field", "self"}
_WORD_BEFORE = re.compile(r"([A-Za-z]+)[=:]\Z")
_IMPORTED = {"Entity", "Int32", "Mapped", "PropertyBag", "UUID", "MODELS"}


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


def _field_name(text: str, used: Collection[str]) -> str:
    """Return the name of a field for a property or a word, which no other field has."""
    name = _as_name("_".join(_find_words(text)).lower())
    if not name or not name.isidentifier():
        name = f"field_{name}"
    if iskeyword(name) or name in _TAKEN:
        name += "_"
    own, number = name, 2
    while own in used:
        own, number = f"{name.rstrip('_')}_{number}", number + 1
    return own


def _as_name(text: str) -> str:
    """Return a text as Python reads it in a name, without what no name has."""
    return "".join(each for each in unicodedata.normalize("NFKC", text) if f"a{each}".isidentifier())


def _find_words(text: str) -> list[str]:
    """Return the words of a name such as `order_line`, `OrderLine` or `HTTPStatus`."""
    return _WORDS.findall(text)


@attrs.frozen
class Field:
    """
    A field of a model.

    Args:
        name: Its name.
        type: The type of its values, as a module writes it.
        property: The property that has it; None if only a key has it.
        optional: Whether some rows lack the property.
        repeats: Whether a key holds it in full too.
        default: Its default; "" for none.
    """

    name: str
    type: str
    property: str | None = None
    optional: bool = False
    repeats: bool = False
    default: str = ""

    def write(self, *, pascal: bool) -> str:
        """Return the declaration, of a model that names properties by `naming="pascal"` or as fields are named."""
        options = ["default=None"] if self.optional else [f"default={quote(self.default)}"] if self.default else []
        options += ["stored=True"] if self.repeats else []
        if self.property not in (None, pascal_case(self.name) if pascal else self.name):
            options.append(f"name={quote(str(self.property))}")
        optional = " | None" if self.optional else ""
        return f"{self.name}: Mapped[{self.type}{optional}]" + (f" = field({', '.join(options)})" if options else "")


def name_fields(
    properties: Sequence[Property], places: Sequence[Place], group: Group
) -> tuple[list[Field], dict[tuple[Guess, tuple[str, ...]], str]]:
    """
    Return the fields of a model, those of its keys first, and which of them is at each place of the keys.

    Args:
        properties: The properties of its rows.
        places: The parts of both templates.
        group: The rows, and what tells their kind.
    """
    in_full = {place.guess.property for place in places if place.guess is not None and holds_all(place.guess)}
    by_property: dict[str, Field] = {}
    for each in properties:
        if each.type is None:
            continue
        by_property[each.name] = Field(
            _field_name(each.name, {field.name for field in by_property.values()}),
            each.type,
            each.name,
            optional=each.optional,
            repeats=each.name in in_full,
            default=group.label if each.name == group.property else "",
        )
    in_keys: list[Field] = []
    names: dict[tuple[Guess, tuple[str, ...]], str] = {}
    word = ""
    for place in places:
        guess = place.guess
        if guess is None:
            word = found[1] if (found := _WORD_BEFORE.search(place.literal)) else ""
        elif (guess, place.texts) not in names:
            used = {field.name for field in [*by_property.values(), *in_keys]}
            field = by_property.get(guess.property or "")
            if field is None:
                name = word or guess.name or f"part{len(names) + 1}"
                field = Field(_field_name(name, used), guess.type)
            names[guess, place.texts] = field.name
            in_keys.append(field)
            word = ""
    rest = [field for field in by_property.values() if field not in in_keys]
    return [*dict.fromkeys(in_keys), *rest], names


def class_name(words: Iterable[str], used: Collection[str]) -> str:
    """Return the name of a model from some words, which no other model has."""
    name = _as_name("".join(word[:1].upper() + word[1:] for text in words for word in _find_words(text)))
    if not name.isidentifier() or iskeyword(name) or name in _IMPORTED:
        name = f"Row{name}"
    own, number = name, 2
    while own in used:
        own, number = f"{name}{number}", number + 1
    return own
