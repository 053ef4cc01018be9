"""
What an audit checks of an index list: that each entity is in its list, once, and that a list has nothing else.

Each key in a row of a list claims what its entity claims, so that one wrong key in a list of very many makes only that
one a candidate. A row that was divided claims its two halves, so that neither of them is where no reader would look.

Rows of lists are verified one by one: first whether readers and writers find them, later what is too much in them. A
row that was divided stays divided, and its halves are found through it alone. A damaged row cannot be written by
programs that keep lists right; so what the manifests of entities say of it stays as it is while they are read.

A row that says it is of the list, and has keys that no row of the list can have, is reported and never followed: else
who may write one row could have others written at keys that it chooses.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property

import attrs

from ...audit.check import WRONG, Check, Claims, FoundRows, IsCandidate, Phase
from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.report import Damage
from ...connection.races import Attempts
from ...connection.rows import is_place
from ...errors import DecodeError, TableNotFound, TableOrmError, shown
from ...models.kinds import kind_of
from ...models.manifest import ListEntry, ManifestEntry, PlacedListEntry
from ...models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ...stores import Operation, Row, RowAddress, Verb, row_keys
from ..placed_check import PlacedCheck, ReadRow
from .following import find_list_row, keys_of_members, sources_in
from .rows import BITS, SEPARATOR, ListSchema, bits_of, is_divided, keys_of, list_row, split_address


@attrs.frozen(eq=False)
class _Damaged:
    """
    What is wrong with a row of a list, and what repairs it.

    Args:
        problem: What is wrong; its address is the RowKey of the row.
        stored: The row as it was read; None if there is none.
        repairs: The operations that repair it; empty if nothing does.
    """

    problem: Problem
    stored: Row | None
    repairs: tuple[Operation, ...] = ()


class ListCheck(Check):
    """
    The check of an index list.

    Args:
        context: The rows of the table.
        index: The index list of one model.
    """

    row_phases = frozenset({Phase.BEFORE, Phase.AFTER})

    def __init__(self, context: AuditContext, index: ListSchema) -> None:
        super().__init__(context, index.schema, index.name)
        self.kind, self._has_row = index.kind, index.has_row
        # Until a list is complete, entities may be missing in it whose manifests do not name it.
        self._lenient = context.is_incomplete(index.declaration, building=index.building)

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim the entity's key in its list; WRONG where the manifest names another list, or none."""
        row_key = snapshot.row["RowKey"]
        noted, due = snapshot.entries(self.name)
        if noted is None and self._lenient:
            return
        if noted != due:
            yield row_key, WRONG
        key = _list_key_of(due)
        if key is not None:
            address = _claim_address(key, row_key)
            yield address, hash((self.kind, address))

    def row_claims(self, row: Row) -> Claims:
        """
        Claim the keys of a row, its halves if it was divided, and that it is a half of another row; of a foreign row
        WRONG alone.
        """
        if not self._has_row(*row_keys(row)):
            yield row["RowKey"], -WRONG
            return
        (list_key, bits), number = _place_of(row), hash(row[ENTITY_TYPE])
        divided, keys = is_divided(row), _read_keys(row)
        if keys is None or (divided and keys):
            yield row["RowKey"], -WRONG
        for key in keys or ():
            right = not divided and bits_of(key, len(bits)) == bits
            address = _claim_address(list_key, key)
            yield address, hash((row[ENTITY_TYPE], address)) - (0 if right else WRONG)
        if divided:
            yield row["RowKey"], -2 * number
        if bits:
            yield row["RowKey"][:-1], number

    def addresses(self, snapshot: EntitySnapshot, found: FoundRows) -> set[str]:
        """Return the rows from the first of a list to the one where the key belongs: of its list, and the one noted."""
        wanted: set[str] = set()
        for entries in (snapshot.expected, snapshot.manifest):
            key = _list_key_of(entries.get(self.name))
            if key is not None:
                wanted |= _path_to_key(key, snapshot.row["RowKey"], found)
        return wanted

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Compare the entity with its list; a row that is damaged is verified by itself."""
        problem = self._compare(snapshot, found)
        return () if problem is None else (problem,)

    def _compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Problem | None:
        name, row_key = self.name, snapshot.row["RowKey"]
        noted, due = snapshot.entries(name)
        if noted is None and self._lenient:
            return None
        key, noted_key = _list_key_of(due), _list_key_of(noted)
        address = None if key is None else _last_address(key, row_key, found)
        row = None if address is None else found.get(address)
        if row is not None and row.get(ENTITY_TYPE) != self.kind:
            text = f"a row of kind {shown(kind_of(row))} is at {shown(address)}, where the list belongs"
            return Problem(Damage.BLOCKED, name, address, text)
        keys: set[str] | None = set() if row is None else _read_keys(row)
        if key is not None and keys is not None and row_key not in keys:
            return Problem(Damage.MISSING, name, address, f"it is not in the list {shown(key)}")
        if noted == due:
            return None
        if noted_key is not None and noted_key != key and _is_listed(noted_key, row_key, found):
            text = f"it is still in the list {shown(noted_key)}, and belongs into another, or into none"
            return Problem(Damage.ORPHAN, name, _last_address(noted_key, row_key, found), text)
        named = "does not say so" if noted is None else f"says {shown(noted.to_json())}"
        where = "belongs into no list" if key is None else f"is in the list {shown(key)}"
        return Problem(Damage.MANIFEST, name, address, f"it {where}, and its manifest {named}")

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify first whether a row can be read and is found; later whether it has keys that do not belong there."""
        if phase is Phase.BEFORE:
            await self._verify_shape(address)
        elif self._has_row(address.partition_key, address.row_key):
            await self._verify_keys(address, is_candidate)

    async def _verify_shape(self, address: RowAddress) -> None:
        """Verify that a row can be read, and that it is where readers look; repair it."""
        context, attempts = self.context, Attempts(self.context.db)
        async for _ in attempts:
            row = await context.read(address)
            if row is None or kind_of(row) != self.kind:
                return
            fault = self._find_foreign(row) or await self._find_misplaced(row) or await self._find_unreadable(row)
            if fault is None:
                return
            if not await context.settle(address.beside(str(fault.problem.address)), fault.stored, fault.repairs):
                continue
            attempts.skip_pause()
            context.record(self.schema, address.beside(""), fault.problem)
            if not (context.repair and fault.repairs):
                return
        context.counts.leave()

    def _damaged(self, damage: Damage, address: str, text: str, stored: Row | None, *repairs: Operation) -> _Damaged:
        return _Damaged(Problem(damage, self.name, address, text), stored, repairs)

    def _find_foreign(self, row: Row) -> _Damaged | None:
        """Find that no row of a list can have the keys of this one."""
        partition_key, address = row_keys(row)
        if self._has_row(partition_key, address):
            return None
        text = f"a row of kind {shown(self.kind)} is at {shown(address)}, and no row of the list can have these keys"
        return self._damaged(Damage.FOREIGN, address, text, row)

    async def _find_misplaced(self, row: Row) -> _Damaged | None:
        """Find rows on the way to this one that are gone, or one that no longer says that it was divided."""
        partition_key, address = row_keys(row)
        _, bits = _place_of(row)
        way = [address[: len(address) - length] for length in range(len(bits), 0, -1)]
        all_found = dict(zip(way, await self.context.read_all(partition_key, way), strict=True))
        for above, found in all_found.items():
            if is_divided(found):
                continue
            if found is None:
                gone = [each for each, other in all_found.items() if other is None]
                fresh = [list_row(partition_key, each, self.kind, (), divided=True) for each in gone]
                what = f"and {len(gone) - 1} behind it are gone" if len(gone) > 1 else "is gone"
                text = f"the row {shown(above)} of the list, by which readers find {shown(address)}, {what}"
                inserts = [Operation(Verb.INSERT, each) for each in fresh]
                return self._damaged(Damage.MISSING, above, text, None, *inserts)
            if found.get(ENTITY_TYPE) != self.kind:
                text = f"a row of kind {shown(kind_of(found))} is at {shown(above)}, where a row of the list belongs"
                return self._damaged(Damage.BLOCKED, above, text, found)
            return await self._divide_again(found)
        return None

    async def _divide_again(self, row: Row) -> _Damaged:
        """Mark a row as divided again; the keys that it has go to its two halves."""
        partition_key, address = row_keys(row)
        halves = await self.context.read_all(partition_key, [address + bit for bit in "01"])
        _, bits = _place_of(row)
        operations = [_replace(row, self._divided_row(row))]
        for bit, half in zip("01", halves, strict=True):
            begin = bits + bit
            mine = {key for key in _read_keys(row) or () if bits_of(key, len(begin)) == begin}
            keys = set[str]() if half is None else _read_keys(half)
            if is_divided(half) or keys is None or mine <= keys:
                continue  # entities whose keys are missing then are verified by themselves
            fresh = list_row(partition_key, address + bit, self.kind, keys | mine)
            if half is None:
                operations.append(Operation(Verb.INSERT, fresh))
            elif half.get(ENTITY_TYPE) == self.kind:
                operations.append(_replace(half, fresh))
        text = f"the row {shown(address)} of the list was divided, and does not say so"
        return self._damaged(Damage.STALE, address, text, row, *operations)

    async def _find_unreadable(self, row: Row) -> _Damaged | None:
        """Find that a row cannot be read: then its keys are those of the entities that ought to be in the list."""
        if is_divided(row) or _read_keys(row) is not None:
            return None
        partition_key, address = row_keys(row)
        list_key, bits = _place_of(row)
        text = f"the row {shown(address)} of the list cannot be read"
        halves = await self.context.read_all(partition_key, [address + bit for bit in "01"])
        if any(half is not None and half.get(ENTITY_TYPE) == self.kind for half in halves):
            fresh = self._divided_row(row)
        elif not self.context.repair:
            return self._damaged(Damage.STALE, address, text, row)
        else:
            keys = await self._keys_of_entities(partition_key, list_key, bits)
            fresh = list_row(partition_key, address, self.kind, keys)
        operation = _replace(row, fresh)
        return self._damaged(Damage.STALE, address, text, row, operation)

    async def _keys_of_entities(self, partition_key: str, list_key: str, bits: str) -> set[str]:
        found: set[str] = set()
        async with aclosing(self.context.rows(partition_key, self.context.kinds.filter)) as all_rows:
            async for rows in all_rows:
                for snapshot in filter(None, map(self.context.snapshot, rows)):
                    row_key, due = snapshot.row["RowKey"], _list_key_of(snapshot.expected.get(self.name))
                    if snapshot.schema is self.schema and due == list_key and bits_of(row_key, len(bits)) == bits:
                        found.add(row_key)
        return found

    async def _verify_keys(self, address: RowAddress, is_candidate: IsCandidate) -> None:
        """Verify that a row has no keys that do not belong there; repair it."""
        context = self.context
        async for _ in Attempts(context.db):
            row = await context.read(address)
            if row is None or kind_of(row) != self.kind:
                return
            keys = _read_keys(row)
            if keys is None and not is_divided(row):
                return  # its shape was reported before
            list_key, _ = _place_of(row)
            candidates = sorted(key for key in keys or () if is_candidate(_claim_address(list_key, key)))
            wrong = await self._find_superfluous(row, candidates)
            if is_divided(row) and keys != set():
                wrong = {"": "the row has keys, though it was divided", **wrong}
            if not wrong:
                return
            left = () if is_divided(row) else (keys or set()) - wrong.keys()
            fresh = list_row(address.partition_key, address.row_key, self.kind, left, divided=is_divided(row))
            if not await context.settle(address, row, [_replace(row, fresh)]):
                continue
            for key, text in wrong.items():
                problem = Problem(Damage.ORPHAN, self.name, address.row_key, text)
                context.record(self.schema, address.beside(key), problem)
            return
        context.counts.leave()

    async def _find_superfluous(self, row: Row, candidates: list[str]) -> Mapping[str, str]:
        """Return the keys in a row that do not belong there, and why."""
        (list_key, bits), name = _place_of(row), self.name
        wrong: dict[str, str] = {}
        for key in candidates:
            if is_divided(row) or bits_of(key, len(bits)) != bits:
                wrong[key] = f"the key is in the row {shown(row['RowKey'])} of the list, and belongs into another"
                continue
            primary = await self.context.read(self.context.at(row["PartitionKey"], key))
            await self.context.turns.take()
            snapshot = self.context.snapshot(primary)
            if snapshot is not None and snapshot.schema is self.schema and _belongs(snapshot, name, list_key):
                continue  # what is wrong then is verified with the entity
            what = "is gone" if snapshot is None else "belongs to it neither by its manifest nor by its fields"
            wrong[key] = f"the list {shown(list_key)} has the key {shown(key)}, whose entity {what}"
        return wrong

    def _divided_row(self, row: Row) -> Row:
        return list_row(*row_keys(row), self.kind, (), divided=True)


