"""
Groups: which rows of a table are of one kind, and what tells the kinds.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, TypeVar

import attrs

from ..models.reserved import ENTITY_TYPE
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ..stores import Row

Told = Literal["kind", "row_key", "partition_key", "value", "names"]
"""
What tells the kind of a row: the property EntityType, the head of a key, the value of another property, or which
properties there are.
"""

Names = frozenset[str]
T = TypeVar("T")
L = TypeVar("L")

_HEAD = re.compile(r"([A-Za-z]+)(?:[\W_]+|\Z)")
_KIND = re.compile(r"[^:#]+")
_NAMES_OF_TYPES = re.compile(r"(?i)(?:.*_|.*[a-z])?(?:type|kind|class|discriminator)_?")
_MOST_KINDS = 12
_MOST_TRIES = 2_000
_LEAST_NAMES = 2  # that tell a kind: one alone may be an optional property


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


def group_rows(rows: Sequence[Row]) -> list[Group]:
    """Return the rows by their kinds."""
    kinds = [kind if isinstance(kind := row.get(ENTITY_TYPE), str) and _KIND.fullmatch(kind) else "" for row in rows]
    if any(kinds) and len({*kinds}) <= _MOST_KINDS:
        return [Group(some, kind, "kind" if kind else None) for kind, some in _divide(rows, kinds)]
    names = [frozenset(property_names(row)) for row in rows]
    for told, property_, labels in _ways_to_tell(rows):
        sets = [{*some} for _, some in _divide(names, labels)]
        if None not in labels and 2 <= len(sets) <= _MOST_KINDS and any(_find_telling(sets)):
            return [Group(some, str(label), told, property_) for label, some in _divide(rows, labels)]
    telling = _find_telling_names({*names}, iter(range(_MOST_TRIES)))
    by_name = [next((name for name in telling if name in row), "") for row in rows]
    return [Group(some, name, "names" if name else None) for name, some in _divide(rows, by_name)]


def _ways_to_tell(rows: Sequence[Row]) -> Iterator[tuple[Told, str | None, list[str | None]]]:
    yield "row_key", None, [(head := _HEAD.match(row["RowKey"])) and head[1] for row in rows]
    yield "partition_key", None, [(head := _HEAD.match(row["PartitionKey"])) and head[1] for row in rows]
    for name in filter(_NAMES_OF_TYPES.fullmatch, property_names(rows[0])):
        yield "value", name, [value if isinstance(value := row.get(name), str) else None for row in rows]


def _find_telling(groups: Sequence[Collection[Names]]) -> list[list[str]]:
    """Return for each group of sets the names that all of its sets have, and no set of another group."""
    found: list[list[str]] = []
    for own in groups:
        others = Names().union(*(names for group in groups if group is not own for names in group))
        found.append(sorted(Names(next(iter(own))).intersection(*own) - others))
    return found


def _find_telling_names(sets: Collection[Names], tries: Iterator[int], room: int = _MOST_KINDS - 1) -> list[str]:
    """Return names of which each row has one that tells its kind, the first that it has; none for a single kind."""
    for name in sorted(Names().union(*sets)) if room else ():
        if next(tries, None) is None:
            break  # rows whose properties differ in all ways are of one kind
        own = [names for names in sets if name in names]
        rest = [names for names in sets if name not in names]
        if not rest:
            continue
        telling, others = _find_telling([own, rest])
        if len(telling) >= _LEAST_NAMES:
            more = _find_telling_names(rest, tries, room - 1) or (others[:1] if len(others) >= _LEAST_NAMES else [])
            if more:
                return [telling[0], *more]
    return []


def _divide(items: Sequence[T], labels: Sequence[L]) -> list[tuple[L, list[T]]]:
    divided: dict[L, list[T]] = {}
    for item, label in zip(items, labels, strict=True):
        divided.setdefault(label, []).append(item)
    return [*divided.items()]
