"""
What an audit checks of an index list in other partitions: that it names the entities that are in it, and no others.
"""

from collections.abc import Sequence
from functools import cached_property

import attrs

from ...audit.check import IsCandidate, Phase
from ...audit.context import EntitySnapshot, Problem
from ...audit.report import Damage
from ...connection.rows import is_place
from ...errors import DecodeError, TableNotFound, TableOrmError
from ...models.kinds import kind_of
from ...models.manifest import ManifestEntry, PlacedListEntry
from ...stores import Row, RowAddress, row_keys
from ..placed_check import PlacedCheck, ReadRow
from .following import find_list_row, keys_of_members, sources_in
from .rows import split_address

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
                problems.append(Problem(Damage.FOREIGN, self.name, entry.list_key, str(error), rebuilt=False))
                continue
            if entry == due and not listed:
                problems.append(Problem(Damage.MISSING, self.name, entry.list_key, f"{where} does not name it"))
            elif entry != due and listed:
                text = f"{where} names it, and it belongs elsewhere, or nowhere"
                problems.append(Problem(Damage.ORPHAN, self.name, entry.list_key, text))
        if noted != due and not problems:
            problems.append(Problem(Damage.MANIFEST, self.name, None, "its manifest does not name the list it is in"))
        return problems

    def _named_by(self, row: Row) -> tuple[ManifestEntry, Sequence[RowAddress]]:
        parts, table = split_address(row["RowKey"]), self.schema.table_name()
        if parts is None:
            raise DecodeError("is no row of a list", self.kind, row_keys(row))
        place = PlacedListEntry(row["PartitionKey"], parts[0], self.context.kinds.table, self.kind)
        return place, [RowAddress(table, *keys) for keys in keys_of_members(row, table)]

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify that the entities that a row names are in its list; otherwise take them out, if rows are repaired."""
        row, row_key = await self.context.read(address), address.row_key
        if row is None or not self.owns(kind_of(row)):
            return
        parts = split_address(row_key)
        try:
            members = list(keys_of_members(row, self.schema.table_name()))
        except DecodeError as error:
            members, parts = [], None
            text = str(error)
        else:
            text = f"the row {row_key!r} has the kind of an index list, and no list has such a key"
        if parts is None:
            problem = Problem(Damage.FOREIGN, self.name, row_key, text, rebuilt=False)
            self.context.record(self.schema, address.beside(""), problem)
            return
        place = PlacedListEntry(address.partition_key, parts[0], self.context.kinds.table, self.kind)
        for keys in members:
            await self._verify_member(place, keys)

    async def _verify_member(self, place: PlacedListEntry, keys: tuple[str, str]) -> None:
        source = RowAddress(self.schema.table_name(), *keys)
        if await self._is_due(place, source):
            return
        text = f"the list {place.list_key!r} names an entity that is gone, or belongs elsewhere"
        problem = Problem(Damage.ORPHAN, self.name, place.list_key, text)
        if self.context.repair:
            assert self._reconcile is not None
            try:
                await self._reconcile(self.context.db, source, [place])
            except TableOrmError as error:
                problem = attrs.evolve(problem, refused=str(error))
        self.context.record(self.schema, source, problem)
