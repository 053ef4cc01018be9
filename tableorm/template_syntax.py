"""
The syntax of key templates, and the proof that a key can be read in one way only.

A template is checked when the class is made: every key that it writes parses back into the fields that made it, and no
two values of the fields share a key.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs

from .errors import TemplateError
from .formats import ESCAPE, ESCAPE_CHARACTERS, make_format
from .forms import Part
from .protocol.limits import FORBIDDEN_IN_KEYS, key_fault
from .templates import Template

__all__ = ["may_meet", "may_share", "parse_template"]

_PIECES = re.compile(r"\{\{|\}\}|\{([^{}:]*)(?::([^{}]*))?\}|([^{}]+)|(.)", re.DOTALL)


def parse_template(
    text: str, model: str, key: str, annotations: Mapping[str, Any], kind: str | None = None
) -> Template:
    """
    Parse and prove a template.

    Args:
        text: For example `"empid_{id:06d}"`; `{{` and `}}` are braces; `{kind}` is the kind of the model.
        model: Name of the model, for messages.
        key: "partition_key" or "row_key", for messages.
        annotations: Type of each field, without None.
        kind: What `{kind}` stands for; None if the model stores none.

    Raises:
        TemplateError: It names an unknown field or format, holds a forbidden character, or cannot parse back.
    """

    def error(problem: str) -> TemplateError:
        return TemplateError(problem, model, key, text)

    parts: list[Part] = []

    def literal(piece: str) -> None:
        if parts and parts[-1].field is None:
            parts[-1] = Part(parts[-1].literal + piece)
        else:
            parts.append(Part(piece))

    for found in _PIECES.finditer(text):
        name, spec, plain, odd = found.groups()
        if odd is not None:
            raise error(f"has an unmatched {odd!r} at position {found.start()}; a brace itself is written twice")
        if name is None:
            literal(plain if plain is not None else found.group()[0])
        elif name == "kind":
            if kind is None:
                raise error("uses {kind}, but the model has no kind")
            literal(kind)
        elif name not in annotations:
            known = ", ".join(annotations) or "none"
            raise error(f"names {name!r}, which is no field of the model; its fields: {known}")
        else:
            form = make_format(annotations[name], spec or "")
            if isinstance(form, str):
                raise error(f"{form} (field {name!r})")
            parts.append(Part("", name, form))
    bad = next((part for part in parts if FORBIDDEN_IN_KEYS.search(part.literal)), None)
    if bad is not None:
        raise error(f"has a character in {bad.literal!r} that keys forbid (/ \\ # ? and control characters)")
    fault = key_fault("".join(part.literal for part in parts))
    if fault:
        raise error(f"has literal text that {fault}")
    return Template(text, model, key, tuple(_separate(parts, error)))


def _separate(parts: list[Part], error: Callable[[str], TemplateError]) -> list[Part]:
    """
    Give each free text its separator, or refuse a template whose keys could be read in two ways.

    A key is read from the left: a field of fixed width by its width, one of varying width up to the first character of
    the next literal. So that character must not occur in it, nor in anything of fixed width between.
    The last field of varying width ends where the fixed rest begins.
    """
    varying = [i for i, part in enumerate(parts) if part.format is not None and part.format.atoms is None]
    done = list(parts)
    for index, following in pairwise(varying):
        part = parts[index]
        assert part.format is not None
        between: set[str] = set()
        separator: str | None = None
        for other in parts[index + 1 : following]:
            atoms = other.format.atoms if other.format is not None else tuple(frozenset(c) for c in other.literal)
            assert atoms is not None
            for atom in atoms:
                # One possible character is as good as a literal; so dashes inside dates and UUIDs separate too.
                if len(atom) == 1:
                    separator = next(iter(atom))
                    break
                between |= atom
            if separator is not None:
                break
        names = f"{part.field!r} and {parts[following].field!r}"
        if separator is None:
            raise error(f"cannot be read back: nothing separates {names}; put a literal such as '_' between them")
        alphabet = part.format.alphabet
        # The sign of an integer stands in front only, so a dash behind it still separates.
        if alphabet is not None:
            between |= alphabet - {"-"} if part.format.text == "int" else alphabet
        if separator in between:
            raise error(f"cannot be read back: {separator!r} between {names} can also be part of the first")
        if part.format.free and separator in ESCAPE_CHARACTERS:
            raise error(
                f"cannot be read back: {separator!r} between {names} is also part of an escape such as {ESCAPE}2F; "
                "begin the literal with another character"
            )
        if part.format.free:
            done[index] = attrs.evolve(part, separator=separator)
    return done


def may_meet(first: Template, second: Template) -> bool:
    """
    Whether some key could begin as keys of both templates do (never False if one could; True in doubt).

    Compares position by position what characters each can have, as far as positions are fixed.
    """
    one, more = _positions(first.parts)
    two, even_more = _positions(second.parts)
    return not _differ(one, two) and _have_room(one, more, two, even_more)


def may_share(first: Template, second: Template) -> bool:
    """
    Whether some key could be of both templates (never False if one could; True in doubt).

    Compares as `may_meet`, also behind texts of any length that both end with the same character, which is in neither;
    and from the right.
    """
    if _differ(_positions(first.parts[::-1], -1)[0], _positions(second.parts[::-1], -1)[0]):
        return False
    mine: Sequence[Part] = first.parts
    theirs: Sequence[Part] = second.parts
    while True:
        one, mine = _positions(mine)
        two, theirs = _positions(theirs)
        if _differ(one, two):
            return False
        end = _end(mine)
        if len(one) != len(two) or end is None or end != _end(theirs):
            return _have_room(one, mine, two, theirs)
        mine, theirs = mine[1:], theirs[1:]


def _have_room(
    one: Sequence[frozenset[str]], more: Sequence[Part], two: Sequence[frozenset[str]], even_more: Sequence[Part]
) -> bool:
    """What varies may be empty, but what is fixed before it must find room in what is fixed as a whole."""
    if more:
        return bool(even_more) or len(one) <= len(two)
    return len(one) >= len(two) if even_more else len(one) == len(two)


def _differ(one: Sequence[frozenset[str]], two: Sequence[frozenset[str]]) -> bool:
    return any(not left & right for left, right in zip(one, two, strict=False))


def _positions(parts: Sequence[Part], step: int = 1) -> tuple[list[frozenset[str]], Sequence[Part]]:
    """Character sets of the leading fixed positions, and the parts from the first of varying length on."""
    atoms: list[frozenset[str]] = []
    for number, part in enumerate(parts):
        if part.format is None:
            atoms += [frozenset(char) for char in part.literal[::step]]
        elif part.format.atoms is not None:
            atoms += part.format.atoms[::step]
        else:
            return atoms, parts[number:]
    return atoms, ()


def _end(parts: Sequence[Part]) -> str | None:
    """The character that ends a part of varying length, of which it cannot be a part; None if there is none such."""
    if len(parts) < 2:
        return None
    part, following = parts[0], parts[1].literal[:1]
    assert part.format is not None
    if part.format.alphabet is None:
        return following if following and following == part.separator else None
    return following if following and following not in part.format.alphabet else None
