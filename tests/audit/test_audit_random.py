"""
Audits of random tables: what the mapper writes is right, and what anybody else does to it can be repaired.
"""

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Damage, Entity, Index, Mapped, PropertyBag, UniqueViolation, field
from tableorm.audit import audit as auditing
from tableorm.stores import RowQuery
from tests.databases import memory_database
from tests.rows import delete_row, merge_row, put_row
from tests.torture import examples


class Thing(Entity, table="Things", partition_key="p{group}", row_key="t_{n:03d}"):
    """Values of many types, in keys and beside them."""

    group: Mapped[int]
    n: Mapped[int]
    text: Mapped[str | None] = field(default=None)
    share: Mapped[float] = field(default=0.0)
    at: Mapped[dt.datetime | None] = field(default=None)
    mark: Mapped[uuid.UUID | None] = field(default=None)
    data: Mapped[bytes] = field(default=b"")
    tags: Mapped[list[str]] = field(factory=list)

    by_text = Index(row_key="x_{text}_{n:03d}")
    by_mark = Index(row_key="m_{mark}", unique=True, include="keys")
    by_time = Index(row_key="d_{at:ticks_desc}_{n:03d}", include=["share"], where=lambda e: e.share >= 0)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
things = st.builds(
    Thing,
    group=st.integers(0, 2),
    n=st.integers(0, 9),
    text=st.none() | texts,
    share=st.floats(allow_nan=False),
    at=st.none() | st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001
    mark=st.none() | st.sampled_from([uuid.UUID(int=number) for number in range(4)]),
    data=st.binary(max_size=4),
    tags=st.lists(texts, max_size=2),
)
verbs = st.sampled_from(["insert", "save", "replace", "merge", "upsert", "delete"])
harms = st.tuples(st.sampled_from(["delete", "change", "note", "kind", "copy"]), st.integers(0, 1_000))


async def written(db: Any, verb: str, thing: Thing) -> None:
    stored = await db.get_or_none(thing.key)
    try:
        if stored is None:
            await (db.upsert(thing, mode="replace") if verb == "upsert" else db.insert(thing))
        elif verb == "delete":
            await db.delete(stored)
        elif verb == "upsert":
            await db.upsert(thing)
        else:
            for name in ("text", "share", "at", "mark"):
                setattr(stored, name, getattr(thing, name))
            await (db.replace(stored) if verb == "replace" else db.save(stored))
    except UniqueViolation:
        pass


async def harmed(db: Any, what: str, which: int) -> None:
    """Something that a program does which knows nothing of copies."""
    rows = (await db.store.query("Things", RowQuery())).rows
    if not rows:
        return
    row = rows[which % len(rows)]
    keys = {"PartitionKey": row["PartitionKey"], "RowKey": row["RowKey"]}
    changes: dict[str, dict[str, Any]] = {
        "change": {"share": float(which), "text": f"changed{which % 3}"},
        "note": {"_ix": ("{}", "nonsense", '{"by_text":"x__000"}', '{"old":"x_gone"}')[which % 4]},
        "kind": {"_of": f"t_{which % 10:03d}"},
    }
    members = changes.get(what, {})
    if what == "delete":
        await delete_row(db, "Things", keys)
    elif what == "copy":
        if "#" not in row.get("EntityType", ""):
            return  # an entity under a key that is not of its template is not readable
        new = {**row, "RowKey": f"x_{row['RowKey']}"}
        await put_row(db, "Things", new)
    else:
        await merge_row(db, "Things", {**keys, **members})


@given(steps=st.lists(st.tuples(verbs, things), max_size=15))
async def test_what_the_mapper_writes_is_right(steps: Sequence[tuple[str, Thing]]) -> None:
    """Whatever the values and the verbs: an audit finds nothing."""
    async with memory_database(Thing) as db:
        for verb, thing in steps:
            await written(db, verb, thing)

        report = await db.audit(Thing, parallel=2)

        assert [str(finding) for finding in report.findings] == []
        assert report.entities == await db.select(Thing).allow_scan().count()


@given(steps=st.lists(things, max_size=12), damage=st.lists(harms, max_size=6))
async def test_what_others_do_can_be_repaired(steps: Sequence[Thing], damage: Sequence[tuple[str, int]]) -> None:
    """
    After a repair the entities are as they were left, an audit finds nothing but what is left to the user, and each
    index gives just the entities that belong into it.
    """
    async with memory_database(Thing) as db:
        for thing in steps:
            await written(db, "upsert", thing)
        for what, which in damage:
            await harmed(db, what, which)
        before = await entities(db)

        found = await db.audit(Thing)
        repaired = await db.audit(Thing, repair=True)
        after = await db.audit(Thing)

        left = {Damage.TAKEN, Damage.UNREADABLE, Damage.BLOCKED}
        assert (found.undecided, repaired.undecided, after.undecided) == (0, 0, 0)
        assert await entities(db) == before
        assert found.clean is (repaired.found == 0)
        if not left & {finding.damage for finding in repaired.findings}:
            assert repaired.clean
            assert [str(finding) for finding in after.findings] == []
            await check_indexes(db, before)


async def entities(db: Any) -> dict[tuple[str, str], Thing]:
    """All entities that can be read."""
    found: dict[tuple[str, str], Thing] = {}
    async for bag in db.select(PropertyBag, Thing).allow_scan():
        if isinstance(bag, Thing):
            found[bag.key.partition_key, bag.key.row_key] = bag
    return found


async def check_indexes(db: Any, stored: dict[tuple[str, str], Thing]) -> None:
    belonging = {
        Thing.by_text: [e for e in stored.values() if e.text is not None],
        Thing.by_mark: [e for e in stored.values() if e.mark is not None],
        Thing.by_time: [e for e in stored.values() if e.at is not None and e.share >= 0],
    }
    for index, wanted in belonging.items():
        found = await db.select(index).allow_scan().all()
        assert sorted((e.group, e.n) for e in found) == sorted((e.group, e.n) for e in wanted)


@examples(5, 1500)
@pytest.mark.parametrize("segment", [1, 7])
@given(steps=st.lists(things, min_size=8, max_size=12), damage=st.lists(harms, min_size=1, max_size=4))
async def test_segments_find_the_same(segment: int, steps: Sequence[Thing], damage: Sequence[tuple[str, int]]) -> None:
    """However small the parts are that are summed up, the same is found."""
    async with memory_database(Thing) as db:
        for thing in steps:
            await written(db, "upsert", thing)
        for what, which in damage:
            await harmed(db, what, which)
        whole = await db.audit(Thing, parallel=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(auditing, "SEGMENT", segment)

            parts = await db.audit(Thing, parallel=1)

        assert parts.findings == whole.findings and parts.entities == whole.entities
