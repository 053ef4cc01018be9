"""
The rows of an index list in another partition than its entities, and how they are made right.

A row of such a list holds, for each of its entities, the table, both keys and the write token of the version that was
put into the list. Whoever makes a list right reads its row, then the entity, and writes the row under the ETag that it
was read with. An entity that is put into the list again has another token, so that whoever acts for an older version of
it fails at that ETag. Then the entity is read again, because it may have changed meanwhile.

All writers of a list meet on its rows. So those of one program write for several entities at a time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import attrs

from ...connection.connection import Connection
from ...connection.rows import read_row
from ...connection.tasks import Batcher, map_together
from ...connection.translate import translate
from ...errors import Conflict, DecodeError, EntityExists, TableOrmError, shown
from ...models.manifest import PlacedListEntry
from ...models.marker_rows import is_marker
from ...models.reserved import ENTITY_TYPE
from ...models.write_tokens import tokens_of
from ...protocol.codes import LOST_RACE, Code, Fault
from ...stores import Operation, Row, Verb
from ...writes.maintainer import RowKeys
from ...writes.races import ATTEMPTS, pause_of
from .rows import BITS, SEPARATOR, bits_of, bytes_of, is_divided, keys_of, list_row

__all__ = ["correct_list", "is_member", "keys_of_members"]

_BETWEEN = "\t"  # of the table, keys and token of an entity; no key has a control character


def keys_of_members(row: Row, table: str) -> list[tuple[str, str]]:
    """Return the PartitionKey and RowKey of each entity of a table that a row of a list names. Raises DecodeError."""
    found = (RowKeys(*member.split(_BETWEEN)) for member in _versions_in(row))
    return [(each.partition_key, each.row_key) for each in found if each.table == table]


async def is_member(db: Connection, source: RowKeys, place: PlacedListEntry) -> bool:
    """Return whether a list names an entity. Raises DecodeError if the list cannot be read."""
    member = _BETWEEN.join(source)
    found = await _find_rows(_List(db, place), [member])
    stored = found[member].stored
    return stored is not None and stored.get(ENTITY_TYPE) == place.kind and member in _versions_in(stored)


class _List(NamedTuple):
    """A list, in an open database. A row of it is divided at so many bytes of keys."""

    db: Connection
    place: PlacedListEntry
    divide_at: int = 0


@attrs.frozen(eq=False)
class _Correction:
    """An entity of which a list has to say what the entity says, and what tells from its row whether it is listed."""

    source: RowKeys
    is_due: Callable[[Row], bool]

    @property
    def member(self) -> str:
        """The entity, as a list names it."""
        return _BETWEEN.join(self.source)

    def version_in(self, primary: Row | None) -> str | None:
        """Return the write token to be listed; None if the entity is not listed. Raises what `is_due` raises."""
        if primary is None or is_marker(primary) or not self.is_due(primary):
            return None
        return ",".join(tokens_of(primary)[:1])


async def correct_list(
    db: Connection,
    source: RowKeys,
    name: str,
    place: PlacedListEntry,
    divide_at: int,
    is_due: Callable[[Row], bool],
) -> None:
    """
    Make a list say of an entity what the entity says. Nothing happens if it is not a list of the declaration.

    Tasks that do so for one list at the same time share the requests for its rows.

    Args:
        db: Where the rows are.
        source: The row of the entity.
        name: Name of the declaration.
        place: The list.
        divide_at: Bytes of keys at which a row of the list is divided.
        is_due: Says whether the entity belongs into the list, from its row. Otherwise it is taken out, and no row that
            does not name it is written: the place may be one that somebody has made up.

    Raises:
        Conflict: Others have written the entity or the list again and again.
        TableOrmError: A row is damaged, or the store did not answer, or `is_due` has raised it.
    """
    if place.kind.partition("#")[2] == name:
        await _BATCHER.call(_List(db, place, divide_at), _Correction(source, is_due))


async def _correct_together(which: _List, corrections: Sequence[_Correction]) -> list[Exception | None]:
    """Make a list say of some entities what these say, and return what went wrong with each."""
    errors = dict[_Correction, Exception]()
    left = corrections
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(pause_of(which.db, attempt))
        left = await _try_to_correct(which, left, errors)
        if not left:
            break
    for each in left:
        errors[each] = Conflict(
            f"{which.place.kind}: others wrote the entity {each.source} or its list {which.place.list_key!r} first, "
            f"{ATTEMPTS} times in a row; try it again",
            Code.CONDITION_NOT_SATISFIED,
        )
    return [errors.get(each) for each in corrections]


_BATCHER = Batcher(_correct_together, 100)


async def _try_to_correct(
    which: _List, corrections: Sequence[_Correction], errors: dict[_Correction, Exception]
) -> list[_Correction]:
    """Note what goes wrong with a correction, and return those that have to be tried again after a lost race."""
    # The list first: what the entities say is then newer than the ETags of its rows.
    rows = await _find_rows(which, [each.member for each in corrections])
    primaries = await _read_entities(which, corrections, errors)
    versions = dict[_Correction, str | None]()
    for each in corrections:
        if each not in errors:
            try:
                versions[each] = each.version_in(primaries[each.source])
            except Exception as error:  # noqa: BLE001 - whatever a function of a model raises
                errors[each] = error
    again, written = list[_Correction](), list[_Correction]()
    for found in dict.fromkeys(rows[each.member] for each in versions):
        here = [each for each in versions if rows[each.member] is found]
        try:
            operations = _operations(which, found, {each.member: versions[each] for each in here})
            done = not operations or await _write(which, operations)
        except TableOrmError as error:
            # A row of another kind is in the way of those alone that come into the list.
            concerned = [each for each in here if versions[each] is not None or not isinstance(error, EntityExists)]
            errors.update(dict.fromkeys(concerned, error))
        else:
            # After a division each entity has another row.
            (written if done and len(operations) < 2 else again).extend(here)
    now = await _read_entities(which, written, errors)
    for each in written:
        if each not in errors and _etag_of(now[each.source]) != _etag_of(primaries[each.source]):
            again.append(each)
    return again


async def _read_entities(
    which: _List, corrections: Sequence[_Correction], errors: dict[_Correction, Exception]
) -> dict[RowKeys, Row | None]:
    """Read the entities of corrections, each once. Where that fails, the error is noted."""
    found = dict[RowKeys, Row | None]()

    async def read(source: RowKeys) -> None:
        try:
            found[source] = await read_row(which.db, *source, name=which.place.kind)
        except TableOrmError as error:
            errors.update((each, error) for each in corrections if each.source == source)

    await map_together(read, list(dict.fromkeys(each.source for each in corrections)))
    return found


def _etag_of(row: Row | None) -> str | None:
    return None if row is None else row["odata.etag"]


@attrs.frozen(eq=False)
class _ListRow:
    """A row of a list as it was found; `stored` is None if there is none."""

    row_key: str
    stored: Row | None


async def _find_rows(which: _List, members: Sequence[str]) -> dict[str, _ListRow]:
    """Return the row of a list that each entity belongs into; each row is read once. Raises DecodeError."""
    db, place, _ = which

    async def read(row_key: str) -> _ListRow:
        return _ListRow(row_key, await read_row(db, place.table, place.partition_key, row_key, name=place.kind))

    found = dict[str, _ListRow]()
    deeper = members
    for depth in range(BITS):
        row_keys = {each: place.list_key + SEPARATOR + bits_of(each, depth) for each in deeper}
        rows = {row.row_key: row for row in await map_together(read, list(dict.fromkeys(row_keys.values())))}
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


def _operations(which: _List, found: _ListRow, wanted: Mapping[str, str | None]) -> list[Operation]:
    """
    Return what makes a row of a list right: nothing, a write, or the transaction that divides the row first.

    Args:
        which: The list.
        found: The row.
        wanted: The write tokens of entities; None for those that are not in the list.

    Raises:
        EntityExists: A row of another kind has the key.
        DecodeError: The row is damaged.
    """
    place, row_key, stored = which.place, found.row_key, found.stored
    if stored is not None and stored.get(ENTITY_TYPE) != place.kind:
        if not any(version is not None for version in wanted.values()):
            return []
        raise EntityExists(
            f"the index list {place.kind} needs the row ({place.partition_key!r}, {row_key!r}) of table {place.table}, "
            f"and a row of another kind ({shown(stored.get(ENTITY_TYPE))}) has that key; change the list's row_key, or "
            "remove that row",
            Code.ENTITY_EXISTS,
            index=place.kind,
        )
    before = _versions_in(stored)
    after = {each: version for each, version in {**before, **wanted}.items() if version is not None}
    if after == before:
        return []

    def row_of(key: str, versions: Mapping[str, str], *, divided: bool = False) -> Row:
        texts = (member + _BETWEEN + version for member, version in versions.items())
        return list_row(place.partition_key, key, place.kind, texts, divided=divided)

    coming = sum(len(each.encode()) + len(after[each]) + 2 for each in after.keys() - before.keys())
    if stored is not None and coming and bytes_of(stored) + coming > which.divide_at and len(before) > 1:
        depth = len(row_key) - len(place.list_key)
        operations = [Operation(Verb.REPLACE, row_of(row_key, {}, divided=True), stored["odata.etag"])]
        for bit in "01":
            half = {each: version for each, version in before.items() if bits_of(each, depth)[-1] == bit}
            operations.append(Operation(Verb.INSERT, row_of(row_key + bit, half)))
        return operations
    row = row_of(row_key, after)
    return [Operation(Verb.INSERT, row) if stored is None else Operation(Verb.REPLACE, row, stored["odata.etag"])]


async def _write(which: _List, operations: Sequence[Operation]) -> bool:
    """Write rows of a list. Return False if they are not as they were read, or nobody knows what became of it."""
    db, place, _ = which
    store, _ = db.sending("transaction" if len(operations) > 1 else operations[0].verb, place.kind)
    try:
        if len(operations) > 1:
            await store.transact(place.table, operations)
        else:
            await store.write(place.table, operations[0])
    except Fault as fault:
        db.count_fault(fault)
        if fault.code in LOST_RACE or fault.transient:
            return False
        raise translate(fault, f"write of the list {place.list_key!r} of {place.kind}", place.table) from fault
    return True


def _versions_in(row: Row | None) -> dict[str, str]:
    """Return the entities that a row of a list names, each with its write token. Raises DecodeError."""
    found: dict[str, str] = {}
    for text in keys_of(row):
        member, separator, version = text.rpartition(_BETWEEN)
        if not separator or member.count(_BETWEEN) != 2:
            assert row is not None
            raise DecodeError(
                f"is a list of keys, and {shown(text)} in it does not name an entity; delete the row, then run "
                "db.build_index of the list",
                str(row.get(ENTITY_TYPE)),
                (row["PartitionKey"], row["RowKey"]),
            )
        found[member] = version
    return found
