"""
Checks of derived rows that belong to one entity: its manifest says where they are, and each names the entity.

`EntryCheck` is the base for patterns of this form; `EntityCheck` reports what no declaration accounts for.
"""

from collections.abc import Iterable
from typing import Any

import attrs
import msgspec

from ..errors import shown
from ..models.kinds import entry_name_of, kind_of
from ..models.manifest import AggregateEntry, ListEntry, ManifestEntry, PlacedEntry, PlacedListEntry, SubtotalEntry
from ..models.reserved import COPY_OF, ENTITY_TYPE, MANIFEST, PART
from ..models.row_stage import SplitStage, as_one
from ..models.schema import Schema
from ..stores import Row, RowAddress, row_keys
from .check import WRONG, Check, Claims, FoundRows, Phase
from .context import AuditContext, EntitySnapshot, Problem
from .report import Damage


def entity_problems(snapshot: EntitySnapshot) -> Iterable[Problem]:
    """Yield what is wrong with an entity as such: it, or its manifest, cannot be read."""
    if not snapshot.legible:
        text = f"its manifest, {shown(snapshot.row.get(MANIFEST))}, cannot be read"
        yield Problem(Damage.MANIFEST, None, None, text)
    if snapshot.problem is not None:
        text = f"it does not fit the model ({snapshot.problem})"
        yield Problem(Damage.UNREADABLE, None, None, text)


def _row_keys_of(entry: ManifestEntry | None) -> tuple[str, ...]:
    """Return where an entry says the rows are; none if it is not an entry about rows of this form."""
    return () if entry is None else entry.entry_keys


def _row_at(address: str, row: Row) -> Row:
    """Return a derived row under another key: those of one list differ in nothing else."""
    return row if row["RowKey"] == address else {**row, "RowKey": address}


def _undeclared_entries(snapshot: EntitySnapshot) -> list[tuple[str, Any]]:
    """
    Return the entries in other partitions and in lists, and what is counted, under names that the model does not
    declare; of a newer entity none. What is due under a name that is not noted yet was renamed, as its check reports.
    """
    derived = snapshot.schema.derived
    if snapshot.manifest.keys() <= derived.keys():
        return []
    renamed = [entry for name, entry in snapshot.expected.items() if name not in snapshot.manifest]
    return [
        (name, entry)
        for name, entry in snapshot.manifest.items()
        if name not in derived
        and (
            isinstance(entry, (PlacedEntry, PlacedListEntry, ListEntry))
            or (isinstance(entry, (AggregateEntry, SubtotalEntry)) and snapshot.is_known and entry not in renamed)
        )
        and snapshot.age != "newer"
    ]


def _names_entity(row: Row) -> bool:
    """Return whether a derived row says which entity it belongs to."""
    return isinstance(row.get(COPY_OF), str)


