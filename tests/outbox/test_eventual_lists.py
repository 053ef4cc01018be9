"""
Index lists in other partitions: what writes send, and what lookups return.
"""

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tableorm import AccessDenied, Damage, Database, DecodeError, Entity, IndexList, Mapped, NotSupported, field
from tableorm.connection.connection import connection_of
from tableorm.derived.index_list.index_list import EventualListMaintainer
from tableorm.derived.index_list.rows import keys_of, list_row
from tableorm.models.manifest import PlacedListEntry, manifest_text
from tableorm.models.reserved import BLOB_LISTS
from tableorm.outbox import shared_bell
from tableorm.outbox.decision import Decision, Work
from tableorm.stores import Row, RowAddress, TableStore
from tableorm.testing import assert_requests
from tableorm.testing.contract.base import everything
from tableorm.writes import deferred
from tableorm.writes.deferred import carry_out
from tests.databases import database_fixture, memory_database
from tests.outbox.staff import members_of, names_in_blobs
from tests.rows import delete_row, insert_row, put_row

HEAD = "player_" + "of_a_long_key_" * 28
"""So long that six of them divide a row of a list."""


class Member(Entity, partition_key="{team}", row_key=HEAD + "{id:03d}", abstract=True):
    team: Mapped[str] = field(default="red")
    id: Mapped[int]
    city: Mapped[str | None] = field(default="Oslo")
    name: Mapped[str] = field(default="")


class Player(Member, table="ListedPlayers"):
    in_city = IndexList(
        table="ListedCities", partition_key="{city}", row_key="players", consistency="eventual", divide_at=2048
    )


class Fan(Member, table="ListedFans"):
    in_city = IndexList(partition_key="{city}", row_key="fans", consistency="eventual", blob=True)


Model = type[Player] | type[Fan]

MODELS: Sequence[Model] = (Player, Fan)
"""A model whose lists are rows of another table, and one whose lists are blobs."""

both_forms = pytest.mark.parametrize("model", MODELS)


db = database_fixture(*MODELS)


async def in_city(db: Database, model: Model, city: str) -> list[Any]:
    """Return the entities of a model that are in a city, by its list."""
    index: Any = model.in_city
    found: list[Any] = await db.lookup(index, city=city)
    return found


async def listed(db: Database, model: Model) -> Counter[tuple[str, str, str]]:
    """Return how often each entity of a model is in its lists: by city, and its keys."""
    if model is Fan:
        return await names_in_blobs(db.blobs)
    return members_of(await everything(db.store, "ListedCities"))


async def store_row(db: Database, model: Model, number: int, **members: Any) -> None:
    """Store the row of an entity in Oslo as a program does that does not know the list."""
    row = {"PartitionKey": "red", "RowKey": f"{HEAD}{number:03d}", "EntityType": model.kind, "name": "", "city": "Oslo"}
    await insert_row(db, model.__schema__.table_name(), {**row, **members})


async def living(store: TableStore, model: Model) -> set[tuple[str, str, str]]:
    """Return which entities are in which cities."""
    rows = [
        row for row in await everything(store, model.__schema__.table_name()) if row.get("EntityType") == model.kind
    ]
    return {(row["city"], row["PartitionKey"], row["RowKey"]) for row in rows if row.get("city") is not None}


async def test_the_requests_of_a_write_and_of_a_lookup(db: Database) -> None:
    """The list is read and written once for each write that concerns it; a lookup reads it, and each entity."""
    await db.insert(Player(id=1))
    ben = Player(id=2)
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
    ben.name = "Ben"
    with assert_requests(db, 1):
        await db.save(ben)
    with assert_requests(db, 3):
        assert len(await db.lookup(Player.in_city, city="Oslo")) == 2


async def test_a_list_is_divided(db: Database) -> None:
    """Rows that would be too large are divided, and every entity is found, and taken out again."""
    for number in range(40):
        await db.insert(Player(team=f"team{number % 3}", id=number))
    rows = await everything(db.store, "ListedCities")
    assert len(rows) > 8
    assert set(await listed(db, Player)) == await living(db.store, Player)
    found = await db.lookup(Player.in_city, city="Oslo")
    assert sorted(each.id for each in found) == [*range(40)]
    for player in found[:39]:
        await db.delete(player)
    assert [each.id for each in await db.lookup(Player.in_city, city="Oslo")] == [found[39].id]
    assert set((await listed(db, Player)).values()) == {1}
    assert len(await listed(db, Player)) == 1


