"""
Rows of index lists, verified one by one: first whether readers and writers find them, later what is too much in them.

A row that was divided stays divided, and its halves are found through it alone. A damaged row cannot be written by
programs that keep lists right; so what the manifests of entities say of it stays as it is while they are read.
"""

from collections.abc import Mapping
from contextlib import aclosing

import attrs

from ...audit.check import AuditContext, EntitySnapshot, IsCandidate, kind_of
from ...audit.report import AuditCounts, Damage, Finding
from ...audit.scan import pages
from ...connection.connection import TURN
from ...errors import DecodeError
from ...keys.ranges import KeyRegion
from ...models.manifest import ListEntry, ManifestEntry
from ...models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ...stores import Bounds, Operation, Row, Verb
from ...writes.races import ATTEMPTS
from .rows import SEPARATOR, bits_of, is_divided, keys_of, list_row
from .schema import ListSchema

__all__ = ["claim_address", "list_key_of", "read_keys", "split_address", "verify_keys", "verify_shape"]


def list_key_of(entry: ManifestEntry | None) -> str | None:
    """Return the key of the list that a manifest entry says the entity is in; None if it is not such an entry."""
    return entry.list_key if isinstance(entry, ListEntry) else None


def split_address(row: Row) -> tuple[str, str]:
    """Return the key of the list that a row belongs to, and the bits of its own place in it."""
    key, _, bits = row["RowKey"].rpartition(SEPARATOR)
    return key, bits


def claim_address(list_key: str, row_key: str) -> str:
    """Return the address at which an entity claims its key, and the row that has it does."""
    return f"{list_key}{SEPARATOR}\n{row_key}"


def read_keys(row: Row) -> set[str] | None:
    """Return the keys in a row of a list; None if it is damaged."""
    try:
        return set(keys_of(row))
    except DecodeError:
        return None


@attrs.frozen(eq=False)
class _Damaged:
    """
    What is wrong with a row of a list, and what repairs it.

    Args:
        damage: What kind of damage it is.
        address: RowKey of the row.
        text: In words.
        stored: The row as it was read; None if there is none.
        operations: The operations that repair it; empty if nothing does.
    """

    damage: Damage
    address: str
    text: str
    stored: Row | None
    operations: tuple[Operation, ...]


async def verify_shape(
    context: AuditContext, index: ListSchema, partition_key: str, address: str, counts: AuditCounts
) -> None:
    """
    Verify that a row can be read, and that it is where readers look; repair it.

    Args:
        context: The rows of the table.
        index: The list.
        partition_key: The row's PartitionKey.
        address: Its RowKey.
        counts: Gets the findings.
    """
    for attempt in range(ATTEMPTS):
        await context.pause(attempt)
        row = await context.read(partition_key, address, counts)
        if row is None or kind_of(row) != index.kind:
            return
        fault = await _find_misplaced(context, row, index, counts)
        fault = fault or await _find_unreadable(context, row, index, counts)
        if fault is None:
            return
        repaired = False
        if context.repair and fault.operations:
            if not await context.send(fault.operations, counts):
                continue
            repaired = True
        else:
            again = await context.read(partition_key, fault.address, counts)
            if _etag(again) != _etag(fault.stored):
                continue
        _record(index, row, fault.damage, "", fault.address, fault.text, counts, repaired=repaired)
        if not repaired:
            return
    counts.undecided += 1


def _etag(row: Row | None) -> object:
    return None if row is None else row["odata.etag"]


def _record(
    index: ListSchema,
    row: Row,
    damage: Damage,
    key: str,
    address: str,
    text: str,
    counts: AuditCounts,
    *,
    repaired: bool,
) -> None:
    finding = Finding(
        damage=damage,
        model=index.schema.name,
        index=index.name,
        partition_key=row["PartitionKey"],
        row_key=key,
        address=address,
        problem=text,
        repaired=repaired,
    )
    counts.record(finding)


