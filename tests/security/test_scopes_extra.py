"""
Unknown properties of an entity that are named as what this package keeps: they make it no row of another kind.
"""

from typing import Any

import pytest

from tableorm import Database, Embedded, Entity, Mapped, TableOrmError, field


class Resident(Entity, table="Houses", partition_key="{country}", row_key="resident_{tenant}_{id}", tracked=True):
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]


class Plate(Entity, table="Houses", partition_key="{country}", row_key="plate_{tenant}_{id}", kind="Plate"):
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]


class NamePlate(Plate, kind="NamePlate"):
    owner: Mapped[str | None] = field(default=None)
    name: Mapped[str | None] = field(default=None, maintained=True)

    resident = Embedded(lambda: Resident, {"name": "name"}, country="{country}", tenant="{owner}", id="{id}")


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Resident)
    await db.insert(Resident(country="SE", tenant="other", id=9, name="secret of other"))
    return db


@pytest.mark.parametrize("verb", ["insert", "upsert", "bulk", "save"])
async def test_an_entity_does_not_get_another_kind(db: Database, verb: str) -> None:
    """
    An entity from which nothing is derived does not become, by the mapping of its unknown properties, one that is
    derived from: an audit would copy another tenant's row into it, and change that row.
    """
    mine, theirs = db.scope(tenant="acme"), Resident.key(country="SE", tenant="other", id=9)
    before = await db.get(theirs)
    plate = Plate(country="SE", tenant="acme", id=9)
    if verb == "save":
        await mine.insert(plate)
    plate.extra["owner"] = "other"
    unknown: Any = plate.extra
    unknown.row["EntityType"] = "NamePlate"
    try:
        if verb == "bulk":
            async with mine.bulk() as bulk:
                await bulk.insert(plate)
        else:
            await getattr(mine, verb)(plate)
    except TableOrmError:
        pass
    await db.audit(NamePlate, Resident, repair=True)
    after = await db.get(theirs)
    assert after.etag == before.etag
    for each in await mine.select(Plate).where(Plate.country == "SE").all():
        assert "secret" not in repr(each)
