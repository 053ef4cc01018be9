"""
`db.audit`: every kind of damage is found and repaired, and nothing else is touched.
"""

import re
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    AuditReport,
    Count,
    Damage,
    Database,
    Entity,
    Index,
    IndexList,
    Mapped,
    ModelError,
    PropertyBag,
    TableNotFound,
    connect,
    field,
    upgrade,
)
from tableorm.audit.segment import Segment
from tableorm.stores import Verb
from tableorm.testing import Faults
from tests.audit.foreign import TABLE, Clerk, Employee, EmployeeOfOld, fill, merge, snapshot, write
from tests.damage import Case, Cases, found_by
from tests.rows import merge_row, replace_row
from tests.torture import on_stores

E1, E2 = "empid_000001", "empid_000002"


class Printed(Entity, table="AuditedPrints", partition_key="{shelf}", row_key="print_{id}"):
    shelf: Mapped[str]
    id: Mapped[int]
    by_id = Index(row_key="id_{id}", building=False)


class AnyDisc(Entity, abstract=True):
    shelf: Mapped[str]
    id: Mapped[int]
    label: Mapped[str]


class DiscOfOld(AnyDisc, table="AuditedDiscs", kind="Disc", partition_key="{shelf}", row_key="disc_{id}"):
    """As a program had it that listed the discs of each label."""

    of_label = IndexList(row_key="label_{label}")


class Disc(AnyDisc, table="AuditedDiscs", partition_key="{shelf}", row_key="disc_{id}", tracked=True):
    pass


CASES = Cases()


@CASES.case((Damage.MISSING, "by_email", E1, "email_e1@x"))
async def copy_deleted(db: Database) -> None:
    await write(db, Verb.DELETE, "Sales", "email_e1@x")


@CASES.case((Damage.STALE, "by_email", E1, "email_e1@x"))
async def copy_changed(db: Database) -> None:
    await merge(db, "email_e1@x", name="changed")


@CASES.case(
    (Damage.MISSING, "by_email", E1, "email_other@x"),
    (Damage.ORPHAN, "by_email", E1, "email_e1@x"),
    same=False,
)
async def entity_changed(db: Database) -> None:
    await merge(db, E1, email="other@x")


@CASES.case(
    (Damage.STALE, "by_email", E1, "email_e1@x"),
    (Damage.ORPHAN, "by_age", E1, "age_030_000001"),
    same=False,
)
async def entity_no_longer_in_index(db: Database) -> None:
    await merge(db, E1, active=False)


@CASES.case(
    (Damage.ORPHAN, "by_email", E1, "email_e1@x"),
    (Damage.ORPHAN, "by_name", E1, "name_n1_000001"),
    (Damage.ORPHAN, "by_age", E1, "age_030_000001"),
    same=False,
)
async def entity_deleted(db: Database) -> None:
    await write(db, Verb.DELETE, "Sales", E1)


@CASES.case(
    (Damage.MISSING, "by_email", "empid_000100", "email_new@x"),
    (Damage.MISSING, "by_name", "empid_000100", "name_new_000100"),
    (Damage.MISSING, "by_age", "empid_000100", "age_030_000100"),
    same=False,
)
async def entity_inserted(db: Database) -> None:
    await write(
        db, Verb.INSERT, "Sales", "empid_000100", EntityType="Employee", name="new", email="new@x", age=30, active=True
    )


@CASES.case(
    (Damage.MANIFEST, "by_email", E1, "email_e1@x"),
    (Damage.MANIFEST, "by_name", E1, "name_n1_000001"),
    (Damage.MANIFEST, "by_age", E1, "age_030_000001"),
)
async def note_lost(db: Database) -> None:
    await merge(db, E1, _ix="{}")


@CASES.case((Damage.MANIFEST, "by_email", "empid_000000", "email_e0@x"))
async def note_of_what_is_not(db: Database) -> None:
    row = await db.store.get(TABLE, "Sales", "empid_000000")
    await merge(db, "empid_000000", _ix='{"by_email":"email_e0@x",' + row["_ix"][1:])


