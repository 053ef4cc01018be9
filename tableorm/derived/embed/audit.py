"""
What an audit checks of copies that entities hold of others: the values, and what both note of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ...audit.check import WRONG, Check, EntitySnapshot, Problem, kind_of, members_of
from ...audit.report import Damage
from ...errors import shown
from ...models.schema import Schema
from ...protocol.edm import ANNOTATION
from ...stores import Row
from .embed import EmbedMaintainer
from .schema import EmbedSchema

__all__ = ["Holds", "Lends"]


def _address(source: str, note: str) -> str:
    return f"{source}\n={note}"


def _number(holder: str, properties: Mapping[str, str], row: Row, names: Iterable[str]) -> int:
    """A number made of who holds which properties, and their values in a row, by the names that they have there."""
    values = [(name, row.get(name), row.get(name + ANNOTATION)) for name in names]
    return hash(msgspec.json.encode([holder, list(properties.items()), [value[1:] for value in values]]))


def _noted_from(mark: object) -> str | None:
    """RowKey of the entity that a note says copies are of; None if it is no such note."""
    match mark:
        case {"from": [str(source), str(_)]}:
            return source
        case _:
            return None


def _noted_to(mark: Any) -> tuple[str, dict[str, str]] | None:
    """RowKey of the holder, and properties, as the other entity notes them; None if it is no such note."""
    match mark:
        case {"to": [str(holder), properties]}:
            return holder, {mine: str(theirs) for mine, theirs in sorted(members_of(properties).items())}
        case _:
            return None


class Holds(Check):
    """
    The check of the copies that entities of a model hold of others.

    Args:
        schema: The model.
        see: What a row is, as an audit sees it.
    """

    def __init__(self, schema: Schema, see: Callable[[Row], EntitySnapshot | None]) -> None:
        self._embeds = {name: each.embed for name, each in schema.derived_as(EmbedMaintainer).items()}
        self._see = see

    def claims(self, seen: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """What the other one notes and has, if all is right; WRONG where it notes another."""
        if seen.age != "current" or seen.problem is not None:
            return
        row, row_key = seen.row, seen.row["RowKey"]
        for name, embed in self._embeds.items():
            due = seen.due.get(name)
            if seen.marks.get(name) != due or (due is None and self._held(embed, row)):
                yield row_key, WRONG
            source = _noted_from(due)
            if source is not None:
                _, back = _noted_to(embed.holder_entry(row_key).to_json()) or ("", {})
                yield _address(source, embed.holder_name(row_key)), _number(row_key, back, row, back.values())

    def addresses(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        """The entities that it refers to, and that it notes."""
        del found
        if seen.age != "current" or seen.problem is not None:
            return set()
        marks = [each.get(name) for name in self._embeds for each in (seen.due, seen.marks)]
        return {source for mark in marks if (source := _noted_from(mark)) is not None}

    def compare(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> list[Problem]:
        """Each in turn."""
        if seen.age != "current" or seen.problem is not None:
            return []
        problems: list[Problem] = []
        for name, embed in self._embeds.items():
            problems += self._compare(seen, name, embed, found)
        return problems

    def _compare(
        self, seen: EntitySnapshot, name: str, embed: EmbedSchema, found: Mapping[str, Row | None]
    ) -> list[Problem]:
        row, mark, due = seen.row, seen.marks.get(name), seen.due.get(name)
        problems: list[Problem] = []
        source, before = _noted_from(due), _noted_from(mark)
        other = None if source is None else found.get(source)
        if source is not None:
            target = embed.source[0]
            if other is None or (target.discriminator == "property" and kind_of(other) != target.kind):
                what = "does not exist" if other is None else f"is of kind {kind_of(other)!r}"
                text = f"it refers to the {target.name} {source!r} of this partition, which {what}"
                return [Problem(Damage.DANGLING, name, source, text, rebuilt=False)]
        first = next(
            (each for each in (source, before) if each is not None and not self._legible(found.get(each))), None
        )
        if (other is None and self._held(embed, row)) or (other is not None and self._differs(embed, row, other)):
            whose = "though it refers to none" if source is None else f"which are not as {source!r} is"
            text = f"it holds copies of fields, {whose}"
            problems.append(Problem(Damage.STALE, name, source, text, first=first))
        if mark != due:
            noted = "nothing" if mark is None else shown(mark)
            what = "refers to none" if source is None else f"refers to {source!r}"
            problems.append(Problem(Damage.NOTE, name, source, f"it {what}, and notes {noted}", first=first))
        if other is not None and not self._is_noted(embed, row["RowKey"], other):
            text = f"the entity {source!r} does not note that this one holds copies of it"
            problems.append(Problem(Damage.NOTE, name, source, text, first=first))
        return problems

    def _held(self, embed: EmbedSchema, row: Row) -> bool:
        return any(name in row for name in embed.source[1])

    def _differs(self, embed: EmbedSchema, row: Row, other: Row) -> bool:
        ends = ("", ANNOTATION)
        return any(
            row.get(mine + end) != other.get(theirs + end) for mine, theirs in embed.source[1].items() for end in ends
        )

    def _legible(self, row: Row | None) -> bool:
        seen = None if row is None else self._see(row)
        return seen is None or seen.legible

    def _is_noted(self, embed: EmbedSchema, row_key: str, other: Row) -> bool:
        seen = self._see(other)
        return seen is not None and seen.marks.get(embed.holder_name(row_key)) == embed.holder_entry(row_key).to_json()


class Lends(Check):
    """
    The check of what entities note of others that hold copies of them.

    Args:
        labels: Of the declarations that are checked: "Department.manager".
        see: What a row is, as an audit sees it.
    """

    def __init__(self, labels: Iterable[str], see: Callable[[Row], EntitySnapshot | None]) -> None:
        self._labels, self._see = frozenset(labels), see

    def claims(self, seen: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """What the holder holds, taken away."""
        for note, holder, properties in self._notes(seen):
            number = _number(holder, properties, seen.row, properties)
            yield _address(seen.row["RowKey"], note), -number

    def addresses(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        """The holders."""
        del found
        return {holder for _, holder, _ in self._notes(seen)}

    def compare(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> list[Problem]:
        """Notes of holders that hold nothing; what else may be wrong is judged with the holder."""
        problems: list[Problem] = []
        for note, holder, _ in self._notes(seen):
            row = found.get(holder)
            other = None if row is None else self._see(row)
            name = note.partition(":")[0].rpartition(".")[2]
            if other is not None and other.problem is not None:
                continue  # nobody knows
            marks = () if other is None else (other.marks.get(name), other.due.get(name))
            if {"from": [seen.row["RowKey"], note]} not in marks:
                text = f"it notes that {holder!r} holds copies of it ({name}), which does not"
                problems.append(Problem(Damage.NOTE, note, holder, text))
        return problems

    def _notes(self, seen: EntitySnapshot) -> Iterable[tuple[str, str, dict[str, str]]]:
        for name, mark in seen.marks.items():
            if name.partition(":")[0] in self._labels:
                holder, properties = _noted_to(mark) or ("", {})
                yield name, holder, properties
