"""
Values that are unique across partitions, on a network that fails: at no time two entities have one, and none is lost.

Here several writers claim the same values at the same time, or values that are on their way. `plans.py` has what one
writer does, each request of which meets each fault.
"""

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import product

import pytest

from tableorm import Database, TableOrmError, UniqueViolation
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import PlacedEntry
from tableorm.outbox.doorbell import Begun, Claim
from tableorm.outbox.reservations import abandon
from tableorm.protocol.codes import Fault
from tableorm.stores import CLOCK, Operation, TableStore, Verb
from tableorm.testing import MemoryStore
from tableorm.testing.contract.base import everything
from tests.faults import Fate, FaultyStore
from tests.outbox.members import Member, Watched, extra_reservations, members_of, reservations_of, wrong_reservations
from tests.outbox.network import HOUR, Jittery, Mortal, connected
from tests.outbox.plans import join
from tests.outbox.staff import committed_decisions, recover
from tests.rows import insert_row
from tests.torture import seeds

pytestmark = pytest.mark.usefixtures("quick_workers", "stopped_clock")


async def move(db: Database) -> None:
    await db.move(await db.get(Member, town="Bern", id=1), id=2)


async def one_member() -> MemoryStore:
    """Return a store with a member."""
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Member)
        await join(db)
    return store


async def check_recovered(store: TableStore) -> None:
    """Every address is reserved for who has it once workers have done what was left, and others can be claimed."""
    async with connected(store) as db:
        for _ in range(3):
            CLOCK.advance(HOUR)
            await recover(db, Member)
        assert await committed_decisions(store, "Guild") == []
        assert await wrong_reservations(store) == []
        held = {member.get("email") for member in await members_of(store)}
        for number, email in enumerate({*await reservations_of(store), "a@x", "b@x", "c@x", "d@x"}):
            newcomer = Member(town="Oslo", id=number, email=email)
            if email in held:
                with pytest.raises(UniqueViolation):
                    await db.insert(newcomer)
            else:
                await db.insert(newcomer)
        assert await wrong_reservations(store) == []


async def test_a_writer_that_dies_before_its_commit() -> None:
    """Workers give back what it has reserved."""
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Member)
    async with connected(Mortal(store, 4, arrives=False)) as db:
        with suppress(Exception):  # what it would have said, nobody hears
            await join(db)
    assert (await members_of(store), await extra_reservations(store)) == ([], {"a@x"})

    async with connected(store) as db:
        CLOCK.advance(HOUR)
        await recover(db, Member)
    assert await extra_reservations(store) == set()


EMAILS = [None, "a@x", "b@x", "c@x"]


async def write_something(db: Database, chance: random.Random) -> None:
    """Do any verb to one of four entities in two partitions."""
    town, number, email = chance.choice(["Bern", "Rome"]), chance.choice([1, 2]), chance.choice(EMAILS)
    key = Member.key(town=town, id=number)

    def set_email(member: Member) -> None:
        member.email = email

    match chance.randrange(6):
        case 0:
            await db.insert(Member(town=town, id=number, email=email))
        case 1:
            await db.delete(key, if_match="*", missing_ok=True)
        case 2:
            await db.upsert(Member(town=town, id=number, email=email))
        case 3:
            await db.move(await db.get(key), id=3 - number)
        case 4:
            async with db.transaction() as tx:
                one, two = await tx.get(Member, town=town, id=1), await tx.get(Member, town=town, id=2)
                one.email, two.email = two.email, one.email
                tx.save(one)
                tx.save(two)
        case _:
            await db.modify(key, set_email)


class WatchedJittery(Watched, Jittery):
    """A network on which requests overtake each other, where no two members may have one address."""


@pytest.mark.parametrize("faults", [[], [Fate.LOST_REQUEST, Fate.LOST_REPLY]], ids=["races", "faults"])
@seeds(2, 600)
async def test_writers_that_race(seed: int, faults: Sequence[Fate]) -> None:
    """Whatever three writers, two workers and audits do together, no two entities have one value, at any time."""
    CLOCK.freeze(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))  # when the store's time begins: nothing gets a day old
    chance = random.Random(seed)
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Member)
        for town, number in product(("Bern", "Rome"), (1, 2)):
            await db.insert(Member(town=town, id=number))

    async def write(count: int) -> None:
        async with connected(WatchedJittery(store, chance, faults)) as db:
            for _ in range(count):
                with suppress(TableOrmError):
                    await write_something(db, chance)

    async def work() -> None:
        async with connected(WatchedJittery(store, chance, faults)) as db:
            for _ in range(4):
                CLOCK.advance(HOUR)  # so that it takes messages of writers that still work
                with suppress(TableOrmError, Fault):
                    await recover(db, Member)
                    await db.audit(Member, repair=chance.choice([True, False]))

    await asyncio.gather(*(write(5) for _ in range(3)), *(work() for _ in range(2)))
    await check_recovered(Watched(store))


