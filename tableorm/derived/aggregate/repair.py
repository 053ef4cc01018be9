"""
Entities that keep counts and sums, judged: whether these are what the entities of the partition make them.

Whoever changes what an entity adds writes the keeper too. So if that has the same ETag before and after all entities
were gone through, they added just that all the time. Many keepers of a partition are judged at once.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any

import attrs

from ...audit.check import EntitySnapshot, kind_of
from ...audit.report import AuditCounts, Damage, Finding
from ...audit.rows import AuditContext
from ...audit.scan import pages
from ...connection.connection import TURN
from ...errors import Conflict, DecodeError, EntityNotFound, OutcomeUnknown
from ...keys.ranges import KeyRegion
from ...models.manifest import manifest_of
from ...stores import Bounds, Operation, Row, Verb
from ...writes.commit import commit
from ...writes.stages.change import insert_change
from ...writes.stages.encode import encode
from .aggregate import AggregateMaintainer
from .audit import Keeps, added
from .schema import AggregateSchema

__all__ = ["judge_keepers"]

_SWEEPS = 6
"""How often all entities of a partition are gone through for its counts, before they are left as undecided."""


@attrs.define(eq=False)
class _Sweep:
    """
    What the entities of a partition add.

    Args:
        totals: By RowKey of the keeper, and property.
        adders: By RowKey of the keeper, an entity that adds to it, and the declaration.
        unsettled: RowKeys of entities that note something else than they ought to add.
    """

    totals: defaultdict[tuple[str, str], int] = attrs.Factory(lambda: defaultdict[tuple[str, str], int](int))
    adders: dict[str, tuple[str, AggregateSchema]] = attrs.Factory(dict[str, tuple[str, AggregateSchema]])
    unsettled: list[str] = attrs.Factory(list[str])


async def judge_keepers(
    look: AuditContext,
    partition_key: str,
    keepers: Collection[str],
    entity: Callable[[str, str, AuditCounts], Awaitable[None]],
    tally: AuditCounts,
) -> None:
    """
    Verifier the counts and sums that some entities of a partition keep.

    Args:
        look: Knows the rows.
        partition_key: The partition.
        keepers: RowKeys of the entities.
        entity: Judges, and repairs, an entity that adds to them.
        tally: Gets the findings.
    """
    left, helped = set(keepers), set[str]()
    for attempt in range(_SWEEPS):
        await look.pause(attempt)
        order = sorted(left)
        before = dict(zip(order, await look.read_all(partition_key, order, tally), strict=True))
        sweep = await _swept(look, partition_key, left, helped, tally)
        if look.repair and sweep.unsettled:
            for row_key in sweep.unsettled:
                await entity(partition_key, row_key, tally)
            helped.update(sweep.unsettled)
            continue
        for row_key in order:
            if await _judged(look, partition_key, row_key, before[row_key], sweep, tally):
                left.discard(row_key)
        if not left:
            return
    tally.undecided += len(left)


async def _swept(
    look: AuditContext, partition_key: str, keepers: Collection[str], helped: Collection[str], tally: AuditCounts
) -> _Sweep:
    """Go through all rows of a partition: other programs may count what this one does not know."""
    sweep = _Sweep()
    where = [KeyRegion(Bounds.only(partition_key))]
    async with aclosing(pages(look.db, look.kinds.table, None, where, tally, "audit")) as found:
        async for rows in found:
            for start in range(0, len(rows), TURN):
                some = rows[start : start + TURN]
                for row in some:
                    _add(look, row, keepers, helped, sweep)
                await look.db.yield_to_loop(len(some))
    return sweep


def _add(look: AuditContext, row: Row, keepers: Collection[str], helped: Collection[str], sweep: _Sweep) -> None:
    seen, row_key = look.seen(row), row["RowKey"]
    if seen is None:
        if "#" in kind_of(row):
            return
        try:
            marks: Mapping[str, object] = {name: each.to_json() for name, each in manifest_of(row).items()}
        except DecodeError:
            marks = {}
        declared: Mapping[str, AggregateSchema] = {}
    else:
        marks, declared = seen.marks, _declared(look, seen)
    due: Mapping[str, object] = {} if seen is None else seen.due
    for name in {**declared, **marks}:
        mark = marks.get(name)
        if name in declared and mark != due.get(name):
            concerned = any(keeper in keepers for each in (mark, due.get(name)) for keeper, _, _ in added(each))
            if concerned and row_key not in helped:
                sweep.unsettled.append(row_key)
            # What could not be repaired takes back what it notes when it is written next.
            mark = mark if look.repair else due.get(name)
        for keeper, property_, amount in added(mark):
            if keeper in keepers:
                sweep.totals[keeper, property_] += amount
                if name in declared:
                    sweep.adders.setdefault(keeper, (row_key, declared[name]))


def _declared(look: AuditContext, seen: EntitySnapshot) -> Mapping[str, AggregateSchema]:
    return {
        name: each.aggregate
        for name, each in seen.schema.derived_as(AggregateMaintainer).items()
        if each.aggregate in look.aggregates
    }


async def _judged(
    look: AuditContext, partition_key: str, row_key: str, row: Row | None, sweep: _Sweep, tally: AuditCounts
) -> bool:
    """Whether it is known if a keeper is right; then it is recorded, and repaired."""
    if row is None:
        return await _absent(look, partition_key, row_key, sweep, tally)
    seen = look.seen(row)
    if seen is None or seen.age != "current" or seen.problem is not None:
        return True  # what is wrong with it is said elsewhere
    findings: list[Finding] = []
    members: Row = {}
    for check in look.checks(seen):
        for info in check.fields if isinstance(check, Keeps) else ():
            assert isinstance(check, Keeps)
            total = sweep.totals.get((row_key, info.property), 0)
            if check.counted(row, info) == total:
                continue
            wanted = check.members(info, total)
            members |= wanted or {}
            text = f"{info.name} is {row.get(info.property)}, and the entities make it {check.wanted(info, total)}"
            finding = Finding(Damage.STALE, seen.schema.name, info.name, partition_key, row_key, row_key, text)
            findings.append(attrs.evolve(finding, repaired=look.repair and wanted is not None))
    if members and look.repair:
        keys = {"PartitionKey": partition_key, "RowKey": row_key}
        if not await look.send([Operation(Verb.MERGE, {**keys, **members}, row["odata.etag"])], tally):
            return False
    else:
        again = await look.read(partition_key, row_key, tally)
        if again is None or again["odata.etag"] != row["odata.etag"]:
            return False
    for finding in findings:
        tally.record(finding)
    return True


async def _absent(look: AuditContext, partition_key: str, row_key: str, sweep: _Sweep, tally: AuditCounts) -> bool:
    """An entity that is counted in one that does not exist, both at the same time."""
    adder = sweep.adders.get(row_key)
    if adder is None:
        return await look.read(partition_key, row_key, tally) is None
    by, declared = adder
    first = await look.read(partition_key, by, tally)
    missing = await look.read(partition_key, row_key, tally) is None
    again = await look.read(partition_key, by, tally)
    if first is None or again is None or not missing or first["odata.etag"] != again["odata.etag"]:
        return False
    seen = look.seen(first)
    if seen is None or all(keeper != row_key for keeper, _, _ in added(seen.due.get(declared.name))):
        return False
    target, create = declared.target[0], declared.declared.create
    text = f"it is counted in the {target.name} {row_key!r} of this partition, which does not exist; so may be others"
    repaired = False
    if create and look.repair:
        holder: Any = declared.make_holder(partition_key, row_key)
        write = encode(insert_change(holder), 0)
        assert write is not None
        try:
            tally.requests += 1
            await commit(look.db, (write,))
        except (Conflict, EntityNotFound, OutcomeUnknown):
            return False
        repaired = True
    damage = Damage.MISSING if create else Damage.DANGLING
    tally.record(Finding(damage, seen.schema.name, declared.name, partition_key, by, row_key, text, repaired))
    return not repaired  # then what it keeps is judged
