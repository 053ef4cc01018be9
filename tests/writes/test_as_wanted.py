"""
After a lost reply to a write without condition: a row is as wanted only if every value and every type is.
"""

import datetime as dt

import pytest

from tableorm import Database, Edm, PropertyBag
from tableorm.protocol.edm import Value
from tests.faults import Fate, FaultyStore
from tests.writes.lossy import Known, Plain, db, network, other

__all__ = ["db", "network", "other"]

KEY = PropertyBag.key("Rows", "p", "a")


def bag(value: Value, kind: Edm) -> PropertyBag:
    made = PropertyBag("Rows", "p", "a")
    made.set("n", value, kind)
    return made


@pytest.mark.parametrize("mode", ["merge", "replace"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((5, Edm.INT64), ("5", Edm.STRING)),
        ((1, Edm.INT32), (True, Edm.BOOLEAN)),
        ((0.0, Edm.DOUBLE), (-0.0, Edm.DOUBLE)),
        ((dt.datetime(2024, 1, 1, tzinfo=dt.UTC), Edm.DATETIME), ("2024-01-01T00:00:00.0000000Z", Edm.STRING)),
    ],
)
async def test_another_type_is_another_value(
    db: Database, other: Database, network: FaultyStore, mode: str, old: tuple[Value, Edm], new: tuple[Value, Edm]
) -> None:
    """However equal both are in Python or in JSON: the upsert that was lost is done."""
    await other.upsert(bag(*old), mode="replace")
    network.plan(Fate.LOST_REQUEST)
    await db.upsert(bag(*new), mode="merge" if mode == "merge" else "replace")

    found = await other.get(KEY)
    assert found.type_of("n") is new[1]
    assert str(found["n"]) == str(new[0])


async def test_another_type_is_another_row_version(db: Database, other: Database, network: FaultyStore) -> None:
    """A row that another changed from 1 to True after us is not what we wrote: we do not take over its ETag."""
    await other.insert(bag(0, Edm.INT32))
    await other.insert(Known(id="k"))
    mine, known = await db.get(KEY), await db.get(Known, id="k")

    async def foreign() -> None:
        await other.upsert(bag(True, Edm.BOOLEAN))

    mine["n"], known.count = 1, 1
    network.plan(Fate.LOST_REPLY)
    network.meanwhile = foreign
    async with db.transaction() as tx:
        tx.save(known)
        tx.save(mine)

    assert mine.etag is None
    assert known.etag == (await other.get(Known, id="k")).etag


async def test_a_forced_replace_by_an_unread_entity_is_finished(
    db: Database, other: Database, network: FaultyStore
) -> None:
    """It reads the row, and reads it again when its reply was lost; what the model does not know stays."""
    await other.insert(PropertyBag("Rows", "p", "plain_a", {"EntityType": "Plain", "foo": 1}))
    network.plan(Fate.LOST_REPLY)
    plain = Plain(id="a", count=3)
    await db.replace(plain, if_match="*")

    found = await other.get(Plain, id="a")
    assert (found.count, dict(found.extra), found.etag) == (3, {"foo": 1}, plain.etag)
