"""
Reads of entities by their newer keys, wherever they are: in each phase, and while they move.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tableorm import (
    Database,
    DecodeError,
    Entity,
    EntityNotFound,
    Index,
    Key,
    Mapped,
    MovedFrom,
    NotSupported,
    OutcomeUnknown,
    PropertyBag,
    WrongKind,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.rekey.phases import RekeyPhase
from tableorm.stores import StoreRequest, TableStore
from tests.faults import Fate, FaultyStore
from tests.rekeys import Turns, finalize, kinds_of, move, opened, roll_back, set_phase
from tests.torture import seeds
from tests.unfinished_moves import database_on


class AnyHop(Entity, abstract=True):
    """What hops have by either key."""

    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")


class Hop(AnyHop, table="RekeyedReads", partition_key="{day}", row_key="hop_{id}"):
    by_text = Index(row_key="by_text_{text}_{id}")


class NewHop(AnyHop, table="RekeyedReads", partition_key="{id}", row_key="day_{day}", moved_from=MovedFrom(Hop)):
    by_text = Index(row_key="text_{text}_{day}")


HOP = NewHop.key(day="mon", id=1)


class Owned(Entity, abstract=True):
    """What has an owner."""

    owner: Mapped[str]
    id: Mapped[int]


class Leg(Owned, table="RekeyedReadsLegs", tracked=True, partition_key="{owner}", row_key="{id}"): ...


def keys_of_leg(id: int) -> list[dict[str, Any]]:  # noqa: A002
    return [{"owner": owner, "id": id} for owner in ("nobody", "ann", "ben")]


class NewLeg(
    Owned,
    table="RekeyedReadsNewLegs",
    partition_key="legs",
    row_key="{id}",
    moved_from=MovedFrom(
        Leg,
        to_new=lambda leg: None if leg.owner == "nobody" else NewLeg(owner=leg.owner, id=leg.id),
        old_keys=keys_of_leg,
    ),
): ...


class Leap(Owned, table="RekeyedReadsLegs", tracked=True, partition_key="leap_{owner}", row_key="{id}"): ...


class Base(Entity, table="RekeyedReadsBase", abstract=True):
    id: Mapped[int]


class Other(Base, partition_key="o_{id}", row_key="o"):
    pass


class NewLeap(Base, partition_key="b_{id}", row_key="{owner}", moved_from=MovedFrom(Leap)):
    owner: Mapped[str]


class Spot(Owned, table="RekeyedReadsLegs", tracked=True, partition_key="spot_{owner}", row_key="{id}"): ...


class NewSpot(
    Owned, table="RekeyedReadsSpots", partition_key="{owner:spread(4)}", row_key="{id}", moved_from=MovedFrom(Spot)
): ...


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Hop 1 of monday has its older key."""
    async with database_on(network, Hop, NewHop, Leg, NewLeg, Leap, NewLeap, NewSpot) as db:
        await db.insert(Hop(day="mon", id=1, text="t"))
        yield db


async def reads(db: Database) -> set[bool]:
    """Return what each way to read hop 1 says of it."""
    found = [
        await db.get_or_none(NewHop, day="mon", id=1),
        await db.get_or_none(HOP),
        *await db.get_many([HOP]),
        await db.get_or_none(NewHop.by_text, id=1, text="t", day="mon"),
    ]
    answers = {each is not None for each in found}
    assert all(each is None or (each.day, each.id, each.text) == ("mon", 1, "t") for each in found)
    answers |= {await db.exists(NewHop, day="mon", id=1), await db.exists(HOP)}
    try:
        hop = found[0] or NewHop(day="mon", id=1)
        await db.get(HOP)
    except EntityNotFound:
        answers.add(False)
    else:
        hop.text = "lost"
        await db.refresh(hop)
        assert hop.text == "t"
        answers.add(True)
    return answers


