"""
Queries and writes where the classes of one base, or of one table, differ in what they hold where.
"""

import asyncio
import dataclasses
from decimal import Decimal
from typing import Any

import pytest

from tableorm import Database, EncodeError, Entity, Mapped, ModelError, PropertyBag, field
from tests.databases import memory_database
from tests.rows import insert_row


class Document(Entity, table="Docs", partition_key="{project}", abstract=True):
    project: Mapped[str]
    id: Mapped[str]
    note: Mapped[int] = field(default=0, name="Note")


class Invoice(Document, row_key="invoice_{id}"): ...


class Draft(Document, partition_key="draft-{project}", row_key="{id}"):
    note: Mapped[int] = field(default=0, name="Remark")


class Elsewhere(Entity, table="Others", partition_key="{project}", row_key="{id}"):
    project: Mapped[str]
    id: Mapped[str]


class ByHead(Entity, table="Docs", partition_key="{project}", row_key="a_{id}", discriminator="row_key"):
    project: Mapped[str]
    id: Mapped[str]


class ByLongerHead(Entity, table="Docs", partition_key="{project}", row_key="a_b_{id}", discriminator="row_key"):
    project: Mapped[str]
    id: Mapped[str]


async def test_a_condition_on_a_model_of_another_table_is_refused(db: Database) -> None:
    """It would be silently false for every row."""
    with pytest.raises(EncodeError, match=r"Elsewhere\.id.*in table Others, but the query reads Docs") as refused:
        await db.select(Invoice).where(Invoice.project == "p", ~(Elsewhere.id == "x")).all()
    assert refused.value.value == "x"


async def test_kinds_whose_keys_can_meet_are_not_queried_together(db: Database) -> None:
    """Each by itself is possible; together a row could be of either."""
    with pytest.raises(ModelError, match=r"ByHead and ByLongerHead.*'a_\{id\}'.*'a_b_\{id\}'"):
        db.select(ByHead, ByLongerHead)


async def test_a_transaction_writes_entities_as_they_were_given(db: Database) -> None:
    """One object changed and given again is several rows; a later change is not part of the transaction."""
    await db.create_tables(Document)
    draft = Draft(project="p", id="0")
    async with db.transaction() as tx:
        for number in range(3):
            draft.id, draft.note = str(number), number
            tx.insert(draft)
        draft.note = 9

    found = await db.select(Draft).where(Draft.project == "p").all()
    assert [(d.id, d.note) for d in found] == [("0", 0), ("1", 1), ("2", 2)]
    await db.save(draft)
    assert (await db.get(Draft, project="p", id="2")).note == 9


@dataclasses.dataclass
class Remark:
    title: str
    body: str = dataclasses.field(default="", compare=False)


class Page(Entity, table="Docs", partition_key="pages", row_key="{name}", version=2):
    name: Mapped[str]
    remark: Mapped[Remark | None] = field(default=None)
    price: Mapped[Decimal] = field(default=Decimal("1.0"))
    flags: Mapped[dict[str, Any]] = field(factory=dict)


@pytest.mark.parametrize(
    ("name", "value"),
    [("remark", Remark("t", "second")), ("price", Decimal("1.00")), ("flags", {"a": True}), ("flags", {"a": 1.0})],
)
async def test_a_change_that_compares_equal_is_saved(db: Database, name: str, value: object) -> None:
    """What counts is what would be written, not what == says."""
    await db.create_tables(Document)
    await db.insert(Page(name="a", remark=Remark("t", "first"), flags={"a": 1}))
    page = await db.get(Page, name="a")
    setattr(page, name, value)
    await db.save(page)

    again = await db.get(Page, name="a")
    assert repr(getattr(again, name)) == repr(value)


async def test_unknown_properties_stay_with_their_entity(db: Database) -> None:
    """A bag taken before a save goes on working, a change during a save is not lost, a deleted entity keeps them."""
    await db.create_tables(Document)
    page = Page(name="a")
    page.extra["x"] = 1
    extra = page.extra
    await db.insert(page)
    extra["y"] = 2
    saving = asyncio.ensure_future(db.save(page))
    await asyncio.sleep(0)
    extra["z"] = 3
    await saving
    await db.save(page)
    key = PropertyBag.key("Docs", "pages", "a")
    stored = await db.get(key)

    assert (stored["x"], stored["y"], stored["z"]) == (1, 2, 3)
    page = await db.get(Page, name="a")
    await db.delete(page)
    await db.insert(page)
    assert (await db.get(key))["x"] == 1


async def test_a_copy_of_a_newer_row_keeps_its_version(db: Database) -> None:
    """Or newer code would upgrade what is new already."""
    await db.create_tables(Document)
    row = {"PartitionKey": "pages", "RowKey": "a", "EntityType": "Page:9", "price": "5", "flags": "{}", "novel": 1}
    await insert_row(db, "Docs", row)
    page = await db.get(Page, name="a")
    await db.insert(page.evolve(name="b"))

    copy = await db.get(PropertyBag.key("Docs", "pages", "b"))
    assert (copy["EntityType"], copy["novel"]) == ("Page:9", 1)


class Numbered(Entity, table="Docs", partition_key="{project}", row_key="n_{number:03d}"):
    project: Mapped[str]
    number: Mapped[int]


class Padded(Entity, table="Docs", partition_key="{project}", row_key="p_{number:05d}"):
    project: Mapped[str]
    number: Mapped[int]


async def test_a_key_field_of_another_model_says_nothing_of_a_key_of_the_same_name() -> None:
    """A condition on the number of one model finds no entity of another one whose key has a number, too."""
    async with memory_database(Numbered, Padded) as db:
        await db.insert(Numbered(project="x", number=5))
        await db.insert(Padded(project="x", number=5))
        for text in (Padded.number == 5, Padded.number > 1, Padded.number.in_([5, 6])):
            with pytest.raises(EncodeError, match="the query does not select Padded"):
                await db.select(Numbered).where(Numbered.project == "x", text).all()
            found = await db.select(Numbered, Padded).where(Numbered.project == "x", text).all()
            assert [type(each) for each in found] == [Padded]
