"""
Faults that a test asks for, and the errors that the program under test meets.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager

import pytest

from tableorm import (
    AccessDenied,
    Conflict,
    Count,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    LimitExceeded,
    Mapped,
    OutcomeUnknown,
    PreconditionFailed,
    TableOrmError,
    Throttled,
    TransactionFailed,
    Unavailable,
    field,
)
from tableorm.logs import LogStream
from tableorm.testing import Faults, temporary_database
from tests.rows import insert_row


class Note(Entity, table="Notes", partition_key="notes", row_key="note_{id}"):
    id: Mapped[str] = field(default="a")
    text: Mapped[str] = field(default="")


NOTE = Note().key


class Marked(Note, row_key="marked_{id}", write_token=True): ...


class Person(Entity, table="People", partition_key="people", row_key="person_{id}"):
    id: Mapped[str]
    email: Mapped[str]

    by_email = Index(row_key="email_{email}", unique=True)


class Reader(Entity, table="FaultyReaders", partition_key="readers", row_key="reader_{id}"):
    id: Mapped[str]
    city: Mapped[str]

    by_city = Index(partition_key="city_{city}", row_key="of_{id}", consistency="eventual", building=False)


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with temporary_database("local::memory:", Note, Marked, Person) as database:
        yield database


@pytest.fixture
def faults(db: Database) -> Faults:
    return Faults(db)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (409, EntityExists),
        ("EntityAlreadyExists", EntityExists),
        (412, PreconditionFailed),
        (403, AccessDenied),
        (413, LimitExceeded),
        ("EntityTooLarge", LimitExceeded),
        (429, Throttled),
        (503, Throttled),
        (500, Unavailable),
        ("OperationTimedOut", Unavailable),
        (504, Unavailable),
        (400, TableOrmError),
    ],
)
async def test_an_insert_fails_once(db: Database, faults: Faults, given: int | str, error: type[TableOrmError]) -> None:
    """The program meets the error of the code or status at once; nothing was written, and the next try succeeds."""
    with faults.fail_next("insert", with_=given), pytest.raises(error, match="insert of Note"):
        await db.insert(Note())

    assert await db.get_or_none(NOTE) is None
    await db.insert(Note())


async def test_reads_and_tables_fail(db: Database, faults: Faults) -> None:
    """Reads and operations of tables fail too."""
    with faults.fail_next("get", with_=404), pytest.raises(EntityNotFound):
        await db.get(NOTE)
    with faults.fail_next("query", with_=503), pytest.raises(Throttled):
        await db.select(Note).all()
    with faults.fail_next("create-table", with_=403), pytest.raises(AccessDenied):
        await db.create_tables(Note)
    with faults.fail_next("delete-table", with_="TableBeingDeleted"), pytest.raises(Conflict):
        await db.drop_table("Notes")
    with faults.fail_next("list-tables", with_=500), pytest.raises(Unavailable):
        await db.tables()
    assert await db.tables() == ["Notes", "People", "TableormUpkeep"]


async def test_a_request_that_is_lost(db: Database, faults: Faults) -> None:
    """It never arrives, which nobody can tell from a lost reply: it is sent again if it may be, or is in doubt."""
    with faults.lose_request("insert"), pytest.raises(OutcomeUnknown):
        await db.insert(Note(), repeat=False)
    assert await db.get_or_none(NOTE) is None
    with faults.lose_request("insert"):
        await db.insert(Note())
    assert (await db.get(NOTE)).text == ""
    with faults.lose_request("get"), pytest.raises(Unavailable):
        await db.get(NOTE)
    with faults.lose_request("put-message", table="mail"), pytest.raises(OutcomeUnknown):
        await db.queues.put("mail", b"x")


async def test_a_request_that_is_late(db: Database, faults: Faults) -> None:
    """It arrives when the test says so, as it was sent, unless its condition holds no more."""
    note, other = Note(text="first"), Marked()
    with faults.delay_request("insert") as late, pytest.raises(OutcomeUnknown):
        await db.insert(note, repeat=False)
    note.text = "changed"
    assert await db.get_or_none(NOTE) is None
    assert await late.deliver() == 1
    assert (await db.get(NOTE)).text == "first"
    assert await late.deliver() == 0

    await db.insert(other)
    other.text = "once"
    with faults.delay_request("merge") as late:
        await db.save(other)  # it is sent again
    other.text = "twice"
    await db.save(other)
    assert await late.deliver() == 0
    assert (await db.get(Marked, id="a")).text == "twice"


async def test_several_times_and_one_table(db: Database, faults: Faults) -> None:
    """A fault waits for requests of its operation and table, and meets as many as it was told to."""
    with faults.fail_next("insert", with_=503, table="notes", times=2) as fault:
        async with db.transaction() as tx:
            tx.insert(Person(id="a", email="a@example.com"))
        for left in (1, 0):
            with pytest.raises(Throttled):
                await db.insert(Note())
            assert fault.left == left
        await db.insert(Note())


async def test_an_operation_of_a_transaction_fails(db: Database, faults: Faults) -> None:
    """The transaction fails as a whole, and names the operation; so it does if the whole is meant."""
    stored = Note()
    await db.insert(stored)
    with faults.fail_next("delete", with_=412), pytest.raises(TransactionFailed) as caught:
        async with db.transaction() as tx:
            tx.insert(Note(id="b"))
            tx.delete(stored)
    assert caught.value.index == 1
    with faults.fail_next("transaction", with_=413), pytest.raises(TableOrmError, match="made this request fail"):
        await insert_two(db)

    assert [note.id async for note in db.select(Note)] == ["a"]


async def insert_two(db: Database) -> None:
    async with db.transaction() as tx:
        tx.insert(Note(id="b"))
        tx.insert(Note(id="c"))


class Shelf(Entity, table="FaultyShelves", partition_key="shelves", row_key="shelf_{id}"):
    id: Mapped[str]
    books: Mapped[int] = field(default=0, maintained=True)


class Book(Entity, table="FaultyShelves", partition_key="shelves", row_key="book_{id}"):
    id: Mapped[str]
    shelf: Mapped[str]

    counted = Count(lambda: Shelf.books, id="{shelf}")


async def test_a_transaction_loses_a_race(faults: Faults, db: Database) -> None:
    """Its operation with an ETag is rejected, so an insert into a count is repeated, as after a change by others."""
    await db.create_tables(Shelf)
    await db.insert(Shelf(id="a"))
    with faults.fail_next("transaction", with_=412, times=2):
        await db.insert(Book(id="x", shelf="a"))

    assert (await db.get(Shelf, id="a")).books == 1
    with faults.fail_next("transaction", with_=412), pytest.raises(TransactionFailed) as caught:
        await insert_two(db)
    assert caught.value.index is None  # no operation in it has an ETag


async def test_a_write_with_an_index_fails(db: Database, faults: Faults) -> None:
    """A verb that sends a transaction, because of an index, meets a fault of its operation."""
    with faults.fail_next("insert", with_=503), pytest.raises(Throttled):
        await db.insert(Person(id="a", email="a@example.com"))
    assert await db.get_or_none(Person.by_email, email="a@example.com") is None


async def test_a_lost_reply_that_is_found_out(db: Database, faults: Faults) -> None:
    """Where the row proves that the write was done, the program notices nothing."""
    note = Marked()
    with faults.lose_reply("insert"):
        await db.insert(note)
    note.text = "new"
    with faults.lose_reply("merge"):
        await db.save(note)

    assert (await db.get(Marked, id="a")).text == "new"


async def test_a_lost_reply_that_stays_unknown(db: Database, faults: Faults) -> None:
    """Where nothing proves it, `OutcomeUnknown` is raised: the write was done all the same."""
    note = Note()
    await db.insert(note)
    note.text = "new"
    with faults.lose_reply("merge"), pytest.raises(OutcomeUnknown):
        await db.save(note)

    assert (await db.get(NOTE)).text == "new"


async def test_a_lost_reply_to_a_read(db: Database, faults: Faults) -> None:
    """A read whose reply is lost fails as one that nobody answers."""
    await db.insert(Note())
    with faults.lose_reply("get"), pytest.raises(Unavailable):
        await db.get(NOTE)


async def test_scopes_meet_faults(db: Database, faults: Faults) -> None:
    """A scope of the database sends its requests the same way."""
    scope = db.scope(id="a")
    with faults.fail_next("insert", with_=503), pytest.raises(Throttled):
        await scope.insert(Note())
    with Faults(scope).fail_next("get", with_=503), pytest.raises(Throttled):
        await db.get(NOTE)


async def test_requests_of_queues_fail(db: Database, faults: Faults) -> None:
    """Requests of `db.queues` fail too, of one queue or any, and their replies are lost after they were done."""
    queues = db.queues
    await queues.create_queue("mail")
    with faults.fail_next("put-message", with_=503, table="mail"), pytest.raises(Throttled):
        await queues.put("mail", b"a")
    with faults.lose_reply("put-message"), pytest.raises(OutcomeUnknown):
        await queues.put("mail", b"b")
    with faults.fail_next("take-messages", with_=404), pytest.raises(TableOrmError) as caught:
        await queues.take("mail")
    with faults.fail_next("list-queues", with_=403), pytest.raises(AccessDenied):
        await queues.list_queues()
    with (
        pytest.raises(AssertionError, match="1 more 'queue-length' in queue post should have failed"),
        faults.fail_next("queue-length", with_=503, table="post"),
    ):
        assert await queues.length("mail") == 1

    assert caught.value.code == "QueueNotFound"
    (message,) = await queues.take("mail")
    assert message.body == b"b"


async def test_requests_of_blobs_fail(db: Database, faults: Faults) -> None:
    """Requests of `db.blobs` fail too, of one container or any, and their replies are lost after they were done."""
    blobs = db.blobs
    await blobs.create_container("photos")
    with faults.fail_next("put-blob", with_=503, table="photos"), pytest.raises(Throttled):
        await blobs.put("photos", "a", b"a")
    with faults.lose_reply("put-blob"), pytest.raises(OutcomeUnknown):
        await blobs.put("photos", "b", b"b", if_none_match=True)
    with faults.fail_next("get-blob", with_=404, times=2):
        with pytest.raises(EntityNotFound) as caught:
            async with blobs.get(container="photos", name="b"):
                pass
        with pytest.raises(EntityNotFound):
            await blobs.read("photos", "b")
    with faults.lose_reply("get-blob"), pytest.raises(Unavailable):
        await blobs.read("photos", "b")
    with faults.fail_next("append-blob", with_=412), pytest.raises(PreconditionFailed):
        await blobs.append("photos", "c", b"c")
    with faults.fail_next("list-blobs", with_=404), pytest.raises(TableOrmError) as gone:
        await blobs.list_blobs("photos")
    with (
        pytest.raises(AssertionError, match="1 more 'blob-info' in container other should have failed"),
        faults.fail_next("blob-info", with_=503, table="other"),
    ):
        assert (await blobs.info("photos", "b")).length == 1

    assert (caught.value.code, gone.value.code) == ("BlobNotFound", "ContainerNotFound")
    assert await blobs.list_containers(prefix="pho") == ["photos"]
    async with blobs.get("photos", "b") as stream:
        assert [chunk async for chunk in stream.chunks] == [b"b"]


async def test_blobs_of_the_mapper_fail(db: Database, faults: Faults) -> None:
    """A log that writes a blob meets the fault as what remains after all repetitions."""
    async with LogStream(db, "sales") as log:
        await log.write({"sold": 1})
        with faults.fail_next("put-blob", with_=503), pytest.raises(Throttled):
            await log.flush()


async def test_other_members_of_queues_and_blobs(db: Database) -> None:
    """What a store has beside its requests stays there, and what it has not is missing as anywhere."""
    Faults(db)

    assert db.queues.capabilities.retries and db.blobs.capabilities.retries
    for store in (db.queues, db.blobs):
        assert not hasattr(store, "sing")


async def test_the_queue_of_the_outbox_fails(db: Database, faults: Faults) -> None:
    """The message before a write with an eventual index fails too; then nothing was written."""
    await db.create_tables(Reader)
    await db.insert(Reader(id="a", city="Rome"))
    with faults.fail_next("put-message", with_=503), pytest.raises(Throttled):
        await db.insert(Reader(id="b", city="Rome"))

    assert [each.id for each in await db.select(Reader).where(Reader.id.in_(["a", "b"])).all()] == ["a"]


NOTHING_MEETS: dict[str, Callable[[Faults], AbstractContextManager[object]]] = {
    "1 more 'replace' in table Notes should have failed with ServerBusy": lambda faults: faults.fail_next(
        "replace", with_=503, table="Notes"
    ),
    "the reply to 1 more 'merge' in table Notes should have been lost, but no": lambda faults: faults.lose_reply(
        "merge", table="Notes"
    ),
    "1 more 'merge' should have been lost": lambda faults: faults.lose_request("merge"),
    "1 more 'merge' in table Notes should have been delayed": lambda faults: faults.delay_request(
        "merge", table="Notes"
    ),
}


@pytest.mark.parametrize("problem", NOTHING_MEETS)
async def test_a_fault_that_nothing_meets(db: Database, faults: Faults, problem: str) -> None:
    """A block in which the request was not sent fails, and says what was expected."""
    with pytest.raises(AssertionError, match=problem), NOTHING_MEETS[problem](faults):
        await db.insert(Note())


async def test_an_error_in_the_block(db: Database, faults: Faults) -> None:
    """It is not hidden by a fault that nothing has met, which is gone."""
    with pytest.raises(ZeroDivisionError), faults.fail_next("insert", with_=503):
        _ = 1 / 0
    await db.insert(Note(id="b"))


def test_what_cannot_be_asked_for(faults: Faults) -> None:
    """Operations, codes and statuses that there are not are rejected, with those that there are."""
    with pytest.raises(ValueError, match="no operation 'save'; give one of get, query, insert, merge"):
        faults.fail_next("save", with_=503)
    with pytest.raises(ValueError, match="no operation 'upsert'"):
        faults.lose_reply("upsert")
    with pytest.raises(ValueError, match=r"with_='ServerIdle'\): give an error code of the service, such as 'ServerB"):
        faults.fail_next("insert", with_="ServerIdle")
    with pytest.raises(ValueError, match=r"with_=418\): .*statuses 400, 403, 404, 409"):
        faults.fail_next("insert", with_=418)


async def test_a_lost_reply_to_a_merge_into_more(db: Database, faults: Faults) -> None:
    """A row that has more than was merged into it shows all the same that the merge was done."""
    row = {"PartitionKey": "notes", "RowKey": "note_a", "EntityType": "Note", "More": 1}
    await insert_row(db, "Notes", row)
    note = Note(text="new")
    with faults.lose_reply("insert-or-merge"), db.observe() as seen:
        await db.upsert(note)
    note.text = "newer"
    await db.save(note)

    assert [each.operation for each in seen.requests] == ["insert-or-merge", "get"]
    assert (await db.store.get("Notes", "notes", "note_a"))["text"] == "newer"