async def _find_misplaced(context: AuditContext, row: Row, index: ListSchema, counts: AuditCounts) -> _Damaged | None:
    """Find a row on the way to this one that is gone, or no longer says that it was divided."""
    partition_key, address = row["PartitionKey"], row["RowKey"]
    _, bits = split_address(row)
    for length in range(len(bits), 0, -1):
        above = address[: len(address) - length]
        found = await context.read(partition_key, above, counts)
        if is_divided(found):
            continue
        if found is None:
            fresh = list_row(partition_key, above, index.kind, (), divided=True)
            text = f"the row {above!r} of the list, by which readers find {address!r}, is gone"
            return _Damaged(Damage.MISSING, above, text, None, (Operation(Verb.INSERT, fresh),))
        if found.get(ENTITY_TYPE) != index.kind:
            text = f"a row of kind {kind_of(found)!r} is at {above!r}, where a row of the list belongs"
            return _Damaged(Damage.BLOCKED, above, text, found, ())
        return await _divide_again(context, found, index, counts)
    return None


async def _divide_again(context: AuditContext, row: Row, index: ListSchema, counts: AuditCounts) -> _Damaged:
    """Mark a row as divided again; the keys that it has go to its two halves."""
    partition_key, address = row["PartitionKey"], row["RowKey"]
    halves = await context.read_all(partition_key, [address + bit for bit in "01"], counts)
    _, bits = split_address(row)
    operations = [Operation(Verb.REPLACE, _with_tokens(_divided_row(row, index), row), row["odata.etag"])]
    for bit, half in zip("01", halves, strict=True):
        begin = bits + bit
        mine = {key for key in read_keys(row) or () if bits_of(key, len(begin)) == begin}
        keys = set[str]() if half is None else read_keys(half)
        if is_divided(half) or keys is None or mine <= keys:
            continue  # entities whose keys are missing then are verified by themselves
        fresh = list_row(partition_key, address + bit, index.kind, keys | mine)
        if half is None:
            operations.append(Operation(Verb.INSERT, fresh))
        elif half.get(ENTITY_TYPE) == index.kind:
            operations.append(Operation(Verb.REPLACE, _with_tokens(fresh, half), half["odata.etag"]))
    text = f"the row {address!r} of the list was divided, and does not say so"
    return _Damaged(Damage.STALE, address, text, row, tuple(operations))


def _divided_row(row: Row, index: ListSchema) -> Row:
    return list_row(row["PartitionKey"], row["RowKey"], index.kind, (), divided=True)


def _with_tokens(fresh: Row, row: Row) -> Row:
    """Return a row with the write tokens of another one, by which its writers recognise that they wrote it."""
    tokens = row.get(WRITE_TOKENS)
    return fresh if tokens is None else {**fresh, WRITE_TOKENS: tokens}


async def _find_unreadable(context: AuditContext, row: Row, index: ListSchema, counts: AuditCounts) -> _Damaged | None:
    """Find that a row cannot be read: then its keys are those of the entities that ought to be in the list."""
    if is_divided(row) or read_keys(row) is not None:
        return None
    partition_key, address = row["PartitionKey"], row["RowKey"]
    list_key, bits = split_address(row)
    text = f"the row {address!r} of the list cannot be read"
    halves = await context.read_all(partition_key, [address + bit for bit in "01"], counts)
    if any(half is not None and half.get(ENTITY_TYPE) == index.kind for half in halves):
        fresh = _divided_row(row, index)
    elif not context.repair:
        return _Damaged(Damage.STALE, address, text, row, ())
    else:
        keys = await _keys_of_entities(context, partition_key, index, list_key, bits, counts)
        fresh = list_row(partition_key, address, index.kind, keys)
    operation = Operation(Verb.REPLACE, _with_tokens(fresh, row), row["odata.etag"])
    return _Damaged(Damage.STALE, address, text, row, (operation,))


