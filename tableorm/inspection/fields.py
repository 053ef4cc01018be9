"""
Fields of a model: names for the places of its keys and for its properties, as a class body declares them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from ..models.class_body import pascal_case
from .guesses import Guess, holds_all
from .module_text import FieldText, quote
from .properties import Property, SeriesOf, field_name, find_series, find_words
from .templates import Place

__all__ = ["Field", "class_name", "name_fields"]

_WORD_BEFORE = re.compile(r"([A-Za-z]+)[=:]\Z")
_TAKEN = {"Entity", "Int32", "Mapped", "PropertyBag", "Series", "UUID", "MODELS"}


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
        default: Its default as a module writes it; "" for none.
        series: The properties that have it, if they are several.
    """

    name: str
    type: str
    property: str | None = None
    optional: bool = False
    repeats: bool = False
    default: str = ""
    series: SeriesOf | None = None

    def write(self, *, pascal: bool) -> FieldText:
        """Return the declaration, of a model that names properties by `naming="pascal"` or as fields are named."""
        if self.series is not None:
            value = f"series({self.series.length}, name={quote(self.series.pattern)})"
            return FieldText(self.name, f"Series[{self.type} | None]", value)
        options = ["default=None"] if self.optional else [f"default={self.default}"] if self.default else []
        options += ["stored=True"] if self.repeats else []
        named = pascal_case(self.name) if pascal else self.name
        options += [f"name={quote(self.property)}"] if self.property not in (None, named) and self.property else []
        optional = " | None" if self.optional else ""
        return FieldText(self.name, f"Mapped[{self.type}{optional}]", f"field({', '.join(options)})" if options else "")


def name_fields(
    properties: Sequence[Property], places: Sequence[Place], defaults: Mapping[str, str]
) -> tuple[list[Field], dict[tuple[Guess, tuple[str, ...]], str]]:
    """
    Return the fields of a model, those of its keys first, and which of them is at each place of the keys.

    Args:
        properties: The properties of its rows.
        places: The parts of both templates.
        defaults: The values that properties have in all rows because they tell the kind.
    """
    linked = {p.guess.property: p.guess for p in places if p.guess is not None and p.guess.property is not None}
    series = {f"{each.pattern.format(i=0)}": each for each in find_series(properties, linked)}
    slots = {each.pattern.format(i=number) for each in series.values() for number in range(each.length)}
    by_property: dict[str, Field] = {}
    for each in properties:
        if each.type is None or (each.name in slots and each.name not in series):
            continue
        used = {field.name for field in by_property.values()}
        own = series.get(each.name)
        by_property[each.name] = Field(
            field_name(each.name if own is None else own.name, used),
            each.type,
            each.name,
            optional=each.optional,
            repeats=each.name in linked and holds_all(linked[each.name]),
            default=quote(defaults[each.name]) if each.name in defaults else "",
            series=own,
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
    name = "".join(word[:1].upper() + word[1:] for text in words for word in find_words(text))
    if not name.isidentifier() or name in _TAKEN:
        name = f"Row{name}"
    own, number = name, 2
    while own in used:
        own, number = f"{name}{number}", number + 1
    return own
