"""
States of index lists: a list is looked up when the store says that each entity is in it, wherever lists are kept.
"""

import binascii
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    IndexList,
    Mapped,
    NotSupported,
    PropertyBag,
    Scope,
    connect,
)
from tableorm.connection.connection import connection_of
from tableorm.models.entity import schema_of
from tableorm.testing import temporary_database
from tests.azurite import Azurite

TABLE, CITIES = "ListStates", "ListStatesCities"


class Older(Entity, table=TABLE, kind="Guest", partition_key="{house}", row_key="guest_{id:03d}"):
    """What a program declared before there was a list."""

    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]


class Guest(Entity, table=TABLE, kind="Guest", partition_key="{house}", row_key="guest_{id:03d}"):
    """With lists in the partition of the entities."""

    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    in_city = IndexList(row_key="city_{city}")


class GuestElsewhere(Entity, table=TABLE, kind="Guest", partition_key="{house}", row_key="guest_{id:03d}"):
    """With lists in another table."""

    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    in_city = IndexList(table=CITIES, partition_key="{city}", row_key="{house}", consistency="eventual")


class GuestInBlobs(Entity, table=TABLE, kind="Guest", partition_key="{house}", row_key="guest_{id:03d}"):
    """With lists in blobs."""

    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    in_city = IndexList(row_key="city_{city}", blob=True, consistency="eventual")


class Changed(Entity, table=TABLE, kind="Guest", partition_key="{house}", row_key="guest_{id:03d}"):
    """With lists of the same name that have other keys."""

    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    in_city = IndexList(row_key="town_{city}")


class Being(Entity, table=TABLE, kind="Guest", partition_key="{house}", row_key="guest_{id:03d}"):
    """Its lists are written and not read, whatever the store says."""

    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    in_city = IndexList(row_key="city_{city}", building=True)


class Known(Entity, table=TABLE, kind="Guest", partition_key="{house}", row_key="guest_{id:03d}"):
    """Its lists are read, whatever the store says."""

    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    in_city = IndexList(row_key="city_{city}", building=False)


Open = Callable[[], Awaitable[Database]]

every_place = pytest.mark.parametrize("model", [Guest, GuestElsewhere, GuestInBlobs])