@CASES.case(
    (Damage.MANIFEST, None, E1, None),
    (Damage.MANIFEST, "by_email", E1, "email_e1@x"),
    (Damage.MANIFEST, "by_name", E1, "name_n1_000001"),
    (Damage.MANIFEST, "by_age", E1, "age_030_000001"),
)
async def note_damaged(db: Database) -> None:
    await merge(db, E1, _ix='{"by_email":')


@CASES.case(
    (Damage.UNDECLARED, "by_shoe", "empid_000100", "shoe_030_000100"),
    (Damage.MISSING, "by_name", "empid_000100", "name_old_000100"),
    (Damage.MISSING, "by_age", "empid_000100", "age_030_000100"),
    same=False,
)
async def index_undeclared(db: Database) -> None:
    await db.insert(EmployeeOfOld(department="Sales", id=100, name="old"))


@CASES.case(
    (Damage.ORPHAN, "by_shoe", "empid_000100", "shoe_030_000100"),
    same=True,
)
async def index_undeclared_and_entity_deleted(db: Database) -> None:
    await db.insert(EmployeeOfOld(department="Sales", id=100, name="old"))
    await write(db, Verb.DELETE, "Sales", "empid_000100")


@CASES.case(
    (Damage.MISSING, "by_email", E1, "email_e1@x"),
    (Damage.ORPHAN, "by_email", "empid_000999", "email_e1@x"),
)
async def copy_of_nobody_in_its_place(db: Database) -> None:
    await merge(db, "email_e1@x", _of="empid_000999")


@CASES.case((Damage.UNDECLARED, "by_shoe", E1, "clerk_000001"))
async def note_of_an_undeclared_index_for_another_row(db: Database) -> None:
    row = await db.store.get(TABLE, "Sales", E1)
    await merge(db, E1, _ix=row["_ix"][:-1] + ',"by_shoe":"clerk_000001"}')


@CASES.case((Damage.ORPHAN, "by_email", "clerk_000001", "email_lost"))
async def copy_of_another_kind(db: Database) -> None:
    await write(db, Verb.INSERT, "Sales", "email_lost", EntityType="Employee#by_email", _of="clerk_000001")


@pytest.mark.one_of(3)
@on_stores("damage", CASES, lambda case: case.name)
async def test_damage_is_found_and_repaired(db: Database, damage: Case) -> None:
    """Each damage is reported, repaired if asked, then gone; no row of another kind is touched."""
    await fill(db)
    before = await snapshot(db)
    await damage.harm(db)
    harmed = await snapshot(db)

    requests = db.stats.requests
    report = await db.audit(Employee)

    assert report.requests == db.stats.requests - requests
    assert found_by(report) == damage.found
    assert all((finding.address or "") in finding.problem for finding in report.findings)
    assert (report.found, report.repaired, report.clean) == (len(damage.found), 0, False)
    assert {finding.partition_key for finding in report.findings} == {"Sales"}
    assert await snapshot(db) == harmed

    repaired = await db.audit(Employee, repair=True)

    assert found_by(repaired) == damage.found
    assert repaired.clean and all(finding.repaired for finding in repaired.findings)
    assert (await db.audit(Employee)).found == 0
    after = await snapshot(db)
    if damage.same:
        assert after == before
    kinds = {key: row.get("EntityType", "") for key, row in (before | after).items()}
    others = [key for key, kind in kinds.items() if not kind.startswith("Employee")]
    assert len(others) == 6
    assert all(after[key] == before[key] for key in others)
    for employee in await db.select(Employee).where(Employee.department == "Sales", Employee.active.in_([True])).all():
        found = await db.select(Employee.by_age).where(Employee.department == "Sales", Employee.id == employee.id).all()
        assert found == [employee]