async def name_in_list(db: Database, model: Model, *numbers: int) -> None:
    """Make the list of Oslo name these entities, and no others."""
    members = [f"red\t{HEAD}{number:03d}\tTOKEN0000000" for number in numbers]
    if model is Fan:
        await put_list(db, "\n".join(["tableorm index list 1", *members, ""]))
    else:
        await list_row_of(db, [f"ListedPlayers\t{member}" for member in members])


async def put_list(db: Database, text: str) -> None:
    await db.blobs.put(BLOB_LISTS, "listedfans/Fan=23in_city/Oslo/fans", text.encode())


async def list_row_of(db: Database, members: Sequence[str]) -> None:
    text = "".join(member + "\n" for member in members)
    row: Row = {
        "PartitionKey": "Oslo",
        "RowKey": "players~",
        "EntityType": "Player#in_city",
        "Keys00": b64encode(text.encode()).decode(),
        "Keys00@odata.type": "Edm.Binary",
    }
    await put_row(db, "ListedCities", row)


@both_forms
async def test_what_a_list_names_besides_is_not_returned(db: Database, model: Model) -> None:
    """An entity that is gone, in another city, or of another kind is no result, whatever the list says."""
    for number, city in ((1, "Oslo"), (2, "Rome"), (3, None)):
        await db.insert(model(id=number, city=city))
    await store_row(db, model, 5, EntityType="Robot")
    await name_in_list(db, model, 1, 2, 3, 4, 5)
    assert [each.id for each in await in_city(db, model, "Oslo")] == [1]


async def test_a_damaged_row_of_a_list(db: Database) -> None:
    """The lookup names the row; a write succeeds, and leaves the list to workers."""
    await list_row_of(db, ["red"])
    with pytest.raises(DecodeError, match="'red' in it does not name an entity; delete the row"):
        await db.lookup(Player.in_city, city="Oslo")
    await db.insert(Player(id=1))
    assert await db.exists(Player, team="red", id=1)


async def test_a_row_of_another_kind_at_the_key_of_a_list(db: Database) -> None:
    """It is never overwritten."""
    row = {"PartitionKey": "Oslo", "RowKey": "players~", "EntityType": "Robot"}
    await insert_row(db, "ListedCities", row)
    await db.insert(Player(id=1))
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
    await insert_row(db, "ListedPlayers", {**keys, "EntityType": "Player", "_ix": manifest})
    member = f"ListedPlayers\tred\t{HEAD}001\tTOKEN0000000"
    await insert_row(db, "Towns", list_row("Oslo", "players~", place.kind, [member]))
    schemas = {"Player": Player.__schema__}
    with pytest.raises(NotSupported, match="is in a list by 'in_town', which this program does not know"):
        await carry_out(connection_of(db), "ListedPlayers", schemas, decision)
    await delete_row(db, "ListedPlayers", keys)
    await carry_out(connection_of(db), "ListedPlayers", schemas, decision)
    assert [list(keys_of(row)) for row in await everything(db.store, "Towns")] == [[]]


@both_forms
async def test_a_list_is_built_for_entities_that_were_there(db: Database, model: Model) -> None:
    """`build_index` lists what is missing in a list, and what was written before it was declared."""
    await db.insert(model(id=1))
    await name_in_list(db, model)
    await store_row(db, model, 2)
    assert await in_city(db, model, "Oslo") == []
    await db.build_index(model.in_city)
    assert [each.id for each in await in_city(db, model, "Oslo")] == [1, 2]


@both_forms
async def test_what_an_audit_finds_and_repairs(db: Database, model: Model) -> None:
    """An entity that its list does not name is missing, one that is named elsewhere left over; both are repaired."""
    for number, city in ((1, "Oslo"), (2, "Rome"), (3, "Oslo")):
        await db.insert(model(id=number, city=city))
    assert (await db.audit(model)).found == 0
    await name_in_list(db, model, 1, 2, 9)
    report = await db.audit(model)
    assert sorted((each.damage, each.row_key[-3:]) for each in report.findings) == [
        (Damage.MISSING, "003"),
        (Damage.ORPHAN, "002"),
        (Damage.ORPHAN, "009"),
    ]
    assert (await db.audit(model, repair=True)).repaired == 3
    assert (await db.audit(model)).found == 0
    assert set(await listed(db, model)) == await living(db.store, model)


async def test_an_audit_of_damaged_lists(db: Database) -> None:
    """A row that cannot be read is named, and left to people."""
    await db.insert(Player(id=1))
    await list_row_of(db, ["red"])
    report = await db.audit(Player, repair=True)
    assert {each.damage for each in report.findings} == {Damage.FOREIGN}
    assert report.repaired == 0


