"""
Who meets the rows of a move that nobody has completed: other inserts, queries, scopes, workers of other programs.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tableorm import (
    AccessDenied,
    Conflict,
    Damage,
    Database,
    DecodeError,
    Entity,
    EntityNotFound,
    Index,
    Mapped,
    NotSupported,
    Outcome,
    PreconditionFailed,
    PropertyBag,
    UniqueViolation,
    connect,
    field,
)
from tableorm.audit.decisions import MoveCheck
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.decision import Decision
from tableorm.outbox.doorbell import MoveCommand, move_of
from tableorm.outbox.overview import find_pending, ring_again
from tableorm.stores import CLOCK, RowAddress
from tableorm.writes import relocation
from tableorm.writes.move_entity import RELOCATION
from tests import unfinished_moves
from tests.faults import FaultyStore
from tests.rows import insert_row
from tests.unfinished_moves import FORWARD, HOUR, MARK, TENTATIVE, database_on, handler_of, take_bodies
from tests.writes.verbs import write


class Person(Entity, table="Meetings", partition_key="{dep}", row_key="person_{id:03d}"):
    dep: Mapped[str]
    id: Mapped[int] = field(default=1)
    text: Mapped[str]

    by_text = Index(row_key="text_{text}", unique=True)


OLD, NEW = Person.key(dep="a", id=1), Person.key(dep="b", id=1)


class Other(Entity, table="Meetings", partition_key="{dep}", row_key="{name}"):
    dep: Mapped[str]
    name: Mapped[str]


pytestmark = pytest.mark.usefixtures("quick_workers", "stopped_clock")


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Person t is in a."""
    async with database_on(network, Person) as db:
        await db.insert(Person(dep="a", text="t"))
        yield db


async def move_half(db: Database, network: FaultyStore, writes: int, source: str = "a", to: str = "b") -> None:
    """Move the person; only so many writes arrive."""
    await unfinished_moves.move_half(db, network, await db.get(Person, dep=source, id=1), writes, dep=to)


async def work(db: Database) -> list[Outcome]:
    return await unfinished_moves.work(db, Person)


async def kinds(db: Database) -> list[str]:
    rows = await db.select_raw("Meetings").allow_scan().all()
    return sorted(f"{row.partition_key} {row['EntityType']}" for row in rows)


async def test_the_requests_of_a_move(db: Database) -> None:
    """Those that the documentation lists, and `explain_write`."""
    person, sent = await db.get(OLD), list[str]()
    etag, said = person.etag, db.explain_write("move", person, dep="b")
    with db.observe(lambda request: sent.append(request.operation)):
        await db.move(person, dep="b")

    assert sent == [
        *("get", "merge", "put-message", "get", "transaction", "transaction"),
        *("get", "get", "transaction", "delete", "replace", "delete-message"),
    ]
    assert said.cost == len(sent)
    assert b'"move":"------------"' in (said.before[2].body or b"")
    # The message names the ETag that the mark gives, which is not known before.
    assert b'"etag":"the ETag that was read"' in (said.before[2].body or b"")
    here, there = (f"/Meetings(PartitionKey='{each}',RowKey='person_001')" for each in "ab")
    entry, messages = "/Meetings(PartitionKey='a',RowKey='text_t')", "/tableorm-outbox/messages"
    names = {here: "here", there: "there", entry: "entry", messages: "message", f"{messages}/------------": "message"}
    etags = {etag: " with its ETag", "the ETag that was read": " as read", "*": " in any version", None: ""}
    before, steps, after = (
        ", ".join(f"{step.method} {names.get(step.path, step.path)}{etags[step.if_match]}" for step in steps)
        for steps in (said.before, said.steps, said.after)
    )
    assert before == "GET here, PATCH here with its ETag, POST message, GET here, POST /$batch"
    assert steps == "PUT here as read, DELETE entry in any version"
    assert after == "GET there, GET here, POST /$batch, DELETE here as read, PUT there as read, DELETE message"
    person.text = "u"
    said = db.explain_write("move", person, dep="c")
    assert said.cost == len(sent) + 1 and said.before[0].path == "/$batch"
    assert said.before[2].if_match == "the ETag that was read"