@pytest.mark.parametrize("phase", [RekeyPhase.EXPAND, RekeyPhase.MOVE, RekeyPhase.BACK])
@pytest.mark.parametrize("writes", [0, 1, 2, 3])
async def test_each_row_of_a_mover(db: Database, network: FaultyStore, phase: RekeyPhase, writes: int) -> None:
    """An entity is found after each write of a mover, in each phase that a program may know."""
    set_phase(db, NewHop, RekeyPhase.MOVE)
    network.plan(*[Fate.FINE] * writes, *[Fate.LOST_REQUEST] * 99)
    with suppress(OutcomeUnknown):
        await move(db, NewHop)
    network.plan()
    set_phase(db, NewHop, phase)
    if writes == 2:  # an entry of a tentative row is tentative: it is found by its key alone, until it is confirmed
        assert (await db.get(HOP)).text == "t"
        await db.refresh(await db.get(HOP))
    assert await reads(db) == {True}


@pytest.mark.parametrize("phase", RekeyPhase)
async def test_an_entity_that_was_deleted(db: Database, phase: RekeyPhase) -> None:
    """Neither a forward nor a tentative row is an entity."""
    set_phase(db, NewHop, RekeyPhase.MOVE)
    await move(db, NewHop)
    await db.delete(HOP, if_match="*")
    assert await kinds_of(db, NewHop) == ["mon Hop#_forward"]
    set_phase(db, NewHop, phase)
    assert await reads(db) == {False}


async def test_only_the_newer_key_counts_in_the_end(db: Database) -> None:
    """Once the re-key is sealed nobody looks at older keys: a point read is one request again."""
    set_phase(db, NewHop, RekeyPhase.MOVE)
    await move(db, NewHop)
    for phase in (RekeyPhase.SEALED, RekeyPhase.DONE):
        set_phase(db, NewHop, phase)
        assert await reads(db) == {True}
        before = db.stats.requests
        await db.get(HOP)
        assert await db.get_or_none(NewHop, day="tue", id=1) is None
        assert db.stats.requests - before == 2
        await finalize(db, NewHop)


class GetsInTurn(FaultyStore):
    """A store in which others do something before some of the reads."""

    def __init__(self, store: TableStore, *actions: Callable[[], Awaitable[object]] | None) -> None:
        super().__init__(store)
        self._actions = iter(actions)

    async def send(self, request: StoreRequest) -> Any:
        action = next(self._actions, None) if request.method == "get" else None
        if action is not None:
            await action()
        return await super().send(request)


async def test_an_entity_that_comes_and_goes_back(db: Database, network: FaultyStore) -> None:
    """
    While entities go back, one of them is found that a late mover gives its newer key, and that has its older one again
    before the reader has looked at both.
    """

    async def come_and_begin_to_go_back() -> None:
        set_phase(db, NewHop, RekeyPhase.MOVE)
        await move(db, NewHop)
        network.plan(Fate.FINE, *[Fate.LOST_REQUEST] * 999)  # the tentative row at the older key alone
        await roll_back(db, NewHop)
        assert await kinds_of(db, NewHop) == [
            "1 NewHop",
            "1 NewHop#by_text",
            "mon Hop#_tentative",
            "mon Hop#by_text#_tentative",
        ]

    async def go_back() -> None:
        network.plan()
        await roll_back(db, NewHop)
        assert await kinds_of(db, NewHop) == ["mon Hop", "mon Hop#by_text"]

    store = GetsInTurn(network.store, None, come_and_begin_to_go_back, *[None] * 4, go_back)
    async with connect("local::memory:") as reader:
        connection_of(reader).wrap_store(lambda _: store)
        set_phase(reader, NewHop, RekeyPhase.BACK)

        assert await reader.exists(HOP)


