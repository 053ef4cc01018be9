"""
The rows of an index list in another partition than its entities, and how they are made right.

A row of such a list holds, for each of its entities, the table, both keys and the write token of the version that was
put into the list.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import attrs
from msgspec import structs

from ...connection.rows import read_row, write_as_read
from ...connection.tasks import map_together
from ...errors import DecodeError, EntityExists, shown
from ...models.manifest import PlacedListEntry
from ...models.reserved import ENTITY_TYPE
from ...protocol.codes import Code
from ...stores import Operation, Row, RowAddress, Verb, row_keys
from ..placed_check import ReadRow
from .following import FollowingList
from .rows import BITS, SEPARATOR, bits_of, bytes_of, is_divided, keys_of, list_row

_BETWEEN = "\t"  # of the table, keys and token of an entity; no key has a control character


def keys_of_members(row: Row, table: str) -> Iterator[tuple[str, str]]:
    """Yield the PartitionKey and RowKey of each entity of a table that a row of a list names. Raises DecodeError."""
    return ((each.partition_key, each.row_key) for each, _ in _members_in(row) if each.table == table)


async def find_list_row(read: ReadRow, source: RowAddress, place: PlacedListEntry) -> Row | None:
    """
    Return the row of a list that names an entity, if it is in the list; None if there is no such row.

    Args:
        read: Reads rows of the list.
        source: The entity.
        place: The list.

    Raises:
        DecodeError: The list is damaged.
    """
    found = await _find_parts(read, place, [source])
    stored = found[source].stored
    return None if stored is None or stored.get(ENTITY_TYPE) != place.kind else stored


def sources_in(row: Row) -> frozenset[RowAddress]:
    """Return the entities that a row of a list names. Raises DecodeError."""
    return frozenset(_versions_in(row))


@attrs.frozen(eq=False)
class _ListRow:
    """A row of a list as it was found; `stored` is None if there is none."""

    row_key: str
    stored: Row | None


@attrs.frozen
class RowList(FollowingList[_ListRow]):
    """
    A list in rows.

    Args:
        db: The database.
        place: The list.
        divide_at: Bytes of keys at which a row is divided.
    """

    divide_at: int = 0

    async def find_parts(self, sources: Sequence[RowAddress]) -> dict[RowAddress, _ListRow]:
        """Return the row of the list that each entity belongs into; each row is read once. Raises DecodeError."""
        return await _find_parts(partial(read_row, self.db, name=self.place.kind), self.place, sources)

    async def correct_part(self, part: _ListRow, wanted: Mapping[RowAddress, str | None]) -> bool:
        """Write a row, or divide it, unless it is right. Takes, returns and raises as `FollowingList.correct_part`."""
        operations = self._operations(part, wanted)
        # After a division each entity has another row.
        place = self.place
        what = f"the list {place.list_key!r} of {place.kind}"
        written = not operations or await write_as_read(self.db, place.table, operations, name=place.kind, what=what)
        return written and len(operations) < 2

    def _operations(self, part: _ListRow, wanted: Mapping[RowAddress, str | None]) -> list[Operation]:
        """
        Return what makes a row right: nothing, a write, or the transaction that divides the row first.

        Raises:
            EntityExists: A row of another kind has the key.
            DecodeError: The row is damaged.
        """
        place, row_key, stored = self.place, part.row_key, part.stored
        if stored is not None and stored.get(ENTITY_TYPE) != place.kind:
            if not any(version is not None for version in wanted.values()):
                return []
            raise EntityExists(
                f"the index list {place.kind} needs the row ({place.partition_key!r}, {row_key!r}) of table "
                f"{place.table}, and a row of another kind ({shown(stored.get(ENTITY_TYPE))}) has that key; change the "
                "list's row_key, or remove that row",
                Code.ENTITY_EXISTS,
                index=place.kind,
            )
        before = _versions_in(stored)
        after = {each: version for each, version in {**before, **wanted}.items() if version is not None}
        if after == before:
            return []

        def row_of(key: str, versions: Mapping[RowAddress, str], *, divided: bool = False) -> Row:
            texts = (_text_of(source, version) for source, version in versions.items())
            return list_row(place.partition_key, key, place.kind, texts, divided=divided)

        coming = sum(len(_text_of(each, after[each]).encode()) + 1 for each in after.keys() - before.keys())
        if stored is not None and coming and bytes_of(stored) + coming > self.divide_at and len(before) > 1:
            depth = len(row_key) - len(place.list_key)
            divided = row_of(row_key, {}, divided=True)
            operations = [Operation(Verb.REPLACE, divided, stored["odata.etag"], canonical=True)]
            for bit in "01":
                half = {each: version for each, version in before.items() if _bits_of(each, depth)[-1] == bit}
                operations.append(Operation(Verb.INSERT, row_of(row_key + bit, half), canonical=True))
            return operations
        row = row_of(row_key, after)
        if stored is None:
            return [Operation(Verb.INSERT, row, canonical=True)]
        return [Operation(Verb.REPLACE, row, stored["odata.etag"], canonical=True)]


async def _find_parts(
    read: ReadRow, place: PlacedListEntry, sources: Sequence[RowAddress]
) -> dict[RowAddress, _ListRow]:
    """Return the row of a list that each entity belongs into; each row is read once. Raises DecodeError."""
    own = RowAddress.of(place)

    async def read_part(row_key: str) -> _ListRow:
        return _ListRow(row_key, await read(own.beside(row_key)))

    found = dict[RowAddress, _ListRow]()
    deeper = sources
    for depth in range(BITS):
        row_keys = {each: place.list_key + SEPARATOR + _bits_of(each, depth) for each in deeper}
        rows = {row.row_key: row for row in await map_together(read_part, list(dict.fromkeys(row_keys.values())))}
        found |= {each: rows[row_key] for each, row_key in row_keys.items()}
        deeper = [each for each in row_keys if is_divided(found[each].stored)]
        if not deeper:
            return found
    raise DecodeError(
        f"is a list of keys that is divided {BITS} times, which no list can be; delete its rows, then run "
        "db.build_index of the list",
        place.kind,
        (place.partition_key, place.row_key),
    )


def _bits_of(source: RowAddress, count: int) -> str:
    return bits_of(_BETWEEN.join(structs.astuple(source)), count)


def _text_of(source: RowAddress, version: str) -> str:
    return _BETWEEN.join((*structs.astuple(source), version))


def _versions_in(row: Row | None) -> dict[RowAddress, str]:
    """Return the entities that a row of a list names, each with its write token. Raises DecodeError."""
    return dict(_members_in(row))


def _members_in(row: Row | None) -> Iterator[tuple[RowAddress, str]]:
    for text in keys_of(row):
        *keys, version = text.split(_BETWEEN)
        if len(keys) != 3:  # table, PartitionKey and RowKey
            assert row is not None
            raise DecodeError(
                f"is a list of keys, and {shown(text)} in it does not name an entity; delete the row, then run "
                "db.build_index of the list",
                str(row.get(ENTITY_TYPE)),
                row_keys(row),
            )
        yield RowAddress(*keys), version