async def test_a_copy_that_an_entity_of_another_kind_names(db: Database) -> None:
    """It says that it is of an employee, so the manifest of a clerk does not make it right."""
    await fill(db)
    await write(db, Verb.INSERT, "Sales", "email_lost", EntityType="Employee#by_email", _of="clerk_000001")
    await merge(db, "clerk_000001", _ix='{"by_email":"email_lost"}')
    report = await db.audit(Employee, Clerk, repair=True)

    assert (Damage.ORPHAN, "by_email", "clerk_000001", "email_lost") in found_by(report)
    assert report.clean and ("Sales", "email_lost") not in await snapshot(db)


async def test_a_list_that_is_not_declared() -> None:
    """Its keys go, and the note of it in each manifest, as a removal of the declaration promises."""
    async with connect("local::memory:") as db:
        await db.create_tables(DiscOfOld)
        for number in (1, 2):
            await db.insert(DiscOfOld(shelf="a", id=number, label="l"))

        assert (await db.audit(Disc)).counts == {"undeclared": 2}
        assert (await db.audit(Disc, repair=True)).clean
        assert (await db.audit(Disc)).found == 0
        rows = {row.row_key: row async for row in db.select_raw("AuditedDiscs").allow_scan()}
        assert (rows["disc_1"]["_ix"], rows["disc_2"]["_ix"], "Keys00" in rows["label_l~"]) == ("{}", "{}", False)


async def test_nothing_is_found_where_all_is_right(db: Database) -> None:
    """Entities and copies that the mapper wrote are as the audit wants them; all are counted."""
    await fill(db)

    with db.observe() as seen:
        report = await db.audit(Employee, Clerk)

    # No row is looked at by itself, and a table of one page is not divided for workers.
    assert {request.operation for request in seen.requests} == {"query"} and len(seen.requests) <= 4
    assert (report.entities, report.found, report.clean, report.cursor) == (12, 0, True, None)
    assert report.derived_rows == 2 * (3 + 5 + 4) + 2


async def test_value_that_two_entities_have_is_left(db: Database) -> None:
    """Which of two entities shall have a unique value nobody but the user can say."""
    await fill(db)
    await merge(db, E2, email="e1@x")
    harmed = await snapshot(db)

    report = await db.audit(Employee, repair=True)

    assert report.counts == {"taken": 1, "orphan": 1}
    taken = next(finding for finding in report.findings if finding.damage is Damage.TAKEN)
    assert (taken.row_key, taken.address, taken.repaired) == (E2, "email_e1@x", False)
    assert "that of 'empid_000001'" in taken.problem and "change one of the two" in str(taken)
    assert not report.clean
    assert (await snapshot(db))["Sales", "email_e1@x"] == harmed["Sales", "email_e1@x"]


async def test_row_of_another_kind_is_left(db: Database) -> None:
    """A row of another kind where a copy belongs is reported and stays, also if the entity notes it as its copy."""
    await fill(db)
    await write(db, Verb.INSERT_OR_REPLACE, "Sales", "email_e1@x", Text="mine", EntityType="Note")

    report = await db.audit(Employee, repair=True)

    assert report.counts == {"blocked": 1}
    assert (await snapshot(db))["Sales", "email_e1@x"]["Text"] == "mine"