async def test_several_older_keys(db: Database) -> None:
    """Each key that an entity may have had is looked at; what the function drops is no entity."""
    await db.insert(Leg(owner="nobody", id=1))
    assert await db.get_or_none(NewLeg, id=1) is None
    await db.insert(Leg(owner="ben", id=1))
    assert (await db.get(NewLeg, id=1)).owner == "ben"
    await db.insert(Leg(owner="ben", id=2))
    await db.insert(PropertyBag("RekeyedReadsLegs", "ann", "2", {"EntityType": "Other"}))
    assert (await db.get(NewLeg, id=2)).owner == "ben"


async def test_a_key_that_does_not_tell_its_fields(db: Database) -> None:
    """The fields must be given, or the entity, as long as the older key is made of them."""
    spot = NewSpot(owner="ann", id=1)
    await db.insert(spot)
    assert await db.get(NewSpot, owner="ann", id=1) == spot
    assert await db.get_or_insert(NewSpot(owner="ann", id=1)) == (spot, False)
    with pytest.raises(NotSupported, match=r"the stored key \('.*', '1'\) does not tell 'owner'; give the fields"):
        await db.get(spot.key)
    with pytest.raises(NotSupported, match="its key is spread over partitions"):
        await db.select(NewSpot).where(NewSpot.id == 1).allow_scan().all()
    await db.delete(spot)
    assert not await db.exists(NewSpot, owner="ann", id=1)
    set_phase(db, NewSpot, RekeyPhase.SEALED)
    assert not await db.exists(spot.key)


async def test_rows_that_are_no_entities(db: Database) -> None:
    """A row of another kind at the newer key is reported, and so is an older row that does not fit its model."""
    await db.insert(PropertyBag("RekeyedReads", "2", "day_tue", {"EntityType": "Other"}))
    with pytest.raises(WrongKind, match="not of the model NewHop"):
        await db.get(NewHop, day="tue", id=2)
    await db.merge(PropertyBag("RekeyedReads", "mon", "hop_1", {"text": 5}), if_match="*")
    with pytest.raises(DecodeError, match="Hop"):
        await db.get(HOP)


async def test_what_is_refused_until_the_end(db: Database) -> None:
    """Errors name the model, the phase and the remedy."""
    with pytest.raises(NotSupported, match="re-key of Hop to NewHop is in phase 'expand': a scope"):
        await db.scope(id=1).get(NewHop, day="mon")
    for key in (Key(Base, "RekeyedReadsBase", "b_1", "ann"), Key(Base, "RekeyedReadsBase", "o_1", "o")):
        with pytest.raises(NotSupported, match=r"get of Base is rejected: .* of NewLeap may have older keys.* seal"):
            await db.get(key)
    set_phase(db, NewHop, RekeyPhase.DONE)
    assert await db.scope(id=1).get_or_none(NewHop, day="mon") is None


@seeds(2, 1500)
async def test_readers_beside_movers(seed: int) -> None:
    """However the requests of readers, of movers and of those who go back follow each other, entities are found."""
    random = Random(seed)
    turns = Turns(random)
    names = ["mover", "back", "reader1", "reader2"]
    async with opened(turns, names, Hop, NewHop) as programs:
        for number in (1, 2):
            await programs["mover"][0].insert(Hop(day="mon", id=number))
        back = random.random() < 0.5
        for name, (db, _) in programs.items():
            phases = [RekeyPhase.BACK] if back else [RekeyPhase.EXPAND, RekeyPhase.MOVE]
            set_phase(db, NewHop, random.choice(phases) if name.startswith("reader") else RekeyPhase.MOVE)
        if back and random.random() < 0.7:
            await move(programs["mover"][0], NewHop)

        async def read(name: str) -> None:
            for _ in range(3):
                found = await programs[name][0].get_or_none(NewHop, day="mon", id=random.choice([1, 2]))
                assert found is not None
                await asyncio.sleep(0)

        async def go_back() -> None:
            if back:
                await roll_back(programs["back"][0], NewHop)

        async def go_forth() -> None:
            await move(programs["mover"][0], NewHop)

        await turns.run(
            {"mover": go_forth(), "back": go_back(), "reader1": read("reader1"), "reader2": read("reader2")}
        )
