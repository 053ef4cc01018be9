"""
After a lost reply to a write without condition: a row is as wanted only if every value and every type is.
"""

import datetime as dt

import pytest

from tableorm import Database, Edm, PropertyBag
from tableorm.protocol.edm import Value
from tests.faults import Fate, FaultyStore
from tests.writes.lossy import db, other

__all__ = ["db", "other"]

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
