"""
Writes of entities with rows in other partitions: which requests they send, and what becomes of them when some fail.
"""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    Index,
    Mapped,
    NotSupported,
    OutcomeUnknown,
    PropertyBag,
    TransactionFailed,
    Unavailable,
    connect,
    field,
    upgrade,
)
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import IndexEntry
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.decision import Decision, Work, settle_decision
from tableorm.outbox.doorbell import Doorbell, doorbell_of
from tableorm.outbox.table_queue import TableQueueStore
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Message, Row, RowAddress, StoreRequest, TableStore
from tableorm.testing import MemoryStore
from tableorm.testing.contract.base import everything
from tableorm.writes.deferred import carry_out, schemas_by_kind
from tableorm.writes.maintainer import Maintainer
from tableorm_local.server import DEVELOPMENT_KEY
from tests.databases import memory_database
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.rows import delete_row, insert_row
from tests.writes.verbs import write


class Staff(Entity, table="Staff", partition_key="{team}", row_key="emp_{id:03d}", abstract=True):
    team: Mapped[str] = field(default="a")
    id: Mapped[int] = field(default=1)


class Employee(Staff):
    city: Mapped[str | None] = field(default=None)
    name: Mapped[str] = field(default="")
    note: Mapped[str] = field(default="")

    by_city = Index(partition_key="city_{city}", row_key="c_{team}_{id:03d}", include=["name"], consistency="eventual")


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with memory_database(Employee) as db:
        await db.insert(Employee(id=99, city="x"))  # makes the queue
        await settled(db)
        yield db


async def settled(db: Database) -> None:
    """Wait for what nobody waits for."""
    later = connection_of(db)._later  # pyright: ignore[reportPrivateUsage]
    if later:
        await asyncio.wait(later)


async def rows_of(store: TableStore, kind: str) -> dict[str, Row]:
    rows = await everything(store, "Staff")
    return {f"{row['PartitionKey']}/{row['RowKey']}": row for row in rows if row.get("EntityType") == kind}


async def test_an_insert_returns_after_four_requests(db: Database) -> None:
    """The message, the transaction, the entry and a look at the entity; the last two are not waited for."""
    before = db.stats.requests
    await db.insert(Employee(city="Oslo"))
    assert db.stats.requests - before == 4
    await settled(db)
    assert db.stats.requests - before == 6

    entries = await rows_of(db.store, "Employee#by_city")
    assert entries["city_Oslo/c_a_001"]["_of"] == '["Staff","a","emp_001"]'
    assert await rows_of(db.store, "#_decision") == {}


@pytest.mark.parametrize(
    ("verb", "changes", "arguments", "cost"),
    [
        ("insert", {"id": 2}, {}, 6),
        ("save", {"city": "Rome"}, {}, 10),
        ("save", {"name": "Anna"}, {}, 8),
        ("delete", {}, {}, 8),
        ("move", {}, {"id": 3}, 10),
    ],
)
async def test_explained(
    db: Database,
    verb: Any,
    changes: dict[str, Any],
    arguments: dict[str, int],
    cost: int,
) -> None:
    """`explain_write` shows as many requests as are sent, and the paths of the entries."""
    ann = Employee(city="Oslo", name="Ann")
    await db.insert(ann)
    await settled(db)
    ann = ann.evolve(**changes)
    before = db.stats.requests
    said = db.explain_write(verb, ann, **arguments)
    await write(db, verb, ann, **arguments)
    await settled(db)

    assert db.stats.requests - before == said.cost == cost
    assert [step.method for step in said.before] == ["POST"]
    doorbell = doorbell_of(said.before[0].body or b"")
    assert [change.token for change in doorbell.changes] == ["-" * 12] and doorbell.kinds == ("Employee",)
    assert said.after[-1].path == "/tableorm-outbox/messages/------------"
    assert "RowKey='~o_------------'" in said.after[-2].path


