"""
The syntax of key templates, and the proof that a key can be read in one way only.

A template is checked when the class is made: every key that it writes parses back into the fields that made it, and no
two values of the fields share a key.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import attrs

from ..errors import TemplateError
from ..protocol.limits import FORBIDDEN_IN_KEYS, key_fault
from .bounds import Part
from .escapes import ESCAPE, ESCAPE_CHARACTERS
from .formats import make_format
from .template import Template

# The parts of a template: an escaped brace, a field with its format, plain text, or a brace that is one too many.
_PIECES = re.compile(r"\{\{|\}\}|\{([^{}:]*)(?::([^{}]*))?\}|([^{}]+)|(.)", re.DOTALL)


def parse_template(
    text: str,
    model: str,
    key: str,
    annotations: Mapping[str, Any],
    kind: str | None = None,
    *,
    verbatim: bool = False,
    each: bool = False,
) -> Template:
    """
    Parse a template, and prove that its keys can be read back.

    Args:
        text: The template, such as `"empid_{id:06d}"`; `{{` and `}}` are braces; `{kind}` is the kind of the model.
        model: Name of the model, for messages.
        key: "partition_key" or "row_key", for messages.
        annotations: The type of each field, without None.
        kind: What `{kind}` stands for; None if the model stores none.
        verbatim: Whether it escapes nothing.
        each: Whether one field may be a list, of which each element makes a key.

    Raises:
        TemplateError: It names an unknown field or format, holds a forbidden character, or cannot parse back.
    """
    text = _PIECES.sub(_as_python_names, text)

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
            raise error(f"names {name!r}, which is not a field of the model; its fields: {known}")
        else:
            form = make_format(annotations[name], spec or "")
            if isinstance(form, str):
                raise error(f"{form} (field {name!r})")
            if form.each and (not each or any(part.format.each for part in parts)):
                raise error(f"has {{{name}:each}}, which the row_key of an Index alone may have, and once")
            parts.append(Part("", name, form, verbatim=verbatim))
    bad = next((part for part in parts if FORBIDDEN_IN_KEYS.search(part.literal)), None)
    if bad is not None:
        raise error(f"has a character in {bad.literal!r} that keys forbid (/ \\ # ? and control characters)")
    fault = key_fault("".join(part.literal for part in parts))
    if fault:
        raise error(f"has literal text that {fault}")
    return Template(text, model, key, tuple(_separate(parts, error)))


def _as_python_names(piece: re.Match[str]) -> str:
    """Return a part of a template with the name of its field as Python has it, which normalises identifiers."""
    whole, name = piece.group(), piece[1]
    return whole if name is None or name.isascii() else whole.replace(name, normalize("NFKC", name), 1)


def _separate(parts: list[Part], error: Callable[[str], TemplateError]) -> list[Part]:
    """
    Give each free text its separator, or refuse a template whose keys could be read in two ways.

    A key is read from the left: a field of fixed width by its width, one of varying width up to the first character of
    the next literal. So that character must not occur in it, nor in anything of fixed width between.
    The last field of varying width ends where the fixed rest begins.
    """
    varying = [i for i, part in enumerate(parts) if part.format.atoms is None]
    done = list(parts)
    for index, following in pairwise(varying):
        part = parts[index]
        between: set[str] = set()
        separator: str | None = None
        for other in parts[index + 1 : following]:
            for atom in other.format.atoms or ():
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
        if part.format.free and not part.verbatim and separator in ESCAPE_CHARACTERS:
            raise error(
                f"cannot be read back: {separator!r} between {names} is also part of an escape such as {ESCAPE}2F; "
                "begin the literal with another character"
            )
        if part.format.free:
            done[index] = attrs.evolve(part, separator=separator)
    for index, part in enumerate(done[:-1]):
        # Keys of one element shall be a range without those of another one, whatever follows.
        if part.format.each and part.format.free and not part.separator:
            end = parts[index + 1].literal[:1]
            if not end or end in ESCAPE_CHARACTERS:
                raise error(f"needs a literal such as '_' behind {{{part.field}:each}}")
            done[index] = attrs.evolve(part, separator=end)
    return done
