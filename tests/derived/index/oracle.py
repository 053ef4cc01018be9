"""
What indexes must have stored, said once more: by hand, from the declarations, without the code under test.

`copies_of` is told of each index how its RowKeys are made and what copies hold; `audit` compares a whole table with it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from tableorm import Database, PropertyBag

Bag = Mapping[str, Any]
Table = dict[tuple[str, str], PropertyBag]
"""All rows of a table, by their keys."""

_OWN = frozenset({"EntityType", "_ix", "_w", "_of"})


@attrs.frozen
class Copies:
    """
    One index of a kind.

    Args:
        name: Of the index.
        row_key: From the properties of a primary, and the fields that its keys hold, the RowKey of its copy; None if it
            has none, a set if it has one for each element of a list.
        holds: The properties that copies have of those of the primary; None for all.
        adds: What copies have besides, because their keys do not say it.
    """

    name: str
    row_key: Callable[[Bag], str | set[str] | None]
    holds: frozenset[str] | None = None
    adds: Callable[[Bag], dict[str, Any]] = lambda _: {}


@attrs.frozen
class Kind:
    """
    A kind of entities.

    Args:
        name: What is stored as its kind.
        keys: From PartitionKey and RowKey the fields that they hold.
        indexes: Its indexes.
    """

    name: str
    keys: Callable[[str, str], dict[str, Any]]
    indexes: tuple[Copies, ...] = ()

    def has(self, bag: PropertyBag) -> bool:
        """Whether a row is an entity of this kind."""
        return str(bag.get("EntityType", "")).partition(":")[0] == self.name

    def copies_of(self, primary: PropertyBag) -> dict[str, tuple[set[str], dict[str, Any]]]:
        """By name of the index the RowKeys and the properties of the copies that a primary must have."""
        held = self.keys(primary.partition_key, primary.row_key)
        own = {name: value for name, value in primary.items() if name not in _OWN}
        version = str(primary.get("EntityType", "")).partition(":")[2]
        found: dict[str, tuple[set[str], dict[str, Any]]] = {}
        for index in self.indexes:
            row_key = index.row_key({**held, **own})
            if not row_key:
                continue
            content = {name: value for name, value in own.items() if index.holds is None or name in index.holds}
            content |= index.adds({**held, **own})
            content |= {"EntityType": f"{self.name}#{index.name}{version and f':{version}'}", "_of": primary.row_key}
            found[index.name] = row_key if isinstance(row_key, set) else {row_key}, content
        return found


async def read_table(db: Database, table: str) -> Table:
    """All rows of a table."""
    return {(bag.partition_key, bag.row_key): bag async for bag in db.select_raw(table).allow_scan()}


def rows_of(table: Table) -> dict[tuple[str, str], dict[str, Any]]:
    """What may not change where nothing is written: the rows with their ETags."""
    return {key: {**bag.row} for key, bag in table.items()}


def audit(table: Table, kinds: Iterable[Kind]) -> list[str]:
    """
    What is wrong with the copies in a table, in words; nothing if each primary has exactly its copies, and notes them.
    """
    kinds = tuple(kinds)
    wrong: list[str] = []
    wanted: dict[tuple[str, str], tuple[PropertyBag, dict[str, Any]]] = {}
    for key, bag in table.items():
        kind = next((kind for kind in kinds if kind.has(bag)), None)
        if kind is None:
            continue
        copies = kind.copies_of(bag)
        noted = {
            name: {at} if isinstance(at, str) else {*at["each"][0]}
            for name, at in json.loads(bag.get("_ix", "{}")).items()
            if isinstance(at, str) or "each" in at
        }
        if noted != {name: row_keys for name, (row_keys, _) in copies.items()}:
            wrong.append(f"{key} notes {noted}, and has {copies}")
        for row_key, content in [(key, content) for keys, content in copies.values() for key in keys]:
            if (key[0], row_key) in wanted:
                wrong.append(f"{(key[0], row_key)} is wanted by two entities")
            wanted[key[0], row_key] = bag, content
    for key, (primary, content) in wanted.items():
        if key not in table:
            wrong.append(f"the copy {key} is missing")
            continue
        found = {name: value for name, value in table[key].items() if name != "_w"}
        if found != content:
            wrong.append(f"the copy {key} has {found}, its primary says {content}")
        if {name: primary.type_of(name) for name in found if name in primary and name not in _OWN} != {
            name: table[key].type_of(name) for name in found if name in primary and name not in _OWN
        }:
            wrong.append(f"the copy {key} has other types than its primary")
        if "_w" not in table[key]:
            wrong.append(f"the copy {key} has no write token")
    of_kinds = tuple(f"{kind.name}#" for kind in kinds)
    wrong += [
        f"{key} is a copy that no entity has"
        for key, bag in table.items()
        if key not in wanted and "_of" in bag and str(bag.get("EntityType", "")).startswith(of_kinds)
    ]
    return wrong