@both_forms
async def test_a_write_token_that_is_none(db: Database, model: Model) -> None:
    """Who writes lines into the property of the tokens names no other entity by it."""
    await store_row(db, model, 1, _w=f"x\nred\t{HEAD}002\ty\n")
    await db.build_index(model.in_city)
    assert await listed(db, model) == {("Oslo", "red", HEAD + "001"): 1}


@both_forms
async def test_a_program_that_does_not_declare_the_list(db: Database, model: Model) -> None:
    """It takes the entity out of the list that the manifest names."""

    class Athlete(Member, table=model.__schema__.table_name(), kind=model.kind):
        by_name = IndexList(row_key="named_{name}")

    await db.insert(model(id=1))
    athlete = await db.get(Athlete, team="red", id=1)
    athlete.name = "Ann"
    await db.save(athlete)
    assert await listed(db, model) == Counter()
    await db.build_index(model.in_city)
    assert [each.name for each in await in_city(db, model, "Oslo")] == ["Ann"]


class Note(Entity, table="ListedJottings", partition_key="{tenant}", row_key="note_{id}"):
    tenant: Mapped[str]
    id: Mapped[str]
    tag: Mapped[str]

    tagged = IndexList(table="ListedTags", partition_key="{tenant}", row_key="tag_{tag}", consistency="eventual")
    shared = IndexList(table="ListedTags", partition_key="all", row_key="any_{tag}", consistency="eventual")


async def test_a_scope_looks_up_what_is_of_it() -> None:
    """Lists whose keys tell the scope are those of the scope; of others a scope returns its own entities."""
    async with memory_database(Note) as db:
        for tenant in ("acme", "other"):
            await db.insert(Note(tenant=tenant, id="1", tag="x"))
        acme = db.scope(tenant="acme")
        assert [note.tenant for note in await acme.lookup(Note.tagged, tag="x")] == ["acme"]
        assert [note.tenant for note in await acme.lookup(Note.shared, tag="x")] == ["acme"]
        with pytest.raises(AccessDenied):
            await acme.lookup(Note.tagged, tag="x", tenant="other")


@both_forms
async def test_writers_of_one_list_share_its_requests(db: Database, model: Model) -> None:
    """Entities that come into one list at the same time are put there by few writes, none of which loses a race."""
    await db.insert(model(id=1))
    with db.observe() as seen:
        await asyncio.gather(*(db.insert(model(team=f"team{number}", id=1, city="Rome")) for number in range(40)))
    replaced = [each for each in seen.requests if each.operation in ("insert", "replace", "put-blob")]
    assert len(replaced) < 20
    assert {each.outcome for each in replaced} == {"ok"}
    assert len(await in_city(db, model, "Rome")) == 40


@both_forms
async def test_a_worker_writes_a_list_once_for_many_messages(
    db: Database, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What writers have left for one list is read and written together."""

    async def die(self: deferred.Deferral) -> None:
        del self

    await db.insert(model(id=1, city="Rome"))
    with monkeypatch.context() as dying:
        dying.setattr(deferred.Deferral, "finish", die)
        dying.setattr(shared_bell, "HIDDEN_SECONDS", 0)
        for number in range(5):
            await db.insert(model(team=f"team{number}", id=1))
    assert [city for city, *_ in await listed(db, model)] == ["Rome"]
    with db.observe() as seen:
        async with db.worker(model) as worker:
            await worker.drain()
    sent = Counter(each.operation for each in seen.requests if each.table in ("ListedCities", BLOB_LISTS))
    assert sent == ({"get": 1, "insert": 1} if model is Player else {"get-blob": 1, "put-blob": 1})
    assert set(await listed(db, model)) == await living(db.store, model)


@both_forms
async def test_one_entity_of_a_batch_that_cannot_be_listed(db: Database, model: Model) -> None:
    """An entity of a newer version is left to others; those that come into the list with it are listed."""
    declared = model.__schema__.derived["in_city"]
    assert isinstance(declared, EventualListMaintainer)
    kind, table = model.kind, model.__schema__.table_name()
    place = declared.place("Oslo", declared.row.text)
    manifest = manifest_text({"in_city": place})
    for number, stored in ((1, kind), (2, f"{kind}:9"), (3, kind)):
        await store_row(db, model, number, EntityType=stored, _ix=manifest)
    outcomes = await asyncio.gather(
        *(
            declared.reconcile(connection_of(db), RowAddress(table, "red", f"{HEAD}{number:03d}"), [place])
            for number in (1, 2, 3)
        ),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes] == [type(None), NotSupported, type(None)]
    assert {row_key[-3:] for _, _, row_key in await listed(db, model)} == {"001", "003"}