DOORBELL = (
    '{"type":"doorbell","changes":[{"table":"Staff","partition_key":"a","token":"------------"}],'
    '"kinds":["Employee"],"format":1}'
)
ANN = (
    '{"PartitionKey":"a","RowKey":"emp_001","EntityType":"Employee","city":"Oslo","name":"Ann","note":"",'
    '"_w":"------------","_ix":"{\\"by_city\\":{\\"at\\":[\\"city_Oslo\\",\\"c_a_001\\",\\"Staff\\"]}}"}'
)
DECISION = (
    '{"PartitionKey":"a","RowKey":"~o_------------","EntityType":"#_decision","State":"committed",'
    '"_w":"------------","Work":"{\\"format\\":1,\\"works\\":[{\\"kind\\":\\"Employee\\",\\"row\\":\\"emp_001\\",'
    '\\"entries\\":{\\"by_city\\":[{\\"at\\":[\\"city_Oslo\\",\\"c_a_001\\",\\"Staff\\"]}]}}]}"}'
)
ENTRY = (
    '{"city":"Oslo","name":"Ann","PartitionKey":"city_Oslo","RowKey":"c_a_001","EntityType":"Employee#by_city",'
    '"_of":"[\\"Staff\\",\\"a\\",\\"emp_001\\"]","_v":"------------"}'
)


async def test_an_explained_insert_reads_like_this(db: Database) -> None:
    """The text has all requests in their order."""
    said = db.explain_write("insert", Employee(city="Oslo", name="Ann"))

    assert (
        str(said)
        == f"""\
POST /tableorm-outbox/messages
{DOORBELL}
POST /$batch
  POST /Staff
  {ANN}
  POST /Staff
  {DECISION}
POST /Staff
{ENTRY}
GET /Staff(PartitionKey='a',RowKey='emp_001')
DELETE /Staff(PartitionKey='a',RowKey='~o_------------')
If-Match: *
DELETE /tableorm-outbox/messages/------------
(6 requests, {said.bytes_sent} bytes)"""
    )


async def test_explained_by_key(db: Database) -> None:
    """Where the entity is read first, the entries depend on what is read."""
    said = db.explain_write("delete", Employee.key(team="a", id=1), if_match="*")

    assert str(said).splitlines() == [
        "GET /Staff(PartitionKey='a',RowKey='emp_001')",
        "POST /tableorm-outbox/messages",
        "(what was read, with what is to be written)",
        "POST /$batch",
        "  DELETE /Staff(PartitionKey='a',RowKey='emp_001')",
        "  If-Match: the ETag that was read",
        "  POST /Staff",
        "  (what was read, with what is to be written)",
        "DELETE /Staff(PartitionKey='a',RowKey='~o_------------')",
        "If-Match: *",
        "DELETE /tableorm-outbox/messages/------------",
        "(5 requests and those of derived rows, 0 bytes)",
    ]


# On a network that fails


def connected(store: FaultyStore) -> Database:
    return Database(FaultyBackend(store), retry=QUICK)


@pytest.fixture
async def network() -> FaultyStore:
    network = FaultyStore(MemoryStore())
    async with connected(network) as db:
        await db.create_tables(Employee)
        await db.insert(Employee(id=99, city="x"))
    return network


class Unreadable(FaultyStore):
    """A store that refuses to show an entity, some times."""

    refusals = 0

    async def send(self, request: StoreRequest) -> Any:
        if request.method == "get" and request.arguments[1] == "emp_001" and self.refusals:
            self.refusals -= 1
            raise Fault(Code.AUTHORIZATION_FAILURE, "Not now.")
        return await super().send(request)


async def test_a_decision_row_proves_the_write_of_what_cannot_be_read(network: FaultyStore) -> None:
    """The entity is read once more for its ETag; without that nobody knows what is stored now."""
    store = Unreadable(network.store)
    ann, ben = Employee(city="Oslo"), Employee(city="Rome")
    async with connected(store) as db:
        store.plan(Fate.FINE, Fate.LOST_REPLY)
        store.refusals = 1
        await db.insert(ann)
        ann.note = "the ETag is right"
        await db.save(ann)
        await db.delete(ann)
        await settled(db)

        store.plan(Fate.FINE, Fate.LOST_REPLY)
        store.refusals = 2
        with pytest.raises(OutcomeUnknown, match=r"insert of Employee.*the row could not be read") as unknown:
            await db.insert(ben)
    assert (unknown.value.found, ben.etag) == (None, None)


