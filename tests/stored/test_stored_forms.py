"""
What an earlier version has stored: every later one reads it, and finishes what was under way.

The files are written by `tests.stored.make`, once for each form of what is stored, and never again. What a row, a blob
or a message may look like says docs/design/stored-formats.md.
"""

import datetime as dt
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tableorm import Blob, Database, Encryption, Entity, EntityNotFound, PropertyBag, connect
from tableorm.connection.connection import connection_of
from tableorm.logs import read_log
from tableorm.models.manifest import (
    CopyEntry,
    DeletedEntry,
    EachEntry,
    HeldEntry,
    IndexEntry,
    ManifestEntry,
    SubtotalEntry,
    UnknownEntry,
    UploadEntry,
    manifest_of,
)
from tableorm.models.marker_rows import MoveState, mark_of
from tableorm.outbox.overview import find_pending, ring_again
from tableorm.outbox.table_queue import TableQueueStore
from tableorm.stores import Row
from tableorm_migrations import (
    apply_revisions,
    compare_snapshots,
    describe_models,
    finalize_rekey,
    migration_status,
    read_snapshot,
    rekey_phase,
    rewrite,
    run_move,
    verify_move,
    verify_rekey,
)
from tests.stored.make import export
from tests.stored.shop import (
    KEYS,
    OLD_PARCELS,
    Chest,
    Customer,
    Day,
    DayOfParts,
    Firm,
    Foreign,
    Hand,
    Item,
    Line,
    Login,
    Mate,
    NewTrip,
    NewVisit,
    Note,
    Order,
    Parcel,
    Person,
    Pin,
    Poster,
    Reader,
    Secret,
    Session,
    Setting,
    Ship,
    Status,
    Trip,
    Visit,
    Xray,
    cold_parcels,
)

FILES = Path(__file__).parent / "files"
NOON = dt.datetime(2025, 1, 6, 12, tzinfo=dt.UTC)


@pytest.fixture
def number() -> int:
    """The number of the file that a test is about: the first one, if it does not say another."""
    return 1


@pytest.fixture
def facts(number: int) -> dict[str, Any]:
    """What is in the file, as JSON."""
    found: dict[str, Any] = json.loads((FILES / f"{number}.json").read_text())
    return found


@pytest.fixture
def data(number: int) -> bytes:
    """The file of the engine."""
    return gzip.decompress((FILES / f"{number}.tables.gz").read_bytes())


@pytest.fixture
def url(data: bytes, tmp_path: Path) -> str:
    """The URL of a copy of the file."""
    path = tmp_path / "stored.tables"
    path.write_bytes(data)
    return f"local:{path}"


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    async with connect(url, encryption=Encryption(KEYS)) as db:
        yield db