@pytest.mark.parametrize("owner", [{}, {"_of": 5}], ids=["missing", "a number"])
async def test_index_entry_that_names_no_entity_is_left(db: Database, owner: dict[str, Any]) -> None:
    """
    A row of the kind of an index entry that does not say whose it is was not written by tableorm: it is reported
    wherever it lies, and stays. A row of a kind that is not declared may be derived from many, and is left alone.
    """
    await fill(db)
    await write(db, Verb.INSERT, "Sales", "list", EntityType="Employee#by_team", Members="a,b")
    await write(db, Verb.INSERT_OR_REPLACE, "Sales", "email_e1@x", EntityType="Employee#by_email", Members="a", **owner)
    await write(db, Verb.INSERT, "Sales", "name_stray", EntityType="Employee#by_name:1", **owner)
    harmed = await snapshot(db)

    report = await db.audit(Employee, repair=True)

    foreign = {(Damage.FOREIGN, "by_email", "", "email_e1@x"), (Damage.FOREIGN, "by_name", "", "name_stray")}
    assert found_by(report) == {(Damage.BLOCKED, "by_email", E1, "email_e1@x"), *foreign}
    assert "the index entry at 'name_stray' names no entity" in str(report.findings[1])
    assert "find out who wrote the row, then delete it" in str(report.findings[1])
    assert (report.repaired, await snapshot(db)) == (0, harmed)
    await write(db, Verb.DELETE, "Sales", "email_e1@x")
    await write(db, Verb.DELETE, "Sales", "name_stray")
    assert (await db.audit(Employee, repair=True)).clean


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"age": "old"}, "age"),
        ({"EntityType": "Employee:first"}, "version"),
    ],
)
async def test_unreadable_entity_is_a_finding(db: Database, members: dict[str, Any], says: str) -> None:
    """An entity that does not fit its model ends no audit; neither it nor its copies are touched."""
    await fill(db)
    await merge(db, E1, **members)
    harmed = await snapshot(db)

    report = await db.audit(Employee, repair=True)

    assert report.counts == {"unreadable": 1}
    assert says in report.findings[0].problem
    assert (report.findings[0].refused, report.undecided) == (None, 0)  # nothing was tried
    assert await snapshot(db) == harmed


async def test_index_that_is_being_built_may_lack_copies(db: Database) -> None:
    """Before an index is built entities have no copies in it; what they note of it is checked."""

    class Worker(Entity, table="Workers", kind="Worker", partition_key="p", row_key="w_{id:03d}"):
        id: Mapped[int]

    class Building(Entity, table="Workers", kind="Worker", partition_key="p", row_key="w_{id:03d}"):
        id: Mapped[int]
        by_id = Index(row_key="id_{id}", building=True)

    await db.create_tables(Worker)
    await db.insert(Worker(id=1))
    await db.insert(Building(id=2))
    with db.observe() as seen:
        assert (await db.audit(Building)).found == 0
    assert {request.operation for request in seen.requests} == {"query"}

    await db.delete(PropertyBag.key("Workers", "p", "id_2"), if_match="*")
    elsewhere = {"PartitionKey": "p", "RowKey": "w_001", "_ix": '{"by_id":{"at":["q","r","Others"]}}'}
    await merge_row(db, "Workers", elsewhere)

    assert [finding.row_key for finding in (await db.audit(Building)).findings] == ["w_001", "w_002"]


async def test_report_says_what_was_found(db: Database) -> None:
    """The report is printable, and plain values for JSON."""
    await fill(db)
    await write(db, Verb.DELETE, "Sales", "email_e1@x")

    report = await db.audit(Employee)

    assert str(report).startswith("10 entities and 23 derived rows checked: 1 finding (1 missing), 0 repaired")
    assert str(report.findings[0]) == (
        "Employee.by_email ('Sales', 'empid_000001'): missing: there is no index entry at 'email_e1@x'; "
        "repair writes it"
    )
    assert report.to_dict()["findings"] == [
        {
            "damage": "missing",
            "model": "Employee",
            "index": "by_email",
            "partition_key": "Sales",
            "row_key": "empid_000001",
            "address": "email_e1@x",
            "problem": "there is no index entry at 'email_e1@x'",
            "repaired": False,
            "refused": None,
        }
    ]


