"""
Queries for entities of a model that takes over those of an older one, in each phase, against queries when all is done.
"""

from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from tableorm import (
    CursorError,
    Database,
    Entity,
    Expression,
    GoingBack,
    Index,
    Mapped,
    MovedFrom,
    NotSupported,
    Observation,
    PartitionKey,
    PropertyBag,
    RowKey,
    ScanRefused,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.rekey import select as rekeyed
from tableorm.rekey.phases import RekeyPhase
from tableorm.rekey.window import move_window
from tests.databases import memory_database
from tests.faults import FaultyStore
from tests.rekeys import Turns, move, opened, rekeying_of, roll_back, rows_of, set_phase
from tests.torture import seeds
from tests.unfinished_moves import database_on

OPEN = (RekeyPhase.EXPAND, RekeyPhase.MOVE, RekeyPhase.BACK)


class AnyLap(Entity, abstract=True):
    """What laps have by either key."""

    track: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="a")
    speed: Mapped[float | None] = field(default=None)


class Lap(AnyLap, table="RekeyedQueries", partition_key="{track}", row_key="lap_{id:02d}"):
    by_text = Index(row_key="text_{text}_{id:02d}")


class NewLap(
    AnyLap, table="RekeyedQueries", partition_key="n{id:02d}", row_key="lap_{track}", moved_from=MovedFrom(Lap)
):
    by_text = Index(row_key="new_{text}_{track}")


class Fee(Entity, table="RekeyedQueriesFees", tracked=True, partition_key="{payer}", row_key="{id}"):
    payer: Mapped[str]
    id: Mapped[int]
    cents: Mapped[int] = field(default=0)


class NewFee(
    Entity,
    table="RekeyedQueriesNewFees",
    partition_key="fees",
    row_key="fee_{id}_{payer}",
    moved_from=MovedFrom(
        Fee,
        to_new=lambda fee: None if fee.cents < 0 else NewFee(payer=fee.payer, id=fee.id, euros=fee.cents / 100),
        to_old=lambda fee: Fee(payer=fee.payer, id=fee.id, cents=round(fee.euros * 100)),
    ),
):
    payer: Mapped[str]
    id: Mapped[int]
    euros: Mapped[float]

    by_payer = Index(row_key="payer_{payer}_{id}")


TRACKS, TEXTS = ("x", "y", "z"), ("a", "b", "c")


def draw_condition(random: Random, depth: int = 2) -> Expression:
    """Draw a condition on laps."""
    if depth and random.random() < 0.4:
        one, two = draw_condition(random, depth - 1), draw_condition(random, depth - 1)
        return random.choice([one & two, one | two, ~one])
    text, number = random.choice(TEXTS), random.randrange(6)
    made: list[Callable[[], Expression]] = [
        lambda: NewLap.track == random.choice(TRACKS),
        lambda: NewLap.track.in_(random.sample(TRACKS, 2)),
        lambda: NewLap.id == number,
        lambda: NewLap.id >= number,
        lambda: NewLap.text == text,
        lambda: NewLap.text != text,
        lambda: NewLap.text.in_(random.sample(TEXTS, 2)),
        lambda: NewLap.text.startswith(text),
        NewLap.speed.is_none,
        lambda: NewLap.speed < number,
        lambda: PartitionKey == f"n{number:02d}",
        lambda: RowKey.startswith("lap_x"),
    ]
    return random.choice(made)()


