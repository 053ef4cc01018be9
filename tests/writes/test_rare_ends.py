"""
Ends of writes that are seldom seen: rows that are gone or of another kind, chunks refused as a whole, rows in doubt.
"""

import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    EntityNotFound,
    Index,
    LostRace,
    Mapped,
    ModelError,
    NotSupported,
    OutcomeUnknown,
    PropertyBag,
    WrongKind,
    field,
    upgrade,
)
from tableorm.audit.check import AuditedMaintainer
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, Verb
from tableorm.testing import MemoryStore
from tableorm.writes import modify
from tableorm.writes.maintainer import EntryRules, Fill, Maintainer
from tableorm.writes.plan import Effect
from tests.database.between import Between
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore


class Thing(Entity, table="Things", partition_key="{group}", row_key="thing_{name}"):
    group: Mapped[str] = field(default="g")
    name: Mapped[str]
    number: Mapped[int] = field(default=0)


class Listed(Entity, table="Things", partition_key="{group}", row_key="listed_{name}"):
    group: Mapped[str] = field(default="g")
    name: Mapped[str]
    number: Mapped[int] = field(default=0)
    text: Mapped[str] = field(default="")

    by_number = Index(row_key="number_{number:06d}_{name}")
    by_text = Index(row_key="text_{number:06d}_{name}")


class Visit(Entity, table="Things", partition_key="{group}", row_key="visit_{at:%Y%m%d}"):
    group: Mapped[str] = field(default="g")
    at: Mapped[dt.datetime]
    number: Mapped[int] = field(default=0)


class Paper(Entity, table="Things", partition_key="{group}", abstract=True):
    group: Mapped[str] = field(default="g")


class Page(Paper, row_key="page"): ...


class Deed(Entity, table="Things", partition_key="{group}", row_key="deed_{name}", version=2):
    group: Mapped[str] = field(default="g")
    name: Mapped[str]
    title: Mapped[str] = field(default="")
    more: Mapped[str] = field(default="")


@upgrade(Deed, from_version=1)
def rename(bag: PropertyBag) -> PropertyBag:
    bag["title"] = bag.pop("name_of_old")
    return bag


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with Database(FaultyBackend(MemoryStore()), retry=QUICK) as database:
        await database.create_tables(Thing, Listed)
        yield database


def undo(*given: Any) -> object:
    return EntryRules[Any]().undo(*given, checked=False)


INTERFACE: list[tuple[Callable[..., object], int]] = [
    (undo, 3),
    (AuditedMaintainer.checks, 2),
    (Fill.apply_to, 3),
    (Maintainer.effects, 3),
    (Maintainer.rebuild, 3),
    (Effect.merge_with, 2),
    (Effect.operation, 3),
    (Effect.apply_to, 2),
]


@pytest.mark.parametrize(("method", "count"), INTERFACE, ids=lambda each: getattr(each, "__qualname__", ""))
def test_what_a_pattern_leaves_out(method: Callable[..., object], count: int) -> None:
    """It is missed at the first call, and not taken for an answer."""
    with pytest.raises(NotImplementedError):
        method(*[None] * count)


class Deleting(Between):
    """A store in which somebody inserts each row before others do, and deletes it before they look."""

    async def write(self, table: str, operation: Operation) -> str | None:
        if operation.verb is Verb.INSERT:
            raise Fault(Code.ENTITY_EXISTS, "It was there a moment ago.")
        return await super().write(table, operation)


