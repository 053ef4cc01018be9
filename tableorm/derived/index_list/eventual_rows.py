"""
The rows of an index list in another partition than its entities, and how they are made right.

A row of such a list holds, for each of its entities, the table, both keys and the write token of the version that was
put into the list. Whoever makes a list right reads its row, then the entity, and writes the row under the ETag that it
was read with. An entity that is put into the list again has another token, so that whoever acts for an older version of
it fails at that ETag. Then the entity is read again, because it may have changed meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from ...connection.connection import Connection
from ...connection.rows import read_row
from ...connection.translate import translate
from ...errors import Conflict, DecodeError, EntityExists, shown
from ...models.manifest import PlacedListEntry
from ...models.marker_rows import is_marker
from ...models.reserved import ENTITY_TYPE
from ...models.write_tokens import newest_token
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
    _, stored = await _find_row(db, place, member)
    return stored is not None and stored.get(ENTITY_TYPE) == place.kind and member in _versions_in(stored)


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
    if place.kind.partition("#")[2] != name:
        return
    member = _BETWEEN.join(source)
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(pause_of(db, attempt))
        # The list first: what the entity says is then newer than the list's ETag.
        row_key, stored = await _find_row(db, place, member)
        primary = await read_row(db, *source, name=place.kind)
        listed = primary is not None and not is_marker(primary) and is_due(primary)
        version = newest_token(primary) if listed else None
        operations = _operations(place, row_key, stored, member, version, divide_at)
        if len(operations) > 1:
            await _write(db, place, operations)
            continue  # the row is divided now
        if operations and not await _write(db, place, operations):
            continue
        again = await read_row(db, *source, name=place.kind)
        if (again or {}).get("odata.etag") == (primary or {}).get("odata.etag"):
            return
    raise Conflict(
        f"{place.kind}: others wrote the entity {source} or its list {place.list_key!r} first, {ATTEMPTS} times in a "
        "row; try it again",
        Code.CONDITION_NOT_SATISFIED,
    )


async def _find_row(db: Connection, place: PlacedListEntry, member: str) -> tuple[str, Row | None]:
    """Return the RowKey of the row of a list that an entity belongs into, and the row if any. Raises DecodeError."""
    for depth in range(BITS):
        row_key = place.list_key + SEPARATOR + bits_of(member, depth)
        stored = await read_row(db, place.table, place.partition_key, row_key, name=place.kind)
        if not is_divided(stored):
            return row_key, stored
    raise DecodeError(
        f"is a list of keys that is divided {BITS} times, which no list can be; delete its rows, then run "
        "db.build_index of the list",
        place.kind,
        (place.partition_key, place.row_key),
    )


def _operations(
    place: PlacedListEntry, row_key: str, stored: Row | None, member: str, version: str | None, divide_at: int
) -> list[Operation]:
    """
    Return what makes a row of a list right: nothing, a write, or the transaction that divides the row first.

    Args:
        place: The list.
        row_key: RowKey of the row.
        stored: The row; None if there is none.
        member: The entity.
        version: The write token of the entity; None if it is not in the list.
        divide_at: Bytes of keys at which the row is divided.

    Raises:
        EntityExists: A row of another kind has the key.
        DecodeError: The row is damaged.
    """
    if stored is not None and stored.get(ENTITY_TYPE) != place.kind:
        if version is None:
            return []
        raise EntityExists(
            f"the index list {place.kind} needs the row ({place.partition_key!r}, {row_key!r}) of table {place.table}, "
            f"and a row of another kind ({shown(stored.get(ENTITY_TYPE))}) has that key; change the list's row_key, or "
            "remove that row",
            Code.ENTITY_EXISTS,
            index=place.kind,
        )
    versions = _versions_in(stored)
    if versions.get(member) == version:
        return []

    def row_of(key: str, members: Iterable[str], *, divided: bool = False) -> Row:
        texts = (name + _BETWEEN + versions[name] for name in members)
        return list_row(place.partition_key, key, place.kind, texts, divided=divided)

    coming = 0 if version is None or member in versions else len(member.encode()) + len(version) + 2
    if stored is not None and coming and bytes_of(stored) + coming > divide_at and len(versions) > 1:
        depth = len(row_key) - len(place.list_key)
        operations = [Operation(Verb.REPLACE, row_of(row_key, (), divided=True), stored["odata.etag"])]
        for bit in "01":
            members = [each for each in versions if bits_of(each, depth)[-1] == bit]
            operations.append(Operation(Verb.INSERT, row_of(row_key + bit, members)))
        return operations
    if version is None:
        del versions[member]
    else:
        versions[member] = version
    row = row_of(row_key, versions)
    return [Operation(Verb.INSERT, row) if stored is None else Operation(Verb.REPLACE, row, stored["odata.etag"])]


async def _write(db: Connection, place: PlacedListEntry, operations: Sequence[Operation]) -> bool:
    """Write rows of a list. Return False if they are not as they were read, or nobody knows what became of it."""
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