async def fill(db: Database, random: Random) -> None:
    """Insert some laps; of some a program has written no text."""
    for track in TRACKS:
        for number in range(6):
            if random.random() < 0.6:
                speed = random.choice([None, 1.5, 4.0])
                await db.insert(Lap(track=track, id=number, text=random.choice(TEXTS), speed=speed))
            elif random.random() < 0.2:
                await db.insert(PropertyBag("RekeyedQueries", track, f"lap_{number:02d}", {"EntityType": "Lap"}))


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Two laps and two fees, of which the first ones have their newer keys."""
    async with database_on(network, Lap, NewLap, Fee, NewFee) as db:
        for track in ("x", "y"):
            await db.insert(Lap(track=track, id=1, text=f"t{track}"))
            await db.insert(Fee(payer=track, id=1, cents=150))
        for model, table in ((NewLap, "RekeyedQueries"), (NewFee, "RekeyedQueriesFees")):
            rows = [row for row in await rows_of(connection_of(db), table) if row["PartitionKey"] == "x"]
            set_phase(db, model, RekeyPhase.MOVE)
            await move_window(connection_of(db), rekeying_of(model), rows)
        yield db


@seeds(4, 3000)
async def test_queries_find_what_they_find_in_the_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same entities in the same order, whatever has been moved by then, and however few are held in memory."""
    random = Random(seed)
    monkeypatch.setattr(rekeyed, "_MOST_HELD", random.choice([1, 2, 5, 50_000]))
    async with connect("local::memory:") as db, connect("local::memory:") as done:
        for each in (db, done):
            await each.create_tables(Lap, NewLap)
            await fill(each, Random(seed))
        await move(done, NewLap)
        set_phase(done, NewLap, RekeyPhase.SEALED)
        rows = [row for row in await rows_of(connection_of(db), "RekeyedQueries", "Lap") if random.random() < 0.5]
        await move_window(connection_of(db), rekeying_of(NewLap), rows)
        set_phase(db, NewLap, random.choice(OPEN))
        for _ in range(8):
            conditions = [draw_condition(random) for _ in range(random.randrange(3))]
            limit = random.choice([None, None, 1, 3])
            answers: list[list[Any]] = []
            for each in (db, done):
                query = each.select(NewLap).where(*conditions).allow_scan()
                query = query if limit is None else query.limit(limit)
                answers.append(await query.all())
                assert await query.count() == len(answers[-1]), str(query)
                assert (await query.first()) == next(iter(answers[-1]), None)
                if limit is None:
                    assert sorted(map(repr, await query.unordered().all())) == sorted(map(repr, answers[-1]))
            assert answers[0] == answers[1], f"{conditions} limit {limit}"


@seeds(3, 1000)
async def test_queries_beside_movers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However requests follow each other, no entity comes twice; and none is missed before and after its move."""
    random = Random(seed)
    monkeypatch.setattr(rekeyed, "_MOST_HELD", random.choice([1, 2, 50_000]))
    turns = Turns(random)
    names = ["mover", "reader"]
    async with opened(turns, names, Lap, NewLap) as programs:
        mover, reader = (programs[name][0] for name in names)
        for number in range(3):
            await mover.insert(Lap(track="x", id=number))
        back = random.random() < 0.5
        set_phase(mover, NewLap, RekeyPhase.MOVE)
        if back:
            await move(mover, NewLap)
        set_phase(reader, NewLap, RekeyPhase.BACK if back else random.choice([RekeyPhase.EXPAND, RekeyPhase.MOVE]))

        done = "before"

        async def read() -> None:
            for _ in range(3):
                begun = done
                found = [lap.id for lap in await reader.select(NewLap).allow_scan().all()]
                assert found == sorted(set(found))
                assert found == [0, 1, 2] or not (begun == "after" or done == "before")

        async def go() -> None:
            nonlocal done
            done = ""
            await (roll_back if back else move)(mover, NewLap)
            done = "after"

        await turns.run({"mover": go(), "reader": read()})
        assert [lap.id for lap in await reader.select(NewLap).allow_scan().all()] == [0, 1, 2]


def scans(seen: Observation) -> int:
    """Return how often the table of fees was read."""
    return sum(request.operation == "query" and request.table == "RekeyedQueriesFees" for request in seen.requests)


@pytest.mark.parametrize("phase", OPEN)
async def test_no_more_than_some_are_held(phase: RekeyPhase, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Of more entities than may be held in memory the first ones are given, and then the next ones are read. A query that
    wants fewer holds no more than it wants.
    """
    monkeypatch.setattr(rekeyed, "_MOST_HELD", 10)
    async with memory_database(Fee, NewFee) as db:
        for number in range(35):
            await db.insert(Fee(payer="x", id=34 - number, cents=100 * number))
        set_phase(db, NewFee, phase)
        keys = sorted((f"fee_{number}_x", number) for number in range(35))

        with db.observe() as seen_by_all:
            found = [(fee.id, fee.euros) async for fee in db.select(NewFee).allow_scan()]
        with db.observe() as seen_by_few:
            first = await db.select(NewFee).allow_scan().limit(3).all()

        assert found == [(number, 34.0 - number) for _, number in keys]
        assert scans(seen_by_all) == 4
        assert [fee.id for fee in first] == [number for _, number in keys[:3]]
        assert scans(seen_by_few) == 1
        assert await db.select(NewFee).allow_scan().count() == 35


@pytest.mark.parametrize("phase", OPEN)
async def test_what_is_found_can_be_written(db: Database, phase: RekeyPhase) -> None:
    """Wherever an entity was found, a save under its ETag writes it there, or brings it home first."""
    set_phase(db, NewLap, phase)
    for lap in await db.select(NewLap).where(NewLap.id == 1, NewLap.track.in_(["x", "y"])).all():
        lap.text = "new"
        await db.save(lap)
    found = await db.select(NewLap).allow_scan().all()
    assert [(lap.track, lap.text) for lap in found] == [("x", "new"), ("y", "new")]