@pytest.mark.parametrize(
    "verb", ["insert", "upsert", "get_or_insert", "modify", "insert in a transaction", "insert in a bulk"]
)
async def test_every_verb_that_inserts(db: Database, network: FaultyStore, verb: str) -> None:
    """A tentative row that is nobody's is in no insert's way."""
    await move_half(db, network, TENTATIVE)
    new = Person(dep="b", text="new")
    if verb == "modify":
        await db.modify(NEW, lambda each: each, create=new)
    else:
        await write(db, verb, new)
    assert await db.get(NEW) == new


async def test_a_unique_value_is_kept_for_the_entity(db: Database, network: FaultyStore) -> None:
    """As soon as there is a tentative row; no reader finds it by that value."""
    await move_half(db, network, TENTATIVE)
    with pytest.raises(UniqueViolation, match="person_001"):
        await db.insert(Person(dep="b", id=2, text="t"))
    assert await db.get_or_none(Person.by_text, dep="b", text="t") is None
    assert await db.select(Person.by_text).where(Person.dep == "b").all() == []
    assert await work(db) == [Outcome.DONE]
    assert await db.get(Person.by_text, dep="b", text="t") == Person(dep="b", text="t")


async def test_a_delete_by_query_of_a_confirmed_row(db: Database, network: FaultyStore) -> None:
    """Its forward goes first, so that no late tentative row brings the entity back."""
    await move_half(db, network, FORWARD + 1)
    assert await kinds(db) == ["a Person#_forward", "b Person", "b Person#by_text"]
    await db.select(Person).where(Person.dep == "b").delete()
    assert await kinds(db) == []
    assert await work(db) == [Outcome.VOID]


async def test_a_message_comes_twice_and_late(db: Database, network: FaultyStore) -> None:
    """It does nothing after the move, nor after the entity was changed, deleted or moved on."""
    person = await db.get(OLD)
    await db.move(person, dep="b")
    await move_half(db, network, 1, "b", "c")
    (message,) = await take_bodies(db)
    handler = handler_of(db, Person)
    assert await handler.work(message) == Outcome.DONE
    assert await handler.work(message) == Outcome.DONE
    found = await db.get(Person, dep="c", id=1)
    for text in ("u", "v", "w", "x"):
        found.text = text
        await db.save(found)
    assert await handler.work(message) == Outcome.VOID
    assert await db.get(Person, dep="c", id=1) == found
    await db.delete(found)
    await db.insert(Person(dep="b", text="another"))
    assert await handler.work(message) == Outcome.VOID
    assert await kinds(db) == ["b Person", "b Person#by_text"]


async def test_a_worker_that_finds_the_new_key_taken(db: Database, network: FaultyStore) -> None:
    """It makes the move impossible before it forgets it: a writer that was slow cannot commit what no worker ends."""
    await move_half(db, network, MARK)
    other = Person(dep="b", text="other")
    await db.insert(other)
    CLOCK.advance(HOUR)
    (message,) = await outbox_queues(connection_of(db)).peek(OUTBOX)
    assert await work(db) == [Outcome.VOID]
    await db.delete(other)
    schema = Person.__schema__
    with pytest.raises(PreconditionFailed):
        await RELOCATION.carry_out(connection_of(db), move_of(message.body), schema, schema)

    assert await kinds(db) == ["a Person", "a Person#by_text"]
    await db.move(await db.get(OLD), dep="b")
    assert await kinds(db) == ["b Person", "b Person#by_text"]


async def test_a_worker_that_does_not_know_the_model(db: Database, network: FaultyStore) -> None:
    """It leaves the command to others, and so it does with one of a newer program."""
    await move_half(db, network, TENTATIVE)
    (message,) = await take_bodies(db)
    handler = handler_of(db, Other)
    with pytest.raises(NotSupported, match="does not know both kinds"):
        await handler.work(message)
    with pytest.raises(NotSupported, match="has the format 2"):
        move_of(message.replace(b'"format":1', b'"format":2'))
    with pytest.raises(ValueError, match="is not a command to move an entity"):
        move_of(b'{"format": 1}')


async def listed(db: Database) -> list[Decision]:
    return [each.decision async for each in find_pending(connection_of(db), "Meetings")]


