"""
Moves to another partition or table: what is sent, who reads and writes what meanwhile, and what faults leave.
"""

import asyncio
import datetime as dt
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any, Self

import pytest

from tableorm import (
    Conflict,
    Count,
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    IndexList,
    Mapped,
    ModelError,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    ReferenceNotFound,
    TableOrmError,
    Unavailable,
    UniqueViolation,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.models.marker_rows import is_marker
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.stores import CLOCK, Operation, Row, StoreLayer, StoreRequest, TableStore, Verb
from tableorm.testing.contract.base import everything
from tests.faults import QUICK, Fate, FaultyBackend
from tests.torture import every, seeds

HOUR = dt.timedelta(hours=1)

pytestmark = pytest.mark.usefixtures("quick_workers", "stopped_clock")


class Dept(Entity, table="Current", partition_key="{dep}", row_key="dept"):
    dep: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Mailed(Entity, abstract=True):
    dep: Mapped[str]
    text: Mapped[str] = field(default="")
    email: Mapped[str | None] = field(default=None)


class Person(Mailed, table="Current", partition_key="{dep}", row_key="person_{id:03d}"):
    id: Mapped[int] = field(default=1)

    by_email = Index(row_key="email_{email}", unique=True)
    listed = IndexList(row_key="list_{email}")
    by_text = Index(row_key="text_{text}_{id:03d}")
    mailed = IndexList(partition_key="mailed_{email}", row_key="mailed_{email}", consistency="eventual")
    by_mail = Index(partition_key="mail_{email}", row_key="mail_{dep}_{id:03d}", consistency="eventual")
    counted = Count(lambda: Dept.size, dep="{dep}")


class Old(Mailed, table="Archive", partition_key="{year}", row_key="{dep}_{id:03d}", kind="Old", tracked=True):
    year: Mapped[int]
    id: Mapped[int]


class Switching(StoreLayer):
    """Lets others run before and after each request."""

    def __init__(self, below: TableStore, chance: random.Random) -> None:
        super().__init__(below)
        self.chance = chance

    async def send(self, request: StoreRequest) -> Any:
        await self._let_others_run()
        try:
            return await super().send(request)
        finally:
            await self._let_others_run()

    async def _let_others_run(self) -> None:
        for _ in range(self.chance.choice([0, 0, 0, 1, 2, 5])):
            await asyncio.sleep(0)


class World:
    """
    A database behind a faulty network, with the departments a, b and c.

    Attributes:
        network: The network.
        db: The database.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        backend = FaultyBackend()
        self.network, self.chance = backend.tables, chance
        self.db = Database(backend, retry=QUICK)

    async def __aenter__(self) -> Self:
        await self.db.open()
        if self.chance is not None:
            connection_of(self.db).wrap_store(partial(Switching, chance=self.chance))
        await self.db.create_tables(Dept, Person, Old)
        await outbox_queues(connection_of(self.db)).create_queue(OUTBOX)
        for dep in "abc":
            await self.db.insert(Dept(dep=dep))
        self.person = Person(dep="a", text="t", email="e")
        await self.db.insert(self.person)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.db.close()

    async def recover(self) -> None:
        """Let everything arrive, and a worker do what is left."""
        self.network.plan()
        await self.network.deliver()
        connection = connection_of(self.db)
        for _ in range(30):
            CLOCK.advance(HOUR)
            async with self.db.worker(Person, Old, tries=99):
                for _ in range(300):
                    await asyncio.sleep(0)
            if await outbox_queues(connection).length(OUTBOX) == 0:
                return
        raise AssertionError("messages are left")

    async def rows(self) -> list[Row]:
        return [row for table in ("Current", "Archive") for row in await everything(self.network.store, table)]

    async def homes(self) -> dict[str, str]:
        """Return the text of each person that is found by its key, by department."""
        found = {dep: await self.db.get_or_none(Person, dep=dep, id=1) for dep in "abc"}
        return {dep: person.text for dep, person in found.items() if person is not None}

    async def check(self, *, dead: bool = False) -> None:
        """Check that nothing is left of moves, and that indexes and counts are right."""
        rows = await self.rows()
        marked = [row for row in rows if is_marker(row) and row.get("State") != "void"]
        # That a row was about to be moved means nothing any more.
        marked += [row for row in rows if "confirmed" in row.get("_mv", "")]
        if dead:
            marked = [row for row in marked if "#_tentative" not in row["EntityType"]]
        assert marked == []
        homes = await self.homes()
        assert {row["PartitionKey"] for row in rows if row.get("EntityType") == "Person"} == set(homes)
        assert {row["PartitionKey"] for row in rows if row.get("EntityType") == "Person#by_email"} == set(homes)
        for dep in "abc":
            assert (await self.db.get(Dept, dep=dep)).size == (dep in homes)
            entries = [person.text for person in await self.db.select(Person.by_text).where(Person.dep == dep).all()]
            assert entries == ([homes[dep]] if dep in homes else [])
            listed = [each for mail in "ei" for each in await self.db.lookup(Person.listed, dep=dep, email=mail)]
            assert [person.text for person in listed] == entries
        mails = {str(row.get("email")) for row in rows if row.get("EntityType") == "Person"}
        mailed = [await self.db.select(Person.by_mail).where(Person.email == mail).all() for mail in mails]
        assert {person.dep: person.text for found in mailed for person in found} == homes
        looked_up = [await self.db.lookup(Person.mailed, email=mail) for mail in mails]
        assert {person.dep: person.text for found in looked_up for person in found} == homes


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world


async def test_a_move_to_another_partition(world: World) -> None:
    """The entity has its new key, what was not saved, and what its model does not know; its index and counts follow."""
    db = world.db
    await db.store.write(
        "Current",
        Operation(
            Verb.MERGE, {"PartitionKey": "a", "RowKey": "person_001", "New": "n"}, if_match=str(world.person.etag)
        ),
    )
    person = await db.get(Person, dep="a", id=1)
    person.text = "u"
    await db.move(person, dep="b", id=1)

    assert person == await db.get(Person, dep="b", id=1) == Person(dep="b", text="u", email="e")
    assert person.etag == (await db.get(Person, dep="b", id=1)).etag
    assert dict(person.extra) == {"New": "n"}
    assert (await db.get(Person.by_email, dep="b", email="e")) == person
    await world.check()
    person.text = "v"
    await db.save(person)
    assert await world.homes() == {"b": "v"}
    await db.delete(person)
    await world.check()


async def test_an_archive(world: World) -> None:
    """An entity of another model has its fields and unknown properties, and is at a key of that model."""
    world.person.extra["New"] = "n"
    old = await world.db.archive(world.person, to=Old, year=2026)

    assert old == await world.db.get(Old, year=2026, dep="a", id=1)
    assert old == Old(year=2026, dep="a", id=1, text="t", email="e") and dict(old.extra) == {"New": "n"}
    await world.check()
    with pytest.raises(EntityNotFound):
        await world.db.refresh(world.person)


class Lossy(Entity, table="Archive", partition_key="{dep}", row_key="lossy_{id}", tracked=True):
    dep: Mapped[str]
    id: Mapped[int]


class Basis(Entity, table="Other", abstract=True):
    dep: Mapped[str]


class Kindless(Entity, table="Other", partition_key="{dep}", row_key="{id}", kind=None, tracked=True):
    dep: Mapped[str]
    id: Mapped[int]


Call = Callable[[Database, Person], Coroutine[Any, Any, object]]

REFUSED: list[tuple[Call, type[Exception], str]] = [
    (lambda db, p: db.archive(p, to=Lossy), ModelError, "Lossy, which has no field 'text'"),
    (lambda db, p: db.archive(p, to=Person), ModelError, "that is the model of the entity; use db.move"),
    (lambda db, p: db.archive(p, to=Basis), ModelError, "it is abstract; name one of its concrete classes"),
    (lambda db, p: db.archive(p, to=Kindless), NotSupported, "give the model a kind"),
    (lambda db, p: db.move(p, dep="missing"), ReferenceNotFound, "insert that first"),
    (lambda db, p: db.move(p, dep="a"), EncodeError, "the key that it has already"),
    (lambda db, p: db.move(Person(dep="a"), dep="b"), TableOrmError, "read"),
]


async def test_moves_that_are_refused(world: World) -> None:
    """Nothing is changed; the entity is as it was, and can be written."""
    rows = await world.rows()
    for call, error, words in REFUSED:
        with pytest.raises(error, match=words):
            await call(world.db, world.person)
        assert len(await world.rows()) == len(rows), words
    world.person.text = "u"
    await world.db.save(world.person)
    await world.recover()
    assert await world.homes() == {"a": "u"}


async def test_a_unique_value_is_taken(world: World) -> None:
    """An entity with the value of a unique index there stays; and so does the one that was to be moved."""
    await world.db.insert(Person(dep="c", id=2, text="other", email="e"))
    with pytest.raises(UniqueViolation):
        await world.db.move(world.person, dep="c")
    assert not [row for row in await world.rows() if is_marker(row)]
    world.person.text = "u"
    await world.db.save(world.person)
    await world.recover()
    assert await world.homes() == {"a": "u"}


# Faults

WRITES = 20  # of a move, with its messages and decision rows


FATES = [fate for fate in Fate if fate is not Fate.FINE]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("number", "fate"), every(7, product(range(WRITES), FATES)))
async def test_each_request_is_lost(number: int, fate: Fate) -> None:
    """Whatever happens to one request, the entity is in one place, and afterwards nothing is left of the move."""
    async with World() as world:
        world.network.plan(*[Fate.FINE] * number, fate)
        with suppress(OutcomeUnknown, Unavailable):
            await world.db.move(world.person, dep="b")
        assert list((await world.homes()).values()) == ["t"]
        await world.recover()
        assert list((await world.homes()).values()) == ["t"]
        await world.check()


ACTS = ("recover", "save", "modify", "delete", "upsert", "move", "back", "insert")


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("number", "act"), every(13, product(range(1, WRITES), ACTS)))
async def test_a_crash_before_each_request(world: World, number: int, act: str) -> None:
    """A worker completes a move; until then the entity is found at one key, and can be written there."""
    db = world.db
    world.network.plan(*[Fate.FINE] * number, *[Fate.LOST_REQUEST] * 999)
    with suppress(OutcomeUnknown, Unavailable):
        await db.move(world.person, dep="b")
    world.network.plan()
    homes = await world.homes()
    assert list(homes.values()) == ["t"]
    (home,) = homes
    found = await db.get(Person, dep=home, id=1)
    expected: dict[str, str] = {home: "t"}
    if act == "save":
        found.text, expected[home] = "u", "u"
        await db.save(found)
    elif act == "modify":
        await db.modify(Person, lambda each: each.evolve(text="u"), dep=home, id=1)
        expected[home] = "u"
    elif act == "upsert":
        await db.upsert(Person(dep=home, text="u", email="e"))
        expected[home] = "u"
    elif act == "delete":
        await db.delete(found)
        expected = {}
    elif act == "move":
        await db.move(found, dep="c")
        expected = {"c": "t"}
    elif act == "back" and home == "b":
        await db.move(found, dep="a")
        expected = {"a": "t"}
    elif act == "insert":
        with suppress(EntityExists):
            await db.insert(Person(dep="b", text="i", email="i"))
            expected["b"] = "i"
    assert await world.homes() == expected
    await world.recover()
    after = await world.homes()
    assert after == expected or (act in ("recover", "back") and list(after.values()) == ["t"])
    await world.check()


async def test_writers_meet_the_rows(world: World) -> None:
    """A writer at the old key is told where the entity is; at the new one transactions and bulks confirm it first."""
    for dep, write in (("b", "transaction"), ("c", "bulk")):
        person = next(iter([await world.db.get(Person, dep=each, id=1) for each in await world.homes()]))
        left = person.dep
        world.network.plan(*[Fate.FINE] * 5, *[Fate.LOST_REQUEST] * 999)
        with pytest.raises((OutcomeUnknown, Unavailable)):
            await world.db.move(person, dep=dep)
        world.network.plan()
        with pytest.raises(EntityNotFound, match=f"was moved to \\('{dep}', 'person_001'\\) in table Current"):
            await world.db.delete(Person, dep=left, id=1, if_match="*")
        found = await world.db.get(Person, dep=dep, id=1)
        assert found.etag is None and await world.db.exists(Person, dep=dep, id=1)
        if write == "transaction":
            async with world.db.transaction() as tx:
                await tx.modify(Person, lambda each: each.evolve(text="transaction"), dep=dep, id=1)
        else:
            found.text = write
            async with world.db.bulk() as bulk:
                await bulk.save(found)
        assert await world.homes() == {dep: write}
        await world.recover()
        await world.check()


async def test_a_move_whose_mark_nobody_heard_of_and_others_overwrote(world: World) -> None:
    """The mark was written, as its token in the row says, and is gone: so is the move, and the other write stays."""
    world.network.plan(Fate.LOST_REPLY)
    world.network.meanwhile = lambda: update(world.db, "a", "1")

    with pytest.raises(PreconditionFailed, match="another client may have changed its row since"):
        await world.db.move(world.person, dep="b")

    assert await world.homes() == {"a": "t1"}
    await world.recover()
    assert await world.homes() == {"a": "t1"}
    await world.check()


async def outcome_of(action: Callable[[], Coroutine[Any, Any, object]]) -> str:
    """Return what a user of the entity is told."""
    try:
        await action()
    except (EntityNotFound, EntityExists, PreconditionFailed, Conflict) as error:
        return type(error).__name__
    except (OutcomeUnknown, Unavailable):
        return "unknown"
    return "done"


async def update(db: Database, dep: str, text: str) -> None:
    person = await db.get(Person, dep=dep, id=1)
    person.text += text
    await db.save(person)


async def remove(db: Database, dep: str) -> None:
    await db.delete(await db.get(Person, dep=dep, id=1))


async def move(db: Database, dep: str, to: str) -> None:
    await db.move(await db.get(Person, dep=dep, id=1), dep=to)


@seeds(2, 3000)
async def test_users_at_the_same_time(seed: int) -> None:
    """Updates, deletes and moves of one entity: it has one home, no acknowledged update is lost, nothing comes back."""
    chance = random.Random(seed)
    async with World(chance) as world:
        db = world.db
        users = {
            "update a": lambda: update(db, "a", "1"),
            "update b": lambda: update(db, "b", "2"),
            "update c": lambda: update(db, "c", "3"),
            "delete a": lambda: remove(db, "a"),
            "delete b": lambda: remove(db, "b"),
            "move a b": lambda: move(db, "a", "b"),
            "move a c": lambda: move(db, "a", "c"),
            "move b c": lambda: move(db, "b", "c"),
            "move b a": lambda: move(db, "b", "a"),
        }
        names = ["move a b", *chance.sample(sorted(users), chance.randint(1, 3))]
        faults = chance.random() < 0.7
        if faults:
            world.network.fates = iter(lambda: chance.choice([*[Fate.FINE] * 12, *Fate]), None)
        acts = [asyncio.create_task(outcome_of(users[name])) for name in names]
        if chance.random() < 0.4:
            for _ in range(chance.randint(0, 120)):
                await asyncio.sleep(0)
            chance.choice(acts).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
            await world.network.deliver()
        await asyncio.wait(acts)
        await world.recover()
        homes = await world.homes()
        told = {name: "unknown" if act.cancelled() else act.result() for name, act in zip(names, acts, strict=True)}
        deletes = [told[name] for name in names if name.startswith("delete")]
        deleted = not {"done", "unknown", "EntityNotFound"}.isdisjoint(deletes)
        assert len(homes) == 1 or (not homes and deleted), (told, homes)
        for text in homes.values():
            for dep, sign in zip("abc", "123", strict=True):
                update_of_dep = told.get(f"update {dep}", "unknown")
                assert update_of_dep == "unknown" or (sign in text) is (update_of_dep == "done"), (told, homes)
        await world.check(dead=faults)
