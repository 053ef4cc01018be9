"""
Random programs of models that get new keys, in each phase, compared with a dictionary of what ought to be there.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tableorm import (
    Conflict,
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Int32,
    Mapped,
    MovedFrom,
    NotSupported,
    PreconditionFailed,
    TransactionFailed,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.expressions import Expression
from tableorm.rekey.phases import RekeyPhase, change_phase, load_phase
from tableorm_migrations import finalize_move, roll_back_move, run_move, seal_move, verify_move
from tableorm_migrations.rekey import phases, window
from tests import rekeys
from tests.torture import seeds

Keys = tuple[str, str, int]
"""Customer, shop and number; the shop is "" where it is not part of the newer key."""


class Part(Entity, table="OracleParts", tracked=True, partition_key="{shop}", row_key="part_{number:03d}"):
    shop: Mapped[str]
    number: Mapped[int]
    customer: Mapped[str]
    note: Mapped[str | None] = field(default=None)
    size: Mapped[Int32] = field(default=5)
    by_customer = Index(row_key="customer_{customer}_{number:03d}")


class NewPart(
    Entity,
    table="OracleNewParts",
    tracked=True,
    moved_from=MovedFrom(Part),
    partition_key="{customer}",
    row_key="part_{shop}_{number:03d}",
):
    customer: Mapped[str]
    shop: Mapped[str]
    number: Mapped[int]
    note: Mapped[str | None] = field(default=None)
    size: Mapped[Int32] = field(default=5)
    by_note = Index(row_key="note_{note}_{shop}_{number:03d}")


class Deal(Entity, table="OracleDeals", tracked=True, partition_key="{shop}", row_key="deal_{number:03d}"):
    shop: Mapped[str]
    number: Mapped[int]
    customer: Mapped[str | None]
    note: Mapped[str | None] = field(default=None)
    size: Mapped[Int32] = field(default=5)


def keys_of_deal(customer: str, number: int) -> list[dict[str, Any]]:
    del customer
    return [{"shop": shop, "number": number} for shop in "ab"]


def to_new_deal(old: Deal) -> "NewDeal":
    customer = old.customer or "p"
    return NewDeal(customer=customer, number=old.number, shop=old.shop, note=old.note, size=old.size)


def to_deal(new: "NewDeal") -> Deal:
    customer = None if new.customer == "p" else new.customer
    return Deal(customer=customer, number=new.number, shop=new.shop, note=new.note, size=new.size)


class NewDeal(
    Entity,
    table="OracleNewDeals",
    tracked=True,
    moved_from=MovedFrom(Deal, to_new=to_new_deal, to_old=to_deal, old_keys=keys_of_deal),
    partition_key="{customer}",
    row_key="deal_{number:03d}",
):
    customer: Mapped[str]
    number: Mapped[int]
    shop: Mapped[str]
    note: Mapped[str | None] = field(default=None)
    size: Mapped[Int32] = field(default=7)


class Oracle:
    """
    A database, and what ought to be in it.

    Args:
        db: The database.
        old: The older model.
        new: The newer model.
        random: Draws what is done.
    """

    def __init__(self, db: Database, old: Any, new: Any, random: Random) -> None:
        self.db, self.old, self.new, self.random = db, old, new, random
        self.phase = RekeyPhase.EXPAND
        self.expected: dict[Keys, dict[str, Any]] = {}

    def draw(self) -> tuple[Keys, dict[str, Any]]:
        """Draw a key, and an entity that may have it."""
        random = self.random
        customer, shop, number = random.choice("pq"), random.choice("ab"), random.randrange(3)
        values = {"shop": shop, "note": random.choice([None, "x", "y", ""]), "size": random.choice([5, 6, 7])}
        return (customer, shop if "shop" in self.new.__schema__.key_names else "", number), values

    def fields(self, keys: Keys) -> dict[str, Any]:
        """Return the fields of a newer key."""
        found = {"customer": keys[0], "shop": keys[1], "number": keys[2]}
        return {name: value for name, value in found.items() if name in self.new.__schema__.key_names}

    def make(self, keys: Keys, values: dict[str, Any]) -> Any:
        """Return an entity of the newer model."""
        return self.new(customer=keys[0], number=keys[2], **values)

    def is_free(self, keys: Keys, shop: str) -> bool:
        """Return whether no entity has an older key, or keys by the older model do not count any more."""
        if self.phase in (RekeyPhase.SEALED, RekeyPhase.DONE):
            return True
        return all((each["shop"], other[2]) != (shop, keys[2]) for other, each in self.expected.items())

    # What is done

    async def insert(self, keys: Keys, values: dict[str, Any]) -> None:
        verb = self.random.choice(["insert", "get_or_insert", "old"])
        allowed = keys not in self.expected and self.is_free(keys, values["shop"])
        if verb == "old" and (self.phase not in (RekeyPhase.EXPAND, RekeyPhase.MOVE) or keys in self.expected):
            return
        try:
            if verb == "old":
                await self.db.insert(self.old(customer=keys[0], number=keys[2], **values))
            elif verb == "insert":
                await self.db.insert(self.make(keys, values))
            else:
                _, made = await self.db.get_or_insert(self.make(keys, values))
                assert made == allowed
        except EntityExists:
            # What an entity of another key has left is known to programs of the newer model alone.
            assert not allowed or (verb == "old" and self.phase is RekeyPhase.MOVE)
            return
        assert allowed or (verb == "get_or_insert" and keys in self.expected)
        self.expected.setdefault(keys, values)

    async def upsert(self, keys: Keys, values: dict[str, Any]) -> None:
        if keys in self.expected and self.expected[keys]["shop"] != values["shop"]:
            return  # another older key
        allowed = keys in self.expected or self.is_free(keys, values["shop"])
        try:
            await self.db.upsert(self.make(keys, values), "replace")
        except EntityExists:
            assert not allowed
        except NotSupported:
            assert self.phase in (RekeyPhase.EXPAND, RekeyPhase.BACK)
        else:
            assert allowed
            self.expected[keys] = values

    async def change(self, keys: Keys, values: dict[str, Any]) -> None:
        found = await self.db.get_or_none(self.new, **self.fields(keys))
        if found is None:
            return
        verb = self.random.choice(["save", "replace", "modify", "stale", "shop", "refresh", "old"])
        note = values["note"]

        def take_note(each: Any) -> None:
            each.note = note

        if verb == "old":
            await self.change_older(keys, note)
            return
        if verb == "modify":
            await self.db.modify(found, take_note)
        elif verb == "shop":
            found.shop = "a" if found.shop == "b" else "b"
            if "shop" in found.__schema__.key_names:
                return
            try:
                await self.db.save(found)
            except EncodeError:
                assert self.phase not in (RekeyPhase.SEALED, RekeyPhase.DONE)
            else:
                assert self.phase in (RekeyPhase.SEALED, RekeyPhase.DONE)
                self.expected[keys] = {**self.expected[keys], "shop": found.shop}
            return
        else:
            other = await self.db.get(self.new, **self.fields(keys))
            found.note = note
            await (self.db.replace if verb == "replace" else self.db.save)(found)
            if verb == "refresh":
                await self.db.refresh(other)
                assert other.note == note
            if verb == "stale" and note != other.note:
                other.note = "lost"
                with pytest.raises(PreconditionFailed):
                    await self.db.save(other)
        self.expected[keys] = {**self.expected[keys], "note": note}

    async def change_older(self, keys: Keys, note: str | None) -> None:
        """Save or delete an entity by the older model, which sees what has not moved."""
        found = await self.db.get_or_none(self.old, shop=self.expected[keys]["shop"], number=keys[2])
        if found is None:
            assert self.phase is not RekeyPhase.EXPAND
        elif self.random.random() < 0.5:
            found.note = note
            await self.db.save(found)
            self.expected[keys] = {**self.expected[keys], "note": note}
        else:
            await self.db.delete(found)
            del self.expected[keys]

    async def delete(self, keys: Keys, values: dict[str, Any]) -> None:
        del values
        try:
            await self.db.delete(self.new, if_match="*", **self.fields(keys))
        except EntityNotFound:
            assert keys not in self.expected
        else:
            del self.expected[keys]

    async def transact(self, keys: Keys, values: dict[str, Any]) -> None:
        """Change some entities of a customer, and perhaps insert one."""
        same = [each for each in self.expected if each[0] == keys[0]]
        found = [await self.db.get(self.new, **self.fields(each)) for each in same]
        inserts = keys not in self.expected and self.is_free(keys, values["shop"])
        try:
            async with self.db.transaction() as tx:
                for each in found:
                    each.note = values["note"]
                    tx.save(each)
                if inserts:
                    tx.insert(self.make(keys, values))
        except TransactionFailed:
            assert self.phase in (RekeyPhase.EXPAND, RekeyPhase.BACK)
            return
        self.expected.update({each: {**self.expected[each], "note": values["note"]} for each in same})
        if inserts:
            self.expected[keys] = values

    async def go_on(self, keys: Keys, values: dict[str, Any]) -> None:
        """Do a step of the re-key, or a part of one."""
        del keys, values
        db, new, random = self.db, self.new, self.random
        connection, rekeying = connection_of(db), rekeys.rekeying_of(self.new)
        choices = {
            RekeyPhase.EXPAND: ["begin", "move"],
            RekeyPhase.MOVE: ["some", "move", "move", "back", "leave", "seal"],
            RekeyPhase.BACK: ["back"],
            RekeyPhase.SEALED: ["finalize"],
            RekeyPhase.DONE: [""],
        }
        step = random.choice(choices[self.phase])
        if step in ("begin", "leave"):
            read = await load_phase(connection, rekeying)
            self.phase = RekeyPhase.MOVE if step == "begin" else RekeyPhase.BACK
            await change_phase(connection, rekeying, read, self.phase)
        elif step == "some":
            report = await rekeys.move(db, new, random.randrange(3))
            assert not report.failures
        elif step in ("move", "seal"):
            assert (await run_move(db, new, no_blind_writers=True)).complete
            self.phase = RekeyPhase.MOVE
            assert (await verify_move(db, new)).complete
            if step == "seal":
                assert (await seal_move(db, new, no_old_programs=True)).complete
                self.phase = RekeyPhase.SEALED
        elif step == "back":
            assert (await roll_back_move(db, new)).complete
            self.phase = RekeyPhase.EXPAND
            assert await db.select_raw(new.__schema__.table_name()).allow_scan().count() == 0
        elif step == "finalize":
            assert (await finalize_move(db, new)).complete
            self.phase = RekeyPhase.DONE
            assert await db.select_raw(self.old.__schema__.table_name()).allow_scan().count() == 0

    # What ought to be there

    async def check(self) -> None:
        """Compare what reads and queries find with what ought to be there."""
        own, random, new = self.expected, self.random, self.new
        for keys in {self.draw()[0] for _ in range(30)} | own.keys():
            found = await self.db.get_or_none(new, **self.fields(keys))
            assert (None if found is None else values_of(found)) == own.get(keys)
        conditions: dict[str, tuple[Expression | None, Callable[[Keys, dict[str, Any]], bool]]] = {
            "all": (None, lambda _, __: True),
            "customer": (new.customer == "p", lambda keys, _: keys[0] == "p"),
            "none": (new.note.is_none(), lambda _, each: each["note"] is None),
            "size": (new.size > 5, lambda _, each: each["size"] > 5),
            "either": ((new.customer == "q") | (new.shop == "a"), lambda k, each: k[0] == "q" or each["shop"] == "a"),
            "not": (~(new.size == 5), lambda _, each: each["size"] != 5),
            "other": (new.note != "x", lambda _, each: each["note"] not in (None, "x")),
        }
        where, is_wanted = conditions[random.choice([*conditions])]
        query = self.db.select(new) if where is None else self.db.select(new).where(where)
        wanted = sorted(keys for keys, each in own.items() if is_wanted(keys, each))
        limit = random.choice([None, 1, 2])
        found = await (query if limit is None else query.limit(limit)).allow_scan().all()
        some = wanted if limit is None else wanted[:limit]
        assert [(values_of(each), each.customer, each.number) for each in found] == [
            (own[keys], keys[0], keys[2]) for keys in some
        ]
        assert await query.allow_scan().count() == len(wanted)


def values_of(entity: Any) -> dict[str, Any]:
    return {"shop": entity.shop, "note": entity.note, "size": entity.size}


@asynccontextmanager
async def opened(old: type[Entity], new: type[Entity], random: Random) -> AsyncGenerator[Oracle]:
    """Open a database in which some entities have their older keys."""
    async with connect("local::memory:") as db:
        await db.create_tables(old, new)
        oracle = Oracle(db, old, new, random)
        for _ in range(4):
            keys, values = oracle.draw()
            if keys not in oracle.expected and oracle.is_free(keys, values["shop"]):
                await db.insert(oracle.old(customer=keys[0], number=keys[2], **values))
                oracle.expected[keys] = values
        yield oracle


@pytest.mark.parametrize(("old", "new"), [(Part, NewPart), (Deal, NewDeal)])
@seeds(8, 400)
async def test_programs_find_what_they_have_written(
    seed: int, old: type[Entity], new: type[Entity], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each phase reads, queries and writes do what they would without a re-key; what is refused changes nothing."""
    monkeypatch.setattr(phases, "KNOWN_EVERYWHERE", 0.0)
    monkeypatch.setattr(window, "_PAUSE", 0.0)
    random = Random(seed)
    async with opened(old, new, random) as oracle:
        await oracle.check()
        for _ in range(40):
            keys, values = oracle.draw()
            verbs = [oracle.insert] * 2 + [oracle.change] * 3
            verbs += [oracle.upsert, oracle.delete, oracle.transact, oracle.go_on]
            verb = random.choice(verbs)
            try:
                await verb(keys, values)
            except EntityExists:
                raise
            except Conflict:
                assert oracle.phase is RekeyPhase.BACK  # the older key of what was deleted is not free yet
            rekeys.set_phase(oracle.db, new, oracle.phase)
            await oracle.check()