@pytest.mark.parametrize("phase", OPEN)
async def test_an_index_of_the_older_model_serves(db: Database, phase: RekeyPhase) -> None:
    """Its entries have no ETag, so the rows are read; what is found can be written."""
    set_phase(db, NewLap, phase)
    query = db.select(NewLap).where(NewLap.id == 1, NewLap.track == "y", NewLap.text == "ty")
    assert "text_ty" in str(db.select(NewLap).where(NewLap.track == "y", NewLap.text == "ty").allow_scan().explain())
    lap = await query.one()
    assert lap.etag == (await db.get(Lap, track="y", id=1)).etag
    assert (await db.get(NewLap.by_text, id=1, text="ty", track="y")) == lap
    assert await db.exists(NewLap.by_text, id=1, text="tx", track="x")
    assert await db.get_or_none(NewLap.by_text, id=1, text="ty", track="x") is None


@pytest.mark.parametrize("phase", OPEN)
async def test_functions_say_what_is_found(db: Database, phase: RekeyPhase) -> None:
    """Nothing can be asked of the older model, so that all of it is read, if that is allowed by name."""
    set_phase(db, NewFee, phase)
    await db.insert(Fee(payer="gone", id=1, cents=-1))
    with pytest.raises(
        ScanRefused, match=f"in phase '{phase}' of the re-key of Fee to NewFee, entities may have their"
    ):
        await db.select(NewFee).where(NewFee.euros >= 1.0).all()
    with pytest.raises(NotSupported, match=r"get of NewFee.by_payer is rejected until .*seal.* was run"):
        await db.get(NewFee.by_payer, payer="x", id=1)
    query = db.select(NewFee).where(NewFee.euros >= 1.0).allow_scan()
    assert [(fee.payer, fee.euros) for fee in await query.all()] == [("x", 1.5), ("y", 1.5)]
    assert await query.where(NewFee.euros > 2.0).count() == 0
    assert await query.exists()
    assert await query.limit(0).all() == []


async def test_what_is_refused_until_the_end(db: Database) -> None:
    """Each error names the query, what is rejected, the phase, and when it can be done."""
    query = db.select(NewLap).allow_scan()
    refused: dict[str, Callable[[], Any]] = {
        "page by page": query.page,
        "deleted": query.delete,
        "joined with others": db.union(query, query).all,
        "entries of an index": db.select(NewLap.by_text).allow_scan().all,
        "several kinds": db.select(NewLap, Lap).allow_scan().all,
        "only()": query.only(NewLap.text).all,
        "split": query.split(2)[0].all,
        "no cursors": lambda: anext(aiter(query._iterate("cursor", None))),  # pyright: ignore[reportPrivateUsage]
    }
    for problem, run in refused.items():
        with pytest.raises(NotSupported, match=rf"is rejected: .*{problem}.* 'move' of the re-key .*migrate seal"):
            await run()
    async with query.stream() as stream:
        assert [lap.track async for lap in stream] == ["x", "y"]
        with pytest.raises(CursorError, match="it has no cursors, while entities may have their keys by Lap"):
            assert stream.cursor
    await move(db, NewLap)
    set_phase(db, NewLap, RekeyPhase.SEALED)
    assert len((await query.page()).items) == len(await query.only(NewLap.text).all()) == 2
    assert (await query.delete()).written == 2


async def test_explain_shows_both(db: Database) -> None:
    """First the older model, then the newer one; only that when all is done."""
    query = db.select(NewLap).where(NewLap.track == "x", NewLap.id == 1)
    found = query.explain()
    assert [request.path for request in found.requests] == [
        "RekeyedQueries(PartitionKey='x',RowKey='lap_01')",
        "RekeyedQueries(PartitionKey='n01',RowKey='lap_x')",
    ]
    assert found.min_transactions == found.max_transactions == 2
    with pytest.raises(ScanRefused):
        db.select(NewLap).explain()
    wanted = r"of table RekeyedQueries; add \.where\(NewLap\.track == \.\.\.\), or \.allow_scan\(\) to"
    with pytest.raises(ScanRefused, match=wanted):
        db.select(NewLap).where(NewLap.id == 1).explain()
    with pytest.raises(ScanRefused, match=wanted):
        await db.select(NewLap).where(NewLap.id == 1).all()
    set_phase(db, NewLap, RekeyPhase.DONE)
    assert len(query.explain().requests) == 1


async def test_a_query_that_runs_while_entities_begin_to_go_back(db: Database) -> None:
    """What it had read before may be where it does not look again: it says so."""
    with pytest.raises(GoingBack, match="began to go the other way while it ran; run it again"):
        async for _ in db.select(NewLap).allow_scan():
            set_phase(db, NewLap, RekeyPhase.BACK)
