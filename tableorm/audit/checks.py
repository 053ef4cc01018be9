"""
What an entity ought to have besides its row, and what a derived row says of its entity: pure functions of rows.

A further kind of what is derived is a further class with the members of `Check`: see `listed`, `counted`, `embedded`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import attrs

from ..errors import DecodeError, shown
from ..indexes import contents_of, marks_of
from ..kinds import Kinds
from ..reserved import COPY_OF, ENTITY_TYPE, ENTITY_VERSION
from ..schema import Schema
from ..stores import Row
from .report import Damage

__all__ = ["WRONG", "Check", "Copies", "Problem", "Seen", "kind_of", "look", "members_of"]


WRONG = 1
"""What is claimed where something is wrong for sure: no sum with it is zero, but for a chance of one in 2**60."""


@attrs.frozen(eq=False)
class Seen:
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


def look(kinds: Kinds, schema: Schema, version: int, row: Row) -> Seen:
    """
    An entity, with what it ought to have.

    Args:
        kinds: The models of its table.
        schema: Its own.
        version: Its version.
        row: Its row.
    """
    try:
        marks, legible = marks_of(row), True
    except DecodeError:
        marks, legible = {}, False
    if version > schema.version:
        noted = {name: (mark, None) for name, mark in marks.items() if isinstance(mark, str)}
        return Seen(schema, row, "newer", noted, marks, legible, None, marks)
    current = version == schema.version
    wants: dict[str, tuple[str, Row | None]] = {}
    try:
        marks |= {name: each.current(marks[name]) for name, each in schema.tallies.items() if name in marks}
        values: Mapping[str, Any] = (schema.decode(row) if current else kinds.load(row.copy())).__dict__
        for name, index in schema.indexes.items():
            address = index.address(values)
            if address is not None:
                wants[name] = address, index.copy_of(values, row, address) if current else None
        due = _due(schema, values, row)
    except Exception as error:  # noqa: BLE001 - upgrades and `where=` are the user's: one bad row is a finding
        return Seen(schema, row, "current", {}, marks, legible, f"{type(error).__name__}: {error}", marks)
    return Seen(schema, row, "current" if current else "older", wants, marks, legible, None, due)


def _due(schema: Schema, values: Mapping[str, Any], row: Row) -> dict[str, Any]:
    partition_key, row_key = row["PartitionKey"], row["RowKey"]
    due: dict[str, Any] = {name: each.mark(values) for name, each in schema.lists.items()}
    due |= {name: each.mark(values, partition_key) for name, each in schema.tallies.items()}
    due |= {name: each.mark(values, partition_key, row_key) for name, each in schema.embeds.items()}
    return {name: mark for name, mark in due.items() if mark is not None}


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

    def claims(self, seen: Seen) -> Iterable[tuple[str, int]]:
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

    def adds(self, seen: Seen) -> Iterable[tuple[str, str, int]]:
        """
        What an entity adds to a sum that another one keeps, or takes away for what it keeps itself: the RowKey of the
        keeper, an address, and a number. If such a sum is wrong the keeper is suspect, not all that add to it.
        """
        del seen
        return ()

    def addresses(self, seen: Seen, found: Mapping[str, Row | None]) -> set[str]:
        """RowKeys of the rows to look at if an entity is suspect; asked again when they are found, until it is all."""
        del seen, found
        return set()

    def compare(self, seen: Seen, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        """What is wrong with an entity, and the rows at its addresses, which did not change meanwhile."""
        del seen, found
        return ()


class Copies(Check):
    """
    The check of the copies of indexes.

    Args:
        schema: The model.
        only: Name of the one index that is checked, as strictly as if it were not being built; None for all.
    """

    def __init__(self, schema: Schema, only: str | None = None) -> None:
        self._schema, self._only = schema, only
        self._prefix = f"{schema.kind}#"
        # Of indexes that are being built entities may lack copies that they do not note.
        self._lenient = {name for name, each in schema.indexes.items() if each.index.building and name != only}
        self._current = {index.kind_properties[ENTITY_TYPE] for index in schema.indexes.values()}

    def owns(self, kind: str) -> bool:
        """Whether it is the kind of copies of the model."""
        return kind.startswith(self._prefix) if self._only is None else kind == self._prefix + self._only

    def takes(self, row: Row) -> bool:
        """Without an entity that it is of it is no copy: perhaps of a list that is not declared here."""
        return isinstance(row.get(COPY_OF), str)

    def claims(self, seen: Seen) -> list[tuple[str, int]]:
        """The copies it ought to have; WRONG where it notes another."""
        if seen.problem is not None or not seen.legible:
            return [(seen.row["RowKey"], WRONG)]
        found: list[tuple[str, int]] = []
        marks, wants = seen.marks, seen.wants
        for name, (address, copy) in wants.items():
            if self._only is not None and name != self._only:
                continue
            mark = marks.get(name)
            if mark != address:
                if mark is not None or name not in self._lenient:
                    found.append((address, WRONG))
            elif copy is not None:
                found.append((address, hash(contents_of(copy))))
            else:
                found.append((address, hash((self._prefix + name, seen.version, seen.row["RowKey"]))))
        if len(marks) > len(found):
            found += [(address, WRONG) for _, address in self._left_over(seen)]
        return found

    def claimed(self, row: Row) -> tuple[tuple[str, int]]:
        """A number made of its content; of another version than the model's, of its keys alone."""
        if row[ENTITY_TYPE] in self._current:
            return ((row["RowKey"], hash(contents_of(row))),)
        kind, _, version = str(row[ENTITY_TYPE]).partition(":")
        return ((row["RowKey"], hash((kind, version, row.get(COPY_OF)))),)

    def addresses(self, seen: Seen, found: Mapping[str, Row | None]) -> set[str]:
        """Where its copies ought to be, and where it notes some."""
        del found
        wanted = {address for name, (address, _) in seen.wants.items() if self._only in (None, name)}
        return wanted | {address for _, address in self._left_over(seen)}

    def compare(self, seen: Seen, found: Mapping[str, Row | None]) -> list[Problem]:
        """Each index in turn, then what is noted besides."""
        problems: list[Problem] = []
        if not seen.legible:
            text = f"its note of its copies, {shown(seen.row.get('_ix'))}, cannot be read"
            problems.append(Problem(Damage.NOTE, None, None, text))
        if seen.problem is not None:
            text = f"it does not fit the model ({seen.problem})"
            return [*problems, Problem(Damage.UNREADABLE, None, None, text, rebuilt=False)]
        for name, (address, copy) in seen.wants.items():
            if self._only in (None, name):
                problems += self._compare(seen, name, address, copy, found.get(address))
        for name, address in self._left_over(seen):
            row = found.get(address)
            here = row is not None and self._is_copy(row, name, seen)
            if name not in seen.schema.indexes:
                text = f"the model has no such index, and {'has' if here else 'the entity notes'} a copy at {address!r}"
                problems.append(Problem(Damage.UNDECLARED, name, address, text))
            elif here:
                text = f"the copy at {address!r} was left behind: the entity belongs elsewhere in the index, or nowhere"
                problems.append(Problem(Damage.ORPHAN, name, address, text))
            elif name not in seen.wants:
                text = f"the entity notes a copy at {address!r}, and should have none"
                problems.append(Problem(Damage.NOTE, name, address, text))
        return problems

    def _compare(self, seen: Seen, name: str, address: str, copy: Row | None, row: Row | None) -> list[Problem]:
        mark = seen.marks.get(name)
        if mark is None and name in self._lenient:
            return []
        if row is None:
            return [Problem(Damage.MISSING, name, address, f"there is no copy at {address!r}")]
        if not self._is_copy(row, name, seen):
            kind = kind_of(row)
            if kind == self._prefix + name and isinstance(row.get(COPY_OF), str):
                text = f"the copy at {address!r} is that of {row.get(COPY_OF)!r}"
                return [Problem(Damage.TAKEN, name, address, text, rebuilt=False, rival=row)]
            text = f"a row of kind {kind!r} is at {address!r}, where the copy belongs"
            return [Problem(Damage.BLOCKED, name, address, text, rebuilt=False)]
        if copy is None:
            stale = str(row[ENTITY_TYPE]).partition(":")[2] != seen.version
        else:
            stale = contents_of(row) != contents_of(copy)
        if stale:
            return [Problem(Damage.STALE, name, address, f"the copy at {address!r} is not as the entity is")]
        if mark != address:
            noted = "nothing" if mark is None else f"{shown(mark)}"
            text = f"the copy at {address!r} is right, but the entity notes {noted}"
            return [Problem(Damage.NOTE, name, address, text)]
        return []

    def _is_copy(self, row: Row, name: str, seen: Seen) -> bool:
        return kind_of(row) == self._prefix + name and row.get(COPY_OF) == seen.row["RowKey"]

    def _left_over(self, seen: Seen) -> list[tuple[str, str]]:
        """What it notes of copies that it ought not to have: names of indexes, and addresses."""
        if seen.age == "newer" or seen.problem is not None:
            return []
        return [
            (name, mark)
            for name, mark in seen.marks.items()
            if isinstance(mark, str) and self._only in (None, name) and mark != seen.wants.get(name, (None, None))[0]
        ]
