"""
Rows by which who may write one partition would end every audit: they name places that no row can have, or rows for
which a function of the model raises an error. An audit reports them, and goes on.
"""

import base64
import datetime as dt
import json
from itertools import product
from typing import Any

import pytest

from tableorm import Count, Database, Embedded, Entity, Index, IndexList, Mapped, PropertyBag, field, upgrade
from tableorm.audit.check import Phase
from tableorm.audit.context import AuditContext, SnapshotTurns
from tableorm.audit.table_audit import TableAudit
from tableorm.connection.connection import connection_of
from tableorm.models.kinds import KindSet
from tableorm.stores import CLOCK, RowAddress, Verb
from tests.security.world import write_row
from tests.torture import every

pytestmark = pytest.mark.usefixtures("stopped_clock")


class Staff(Entity, table="AuditedStaff", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    city: Mapped[str | None] = field(default=None)

    by_city = Index(
        table="AuditedCities", partition_key="city_{city}", row_key="in_{department}_{id:06d}", consistency="eventual"
    )
    in_city = IndexList(table="AuditedLists", partition_key="{city}", row_key="people", consistency="eventual")


class Veteran(
    Entity, table="AuditedVeterans", partition_key="{department}", row_key="empid_{id:06d}", version=2, tracked=True
):
    department: Mapped[str]
    id: Mapped[int]
    town: Mapped[str]

    by_town = Index(
        table="AuditedCities", partition_key="town_{town}", row_key="in_{department}_{id:06d}", consistency="eventual"
    )


class Chair(Entity, table="AuditedVeterans", partition_key="{department}", row_key="chair_{number}"):
    department: Mapped[str]
    number: Mapped[int]
    owner: Mapped[int]
    town: Mapped[str | None] = field(default=None, maintained=True)

    of = Embedded(lambda: Veteran, {"town": "town"}, department="{department}", id="{owner}")


class Gang(Entity, table="AuditedGangs", partition_key="{town}", row_key="gang", version=2):
    town: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Thief(Entity, table="AuditedGangs", partition_key="{town}", row_key="thief_{id}"):
    town: Mapped[str]
    id: Mapped[int]
    kind_of: Mapped[str] = field(default="quick")

    counted = Count(lambda: Gang.size, town="{town}")
    listed = IndexList(row_key="kind_{kind_of}")


class Mate(Entity, table="AuditedMates", partition_key="{team}", row_key="mate_{id}", tracked=True):
    team: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")
    lead_id: Mapped[int | None] = field(default=None)
    lead_name: Mapped[str | None] = field(default=None, maintained=True)

    lead = Embedded(lambda: Mate, {"lead_name": "name"}, team="{team}", id="{lead_id}")


@upgrade(Gang, from_version=1)
@upgrade(Veteran, from_version=1)
def _name_town(row: PropertyBag) -> PropertyBag:
    row["town"] = row["city"]
    return row


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Staff, Veteran, Chair, Mate, Thief, Gang)
    return db


async def plant(db: Database, table: str, partition: str, row_key: str, kind: str, **members: Any) -> None:
    await write_row(db, table, partition, row_key, Verb.INSERT_OR_REPLACE, EntityType=kind, **members)


PLACES = [("x", "y", "Nowhere"), ("x", "y", "no table!"), ("x", "y", "../x"), ("x" * 2000, "y", ""), ("a/b", "\1", "")]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["by_city", "in_city", "nope"])
async def test_a_manifest_that_names_no_place_is_reported(
    db: Database, name: str, place: tuple[str, str, str], repair: bool
) -> None:
    """A manifest that names a table that is not there, or a key that no row has, is a finding."""
    partition, row_key, table = place
    form = {"in": [partition, row_key, table or "AuditedLists", f"Staff#{name}"]}
    if name == "by_city":
        form = {"at": [partition, row_key, table or "AuditedCities"]}
    await plant(db, "AuditedStaff", "Evil", "empid_000001", "Staff", _ix=json.dumps({name: form}))
    assert (await db.audit(Staff, repair=repair)).findings


