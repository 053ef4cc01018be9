"""
Rows of counts across partitions by which who may write one partition would let others write elsewhere.
"""

import pytest

from tableorm import Count, Entity, Mapped, connect, field
from tableorm.models.manifest import SubtotalEntry, share_address
from tableorm.stores import Operation, RowAddress, Verb


class Desk(Entity, table="CountedDesks", partition_key="{company}", row_key="desk_{name}"):
    company: Mapped[str]
    name: Mapped[str]
    lamps: Mapped[int] = field(default=0, maintained=True)


class Lamp(Entity, table="CountedLamps", partition_key="{room}", row_key="lamp_{id}"):
    room: Mapped[str]
    id: Mapped[int]
    desk: Mapped[str]

    counted = Count(lambda: Desk.lamps, company="evil", name="{desk}", consistency="eventual")


DESK = RowAddress("CountedDesks", "evil", "desk_a")
DUE = SubtotalEntry.of(DESK, "lamps", 1).row_key


@pytest.mark.parametrize(
    ("table", "row_key", "share_key"),
    [
        pytest.param("Payments", "payment_1", "~n_mine", id="any key"),
        pytest.param("CountedLamps", "lamp_1", None, id="a key of that table"),
        pytest.param("Payments", DUE, None, id="any table"),
        pytest.param("NoSuchTable", DUE, None, id="no table"),
    ],
)
async def test_an_audit_inserts_no_row_for_a_forged_one(table: str, row_key: str, share_key: str | None) -> None:
    """A row beside a total, of a subtotal that is not there, may name any row, and an audit leaves that alone."""
    subtotal = RowAddress(table, "bank", row_key)
    numbers = {"Value": "1", "Value@odata.type": "Edm.Int64", "Number": "5", "Number@odata.type": "Edm.Int64"}
    keys = {"PartitionKey": "evil", "RowKey": share_key or share_address(DESK, subtotal).row_key}
    named = {"EntityType": "#_share", "_of": subtotal.to_json(), "Field": '["lamps","desk_a"]'}
    async with connect("local::memory:") as db:
        await db.create_tables(Desk, Lamp, "Payments")
        await db.insert(Desk(company="evil", name="a"))
        await db.store.write("CountedDesks", Operation(Verb.INSERT, {**keys, **named, **numbers}))

        report = await db.audit(Lamp, repair=True)

        assert report.undecided == 0
        for each in "Payments", "CountedLamps":
            assert await db.select_raw(each).allow_scan().all() == []
