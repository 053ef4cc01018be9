"""
Second looks at a row: repairs that are rejected for a while, what is sent, and entities of an older version.
"""

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from tableorm import Damage, Database, Entity, Index, Mapped, PropertyBag, RetryPolicy, connect, upgrade
from tableorm.audit import context as audit_context
from tableorm.stores import Verb
from tableorm.testing import Faults
from tests.audit.foreign import Employee, fill, snapshot, write
from tests.rows import merge_row


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    """Without pauses between attempts."""
    async with connect("local::memory:", retry=RetryPolicy(base=0, attempts=2)) as db:
        await fill(db)
        yield db


@pytest.mark.parametrize(("fault", "times"), [("UpdateConditionNotSatisfied", 9), ("EntityAlreadyExists", 3)])
async def test_a_repair_that_is_refused_for_a_while(db: Database, fault: str, times: int) -> None:
    """Other writers may be in the way often, and what they do may be repaired meanwhile: then nothing is left."""
    await write(db, Verb.DELETE, "Sales", "name_n1_000001")
    with Faults(db).fail_next("transaction", with_=fault, times=times):
        report = await db.audit(Employee, repair=True)

    (finding,) = report.findings
    assert (finding.damage, finding.repaired, finding.refused) == (Damage.MISSING, True, None)
    assert report.clean


async def test_a_repair_that_is_refused_again_and_again(db: Database) -> None:
    """It is tried four times, and once more without what else is wrong with the entity; then the report says why."""
    await write(db, Verb.DELETE, "Sales", "name_n1_000001")

    with Faults(db).fail_next("transaction", with_="EntityAlreadyExists", times=5), db.observe() as seen:
        report = await db.audit(Employee, repair=True)

    (finding,) = report.findings
    assert (finding.repaired, report.undecided) == (False, 0)
    assert finding.refused is not None and finding.refused.startswith("EntityExists: ")
    assert [each.operation for each in seen.requests].count("transaction") == 5


async def test_rows_that_are_worked_on_in_several_turns(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few have a turn, all of a page are added up, and all that are candidates are verified."""
    rows = await snapshot(db)
    entries = [key for key, row in rows.items() if row.get("EntityType", "").startswith("Employee#by_")]
    for key in entries:
        await write(db, Verb.DELETE, *key)
    monkeypatch.setattr(audit_context, "_MOST_IN_A_TURN", 2)

    report = await db.audit(Employee)

    assert (report.counts, report.undecided) == ({"missing": len(entries)}, 0)
    assert sorted((each.partition_key, each.address) for each in report.findings) == sorted(entries)


async def test_a_blocked_entry_costs_no_attempts(db: Database) -> None:
    """What can be repaired of an entity is repaired by one transaction, without what is known to be in the way."""
    await write(db, Verb.INSERT_OR_REPLACE, "Sales", "email_e1@x", Text="mine")
    await write(db, Verb.DELETE, "Sales", "age_030_000001")

    with db.observe() as seen:
        report = await db.audit(Employee, repair=True, parallel=1)

    assert [(each.index, each.repaired, each.refused) for each in report.findings] == [
        ("by_age", True, None),
        ("by_email", False, None),
    ]
    # Five as a rule; fifty attempts would each read the rows again.
    gets = [str(each) for each in seen.requests if each.operation == "get"]
    assert len(gets) < 20, gets
    assert [each.operation for each in seen.requests].count("transaction") == 1


async def test_a_damaged_manifest_of_an_older_entity(db: Database) -> None:
    """A repair would upgrade the entity, with all of its derived rows, so that it is reported and left."""

    class Thing(Entity, table="OlderThings", partition_key="p", row_key="t_{id:03d}", abstract=True):
        id: Mapped[int]
        name: Mapped[str]
        by_name = Index(row_key="name_{name}_{id:03d}")

    class First(Thing, kind="Thing"): ...

    class Second(Thing, kind="Thing", version=2): ...

    @upgrade(Second, from_version=1)
    def keep(bag: PropertyBag) -> PropertyBag:
        return bag

    await db.create_tables(First)
    await db.insert(First(id=1, name="lamp"))
    await merge_row(db, "OlderThings", {"PartitionKey": "p", "RowKey": "t_001", "_ix": "{"})
    before = await db.store.get("OlderThings", "p", "t_001")

    report = await db.audit(Second, repair=True)

    assert [(each.index, each.repaired, each.refused) for each in report.findings] == [
        (None, False, None),
        ("by_name", False, None),
    ]
    assert await db.store.get("OlderThings", "p", "t_001") == before


@pytest.mark.parametrize("discriminator", ["property", "row_key"])
async def test_entries_of_an_older_version_are_right(
    db: Database, discriminator: Literal["property", "row_key"]
) -> None:
    """They have the version of their entity until that is upgraded; only an entry of another version is wrong."""
    keys: Any = {"partition_key": "p", "row_key": "{kind}_{id:03d}", "discriminator": discriminator}

    class Second(Entity, table="Versioned", kind="Thing", version=2, **keys):
        id: Mapped[int]
        name: Mapped[str]
        by_name = Index(row_key="name_{name}_{id:03d}")

    class Third(Entity, table="Versioned", kind="Thing", version=3, **keys):
        id: Mapped[int]
        name: Mapped[str]
        by_name = Index(row_key="name_{name}_{id:03d}")

    @upgrade(Third, from_version=2)
    def keep(bag: PropertyBag) -> PropertyBag:
        return bag

    await db.create_tables(Second)
    await db.insert(Second(id=1, name="lamp"))
    for model in (Second, Third):
        with db.observe() as seen:
            report = await db.audit(model)
        assert (report.entities, report.derived_rows, report.found, report.undecided) == (1, 1, 0, 0)
        assert {each.operation for each in seen.requests} == {"query"}

    entry = {"PartitionKey": "p", "RowKey": "name_lamp_001", "EntityType": "Thing#by_name:1"}
    await merge_row(db, "Versioned", entry)
    assert [each.problem for each in (await db.audit(Third)).findings] == [
        "the index entry at 'name_lamp_001' differs from its entity"
    ]
