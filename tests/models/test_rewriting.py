"""
Writing back what was read of other programs: the kind and version that they have stored stay.
"""

import pytest

from tableorm import Database, Entity, Mapped, field
from tableorm.stores import Row
from tableorm.testing.contract.base import user_part
from tests.databases import database_fixture
from tests.rows import put_row


class Foreign(Entity, table="Sensors", partition_key="{site}", row_key="{n:03d}", kind=None):
    site: Mapped[str]
    n: Mapped[int]
    note: Mapped[str | None] = field(default=None)


db = database_fixture(Foreign)


async def put(db: Database, row: Row) -> Row:
    await put_row(db, "Sensors", row)
    return row


async def stored(db: Database, row: Row) -> Row:
    found = await db.store.get("Sensors", row["PartitionKey"], row["RowKey"])
    return user_part(found)


@pytest.mark.parametrize("note", ["new", None])
async def test_kinds_of_other_programs_stay(db: Database, note: str | None) -> None:
    """A model without kind has EntityType and EntityVersion in `extra`, and writes them back, merged or replaced."""
    keys: Row = {"PartitionKey": "roof", "RowKey": "007"}
    row = await put(db, {**keys, "EntityType": "theirs", "EntityVersion": 3, "note": "old"})

    entity = await db.get(Foreign, site="roof", n=7)
    unknown = dict(entity.extra)
    entity.note = note
    await db.save(entity)

    expected = {name: value for name, value in row.items() if name != "note"} | ({"note": note} if note else {})
    assert unknown == {"EntityType": "theirs", "EntityVersion": 3}
    assert await stored(db, keys) == expected