async def test_findings_are_in_the_order_of_entities(db: Database) -> None:
    """Those of one entity come by the name of the declaration, and those without one first, then by the other row."""
    await fill(db)
    await merge(db, E2, age="old")
    await merge(db, E1, _ix='{"by_email":')
    await merge(db, "email_e1@x", name="changed")
    await write(db, Verb.INSERT, "Sales", "email_lost", EntityType="Employee#by_email", _of=E1)

    report = await db.audit(Employee)

    assert [(each.row_key, each.index, each.address) for each in report.findings] == [
        (E1, None, None),
        (E1, "by_age", "age_030_000001"),
        (E1, "by_email", "email_e1@x"),
        (E1, "by_email", "email_lost"),
        (E1, "by_name", "name_n1_000001"),
        (E2, None, None),
    ]


async def test_the_store_is_asked_of_no_index_that_says_its_state(db: Database) -> None:
    """Whether an index is complete is asked only where the declaration leaves that to the store."""
    await db.create_tables(Printed)
    await db.insert(Printed(shelf="a", id=1))

    with db.observe() as seen:
        report = await db.audit(Printed)

    assert report.clean and report.derived_rows == 1
    assert {(request.operation, request.table) for request in seen.requests} == {("query", "AuditedPrints")}


async def test_what_cannot_be_audited_is_refused() -> None:
    """No model, a model without kind, a wrong number, an asynchronous callback, and a table that is not there."""

    class Plain(Entity, table="Plain", kind=None, partition_key="p", row_key="{id}"):
        id: Mapped[int]

    async def later(report: AuditReport) -> None: ...

    async with connect("local::memory:") as db:
        with pytest.raises(ModelError, match="at least one model"):
            await db.audit()
        with pytest.raises(ModelError, match="kind=None"):
            await db.audit(Plain)
        numbers: list[Any] = [0, -1, "2", 1.5, True]
        for parallel in numbers:
            refused = re.escape(f"audit(parallel={parallel!r}) is rejected: give a number from 1 up")
            with pytest.raises(ModelError, match=f"^{refused}$"):
                await db.audit(Employee, parallel=parallel)
        calls: list[Any] = [later, 5]
        for call in calls:
            with pytest.raises(
                ModelError, match=r"^audit\(on_progress=.*\) is rejected: give a plain function, which is"
            ):
                await db.audit(Employee, on_progress=call)
        with pytest.raises(TableNotFound):
            await db.audit(Employee)


async def test_kinds_told_by_keys_are_audited(db: Database) -> None:
    """Where RowKeys tell the kinds, entities of an abstract base are audited together, copies and all."""

    class Person(
        Entity, table="People", partition_key="{country}", row_key="{kind}_{id}", abstract=True, discriminator="row_key"
    ):
        country: Mapped[str]
        id: Mapped[str]
        name: Mapped[str] = field(default="x")

    class Customer(Person, kind="CUSTOMER"):
        by_name = Index(row_key="cname_{name}_{id}")

    class Staff(Person, kind="STAFF"):
        by_name = Index(row_key="sname_{name}_{id}")

    await db.create_tables(Person)
    await db.insert(Customer(country="SE", id="1"))
    await db.insert(Staff(country="SE", id="1"))
    await db.delete(PropertyBag.key("People", "SE", "sname_x_1"), if_match="*")

    report = await db.audit(Person, repair=True)

    assert [(f.model, f.index, f.repaired) for f in report.findings] == [("Staff", "by_name", True)]
    assert (report.entities, (await db.audit(Person)).found) == (2, 0)


