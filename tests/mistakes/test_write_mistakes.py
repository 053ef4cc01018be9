"""Writes that cannot be meant: which error says so, and what it tells to do."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    BulkFailed,
    Conflict,
    Count,
    Database,
    EncodeError,
    Entity,
    Index,
    MalformedETag,
    Mapped,
    NotRead,
    PreconditionFailed,
    TransactionFailed,
    UniqueViolation,
    field,
    http_message,
    http_status,
)
from tests.databases import database_fixture
from tests.writes.verbs import write


class Team(Entity, table="Citizens", partition_key="{country}", row_key="team_{name}"):
    country: Mapped[str]
    name: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Person(Entity, table="Citizens", partition_key="{country}", row_key="person_{id:04d}"):
    country: Mapped[str]
    id: Mapped[int]
    email: Mapped[str | None] = field(default=None)
    team: Mapped[str | None] = field(default=None)

    by_email = Index(row_key="email_{email:lower}", unique=True)
    counted = Count(lambda: Team.size, country="{country}", name="{team}")


class Note(Entity, table="Notes", partition_key="{topic}", row_key="{number:04d}"):
    topic: Mapped[str]
    number: Mapped[int]


db = database_fixture(Team, Person, Note)


NOTE = Note(topic="a", number=1)
NEVER_READ: list[tuple[Callable[[Any], Awaitable[object]], str]] = [
    (lambda db: db.save(NOTE), r"save of Note\(topic='a', number=1.*insert\(\) it, or read it first$"),
    (lambda db: db.merge(NOTE), r"merge of Note.*or pass if_match='\*' to overwrite any version"),
    (lambda db: db.replace(NOTE), r"replace of Note.*or pass if_match='\*'"),
    (lambda db: db.delete(NOTE), r"delete of Note.*or pass if_match='\*' to delete any version"),
    (
        lambda db: db.delete(Note.key(topic="a", number=1)),
        r"delete of Note \('a', '0001'\) in table Notes: a key has no ETag; pass .* if_match='\*' to delete any",
    ),
    (lambda db: db.modify(NOTE, print), r"modify of Note.*insert\(\) it, or read it first$"),
    (lambda db: db.move(NOTE, number=2), r"move of Note.*insert\(\) it, or read it first$"),
]


@pytest.mark.parametrize(("write", "message"), NEVER_READ)
async def test_what_was_never_read_is_no_lost_race(
    db: Database, write: Callable[[Any], Awaitable[object]], message: str
) -> None:
    """The error is no conflict, which a retry loop would take for a race; it is a ValueError."""
    with pytest.raises(NotRead, match=message) as caught:
        await write(db)
    assert not isinstance(caught.value, Conflict)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("tag", ['"b"', 'W/"1"'])
async def test_an_etag_that_no_row_has(db: Database, tag: str) -> None:
    """An ETag of HTTP that the service does not make is one that the row has not got, as HTTP says: status 412."""
    note = Note(topic="a", number=1)
    await db.insert(note)
    before = db.stats.requests

    with pytest.raises(PreconditionFailed, match=r"modify of Note: no row has the ETag") as caught:
        await db.modify(Note, lambda note: None, topic="a", number=1, if_match=tag)
    with pytest.raises(PreconditionFailed, match=r"delete of Note: no row has the ETag"):
        await db.delete(note, if_match=tag)
    assert http_status(caught.value) == 412
    assert db.stats.requests == before


@pytest.mark.parametrize("tag", ['"a", "b"', "b", "", "W/*"])
async def test_the_answer_to_a_header_that_is_no_etag(db: Database, tag: str) -> None:
    """It is the client's mistake, and no value of a field: status 400, and what to send."""
    with pytest.raises(MalformedETag) as caught:
        await db.modify(Note, lambda note: None, topic="a", number=1, if_match=tag)

    assert http_status(caught.value) == 400
    assert http_message(caught.value) == "If-Match must be '*' or one ETag, as the header ETag of an answer has it"


ETAG = "W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\""