@seeds(2, 300)
async def test_a_value_that_many_claim(seed: int) -> None:
    """Of three writers that claim one value at the same time, exactly one gets it; the others learn who has it."""
    chance = random.Random(seed)
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Member)

    async def claim(town: str) -> str:
        async with connected(WatchedJittery(store, chance, [])) as db:
            try:
                await db.insert(Member(town=town, id=1, email="a@x"))
            except UniqueViolation as error:
                return str(error)
            return "got it"

    results = await asyncio.gather(*map(claim, ("Bern", "Rome", "Oslo")))

    assert results.count("got it") == 1
    assert sum("', 'member_001') has email='a@x' already" in each for each in results) == 2
    assert await wrong_reservations(store) == []
    assert await extra_reservations(store) == set()


# A value that is handed over, until the reservation has followed

PLACE = PlacedEntry("email_a@x", "taken", "GuildEmails")


async def test_a_value_on_its_way_is_not_taken_over() -> None:
    """Who wants it finds the entity that has got it, and a late message of the claim before takes nothing back."""
    store = await one_member()
    first = (await reservations_of(store))["a@x"]["_v"]
    async with connected(Mortal(store, 1, arrives=True)) as db:
        with suppress(Exception):  # it dies when its transaction has committed
            await move(db)
    assert (await reservations_of(store))["a@x"]["_v"] == first

    async with connected(Watched(store)) as db:
        late = Begun(table="Guild", partition_key="Bern", token=first, claims=(Claim("member_001", PLACE),))
        for _ in range(2):
            with pytest.raises(UniqueViolation, match=r"the entity \('Bern', 'member_002'\) has email='a@x' already"):
                await db.insert(Member(town="Rome", id=1, email="a@x"))
            await abandon(connection_of(db), late)
    await check_recovered(Watched(store))
    assert (await members_of(store))[0]["RowKey"] == "member_002"


class Interrupted(FaultyStore):
    """A network on which others act just before a reservation is replaced, or just after that."""

    def __init__(self, store: TableStore, act: Callable[[], Awaitable[None]], *, after: bool = False) -> None:
        super().__init__(store)
        self._act, self._after = act, after

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        replaces = table == "GuildEmails" and operations[0].verb is Verb.REPLACE
        if replaces and not self._after:
            await self._act()
        etags = await super()._arrive(table, operations, transaction=transaction)
        if replaces and self._after:
            await self._act()
        return etags


async def test_a_value_that_is_given_up_on_its_way() -> None:
    """If its entity is deleted before the reservation has followed, the reservation goes too."""
    store = await one_member()

    async def delete_moved() -> None:
        async with connected(store) as other:
            await other.delete(Member.key(town="Bern", id=2), if_match="*")

    async with connected(Interrupted(store, delete_moved)) as db:
        await move(db)

    assert await members_of(store) == [] and await reservations_of(store) == {}


async def test_a_value_that_is_handed_on_on_its_way() -> None:
    """If its entity has handed it on when the reservation has followed, the reservation stays for the next one."""
    store = await one_member()

    async def hand_on() -> None:
        async with connected(Mortal(store, 1, arrives=True)) as other:
            with suppress(Exception):  # it dies when its transaction has committed
                await other.move(await other.get(Member, town="Bern", id=2), id=3)

    async with connected(Interrupted(store, hand_on, after=True)) as db:
        await move(db)

    assert [row["RowKey"] for row in await members_of(store)] == ["member_003"]
    assert list(await reservations_of(store)) == ["a@x"]
    await check_recovered(Watched(store))


async def test_a_forged_message_gives_nothing_back() -> None:
    """A worker releases only what is reserved for the entity that the message names, and voids no claim of others."""
    store = await one_member()
    row = {"EntityType": "Member#by_email", "_of": '["Guild","Bern","member_009"]', "_v": "x" * 12}
    keys = {"PartitionKey": "email_z@x", "RowKey": "taken"}
    await insert_row(store, "GuildEmails", {**keys, **row})
    place = PlacedEntry("email_z@x", "taken", "GuildEmails")

    async with connected(store) as db:
        for partition, name in (("Rome", "member_009"), ("Bern", "member_001")):
            claims = (Claim(name, place),)
            begun = Begun(table="Guild", partition_key=partition, token="x" * 12, claims=claims)
            await abandon(connection_of(db), begun)

    assert "z@x" in await reservations_of(store)
    assert not [row for row in await everything(store, "Guild") if row["RowKey"].startswith("~o_x")]
