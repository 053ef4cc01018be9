"""
The audit of an index: what copies an entity ought to have.
"""

from collections.abc import Mapping

from ...audit.check import WRONG, Check, EntitySnapshot, Problem, kind_of
from ...audit.report import Damage
from ...errors import shown
from ...models.reserved import COPY_OF, ENTITY_TYPE
from ...models.schema import Schema
from ...stores import Row
from .index import IndexMaintainer
from .schema import contents_of

__all__ = ["Copies"]


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
        indexes = schema.derived_as(IndexMaintainer)
        self._lenient = {name for name, each in indexes.items() if each.building and name != only}
        self._current = {each.rows.kind_properties[ENTITY_TYPE] for each in indexes.values()}

    def owns(self, kind: str) -> bool:
        """Whether it is the kind of copies of the model."""
        return kind.startswith(self._prefix) if self._only is None else kind == self._prefix + self._only

    def takes(self, row: Row) -> bool:
        """Without an entity that it is of it is no copy: perhaps of a list that is not declared here."""
        return isinstance(row.get(COPY_OF), str)

    def claims(self, seen: EntitySnapshot) -> list[tuple[str, int]]:
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

    def addresses(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        """Where its copies ought to be, and where it notes some."""
        del found
        wanted = {address for name, (address, _) in seen.wants.items() if self._only in (None, name)}
        return wanted | {address for _, address in self._left_over(seen)}

    def compare(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> list[Problem]:
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
            if name not in seen.schema.derived_as(IndexMaintainer):
                text = f"the model has no such index, and {'has' if here else 'the entity notes'} a copy at {address!r}"
                problems.append(Problem(Damage.UNDECLARED, name, address, text))
            elif here:
                text = f"the copy at {address!r} was left behind: the entity belongs elsewhere in the index, or nowhere"
                problems.append(Problem(Damage.ORPHAN, name, address, text))
            elif name not in seen.wants:
                text = f"the entity notes a copy at {address!r}, and should have none"
                problems.append(Problem(Damage.NOTE, name, address, text))
        return problems

    def _compare(
        self, seen: EntitySnapshot, name: str, address: str, copy: Row | None, row: Row | None
    ) -> list[Problem]:
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

    def _is_copy(self, row: Row, name: str, seen: EntitySnapshot) -> bool:
        return kind_of(row) == self._prefix + name and row.get(COPY_OF) == seen.row["RowKey"]

    def _left_over(self, seen: EntitySnapshot) -> list[tuple[str, str]]:
        """What it notes of copies that it ought not to have: names of indexes, and addresses."""
        if seen.age == "newer" or seen.problem is not None:
            return []
        return [
            (name, mark)
            for name, mark in seen.marks.items()
            if isinstance(mark, str) and self._only in (None, name) and mark != seen.wants.get(name, (None, None))[0]
        ]
