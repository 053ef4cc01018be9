"""
Lists that tenants share: in a scope the rows of others are not even read, whatever they say.
"""

from typing import Any

import pytest

from tableorm import Database, Entity, IndexList, Mapped, field
from tableorm.stores import Verb
from tests.security.world import write_row


class Guest(Entity, table="ListedGuests", partition_key="{tenant}", row_key="guest_{id:06d}"):
    tenant: Mapped[str]
    id: Mapped[int]
    city: Mapped[str | None]
    age: Mapped[int | None] = field(default=None)

    in_city = IndexList(table="ListedCities", partition_key="{city}", row_key="guests_{kind}", consistency="eventual")


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Guest)
    await db.insert(Guest(tenant="acme", id=1, city="Rome"))
    await db.insert(Guest(tenant="other", id=2, city="Rome"))
    return db


@pytest.mark.parametrize("members", [{"_ix": "]["}, {"_ix": 5}, {"age": "x"}, {"EntityType": 5}, {"_mv": "]["}])
async def test_a_damaged_row_of_another_tenant_is_not_seen(db: Database, members: dict[str, Any]) -> None:
    """A list that tenants share can be read in a scope, also if the row of another one in it is damaged."""
    await write_row(db, "ListedGuests", "other", "guest_000002", Verb.MERGE, **members)
    mine = db.scope(tenant="acme")
    with db.observe() as seen:
        found = await mine.lookup(Guest.in_city, city="Rome")
    assert [(each.tenant, each.id) for each in found] == [("acme", 1)]
    assert len(seen.requests) == 2  # the list, and the entity of this tenant