@pytest.mark.parametrize("writes", [TENTATIVE, FORWARD])
async def test_a_move_that_workers_give_up(
    db: Database, network: FaultyStore, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """It is shown with what is left to do, and goes on when workers are told again."""

    async def fail(*_: object) -> None:
        raise Conflict("the disk is full")

    await move_half(db, network, writes)
    CLOCK.advance(HOUR)
    monkeypatch.setattr(relocation.Relocation, "carry_out", fail)
    async with db.worker(Person, tries=1) as worker:
        await worker.drain()
    monkeypatch.undo()
    (left,) = await listed(db)
    assert worker.counts == {Outcome.DROPPED: 1}
    assert (left.kinds, left.error, left.tries) == (("command move:1",), "Conflict: the disk is full", 1)
    assert [work.row_key for work in left.works] == ["person_001"]

    (pending,) = [each async for each in find_pending(connection_of(db), "Meetings")]
    for target, outcome in ((Other, Outcome.LEFT), (Person, Outcome.DONE)):
        await outbox_queues(connection_of(db)).clear(OUTBOX)
        await ring_again(connection_of(db), pending)
        async with db.worker(target) as worker:
            await worker.drain()
        assert worker.counts == {outcome: 1}
    assert await listed(db) == []
    assert await kinds(db) == ["b Person", "b Person#by_text"]


async def test_a_move_that_is_given_up_twice(db: Database, network: FaultyStore) -> None:
    """The last error is shown; a command that nobody can carry out any more leaves nothing behind."""
    await move_half(db, network, TENTATIVE)
    (message,) = await take_bodies(db)
    handler = handler_of(db, Person)
    await handler.give_up(message, "first", 10)
    await handler.give_up(message, "second", 11)
    (left,) = await listed(db)
    assert (left.error, left.tries) == ("second", 11)

    forged = structs.replace(move_of(message), move="forged_token")
    await handler.give_up(forged.to_message(), "forged", 1)
    assert await listed(db) == [left]


async def test_a_forged_command(db: Database, network: FaultyStore) -> None:
    """A worker believes no command of which the source says nothing, or something else, whatever is in the message."""
    person = await db.get(OLD)
    command = MoveCommand(
        move="forged_token",
        kind="Person",
        source=RowAddress("Meetings", "a", "person_001"),
        etag=str(person.etag),
        to_kind="Person",
        target=RowAddress("Meetings", "b", "person_001"),
        fields={"dep": {"dep": "b"}},
    )
    handler = handler_of(db, Person)
    assert await handler.work(command.to_message()) == Outcome.VOID
    with pytest.raises(ValueError, match="the kinds are not those of these tables"):
        await handler.work(structs.replace(command, target=RowAddress("Other", "b", "person_001")).to_message())

    await move_half(db, network, 1)
    (message,) = await take_bodies(db)
    sent = move_of(message)
    for forged in (
        structs.replace(sent, fields={**sent.fields, "text": {"text": "forged"}}),
        structs.replace(sent, target=RowAddress("Meetings", "c", "person_001")),
        structs.replace(sent, move="forged_token"),
    ):
        assert await handler.work(forged.to_message()) == Outcome.VOID
    assert await kinds(db) == ["a Person", "a Person#by_text"]
    assert await handler.work(message) == Outcome.DONE
    assert await db.get(NEW) == Person(dep="b", text="t")


async def test_a_mark_of_another_program(db: Database) -> None:
    """It is named, with what to do."""
    row = {"PartitionKey": "b", "RowKey": "person_001", "EntityType": "Person#_tentative", "_mv": "x"}
    await insert_row(db, "Meetings", row)
    with pytest.raises(DecodeError, match=r"is not the mark of a move.*delete any other row"):
        await db.get(NEW)


async def test_an_entity_that_was_read_by_an_index(db: Database) -> None:
    """It has no ETag; its row is read, and must be as the entry says."""
    person = await db.get(Person.by_text, dep="a", text="t")
    await db.move(person, dep="b")
    found = await db.get(Person.by_text, dep="b", text="t")
    assert found == person
    changed = await db.get(NEW)
    changed.text = "u"
    await db.save(changed)
    with pytest.raises(PreconditionFailed):
        await db.move(found, dep="a")


async def test_bags_and_transactions_stay_within_their_partition(db: Database) -> None:
    """They name what moves further."""
    bag = await db.get(PropertyBag.key("Meetings", "a", "person_001"))
    with pytest.raises(NotSupported, match=r"use `await db.move\(...\)` of an entity"):
        await db.move(bag, partition_key="b")
    with pytest.raises(NotSupported, match=r"use `await db.move\(...\)` of an entity"):
        async with db.transaction() as tx:
            tx.move(await tx.get(OLD), dep="b")
    with pytest.raises(EntityNotFound):
        await db.get(NEW)


async def test_an_audit_looks_again_at_what_was_left(
    db: Database, network: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move that somebody ends between the two looks of an audit is not reported."""
    await move_half(db, network, FORWARD)
    CLOCK.advance(2 * HOUR)
    verify = MoveCheck.verify_row
    looked: list[str] = []

    async def end_first(self: MoveCheck, *args: Any) -> None:
        if not looked:
            await db.modify(NEW, lambda person: setattr(person, "text", "new"))
        looked.append(args[1])
        await verify(self, *args)

    monkeypatch.setattr(MoveCheck, "verify_row", end_first)
    assert (await db.audit(Person)).clean
    assert len(looked) == 2


@pytest.mark.parametrize("writes", [TENTATIVE, FORWARD, FORWARD + 1])
async def test_an_audit_ends_what_was_left(db: Database, network: FaultyStore, writes: int) -> None:
    """It reports rows of moves that are older than an hour; repair completes the move, or makes it impossible."""
    await move_half(db, network, writes)
    left = await kinds(db)
    assert (await db.audit(Person)).clean
    CLOCK.advance(2 * HOUR)
    report = await db.audit(Person)
    assert not report.clean and {each.damage for each in report.findings} == {Damage.UNFINISHED}
    assert await kinds(db) == left
    repaired = await db.audit(Person, repair=True)
    # Partitions are audited side by side: who ends the move at one of its rows may leave nothing to find at the other.
    assert 1 <= repaired.found == repaired.repaired <= report.found

    assert await kinds(db) == (
        ["a Person", "a Person#by_text"] if writes == TENTATIVE else ["b Person", "b Person#by_text"]
    )
    assert (await db.audit(Person)).clean
    assert await work(db) in ([Outcome.VOID], [Outcome.DONE])


@pytest.mark.parametrize("writes", [FORWARD, FORWARD + 1, FORWARD + 2])
async def test_an_entity_goes_back(db: Database, network: FaultyStore, writes: int) -> None:
    """To the key that it has left by a move that nobody has completed."""
    await move_half(db, network, writes)
    person = await db.get(NEW)
    await db.move(person, dep="a")

    assert await kinds(db) == ["a Person", "a Person#by_text"]
    assert set(await work(db)) <= {Outcome.VOID, Outcome.DONE}
    assert await kinds(db) == ["a Person", "a Person#by_text"]


async def test_a_token_for_one_table(tmp_path: Path) -> None:
    """It reaches no queue, so a move to another partition or table is rejected by name, before anything is sent."""
    url = f"local:{tmp_path}/a.tables"
    async with connect(url) as db:
        await db.create_tables(Person)
        await db.insert(Person(dep="a", text="t"))
        token = str(await db.grant(Person, "raud", HOUR))
    async with connect(url, sas=token) as db:
        person = await db.get(OLD)
        before = db.stats.requests
        person.text = "unsaved"
        with pytest.raises(
            AccessDenied, match=r"move of Person .*: workers must be notified of it, and the token of this"
        ):
            await db.move(person, dep="b")
        assert db.stats.requests == before
        await db.move(person, id=2)
    async with connect(url) as db:
        assert (await db.get(Person, dep="a", id=2)).text == "unsaved"


@pytest.mark.parametrize("kind", ["Person#_tentative", "Person#_forward"])
async def test_an_audit_tells_of_a_row_without_a_mark(db: Database, kind: str) -> None:
    """Nobody knows which move it is of: it is reported, with its place, and left."""
    row = {"PartitionKey": "b", "RowKey": "person_001", "EntityType": kind}
    await insert_row(db, "Meetings", row)
    CLOCK.advance(2 * HOUR)

    found, repaired = [await db.audit(Person, repair=repair) for repair in (False, True)]

    for report in (found, repaired):
        (finding,) = report.findings
        assert (finding.damage, finding.address, finding.repaired) == (Damage.UNFINISHED, "person_001", False)
        assert finding.refused is not None and finding.refused.startswith("it has no mark; delete the row ")
    assert "b " + kind in await kinds(db)
