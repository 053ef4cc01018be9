"""
Seeing the requests: printed, logged, by a hook and in a block, alike on every backend.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.trace import NoOpTracerProvider

from tableorm import (
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Int32,
    Mapped,
    NotSupported,
    ObservedRequest,
    RetryPolicy,
    TableOrmError,
    TransactionFailed,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Row, RowPage
from tests.azure.stub import KEY, NO_CONTENT, Stub, error_answer, row_answer
from tests.connection.conftest import Connect
from tests.databases import memory_database
from tests.faults import QUICK, FaultyBackend


class Person(Entity, table="People", partition_key="{team}", row_key="person_{id:04d}"):
    team: Mapped[str] = field(default="a")
    id: Mapped[int] = field(default=1)
    name: Mapped[str | None] = field(default=None)
    age: Mapped[Int32] = field(default=0)


PERSON = Person.key(team="a", id=1)


PRIVATE = "Kenneth", "987654321"
"""The values of the tests' entities, which nobody is shown who has not asked for them."""


def told(request: ObservedRequest) -> tuple[Any, ...]:
    return request.operation, request.table, request.model, request.partition_key, request.row_key, request.rows


async def work(db: Database) -> None:
    """Send each sort of request once."""
    await db.create_tables(Person)
    ken = Person(name="Kenneth", age=987654321)
    await db.insert(ken)
    ken.age = 4712
    await db.save(ken)
    await db.upsert(Person(id=2, name="Kenneth", age=987654321))
    async with db.transaction() as tx:
        tx.insert(Person(id=3, age=987654321))
        tx.insert(Person(id=4, age=987654321))
    await db.get(PERSON)
    await db.get_or_none(Person, team="b", id=1)
    await db.select(Person).where(Person.team == "a", Person.age == 987654321).all()
    await db.delete(PERSON, if_match="*")
    await db.tables()
    await db.drop_table("People")


WORK = [
    ("create-table", "People", "", None, None, 0),
    ("insert", "People", "Person", "a", "person_0001", 1),
    ("merge", "People", "Person", "a", "person_0001", 1),
    ("insert-or-merge", "People", "Person", "a", "person_0002", 1),
    ("transaction", "People", "Person", "a", None, 2),
    ("get", "People", "Person", "a", "person_0001", 1),
    ("get", "People", "Person", "b", "person_0001", 0),
    ("query", "People", "Person", None, None, 3),
    ("delete", "People", "Person", "a", "person_0001", 1),
    ("list-tables", "", "", None, None, 0),
    ("query", "TableormUpkeep", "", None, None, 0),  # for the states of indexes
    ("delete-table", "People", "", None, None, 0),
]


async def test_every_request_is_told(connecting: Connect) -> None:
    """The hook of `connect` and a block are told the same of every request, in order, on every backend."""
    seen: list[ObservedRequest] = []
    async with connecting(on_request=seen.append) as db:
        with db.observe() as block:
            await work(db)

    assert list(map(told, seen)) == WORK
    assert block.requests == seen and block.cost == len(WORK) and block.rows == sum(each.rows for each in seen)
    assert [each.outcome for each in seen] == ["ok"] * 6 + ["ResourceNotFound"] + ["ok"] * 3 + ["TableNotFound", "ok"]
    assert all(each.seconds > 0 and each.attempt == 1 for each in seen)


