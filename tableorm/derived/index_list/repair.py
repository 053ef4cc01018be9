"""
Rows of index lists, judged one by one: first whether readers and writers find them, later what is too much in them.

A row that was divided stays divided, and its halves are found through it alone. A damaged row cannot be written by
programs that keep lists right; so what entities note of it stays as it is while they are gone through.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing

import attrs

from ...audit.check import kind_of
from ...audit.report import AuditCounts, Damage, Finding
from ...audit.rows import AuditContext
from ...audit.scan import pages
from ...connection.connection import TURN
from ...keys.ranges import KeyRegion
from ...models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ...stores import Bounds, Operation, Row, Verb
from ...writes.races import ATTEMPTS
from .audit import Lists, address_of_key, is_noted, key_of, list_noted, readable
from .rows import bits_of, is_divided, list_row
from .schema import ListSchema

__all__ = ["judge_keys", "judge_shape"]


@attrs.frozen(eq=False)
class _Fault:
    """
    What is wrong with a row of a list, as such.

    Args:
        damage: What kind of damage it is.
        address: RowKey of the row.
        text: In words.
        stored: The row as it was read; None if there is none.
        operations: What repairs it; empty if nothing does.
    """

    damage: Damage
    address: str
    text: str
    stored: Row | None
    operations: tuple[Operation, ...]


async def judge_shape(look: AuditContext, partition_key: str, address: str, tally: AuditCounts) -> None:
    """
    Verifier whether a row can be read, and whether it is where readers look.

    Args:
        look: Knows the rows.
        partition_key: Its PartitionKey.
        address: Its RowKey.
        tally: Gets the findings.
    """
    for attempt in range(ATTEMPTS):
        await look.pause(attempt)
        row = await look.read(partition_key, address, tally)
        check = None if row is None else look.owner_of(row)
        if row is None or not isinstance(check, Lists):
            return
        index = check.list_of(row)
        fault = await _misplaced(look, row, index, tally) or await _damaged(look, row, index, tally)
        if fault is None:
            return
        repaired = False
        if look.repair and fault.operations:
            if not await look.send(fault.operations, tally):
                continue
            repaired = True
        else:
            again = await look.read(partition_key, fault.address, tally)
            if _etag(again) != _etag(fault.stored):
                continue
        _record(index, row, fault.damage, "", fault.address, fault.text, tally, repaired=repaired)
        if not repaired:
            return
    tally.undecided += 1


def _etag(row: Row | None) -> object:
    return None if row is None else row["odata.etag"]


def _record(
    index: ListSchema,
    row: Row,
    damage: Damage,
    key: str,
    address: str,
    text: str,
    tally: AuditCounts,
    *,
    repaired: bool,
) -> None:
    schema = index.primary
    finding = Finding(damage, schema.name, index.declared.name, row["PartitionKey"], key, address, text, repaired)
    tally.record(finding)


async def _misplaced(look: AuditContext, row: Row, index: ListSchema, tally: AuditCounts) -> _Fault | None:
    """A row before it that is gone, or no longer says that it was divided."""
    partition_key, address = row["PartitionKey"], row["RowKey"]
    _, bits = key_of(row)
    for length in range(len(bits), 0, -1):
        above = address[: len(address) - length]
        found = await look.read(partition_key, above, tally)
        if is_divided(found):
            continue
        if found is None:
            fresh = list_row(partition_key, above, index.kind, (), divided=True)
            text = f"the row {above!r} of the list is gone, which tells readers of {address!r}"
            return _Fault(Damage.MISSING, above, text, None, (Operation(Verb.INSERT, fresh),))
        if found.get(ENTITY_TYPE) != index.kind:
            text = f"a row of kind {kind_of(found)!r} is at {above!r}, where a row of the list belongs"
            return _Fault(Damage.BLOCKED, above, text, found, ())
        return await _divided_again(look, found, index, tally)
    return None


async def _divided_again(look: AuditContext, row: Row, index: ListSchema, tally: AuditCounts) -> _Fault:
    """A row that has lost that it was divided; its keys go to the two others."""
    partition_key, address = row["PartitionKey"], row["RowKey"]
    halves = await look.read_all(partition_key, [address + bit for bit in "01"], tally)
    _, bits = key_of(row)
    operations = [Operation(Verb.REPLACE, _with_tokens(_empty(row, index), row), row["odata.etag"])]
    for bit, half in zip("01", halves, strict=True):
        begin = bits + bit
        mine = {key for key in readable(row) or () if bits_of(key, len(begin)) == begin}
        keys = set[str]() if half is None else readable(half)
        if is_divided(half) or keys is None or mine <= keys:
            continue  # entities whose keys are missing then are judged by themselves
        fresh = list_row(partition_key, address + bit, index.kind, keys | mine)
        if half is None:
            operations.append(Operation(Verb.INSERT, fresh))
        elif half.get(ENTITY_TYPE) == index.kind:
            operations.append(Operation(Verb.REPLACE, _with_tokens(fresh, half), half["odata.etag"]))
    text = f"the row {address!r} of the list was divided, and does not say so"
    return _Fault(Damage.STALE, address, text, row, tuple(operations))


def _empty(row: Row, index: ListSchema) -> Row:
    return list_row(row["PartitionKey"], row["RowKey"], index.kind, (), divided=True)


def _with_tokens(fresh: Row, row: Row) -> Row:
    """A row with the write tokens of another one, by which those who wrote it find that they did."""
    tail = row.get(WRITE_TOKENS)
    return fresh if tail is None else {**fresh, WRITE_TOKENS: tail}


async def _damaged(look: AuditContext, row: Row, index: ListSchema, tally: AuditCounts) -> _Fault | None:
    """A row that cannot be read: its keys are those of the entities that are in the list."""
    if is_divided(row) or readable(row) is not None:
        return None
    partition_key, address = row["PartitionKey"], row["RowKey"]
    list_key, bits = key_of(row)
    text = f"the row {address!r} of the list cannot be read"
    halves = await look.read_all(partition_key, [address + bit for bit in "01"], tally)
    if any(half is not None and half.get(ENTITY_TYPE) == index.kind for half in halves):
        fresh = _empty(row, index)
    elif not look.repair:
        return _Fault(Damage.STALE, address, text, row, ())
    else:
        keys = await _entities_in(look, partition_key, index, list_key, bits, tally)
        fresh = list_row(partition_key, address, index.kind, keys)
    operation = Operation(Verb.REPLACE, _with_tokens(fresh, row), row["odata.etag"])
    return _Fault(Damage.STALE, address, text, row, (operation,))


async def _entities_in(
    look: AuditContext, partition_key: str, index: ListSchema, list_key: str, bits: str, tally: AuditCounts
) -> set[str]:
    found: set[str] = set()
    rectangles = [KeyRegion(Bounds.only(partition_key))]
    async with aclosing(pages(look.db, look.kinds.table, look.kinds.filter, rectangles, tally, "audit")) as all_rows:
        async for rows in all_rows:
            for start in range(0, len(rows), TURN):
                for row in rows[start : start + TURN]:
                    seen = look.seen(row)
                    if seen is None or seen.schema is not index.primary:
                        continue
                    if list_noted(seen.due.get(index.declared.name)) != list_key:
                        continue
                    if bits_of(row["RowKey"], len(bits)) == bits:
                        found.add(row["RowKey"])
                await look.db.yield_to_loop(TURN)
    return found


async def judge_keys(
    look: AuditContext, partition_key: str, address: str, is_bad: Callable[[str], bool], tally: AuditCounts
) -> None:
    """
    Verifier what is too much in a row.

    Args:
        look: Knows the rows.
        partition_key: Its PartitionKey.
        address: Its RowKey.
        is_bad: Whether an address is suspect.
        tally: Gets the findings.
    """
    for attempt in range(ATTEMPTS):
        await look.pause(attempt)
        row = await look.read(partition_key, address, tally)
        check = None if row is None else look.owner_of(row)
        if row is None or not isinstance(check, Lists):
            return
        index, keys = check.list_of(row), readable(row)
        if keys is None and not is_divided(row):
            return  # that was said already
        list_key, _ = key_of(row)
        suspects = sorted(key for key in keys or () if is_bad(address_of_key(list_key, key)))
        wrong = await _too_much(look, row, index, suspects, tally)
        if is_divided(row) and keys != set():
            wrong = {"": "the row has keys, though it was divided", **wrong}
        if not wrong:
            return
        if look.repair:
            left = () if is_divided(row) else (keys or set()) - wrong.keys()
            fresh = list_row(partition_key, address, index.kind, left, divided=is_divided(row))
            operation = Operation(Verb.REPLACE, _with_tokens(fresh, row), row["odata.etag"])
            if not await look.send([operation], tally):
                continue
        elif _etag(await look.read(partition_key, address, tally)) != _etag(row):
            continue
        for key, text in wrong.items():
            _record(index, row, Damage.ORPHAN, key, address, text, tally, repaired=look.repair)
        return
    tally.undecided += 1


async def _too_much(
    look: AuditContext, row: Row, index: ListSchema, suspects: list[str], tally: AuditCounts
) -> Mapping[str, str]:
    """Keys in a row that do not belong there, and why."""
    (list_key, bits), name = key_of(row), index.declared.name
    wrong: dict[str, str] = {}
    for key in suspects:
        if is_divided(row) or bits_of(key, len(bits)) != bits:
            wrong[key] = f"the key is in the row {row['RowKey']!r} of the list, and belongs into another"
            continue
        primary = await look.read(row["PartitionKey"], key, tally)
        seen = None if primary is None else look.seen(primary)
        ours = seen is not None and seen.schema is index.primary
        if seen is not None and ours and (seen.problem or not seen.legible or is_noted(seen, name, list_key)):
            continue  # what is wrong then is judged with the entity
        what = "is gone" if seen is None else "neither notes that it is in it nor should be"
        wrong[key] = f"the list {list_key!r} has the key {key!r}, whose entity {what}"
    return wrong
