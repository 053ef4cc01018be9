"""
Manifests that take back what was never counted: of rows of an older version, whose fields may have other names.
"""

import json
from contextlib import suppress

import pytest

from tableorm import Count, Database, Entity, Mapped, PropertyBag, TableOrmError, field, upgrade
from tests.security.world import write_row


class Squad(Entity, table="ForgedAmounts", partition_key="{country}", row_key="squad"):
    country: Mapped[str]
    budget: Mapped[int] = field(default=100)
    size: Mapped[int] = field(default=0, maintained=True)


class Account(Entity, table="ForgedAmounts", partition_key="{country}", row_key="account_{owner}"):
    country: Mapped[str]
    owner: Mapped[str]
    amount: Mapped[int] = field(default=100)


class Soldier(Entity, table="ForgedAmounts", partition_key="{country}", row_key="soldier_{id}", version=2):
    country: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")

    counted = Count(lambda: Squad.size, country="{country}")


@upgrade(Soldier, from_version=1)
def _leave_it(row: PropertyBag) -> PropertyBag:
    return row


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Soldier)
    await db.insert(Squad(country="SE"))
    await db.insert(Account(country="SE", owner="ann"))
    return db


@pytest.mark.one_of(5)
@pytest.mark.parametrize("kind", ["Soldier", "Soldier:1", "Soldier:2"])
@pytest.mark.parametrize("name", ["counted", "other"])
@pytest.mark.parametrize("address", ["account_ann amount", "squad budget", "squad new"])
@pytest.mark.parametrize("way", ["save", "delete", "query"])
async def test_an_entity_takes_back_from_counts_alone(
    db: Database, kind: str, name: str, address: str, way: str
) -> None:
    """A manifest of a row of an older version changes no number that is not the count of a declaration."""
    row_key, property_ = address.split()
    manifest = json.dumps({name: {"add": [row_key, {property_: 1000}]}})
    await write_row(db, "ForgedAmounts", "SE", "soldier_9", EntityType=kind, _ix=manifest)
    with suppress(TableOrmError):
        if way == "query":
            await db.select(Soldier).where(Soldier.country == "SE").delete()
        elif way == "delete":
            await db.delete(Soldier, country="SE", id=9, if_match="*")
        else:
            found = await db.get(Soldier, country="SE", id=9)
            found.name = "changed"
            await db.save(found)
    assert (await db.get(Account, country="SE", owner="ann")).amount == 100
    squad = await db.get(Squad, country="SE")
    assert squad.budget == 100
    assert "new" not in squad.extra
