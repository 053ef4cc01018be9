"""
What a person meets who derives too much, or from what is not there: said at once, with the way out.
"""

import datetime as dt
from pathlib import Path

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Embedded,
    Entity,
    EntityExists,
    Index,
    IndexList,
    LimitExceeded,
    Mapped,
    PropertyBag,
    TemplateError,
    WrongKind,
    connect,
    field,
)
from tests.derived.patterns.firm import Department, Employee


class AnyGuest(Entity, table="Firm", abstract=True, partition_key="{house}"):
    house: Mapped[str] = field(default="a")
    id: Mapped[int]
    word: Mapped[str] = field(default="x")
    host_id: Mapped[int | None] = field(default=None)
    host_word: Mapped[str | None] = field(default=None, maintained=True)


class Guest(AnyGuest, row_key="guest_{id:04d}"):
    by_word = IndexList(row_key="word_{word}")
    by_same = Index(row_key="same_{word}", unique=True, where=lambda guest: guest.host_id is None)
    host = Embedded(lambda: Guest, {"host_word": "word"}, house="{house}", id="{host_id}")


async def test_the_key_of_a_list_has_room_to_be_divided(db: Database) -> None:
    """A list is rejected whose rows could not be divided later."""
    await db.insert(Guest(id=1, word="x" * 474))
    with pytest.raises(TemplateError, match=r"Guest.by_word.row_key: .* of a list, .* to be divided; shorten word"):
        await db.insert(Guest(id=2, word="x" * 475))


LONG = "visitor_of_a_long_name_" * 16


class Visitor(AnyGuest, row_key=LONG + "{id:04d}"):
    host = Embedded(lambda: Visitor, {"host_word": "word"}, house="{house}", id="{host_id}")


async def test_an_entity_is_not_written_over_a_list(db: Database) -> None:
    """A model whose keys are those of the rows of a list is rejected the row, and the list stays."""

    class Sign(Entity, table="Firm", partition_key="{department}", row_key="lastname_{text}"):
        department: Mapped[str]
        text: Mapped[str]
        by_text = Index(row_key="sign_{text}", include="keys")

    await db.insert(Department(name="Sales"))
    await db.insert(Employee(id=1))
    sign = Sign(department="Sales", text="Li~")
    with pytest.raises(EntityExists, match=r"'lastname_Li~'.* is of an index list .*'Employee#by_last_name'") as exists:
        await db.upsert(sign)
    assert (exists.value.code, exists.value.entity) == ("EntityAlreadyExists", sign)
    with pytest.raises(WrongKind, match="is of an index list") as wrong:
        await db.replace(sign, if_match="*")
    assert (wrong.value.key, wrong.value.found) == (("Sales", "lastname_Li~"), "Employee#by_last_name")
    with pytest.raises(WrongKind, match="write or delete the entities that are in it"):
        await db.delete(sign.key, if_match="*")
    assert len(await db.lookup(Employee.by_last_name, department="Sales", last_name="Li")) == 1


async def test_too_many_hold_copies(db: Database) -> None:
    """The entity notes all of them, and the message says so; nothing is written."""
    await db.insert(Visitor(id=0))
    with pytest.raises(LimitExceeded, match=r"'_ix' has .* who holds copies of it: too many do; let fewer refer to it"):
        for number in range(1, 100):
            await db.insert(Visitor(id=number, host_id=0))
    assert (await db.audit(Visitor)).found == 0


async def test_all_rows_of_a_partition_can_be_deleted(db: Database) -> None:
    """With bags beside the model: what is derived goes with its entities, and nothing fails for it."""
    for number in range(120):
        await db.insert(Guest(id=number, word=str(number % 3), host_id=0 if number else None))
    await db.insert(PropertyBag("Firm", "a", "something"))
    await db.modify(Guest, lambda guest: guest.evolve(word="y"), house="a", id=119)
    async with db.bulk(errors="report") as bulk:
        for number in range(1, 120):
            await bulk.delete(Guest.key(house="a", id=number), if_match="*")
    report = await db.select(Guest, PropertyBag).where(Guest.house == "a").delete()
    assert (report.written, report.failures) == (2, 0)
    left = [bag async for bag in db.select_raw("Firm").where("PartitionKey eq 'a'")]
    assert {bag["EntityType"] for bag in left} == {"Guest#by_word"}
    assert all(not any(name.startswith("Keys") for name in bag) for bag in left)


async def test_a_copy_can_be_deleted_with_its_entity(db: Database) -> None:
    """As any row, in one transaction."""
    await db.insert(Guest(id=1))
    async with db.transaction() as tx:
        tx.delete(Guest.key(house="a", id=1), if_match="*")
        tx.delete(PropertyBag.key("Firm", "a", "same_x"), if_match="*")
        tx.delete(PropertyBag.key("Firm", "a", "word_x~"), if_match="*")
    assert [bag async for bag in db.select_raw("Firm").where("PartitionKey eq 'a'")] == []


class Page(Entity, table="Pages", partition_key="{book}", row_key="page_{number:03d}"):
    book: Mapped[str]
    number: Mapped[int]
    title: Mapped[str]

    by_title = Index(row_key="title_{title}_{number:03d}")


async def test_a_token_for_some_entities_finds_them(tmp_path: Path) -> None:
    """Their copies are out of its reach, so no index is taken by itself; a scope is no place for an audit."""
    url = f"local:{tmp_path}/test.tables"
    async with connect(url) as db:
        await db.create_tables(Page)
        for number in range(3):
            await db.insert(Page(book="a", number=number, title="x"))
        await db.insert(Page(book="b", number=1, title="x"))
        token = await db.grant(
            Page, "r", dt.timedelta(hours=1), start={"book": "a", "number": 0}, end={"book": "a", "number": 1}
        )
        for refused in (db.scope(book="a").audit(Page), db.scope(book="a").build_index(Page.by_title)):
            with pytest.raises(AccessDenied, match="concerns a whole table"):
                await refused
    async with connect(url, sas=token) as mine:
        found = mine.select(Page).where(Page.book == "a", Page.title == "x")
        assert [page.number for page in await found.all()] == [0, 1]
        assert found.explain().path == "primary key"
