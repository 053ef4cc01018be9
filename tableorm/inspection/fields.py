"""
Fields of a model: names for the places of its keys and for its properties, as a class body declares them.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from keyword import iskeyword

import attrs

from ..models.class_body import pascal_case
from .groups import Group
from .guesses import Guess, holds_all
from .module_text import quote
from .properties import Property, as_name, field_name, find_words
from .templates import Place

_WORD_BEFORE = re.compile(r"([A-Za-z]+)[=:]\Z")
_TAKEN = {"Entity", "Int32", "Mapped", "PropertyBag", "UUID", "MODELS"}


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
    linked = {p.guess.property: p.guess for p in places if p.guess is not None and p.guess.property is not None}
    by_property: dict[str, Field] = {}
    for each in properties:
        if each.type is None:
            continue
        by_property[each.name] = Field(
            field_name(each.name, {field.name for field in by_property.values()}),
            each.type,
            each.name,
            optional=each.optional,
            repeats=each.name in linked and holds_all(linked[each.name]),
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
                field = Field(field_name(name, used), guess.type)
            names[guess, place.texts] = field.name
            in_keys.append(field)
            word = ""
    rest = [field for field in by_property.values() if field not in in_keys]
    return [*dict.fromkeys(in_keys), *rest], names


def class_name(words: Iterable[str], used: Collection[str]) -> str:
    """Return the name of a model from some words, which no other model has."""
    name = as_name("".join(word[:1].upper() + word[1:] for text in words for word in find_words(text)))
    if not name.isidentifier() or iskeyword(name) or name in _TAKEN:
        name = f"Row{name}"
    own, number = name, 2
    while own in used:
        own, number = f"{name}{number}", number + 1
    return own