def in_file(number: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("number", [number])


def rows_in(facts: dict[str, Any]) -> list[Row]:
    return [row for rows in facts["tables"].values() for row in rows]


def entries_in(facts: dict[str, Any]) -> set[type[ManifestEntry]]:
    """Return the forms of the entries of all manifests."""
    return {type(entry) for row in rows_in(facts) for entry in manifest_of(row).values()}


@pytest.mark.parametrize("number", range(1, 10))
async def test_the_file_is_read_as_it_was_written(db: Database, facts: dict[str, Any]) -> None:
    """Every row with its types, its ETag and its time, every blob with its metadata, and every message is there."""
    found = await export(db)

    assert found == {name: facts[name] for name in found}
    assert list(found["tables"]) == list(facts["tables"])


def test_the_file_says_what_it_is(data: bytes) -> None:
    """Any version tells a file of the engine, and its format, from the first hundred bytes."""
    assert data.startswith(b"SQLite format 3\0")
    assert (data[68:72], int.from_bytes(data[60:64])) == (b"TbOr", 1)


def test_every_form_is_in_the_files(facts: dict[str, Any]) -> None:
    """Who adds something that is stored writes another file which has it: `tests.stored.make` says how."""
    rows, forms = rows_in(facts), entries_in(facts)
    known = [*ManifestEntry.__subclasses__()]
    for each in known:
        known += each.__subclasses__()
    states = {mark.state for row in rows if (mark := mark_of(row)) is not None}
    kinds = {str(row.get("EntityType", "")).partition(":")[0] for row in rows}

    ours = {each for each in known if each.__module__ == ManifestEntry.__module__ and each.form is not None}
    elsewhere = {UploadEntry, SubtotalEntry, CopyEntry, HeldEntry, EachEntry, DeletedEntry}  # in files 4, 7, 8 and 9
    assert forms == {*ours, IndexEntry} - {UnknownEntry, *elsewhere}
    assert states == {*MoveState} - {MoveState.OLD}
    assert {"#_decision", "#_change", "#_feed", "Note#_tentative", "Note#by_text#_tentative", "Trip#_forward"} <= kinds
    assert {name for row in rows for name in row} >= {"_w", "_ix", "_mv", "_of", "_v", "EntityVersion", "Divided"}
    assert {row["State"] for row in rows if row.get("EntityType") == "#_decision"} == {"committed", "void"}
    assert {message["type"] for message in facts["messages"]} == {"doorbell", "move"}
    records = {row["PartitionKey"].partition(" ")[0] for row in facts["tables"]["TableormUpkeep"]}
    assert records == {"index", "re-keys", "revisions", "run"}


async def test_entities_and_what_is_derived_from_them(db: Database) -> None:
    """Fields of each type, unknown properties, versions, indexes, lists, counts, sums and copies are as they were."""
    order = await db.get(Order, shop="north", id=2)
    assert order == Order(
        shop="north",
        id=2,
        customer="ann",
        code="c2",
        cents=1250,
        status=Status.SENT,
        boxes=3,
        weight=1.5,
        paid=True,
        at=NOON,
        due=NOON.date(),
        ticket=UUID(int=7),
        seal=b"\x00\xff",
        lines=[Line("nail", 100), Line("saw", 1)],
        customer_city="Oslo",
    )
    assert dict(order.extra) == {"Crate": 2**40}
    assert (await db.get(Order, shop="north", id=4)).cents == 50  # of the first version
    assert (await db.get(Order.by_code, shop="north", code="c2")).id == 2
    sent = db.select(Order.by_status).where(Order.shop == "north", Order.status == Status.SENT)
    assert [each.id for each in await sent.all()] == [2]
    new = await db.lookup(Order.of_status, shop="north", status=Status.NEW)
    assert [each.id for each in new] == [1, 3]
    assert len(await db.lookup(Item.on_shelf, shop="north", shelf="a")) == 8
    ann = await db.get(Customer, shop="north", name="ann")
    assert (ann.orders, ann.spent) == (3, 1600)
    assert (await db.audit(Item)).clean

    ann.city = "Rome"
    await db.save(ann)
    await db.delete(await db.get(Order, shop="north", id=3))
    await db.refresh(ann)
    assert (ann.orders, ann.spent) == (2, 1500)
    assert (await db.get(Order, shop="north", id=2)).customer_city == "Rome"


@in_file(3)
async def test_entities_of_several_rows(db: Database, facts: dict[str, Any]) -> None:
    """They are read, and changed, by a program that declares their parts otherwise; nothing is stored twice."""
    rows = facts["tables"]["StoredDays"]
    assert [row["RowKey"] for row in rows] == [f"p_00{day}{part}" for day in (1, 2) for part in ("", "~01", "~02")]
    assert {name for row in rows for name in row} >= {"_p01", "_p02", "_w"}
    one, two = await db.select(DayOfParts).where(DayOfParts.user == "ann").all()
    assert ([*one.sent], one.text) == ([1, *[0] * 14, 1, *[0] * 8], "t")
    assert ([two.sent[at] for at in (0, 5, 15)], two.text) == ([2, 7, 2], "t")
    one.sent[15], one.text = 5, "u"
    await db.save(one)
    names = [name for row in (await export(db))["tables"]["StoredDays"][:3] for name in row]
    assert [names.count(name) for name in ("H00", "H15", "text", "other")] == [1, 1, 1, 1]
    assert await db.get(DayOfParts, user="ann", day=1) == one


@in_file(2)
async def test_fields_of_several_properties(db: Database) -> None:
    """A series, and long values: divided, compressed, and shortened by a merge."""
    long, short = await db.get(Day, user="ann", day=1), await db.get(Day, user="ann", day=2)

    assert [*long.sent] == [0] * 9 + [5] + [0] * 13 + [1]
    assert (long.text, short.text) == ("\U0001f600" * 16_385, "short")
    assert long.lines == short.lines == ["one", "two"]


@in_file(5)
async def test_encrypted_fields(db: Database, facts: dict[str, Any]) -> None:
    """They are opened with either key, also in an index entry, and changed; what the model does not know stays so."""
    assert "text 1" not in str(facts["tables"]["StoredSecrets"])
    secrets = await db.select(Secret).where(Secret.user == "ann").all()
    assert [(each.text, each.scan, each.extra["other"]) for each in secrets] == [
        (text, b"\0\xff", "o") for text in ("text 1", "newer text", "text 3")
    ]
    assert [each.long for each in secrets] == ["", "\u20ac" * 22_000, ""]
    entries = await db.select(Secret.by_level).where(Secret.user == "ann").only(Secret.text).all()
    assert [each.text for each in entries] == ["text 1", "text 3", "newer text"]
    secrets[0].text = "text 4"
    await db.save(secrets[0])
    assert (await db.audit(Secret)).clean
    assert (await db.rewrap(Secret)).written == 1  # of the entry, which was written as a whole, there is a new key


@in_file(6)
async def test_encrypted_blobs(db: Database) -> None:
    """A blob, whose key is in the row, and a series, of an entity of several rows; nothing of them can be read."""
    xray = await db.get(Xray, user="ann", id=1)
    assert ([*xray.doses], xray.note, xray.image.content_type) == ([1, 0, 3], "n", "image/png")
    assert await xray.image.read() == b"\0\xff" * 40_000
    assert await xray.image.read(65_535, 3) == b"\xff\0\xff"
    xray.image = Blob(b"new")
    await db.save(xray)
    assert len((await db.blobs.list_blobs("tableorm-blobs")).blobs) == 1
    assert (await db.audit(Xray)).clean


@in_file(8)
async def test_indexes_of_lists(db: Database) -> None:
    """Entries of elements are found, changed, and right; lists of links lead to the same keys."""
    query = db.select(Reader.by_tag).where(Reader.town == "lund")
    assert [reader.id for reader in await query.where(Reader.tags.contains("c/d")).all()] == [2]
    (first, second) = (Note.key(box="in|out", id=number) for number in (1, 2))
    found = await db.select(Reader.by_note).where(Reader.town == "lund", Reader.notes.contains(first)).all()
    assert [reader.notes for reader in found] == [[first], [first, second]]
    assert (await db.audit(Reader)).clean
    found[1].notes = [second]
    await db.save(found[1])
    assert (await db.audit(Reader)).clean


async def test_rows_of_other_kinds(db: Database) -> None:
    """Kinds in keys, rows of other programs, entities that expire, tables of periods, and stored policies."""
    assert (await db.get(Setting, user="ann", name="colour")).value == "red"
    foreign = await db.get(Foreign, part="theirs", row="r1")
    assert (foreign.size, dict(foreign.extra)) == (5, {"Other": 2**53 + 1})
    bag = await db.get(PropertyBag.key("StoredForeign", "theirs", "r1"))
    assert bag["size"] == 5
    assert [each.device for each in await db.select(Session).where(Session.user == "ann").all()] == ["desk"]
    assert (await db.sweep(Session)).deleted == 1
    logins = db.select(Login).where(Login.user == "ann", Login.at >= NOON, Login.at < NOON.replace(month=3))
    assert [each.at.month for each in await logins.all()] == [1, 2]
    (policy,) = (await db.policies(Customer).list()).values()
    assert (policy.name, policy.permissions) == ("readers", "r")


@in_file(4)
async def test_blobs_are_read_and_uploads_finished(db: Database, facts: dict[str, Any]) -> None:
    """Blobs are read where their entities have moved; a worker deletes what was begun and dropped, and nothing else."""
    assert entries_in(facts) == {UploadEntry}
    assert {row["State"] for row in rows_in(facts) if row["EntityType"] == "#_blob"} == {"held", "void"}
    assert {message["type"] for message in facts["messages"]} == {"upload", "doorbell"}

    async with db.worker(Poster) as worker:
        await worker.drain()
    posters = await db.select(Poster).allow_scan().all()
    found = {(each.wall, each.id): each.picture and await each.picture.read() for each in posters}
    assert found == {("east", 1): b"p1", ("east", 3): b"p3 again", ("west", 2): b"p2"}
    assert len((await db.blobs.list_blobs("tableorm-blobs")).blobs) == 3
    assert (await db.audit(Poster)).clean


async def test_a_feed_goes_on_from_its_cursor(db: Database, facts: dict[str, Any]) -> None:
    """A cursor of a change feed gives the changes that follow it, and the next change gets the next number."""
    await db.insert(Mate(team="red", id=4))

    changes = [change async for change in db.changes(Mate, team="red", after=facts["cursors"]["changes"])]
    assert [change.number for change in changes] == [3, 4, 5]
    assert [(each.verb, each.key.row_key) for each in changes[1].entities] == [
        ("delete", "mate_002"),
        ("insert", "mate_003"),
    ]


async def test_queries_go_on_from_their_cursors(db: Database, facts: dict[str, Any]) -> None:
    """So do pages by keys, by an index, with a limit and of several tables; and an audit."""
    cursors = facts["cursors"]
    page = await db.select(Order).where(Order.shop == "north").page(1, cursors["page"])
    assert [each.id for each in page.items] == [2]
    entries = await db.select(Order.by_code).where(Order.shop == "north").page(1, cursors["page by index"])
    assert [each.code for each in entries.items] == ["c2"]
    logins = await db.select(Login).where(Login.user == "ann").allow_scan().page(1, cursors["page of periods"])
    assert [each.at.month for each in logins.items] == [2]
    query = db.select(Item).where(Item.shop == "north", Item.shelf == "a").limit(5)
    items = await query.page(5, cursors["page with limit"])
    assert ([each.name[0] for each in items.items], items.cursor) == (["2", "3", "4"], None)
    assert (await db.audit(Customer, Order, Mate, cursor=cursors["audit"])).entities == 7


async def test_readers_of_unfinished_moves(db: Database) -> None:
    """Before anybody finishes the moves, each entity is where the forward says."""
    found = [await db.get_or_none(Note, box=f"out{number}", id=number) for number in range(1, 5)]
    assert [each and each.text for each in found] == [None, None, "t3", "t4"]
    assert [each.id for each in await db.select(Note).where(Note.box == "in").all()] == [1, 2]


async def test_workers_finish_what_was_under_way(db: Database, url: str) -> None:
    """Changes of other partitions, moves, workflows and archives, also those that workers had given up."""
    cold = cold_parcels(url)
    connection = connection_of(db)
    given_up = [each async for each in find_pending(connection, "StoredParcels") if each.decision.error]
    assert [each.decision.tries for each in given_up] == [1]
    assert given_up[0].decision.progress == {0: ("send", {"via": "rail", "packed": True})}
    await ring_again(connection, given_up[0])

    async with db.worker(Person, Note, Parcel, Ship, OLD_PARCELS, cold) as worker:
        await worker.drain()

    for table in ("StoredStaff", "StoredParcels"):
        assert [each async for each in find_pending(connection, table)] == []
    assert (await db.get(Person.by_email, email="jun@x")).id == 4
    in_rome = db.select(Person.by_city).where(Person.city == "Rome")
    assert [each.id for each in await in_rome.all()] == [4]
    assert [each.id for each in await db.lookup(Person.in_role, role="chief")] == [1, 4]
    assert [each.id for each in await db.lookup(Person.in_city, city="Oslo")] == [1]
    await db.insert(Person(team="red", id=5, email="begun@x", city="Rome", role="clerk"))
    assert [(await db.get(Note, box=f"out{n}", id=n)).text for n in range(1, 5)] == ["t1", "t2", "t3", "t4"]
    assert await db.select(Note).where(Note.box == "in").count() == 0
    shipped = [(await db.get(Parcel, depot="d", id=number)).state for number in (1, 2)]
    assert shipped == ["sent by rail", "sent by road"]
    blobs = (await db.blobs.list_blobs("stored-old-parcels")).blobs
    archived = [OLD_PARCELS.load(await db.blobs.read("stored-old-parcels", each.name)) for each in blobs]
    assert [each.id for each in archived] == [3, 5]
    async with connect(url, prefix="Cold") as other:
        assert [each.id for each in await other.select(Parcel).allow_scan().all()] == [4, 6]
    assert (await db.audit(Person, Note)).clean


async def test_a_rekey_goes_on(db: Database) -> None:
    """While it is under way each entity is found by its newer key; then the rest is moved, and all is verified."""
    texts = ["written since", "t2", "t3", "t4", "t5"]
    assert await rekey_phase(db, NewTrip) == "move"
    assert [(await db.get(NewTrip, id=n, day="mon")).text for n in range(1, 6)] == texts
    with pytest.raises(EntityNotFound):
        await db.get(Trip, day="mon", id=2)

    assert (await run_move(db, NewTrip, no_blind_writers=True)).complete
    assert (await verify_move(db, NewTrip)).complete
    assert [(await db.get(NewTrip, id=n, day="mon")).text for n in range(1, 6)] == texts


async def test_an_offline_rekey_goes_on(db: Database) -> None:
    """What was copied is verified, and deleted where it was."""
    assert await rekey_phase(db, NewVisit) == "sealed"
    assert (await verify_rekey(db, Visit, NewVisit)).complete
    assert (await finalize_rekey(db, Visit, NewVisit)).complete
    assert (await db.get(NewVisit, id=2, day="mon")).id == 2
    assert await db.select(Visit).allow_scan().all() == []


async def test_records_of_upkeep(db: Database) -> None:
    """States of indexes, shared runs and revisions are known, and go on."""
    states = {str(state).partition(" ")[0]: state.state for state in await db.index_states()}
    assert (states["Order.by_code"], states["Pin.by_colour"]) == ("readable", "write-only")
    assert (await db.build_index(Pin.by_colour, no_older_writers=True)).readable
    runs = {run.name: run.state for run in await db.runs()}
    assert (runs["cents"], runs["settings"]) == ("open", "done")
    report = await rewrite(db, Order, name="cents")
    assert (report.complete, report.entities, report.written) == (True, 4, 2)  # of which two were counted before
    assert "0001_the_first: applied" in str(await migration_status(db, FILES / "revisions"))
    assert (await apply_revisions(db, [Setting], FILES / "revisions")).pending == ()
    snapshot = read_snapshot(FILES / "models.json")
    models: list[type[Entity]] = [Setting]
    assert [*compare_snapshots(snapshot, describe_models(models))] == []


async def test_queues_in_a_table_and_logs(db: Database) -> None:
    """Messages of a queue that lies in a table are taken, and segments of logs are read."""
    queues = TableQueueStore(db.store)
    assert await queues.length("mail") == 2
    messages = await queues.take("mail", 2)
    assert sorted((each.body, each.dequeue_count) for each in messages) == [(b"first", 2), (b"second", 1)]
    records = [record async for record in read_log(db, "queue", NOON, NOON + dt.timedelta(hours=2))]
    assert [(each.at, each.data["status"]) for each in records] == [
        (NOON, 201),
        (NOON + dt.timedelta(hours=1), 200),
    ]


@in_file(7)
async def test_counts_and_copies_across_partitions(db: Database, facts: dict[str, Any]) -> None:
    """A later version copies what was left of subtotals and of a new title, and changes what an earlier one wrote."""
    assert entries_in(facts) >= {SubtotalEntry, CopyEntry, HeldEntry}
    assert {"#_subtotal", "#_share", "#_decision"} <= {row.get("EntityType") for row in rows_in(facts)}
    async with db.worker(Firm, Hand) as worker:
        await worker.drain()
    firm = await db.get(Firm, name="a")
    hands = [each async for each in db.select(Hand).allow_scan()]
    assert (firm.hands, firm.wages, {each.title for each in hands}) == (4, 12, {"second"})

    await db.delete(hands[0])
    assert (await db.get(Firm, name="a")).hands == 3
    assert (await db.audit(Firm, Hand)).findings == ()


@in_file(9)
async def test_deletes_with_children(db: Database, facts: dict[str, Any]) -> None:
    """A later version deletes the children and the entity, and children that came before the last look."""
    assert entries_in(facts) == {DeletedEntry}
    assert ["Progress" in row for row in rows_in(facts) if row.get("EntityType") == "#_decision"].count(True) == 1
    async with db.worker(Chest) as worker:
        await worker.drain()
    assert [bag async for bag in db.select_raw("StoredChests").allow_scan()] == []
    assert [bag async for bag in db.select_raw("StoredCoins").allow_scan()] == []