async def test_requests_of_queues_are_told() -> None:
    """What a program asks of `db.queues` is told and counted as requests for rows are, also what is rejected."""
    told: list[str] = []
    async with connect(
        "local::memory:", on_request=lambda request: told.append(f"{request.line} {request.outcome}")
    ) as db:
        await db.queues.create_queue("mail")
        await db.queues.put("mail", b"x", delay_seconds=0)
        (message,) = await db.queues.take("mail")
        await db.queues.renew("mail", message, 0)
        await db.queues.peek("mail", count=2)
        await db.queues.length("mail")
        await db.queues.clear("mail")
        await db.queues.list_queues(prefix="m")
        await db.queues.delete_queue("mail")
        with pytest.raises(TableOrmError):
            await db.queues.take("mail")
        assert db.stats.counts["put-message", ""].requests == 1

    assert told == [
        "PUT mail ok",
        "POST mail/messages ok",
        "GET mail/messages ok",
        "PUT mail/messages/ID ok",
        "GET mail/messages?peekonly=true ok",
        "GET mail?comp=metadata ok",
        "DELETE mail/messages ok",
        "GET ?comp=list ok",
        "DELETE mail ok",
        "GET mail/messages QueueNotFound",
    ]


async def test_requests_of_blobs_are_told() -> None:
    """What a program asks of `db.blobs` is told and counted, a stream by the request that opens it."""
    async with connect("local::memory:") as db:
        with db.observe() as seen:
            blobs = db.blobs
            await blobs.create_container("photos")
            await blobs.put("photos", "a", b"x", if_none_match=True)
            await blobs.append("photos", "log", b"y")
            await blobs.info("photos", name="a")
            async with blobs.get("photos", "a") as stream:
                assert [chunk async for chunk in stream.chunks] == [b"x"]
            await blobs.read("photos", "a")
            await blobs.list_blobs(container="photos", prefix="l")
            await blobs.list_containers("p")
            await blobs.delete("photos", "a")
            with pytest.raises(EntityNotFound):
                async with blobs.get("photos", "a"):
                    pass
            await blobs.delete_container("photos")
        assert db.stats.counts["get-blob", ""].requests == 3

    assert [f"{each.line} {each.outcome}" for each in seen.requests] == [
        "PUT photos ok",
        "PUT photos/BLOB ok",
        "PUT photos/BLOB?comp=appendblock ok",
        "HEAD photos/BLOB ok",
        "GET photos/BLOB ok",
        "GET photos/BLOB ok",
        "GET photos?comp=list ok",
        "GET ?comp=list ok",
        "DELETE photos/BLOB ok",
        "GET photos/BLOB BlobNotFound",
        "DELETE photos ok",
    ]


async def test_values_are_shown_to_who_asks(connecting: Connect) -> None:
    """A hook and a block get the values when they say `show_values=True`, each for itself."""
    seen: list[ObservedRequest] = []
    async with connecting(on_request=seen.append) as db:
        await db.create_tables(Person)
        with db.observe(show_values=True) as block:
            await db.insert(Person(name="Kenneth", age=987654321))
            await db.select(Person).where(Person.team == "a", Person.age == 987654321).all()

    insert, query = block.requests
    assert insert.operations[0].row["name"] == "Kenneth" and '"name":"Kenneth"' in str(insert)
    assert query.filter is not None and query.filter.endswith("age eq 987654321")
    assert "Kenneth" not in str(seen) and "987654321" not in str(seen)


