"""
Random programs on entities that expire, against an oracle that knows the clock and what is stored.

After each step every way to read finds what the oracle says, and the counts and unique values are those of what is
stored, whether it has expired or not.
"""

import asyncio
import datetime as dt
from typing import Any

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tableorm import (
    Count,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    IndexList,
    Mapped,
    PreconditionFailed,
    TransactionFailed,
    connect,
    field,
    utc_now,
)
from tableorm.stores import CLOCK

HOUR = dt.timedelta(hours=1)


class Place(Entity, table="OracleLives", partition_key="{group}", row_key="place"):
    group: Mapped[str]
    items: Mapped[int] = field(default=0, maintained=True)


class Item(Entity, table="OracleLives", partition_key="{group}", row_key="item_{id}"):
    group: Mapped[str] = field(default="p")
    id: Mapped[int]
    tag: Mapped[str]
    code: Mapped[int | None] = field(default=None)
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    by_tag = Index(row_key="tag_{tag}_{id}", include=[])
    by_code = Index(row_key="code_{code}", unique=True, include="keys")
    of_tag = IndexList(row_key="list_{tag}")
    counted = Count(lambda: Place.items, create=True, group="{group}")


@attrs.define
class Stored:
    """What is stored under a key; each write makes another version."""

    tag: str
    code: int | None
    expires: dt.datetime | None
    version: int


numbers = st.integers(1, 4)
tags = st.sampled_from("xy")
codes = st.sampled_from([None, None, 7, 8])
hours = st.sampled_from([None, 0, 1, 2])