@pytest.fixture
async def open_program(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens one more program on the same tables, each with a connection of its own."""
    opened: list[Database] = []

    async def open_one() -> Database:
        opened.append(await connect(f"local:{tmp_path / 'lists.tables'}").open())
        return opened[-1]

    yield open_one
    for each in opened:
        await each.close()


async def look_up(db: Any, model: Any) -> list[int]:
    """Look up the guests of a city, in a database or a scope of one house."""
    house: dict[str, Any] = {} if isinstance(db, Scope) else {"house": "a"}
    return [guest.id for guest in await db.lookup(model.in_city, **house, city="Oslo")]


async def cost_of(db: Database, model: Any) -> int:
    """Return how many requests a lookup is."""
    with db.observe() as seen:
        await look_up(db, model)
    return seen.cost


async def fill(db: Database, model: Any) -> None:
    """Make the table, with guests of the older program, and one of the newer."""
    await db.create_tables(Older)
    for number in range(3):
        await db.insert(Older(house="a", id=number, city="Oslo"))
    await db.create_tables(model)
    await db.insert(model(house="a", id=9, city="Oslo"))


async def states_of(db: Database) -> dict[str, str]:
    return {state.model: state.state for state in await db.index_states()}


@every_place
async def test_who_made_the_table_asks_nothing(open_program: Open, model: Any) -> None:
    """The program that makes the tables knows that the lists are complete; another one asks once."""
    first, second = await open_program(), await open_program()
    await first.create_tables(model)
    await first.insert(model(house="a", id=1, city="Oslo"))

    cost = await cost_of(first, model)
    assert [await cost_of(second, model), await cost_of(second, model)] == [cost + 1, cost]
    assert await states_of(second) == {model.__name__: "readable"}


@every_place
async def test_a_list_is_looked_up_when_it_was_built(open_program: Open, model: Any) -> None:
    """Not before a clean build beside which no older program writes; other programs learn of it within a minute."""
    db, other = await open_program(), await open_program()
    await fill(db, model)
    remedy = rf"in_city is not read: .* run db\.build_index\({model.__name__}\.in_city, no_older_writers=True\)"
    for each in (db, other, db.scope(house="a")):
        with pytest.raises(NotSupported, match=remedy):
            await look_up(each, model)

    built = await db.build_index(model.in_city)
    assert (built.complete, built.readable) == (True, False)
    with pytest.raises(NotSupported, match="is not read"):
        await look_up(db, model)
    built = await db.build_index(model.in_city, no_older_writers=True)

    assert (built.complete, built.readable) == (True, True)
    assert await look_up(db, model) == [0, 1, 2, 9]
    with pytest.raises(NotSupported, match="is not read"):
        await look_up(other, model)
    known = connection_of(other).known_states
    assert known.asked is not None
    known.asked -= 60
    assert await look_up(other, model) == [0, 1, 2, 9]


async def test_a_build_that_is_not_complete_makes_nothing_readable(open_program: Open) -> None:
    """A row in the way of a list leaves entities out of it, whatever the operator says."""
    db = await open_program()
    await db.create_tables(Older)
    await db.insert(Older(house="a", id=1, city="Oslo"))
    await db.insert(PropertyBag(TABLE, "a", "city_Oslo~", {"Text": "mine"}))

    report = await db.build_index(Guest.in_city, no_older_writers=True)

    assert (report.complete, report.readable) == (False, False)
    with pytest.raises(NotSupported, match="is not read"):
        await look_up(db, Guest)


async def test_a_declaration_can_say_it_itself(open_program: Open) -> None:
    """`building=True` forbids what the store says is complete, `building=False` allows what it does not say."""
    db = await open_program()
    await db.create_tables(Guest)
    await db.insert(Guest(house="a", id=1, city="Oslo"))

    with pytest.raises(NotSupported, match=r"Being\.in_city is being built: .* without building=True"):
        await look_up(db, Being)
    await db.drop_table("TableormUpkeep")
    assert await look_up(await open_program(), Known) == [1]


async def test_what_was_built_behind_the_flag_is_readable_without_it(open_program: Open) -> None:
    """A list that is declared with `building=True` gets its state too: the declarations keep equal lists."""
    db = await open_program()
    await fill(db, Being)
    assert await states_of(db) == {}

    assert (await db.build_index(Being.in_city, no_older_writers=True)).readable

    assert await look_up(db, Guest) == [0, 1, 2, 9]


async def test_a_changed_declaration_begins_anew(open_program: Open) -> None:
    """Its state is another row; the former one stays as it is."""
    db = await open_program()
    await db.create_tables(Guest)
    await db.insert(Guest(house="a", id=1, city="Oslo"))

    with pytest.raises(NotSupported, match=r"Changed\.in_city is not read"):
        await look_up(db, Changed)
    await db.create_tables(Changed)

    assert await states_of(db) == {"Guest": "readable", "Changed": "write-only"}
    assert await look_up(db, Guest) == [1]


@every_place
async def test_states_name_the_tables_of_lists(open_program: Open, model: Any) -> None:
    """Of lists in blobs that of the entities. A table takes its states with it."""
    db = await open_program()
    await fill(db, model)
    lists = CITIES if model is GuestElsewhere else TABLE

    listed = await db.index_states()

    assert [(s.model, s.declaration, s.table, s.entry_table, s.state) for s in listed] == [
        (model.__name__, "in_city", TABLE, lists, "write-only")
    ]
    await db.drop_table(lists)
    assert await db.index_states() == []


async def test_a_list_needs_both_of_its_tables_new(open_program: Open) -> None:
    """Entities, or lists, may have been there before."""
    db = await open_program()
    await (await open_program()).create_tables(CITIES)
    await db.create_tables(GuestElsewhere)
    assert await states_of(db) == {"GuestElsewhere": "write-only"}
    for table in (TABLE, CITIES):
        await db.drop_table(table)

    await db.create_tables(GuestElsewhere)

    assert await states_of(db) == {"GuestElsewhere": "readable"}


async def test_a_token_for_one_table_hides_the_states(open_program: Open, tmp_path: Path) -> None:
    """Its holder looks up only what is declared to be complete."""
    db = await open_program()
    await db.create_tables(Guest)
    await db.insert(Guest(house="a", id=1, city="Oslo"))
    token = await db.grant(Guest, "r", dt.timedelta(hours=1))

    async with connect(f"local:{tmp_path / 'lists.tables'}", sas=str(token)) as mine:
        with pytest.raises(NotSupported, match=r"TableormUpkeep, which the token .* with building=False if it is"):
            await look_up(mine, Guest)
        assert await look_up(mine, Known) == [1]
        with pytest.raises(AccessDenied):
            await mine.index_states()


@every_place
async def test_an_incomplete_list_lacks_entities_without_damage(open_program: Open, model: Any) -> None:
    """An audit reports missing entities of a list that is complete, and of none that is not; nor does it add them."""
    db = await open_program()
    await fill(db, model)
    report = await db.audit(model, repair=True)
    assert (report.found, report.repaired) == (0, 0)
    await db.build_index(model.in_city, no_older_writers=True)
    await db.insert(Older(house="a", id=7, city="Oslo"))

    assert (await db.audit(model)).counts == {"missing": 1}
    assert (await db.audit(model, repair=True)).repaired == 1
    assert await look_up(db, model) == [0, 1, 2, 7, 9]


async def test_what_manifests_say_counts_in_an_incomplete_list(open_program: Open) -> None:
    """An entity whose manifest names its list is missing in it, also while others may be."""
    db = await open_program()
    await fill(db, Guest)
    await db.delete(PropertyBag.key(TABLE, "a", "city_Oslo~"), if_match="*")

    assert [(str(each.damage), each.row_key) for each in (await db.audit(Guest)).findings] == [("missing", "guest_009")]


def test_what_identifies_a_declaration() -> None:
    """Equal lists have one state, whatever the class is called and `building` says; others have another."""

    def digest_of(model: type[Entity]) -> str:
        declaration = schema_of(model).derived["in_city"].declaration
        assert declaration is not None
        return declaration.digest

    assert digest_of(Guest) == digest_of(Being) == digest_of(Known)
    assert len({digest_of(model) for model in (Guest, GuestElsewhere, GuestInBlobs, Changed)}) == 4


async def test_states_of_lists_on_azurite(azurite: Azurite) -> None:
    """A table that is there, a build, a second program and a table that is dropped, on the emulator."""
    async with temporary_database(azurite.connection_string) as db:
        await fill(db, Guest)
        with pytest.raises(NotSupported, match="is not read"):
            await look_up(db, Guest)
        assert (await db.build_index(Guest.in_city, no_older_writers=True)).readable
        async with connect(azurite.connection_string, prefix=db.prefix) as other:
            assert await look_up(other, Guest) == [0, 1, 2, 9]
        await db.drop_table(Guest)
        assert await db.index_states() == []


async def test_the_keys_of_a_list_are_read_once_for_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """An insert, a save and a delete decode the keys of each list once, and judge none of what they have just made."""
    decode, decoded = binascii.a2b_base64, list[str]()

    def note(text: str, **options: Any) -> bytes:
        decoded.append(text)
        return decode(text, **options)

    async with connect("local::memory:") as db:
        await db.create_tables(Guest)
        await db.insert(Guest(house="a", id=1, city="x"))
        await db.insert(Guest(house="a", id=2, city="y"))
        monkeypatch.setattr(binascii, "a2b_base64", note)
        guest = Guest(house="a", id=3, city="x")
        await db.insert(guest)
        inserted = len(decoded)
        guest.city = "y"
        await db.save(guest)
        saved = len(decoded) - inserted
        await db.delete(guest)
        deleted = len(decoded) - inserted - saved
        monkeypatch.undo()
        listed = [len(await db.lookup(Guest.in_city, house="a", city=city)) for city in "xy"]

    assert (inserted, saved, deleted) == (1, 2, 1)
    assert listed == [1, 1]