def _path_to_key(list_key: str, row_key: str, found: FoundRows) -> set[str]:
    """Return the RowKeys of the rows on the way to where a key belongs, as far as the rows are known."""
    last = _last_address(list_key, row_key, found)
    first = len(list_key) + len(SEPARATOR)
    return {last[:end] for end in range(first, len(last) + 1)}


def _last_address(list_key: str, row_key: str, found: FoundRows) -> str:
    """Return the RowKey of the last row on the way to where a key belongs, as far as the rows are known."""
    address = list_key + SEPARATOR
    bits = bits_of(row_key, BITS - 1)
    while is_divided(found.get(address)) and bits:
        address, bits = address + bits[0], bits[1:]
    return address


def _is_listed(list_key: str, row_key: str, found: FoundRows) -> bool:
    row = found.get(_last_address(list_key, row_key, found))
    return row is not None and row_key in (_read_keys(row) or ())


def _list_key_of(entry: ManifestEntry | None) -> str | None:
    """Return the key of the list that a manifest entry says the entity is in; None if it is not such an entry."""
    return entry.list_key if isinstance(entry, ListEntry) else None


def _place_of(row: Row) -> tuple[str, str]:
    """Return the key of the list that a row belongs to, and the bits of its own place in it."""
    place = split_address(row["RowKey"])
    assert place is not None  # foreign rows were left out
    return place


