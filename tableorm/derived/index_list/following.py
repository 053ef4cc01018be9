"""
Lists that follow their entities, in rows or in blobs, and how they are made right; and those in rows.

Who makes a list right reads it, then the entity, and writes the list under the ETag that it was read with. The list
holds the write token of the version that was put there: an entity that is put into it again has another token, so that
whoever acts for an older version fails at that ETag. Then the entity is read again, because it may have changed
meanwhile.

All writers of a list meet there. So those of one program write for several entities at a time.

A row of such a list holds, for each of its entities, the table, both keys and the write token of the version that was
put into the list.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import attrs
from msgspec import structs

from ...connection.connection import Connection
from ...connection.races import ATTEMPTS, Attempts
from ...connection.rows import is_place, read_row, write_as_read
from ...connection.tasks import Batcher, map_together
from ...errors import DecodeError, EntityExists, LostRace, TableOrmError, shown
from ...models.manifest import PlacedListEntry
from ...models.marker_rows import is_marker
from ...models.reserved import ENTITY_TYPE
from ...models.write_tokens import newest_token
from ...protocol.codes import Code
from ...stores import Operation, Row, RowAddress, Verb, row_keys
from ..placed_check import ReadRow
from .rows import BITS, SEPARATOR, bits_of, bytes_of, is_divided, keys_of, list_row

P = TypeVar("P")


@attrs.frozen(eq=False)
class _Correction:
    """An entity of which a list has to say what the entity says, and what tells from its row whether it is listed."""

    source: RowAddress
    is_due: Callable[[Row], bool]

    def version_in(self, primary: Row | None) -> str | None:
        """Return the write token to be listed; None if the entity is not listed. Raises what `is_due` raises."""
        if primary is None or is_marker(primary) or not self.is_due(primary):
            return None
        return newest_token(primary)


@attrs.frozen
class FollowingList(Generic[P]):
    """
    A list in an open database. It is read and written in parts, each of which has an ETag.

    Args:
        db: The database.
        place: The list.
    """

    db: Connection
    place: PlacedListEntry

    async def find_parts(self, sources: Sequence[RowAddress]) -> dict[RowAddress, P]:
        """
        Return the part of the list that each entity belongs into, as it is read now; each part is one object.

        Raises:
            TableOrmError: The list is damaged, or the store did not answer.
        """
        raise NotImplementedError

    async def correct_part(self, part: P, wanted: Mapping[RowAddress, str | None]) -> bool:
        """
        Write a part, unless it is right.

        Args:
            part: The part.
            wanted: The write tokens of entities; None for those that are not in the list.

        Returns:
            Whether it is right now. Otherwise another writer has written it, or the entities have other parts now.

        Raises:
            EntityExists: A row of another kind is where the part belongs.
            TableOrmError: The part is damaged, or the store refused.
        """
        raise NotImplementedError

    async def correct(self, source: RowAddress, name: str, is_due: Callable[[Row], bool]) -> None:
        """
        Make the list say of an entity what the entity says. Nothing happens if it is not a list of the declaration.

        Tasks that do so for one list at the same time share the requests for it.

        Args:
            source: The row of the entity.
            name: Name of the declaration.
            is_due: Says whether the entity belongs into the list, from its row. Otherwise it is taken out, and nothing
                that does not name it is written: the place may be one that somebody has made up.

        Raises:
            LostRace: Others have written the entity or the list again and again.
            TableOrmError: The list is damaged, or the store did not answer, or `is_due` has raised it.
        """
        if self.place.kind.partition("#")[2] == name:
            await _BATCHER.call(self, _Correction(source, is_due))


async def _correct_together(which: FollowingList[Any], corrections: Sequence[_Correction]) -> list[Exception | None]:
    """Make a list say of some entities what these say, and return what went wrong with each."""
    errors = dict[_Correction, Exception]()
    left = corrections
    async for _ in Attempts(which.db):
        left = await _try_to_correct(which, left, errors)
        if not left:
            break
    for each in left:
        errors[each] = LostRace(
            f"{which.place.kind}: others wrote the entity {each.source} or its list {which.place.list_key!r} first, "
            f"{ATTEMPTS} times in a row; try it again",
            Code.CONDITION_NOT_SATISFIED,
        )
    return [errors.get(each) for each in corrections]


_BATCHER = Batcher(_correct_together, 100)


async def _try_to_correct(
    which: FollowingList[P], corrections: Sequence[_Correction], errors: dict[_Correction, Exception]
) -> list[_Correction]:
    """Note what goes wrong with a correction, and return those that have to be tried again after a lost race."""
    # The list first: what the entities say is then newer than the ETags of its parts.
    parts = await which.find_parts([each.source for each in corrections])
    primaries = await _read_entities(which, corrections, errors)
    versions = dict[_Correction, str | None]()
    for each in corrections:
        if each not in errors:
            try:
                versions[each] = each.version_in(primaries[each.source])
            except Exception as error:  # noqa: BLE001 - whatever a function of a model raises
                errors[each] = error
    again, written = list[_Correction](), list[_Correction]()
    for part in {id(part): part for part in parts.values()}.values():
        here = [each for each in versions if parts[each.source] is part]
        try:
            done = not here or await which.correct_part(part, {each.source: versions[each] for each in here})
        except TableOrmError as error:
            # A row of another kind is in the way of those alone that come into the list.
            concerned = [each for each in here if versions[each] is not None or not isinstance(error, EntityExists)]
            errors.update(dict.fromkeys(concerned, error))
        else:
            (written if done else again).extend(here)
    now = await _read_entities(which, written, errors)
    for each in written:
        if each not in errors and _etag_of(now[each.source]) != _etag_of(primaries[each.source]):
            again.append(each)
    return again


async def _read_entities(
    which: FollowingList[Any], corrections: Sequence[_Correction], errors: dict[_Correction, Exception]
) -> dict[RowAddress, Row | None]:
    """Read the entities of corrections, each once. Where that fails, the error is noted."""
    found = dict[RowAddress, Row | None]()

    async def read(source: RowAddress) -> None:
        try:
            row = await read_row(which.db, source, name=which.place.kind) if is_place(source) else None
            found[source] = row
        except TableOrmError as error:
            errors.update((each, error) for each in corrections if each.source == source)

    await map_together(read, list(dict.fromkeys(each.source for each in corrections)))
    return found


def _etag_of(row: Row | None) -> str | None:
    return None if row is None else row["odata.etag"]


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