class Lives(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        CLOCK.freeze(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        self.runner = asyncio.Runner()
        self.db: Database = self.run(connect("local::memory:").open())
        self.run(self.db.create_tables(Item, Place))
        self.stored: dict[int, Stored] = {}
        self.held: dict[int, tuple[Item, int]] = {}
        self.versions = 0

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.run(self.check_reads())
            assert self.run(self.db.audit(Item, Place, parallel=1)).clean
            self.run(self.db.close())
            self.runner.close()
        CLOCK.reset()

    def run(self, call: Any) -> Any:
        async def wait() -> Any:
            return await call

        return self.runner.run(wait())

    def lives(self, number: int) -> bool:
        stored = self.stored.get(number)
        return stored is not None and (stored.expires is None or stored.expires > utc_now())

    def is_taken(self, number: int, code: int | None) -> bool:
        return code is not None and any(each.code == code for key, each in self.stored.items() if key != number)

    def note(self, item: Item) -> None:
        self.versions += 1
        self.stored[item.id] = Stored(item.tag, item.code, item.expires, self.versions)
        self.held[item.id] = item, self.versions

    def make(self, number: int, tag: str, code: int | None, after: int | None) -> Item:
        return Item(id=number, tag=tag, code=code, expires=None if after is None else utc_now() + after * HOUR)

    def try_insert(self, item: Item, call: Any) -> None:
        if self.lives(item.id) or self.is_taken(item.id, item.code):
            with pytest.raises((EntityExists, TransactionFailed)) as refused:
                self.run(call)
            assert isinstance(refused.value, EntityExists) or isinstance(refused.value.__cause__, EntityExists)
            return
        self.run(call)
        self.note(item)

    @rule(number=numbers, tag=tags, code=codes, after=hours)
    def insert(self, number: int, tag: str, code: int | None, after: int | None) -> None:
        item = self.make(number, tag, code, after)
        self.try_insert(item, self.db.insert(item))

    @rule(number=numbers, tag=tags, code=codes, after=hours)
    def insert_in_a_transaction(self, number: int, tag: str, code: int | None, after: int | None) -> None:
        item = self.make(number, tag, code, after)

        async def insert() -> None:
            async with self.db.transaction() as tx:
                tx.insert(item)
                if tag == "y":
                    tx.save(item)

        self.try_insert(item, insert())

    @rule(made=st.lists(st.tuples(tags, hours), min_size=4, max_size=4))
    def insert_many(self, made: list[tuple[str, int | None]]) -> None:
        items = [self.make(number, tag, None, after) for number, (tag, after) in enumerate(made, 1)]

        async def insert() -> None:
            async with self.db.bulk(errors="report") as bulk:
                for item in items:
                    await bulk.insert(item)

        expected = [item for item in items if not self.lives(item.id)]
        self.run(insert())
        for item in expected:
            self.note(item)

    @rule(number=numbers, tag=tags, after=hours)
    def replace(self, number: int, tag: str, after: int | None) -> None:
        item = self.make(number, tag, None, after)
        self.run(self.db.upsert(item, "replace"))
        self.note(item)

    @rule(number=numbers)
    def hold(self, number: int) -> None:
        item = self.run(self.db.get_or_none(Item, group="p", id=number))
        assert (item is not None) == self.lives(number)
        if item is not None:
            self.held[number] = item, self.stored[number].version

    @rule(number=numbers, tag=tags, after=hours)
    def save(self, number: int, tag: str, after: int | None) -> None:
        """What is in hand is saved, whether it has expired meanwhile or not, if it is still what is stored."""
        if number not in self.held:
            return
        item, version = self.held.pop(number)
        before = item.evolve()
        item.tag, item.expires = tag, None if after is None else utc_now() + after * HOUR
        if item == before:
            return  # nothing would be sent
        stored = self.stored.get(number)
        if stored is not None and stored.version == version:
            self.run(self.db.save(item))
            self.note(item)
            return
        try:
            self.run(self.db.save(item))
        except (EntityNotFound, PreconditionFailed):
            return
        raise AssertionError(f"{item} was saved")

    @rule(number=numbers)
    def delete(self, number: int) -> None:
        self.run(self.db.delete(Item, group="p", id=number, if_match="*", missing_ok=True))
        self.stored.pop(number, None)

    @rule()
    def delete_what_lives(self) -> None:
        self.run(self.db.select(Item).where(Item.group == "p").delete())
        self.stored = {number: each for number, each in self.stored.items() if not self.lives(number)}

    @rule(minutes=st.sampled_from([30, 60]))
    def wait(self, minutes: int) -> None:
        CLOCK.advance(dt.timedelta(minutes=minutes))

    @rule()
    def sweep(self) -> None:
        expired = [number for number in self.stored if not self.lives(number)]
        assert self.run(self.db.sweep(Item)).deleted == len(expired)
        for number in expired:
            del self.stored[number]

    @rule()
    def look(self) -> None:
        """Every way to read finds what lives."""
        self.run(self.check_reads())

    @invariant()
    def what_lives_is_found(self) -> None:
        if hasattr(self, "db"):
            self.run(self.check_entities())

    def live(self) -> dict[int, Stored]:
        return {number: each for number, each in self.stored.items() if self.lives(number)}

    async def check_entities(self) -> None:
        found = await self.db.select(Item).where(Item.group == "p").all()
        assert {each.id: (each.tag, each.code, each.expires) for each in found} == {
            number: (each.tag, each.code, each.expires) for number, each in self.live().items()
        }

    async def check_reads(self) -> None:
        live = self.live()
        assert await self.db.select(Item).where(Item.group == "p").count() == len(live)
        for tag in "xy":
            tagged = sorted(number for number, each in live.items() if each.tag == tag)
            query = self.db.select(Item.by_tag).where(Item.group == "p", Item.tag == tag)
            assert [each.id for each in await query.all()] == tagged
            assert [each.id for each in await self.db.lookup(Item.of_tag, group="p", tag=tag)] == tagged
        for code in (7, 8):
            coded = [number for number, each in live.items() if each.code == code]
            entity = await self.db.get_or_none(Item.by_code, group="p", code=code)
            assert ([] if entity is None else [entity.id]) == coded
        place = await self.db.get_or_none(Place, group="p")
        assert (0 if place is None else place.items) == len(self.stored)


TestLives = Lives.TestCase
