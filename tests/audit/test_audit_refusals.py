"""
Repairs that are not possible: findings with the reason, which stop neither an audit nor the building of an index.
What the store refuses of any row ends both.
"""

import pytest

from tableorm import AccessDenied, Damage, Database, Entity, Finding, Index, Mapped, PropertyBag, Unavailable
from tableorm.stores import Verb
from tableorm.testing import Faults
from tests.audit.foreign import Employee, fill, snapshot, write
from tests.derived.patterns.firm import Department
from tests.derived.patterns.firm import Employee as Colleague
from tests.rows import merge_row

FULL = 252 - 5
"""Unknown properties of a file that leave room for its own, the kind, `_w` and `_ix`; a copy has its `id` besides."""


class AnyFile(Entity, table="Files", partition_key="{shelf}", row_key="file_{id:03d}", abstract=True):
    shelf: Mapped[str]
    id: Mapped[int]
    title: Mapped[str | None]
    code: Mapped[str | None]


class Before(AnyFile, kind="File"): ...


class File(AnyFile):
    by_title = Index(row_key="title_{title}_{id:03d}", building=True)
    by_code = Index(row_key="code_{code}", unique=True)


async def files(db: Database) -> None:
    """The second has so many properties that its copy by code would have too many; it has a title of another index."""
    await db.create_tables(File)
    for number in range(1, 4):
        file = Before(shelf="a", id=number, code=f"c{number}", title=f"t{number}")
        for extra in range(FULL if number == 2 else 1):
            file.extra[f"P{extra}"] = extra
        await db.insert(file)


async def test_a_copy_that_cannot_be_written_stops_no_building(db: Database) -> None:
    """The others get theirs, and the audit says which one has none, and why."""
    await files(db)

    built = await db.build_index(File.by_code)

    assert (built.entities, built.written, built.complete) == (3, 2, False)
    (failure,) = built.failures
    assert "'file_002'): missing: " in failure and "253 properties, 252 are allowed" in failure
    (finding,) = (await db.audit(File, repair=True)).findings
    assert finding.refused is not None and str(finding).endswith("correct the row, or the model, then repair")
    assert finding.to_dict()["refused"] == finding.refused


def test_a_finding_of_keys_that_are_no_unicode() -> None:
    """Rows of the service may have half of a surrogate pair in a key: the report has it as it is."""
    finding = Finding(
        damage=Damage.ORPHAN, model="M", index=None, partition_key="a\ud800b", row_key="r", problem="x", address=None
    )
    assert (finding.to_dict()["partition_key"], finding.to_dict()["damage"]) == ("a\ud800b", "orphan")


async def test_what_can_be_repaired_of_an_entity_is(db: Database) -> None:
    """Of two copies that are missing the one is written that can be; without repair nothing is said to be rejected."""

    class Both(AnyFile, kind="File"):
        by_code = Index(row_key="code_{code}", unique=True)
        by_title = Index(row_key="title_{title}", unique=True, include=["code"], building=False)

    await files(db)
    looked = await db.audit(Both)
    assert looked.counts == {"missing": 6} and all(each.refused is None for each in looked.findings)

    report = await db.audit(Both, repair=True)

    assert {(each.row_key, each.index) for each in report.findings if not each.repaired} == {("file_002", "by_code")}
    assert (report.found, report.repaired, report.undecided) == (6, 5, 0)
    assert (await db.get(Both.by_title, shelf="a", title="t2")).code == "c2"
    assert (await db.audit(Both)).counts == {"missing": 1}


async def test_a_note_of_an_unreadable_entity_stays(db: Database) -> None:
    """Nothing can be written to what does not fit its model; all that is wrong with it is said nevertheless."""
    await db.create_tables(Colleague)
    await db.insert(Department(name="Sales"))
    await db.insert(Colleague(department="Sales", id=1))
    await db.modify(Department, lambda each: each.evolve(manager_id=1), name="Sales")
    keys = {"PartitionKey": "Sales", "RowKey": "empid_000001"}
    await merge_row(db, "Firm", {**keys, "salary": "much"})
    await db.delete(PropertyBag.key("Firm", "Sales", "department"), if_match="*")

    report = await db.audit(Department, Colleague, repair=True)

    assert (report.counts["manifest"], report.counts["unreadable"], report.undecided) == (1, 1, 0)
    (note,) = [each for each in report.findings if each.damage is Damage.MANIFEST]
    assert note.refused is not None and "holds 'much'" in note.refused


async def test_a_copy_of_what_is_no_key_is_of_nobody(db: Database) -> None:
    """A damaged row may name anything as its entity: that is not looked for, and the audit goes on."""
    await fill(db)
    before = await snapshot(db)
    await write(db, Verb.INSERT, "Sales", "email_lost", EntityType="Employee#by_email", _of="what/is#this")

    report = await db.audit(Employee, repair=True)

    assert report.counts == {"orphan": 1} and report.clean
    assert await snapshot(db) == before


@pytest.mark.parametrize(("status", "error"), [(403, AccessDenied), (500, Unavailable)])
async def test_a_store_that_refuses_repairs_ends_the_audit(db: Database, status: int, error: type[Exception]) -> None:
    """That concerns all rows, so that it is no finding of one of them; a repaired row is not reported either."""
    await fill(db)
    await write(db, Verb.DELETE, "Sales", "name_n1_000001")

    with (
        Faults(db).fail_next("transaction", with_=status),
        pytest.raises(error, match="rebuild of Employee"),
    ):
        await db.audit(Employee, repair=True)

    assert (await db.audit(Employee)).counts == {"missing": 1}


async def test_a_store_that_refuses_what_is_built_ends_the_build(db: Database) -> None:
    """It is not left to the audit to say of each entity."""
    await files(db)
    with Faults(db).fail_next("transaction", with_=403, table="Files"), pytest.raises(AccessDenied):
        await db.build_index(File.by_code)