@pytest.mark.parametrize("tag", ["", "zz", 'W/"x', 3, f"{ETAG}, {ETAG}"])
@pytest.mark.parametrize("model", [Note, Person])
async def test_a_malformed_etag_is_one_error(db: Database, model: Any, tag: Any) -> None:
    """Whatever the verb and the model: it names both, and nothing is sent."""
    entity = Note(topic="a", number=1) if model is Note else Person(country="SE", id=1)
    await db.insert(entity)
    before = db.stats.requests
    verbs: list[Callable[..., Awaitable[object]]] = [db.merge, db.replace, db.delete]
    for verb in verbs:
        with pytest.raises(EncodeError, match=rf"of {model.__name__}\.if_match: .* nor an ETag") as caught:
            await verb(entity, if_match=tag)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(EncodeError, match=rf"delete of select\({model.__name__}\)\.if_match: .* is rejected"):
        await db.select(model).allow_scan().delete(if_match=tag)
    with pytest.raises(EncodeError, match="if_match"):
        async with db.transaction() as tx:
            tx.delete(entity, if_match=tag)
    assert db.stats.requests == before


async def test_a_unique_violation_shows_the_stored_value(db: Database) -> None:
    """A format such as `lower` makes one key of several values: what is stored tells why."""
    await db.insert(Person(country="SE", id=1, email="Ann@X.org"))

    with pytest.raises(UniqueViolation, match=r"'person_0001' .* has email='Ann@X.org' already") as caught:
        await db.insert(Person(country="SE", id=2, email="ann@x.org"))
    assert caught.value.values == {"email": "ann@x.org"}


ANN = Person.key(country="SE", id=1)


async def insert_team(db: Database) -> Team:
    """Insert a team, and ann, who is counted in it; return the team as it is read then."""
    team = Team(country="SE", name="a")
    await db.insert(team)
    await db.insert(Person(country="SE", id=1, team="a"))
    return await db.get(team.key)


@pytest.mark.parametrize("delete", ["delete", "delete in a transaction", "delete in a bulk"])
async def test_deleting_a_stale_entity_says_that_it_is_stale(db: Database, delete: str) -> None:
    """And not that others count in it, which was so when it was read; what counts in it now is said."""
    stale = await insert_team(db)
    with pytest.raises((Conflict, TransactionFailed, BulkFailed), match="its size is 1: other entities are counted in"):
        await write(db, delete, stale)
    await db.delete(ANN, if_match="*")

    with pytest.raises(
        (PreconditionFailed, TransactionFailed, BulkFailed), match="changed since it was read"
    ) as caught:
        await write(db, delete, stale)
    assert PreconditionFailed in (type(caught.value), type(caught.value.__cause__))
    await write(db, delete, stale, if_match="*")
    assert not await db.exists(stale.key)


@pytest.mark.parametrize("if_match", [None, "*"])
async def test_a_stale_entity_that_is_saved_and_then_deleted(db: Database, if_match: str | None) -> None:
    """The save needs the ETag that was read, so its transaction is rejected, however the row is deleted after it."""
    stale = await insert_team(db)
    await db.delete(ANN, if_match="*")
    stale.extra["motto"] = "onwards"

    with pytest.raises(TransactionFailed):
        async with db.transaction() as tx:
            tx.save(stale)
            tx.delete(stale, if_match=if_match)
    assert await db.exists(stale.key)


async def test_reports_count_in_english(db: Database) -> None:
    """One request is no "1 requests", and what was deleted was not "written"."""
    note = Note(topic="a", number=1)
    async with db.bulk() as bulk:
        await bulk.insert(note)
    assert str(bulk.report) == "1 done, 0 failed, 1 request"
    async with db.bulk() as bulk:
        await bulk.delete(note)
    assert str(bulk.report) == "1 done, 0 failed, 1 request"
    await db.insert(Person(country="SE", id=1))
    assert str(await db.audit(Person)).startswith("1 entity and 0 derived rows checked: nothing found; ")