async def test_a_write_in_doubt_whose_decision_row_cannot_be_written(network: FaultyStore) -> None:
    """The outcome of the write is unknown, whatever becomes of the question: it may still arrive."""
    async with connected(network) as db:
        network.plan(Fate.FINE, Fate.LATE, *[Fate.LOST_REQUEST] * (QUICK.attempts - 1), *[Fate.BUSY] * 999)
        with pytest.raises(OutcomeUnknown, match="insert of Employee"):
            await db.insert(Employee(city="Oslo"))
        network.plan()
        await network.deliver()
        assert (await db.get(Employee, team="a", id=1)).city == "Oslo"


async def test_nobody_answers_the_bell(network: FaultyStore) -> None:
    """A write whose message cannot be put is not sent; a bulk does not try each of its entities."""
    async with connected(network) as db:
        network.plan(*[Fate.LOST_REQUEST] * 999)
        with pytest.raises(Unavailable, match="message to the queue tableorm-outbox"):
            await db.insert(Employee(city="Oslo"))
        sent = len(network.sent)
        async with db.bulk(errors="report") as bulk:
            for number in range(20):
                await bulk.insert(Employee(id=number, city="Oslo"))
        assert len(network.sent) == 2 * sent
        assert bulk.report.failures == 20
        network.plan()

    assert (await rows_of(network.store, "Employee")).keys() == {"a/emp_099"}


