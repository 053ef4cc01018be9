"""
Overlap of key templates: whether one key could be of two of them.
"""

from collections.abc import Sequence

from ..errors import ModelError
from .bounds import Part
from .template import Template

__all__ = ["may_meet", "may_share", "refuse_meeting"]


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


def refuse_meeting(name: str, row: Template, other_name: str, other: Template) -> None:
    """
    Refuse two templates of which a RowKey can be of both.

    Raises:
        ModelError: One can.
    """
    if may_meet(row, other):
        raise ModelError(
            f"{name}: a RowKey can be of {row.text!r} and of {other_name} {other.text!r}, so that one row would "
            f"overwrite the other; begin it with literal text of its own, as in '{name.rpartition('.')[2]}_{row.text}'"
        )