class EntryCheck(Check):
    """
    The check of derived rows of which each entity has at most one, or one for each element of a list.

    The manifest entry has the RowKeys of the rows, whose kind is `Model#name` and whose property `_of` is the RowKey of
    the entity.

    Args:
        context: The rows of the table.
        schema: The model.
        name: Name of the declaration.
        lenient: Whether entities may lack a row that their manifest does not name, as while an index is being built.
    """

    noun = "derived row"
    """What messages call such a row."""
    row_phases = frozenset({Phase.ENTITIES})

    def __init__(self, context: AuditContext, schema: Schema, name: str, *, lenient: bool = False) -> None:
        super().__init__(context, schema, name)
        self.kind = f"{schema.kind}#{name}"
        self._lenient = lenient

    # For patterns

    def contents(self, row: Row) -> bytes:
        """Return what a derived row holds: equal bytes for equal rows, whoever wrote them and when."""
        return b""

    def knows_contents(self, row: Row) -> bool:
        """Return whether this program knows what such a derived row should hold, and not its keys and version alone."""
        return False

    # What a check offers

    def names(self, snapshot: EntitySnapshot) -> Iterable[str]:
        """Return the names of the declarations whose row is checked."""
        return (self.name,)

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim the row that the entity ought to have; WRONG where its manifest names another one, or none."""
        for name in self.names(snapshot):
            noted, expected = snapshot.manifest.get(name), snapshot.expected.get(name)
            named = due = () if noted is None else noted.entry_keys
            if expected != noted:
                due = _row_keys_of(expected)
            for address in due:
                if address in named:
                    row = snapshot.derived_rows.get(name)
                    if row is None:
                        unknown = f"{self.schema.kind}#{name}", snapshot.version, snapshot.row["RowKey"]
                        yield address, hash(unknown)
                    else:
                        yield address, hash(self.contents(_row_at(address, row)))
                elif noted is not None or not self._lenient:
                    yield address, WRONG
            if due is not named:
                yield from ((address, WRONG) for address in named if address not in due)

    def row_claims(self, row: Row) -> Claims:
        """
        Claim the row's content, or its kind, version and entity if the content is not known. Of a row that names no
        entity claim what adds to WRONG, and does not make up for it.
        """
        if not _names_entity(row):
            return ((row["RowKey"], -WRONG),)
        if self.knows_contents(row):
            return ((row["RowKey"], hash(self.contents(row))),)
        kind, _, version = str(row[ENTITY_TYPE]).partition(":")
        return ((row["RowKey"], hash((kind, version, row.get(COPY_OF)))),)

    def addresses(self, snapshot: EntitySnapshot, found: FoundRows) -> set[str]:
        """Return where its rows ought to be, and where the manifest says they are."""
        names = self.names(snapshot) if snapshot.problem is None else ()
        entries = [each.get(name) for name in names for each in (snapshot.manifest, snapshot.expected)]
        return {key for entry in entries for key in _row_keys_of(entry)}

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Compare the row that ought to be there; then look for one that the manifest names besides."""
        for name in self.names(snapshot) if snapshot.problem is None else ():
            noted, due = map(_row_keys_of, snapshot.entries(name))
            for address in due:
                problem = self._compare_expected(name, address, snapshot, found.get(address))
                if problem is not None:
                    yield problem
            for address in noted:
                if address not in due:
                    yield from self.compare_leftover(name, address, snapshot, found.get(address))

    def compare_leftover(self, name: str, address: str, snapshot: EntitySnapshot, row: Row | None) -> list[Problem]:
        """Return what is wrong with a row that the manifest names, and that the entity should not have there."""
        if row is not None and self.is_row_of(row, name, snapshot):
            text = f"the {self.noun} at {shown(address)} was left behind: the entity belongs elsewhere, or nowhere"
            return [Problem(Damage.ORPHAN, name, address, text)]
        noted, due = map(_row_keys_of, snapshot.entries(name))
        if {*due} <= {*noted}:
            text = f"its manifest names {shown(address)}, and the entity should have no {self.noun}"
            return [Problem(Damage.MANIFEST, name, address, text)]
        return []

    def _compare_expected(self, name: str, address: str, snapshot: EntitySnapshot, row: Row | None) -> Problem | None:
        noted, content = snapshot.manifest.get(name), snapshot.derived_rows.get(name)
        if noted is None and self._lenient:
            return None
        if row is None:
            return Problem(Damage.MISSING, name, address, f"there is no {self.noun} at {shown(address)}")
        if not self.is_row_of(row, name, snapshot):
            kind = kind_of(row)
            if kind == f"{self.schema.kind}#{name}" and _names_entity(row):
                text = f"the {self.noun} at {shown(address)} is that of {shown(row.get(COPY_OF))}"
                return Problem(Damage.TAKEN, name, address, text, rival=row)
            text = f"a row of kind {shown(kind)} is at {shown(address)}, where the {self.noun} belongs"
            return Problem(Damage.BLOCKED, name, address, text)
        if content is None:
            equal = str(row[ENTITY_TYPE]).partition(":")[2] == snapshot.version
        else:
            equal = self.contents(row) == self.contents(_row_at(address, content))
        if not equal:
            text = f"the {self.noun} at {shown(address)} differs from its entity"
            return Problem(Damage.STALE, name, address, text)
        if address not in _row_keys_of(noted):
            named = "does not name it" if noted is None else f"names {shown(noted.to_json())}"
            text = f"the {self.noun} at {shown(address)} is right, but the manifest of the entity {named}"
            return Problem(Damage.MANIFEST, name, address, text)
        return None

    def is_row_of(self, row: Row, name: str, snapshot: EntitySnapshot) -> bool:
        """Return whether a row is the one of an entity for some declaration, whatever it holds."""
        return kind_of(row) == f"{self.schema.kind}#{name}" and row.get(COPY_OF) == snapshot.row["RowKey"]

    async def confirm(self, snapshot: EntitySnapshot, problem: Problem) -> Problem:
        """Return that the row is missing if the one in its place belongs to no entity; repairing deletes that one."""
        if problem.rival is None or not await self._is_orphan(problem.rival):
            return problem
        if self.context.repair:
            address = self.context.at(snapshot.row["PartitionKey"], str(problem.address))
            await self.verify_row(address, Phase.ENTITIES, bool)
        return attrs.evolve(problem, damage=Damage.MISSING, rebuilt=True, rival=None)

    async def judge(self, row: Row) -> tuple[RowAddress, Problem] | None:
        """Return that the row belongs to no entity, or names none."""
        address, name = RowAddress.of_row(self.context.kinds.table, row), entry_name_of(row)
        what, owner = f"the {self.noun} at {shown(address.row_key)}", row.get(COPY_OF)
        if not _names_entity(row):
            text = f"{what} names no entity, as each that tableorm writes does"
            return address.beside(""), Problem(Damage.FOREIGN, name, address.row_key, text)
        if not await self._is_orphan(row):
            return None
        text = (
            f"{what} belongs to no entity: {shown(owner)} is gone, or does not need it: neither its manifest nor its "
            "fields refer to it"
        )
        return address.beside(str(owner)), Problem(Damage.ORPHAN, name, address.row_key, text)

    async def _is_orphan(self, row: Row) -> bool:
        """
        Return whether the entity that a derived row names neither names it nor should. An entity that does is verified
        by itself.
        """
        kind, _, name = kind_of(row).partition("#")
        primary = await self.context.read(self.context.at(row["PartitionKey"], row[COPY_OF]))
        snapshot = self.context.snapshot(primary)
        if snapshot is None or str(snapshot.schema.kind) != kind:
            return True
        if row["RowKey"] in _row_keys_of(snapshot.manifest.get(name)):
            return False
        if snapshot.problem is not None:
            return False  # nobody knows what it ought to have
        return row["RowKey"] not in _row_keys_of(snapshot.expected.get(name))