KEYS = ["a/b", "a\1", "a" * 3000, "a?"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("which", ["partition", "row"])
async def test_an_entry_of_no_entity_is_reported(db: Database, which: str, key: str, repair: bool) -> None:
    """An index entry and a list that name an entity whose keys no entity has are findings."""
    owner = (key, "x") if which == "partition" else ("x", key)
    await plant(db, "AuditedCities", "Evil", "entry", "Staff#by_city", _of=json.dumps(["AuditedStaff", *owner]))
    packed = base64.b64encode("\t".join(["AuditedStaff", *owner, "v\n"]).encode()).decode()
    binary = {"Keys00": packed, "Keys00@odata.type": "Edm.Binary"}
    await plant(db, "AuditedLists", "Evil", "people~", "Staff#in_city", **binary)
    report = await db.audit(Staff, repair=repair)
    assert {each.index for each in report.findings} == {"by_city", "in_city"}


FORWARD: dict[str, Any] = {"state": "forward", "move": "m", "other": ["AuditedVeterans", "Evil", "empid_000001"]}
TENTATIVE = {"state": "tentative", "move": "m", "other": ["AuditedVeterans", "Evil", "empid_000002"], "etag": "x"}
ENTRY = {"at": ["town_x", "in_Evil_000001", "AuditedCities"]}


OLD, LEFT = "Veteran ('Evil', 'empid_000001')", "was left, and should be gone"
UNREADABLE = f"{OLD}: unreadable: it does not fit the model (KeyError: 'city')"
SINCE = "committed 2 hours ago, and its pending work has not been done since"
MOVE = "of a move to or from ('Evil', 'empid_00000{}') in table AuditedVeterans"
CHAIR, SOURCE = "Chair.of ('Evil', 'chair_1')", "the manifest of the entity 'empid_000001' does not say"
FOUND = {
    "decision": [f"Veteran ('Evil', ''): unfinished: a change of Veteran:2 was {SINCE}", UNREADABLE],
    "move": [
        f"{OLD}: unfinished: a tentative row {MOVE.format(2)} {LEFT}",
        f"Veteran ('Evil', 'empid_000002'): unfinished: a forward {MOVE.format(1)} {LEFT}",
    ],
    "source": [
        f"{CHAIR}: stale: it holds copies of fields, which are not as 'empid_000001' is",
        f"{CHAIR}: manifest: it refers to 'empid_000001', and its manifest names none",
        f"{CHAIR}: manifest: {SOURCE} that this one holds copies of it",
        UNREADABLE,
    ],
}
"""What an audit says is wrong, without the remedy."""


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("what", ["decision", "move", "source"])
async def test_an_upgrade_that_fails_ends_no_audit(db: Database, what: str, repair: bool) -> None:
    """A row of an older version, for which the upgrade raises an error, is a finding to whatever row it leads from."""
    old = "Veteran#_tentative:1" if what == "move" else "Veteran:1"
    mark = {"_mv": json.dumps(TENTATIVE)} if what == "move" else {}
    await plant(db, "AuditedVeterans", "Evil", "empid_000001", old, **mark)
    match what:
        case "decision":
            works = [{"kind": "Veteran:2", "row": "empid_000001", "entries": {"by_town": [ENTRY]}}]
            text = json.dumps({"format": 1, "works": works})
            row_key = "~o_aaaaaaaaaaaa"
            await plant(db, "AuditedVeterans", "Evil", row_key, "#_decision", State="committed", Work=text)
        case "move":
            text = json.dumps(FORWARD)
            await plant(db, "AuditedVeterans", "Evil", "empid_000002", "Veteran#_forward", _mv=text)
        case _:
            await plant(db, "AuditedVeterans", "Evil", "chair_1", "Chair", owner=1, town="elsewhere")
    CLOCK.advance(dt.timedelta(hours=2))

    report = await db.audit(Veteran, Chair, repair=repair)

    assert [str(each).rpartition(each.remedy)[0] for each in report.findings] == [f"{each}; " for each in FOUND[what]]
    refused = "KeyError: 'city'" if repair else None
    assert {each.refused for each in report.findings if each.damage != "unreadable"} == {refused}
    assert (report.repaired, report.undecided) == (0, 0)


@pytest.mark.parametrize("leads", [(1,), (2, 1), (2, 3, 1), tuple(range(2, 42))])
async def test_entities_that_wait_for_one_another_are_repaired(db: Database, leads: tuple[int, ...]) -> None:
    """Damaged entities that each need the next one to be repaired first, in a circle or a long row, end no audit."""
    for number, lead in enumerate(leads, 1):
        members = {"name": f"n{number}", "lead_id": lead if lead <= len(leads) else None, "_ix": "]["}
        await plant(db, "AuditedMates", "Evil", f"mate_{number}", "Mate", **members)
    for _ in range(len(leads)):
        await db.audit(Mate, repair=True)
        if (await db.audit(Mate)).clean:
            break
    assert (await db.audit(Mate)).clean
    assert (await db.get(Mate, team="Evil", id=1)).lead_name == f"n{leads[0]}"


@pytest.mark.parametrize(("length", "at_once"), [(4, True), (5, False)])
async def test_how_many_entities_wait_for_one_another(db: Database, length: int, at_once: bool) -> None:
    """Three are repaired before one that waits for them; of a longer row the rest is left to the next audit."""
    for number in range(1, length + 1):
        lead = number + 1 if number < length else None
        await plant(db, "AuditedMates", "Evil", f"mate_{number}", "Mate", name=f"n{number}", lead_id=lead, _ix="][")

    report = await db.audit(Mate, repair=True, parallel=1)

    assert (report.found - report.repaired, report.undecided) == (0 if at_once else 3, 0)
    assert (await db.audit(Mate, repair=True, parallel=1)).clean


HOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "of a version whose upgrade fails": ("Gang:1", {}),
    "of a newer version": ("Gang:9", {}),
    "with as many properties as a row has": ("Gang:2", {f"p{number}": number for number in range(251)}),
    "with a text as count": ("Gang:2", {"size": "abc"}),
    "with the greatest number": ("Gang:2", {"size": 2**31 - 1}),
    "of no kind": ("Thing", {}),
    "of a damaged manifest": ("Gang:2", {"_ix": "]["}),
}


