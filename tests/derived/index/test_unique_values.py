"""
Values that are unique across partitions: what each verb claims, keeps and gives up, and what readers find.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    BlobArchive,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Mapped,
    ModelError,
    NotSupported,
    PropertyBag,
    TransactionFailed,
    UniqueViolation,
    WrongKind,
    field,
    upgrade,
)
from tableorm.connection.connection import connection_of
from tableorm.stores import Row
from tableorm.testing import MemoryStore, assert_requests
from tableorm.testing.contract.base import everything
from tests.databases import memory_database
from tests.faults import FaultyBackend
from tests.rows import insert_row


class User(Entity, table="UniqueUsers", partition_key="{tenant}", row_key="user_{id:03d}"):
    tenant: Mapped[str] = field(default="b")
    id: Mapped[int]
    email: Mapped[str | None]
    name: Mapped[str] = field(default="")

    by_email = Index(
        table="UniqueEmails", partition_key="email_{email:lower}", row_key="taken", unique=True, consistency="eventual"
    )


class Ticket(Entity, table="UniqueTickets", partition_key="{tenant}", row_key="ticket_{id}"):
    tenant: Mapped[str]
    id: Mapped[int]
    number: Mapped[int]
    open: Mapped[bool] = field(default=True)

    by_number = Index(
        table="UniqueNumbers",
        partition_key="{tenant}",
        row_key="number_{number:05d}",
        unique=True,
        consistency="eventual",
        where=lambda ticket: ticket.open,
    )


class OldTicket(Entity, table="UniqueOldTickets", partition_key="{tenant}", row_key="ticket_{id}"):
    tenant: Mapped[str]
    id: Mapped[int]
    number: Mapped[int]


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with memory_database(User, Ticket) as db:
        await db.insert(User(tenant="a", id=1, email="ann@x", name="Ann"))
        yield db


async def reserved(db: Database, table: str = "UniqueEmails") -> dict[str, list[str]]:
    """Return by PartitionKey and RowKey for whom each value is reserved, after what nobody waits for has ended."""
    later = connection_of(db)._later  # pyright: ignore[reportPrivateUsage]
    if later:
        await asyncio.wait(later)
    rows = await everything(db.store, table)
    return {f"{row['PartitionKey']}/{row['RowKey']}": json.loads(row["_of"])[1:] for row in rows}


def take(user: User) -> None:
    user.email = "ann@x"


VERBS: dict[str, Callable[[Database, User], Awaitable[object]]] = {
    "insert": lambda db, user: db.insert(User(id=1, email="Ann@x")),
    "save": lambda db, user: db.save(user),
    "modify": lambda db, user: db.modify(user.key, take),
    "upsert": lambda db, user: db.upsert(user),
    "replace": lambda db, user: db.replace(user, if_match="*"),
    "merge": lambda db, user: db.merge(user, only=["email"]),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_value_that_another_entity_has(db: Database, verb: str) -> None:
    """Each verb refuses it, and names model, index, value and the entity; nothing of the write is left."""
    user = User(id=2, email="ben@x")
    await db.insert(user)
    user.email = "ANN@x"
    with pytest.raises(
        UniqueViolation,
        match=r"of User \('b', 'user_00.'\): the entity \('a', 'user_001'\) has email='(ann|Ann|ANN)@x' already, and "
        r"index User.by_email is unique; choose another value, or change that entity first",
    ) as caught:
        await VERBS[verb](db, user)

    error = caught.value
    assert error.index == "User.by_email"
    assert {name: str(value).lower() for name, value in (error.values or {}).items()} == {"email": "ann@x"}
    assert (await reserved(db))["email_ann@x/taken"] == ["a", "user_001"]
    assert [each.email for each in await db.select(User).where(User.tenant == "b").all()] == ["ben@x"]
    messages = await everything(db.store, "UniqueUsers")
    assert not [row for row in messages if row["RowKey"].startswith("~o_")]


async def test_twice_in_a_transaction(db: Database) -> None:
    """Two entities of one transaction cannot claim one value; nothing is sent."""
    with pytest.raises(TransactionFailed, match=r"another entity of this transaction has email='N@x' al"):
        async with db.transaction() as tx:
            tx.insert(User(id=1, email="n@x"))
            tx.insert(User(id=2, email="N@x"))

    assert await reserved(db) == {"email_ann@x/taken": ["a", "user_001"]}


async def test_several_in_a_transaction(db: Database) -> None:
    """The error is that of the first, and has those of the others too; nothing was applied."""
    await db.insert(User(tenant="c", id=1, email="cid@x"))
    with pytest.raises(
        TransactionFailed, match=r"operation 1: insert of .* has email='ann@x'.*; nothing was ap"
    ) as caught:
        async with db.transaction() as tx:
            for number, email in enumerate(["new@x", "ann@x", "cid@x"]):
                tx.insert(User(id=number, email=email))

    assert caught.value.index == 1 and isinstance(caught.value.__cause__, UniqueViolation)
    assert [(n, type(error)) for n, error in caught.value.others.items()] == [(2, UniqueViolation)]
    assert await reserved(db) == {"email_ann@x/taken": ["a", "user_001"], "email_cid@x/taken": ["c", "user_001"]}


async def test_in_a_bulk(db: Database) -> None:
    """Writes that claim a value in vain fail alone, and the others are sent once more, however many fail."""
    for number in range(28):
        await db.insert(User(tenant="c", id=number, email=f"{number}@x"))
    await reserved(db)
    with db.observe() as seen:
        async with db.bulk(errors="report") as bulk:
            for number in range(60):
                await bulk.insert(User(tenant="z", id=number, email=f"{number}@x"))
        await reserved(db)

    assert (bulk.report.written, bulk.report.failures) == (32, 28)
    assert {type(each.error) for each in bulk.report.failed} == {UniqueViolation}
    # For each that is free: reserved, released (2), reserved again; for each that is not: refused, and three reads.
    assert seen.cost <= 4 * 32 + 4 * 28 + 10


async def test_only_some_entities_count(db: Database) -> None:
    """With `where` only entities for which it is true claim a value; the keys may tell values of tenants apart."""
    first = Ticket(tenant="a", id=1, number=5)
    await db.insert(first)
    await db.insert(Ticket(tenant="b", id=1, number=5))
    await db.insert(Ticket(tenant="a", id=2, number=5, open=False))
    with pytest.raises(UniqueViolation, match=r"has tenant='a', number=5 already"):
        await db.insert(Ticket(tenant="a", id=3, number=5))

    first.open = False
    await db.save(first)
    await db.insert(Ticket(tenant="a", id=3, number=5))

    expected = {"a/number_00005": ["a", "ticket_3"], "b/number_00005": ["b", "ticket_1"]}
    assert await reserved(db, "UniqueNumbers") == expected


STALE: Row = {
    "PartitionKey": "email_z",
    "RowKey": "taken",
    "EntityType": "User#by_email",
    "_of": '["UniqueUsers","a","user_001"]',
    "_v": "x" * 12,
}
"""A reservation that its entity does not hold."""


async def test_readers(db: Database) -> None:
    """An entity is found by its value, as it is, with its ETag; by a reservation that it does not hold it is not."""
    with assert_requests(db, 2):
        ann = await db.get(User.by_email, email="ANN@x")
    assert (ann.name, ann.etag is not None) == ("Ann", True)
    found = await db.select(User.by_email).where(User.email == "ann@x").all()
    assert [user.name for user in found] == ["Ann"]
    with pytest.raises(ModelError, match=r"verify\(False\) is rejected for User.by_email: its entries hold only keys"):
        db.select(User.by_email).verify(False)

    await insert_row(db, "UniqueEmails", STALE)
    assert await db.get_or_none(User.by_email, email="z") is None
    with pytest.raises(EntityNotFound):
        await db.get(User.by_email, email="nobody")


async def test_an_abandoned_reservation_is_taken_over(db: Database) -> None:
    """Of whom it was cannot commit any more: its decision row is void."""
    await insert_row(db, "UniqueEmails", STALE)

    await db.insert(User(id=1, email="Z"))

    assert (await reserved(db))["email_z/taken"] == ["b", "user_001"]
    assert (await db.store.get("UniqueUsers", "a", "~o_" + "x" * 12))["State"] == "void"


@pytest.mark.parametrize(
    "row",
    [
        {"EntityType": "Letter"},
        {**STALE, "_of": '["Others","a","user_001"]'},
        {**STALE, "_v": "no token"},
        {**STALE, "EntityType": "User#by_name"},
    ],
)
async def test_a_row_that_is_in_the_way(db: Database, row: Row) -> None:
    """What is no reservation of the model is not touched."""
    keys = {"PartitionKey": "email_z", "RowKey": "taken"}
    await insert_row(db, "UniqueEmails", {**keys, **row})

    with pytest.raises(EntityExists, match=r"needs the row \('email_z', 'taken'\) of table UniqueEmails, where a row"):
        await db.insert(User(id=1, email="z"))

    assert row.items() <= (await db.store.get("UniqueEmails", "email_z", "taken")).items()


# Several entities of one transaction


async def test_moves_to_other_partitions_are_refused(db: Database) -> None:
    """So are archives; the message names the index and what to do instead. Nothing is sent."""
    ann = await db.get(User, tenant="a", id=1)
    message = (
        r"cannot be moved to or from another partition: User.by_email would be wrong meanwhile; .* no unique Index "
        r"in other partitions; delete the entity and insert it at its new key"
    )
    with assert_requests(db, 0):
        with pytest.raises(NotSupported, match=message):
            await db.move(ann, tenant="b")
        with pytest.raises(NotSupported, match=message):
            db.explain_write("move", ann, tenant="b")
        ticket = Ticket(tenant="a", id=1, number=1)
    await db.insert(ticket)
    with pytest.raises(NotSupported, match=r"Ticket cannot be moved to or from another partition: Ticket\.by_num"):
        await db.archive(ticket, to=OldTicket)


OLD_USERS = BlobArchive("unique-old-users", User)


async def test_an_archive_out_of_the_database(db: Database) -> None:
    """It frees the value when the worker has deleted the entity."""
    ann = await db.get(User, tenant="a", id=1)
    await db.archive(ann, to=OLD_USERS)
    async with db.worker(User, OLD_USERS) as worker:
        await worker.drain()

    assert await reserved(db) == {}
    await db.insert(User(id=1, email="ann@x"))


# Versions of programs


class AnyAccount(Entity, table="UniqueAccounts", partition_key="{bank}", row_key="account_{id}", abstract=True):
    bank: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    note: Mapped[str] = field(default="")


class NamedAccount(AnyAccount, abstract=True):
    by_name = Index(table="UniqueNames", partition_key="name_{name}", row_key="x", unique=True, consistency="eventual")


class Account(NamedAccount): ...


class NewAccount(NamedAccount, kind="Account", version=2): ...


@upgrade(NewAccount, from_version=1)
def write_in_capitals(bag: PropertyBag) -> PropertyBag:
    bag["name"] = bag["name"].upper()
    return bag


class PlainAccount(AnyAccount, kind="Account", tracked=True): ...


@pytest.mark.parametrize(
    ("model", "values"),
    [(NewAccount, {"name_ANN/x": ["a", "account_1"]}), (PlainAccount, {})],
    ids=["upgraded", "not declared"],
)
async def test_other_programs(model: type[NewAccount | PlainAccount], values: dict[str, list[str]]) -> None:
    """A newer program claims the value as it is upgraded; one that does not declare the index gives the value up."""
    store = MemoryStore()
    async with Database(FaultyBackend(store)) as db:
        await db.create_tables(Account)
        await db.insert(Account(bank="a", id=1, name="Ann"))
        await reserved(db, "UniqueNames")
    async with Database(FaultyBackend(store)) as db:

        def note(account: Any) -> None:
            account.note = "seen"

        await db.modify(model.key(bank="a", id=1), note)
        assert await reserved(db, "UniqueNames") == values


# Scopes, classes, and Azurite


class Seat(Entity, table="UniqueSeats", partition_key="{tenant}_{room}", row_key="seat_{id}"):
    tenant: Mapped[str]
    room: Mapped[int]
    id: Mapped[int]
    guest: Mapped[str | None]

    by_guest = Index(
        table="UniqueGuests", partition_key="{tenant}", row_key="{guest}", unique=True, consistency="eventual"
    )


async def test_a_scope(db: Database) -> None:
    """The keys of an index must tell whose its values are; what others have reserved there is not looked into."""
    await db.create_tables(Seat)
    mine, others = db.scope(tenant="a"), db.scope(tenant="b")
    await mine.insert(Seat(tenant="a", room=1, id=1, guest="Ann"))
    await others.insert(Seat(tenant="b", room=1, id=1, guest="Ann"))
    with pytest.raises(UniqueViolation, match="has tenant='a', guest='Ann' already"):
        await mine.insert(Seat(tenant="a", room=2, id=1, guest="Ann"))
    assert (await mine.get(Seat.by_guest, guest="Ann")).tenant == "a"
    with pytest.raises(ModelError, match="cannot be shown to belong to the scope by its key"):
        await mine.insert(User(tenant="a", id=7, email="x@x"))

    forged: Row = {"EntityType": "Seat#by_guest", "_of": '["UniqueSeats","b_1","seat_1"]', "_v": "x" * 12}
    await insert_row(db, "UniqueGuests", {"PartitionKey": "a", "RowKey": "Bo", **forged})
    with pytest.raises(EntityExists, match=r"needs the row \('a', 'Bo'\) .* no entity of Seat within reach"):
        await mine.insert(Seat(tenant="a", room=2, id=1, guest="Bo"))
    assert not [row for row in await everything(db.store, "UniqueSeats") if row["RowKey"] == "~o_" + "x" * 12]


class Animal(Entity, table="UniqueAnimals", abstract=True, partition_key="{house}", row_key="{kind}_{id}"):
    house: Mapped[str]
    id: Mapped[int]
    tag: Mapped[str]

    by_tag = Index(table="UniqueTags", partition_key="{tag}", row_key="tag", unique=True, consistency="eventual")


class Cow(Animal):
    pass


class Goat(Animal):
    pass


async def test_classes_share_values(db: Database) -> None:
    """Entities of classes that inherit the index cannot have one value, and are read by it as what they are."""
    await db.create_tables(Animal)
    await db.insert(Cow(house="h", id=1, tag="one"))
    with pytest.raises(UniqueViolation, match=r"the entity \('h', 'Cow_1'\) has tag='one' already"):
        await db.insert(Goat(house="h", id=1, tag="one"))
    await db.insert(Goat(house="h", id=1, tag="two"))
    async with db.transaction() as tx:
        cow, goat = await tx.get(Cow, house="h", id=1), await tx.get(Goat, house="h", id=1)
        cow.tag, goat.tag = goat.tag, cow.tag
        tx.save(cow)
        tx.save(goat)

    assert [type(each) for each in await db.select(Animal.by_tag).where(Animal.tag == "one").all()] == [Goat]
    assert (await db.get(Cow.by_tag, tag="two")).id == 1
    with pytest.raises(WrongKind):
        await db.get(Cow.by_tag, tag="one")
    assert (await db.audit(Animal)).clean


async def test_a_value_that_stays_the_same_is_not_claimed_again(db: Database) -> None:
    """Where the key of the entry ignores case, another case of the value is a change of the entity alone."""
    user = await db.get(User, tenant="a", id=1)
    user.email = "ann@X"

    with assert_requests(db, 1):
        await db.save(user)
