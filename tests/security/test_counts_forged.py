"""
Rows of counts and copies across partitions, by which who may write one partition would let others write elsewhere, or
copy from there.
"""

import json

import pytest

from tableorm import Count, Damage, Database, Embedded, Entity, Index, Mapped, field
from tableorm.models.manifest import SubtotalEntry, share_address
from tableorm.stores import Row, RowAddress, Verb
from tests.rows import insert_row
from tests.security.world import work, write_row


class Desk(Entity, table="CountedDesks", partition_key="{company}", row_key="desk_{name}"):
    company: Mapped[str]
    name: Mapped[str]
    lamps: Mapped[int] = field(default=0, maintained=True)


class Lamp(Entity, table="CountedLamps", partition_key="{room}", row_key="lamp_{id}"):
    room: Mapped[str]
    id: Mapped[int]
    desk: Mapped[str]

    counted = Count(lambda: Desk.lamps, company="evil", name="{desk}", consistency="eventual")


class Boss(Entity, table="CopiedBosses", partition_key="bosses", row_key="boss_{id}", tracked=True):
    id: Mapped[int]
    name: Mapped[str]


class Aide(Entity, table="CopiedAides", partition_key="{boss}", row_key="aide_{id}"):
    boss: Mapped[int]
    id: Mapped[int]
    boss_name: Mapped[str | None] = field(default=None, maintained=True)

    works_for = Embedded(lambda: Boss, {"boss_name": "name"}, id="{boss}", consistency="eventual")


class Chief(Entity, table="CopiedChiefs", partition_key="chiefs", row_key="chief_{id}", tracked=True):
    id: Mapped[int]
    name: Mapped[str]


class Page(Entity, table="CopiedPages", partition_key="{town}", row_key="page_{id}"):
    town: Mapped[str]
    id: Mapped[int]
    chief: Mapped[int]
    chief_name: Mapped[str | None] = field(default=None, maintained=True)

    by_chief = Index(partition_key="of_{chief}", row_key="in_{town}_{id}", include="keys", consistency="eventual")
    works_for = Embedded(lambda: Chief, {"chief_name": "name"}, id="{chief}", consistency="eventual", via=by_chief)


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
async def test_an_audit_inserts_no_row_for_a_forged_one(
    db: Database, table: str, row_key: str, share_key: str | None
) -> None:
    """A row beside a total, of a subtotal that is not there, may name any row, and an audit leaves that alone."""
    subtotal = RowAddress(table, "bank", row_key)
    numbers = {"Value": "1", "Value@odata.type": "Edm.Int64", "Number": "5", "Number@odata.type": "Edm.Int64"}
    keys = {"PartitionKey": "evil", "RowKey": share_key or share_address(DESK, subtotal).row_key}
    named = {"EntityType": "#_share", "_of": subtotal.to_json(), "Field": '["lamps","desk_a"]'}
    await db.create_tables(Desk, Lamp, "Payments")
    await db.insert(Desk(company="evil", name="a"))
    await insert_row(db, "CountedDesks", {**keys, **named, **numbers})

    report = await db.audit(Lamp, repair=True)

    assert report.undecided == 0
    for each in "Payments", "CountedLamps":
        assert await db.select_raw(each).allow_scan().all() == []


@pytest.mark.parametrize(
    "change", [{"_of": '["CountedDesks","evil","desk_b"]'}, {"Field": '["height"]'}, {"_of": "no JSON"}]
)
async def test_a_subtotal_is_of_what_its_key_says(db: Database, change: Row) -> None:
    """One that says otherwise is reported; it adds nothing to other totals, and an audit takes nothing from its own."""
    await db.create_tables(Desk, Lamp)
    for name in "a", "b":
        await db.insert(Desk(company="evil", name=name))
    for room in "good", "evil":
        await db.insert(Lamp(room=room, id=1, desk="a"))
    await write_row(db, "CountedLamps", "evil", DUE, Verb.MERGE, **change)

    for _ in range(2):
        report = await db.audit(Desk, Lamp, repair=True)
        assert ([each.damage for each in report.findings], report.undecided) == ([Damage.FOREIGN], 0)
    assert [each.lamps for each in await db.select(Desk).where(Desk.company == "evil").all()] == [2, 0]

    # Without the row an audit makes it anew.
    await write_row(db, "CountedLamps", "evil", DUE, Verb.DELETE)
    await db.audit(Desk, Lamp, repair=True)
    await db.insert(Lamp(room="evil", id=2, desk="a"))
    assert [each.lamps for each in await db.select(Desk).where(Desk.company == "evil").all()] == [3, 0]


@pytest.mark.parametrize("table", ["Payments", "NoSuchTable"])
async def test_a_manifest_alone_does_not_tell_what_is_copied(db: Database, table: str) -> None:
    """A holder gets nothing of a row that its fields do not name, and keeps no other holder from its copies."""
    await db.create_tables(Boss, Aide, "Payments")
    await write_row(db, "Payments", "bank", "payment_1", name="secret")
    await db.insert(Boss(id=1, name="Ann"))
    for number in 1, 2:
        await db.insert(Aide(boss=1, id=number))
    forged = json.dumps({"works_for": {"copy": ["bank", "payment_1", table, ""]}})
    await write_row(db, "CopiedAides", "1", "aide_1", Verb.MERGE, _ix=forged)

    ann = await db.get(Boss, id=1)
    ann.name = "Anna"
    await db.save(ann)
    await work(db, Boss, Aide)

    assert [each.boss_name for each in await db.select(Aide).where(Aide.boss == 1).all()] == ["Ann", "Anna"]
    assert [each.repaired for each in (await db.audit(Aide, repair=True)).findings] == [True, True]
    assert [each.boss_name for each in await db.select(Aide).where(Aide.boss == 1).all()] == ["Anna", "Anna"]


@pytest.mark.parametrize(
    ("keys", "change"),
    [
        pytest.param(("evil", "page_1"), {"_ix": "no JSON"}, id="a manifest"),
        pytest.param(("of_1", "in_evil_1"), {"_of": "no JSON"}, id="an owner"),
        pytest.param(("of_1", "in_evil_1"), {"_of": '["NoSuchTable","a","b"]'}, id="the table of an owner"),
        pytest.param(("of_1", "in_evil_1"), {"_of": '["CopiedPages","a/b","b"]'}, id="the key of an owner"),
    ],
)
async def test_a_row_that_nobody_can_read_keeps_nobody_from_copies(
    db: Database, keys: tuple[str, str], change: Row
) -> None:
    """One holder, or one entry, is left to audits; all others get what their source says."""
    await db.create_tables(Chief, Page)
    await db.insert(Chief(id=1, name="Ann"))
    for town in "evil", "Bern", "Rome":
        await db.insert(Page(town=town, id=1, chief=1))
    await write_row(db, "CopiedPages", keys[0], keys[1], Verb.MERGE, **change)

    ann = await db.get(Chief, id=1)
    ann.name = "Anna"
    await db.save(ann)
    await work(db, Chief, Page)

    for town in "Bern", "Rome":
        assert (await db.get(Page, town=town, id=1)).chief_name == "Anna"
    assert (await db.audit(Page)).found > 0