@pytest.mark.parametrize(("holder", "way"), every(5, product(HOLDERS, ["audit", "repair", "build"])))
async def test_a_holder_ends_no_audit(db: Database, holder: str, way: str) -> None:
    """An entity in which others count may be as it likes: audits and builds end, and others are repaired and built."""
    kind, members = HOLDERS[holder]
    await plant(db, "AuditedGangs", "Evil", "gang", kind, **members)
    await plant(db, "AuditedGangs", "Evil", "thief_1", "Thief")
    await plant(db, "AuditedGangs", "good", "gang", "Gang:2")
    await plant(db, "AuditedGangs", "good", "thief_1", "Thief")
    if way == "build":
        await db.build_index(Thief.counted)
    else:
        assert not (await db.audit(Thief, Gang)).clean
        await db.audit(Thief, Gang, repair=way == "repair")
    assert (await db.get(Gang, town="good")).size == int(way != "audit")


async def test_a_build_counts_nobody_twice(db: Database) -> None:
    """An entity with a damaged manifest may have been counted: a build adds nothing for it, and mends the manifest."""
    await db.insert(Gang(town="good"))
    await db.insert(Thief(town="good", id=1))
    await write_row(db, "AuditedGangs", "good", "thief_1", Verb.MERGE, _ix="][")

    report = await db.build_index(Thief.counted, parallel=1)

    assert (report.written, report.complete) == (1, True)  # which is the manifest
    assert (await db.get(Gang, town="good")).size == 1


def packed(keys: list[str]) -> dict[str, str]:
    """Return the properties of a row of a list with these keys."""
    data, found = "".join(f"{key}\n" for key in keys).encode(), dict[str, str]()
    for number, start in enumerate(range(0, len(data), 48 * 1024)):
        found[f"Keys{number:02d}"] = base64.b64encode(data[start : start + 48 * 1024]).decode()
        found[f"Keys{number:02d}@odata.type"] = "Edm.Binary"
    return found


async def test_rows_of_a_list_that_are_too_large_together_end_no_audit(db: Database) -> None:
    """A row of a list whose keys do not fit beside those of its halves, where they belong, is left undecided."""
    for row_key, letter in (("kind_quick~", "水"), ("kind_quick~0", "火"), ("kind_quick~1", "木")):
        keys = packed([f"{letter * 500}{number}" for number in range(480)])
        await plant(db, "AuditedGangs", "Evil", row_key, "Thief#listed", **keys)
    report = await db.audit(Thief, repair=True)
    assert report.undecided
    assert not report.clean


async def test_repairs_that_get_on_have_no_pauses_between_them(db: Database, pauses: list[int]) -> None:
    """
    An entity whose manifest names so much that it cannot be repaired at once is repaired bit by bit: pauses are only
    between the attempts to do so at once, which are rejected.
    """
    await db.create_tables("Wuu")
    places = {f"n{number}": {"un": ["ssn", f"ssn_{number}", "Wuu", "aaaaaaaaaaaa"]} for number in range(600)}
    await plant(db, "AuditedStaff", "evil", "empid_000001", "Staff", _ix=json.dumps(places, separators=(",", ":")))

    report = await db.audit(Staff, repair=True)

    assert report.counts["undeclared"] > 40 and not [each for each in report.findings if not each.repaired]
    assert pauses == [1, 2, 3]


async def test_rows_of_a_list_that_are_repaired_one_by_one_have_no_pauses(db: Database, pauses: list[int]) -> None:
    """Rows that look as if they had never been divided, one after the other, are repaired without pauses in between."""
    deepest = "kind_quick~" + "0" * 11
    for depth in range(12):
        await plant(db, "AuditedGangs", "evil", deepest[: len(deepest) - depth], "Thief#listed")
    context = AuditContext(db=connection_of(db), kinds=KindSet.of([Thief]), repair=True, turns=SnapshotTurns())
    check = TableAudit(context).check_of(await db.store.get("AuditedGangs", "evil", deepest))
    assert check is not None

    await check.verify_row(RowAddress("AuditedGangs", "evil", deepest), Phase.BEFORE, lambda _: True)

    assert [str(each.damage) for each in context.counts.findings] == ["stale"] * 11
    assert (context.counts.undecided, pauses) == (0, [])