async def test_each_request_is_a_line(connecting: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    """With `echo=True` each request is printed as the service would get it, and what became of it."""
    async with connecting(echo=True) as db:
        await db.create_tables(Person)
        await db.insert(Person())
        await db.get(PERSON)
        await db.select(Person).where(Person.team == "a", Person.age == 3).limit(5).all()
        async with db.transaction() as tx:
            for number in range(2, 9):
                tx.insert(Person(id=number))
        with pytest.raises(EntityNotFound):
            await db.get(Person, team="o'b", id=1)

    lines = [re.sub(r"(\d+ bytes, )?[0-9.]+ ms", "TIME", line) for line in capsys.readouterr().out.splitlines()]
    kind = "(EntityType eq {} or EntityType ge {} and EntityType lt {})"
    inserts = ", ".join(f"insert 'person_000{number}'" for number in range(2, 7))
    within = "PartitionKey eq 'a' and RowKey ge 'person_' and RowKey lt 'person`'"
    assert lines == [
        "POST Tables('People') -> ok, TIME",
        "POST People(PartitionKey='a',RowKey='person_0001') -> ok, 1 row, TIME",
        "GET People(PartitionKey='a',RowKey='person_0001') -> ok, 1 row, TIME",
        f"GET People()?$filter={within} and {kind} and age eq {{}}&$top=5 -> ok, TIME",
        f"POST $batch of People(PartitionKey='a'): {inserts}, and 2 more -> ok, 7 rows, TIME",
        "GET People(PartitionKey='o''b',RowKey='person_0001') -> ResourceNotFound, TIME",
    ]


async def test_bytes_are_told_where_they_are_known(connecting: Connect) -> None:
    """Over HTTP the bytes of bodies are told; the embedded engine has none."""
    async with connecting() as db:
        await db.create_tables(Person)
        with db.observe() as seen:
            await db.insert(Person(name="x" * 1000))
            await db.get(PERSON)

    insert, get = [(each.bytes_sent, each.bytes_received) for each in seen.requests]
    if db.url.startswith("local:"):
        assert (insert, get) == ((None, None), (None, None))
    else:
        assert insert[0] is not None and insert[0] > 1000
        assert get[0] == 0 and get[1] is not None and get[1] > 1000


async def test_refusals_are_seen(connecting: Connect) -> None:
    """What the service refuses has its error code as outcome, and no rows."""
    async with connecting() as db:
        await db.create_tables(Person)
        await db.insert(Person())
        with db.observe() as seen:
            with pytest.raises(EntityExists):
                await db.insert(Person())
            with pytest.raises(TransactionFailed):
                async with db.transaction() as tx:
                    tx.insert(Person(id=2))
                    tx.insert(Person())

    assert [(each.operation, each.outcome, each.rows) for each in seen.requests] == [
        ("insert", "EntityAlreadyExists", 0),
        ("transaction", "EntityAlreadyExists", 0),
    ]


# Blocks


@pytest.fixture
async def people() -> AsyncIterator[Database]:
    # Other tests may have set a provider of spans for the whole process.
    async with memory_database(Person, tracer_provider=NoOpTracerProvider()) as db:
        await db.insert(Person())
        yield db


async def test_blocks_nest(people: Database) -> None:
    """A block within a block sees its own requests, the outer one those of both; afterwards nobody observes."""
    with people.observe() as outer:
        await people.get(PERSON)
        with people.observe() as inner:
            await people.get(PERSON)
    await people.get(PERSON)

    assert (outer.cost, inner.cost) == (2, 1)
    assert connection_of(people).sending("get", "")[0] is people.store


async def test_tasks_of_a_block_are_seen(people: Database) -> None:
    """Requests of tasks that are begun in the block are seen, those of other tasks meanwhile are not."""
    begun, done = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        await begun.wait()
        await people.get(PERSON)
        done.set()

    task = asyncio.create_task(other())
    with people.observe() as seen:
        begun.set()
        await done.wait()
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(people.get(PERSON))
        await people.get_many([Person.key(team="a", id=number) for number in range(4)])
        await people.select(Person).where(Person.team.in_(["a", "b"])).all()
    await task

    assert sum(each.operation == "get" for each in seen.requests) == 3 + 4
    assert sum(each.operation == "query" for each in seen.requests) == 2


async def test_a_block_is_over_when_it_ends(people: Database) -> None:
    """A task that goes on after the block is no longer seen."""
    over = asyncio.Event()

    async def late() -> None:
        await over.wait()
        await people.get(PERSON)

    with people.observe() as seen:
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
        with people.observe():
            pass
    with people.observe():  # so that requests are observed at all
        over.set()
        await task

    assert seen.cost == 0 and str(seen) == "no requests"


async def test_databases_are_told_apart(people: Database) -> None:
    """A block sees the database that it was made by, and the scopes of that."""
    async with memory_database(Person) as other:
        with people.observe() as seen, other.observe() as theirs:
            await other.get_or_none(PERSON)
            await people.scope(team="a").get(Person, id=1)
        with people.scope(team="a").observe() as scoped:
            await people.scope(team="a").get(Person, id=1)

    assert (seen.cost, theirs.cost, scoped.cost) == (1, 1, 1)


async def test_an_observation_is_used_once(people: Database) -> None:
    """Its requests are those of one block: another `with` is rejected."""
    seen = people.observe()
    with seen:
        pass

    with pytest.raises(NotSupported, match="for each block"), seen:
        pass


# Hooks


async def test_a_hook_that_fails_changes_nothing(people: Database, caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is logged; the request counts as what it was, and others are told of it."""

    def fail(request: ObservedRequest) -> None:
        raise RuntimeError("no")

    with people.observe() as outer, people.observe(fail) as seen:
        await people.insert(Person(id=2))

    assert (outer.cost, seen.cost) == (1, 1)
    assert await people.exists(Person, team="a", id=2)
    (record,) = caplog.records
    assert record.name == "tableorm.requests" and "changes nothing" in record.message


async def asynchronous(request: ObservedRequest) -> None: ...


@pytest.mark.parametrize("hook", [asynchronous, 3])
def test_a_hook_is_a_plain_function(hook: Any) -> None:
    """An `async def` function, which nobody would await, is rejected; so is what is no function."""
    with pytest.raises(TypeError, match="give a plain function"):
        connect("local::memory:", on_request=hook)
    with pytest.raises(TypeError, match="give a plain function"):
        connect("local::memory:").observe(hook)


async def test_cancellation_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is cancelled is told as such."""
    backend = FaultyBackend()
    begun = asyncio.Event()

    async def hang(*arguments: object) -> Row:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(backend.tables, "get", hang)
    async with Database(backend) as db:
        with db.observe() as seen:
            task = asyncio.create_task(db.get(PERSON))
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert [each.outcome for each in seen.requests] == ["CancelledError"]


async def test_a_line_is_one_line(people: Database) -> None:
    """Whatever a key or a value is, a request is one line that a terminal prints and does not obey."""
    with people.observe(show_values=True) as seen:
        await people.select(Person).where(Person.team == "a", Person.name == "x\n\x1b[2J\u2028").all()
        await people.get_or_none(Person, team="\x85", id=1)

    assert all(line.isprintable() for line in str(seen).split("\n")) and len(str(seen).split("\n")) == 2


# Repetitions


async def test_repeated_reads_are_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that the mapper repeats is a request for each attempt, with its outcome and number."""
    backend, refusals = FaultyBackend(), iter([Code.SERVER_BUSY, Code.OPERATION_TIMED_OUT])
    get = backend.tables.get

    async def busy(table: str, partition_key: str, row_key: str, select: Any = None) -> Row:
        code = next(refusals, None)
        if code is not None:
            raise Fault(code, "No.")
        return await get(table, partition_key, row_key, select)

    monkeypatch.setattr(backend.tables, "get", busy)
    async with Database(backend, retry=QUICK) as db:
        await db.create_tables(Person)
        with db.observe() as seen:
            await db.get_or_none(PERSON)

    assert [(each.attempt, each.outcome) for each in seen.requests] == [
        (1, "ServerBusy"),
        (2, "OperationTimedOut"),
        (3, "ResourceNotFound"),
    ]


async def test_the_service_s_repetitions_are_attempts() -> None:
    """What the Azure backend repeats within one call is told in the same way."""
    async with Stub() as stub:
        stub.answers = [
            error_answer(503, "ServerBusy"),
            row_answer(PartitionKey="a", RowKey="person_0001", EntityType="Person"),
        ]
        async with connect(stub.url, key=KEY, retry=RetryPolicy(base=0.0)) as db:
            with db.observe() as seen:
                await db.exists(PERSON)
            stub.answers = [error_answer(429, "TooManyRequests"), NO_CONTENT]
            with db.observe() as written:
                await db.upsert(Person())

    assert [(each.attempt, each.outcome, each.rows) for each in seen.requests] == [(1, "ServerBusy", 0), (2, "ok", 1)]
    assert [(each.attempt, each.outcome) for each in written.requests] == [(1, "TooManyRequests"), (2, "ok")]


# What nobody observes


# Logs


async def test_the_logger_is_asked_when_a_database_is_opened(caplog: pytest.LogCaptureFixture) -> None:
    """The logger `tableorm.requests` gets each request if its level is INFO when the database is opened."""
    async with connect("local::memory:") as db:
        caplog.set_level(logging.INFO, "tableorm.requests")
        await db.tables()
    assert caplog.records == []

    async with connect("local::memory:") as db:
        await db.tables()
    assert [record.message.split(",")[0] for record in caplog.records] == ["GET Tables -> ok"]
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_a_slow_query_is_warned_of_with_its_plan(connecting: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each run, when its requests together have taken longer; another request with its line."""
    async with connecting(slow=1e-9) as db:
        await db.create_tables(Person)
        async with db.bulk() as bulk:
            for team in "abc":
                await bulk.insert(Person(team=team, age=987654321))
        caplog.clear()
        await db.select(Person).where(Person.team.in_(["a", "b", "c"]), Person.age == 987654321).all()
        await db.get(PERSON)

    query, get = [record.message for record in caplog.records if record.name == "tableorm.slow"]
    assert query.startswith("a query took more than 1e-09 s: query of Person\n  access: partition scan, by primary key")
    assert "PartitionKey eq 'b' and " in query and "age eq {}" in query and "987654321" not in query
    assert get.startswith("a request was slow: GET People(PartitionKey='a',RowKey='person_0001') -> ok")


async def test_what_is_fast_is_not_warned_of(people: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Under the limit nothing is logged, except for a scan of the table, once, with its plan."""
    async with memory_database(Person, slow=60, show_values=True) as db:
        await db.select(Person).where(Person.team == "a", Person.age == 987654321).all()
        await db.get_or_none(PERSON)
        assert caplog.records == []
        await db.select(Person).where(Person.age == 987654321).allow_scan(parallel=3).all()

    (record,) = caplog.records
    assert (record.name, record.levelname) == ("tableorm.slow", "WARNING")
    assert record.message.startswith("a query visits every partition: <select(Person).where(Person.age == 987654321)")
    assert "age eq 987654321" in record.message


async def test_only_time_in_requests_counts(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query is slow when its requests are, all together; what the program does between two pages does not count."""
    now = 0.0
    monkeypatch.setattr("tableorm.connection.observe.perf_counter", lambda: now)
    async with memory_database(Person, slow=1.0) as db:
        async with db.bulk() as bulk:
            for number in range(10):
                await bulk.insert(Person(id=number))
        query, people = db.store.query, db.select(Person).where(Person.team == "a")
        async for _ in people.pages(size=5):
            now += 100.0
        assert await people.count() == 10
        assert caplog.records == []

        async def slowly(*arguments: Any) -> RowPage:
            nonlocal now
            now += 0.4
            return await query(*arguments)

        monkeypatch.setattr(db.store, "query", slowly)
        await people.where(Person.age == 0).limit(3).all()
        assert caplog.records == []
        await db.select(Person).where(Person.team.in_(["a", "b", "c", "d"])).all()

    assert [record.message.split("\n")[0] for record in caplog.records] == [
        "a query took more than 1 s: query of Person"
    ]


async def test_a_plan_shows_no_values(caplog: pytest.LogCaptureFixture) -> None:
    """Of conditions that are evaluated here, and of several at a time, the properties are shown."""
    async with memory_database(Person, slow=60) as db:
        hidden = Person.name.is_none() | (Person.name == "Kenneth")
        await db.select(Person).where(hidden, Person.age.in_([987654321, 5])).limit(987654321).allow_scan().all()

    assert "then here: a condition on name" in caplog.text and "(age eq {} or age eq {})" in caplog.text
    assert not any(value in caplog.text for value in PRIVATE)
