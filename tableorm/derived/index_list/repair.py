"""
Rows of index lists, verified one by one: first whether readers and writers find them, later what is too much in them.

A row that was divided stays divided, and its halves are found through it alone. A damaged row cannot be written by
programs that keep lists right; so what the manifests of entities say of it stays as it is while they are read.
"""

from collections.abc import Mapping
from contextlib import aclosing

import attrs

from ...audit.check import IsCandidate
from ...audit.context import AuditContext, EntitySnapshot, Problem, kind_of
from ...audit.report import Damage
from ...errors import DecodeError
from ...models.manifest import ListEntry, ManifestEntry
from ...models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ...stores import Operation, Row, Verb
from ...writes.races import ATTEMPTS
from .rows import BITS, SEPARATOR, bits_of, is_divided, keys_of, list_row
from .schema import ListSchema

__all__ = ["claim_address", "is_row_key", "list_key_of", "read_keys", "split_address", "verify_keys", "verify_shape"]


def list_key_of(entry: ManifestEntry | None) -> str | None:
    """Return the key of the list that a manifest entry says the entity is in; None if it is not such an entry."""
    return entry.list_key if isinstance(entry, ListEntry) else None


def split_address(row: Row) -> tuple[str, str]:
    """Return the key of the list that a row belongs to, and the bits of its own place in it."""
    key, _, bits = row["RowKey"].rpartition(SEPARATOR)
    return key, bits