class EntityCheck(EntryCheck):
    """
    The check of an entity as such: whether it can be read, and whether its manifest names derived rows under names that
    the model does not declare.

    Args:
        context: The rows of the table.
        schema: The model.
        declared: Names that have an `EntryCheck` of their own.
    """

    def __init__(self, context: AuditContext, schema: Schema, declared: Iterable[str]) -> None:
        super().__init__(context, schema, "")
        self._declared = frozenset(declared)

    def owns(self, kind: str) -> bool:
        """Return whether it is the kind of derived rows of the model; it is asked after all other checks."""
        return kind.startswith(self.kind)

    def accepts(self, row: Row) -> bool:
        """Return whether the row names its entity: a declaration that is not known here may derive rows from many."""
        return _names_entity(row)

    def names(self, snapshot: EntitySnapshot) -> Iterable[str]:
        """Return the unknown names; of a newer entity, a newer program may know them: its manifest counts then."""
        entries = snapshot.manifest.items()
        return [name for name, entry in entries if name not in self._declared and entry.entry_keys]

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim WRONG for an entity that cannot be read; and the rows that it names under unknown names."""
        if not snapshot.is_known or _undeclared_entries(snapshot):
            return [(snapshot.row["RowKey"], WRONG)]
        return super().claims(snapshot)

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Return why the entity cannot be read, and what is wrong with rows of unknown names."""
        yield from entity_problems(snapshot)
        yield from super().compare(snapshot, found)
        for name, entry in _undeclared_entries(snapshot):
            if isinstance(entry, ListEntry):
                key, where = entry.list_key, f"the list {entry.list_key!r}"
            elif isinstance(entry, (AggregateEntry, SubtotalEntry)):
                key, where = entry.row_key, f"what it adds to {entry.row_key!r}"
            else:
                key = entry.row_key
                where = f"its row ({entry.partition_key!r}, {key!r}) of table {entry.location}"
            text = f"the model declares no {shown(name)}, and the manifest of the entity names {where}"
            yield Problem(Damage.UNDECLARED, name, key, text)

    def compare_leftover(self, name: str, address: str, snapshot: EntitySnapshot, row: Row | None) -> list[Problem]:
        """Report the name, with the row that is there or only named."""
        here = row is not None and self.is_row_of(row, name, snapshot)
        what = f"there is a {self.noun} of it" if here else "the manifest of the entity names one"
        text = f"the model declares no {shown(name)}, and {what} at {shown(address)}"
        return [Problem(Damage.UNDECLARED, name, address, text)]

    async def _is_orphan(self, row: Row) -> bool:
        """Return the same. A newer program may know the row, if it is of an entity of another partition and newer."""
        try:
            owner = RowAddress.from_json(row[COPY_OF])
        except msgspec.DecodeError:
            return await super()._is_orphan(row)  # it names a row of its own partition
        primary = await self.context.read(owner) if owner.table == self.context.kinds.table else None
        snapshot = self.context.snapshot(primary)
        if snapshot is not None and snapshot.age == "newer":
            entry = snapshot.manifest.get(entry_name_of(row))
            keys = row_keys(row)
            if isinstance(entry, PlacedEntry) and (entry.partition_key, entry.row_key) == keys:
                return False
        return await super()._is_orphan(row)