def _claim_address(list_key: str, row_key: str) -> str:
    """Return the address at which an entity claims its key, and the row that has it does."""
    return f"{list_key}{SEPARATOR}\n{row_key}"


def _read_keys(row: Row) -> set[str] | None:
    """Return the keys in a row of a list; None if it is damaged."""
    try:
        return set(keys_of(row))
    except DecodeError:
        return None


def _replace(row: Row, fresh: Row) -> Operation:
    """Return what replaces a row; its write tokens stay, by which its writers recognise that they wrote it."""
    tokens = row.get(WRITE_TOKENS)
    kept = {} if tokens is None else {WRITE_TOKENS: tokens}
    return Operation(Verb.REPLACE, {**fresh, **kept}, row["odata.etag"])


def _belongs(snapshot: EntitySnapshot, name: str, list_key: str) -> bool:
    """Return whether an entity may be in a list: its manifest says so, or it should be, or nobody knows."""
    if snapshot.problem or not snapshot.legible:
        return True
    return list_key in map(_list_key_of, snapshot.entries(name))


_MOST_KNOWN = 64  # rows of lists, each of which names up to a thousand entities or so


class EventualListCheck(PlacedCheck):
    """The check of an index list in other partitions."""

    async def _names(self, source: RowAddress, place: PlacedListEntry, read: ReadRow, *, due: bool) -> bool:
        """Return whether a list names an entity, as is due or not. Raises DecodeError if the list cannot be read."""
        row = await find_list_row(read, source, place)
        return row is not None and source in self._sources_in(row)

    def _sources_in(self, row: Row) -> frozenset[RowAddress]:
        """Return the entities that a row of a list names: as many ask for as it has."""
        version = row["PartitionKey"], row["RowKey"], row["odata.etag"]
        if version not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[version] = sources_in(row)
        return self._known[version]

    @cached_property
    def _known(self) -> dict[tuple[str, str, str], frozenset[RowAddress]]:
        """The entities in the rows of lists that were read last, by keys and ETag."""
        return {}

    async def _compare(
        self, snapshot: EntitySnapshot, noted: ManifestEntry | None, due: ManifestEntry | None, read: ReadRow
    ) -> Sequence[Problem]:
        source, problems = self._source_of(snapshot), list[Problem]()
        for entry in dict.fromkeys(each for each in (due, noted) if isinstance(each, PlacedListEntry)):
            where = f"the list {entry.list_key!r} in partition {entry.partition_key!r} of {entry.location}"
            listed = False
            try:
                if is_place(RowAddress.of(entry)):
                    listed = await self._names(source, entry, read, due=entry == due)
            except TableNotFound:
                pass  # the manifest names it, and is wrong
            except DecodeError as error:
                problems.append(Problem(Damage.FOREIGN, self.name, entry.list_key, str(error)))
                continue
            if entry == due and not listed:
                problems.append(Problem(Damage.MISSING, self.name, entry.list_key, f"{where} does not name it"))
            elif entry != due and listed:
                text = f"{where} names it, and it belongs elsewhere, or nowhere"
                problems.append(Problem(Damage.ORPHAN, self.name, entry.list_key, text))
        if noted != due and not problems:
            problems.append(Problem(Damage.MANIFEST, self.name, None, "its manifest does not name the list it is in"))
        return problems

    def _named_by(self, row: Row) -> tuple[PlacedListEntry, Sequence[RowAddress]]:
        parts, table = split_address(row["RowKey"]), self.schema.table_name()
        if parts is None:
            problem = "has the kind of an index list, and no list has such a key"
            raise DecodeError(problem, self.kind, row_keys(row))
        place = PlacedListEntry(row["PartitionKey"], parts[0], self.context.kinds.table, self.kind)
        return place, [RowAddress(table, *keys) for keys in keys_of_members(row, table)]

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify that the entities that a row names are in its list; otherwise take them out, if rows are repaired."""
        row = await self.context.read(address)
        if row is None or not self.owns(kind_of(row)):
            return
        try:
            place, sources = self._named_by(row)
        except DecodeError as error:
            self.record(address, Damage.FOREIGN, str(error))
            return
        for source in sources:
            await self._verify_member(place, source)

    async def _verify_member(self, place: PlacedListEntry, source: RowAddress) -> None:
        if await self._is_due(place, source):
            return
        text = f"the list {place.list_key!r} names an entity that is gone, or belongs elsewhere"
        problem = Problem(Damage.ORPHAN, self.name, place.list_key, text)
        if self.context.repair:
            try:
                await self._maintainer.reconcile(self.context.db, source, [place])
            except TableOrmError as error:
                problem = attrs.evolve(problem, refused=str(error))
        self.context.record(self.schema, source, problem)