async def test_what_fails_after_the_commit_fails_no_write(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """An entry that cannot be made right is left to workers, with its decision row and its message."""
    row = {"PartitionKey": "city_Oslo", "RowKey": "c_a_001", "EntityType": "Other"}
    await insert_row(db, "Staff", row)
    await db.insert(Employee(city="Oslo"))
    await settled(db)

    assert 'is left to workers: Employee.by_city: the entry of ["Staff","a","emp_001"] belongs at' in caplog.text
    (decision,) = (await rows_of(db.store, "#_decision")).values()
    assert decision["State"] == "committed"
    assert await outbox_queues(connection_of(db)).length(OUTBOX) == 1
    await delete_row(db, "Staff", row)
    connection, token = connection_of(db), decision["RowKey"].removeprefix("~o_")
    found = await settle_decision(connection, "Staff", "a", token)
    with pytest.raises(NotSupported, match="about entities of kind Employee, which this program does not know"):
        await carry_out(connection, "Staff", {}, found)
    with pytest.raises(NotSupported, match=r"of table Other is .* of kind Employee, which are in table Staff by this"):
        await carry_out(connection, "Other", {"Employee": Employee.__schema__}, found)
    await carry_out(connection, "Staff", {"Employee": Employee.__schema__}, found)
    assert "city_Oslo/c_a_001" in await rows_of(db.store, "Employee#by_city")


# Many at once


async def test_a_transaction_has_one_decision_row(db: Database) -> None:
    """It is one of the 100 operations; beyond them nothing is sent."""
    before = db.stats.requests
    async with db.transaction() as tx:
        for number in range(30):
            tx.insert(Employee(id=number, city="Oslo"))
    await settled(db)
    assert db.stats.requests - before == 2 + 30 * 2 + 2
    assert await rows_of(db.store, "#_decision") == {}

    with pytest.raises(TransactionFailed, match="the transaction has 101 operations, 100 are allowed"):
        async with db.transaction() as tx:
            for number in range(100):
                tx.insert(Employee(team="b", id=number, city="Oslo"))
    assert len(await rows_of(db.store, "Employee")) == 31


async def test_a_bulk(db: Database) -> None:
    """Chunks leave room for the decision row, and entities without an entry need none."""
    async with db.bulk(errors="report") as bulk:
        for number in range(250):
            await bulk.upsert(Employee(team="b", id=number, city="Oslo" if number % 2 else None))
    await settled(db)

    assert bulk.report.failures == 0
    assert len(await rows_of(db.store, "Employee#by_city")) == 125 + 1
    assert await rows_of(db.store, "#_decision") == {}
    assert await outbox_queues(connection_of(db)).length(OUTBOX) == 0


class Guest(Entity, table="Guests", partition_key="{team}", row_key="guest_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]

    by_id = Index(partition_key="id_{id:03d}", row_key="c_{team}", consistency="eventual")


async def test_a_bulk_of_several_kinds_rings_for_each(db: Database) -> None:
    """Each message names the kinds of all of its changes, so that no worker has to know those of others."""
    await db.create_tables(Guest)
    told: list[Doorbell] = []

    class Listening(TableQueueStore):
        async def put(
            self, queue: str, body: bytes, *, delay_seconds: int = 0, ttl_seconds: int | None = None
        ) -> Message:
            message = await super().put(queue, body, delay_seconds=delay_seconds, ttl_seconds=ttl_seconds)
            told.append(doorbell_of(body))
            return message

    connection = connection_of(db)
    connection._opened.outbox = None  # pyright: ignore[reportPrivateUsage]
    connection.outbox(lambda _: Listening(db.store))
    async with db.bulk(concurrency=16) as bulk:
        for number in range(16):
            await bulk.insert(Employee(team=f"team{number}", city="Oslo"))
            await bulk.insert(Guest(team=f"team{number}", id=1))
    await settled(db)

    assert {(each.kinds, change.table) for each in told for change in each.changes} == {
        (("Employee",), "Staff"),
        (("Guest",), "Guests"),
    }
    assert sum(len(each.changes) for each in told) == 32 > 2 * len(told)


# Programs that do not know the index


class Older(Staff, kind="Employee", tracked=True):
    note: Mapped[str] = field(default="")


async def test_a_program_that_does_not_declare_the_index(network: FaultyStore) -> None:
    """It deletes the entry with its write, and drops it from the manifest: better none than an old one."""
    async with connected(network) as db:
        await db.insert(Employee(city="Oslo", name="Ann"))
    async with connected(network) as db:
        ann = await db.get(Older, team="a", id=1)
        ann.note = "seen"
        await db.save(ann)

    assert (await rows_of(network, "Employee#by_city")).keys() == {"city_x/c_a_099"}
    assert (await rows_of(network, "Employee"))["a/emp_001"]["_ix"] == "{}"
    assert await rows_of(network, "#_decision") == {}


async def test_a_bag_that_is_deleted(db: Database) -> None:
    """Whoever deletes a row without its model removes its entries too."""
    await db.insert(Employee(city="Oslo", name="Ann"))
    await db.delete(await db.get(PropertyBag.key(table="Staff", partition_key="a", row_key="emp_001")))
    await settled(db)
    assert (await rows_of(db.store, "Employee#by_city")).keys() == {"city_x/c_a_099"}
    assert await rows_of(db.store, "#_decision") == {}


# Those who may not


class Note(Entity, table="TenantNotes", partition_key="{tenant}", row_key="note_{id:03d}"):
    tenant: Mapped[str]
    id: Mapped[int]
    topic: Mapped[str]

    by_topic = Index(partition_key="topic_{topic}", row_key="{tenant}_{id:03d}", table="Topics", consistency="eventual")
    by_tenant = Index(partition_key="of_{tenant}", row_key="n_{topic}_{id:03d}", consistency="eventual")


async def test_a_scope(db: Database) -> None:
    """The entries of an entity of the scope are of it too; a manifest cannot name the rows of others."""
    await db.create_tables(Note)
    mine = db.scope(tenant="acme")
    await mine.insert(Note(tenant="acme", id=1, topic="x"))
    await settled(db)
    assert len(await everything(db.store, "Topics")) == 1

    others = {
        "PartitionKey": "topic_x",
        "RowKey": "other_001",
        "EntityType": "Note#by_topic",
        "_of": '["TenantNotes","other","note_001"]',
    }
    await insert_row(db, "Topics", others)
    forged = {"PartitionKey": "acme", "RowKey": "note_002", "EntityType": "Note", "topic": "x"}
    manifest = '{"by_topic":{"at":["topic_x","other_001","Topics"]}}'
    await insert_row(db, "TenantNotes", {**forged, "_ix": manifest})
    before = db.stats.requests
    with pytest.raises(AccessDenied, match=r"Note\.by_topic\.tenant is 'other', and this scope is of tenant='acme'"):
        await mine.delete(Note, tenant="acme", id=2, if_match="*")
    assert db.stats.requests == before + 1  # the entity was read

    await db.delete(Note, tenant="acme", id=2, if_match="*")
    await settled(db)
    assert {row["RowKey"] for row in await everything(db.store, "Topics")} == {"acme_001", "other_001"}


async def test_work_of_another_form_is_left_to_others(db: Database) -> None:
    """An entry that is in the same partition by this program leaves no work: a newer program may know of one."""
    work = Work(kind="Employee", row_key="emp_001", entries={"by_city": (IndexEntry("c_a_001"),)})
    decision = Decision(partition_key="a", token="of_a_newer_program", works=(work,))
    with pytest.raises(NotSupported, match="'c_a_001' as 'by_city', which this program does not know; leave it to a"):
        await carry_out(connection_of(db), "Staff", schemas_by_kind([Employee.__schema__]), decision)


async def test_a_token_for_one_table(tmp_path: Path) -> None:
    """It reaches no queue, so that writes which need one are rejected, by name and before anything is sent."""
    url = f"local:{tmp_path}/a.tables"
    async with connect(url, key=DEVELOPMENT_KEY) as db:
        await db.create_tables(Employee)
        token = await db.grant(Employee, "raud", dt.timedelta(hours=1))
    async with connect(url, key=DEVELOPMENT_KEY, sas=token) as db:
        with pytest.raises(AccessDenied, match="rows in other partitions follow it, by by_city, and the token"):
            await db.insert(Employee(city="Oslo"))
        assert db.stats.requests == 0
        await db.insert(Employee(id=2))
        with pytest.raises(TransactionFailed, match=r"operation 0: .* is for table Staff alone"):
            async with db.transaction() as tx:
                tx.insert(Employee(city="Oslo"))


# Versions


class City(Staff, kind="Employee", version=2):
    town: Mapped[str | None] = field(default=None)

    by_city = Index(partition_key="town_{town}", row_key="t_{team}_{id:03d}", consistency="eventual")


@upgrade(City, from_version=1)
def city_to_town(bag: PropertyBag) -> PropertyBag:
    bag["town"] = bag.pop("city", None)
    return bag


async def test_a_new_version_of_the_model(network: FaultyStore) -> None:
    """The write that upgrades an entity moves its entry; a worker of the old version leaves the rest to others."""
    async with connected(network) as db:
        await db.insert(Employee(city="Oslo", name="Ann"))
    async with connected(network) as db:
        ann = await db.get(City, team="a", id=1)
        network.plan(Fate.FINE, Fate.FINE, *[Fate.LOST_REQUEST] * 999)
        await db.save(ann)
        network.plan()
        (decision,) = [row for row in await everything(network, "Staff") if row.get("State") == "committed"]
        found = await settle_decision(connection_of(db), "Staff", "a", decision["RowKey"].removeprefix("~o_"))
        assert found.kinds == ("Employee:2",)
        with pytest.raises(NotSupported, match="about entities of kind Employee:2, which this program does not know"):
            await carry_out(connection_of(db), "Staff", schemas_by_kind([Employee.__schema__]), found)
        old = [entry for work in found.works for entry in work.entries["by_city"]]
        source, by_city = RowAddress("Staff", "a", "emp_001"), Employee.__schema__.derived["by_city"]
        assert isinstance(by_city, Maintainer)
        with pytest.raises(NotSupported, match="has version 2, and this program knows 1"):
            await by_city.reconcile(connection_of(db), source, old)
        schemas = schemas_by_kind([City.__schema__])
        assert schemas == {"Employee": City.__schema__, "Employee:2": City.__schema__}
        await carry_out(connection_of(db), "Staff", schemas, found)

    entries = await everything(network, "Staff")
    assert {row["PartitionKey"] for row in entries if "#by_city" in row["EntityType"]} == {"city_x", "town_Oslo"}
    assert [row["EntityType"] for row in entries if row["PartitionKey"] == "town_Oslo"] == ["Employee#by_city:2"]
    async with connected(network) as db:
        assert (await db.audit(City, repair=True)).clean  # the other entity is upgraded
        assert (await db.audit(City)).found == 0
