"""
What an audit checks of index lists: that each entity is in its list, once, and that a list has nothing else.

Each key in a row of a list takes away what its entity claims, so that of a list of very many one wrong key makes but
that one suspect. A row that was divided claims its two halves, so that none of them is where no reader would look.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...audit.check import WRONG, Check, EntitySnapshot, Problem, kind_of
from ...audit.report import Damage
from ...errors import DecodeError, shown
from ...models.reserved import ENTITY_TYPE
from ...models.schema import Schema
from ...stores import Row
from .index_list import ListMaintainer
from .rows import SEPARATOR, bits_of, is_divided, keys_of
from .schema import ListSchema

__all__ = ["Lists", "address_of_key", "is_noted", "key_of", "list_noted", "readable"]


def list_noted(mark: object) -> str | None:
    """The key of the list that a note says the entity is in; None if that is no such note."""
    match mark:
        case {"list": [str(key), str(_)]}:
            return key
        case _:
            return None


def key_of(row: Row) -> tuple[str, str]:
    """The key of the list that a row is of, and its bits."""
    key, _, bits = row["RowKey"].rpartition(SEPARATOR)
    return key, bits


def address_of_key(list_key: str, row_key: str) -> str:
    """Where an entity claims its key, and the row that has it takes it away."""
    return f"{list_key}{SEPARATOR}\n{row_key}"


def readable(row: Row) -> set[str] | None:
    """The keys in a row of a list; None if it is damaged."""
    try:
        return set(keys_of(row))
    except DecodeError:
        return None


def is_noted(seen: EntitySnapshot, name: str, list_key: str) -> bool:
    """Whether an entity is in a list or should be: then what is wrong is judged with the entity."""
    return list_key in (list_noted(seen.marks.get(name)), list_noted(seen.due.get(name)))


class Lists(Check):
    """
    The check of the index lists of a model.

    Args:
        schema: The model.
        only: Name of the one list that is checked; None for all.
    """

    def __init__(self, schema: Schema, only: str | None = None) -> None:
        self.lists: dict[str, ListSchema] = {
            name: each.lists for name, each in schema.derived_as(ListMaintainer).items() if only is None or name == only
        }
        self._kinds = {each.kind: each for each in self.lists.values()}

    def list_of(self, row: Row) -> ListSchema:
        """The list that a row is of, which it owns."""
        return self._kinds[kind_of(row)]

    def owns(self, kind: str) -> bool:
        """Whether it is the kind of such a list."""
        return kind in self._kinds

    def claims(self, seen: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """Its key, in each list; WRONG where it notes another list, or none."""
        for name, each in self.lists.items():
            due = seen.due.get(name)
            if seen.marks.get(name) != due:
                yield seen.row["RowKey"], WRONG
            key = list_noted(due)
            if key is not None:
                address = address_of_key(key, seen.row["RowKey"])
                yield address, hash((each.kind, address))

    def claimed(self, row: Row) -> Iterable[tuple[str, int]]:
        """Its keys, and whether it is one half of another row."""
        (list_key, bits), number = key_of(row), hash(row[ENTITY_TYPE])
        divided, keys = is_divided(row), readable(row)
        if keys is None or (divided and keys):
            yield row["RowKey"], WRONG
        for key in keys or ():
            right = not divided and bits_of(key, len(bits)) == bits
            address = address_of_key(list_key, key)
            yield address, hash((row[ENTITY_TYPE], address)) + (0 if right else WRONG)
        if divided:
            yield row["RowKey"], -2 * number
        if bits:
            yield row["RowKey"][:-1], number

    def addresses(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        """The rows from the first of each list down to the one where its key belongs; and of one that it notes."""
        wanted: set[str] = set()
        for name in self.lists:
            for key in {list_noted(seen.due.get(name)), list_noted(seen.marks.get(name))} - {None}:
                wanted |= _path(str(key), seen.row["RowKey"], found)
        return wanted

    def compare(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> list[Problem]:
        """Each list in turn; a row that is damaged is judged by itself."""
        problems: list[Problem] = []
        for name, each in self.lists.items():
            problem = self._compare(seen, name, each, found)
            problems += [] if problem is None else [problem]
        return problems

    def _compare(
        self, seen: EntitySnapshot, name: str, index: ListSchema, found: Mapping[str, Row | None]
    ) -> Problem | None:
        row_key, mark, due = seen.row["RowKey"], seen.marks.get(name), seen.due.get(name)
        key, before = list_noted(due), list_noted(mark)
        row = None if key is None else found.get(_last(key, row_key, found))
        address = None if key is None else _last(key, row_key, found)
        if row is not None and row.get(ENTITY_TYPE) != index.kind:
            text = f"a row of kind {kind_of(row)!r} is at {address!r}, where the list belongs"
            return Problem(Damage.BLOCKED, name, address, text, rebuilt=False)
        keys: set[str] | None = set() if row is None else readable(row)
        if key is not None and keys is not None and row_key not in keys:
            return Problem(Damage.MISSING, name, address, f"it is not in the list {key!r}")
        if mark == due:
            return None
        if before is not None and before != key and _is_in(before, row_key, found):
            text = f"it is in the list {before!r} still, and belongs elsewhere in the index, or nowhere"
            return Problem(Damage.ORPHAN, name, _last(before, row_key, found), text)
        noted = "nothing" if mark is None else shown(mark)
        wanted = "belongs in no list" if key is None else f"is in the list {key!r}"
        return Problem(Damage.NOTE, name, address, f"it {wanted}, and notes {noted}")


def _path(list_key: str, row_key: str, found: Mapping[str, Row | None]) -> set[str]:
    last = _last(list_key, row_key, found)
    first = len(list_key) + len(SEPARATOR)
    return {last[:end] for end in range(first, len(last) + 1)}


def _last(list_key: str, row_key: str, found: Mapping[str, Any]) -> str:
    """RowKey of the last row on the way to where a key belongs, as far as the rows are known."""
    address = list_key + SEPARATOR
    bits = bits_of(row_key, 256)
    while is_divided(found.get(address)) and bits:
        address, bits = address + bits[0], bits[1:]
    return address


def _is_in(list_key: str, row_key: str, found: Mapping[str, Row | None]) -> bool:
    row = found.get(_last(list_key, row_key, found))
    return row is not None and row_key in (readable(row) or ())