def is_row_key(index: ListSchema, row_key: str) -> bool:
    """Return whether a row of a list can have a RowKey: one that ends in bits, and is not of an entity of the model."""
    _, separator, bits = row_key.rpartition(SEPARATOR)
    if not separator or len(bits) >= BITS or bits.strip("01"):
        return False
    assert index.schema.row is not None
    try:
        index.schema.row.parse(row_key)
    except ValueError:
        return True
    return False


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
        problem: What is wrong; its address is the RowKey of the row.
        stored: The row as it was read; None if there is none.
        repairs: The operations that repair it; empty if nothing does.
    """

    problem: Problem
    stored: Row | None
    repairs: tuple[Operation, ...] = ()


async def verify_shape(context: AuditContext, index: ListSchema, partition_key: str, address: str) -> None:
    """
    Verify that a row can be read, and that it is where readers look; repair it.

    Args:
        context: The rows of the table.
        index: The list.
        partition_key: The row's PartitionKey.
        address: Its RowKey.
    """
    for attempt in range(ATTEMPTS):
        await context.pause(attempt)
        row = await context.read(partition_key, address)
        if row is None or kind_of(row) != index.kind:
            return
        if not is_row_key(index, address):
            text, reason = f"the row {address!r} says that it is of the list", "no row of a list has such a key"
            problem = Problem(Damage.ORPHAN, index.name, address, text, refused=reason)
            context.record(index.schema, partition_key, "", problem, repaired=False)
            return
        fault = await _find_misplaced(context, row, index) or await _find_unreadable(context, row, index)
        if fault is None:
            return
        if not await context.settle(partition_key, str(fault.problem.address), fault.stored, fault.repairs):
            continue
        repaired = context.repair and bool(fault.repairs)
        context.record(index.schema, partition_key, "", fault.problem, repaired=repaired)
        if not repaired:
            return
    context.counts.undecided += 1


def _damaged(
    damage: Damage, index: ListSchema, address: str, text: str, stored: Row | None, *repairs: Operation
) -> _Damaged:
    return _Damaged(Problem(damage, index.name, address, text), stored, repairs)


async def _find_misplaced(context: AuditContext, row: Row, index: ListSchema) -> _Damaged | None:
    """Find a row on the way to this one that is gone, or no longer says that it was divided."""
    partition_key, address = row["PartitionKey"], row["RowKey"]
    _, bits = split_address(row)
    for length in range(len(bits), 0, -1):
        above = address[: len(address) - length]
        found = await context.read(partition_key, above)
        if is_divided(found):
            continue
        if found is None:
            fresh = list_row(partition_key, above, index.kind, (), divided=True)
            text = f"the row {above!r} of the list, by which readers find {address!r}, is gone"
            return _damaged(Damage.MISSING, index, above, text, None, Operation(Verb.INSERT, fresh))
        if found.get(ENTITY_TYPE) != index.kind:
            text = f"a row of kind {kind_of(found)!r} is at {above!r}, where a row of the list belongs"
            return _damaged(Damage.BLOCKED, index, above, text, found)
        return await _divide_again(context, found, index)
    return None


async def _divide_again(context: AuditContext, row: Row, index: ListSchema) -> _Damaged:
    """Mark a row as divided again; the keys that it has go to its two halves."""
    partition_key, address = row["PartitionKey"], row["RowKey"]
    halves = await context.read_all(partition_key, [address + bit for bit in "01"])
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
    return _damaged(Damage.STALE, index, address, text, row, *operations)


def _divided_row(row: Row, index: ListSchema) -> Row:
    return list_row(row["PartitionKey"], row["RowKey"], index.kind, (), divided=True)


def _with_tokens(fresh: Row, row: Row) -> Row:
    """Return a row with the write tokens of another one, by which its writers recognise that they wrote it."""
    tokens = row.get(WRITE_TOKENS)
    return fresh if tokens is None else {**fresh, WRITE_TOKENS: tokens}


async def _find_unreadable(context: AuditContext, row: Row, index: ListSchema) -> _Damaged | None:
    """Find that a row cannot be read: then its keys are those of the entities that ought to be in the list."""
    if is_divided(row) or read_keys(row) is not None:
        return None
    partition_key, address = row["PartitionKey"], row["RowKey"]
    list_key, bits = split_address(row)
    text = f"the row {address!r} of the list cannot be read"
    halves = await context.read_all(partition_key, [address + bit for bit in "01"])
    if any(half is not None and half.get(ENTITY_TYPE) == index.kind for half in halves):
        fresh = _divided_row(row, index)
    elif not context.repair:
        return _damaged(Damage.STALE, index, address, text, row)
    else:
        keys = await _keys_of_entities(context, partition_key, index, list_key, bits)
        fresh = list_row(partition_key, address, index.kind, keys)
    operation = Operation(Verb.REPLACE, _with_tokens(fresh, row), row["odata.etag"])
    return _damaged(Damage.STALE, index, address, text, row, operation)


async def _keys_of_entities(
    context: AuditContext, partition_key: str, index: ListSchema, list_key: str, bits: str
) -> set[str]:
    found: set[str] = set()
    async with aclosing(context.rows(partition_key, context.kinds.filter)) as all_rows:
        async for rows in all_rows:
            for snapshot in filter(None, map(context.snapshot, rows)):
                listed = snapshot.schema is index.schema and list_key_of(snapshot.expected.get(index.name)) == list_key
                if listed and bits_of(snapshot.row["RowKey"], len(bits)) == bits:
                    found.add(snapshot.row["RowKey"])
    return found


async def verify_keys(
    context: AuditContext, index: ListSchema, partition_key: str, address: str, is_candidate: IsCandidate
) -> None:
    """
    Verify that a row has no keys that do not belong there; repair it.

    Args:
        context: The rows of the table.
        index: The list.
        partition_key: The row's PartitionKey.
        address: Its RowKey.
        is_candidate: Whether the claims on an address of the partition do not agree.
    """
    for attempt in range(ATTEMPTS):
        await context.pause(attempt)
        row = await context.read(partition_key, address)
        if row is None or kind_of(row) != index.kind or not is_row_key(index, address):
            return
        keys = read_keys(row)
        if keys is None and not is_divided(row):
            return  # its shape was reported before
        list_key, _ = split_address(row)
        candidates = sorted(key for key in keys or () if is_candidate(claim_address(list_key, key)))
        wrong = await _find_superfluous(context, row, index, candidates)
        if is_divided(row) and keys != set():
            wrong = {"": "the row has keys, though it was divided", **wrong}
        if not wrong:
            return
        left = () if is_divided(row) else (keys or set()) - wrong.keys()
        fresh = list_row(partition_key, address, index.kind, left, divided=is_divided(row))
        repair = Operation(Verb.REPLACE, _with_tokens(fresh, row), row["odata.etag"])
        if not await context.settle(partition_key, address, row, [repair]):
            continue
        for key, text in wrong.items():
            problem = Problem(Damage.ORPHAN, index.name, address, text)
            context.record(index.schema, partition_key, key, problem, repaired=context.repair)
        return
    context.counts.undecided += 1


async def _find_superfluous(
    context: AuditContext, row: Row, index: ListSchema, candidates: list[str]
) -> Mapping[str, str]:
    """Return the keys in a row that do not belong there, and why."""
    (list_key, bits), name = split_address(row), index.name
    wrong: dict[str, str] = {}
    for key in candidates:
        if is_divided(row) or bits_of(key, len(bits)) != bits:
            wrong[key] = f"the key is in the row {row['RowKey']!r} of the list, and belongs into another"
            continue
        primary = await context.read(row["PartitionKey"], key)
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
