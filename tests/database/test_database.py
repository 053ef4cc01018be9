"""
Opening, sharing and closing a database; finding its backend.
"""

from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    Index,
    Key,
    Mapped,
    ModelError,
    PropertyBag,
    TableNotFound,
    TableOrmError,
    TemplateError,
    connect,
    field,
)

pytestmark = pytest.mark.limit(10)  # what hangs shall fail soon


class Cat(Entity, table="Pets", partition_key="{owner}", row_key="{name}"):
    owner: Mapped[str]
    name: Mapped[str]


class Dog(Entity, table="Pets", partition_key="{owner}", row_key="{name}"):
    owner: Mapped[str]
    name: Mapped[str]


class Pet(Entity, table="Pets", partition_key="{owner}", row_key="{name}", abstract=True):
    owner: Mapped[str]
    name: Mapped[str]


class Fish(Pet): ...


class Bird(Pet): ...


class Vague(Entity, abstract=True):
    note: Mapped[str]


async def test_data_outlives_the_database(tmp_path: Path) -> None:
    """A file opened again has what was written, with the same ETags."""
    url = f"local:{tmp_path}/a.tables"
    cat = Cat(owner="a", name="Tom")
    async with connect(url) as db:
        await db.create_tables(Cat)
        await db.insert(cat)

    async with connect(url) as db:
        again = await db.get(Cat, owner="a", name="Tom")
        assert (again, again.etag) == (cat, cat.etag)


async def test_an_abstract_base_is_queried_for_all_of_its_kinds(db: Database) -> None:
    """And a property bag among the models brings the rest."""
    await db.create_tables(Pet)
    for pet in (Fish(owner="a", name="Nemo"), Bird(owner="a", name="Zazu"), Cat(owner="a", name="Tom")):
        await db.insert(pet)

    pets = await db.select(Pet).where(Pet.owner == "a").all()
    assert [type(pet) for pet in pets] == [Fish, Bird]
    assert [pet.name for pet in await db.select(Pet).where(Pet.owner == "a", Pet.name > "O").all()] == ["Zazu"]
    mixed = await db.select(Fish, PropertyBag).where(Fish.owner == "a").all()
    assert [type(pet) for pet in mixed] == [Fish, PropertyBag, PropertyBag]
    assert isinstance(await db.get(Key(Pet, "Pets", "a", "Nemo")), Fish)
    with pytest.raises(ModelError, match="abstract"):
        await db.get(Pet, owner="a", name="Nemo")
    with pytest.raises(ModelError, match="abstract"):
        Pet(owner="a", name="x")


async def test_a_get_names_what_is_wrong_with_its_fields(db: Database) -> None:
    """Of the wrong type, or beside a key."""
    untyped: Any = db  # what the checkers refuse
    with pytest.raises(TemplateError, match="needs a str, got 5"):
        await db.get(Cat, owner="a", name=5)
    with pytest.raises(ModelError, match="a key already"):
        await untyped.get(Cat.key(owner="a", name="b"), owner="a")


async def test_tables_by_name_and_by_model(db: Database) -> None:
    """Both name a table when it is made and when it is dropped, with the rows of all models and their index entries."""
    await db.create_tables("Loose", Cat, "Loose")
    await db.create_tables("Loose", Dog)
    assert await db.tables() == ["Loose", "Pets"]
    await db.insert(PropertyBag("Loose", "p", "r"))
    await db.insert(Cat(owner="a", name="Tom"))
    await db.drop_table(Cat)
    await db.drop_table("Loose")

    assert await db.tables() == []
    await db.drop_table(Cat, missing_ok=True)
    with pytest.raises(TableNotFound, match="there is no table 'Pets' to delete") as caught:
        await db.drop_table(Dog)
    assert caught.value.table == "Pets"


async def test_what_is_no_table(db: Database) -> None:
    """A name that no table can have, a model without a table, and what is neither; nothing is made then."""
    untyped: Any = db  # what the checkers refuse
    with pytest.raises(TableOrmError, match=r"'A-b'; a table name is letters and digits"):
        await db.create_tables("A-b")
    with pytest.raises(ModelError, match="has no table"):
        await db.create_tables("Loose", Vague)
    with pytest.raises(ModelError, match="has no table"):
        await db.drop_table(Vague)
    for call in (untyped.create_tables, untyped.drop_table):
        with pytest.raises(ModelError, match="5 is not a model"):
            await call(5)
    assert await db.tables() == []


class Thai(Entity, table="ThaiNames", partition_key="{คำ}", row_key="ชื่อ_{ชื่อ}"):
    """Python normalises names: its คำ is another text than that of the programs that wrote the property."""

    คำ: Mapped[str]  # noqa: PLC2401
    ชื่อ: Mapped[str]  # noqa: PLC2401
    word: Mapped[str] = field(name="คำ")
    नाम: Mapped[str]  # noqa: PLC2401
    a‿b: Mapped[int]  # noqa: PLC2401
    by_name = Index(row_key="by_{नाम}_{ชื่อ}")


async def test_names_with_marks_and_connectors(db: Database) -> None:
    """Rows with such properties are read, found and saved; a key field may have such a name, too."""
    await db.create_tables(Thai)
    thai = Thai(คำ="p", ชื่อ="r", word="w", नाम="n", a‿b=1)
    await db.insert(thai)

    bag = await db.get(PropertyBag.key("ThaiNames", "p", "ชื่อ_r"))
    assert {name: bag[name] for name in ("คำ", "नाम", "a‿b")} == {"คำ": "w", "नाम": "n", "a‿b": 1}
    thai.word, thai.a‿b = "x", 2
    await db.save(thai)
    assert await db.get(Thai, คำ="p", ชื่อ="r") == thai
    query = db.select(Thai).where(Thai.คำ == "p", Thai.नाम == "n", Thai.word == "x")
    assert "Thai.by_name" in str(query.explain())
    assert await query.all() == [thai]
    if db.store.capabilities.faithful:
        found = db.select_raw("ThaiNames").where("PartitionKey eq {} and คำ eq {} and a‿b eq {}", "p", "x", 2)
        assert {each.row_key for each in await found.all()} == {"ชื่อ_r", "by_n_r"}
