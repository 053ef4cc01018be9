"""
What an entity ought to have besides its row, and what a derived row says of its entity: pure functions of rows.

A further kind of what is derived is a further class with the members of `Check`: see `listed`, `counted`, `embedded`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import attrs

from ..derived.index.schema import IndexSchema
from ..errors import DecodeError
from ..models.kinds import KindSet
from ..models.manifest import ManifestEntry, manifest_of
from ..models.reserved import ENTITY_TYPE, ENTITY_VERSION
from ..models.schema import Schema
from ..stores import Row
from .report import Damage

__all__ = ["WRONG", "Check", "EntitySnapshot", "Problem", "kind_of", "look", "members_of"]


WRONG = 1
"""What is claimed where something is wrong for sure: no sum with it is zero, but for a chance of one in 2**60."""


@attrs.frozen(eq=False)
class EntitySnapshot:
    """
    An entity as an audit sees it.

    Args:
        schema: Its model.
        row: Its row.
        age: Whether its version is the model's. Of an older one the copies hold what it had then, until it is upgraded
            by a write; what a newer program wrote is not judged but by its notes.
        wants: By name of the index, RowKey and content of the copy it ought to have; None for unknown content.
        marks: What it notes, by name.
        due: What it ought to note of lists, counts, sums, and of what it holds copies of, by name. Where nobody knows,
            since it is of a newer version than the model, or does not fit it, that is what it notes.
        legible: Whether the note could be read.
        problem: Why it does not fit its model; None if it does.
    """

    schema: Schema
    row: Row
    age: Literal["current", "older", "newer"]
    wants: Mapping[str, tuple[str, Row | None]]
    marks: Mapping[str, Any]
    legible: bool
    problem: str | None
    due: Mapping[str, Any] = attrs.Factory(dict[str, Any])

    @property
    def version(self) -> str:
        """Its version, as its copies have it."""
        return str(self.row.get(ENTITY_TYPE, "")).partition(":")[2] or str(self.row.get(ENTITY_VERSION, ""))


@attrs.frozen(eq=False)
class Problem:
    """
    What is wrong with something that is derived from an entity.

    Args:
        damage: What kind of damage it is.
        name: Of the index; None for all.
        address: RowKey of the derived row; None if it is about none.
        text: In words.
        rebuilt: Whether building the index anew for this entity repairs it.
        rival: A copy of another entity that is where the copy of this one belongs.
        first: RowKey of an entity that has to be repaired before this one can be; None if there is none.
        refused: Why it cannot be repaired, although it was tried; None if it was not.
    """

    damage: Damage
    name: str | None
    address: str | None
    text: str
    rebuilt: bool = True
    rival: Row | None = None
    first: str | None = None
    refused: str | None = None


def look(kinds: KindSet, schema: Schema, version: int, row: Row) -> EntitySnapshot:
    """
    An entity, with what it ought to have.

    Args:
        kinds: The models of its table.
        schema: Its own.
        version: Its version.
        row: Its row.
    """
    try:
        entries, legible = manifest_of(row), True
    except DecodeError:
        entries, legible = {}, False
    marks: dict[str, Any] = {name: entry.to_json() for name, entry in entries.items()}
    if version > schema.version:
        noted = {name: (mark, None) for name, mark in marks.items() if isinstance(mark, str)}
        return EntitySnapshot(schema, row, "newer", noted, marks, legible, None, marks)
    current = version == schema.version
    wants: dict[str, tuple[str, Row | None]] = {}
    try:
        for name, each in schema.derived.items():
            if name in entries:
                marks[name] = each.current_entry(entries[name]).to_json()
        values: Mapping[str, Any] = (schema.decode(row) if current else kinds.load(row.copy())).__dict__
        for name, each in schema.derived.items():
            index = each.row_schema
            address = index.address(values) if isinstance(index, IndexSchema) else None
            if address is not None and isinstance(index, IndexSchema):
                wants[name] = address, index.entry_row(values, row, address) if current else None
        due = _due(schema, values, row)
    except Exception as error:  # noqa: BLE001 - upgrades and `where=` are the user's: one bad row is a finding
        return EntitySnapshot(schema, row, "current", {}, marks, legible, f"{type(error).__name__}: {error}", marks)
    return EntitySnapshot(schema, row, "current" if current else "older", wants, marks, legible, None, due)


def _due(schema: Schema, values: Mapping[str, Any], row: Row) -> dict[str, Any]:
    partition_key, row_key = row["PartitionKey"], row["RowKey"]
    due: dict[str, ManifestEntry | None] = {
        name: each.entry(values, partition_key, row_key)
        for name, each in schema.derived.items()
        if each.row_schema is None
    }
    return {name: mark.to_json() for name, mark in due.items() if mark is not None}


def kind_of(row: Row) -> str:
    """The kind that a row says it is of, without version; "" if it says none."""
    text = row.get(ENTITY_TYPE)
    return text.partition(":")[0] if isinstance(text, str) else ""


def members_of(part: Any) -> dict[str, Any]:
    """The members of a part of a note that ought to be an object; none if it is no such thing."""
    return cast("dict[str, Any]", part) if isinstance(part, dict) else {}


class Check:
    """
    What is checked of one kind of what is derived from entities of a model.

    Addresses are of any text; all that has the same address sums up to zero, if all is right. An address of a row is
    its RowKey.
    """

    def owns(self, kind: str) -> bool:
        """Whether derived rows of this kind are checked by it."""
        del kind
        return False

    def takes(self, row: Row) -> bool:
        """Whether that is so of this row of such a kind."""
        del row
        return True

    def claims(self, seen: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """
        Addresses of what an entity has or ought to have, each with a number. All that entities claim at an address is
        what rows there take away, if and only if that is right, and so is what they note.
        """
        del seen
        return ()

    def claimed(self, row: Row) -> Iterable[tuple[str, int]]:
        """The addresses that such a row has, and the numbers to take away; 0 is that of a row that is not there."""
        del row
        return ()

    def adds(self, seen: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """
        What an entity adds to a sum that another one keeps, or takes away for what it keeps itself: the RowKey of the
        keeper, an address, and a number. If such a sum is wrong the keeper is suspect, not all that add to it.
        """
        del seen
        return ()

    def addresses(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        """RowKeys of the rows to look at if an entity is suspect; asked again when they are found, until it is all."""
        del seen, found
        return set()

    def compare(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        """What is wrong with an entity, and the rows at its addresses, which did not change meanwhile."""
        del seen, found
        return ()