class PartCheck(Check):
    """
    The check of the further rows of entities that are stored in several: each belongs to an entity.

    A program that deletes the first row by itself leaves the others behind. They hold their keys, so that no insert of
    the entity succeeds.

    Args:
        context: The rows of the table.
        schema: The model.
        split: Its stage.
    """

    marks = True
    row_phases = frozenset({Phase.ENTITIES})

    def __init__(self, context: AuditContext, schema: Schema, split: SplitStage) -> None:
        super().__init__(context, schema, "")
        self.kind, self._split = f"{schema.kind}{PART}", split

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim the rows that the entity was joined of."""
        return [(key, 1) for key in self._split.further_keys(snapshot.row)]

    def row_claims(self, row: Row) -> Claims:
        """Claim that an entity has the row."""
        return ((row["RowKey"], 1),)

    async def judge(self, row: Row) -> tuple[RowAddress, Problem] | None:
        """Return that the row belongs to no entity."""
        address = RowAddress.of_row(self.context.kinds.table, row)
        owner = address.beside(self._split.owner_of(address.row_key))
        first = await self.context.read(owner)
        # An entity whose rows do not fit together is a finding of its own, and nobody knows which are its.
        if first is not None and (as_one(first) is not first or address.row_key in self._split.further_keys(first)):
            return None
        why = "is gone" if first is None else "does not name it"
        text = f"the row at {shown(address.row_key)} belongs to no entity: {shown(owner.row_key)} {why}"
        return owner, Problem(Damage.ORPHAN, None, address.row_key, text)
