"""
Index lists in other partitions: what writes send, what lookups return, and that lists follow whatever goes wrong.
"""

import asyncio
import datetime as dt
import random
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product

import pytest

from tableorm import (
    AccessDenied,
    Damage,
    Database,
    DecodeError,
    Entity,
    EntityExists,
    IndexList,
    Mapped,
    NotSupported,
    OutcomeUnknown,
    TableOrmError,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.derived.index_list.rows import bits_of, is_divided, keys_of, list_row
from tableorm.models.manifest import PlacedListEntry, manifest_text
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.decision import Decision, Work
from tableorm.outbox.settle import handle_doorbells
from tableorm.protocol.codes import Fault
from tableorm.stores import CLOCK, Operation, Row, TableStore, Verb
from tableorm.testing import MemoryStore, assert_requests
from tableorm.testing.contract.base import everything
from tableorm.writes.deferred import carry_out
from tests.faults import Fate, FaultyStore
from tests.outbox.network import Jittery, Mortal, connected
from tests.torture import every, seeds

HOUR = dt.timedelta(hours=1)
HEAD = "player_" + "of_a_long_key_" * 28
"""So long that six of them divide a row of a list."""


class Player(Entity, table="ListedPlayers", partition_key="{team}", row_key=HEAD + "{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    city: Mapped[str | None] = field(default=None)
    name: Mapped[str] = field(default="")

    in_city = IndexList(
        table="ListedCities", partition_key="{city}", row_key="players", consistency="eventual", divide_at=2048
    )


@pytest.fixture
def stopped_clock() -> Iterator[None]:
    CLOCK.freeze(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    yield
    CLOCK.reset()


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with connect("local::memory:") as opened:
        await opened.create_tables(Player)
        yield opened


async def listed(store: TableStore) -> Counter[tuple[str, str, str]]:
    """Return how often each entity is listed: by city, and its keys."""
    found = Counter[tuple[str, str, str]]()
    for row in await everything(store, "ListedCities"):
        assert not (is_divided(row) and keys_of(row))
        for text in keys_of(row):
            table, team, row_key, _ = text.split("\t")
            assert table == "ListedPlayers"
            bits = row["RowKey"].removeprefix("players~")
            assert bits_of(f"ListedPlayers\t{team}\t{row_key}", len(bits)) == bits
            found[row["PartitionKey"], team, row_key] += 1
    return found


async def living(store: TableStore) -> set[tuple[str, str, str]]:
    """Return which entities are in which cities."""
    rows = [row for row in await everything(store, "ListedPlayers") if row.get("EntityType") == "Player"]
    return {(row["city"], row["PartitionKey"], row["RowKey"]) for row in rows if row.get("city") is not None}


async def test_entities_of_all_partitions_are_listed(db: Database) -> None:
    """A list names entities of any partition, in the order of their keys, and follows every verb."""
    ann = Player(team="red", id=1, city="Oslo")
    await db.insert(ann)
    async with db.transaction() as tx:
        tx.insert(Player(team="blue", id=1, city="Oslo"))
        tx.insert(Player(team="blue", id=2, city="Rome"))
    await db.insert(Player(team="blue", id=3))
    assert [each.team for each in await db.lookup(Player.in_city, city="Oslo")] == ["blue", "red"]
    ann.city = "Rome"
    await db.save(ann)
    assert [each.id for each in await db.lookup(Player.in_city, city="Oslo")] == [1]
    assert await db.lookup(Player.in_city, city="Rome") == [Player(team="blue", id=2, city="Rome"), ann]
    await db.delete(ann)
    assert [each.team for each in await db.lookup(Player.in_city, city="Rome")] == ["blue"]
    assert await db.tables() == ["ListedCities", "ListedPlayers"]


async def test_the_requests_of_a_write_and_of_a_lookup(db: Database) -> None:
    """The list is read and written once for each write that concerns it; a lookup reads it, and each entity."""
    await db.insert(Player(team="red", id=1, city="Oslo"))
    ben = Player(team="red", id=2, city="Oslo")
    with db.observe() as seen:
        await db.insert(ben)
    assert [request.operation for request in seen.requests][:6] == [
        "put-message",
        "transaction",
        "get",
        "get",
        "replace",
        "get",
    ]
    plan = db.explain_write("insert", Player(team="red", id=3, city="Oslo"))
    assert [(step.method, step.path.partition("(")[2]) for step in plan.after][:4] == [
        ("GET", "PartitionKey='Oslo',RowKey='players~')"),
        ("GET", f"PartitionKey='red',RowKey='{HEAD}003')"),
        ("PUT", "PartitionKey='Oslo',RowKey='players~')"),
        ("GET", f"PartitionKey='red',RowKey='{HEAD}003')"),
    ]
    ben.name = "Ben"
    with assert_requests(db, 1):
        await db.save(ben)
    with assert_requests(db, 3):
        assert len(await db.lookup(Player.in_city, city="Oslo")) == 2


async def test_a_list_is_divided(db: Database) -> None:
    """Rows that would be too large are divided, and every entity is found, and taken out again."""
    for number in range(40):
        await db.insert(Player(team=f"team{number % 3}", id=number, city="Oslo"))
    rows = await everything(db.store, "ListedCities")
    assert len(rows) > 8
    assert set(await listed(db.store)) == await living(db.store)
    found = await db.lookup(Player.in_city, city="Oslo")
    assert sorted(each.id for each in found) == [*range(40)]
    for player in found[:39]:
        await db.delete(player)
    assert [each.id for each in await db.lookup(Player.in_city, city="Oslo")] == [found[39].id]
    assert set((await listed(db.store)).values()) == {1}
    assert len(await listed(db.store)) == 1


async def test_bulk_writes_are_listed(db: Database) -> None:
    """Many entities come into a few lists at the same time."""
    async with db.bulk() as bulk:
        for number in range(60):
            await bulk.insert(Player(team=f"team{number % 3}", id=number, city="Oslo" if number % 2 else "Rome"))
    assert len(await db.lookup(Player.in_city, city="Oslo")) == 30
    assert set(await listed(db.store)) == await living(db.store)


async def list_row_of(db: Database, members: Sequence[str]) -> None:
    text = "".join(member + "\n" for member in members)
    row: Row = {
        "PartitionKey": "Oslo",
        "RowKey": "players~",
        "EntityType": "Player#in_city",
        "Keys00": b64encode(text.encode()).decode(),
        "Keys00@odata.type": "Edm.Binary",
    }
    await db.store.write("ListedCities", Operation(Verb.INSERT_OR_REPLACE, row))


async def test_what_a_list_names_besides_is_not_returned(db: Database) -> None:
    """An entity that is gone, in another city, or of another kind is no result, whatever the list says."""
    for number, city in ((1, "Oslo"), (2, "Rome"), (3, None)):
        await db.insert(Player(team="red", id=number, city=city))
    robot = {"PartitionKey": "red", "RowKey": HEAD + "005", "EntityType": "Robot"}
    await db.store.write("ListedPlayers", Operation(Verb.INSERT, robot))
    await list_row_of(db, [f"ListedPlayers\tred\t{HEAD}{number:03d}\tTOKEN0000000" for number in (1, 2, 3, 4, 5)])
    assert [each.id for each in await db.lookup(Player.in_city, city="Oslo")] == [1]


async def test_a_damaged_row_of_a_list(db: Database) -> None:
    """The lookup names the row; a write succeeds, and leaves the list to workers."""
    await list_row_of(db, ["red"])
    with pytest.raises(DecodeError, match="'red' in it does not name an entity; delete the row"):
        await db.lookup(Player.in_city, city="Oslo")
    await db.insert(Player(team="red", id=1, city="Oslo"))
    assert await db.exists(Player, team="red", id=1)


async def test_a_row_of_another_kind_at_the_key_of_a_list(db: Database) -> None:
    """It is never overwritten."""
    row = {"PartitionKey": "Oslo", "RowKey": "players~", "EntityType": "Robot"}
    await db.store.write("ListedCities", Operation(Verb.INSERT, row))
    await db.insert(Player(team="red", id=1, city="Oslo"))
    assert [each["EntityType"] for each in await everything(db.store, "ListedCities")] == ["Robot"]
    assert await db.lookup(Player.in_city, city="Oslo") == []


async def test_a_list_that_this_program_does_not_declare(db: Database) -> None:
    """An entity is taken out of it if its manifest names it no more; otherwise the work is left to another program."""
    await db.create_tables("Towns")
    place = PlacedListEntry("Oslo", "players", "Towns", "Player#in_town")
    work = Work(kind="Player", row_key=HEAD + "001", entries={"in_town": (place,)})
    decision = Decision(partition_key="red", token="TOKEN0000000", works=(work,))
    keys = {"PartitionKey": "red", "RowKey": HEAD + "001"}
    manifest = manifest_text({"in_town": place})
    await db.store.write("ListedPlayers", Operation(Verb.INSERT, {**keys, "EntityType": "Player", "_ix": manifest}))
    member = f"ListedPlayers\tred\t{HEAD}001\tTOKEN0000000"
    await db.store.write("Towns", Operation(Verb.INSERT, list_row("Oslo", "players~", place.kind, [member])))
    schemas = {"Player": Player.__schema__}
    with pytest.raises(NotSupported, match="is in a list by 'in_town', which this program does not know"):
        await carry_out(connection_of(db), "ListedPlayers", schemas, decision)
    await db.store.write("ListedPlayers", Operation(Verb.DELETE, keys, "*"))
    await carry_out(connection_of(db), "ListedPlayers", schemas, decision)
    assert [list(keys_of(row)) for row in await everything(db.store, "Towns")] == [[]]


async def test_a_list_is_built_for_entities_that_were_there(db: Database) -> None:
    """`build_index` lists what is missing in a list, and what was written before it was declared."""
    await db.insert(Player(team="red", id=1, city="Oslo"))
    await db.store.write("ListedCities", Operation(Verb.DELETE, {"PartitionKey": "Oslo", "RowKey": "players~"}, "*"))
    old = {"PartitionKey": "red", "RowKey": HEAD + "002", "EntityType": "Player", "name": "", "city": "Oslo"}
    await db.store.write("ListedPlayers", Operation(Verb.INSERT, old))
    assert await db.lookup(Player.in_city, city="Oslo") == []
    await db.build_index(Player.in_city)
    assert [each.id for each in await db.lookup(Player.in_city, city="Oslo")] == [1, 2]


async def test_what_an_audit_finds_and_repairs(db: Database) -> None:
    """An entity that its list does not name is missing, one that is named elsewhere left over; both are repaired."""
    for number, city in ((1, "Oslo"), (2, "Rome"), (3, "Oslo")):
        await db.insert(Player(team="red", id=number, city=city))
    assert (await db.audit(Player)).found == 0
    await list_row_of(db, [f"ListedPlayers\tred\t{HEAD}{number:03d}\tTOKEN0000000" for number in (1, 2, 9)])
    report = await db.audit(Player)
    assert sorted((each.damage, each.row_key[-3:]) for each in report.findings) == [
        (Damage.MISSING, "003"),
        (Damage.ORPHAN, "002"),
        (Damage.ORPHAN, "009"),
    ]
    assert (await db.audit(Player, repair=True)).repaired == 3
    assert (await db.audit(Player)).found == 0
    assert set(await listed(db.store)) == await living(db.store)


async def test_an_audit_of_damaged_lists(db: Database) -> None:
    """A row that cannot be read is named, and left to people."""
    await db.insert(Player(team="red", id=1, city="Oslo"))
    await list_row_of(db, ["red"])
    report = await db.audit(Player, repair=True)
    assert {each.damage for each in report.findings} == {Damage.FOREIGN}
    assert report.repaired == 0


async def test_a_program_that_does_not_declare_the_list(db: Database) -> None:
    """It takes the entity out of the list that the manifest names."""

    class Athlete(Entity, table="ListedPlayers", kind="Player", partition_key="{team}", row_key=HEAD + "{id:03d}"):
        team: Mapped[str]
        id: Mapped[int]
        city: Mapped[str | None] = field(default=None)
        name: Mapped[str] = field(default="")

        by_name = IndexList(row_key="named_{name}")

    await db.insert(Player(team="red", id=1, city="Oslo"))
    athlete = await db.get(Athlete, team="red", id=1)
    athlete.name = "Ann"
    await db.save(athlete)
    assert await listed(db.store) == Counter()
    await db.build_index(Player.in_city)
    assert [each.name for each in await db.lookup(Player.in_city, city="Oslo")] == ["Ann"]


class Note(Entity, table="ListedJottings", partition_key="{tenant}", row_key="note_{id}"):
    tenant: Mapped[str]
    id: Mapped[str]
    tag: Mapped[str] = field(default="")

    tagged = IndexList(table="ListedTags", partition_key="{tenant}", row_key="tag_{tag}", consistency="eventual")
    shared = IndexList(table="ListedTags", partition_key="all", row_key="any_{tag}", consistency="eventual")


async def test_a_scope_looks_up_what_is_of_it() -> None:
    """Lists whose keys tell the scope are those of the scope; of others a scope returns its own entities."""
    async with connect("local::memory:") as db:
        await db.create_tables(Note)
        for tenant in ("acme", "other"):
            await db.insert(Note(tenant=tenant, id="1", tag="x"))
        acme = db.scope(tenant="acme")
        assert [note.tenant for note in await acme.lookup(Note.tagged, tag="x")] == ["acme"]
        assert [note.tenant for note in await acme.lookup(Note.shared, tag="x")] == ["acme"]
        with pytest.raises(AccessDenied):
            await acme.lookup(Note.tagged, tag="x", tenant="other")


# A network that fails


async def recover(db: Database) -> None:
    """Do what a worker does for all messages that it can see."""
    connection, schemas = connection_of(db), {"Player": Player.__schema__}
    queues = outbox_queues(connection)
    tables = {"Player": (Player.__schema__.table_name(),)}
    handler = handle_doorbells(connection, tables, lambda table, each: carry_out(connection, table, schemas, each))
    while True:
        try:
            messages = await queues.take(OUTBOX, 32, 1)
        except Fault:
            return  # nobody has rung
        if not messages:
            return
        for message in messages:
            await handler.work(message.body)
            await queues.delete(OUTBOX, message)


async def check_recovered(store: TableStore) -> None:
    """Every entity is listed where it belongs once workers have done what was left."""
    async with connected(store) as db:
        for _ in range(3):
            CLOCK.advance(HOUR)
            await recover(db)
    decisions = [row for row in await everything(store, "ListedPlayers") if row.get("State") == "committed"]
    found, wanted = await listed(store), await living(store)
    assert decisions == []
    assert wanted - found.keys() == set()
    assert set(found.values()) <= {1}


async def extra(store: TableStore) -> set[tuple[str, str, str]]:
    """Return what is listed, and is not there."""
    return set(await listed(store)) - await living(store)


async def insert(db: Database) -> None:
    await db.insert(Player(team="red", id=1, city="Oslo"))


async def change(db: Database) -> None:
    player = await db.get(Player, team="red", id=1)
    player.city = "Rome"
    await db.save(player)


async def delete(db: Database) -> None:
    await db.delete(Player.key(team="red", id=1), if_match="*", missing_ok=True)


async def reinsert(db: Database) -> None:
    await delete(db)
    await insert(db)


async def divide(db: Database) -> None:
    for number in (2, 3, 4, 5, 6, 7):
        await db.insert(Player(team="red", id=number, city="Oslo"))


Step = Callable[[Database], Awaitable[None]]
STEPS: dict[Step, Sequence[Step]] = {
    insert: (),
    change: (insert,),
    delete: (insert,),
    reinsert: (insert,),
    divide: (insert,),
}
MOST_REQUESTS = 24
FATES = [fate for fate in Fate if fate is not Fate.FINE]


async def prepared(step: Step) -> MemoryStore:
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Player)
        for before in STEPS[step]:
            await before(db)
    return store


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(("step", "at", "fate"), every(7, product(STEPS, range(MOST_REQUESTS), FATES)))
async def test_a_request_that_meets_a_fault(step: Step, at: int, fate: Fate) -> None:
    """The write succeeds or says that its outcome is unknown, and the lists follow."""
    store = await prepared(step)
    network = FaultyStore(store, [*[Fate.FINE] * at, fate])
    async with connected(network) as db:
        with suppress(OutcomeUnknown, EntityExists):
            await step(db)
    await network.deliver()
    await check_recovered(store)
    assert await extra(store) == set()


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(("step", "at", "arrives"), every(3, product(STEPS, range(MOST_REQUESTS), [True, False])))
async def test_a_writer_that_dies(step: Step, at: int, arrives: bool) -> None:
    """Workers finish what it had committed."""
    store = await prepared(step)
    async with connected(Mortal(store, at, arrives=arrives)) as db:
        with suppress(Exception):  # what it would have said, nobody hears
            await step(db)
    await check_recovered(store)
    assert await extra(store) == set()


async def write_something(db: Database, chance: random.Random) -> None:
    """Do any verb to one of three entities."""
    number, city = chance.choice([1, 2, 3]), chance.choice([None, "Oslo", "Rome"])
    key = Player.key(team="red", id=number)

    def move_to(player: Player) -> None:
        player.city = city

    verb = chance.randrange(4)
    if verb == 0:
        await db.insert(Player(team="red", id=number, city=city))
    elif verb == 1:
        await db.delete(key, if_match="*", missing_ok=True)
    elif verb == 2:
        await db.upsert(Player(team="red", id=number, city=city))
    else:
        await db.modify(key, move_to)


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("faults", [[], [Fate.LOST_REQUEST, Fate.LOST_REPLY]], ids=["races", "faults"])
@seeds(6, 400)
async def test_writers_that_race(seed: int, faults: Sequence[Fate]) -> None:
    """Whatever they do to the same entities and lists, in the end every entity is listed where it belongs."""
    chance = random.Random(seed)
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Player)

    async def write(count: int) -> None:
        async with connected(Jittery(store, chance, faults)) as db:
            for _ in range(count):
                with suppress(TableOrmError):
                    await write_something(db, chance)

    async def work() -> None:
        async with connected(Jittery(store, chance, faults)) as db:
            for _ in range(5):
                CLOCK.advance(HOUR)  # so that it takes messages of writers that still work
                with suppress(TableOrmError, Fault):
                    await recover(db)

    await asyncio.gather(*(write(4) for _ in range(3)), *(work() for _ in range(2)))
    await check_recovered(store)
    assert await extra(store) == set() or faults