async def _keys_of_entities(
    context: AuditContext, partition_key: str, index: ListSchema, list_key: str, bits: str, counts: AuditCounts
) -> set[str]:
    found: set[str] = set()
    kinds, regions = context.kinds, [KeyRegion(Bounds.only(partition_key))]
    async with aclosing(pages(context.db, kinds.table, kinds.filter, regions, counts, "audit")) as all_pages:
        async for rows in all_pages:
            for start in range(0, len(rows), TURN):
                for row in rows[start : start + TURN]:
                    snapshot = context.snapshot(row)
                    if snapshot is None or snapshot.schema is not index.schema:
                        continue
                    if list_key_of(snapshot.expected.get(index.name)) != list_key:
                        continue
                    if bits_of(row["RowKey"], len(bits)) == bits:
                        found.add(row["RowKey"])
                await context.db.yield_to_loop(TURN)
    return found


async def verify_keys(
    context: AuditContext,
    index: ListSchema,
    partition_key: str,
    address: str,
    is_candidate: IsCandidate,
    counts: AuditCounts,
) -> None:
    """
    Verify that a row has no keys that do not belong there; repair it.

    Args:
        context: The rows of the table.
        index: The list.
        partition_key: The row's PartitionKey.
        address: Its RowKey.
        is_candidate: Whether the claims on an address of the partition do not agree.
        counts: Gets the findings.
    """
    for attempt in range(ATTEMPTS):
        await context.pause(attempt)
        row = await context.read(partition_key, address, counts)
        if row is None or kind_of(row) != index.kind:
            return
        keys = read_keys(row)
        if keys is None and not is_divided(row):
            return  # its shape was reported before
        list_key, _ = split_address(row)
        candidates = sorted(key for key in keys or () if is_candidate(claim_address(list_key, key)))
        wrong = await _find_superfluous(context, row, index, candidates, counts)
        if is_divided(row) and keys != set():
            wrong = {"": "the row has keys, though it was divided", **wrong}
        if not wrong:
            return
        if context.repair:
            left = () if is_divided(row) else (keys or set()) - wrong.keys()
            fresh = list_row(partition_key, address, index.kind, left, divided=is_divided(row))
            operation = Operation(Verb.REPLACE, _with_tokens(fresh, row), row["odata.etag"])
            if not await context.send([operation], counts):
                continue
        elif _etag(await context.read(partition_key, address, counts)) != _etag(row):
            continue
        for key, text in wrong.items():
            _record(index, row, Damage.ORPHAN, key, address, text, counts, repaired=context.repair)
        return
    counts.undecided += 1


async def _find_superfluous(
    context: AuditContext, row: Row, index: ListSchema, candidates: list[str], counts: AuditCounts
) -> Mapping[str, str]:
    """Return the keys in a row that do not belong there, and why."""
    (list_key, bits), name = split_address(row), index.name
    wrong: dict[str, str] = {}
    for key in candidates:
        if is_divided(row) or bits_of(key, len(bits)) != bits:
            wrong[key] = f"the key is in the row {row['RowKey']!r} of the list, and belongs into another"
            continue
        primary = await context.read(row["PartitionKey"], key, counts)
        snapshot = None if primary is None else context.snapshot(primary)
        if snapshot is not None and snapshot.schema is index.schema and _belongs(snapshot, name, list_key):
            continue  # what is wrong then is verified with the entity
        what = "is gone" if snapshot is None else "does not say that it is in the list, nor should"
        wrong[key] = f"the list {list_key!r} has the key {key!r}, whose entity {what}"
    return wrong


def _belongs(snapshot: EntitySnapshot, name: str, list_key: str) -> bool:
    """Return whether an entity may be in a list: its manifest says so, or it should be, or nobody knows."""
    if snapshot.problem or not snapshot.legible:
        return True
    return list_key in (list_key_of(snapshot.manifest.get(name)), list_key_of(snapshot.expected.get(name)))
