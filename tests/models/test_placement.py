"""
Rows of eventual indexes among those of other models: a key must never be one of both.
"""

import pytest

from tableorm import Entity, Index, IndexList, Mapped, ModelError, field
from tests.databases import memory_database


class Shop(Entity, table="PlacedShops", partition_key="{town}", row_key="shop_{id:03d}"):
    town: Mapped[str]
    id: Mapped[int]
    trade: Mapped[str] = field(default="")

    by_trade = Index(table="PlacedTrades", partition_key="{trade}", row_key="{town}_{id:03d}", consistency="eventual")


def test_the_entries_of_another_model_in_one_table() -> None:
    """Two indexes in one table whose keys could be equal are rejected, and told apart by literal text."""
    with pytest.raises(ModelError, match=r"Farm.by_crop: its rows in table PlacedTrades could have the keys of Shop"):

        class Farm(Entity, table="PlacedFarms", partition_key="{land}", row_key="farm_{id:03d}"):  # pyright: ignore[reportUnusedClass]
            land: Mapped[str]
            id: Mapped[int]
            crop: Mapped[str] = field(default="")

            by_crop = Index(
                table="placedtrades", partition_key="{crop}", row_key="{land}_{id:03d}", consistency="eventual"
            )

    class Mill(Entity, table="PlacedMills", partition_key="{land}", row_key="mill_{id:03d}"):
        land: Mapped[str]
        id: Mapped[int]
        grain: Mapped[str] = field(default="")

        by_grain = Index(
            table="PlacedTrades", partition_key="mills", row_key="{grain}_{land}_{id:03d}_mill", consistency="eventual"
        )

    assert Mill.__schema__.derived["by_grain"].deferred


def test_the_entities_of_another_model_in_the_table_of_an_index() -> None:
    """The order of the classes does not matter: the class that comes last is rejected."""
    with pytest.raises(ModelError, match=r"Trade: its rows in table PlacedTrades could have the keys of Shop.by_trade"):

        class Trade(Entity, table="PlacedTrades", partition_key="{name}", row_key="{place}_{number:03d}"):  # pyright: ignore[reportUnusedClass]
            name: Mapped[str]
            place: Mapped[str]
            number: Mapped[int]

    class Guild(Entity, table="PlacedTrades", partition_key="{name}", row_key="guild"):
        name: Mapped[str]

    assert Guild.__schema__.table == "PlacedTrades"


def test_entities_that_a_key_tells_beside_entries() -> None:
    """A model whose kind the RowKey tells takes every row that begins so for its own, in any partition."""

    class Ship(Entity, table="PlacedShips", partition_key="{port}", row_key="ship_{id:03d}"):
        port: Mapped[str]
        id: Mapped[int]
        flag: Mapped[str] = field(default="")

        by_flag = Index(partition_key="flag_{flag}", row_key="at_{port}_{id:03d}", consistency="eventual")

    with pytest.raises(ModelError, match=r"Place: its rows in table PlacedShips could have the keys of Ship.by_flag"):

        class Place(  # pyright: ignore[reportUnusedClass]
            Entity, table="PlacedShips", partition_key="places", row_key="at_{id:03d}", discriminator="row_key"
        ):
            id: Mapped[int]

    assert Ship.__schema__.derived["by_flag"].table == "PlacedShips"


class Person(Entity, table="PlacedPersons", abstract=True, partition_key="{town}", row_key="id_{id:03d}"):
    town: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]

    by_name = Index(table="PlacedNames", partition_key="{name}", row_key="{town}_{id:03d}", consistency="eventual")


class Clerk(Person):
    pass


class Chief(Person):
    pass


async def test_classes_that_inherit_keys_and_an_index() -> None:
    """They share the entries, since one key is that of one entity, of whichever class it is."""
    async with memory_database(Person) as db:
        await db.insert(Clerk(town="a", id=1, name="Ann"))
        await db.upsert(Chief(town="b", id=1, name="Ann"), mode="replace")
        query = db.select(Person.by_name).where(Person.name == "Ann")
        assert [type(each) for each in await query.all()] == [Clerk, Chief]
        clerk = await db.get(Clerk, town="a", id=1)
        await db.delete(clerk)
        await db.insert(Chief(town="a", id=1, name="Ann"))
        for verified in (True, False):
            assert [type(each) for each in await query.verify(verified).all()] == [Chief, Chief]


def test_classes_that_inherit_keys_and_a_list() -> None:
    """Each class has rows of its own for its lists, so `{kind}` has to tell these apart."""

    class Base(Entity, table="PlacedTools", abstract=True, partition_key="{shed}", row_key="id_{id}"):
        shed: Mapped[str]
        id: Mapped[int]
        maker: Mapped[str] = field(default="")

        made = IndexList(table="PlacedMakers", partition_key="{maker}", row_key="tools", consistency="eventual")

    class Saw(Base):
        pass

    with pytest.raises(ModelError, match=r"Axe.made: .* could have the keys of Saw.made, .* put {kind} into it"):

        class Axe(Base):  # pyright: ignore[reportUnusedClass]
            pass

    assert Saw.__schema__.derived["made"].deferred


def test_classes_that_inherit_an_index_and_have_keys_of_their_own() -> None:
    """Two entities of different classes could want one entry; `{kind}` tells these apart."""

    class Base(Entity, table="PlacedBeasts", abstract=True, partition_key="{house}", row_key="{kind}_{id}"):
        house: Mapped[str]
        id: Mapped[int]
        food: Mapped[str] = field(default="")

        by_food = Index(partition_key="eats_{food}", row_key="at_{house}_{id}", consistency="eventual")

    class Cow(Base):
        pass

    with pytest.raises(ModelError, match=r"Goat.by_food: .* could have the keys of Cow.by_food, .* put {kind} into it"):

        class Goat(Base):  # pyright: ignore[reportUnusedClass]
            pass

    assert Cow.__schema__.derived["by_food"].deferred