async def test_an_older_entity_that_cannot_be_repaired_in_full_is_left(db: Database) -> None:
    """A repair upgrades an entity with all of its derived rows, or not at all."""

    class Thing(Entity, table="Things", partition_key="p", row_key="t_{id:03d}", abstract=True):
        id: Mapped[int]
        name: Mapped[str]
        code: Mapped[str]
        by_name = Index(row_key="name_{name}_{id:03d}")
        by_code = Index(row_key="code_{code}", unique=True)

    class First(Thing, kind="Thing"): ...

    class Second(Thing, kind="Thing", version=2): ...

    @upgrade(Second, from_version=1)
    def shout(bag: PropertyBag) -> PropertyBag:
        bag["name"] = str(bag["name"]).upper()
        return bag

    await db.create_tables(First)
    await db.insert(First(id=1, name="lamp", code="a"))
    await db.insert(First(id=2, name="desk", code="b"))
    harm = {"PartitionKey": "p", "RowKey": "t_001", "code": "b"}
    await merge_row(db, "Things", harm)

    report = await db.audit(Second, repair=True)

    assert report.counts == {"taken": 1, "missing": 2, "orphan": 3}
    assert {
        finding.row_key for finding in report.findings if finding.damage is Damage.MISSING and finding.repaired
    } == {"t_002"}
    assert [finding.refused for finding in report.findings] == [None] * 6  # nothing was tried in vain
    kinds = [row["EntityType"] for row in [await db.store.get("Things", "p", name) for name in ("t_001", "t_002")]]
    assert kinds == ["Thing", "Thing:2"]


async def test_an_orphan_in_the_place_of_an_entry_is_deleted_first(db: Database) -> None:
    """A row that belongs to nobody does not keep an entity from its unique value, in whatever order they are found."""

    class Lamp(Entity, table="Things", partition_key="p", row_key="t_{id:03d}"):
        id: Mapped[int]
        code: Mapped[str]
        by_code = Index(row_key="z_{code}", unique=True)

    await db.create_tables(Lamp)
    await db.insert(Lamp(id=1, code="a"))
    entry = await db.store.get("Things", "p", "z_a")
    await replace_row(db, "Things", entry | {"_of": "t_099"})

    found = await db.audit(Lamp)
    assert (found.counts, found.repaired) == ({"missing": 1, "orphan": 1}, 0)
    assert (await db.store.get("Things", "p", "z_a"))["_of"] == "t_099"

    assert (await db.audit(Lamp, repair=True, parallel=1)).clean
    assert (await db.get(Lamp.by_code, code="a")).id == 1


async def test_a_related_model_without_a_kind_is_left_out(db: Database) -> None:
    """Its rows cannot be told from others, so that entities that count in one of them are audited alone."""

    class Home(Entity, table="AuditedHomes", kind=None, partition_key="{town}", row_key="home"):
        town: Mapped[str]
        size: Mapped[int] = field(default=0, maintained=True)

    class Guest(Entity, table="AuditedHomes", partition_key="{town}", row_key="guest_{id}"):
        town: Mapped[str]
        id: Mapped[int]
        counted = Count(lambda: Home.size, town="{town}")

    await db.create_tables(Guest)
    await db.insert(Home(town="a"))
    await db.insert(Guest(town="a", id=1))

    report = await db.audit(Guest)

    assert (report.entities, report.found, report.undecided) == (1, 0, 0)


async def test_an_abstract_model_without_classes_is_refused(db: Database) -> None:
    """There is nothing to check, nor to build, which may be for want of an import."""

    class Person(Entity, table="People", partition_key="{country}", abstract=True):
        country: Mapped[str]
        name: Mapped[str]

        by_name = Index(row_key="name_{name}")

    for call in (db.audit(Person), db.build_index(Person.by_name)):
        with pytest.raises(ModelError, match="Person is abstract and has no concrete classes yet; import or declare"):
            await call


async def test_pages_that_are_refused_name_the_audit(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what was read, of the first look and of the one that verifies what the first has found."""
    await fill(db)
    await write(db, Verb.DELETE, "Sales", "name_n1_000001")
    faults = Faults(db)
    with faults.fail_next("query", with_=403), pytest.raises(AccessDenied, match=r"^audit: "):
        await db.audit(Employee, parallel=1)
    real = Segment.close

    def close(self: Segment) -> bool:
        faults.fail_next("query", with_=403)
        return real(self)

    monkeypatch.setattr(Segment, "close", close)
    with pytest.raises(AccessDenied, match=r"^audit: "):
        await db.audit(Employee, parallel=1)
