"""
Groups: which rows of a table are of one kind, and what tells the kinds.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import attrs

from ..models.reserved import ENTITY_TYPE
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ..stores import Row

__all__ = ["Group", "Told", "find_type_values", "group_rows", "property_names"]

K = TypeVar("K")

Told = Literal["kind", "row_key", "partition_key", "value", "names"]
"""
What tells the kind of a row: the property EntityType, the head of a key, the value of another property, or which
properties there are.
"""

_HEAD = re.compile(r"([A-Za-z]+)(?:[\W_]+|\Z)")
_NAMES_OF_TYPES = re.compile(r"(?i)(?:.*_|.*[a-z])?(?:type|kind|class|discriminator)_?")
_MOST_KINDS = 12
_MOST_SETS = 200


@attrs.frozen
class Group:
    """
    Rows of one kind.

    Args:
        rows: The rows, one at least.
        label: What tells the kind: a value, a head, or the name of a property; "" for rows that nothing tells.
        told: What that is; None if nothing tells the kind.
        property: The property whose value it is.
    """

    rows: Sequence[Row]
    label: str = ""
    told: Told | None = None
    property: str | None = None


def property_names(row: Row) -> list[str]:
    """Return the names of the properties of a row."""
    return [name for name in row if name not in SYSTEM_MEMBERS and ANNOTATION not in name]


def find_type_values(rows: Sequence[Row]) -> dict[str, str]:
    """Return the properties that name the type of rows and are the same text in all of them, each with the text."""
    first = {name: rows[0][name] for name in property_names(rows[0]) if _NAMES_OF_TYPES.fullmatch(name)}
    return {
        name: text
        for name, text in first.items()
        if isinstance(text, str) and name + ANNOTATION not in rows[0] and all(row.get(name) == text for row in rows)
    }


def group_rows(rows: Sequence[Row]) -> list[Group]:
    """Return the rows by their kinds, the kind with the most rows first."""
    found = _by_kind(rows) or _by_head(rows) or _by_value(rows) or _by_names(rows) or [Group(rows)]
    return sorted(found, key=lambda group: -len(group.rows))


def _by_kind(rows: Sequence[Row]) -> list[Group]:
    kinds = _divide(rows, [row.get(ENTITY_TYPE) for row in rows])
    if not any(isinstance(kind, str) and _is_kind(kind) for kind in kinds) or len(kinds) > _MOST_KINDS:
        return []
    odd = [row for kind, some in kinds.items() if not (isinstance(kind, str) and _is_kind(kind)) for row in some]
    groups = [Group(some, kind, "kind") for kind, some in kinds.items() if isinstance(kind, str) and _is_kind(kind)]
    return groups + ([Group(odd)] if odd else [])


def _is_kind(text: str) -> bool:
    return text != "" and ":" not in text and "#" not in text


def _by_head(rows: Sequence[Row]) -> list[Group]:
    keys: Sequence[tuple[Told, str]] = ("row_key", "RowKey"), ("partition_key", "PartitionKey")
    for told, member in keys:
        heads = _divide(rows, [found[0] if (found := _HEAD.match(row[member])) else None for row in rows])
        groups = [Group(some, head, told) for head, some in heads.items() if isinstance(head, str)]
        if len(groups) == len(heads) and _are_kinds([*heads.values()]):
            return groups
    return []


def _by_value(rows: Sequence[Row]) -> list[Group]:
    for name in property_names(rows[0]):
        if _NAMES_OF_TYPES.fullmatch(name) and name != ENTITY_TYPE:
            values = _divide(rows, [row.get(name) for row in rows])
            if all(isinstance(value, str) for value in values) and _are_kinds([*values.values()]):
                return [Group(some, str(value), "value", name) for value, some in values.items()]
    return []


def _by_names(rows: Sequence[Row]) -> list[Group]:
    sets = _divide(rows, [frozenset(property_names(row)) for row in rows])
    if not 2 <= len(sets) <= _MOST_SETS:
        return []
    common = next(iter(sets)).intersection(*sets)
    kinds: list[tuple[frozenset[str], list[Row]]] = []  # those whose sets have most of the smaller one in common
    for names, some in sorted(sets.items(), key=lambda item: -len(item[0])):
        own = names - common
        alike = [kind for kind in kinds if 2 * len(kind[0] & own) >= min(len(kind[0]), len(own))]
        kinds = [kind for kind in kinds if kind not in alike]
        kinds.append((own.union(*(each for each, _ in alike)), [row for _, rest in alike for row in rest] + some))
    groups = [some for _, some in kinds]
    telling = _find_telling(groups)
    if len(kinds) < 2 or len(kinds) > _MOST_KINDS or any(len(names) < 2 for names in telling):
        return []
    return [Group(some, names[0], "names") for some, names in zip(groups, telling, strict=True)]


def _are_kinds(groups: Sequence[Sequence[Row]]) -> bool:
    """Return whether groups of rows are kinds: a few, some with properties that no other has."""
    count = sum(map(len, groups))
    return 2 <= len(groups) <= _MOST_KINDS and count >= 2 * len(groups) and any(_find_telling(groups))


def _find_telling(groups: Sequence[Sequence[Row]]) -> list[list[str]]:
    """Return for each group the properties that all of its rows have, and no row of another group."""
    used = [{name for row in rows for name in property_names(row)} for rows in groups]
    found: list[list[str]] = []
    for number, rows in enumerate(groups):
        others = set[str]().union(*(names for at, names in enumerate(used) if at != number))
        found.append([n for n in property_names(rows[0]) if n not in others and all(n in row for row in rows)])
    return found


def _divide(rows: Iterable[Row], labels: Iterable[K]) -> dict[K, list[Row]]:
    divided: dict[K, list[Row]] = {}
    for row, label in zip(rows, labels, strict=True):
        divided.setdefault(label, []).append(row)
    return divided
