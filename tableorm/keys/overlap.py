"""
Overlap of key templates: whether one key could be of two of them.
"""

from collections.abc import Sequence

import attrs

from ..errors import ModelError
from .bounds import Part
from .template import Template


def may_meet(first: Template, second: Template) -> bool:
    """
    Return whether some key could begin as keys of both templates do: False only if none can, True in doubt.

    It compares position by position what characters each can have, as far as positions are fixed.
    """
    one, more = _fixed_positions(first.parts)
    two, even_more = _fixed_positions(second.parts)
    return not _differ(one, two) and _have_room(one, more, two, even_more)


def may_share(first: Template, second: Template) -> bool:
    """
    Return whether some key could be of both templates: False only if none can, True in doubt.

    It compares positions as `may_meet` does, from the left and from the right; also behind texts of any length that
    end, in both, with the same character, which is not part of them.
    """
    if _differ(_fixed_positions(first.parts[::-1], -1)[0], _fixed_positions(second.parts[::-1], -1)[0]):
        return False
    mine: Sequence[Part] = first.parts
    theirs: Sequence[Part] = second.parts
    while True:
        one, mine = _fixed_positions(mine)
        two, theirs = _fixed_positions(theirs)
        if _differ(one, two):
            return False
        end = _end_character(mine)
        if len(one) != len(two) or end is None or end != _end_character(theirs):
            return _have_room(one, mine, two, theirs)
        mine, theirs = mine[1:], theirs[1:]


def _have_room(
    one: Sequence[frozenset[str]], more: Sequence[Part], two: Sequence[frozenset[str]], even_more: Sequence[Part]
) -> bool:
    """Return whether what is fixed in one template fits into the other; what varies may be empty."""
    if more:
        return bool(even_more) or len(one) <= len(two)
    return len(one) >= len(two) if even_more else len(one) == len(two)


def _differ(one: Sequence[frozenset[str]], two: Sequence[frozenset[str]]) -> bool:
    return any(not left & right for left, right in zip(one, two, strict=False))


def _fixed_positions(parts: Sequence[Part], step: int = 1) -> tuple[list[frozenset[str]], Sequence[Part]]:
    """Return the character sets of the leading fixed positions, and the parts from the first that varies on."""
    atoms: list[frozenset[str]] = []
    for number, part in enumerate(parts):
        if part.format.atoms is None:
            return atoms, parts[number:]
        atoms += part.format.atoms[::step]
    return atoms, ()


def _end_character(parts: Sequence[Part]) -> str | None:
    """Return the character that ends a part of varying length and cannot be in it; None if there is none."""
    if len(parts) < 2:
        return None
    part, following = parts[0], parts[1].literal[:1]
    if part.format.alphabet is None:
        return following if following and following == part.separator else None
    return following if following and following not in part.format.alphabet else None


def refuse_meeting(name: str, row: Template, other_name: str, other: Template) -> None:
    """
    Refuse two templates if one RowKey can be of both.

    Raises:
        ModelError: A RowKey can be of both.
    """
    if may_meet(row, other):
        own, its = _begin_with(f"{name.rpartition('.')[2]}_", row), _begin_with("row_", other)
        remedy = f"begin it with a distinct literal, as in {own.text!r}"
        if may_meet(own, other):
            remedy = f"begin {other_name} with a distinct literal, as in {its.text!r}"
            remedy += f", and this one too, as in {own.text!r}" if may_meet(row, its) else ""
        raise ModelError(
            f"{name}: a RowKey can be of {row.text!r} and of {other_name} {other.text!r}, so that one row would "
            f"overwrite the other; {remedy}"
        )


def _begin_with(literal: str, template: Template) -> Template:
    """Return a template whose keys begin with some text, and go on as those of another one."""
    return attrs.evolve(template, text=literal + template.text, parts=(Part(literal), *template.parts))
