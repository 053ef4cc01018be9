"""
Writing back what was read: nothing that was not changed changes, and nothing that another program knows is lost.
"""

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import Database, Entity, Mapped, PropertyBag, connect, field, upgrade
from tableorm.stores import Operation, Row, Verb


class Sensor(Entity, table="Sensors", partition_key="{site}", row_key="{at:ticks}", version=2):
    site: Mapped[str]
    at: Mapped[dt.datetime]
    checked: Mapped[dt.datetime | None] = field(default=None)
    count: Mapped[int] = field(default=0)
    settings: Mapped[dict[str, int] | None] = field(default=None)
    note: Mapped[str] = field(default="")


@upgrade(Sensor, from_version=1)
def remark_to_note(bag: PropertyBag) -> PropertyBag:
    bag["note"] = bag.pop("remark", "")
    return bag


class Foreign(Entity, table="Sensors", partition_key="{site}", row_key="{n:03d}", kind=None):
    site: Mapped[str]
    n: Mapped[int]
    note: Mapped[str | None] = field(default=None)


KEYS: Row = {"PartitionKey": "roof", "RowKey": "0638448068967891230"}
STORED: Row = {
    **KEYS,
    "EntityType": "Sensor:2",
    "checked": "2024-02-29T12:00:00.0000007Z",
    "checked@odata.type": "Edm.DateTime",
    "count": 5,  # an Int32, of a program that knows no better
    "settings": '{ "b": 1, "a": 2 }',  # spaced, and in another order
    "note": "x",
    "Extra": "1",
    "Extra@odata.type": "Edm.Int64",
}


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with connect("local::memory:") as database:
        await database.create_tables(Sensor)
        yield database


async def put(db: Database, row: Row) -> Row:
    await db.store.write("Sensors", Operation(Verb.INSERT_OR_REPLACE, row))
    return row


async def stored(db: Database, row: Row) -> Row:
    found = await db.store.get("Sensors", row["PartitionKey"], row["RowKey"])
    return {name: value for name, value in found.items() if name not in ("odata.etag", "Timestamp")}


async def read(db: Database) -> Sensor:
    return await db.get(Sensor.key_of(KEYS["PartitionKey"], KEYS["RowKey"]))


async def test_only_what_changed_is_spelt_anew(db: Database) -> None:
    """A DateTime keeps its seventh digit, an Int32 its type and JSON its spacing while their values are not changed."""
    await put(db, STORED)

    sensor = await read(db)
    sensor.note = "y"
    await db.save(sensor)

    assert await stored(db, KEYS) == STORED | {"note": "y"}


async def test_changed_values_take_the_declared_form(db: Database) -> None:
    """A changed value is written as the declaration says, with its annotation; but an Int32 stays one while it fits."""
    await put(db, STORED)

    sensor = await read(db)
    assert sensor.checked is not None
    sensor.checked += dt.timedelta(microseconds=1)
    sensor.count += 1
    await db.save(sensor)

    assert await stored(db, KEYS) == STORED | {
        "checked": "2024-02-29T12:00:00.0000010Z",
        "count": 6,
    }
    sensor.count = 2**31
    await db.save(sensor)

    found = await stored(db, KEYS)
    assert (found["count"], found["count@odata.type"]) == (str(2**31), "Edm.Int64")


async def test_a_removed_value_takes_nothing_along(db: Database) -> None:
    """A field set to None loses its property, and nothing else changes."""
    await put(db, STORED)

    sensor = await read(db)
    sensor.checked = None
    await db.save(sensor)

    expected = {name: value for name, value in STORED.items() if not name.startswith("checked")}
    assert await stored(db, KEYS) == expected


@pytest.mark.parametrize("change", [{"note": "y"}, {"checked": None}])
async def test_a_newer_row_stays_newer(db: Database, change: dict[str, Any]) -> None:
    """A row of a version that this code does not know keeps its version and its properties, merged or replaced."""
    await put(db, STORED | {"EntityType": "Sensor:7", "mood": "good"})

    sensor = (await read(db)).evolve(**change)
    await db.save(sensor)

    after = await stored(db, KEYS)
    assert (after["EntityType"], after["mood"], after["Extra"]) == ("Sensor:7", "good", "1")


async def test_an_upgrade_is_persisted_by_the_next_write(db: Database) -> None:
    """An old row is upgraded when read, and stored so when saved: new version, old property gone, the rest kept."""
    old: Row = {**KEYS, "EntityType": "Sensor", "remark": "hello", "Extra": "1", "Extra@odata.type": "Edm.Int64"}
    await put(db, old)

    sensor = await read(db)
    assert (sensor.note, await stored(db, KEYS)) == ("hello", old)
    await db.save(sensor)

    after = await stored(db, KEYS)
    assert (after["EntityType"], after["note"], after["Extra"]) == ("Sensor:2", "hello", "1")
    assert "remark" not in after
    assert (await read(db)).note == "hello"


@pytest.mark.parametrize("note", ["new", None])
async def test_kinds_of_other_programs_stay(db: Database, note: str | None) -> None:
    """A model without kind writes back EntityType and EntityVersion as it found them, merged or replaced."""
    keys: Row = {"PartitionKey": "roof", "RowKey": "007"}
    row = await put(db, {**keys, "EntityType": "theirs", "EntityVersion": 3, "note": "old"})

    entity = await db.get(Foreign, site="roof", n=7)
    entity.note = note
    await db.save(entity)

    expected = {name: value for name, value in row.items() if name != "note"} | ({"note": note} if note else {})
    assert await stored(db, keys) == expected


async def test_unknown_properties_are_written_as_changed(db: Database) -> None:
    """What was set, added or removed in `extra` is written; the rest of it stays as it was."""
    await put(db, STORED | {"Gone": "x"})

    sensor = await read(db)
    sensor.extra["Extra"] += 1
    sensor.extra["New"] = 1.5
    del sensor.extra["Gone"]
    await db.save(sensor)

    assert await stored(db, KEYS) == STORED | {"Extra": "2", "New": 1.5}