async def test_a_row_that_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many attempts nothing is known of it, and the error says what to do."""
    monkeypatch.setattr(modify, "ATTEMPTS", 3)
    thing = Thing(name="a")
    async with Database(Deleting()) as database:
        await database.create_tables(Thing)
        with pytest.raises(LostRace, match="inserted and deleted it, 3 times in a row") as caught:
            await database.get_or_insert(thing)

    assert caught.value.entity is thing


async def test_a_row_of_the_declared_version_in_other_words(db: Database) -> None:
    """Version 1 and no version are the same: the row gets the words of the declaration."""
    await db.insert(Thing(name="a"))
    keys = {"PartitionKey": "g", "RowKey": "thing_a"}
    await db.store.write("Things", Operation(Verb.MERGE, {**keys, "EntityType": "Thing:1"}, "*"))
    await db.replace(await db.get(Thing, group="g", name="a"))

    assert (await db.store.get("Things", "g", "thing_a"))["EntityType"] == "Thing"


async def test_an_upgraded_entity_over_a_row_of_another_kind(db: Database) -> None:
    """Somebody has put it there since; it is not written over by force."""
    keys = {"PartitionKey": "g", "RowKey": "deed_a"}
    await db.store.write("Things", Operation(Verb.INSERT, {**keys, "EntityType": "Deed", "name_of_old": "x"}))
    deed = await db.get(Deed, group="g", name="a")
    await db.store.write("Things", Operation(Verb.REPLACE, {**keys, "EntityType": "Note"}, "*"))
    with pytest.raises(WrongKind, match=r"the row is of another kind now: it has .*Note"):
        await db.merge(deed, [Deed.more], if_match="*")

    assert (await db.store.get("Things", "g", "deed_a"))["EntityType"] == "Note"


async def test_a_bag_whose_row_is_gone(db: Database) -> None:
    """It has no ETag any more, and can be inserted again."""
    await db.insert(PropertyBag("Things", "g", "x", {"n": 1}))
    bag = await db.get(PropertyBag.key("Things", "g", "x"))
    await db.delete(PropertyBag.key("Things", "g", "x"), if_match="*")
    await db.delete(bag, missing_ok=True)

    assert bag.etag is None
    await db.insert(bag)
    assert dict(await db.get(PropertyBag.key("Things", "g", "x"))) == {"n": 1}


async def test_a_bag_without_a_property_that_was_read(db: Database) -> None:
    """A merge of all of it would leave the property in the table."""
    await db.insert(PropertyBag("Things", "g", "x", {"n": 1, "m": 2}))
    bag = await db.get(PropertyBag.key("Things", "g", "x"))
    del bag["m"]
    with pytest.raises(EncodeError, match=r"PropertyBag.m: .*a merge cannot remove a property") as raised:
        await db.merge(bag)
    assert raised.value.misuse


async def test_an_abstract_model_names_no_row(db: Database) -> None:
    """One of its classes does."""
    with pytest.raises(ModelError, match="Paper is abstract: name one of its concrete classes, or give a Key"):
        await db.modify(Paper, lambda each: None, group="g")
    async with db.transaction() as tx:
        with pytest.raises(ModelError, match="Paper is abstract"):
            await tx.get(Paper, group="g")


async def test_another_object_of_a_row_that_a_transaction_writes(db: Database) -> None:
    """It is refused also if the transaction knew it before."""
    await db.insert(Thing(name="a"))
    first, second = [await db.get(Thing, group="g", name="a") for _ in range(2)]
    async with db.transaction() as tx:
        tx.delete(first)
        tx.insert(second)
        first.number = 1
        with pytest.raises(NotSupported, match="another object stands for the row"):
            tx.replace(first)

    assert (await db.get(Thing, group="g", name="a")).number == 0


async def test_a_transaction_explained(db: Database) -> None:
    """As the requests are sent: one, in which each operation is indented."""
    text = str(db.explain_write("insert", Listed(name="a")))

    assert text.startswith("POST /$batch\n  POST /Things\n  {")
    assert text.count("\n  POST /Things\n") == 3
    assert text.splitlines()[-1].startswith("(1 request, ")


class Silent(MemoryStore):
    """Does not say which operation of a transaction failed."""

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        try:
            return await super().transact(table, operations)
        except Fault as fault:
            raise Fault(fault.code, fault.message) from None


async def test_a_chunk_of_which_nobody_knows_what_failed() -> None:
    """It is halved until only that is left."""
    async with Database(FaultyBackend(Silent()), retry=QUICK) as database:
        await database.create_tables(Listed)
        await database.insert(Listed(name="5"))
        async with database.bulk(errors="report") as bulk:
            for number in range(8):
                await bulk.upsert(Listed(name=f"{number}"))
                if number == 5:
                    await bulk.save(await stale(database))

    assert (bulk.report.written, bulk.report.failures) == (8, 1)


async def stale(db: Database) -> Listed:
    """An entity that was changed since it was read."""
    await db.insert(Listed(name="stale"))
    found = await db.get(Listed, group="g", name="stale")
    await db.modify(Listed, lambda each: setattr(each, "number", 3), group="g", name="stale")
    found.number = 4
    return found


async def test_a_chunk_that_is_too_large() -> None:
    """It is divided until each part fits into a request."""
    async with Database(FaultyBackend(MemoryStore()), retry=QUICK) as database:
        await database.create_tables(Listed)
        async with database.bulk(errors="report") as bulk:
            for number in range(60):
                await bulk.insert(Listed(name=f"{number}", text="x" * 30_000))
        found = await database.select(Listed).where(Listed.group == "g").all()

    assert (bulk.report.written, bulk.report.failures, len(found)) == (60, 0, 60)
    assert bulk.report.requests > 1


async def test_a_chunk_in_doubt() -> None:
    """Nobody answers: each of its writes has that error, and none is tried by itself."""
    network = FaultyStore(MemoryStore())
    async with Database(FaultyBackend(network), retry=QUICK) as database:
        await database.create_tables(Listed)
        network.plan(*[Fate.LOST_REQUEST] * 100)
        async with database.bulk(errors="report") as bulk:
            for number in range(3):
                await bulk.insert(Listed(name=f"{number}"))

    assert (bulk.report.written, bulk.report.failures) == (0, 3)
    assert {type(each.error) for each in bulk.report.failed} == {OutcomeUnknown}
    assert {len(operations) for operations in network.sent} == {9}


async def test_a_row_in_doubt_that_is_of_another_kind() -> None:
    """It is shown as a bag, since the model cannot read it."""
    network = FaultyStore(MemoryStore())
    keys = {"PartitionKey": "g", "RowKey": "thing_a"}

    async def others() -> None:
        row = {**keys, "EntityType": "Thing", "number": "many"}
        await network.store.write("Things", Operation(Verb.INSERT_OR_REPLACE, row))

    async with Database(FaultyBackend(network), retry=QUICK) as database:
        await database.create_tables(Thing)
        network.plan(Fate.LOST_REPLY)
        network.meanwhile = others
        with pytest.raises(OutcomeUnknown) as caught:
            await database.insert(Thing(name="a"))

    found = caught.value.found
    assert isinstance(found, PropertyBag)
    assert found["number"] == "many"


async def test_what_is_gone_is_missed(db: Database) -> None:
    """Forced or not."""
    thing = Thing(name="a")
    await db.insert(thing)
    await db.delete(thing.key, if_match="*")
    thing.number = 2
    with pytest.raises(EntityNotFound):
        await db.save(thing)
    with pytest.raises(EntityNotFound):
        await db.merge(thing, if_match="*")


async def test_an_entity_that_does_not_fit_its_model_is_deleted(db: Database) -> None:
    """By its key: its index entries go too, after they were read, since nothing proves what its manifest says."""
    await db.insert(Listed(name="a"))
    keys = {"PartitionKey": "g", "RowKey": "listed_a"}
    await db.store.write("Things", Operation(Verb.MERGE, {**keys, "number": "many"}, "*"))
    await db.delete(Listed.key(group="g", name="a"), if_match="*")

    assert [bag.row_key async for bag in db.select_raw("Things").allow_scan()] == []


async def test_an_index_entry_is_moved_in_a_transaction(db: Database) -> None:
    """The row is read for the delete, and what is inserted has all of it."""
    await db.insert(Listed(name="a", number=3, text="x"))
    (found,) = await db.select(Listed.by_number).where(Listed.group == "g", Listed.number == 3).all()
    async with db.transaction() as tx:
        tx.move(found, name="b")

    assert await db.get_or_none(Listed, group="g", name="a") is None
    moved = await db.get(Listed, group="g", name="b")
    assert (moved.number, moved.text) == (3, "x")
    assert (await db.audit(Listed)).clean


async def test_a_moment_that_a_key_holds_in_part(db: Database) -> None:
    """An entity that was loaded in part is not written after the moment was changed, which the row has in full."""
    noon = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    await db.insert(Visit(at=noon))
    (found,) = await db.select(Visit).where(Visit.group == "g").only(Visit.at).all()
    found.at = noon + dt.timedelta(days=1)
    with pytest.raises(EncodeError, match="cannot move a row"):
        await db.save(found)
