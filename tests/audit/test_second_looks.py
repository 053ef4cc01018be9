"""
Second looks at a row: what became of it since it was read, repairs that are refused for a while, and what is sent.
"""

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from tableorm import (
    AccessDenied,
    Damage,
    Database,
    Entity,
    Index,
    Mapped,
    PropertyBag,
    RetryPolicy,
    connect,
    upgrade,
)
from tableorm.audit import context as audit_context
from tableorm.audit import decisions
from tableorm.audit.check import Phase
from tableorm.audit.context import AuditContext, SnapshotTurns, kind_of
from tableorm.audit.decisions import is_under_way
from tableorm.audit.scan import family_filter
from tableorm.audit.table_audit import TableAudit
from tableorm.connection.connection import connection_of
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import to_odata
from tableorm.stores import Operation, RowAddress, Verb
from tableorm.testing import Faults
from tests.audit.foreign import TABLE, Employee, fill, merge, snapshot, write

E1 = "empid_000001"


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    """Without pauses between attempts."""
    async with connect("local::memory:", retry=RetryPolicy(base=0, attempts=2)) as db:
        await fill(db)
        yield db


def context_of(db: Database, *, repair: bool = True) -> AuditContext:
    return AuditContext(db=connection_of(db), kinds=KindSet.of([Employee]), repair=repair, turns=SnapshotTurns())


MEANWHILE: dict[str, dict[str, Any] | None] = {
    "it is gone": None,
    "another row is there": {"EntityType": "Note", "_of": "empid_000999"},
    "a row that nobody knows is there": {"EntityType": "Employee#by_team", "Members": "a,b"},
    "an entity has it": {"EntityType": "Employee#by_email", "_of": E1},
}


@pytest.mark.parametrize("what", MEANWHILE)
async def test_an_entry_of_nobody_that_has_changed(db: Database, what: str) -> None:
    """An index entry that belonged to no entity when its page was read is left alone if that is so no more."""
    await write(db, Verb.INSERT, "Sales", "email_lost", EntityType="Employee#by_email", _of="empid_000999")
    context = context_of(db)
    check = TableAudit(context).check_of(await db.store.get(TABLE, "Sales", "email_lost"))
    assert check is not None
    await write(db, Verb.DELETE, "Sales", "email_lost")
    members = MEANWHILE[what]
    if members is not None:
        await write(db, Verb.INSERT, "Sales", "email_lost", **members)
    if what == "an entity has it":
        await merge(db, E1, email="lost")
    before = await snapshot(db)

    await check.verify_row(RowAddress(TABLE, "Sales", "email_lost"), Phase.ENTITIES, lambda _: True)

    assert (context.counts.findings, context.counts.undecided) == ([], 0)
    assert await snapshot(db) == before


@pytest.mark.parametrize("kind", ["Note", "Clerk"])
async def test_another_row_in_the_place_of_an_entry_is_left(db: Database, kind: str) -> None:
    """A row of another kind keeps its place, also if it says that it is derived from an entity."""
    await write(db, Verb.INSERT_OR_REPLACE, "Sales", "email_e1@x", EntityType=kind, _of=E1)
    before = await snapshot(db)

    report = await db.audit(Employee, repair=True)

    assert await snapshot(db) == before
    blocked = f"a row of kind {kind!r} is at 'email_e1@x', where the index entry belongs"
    assert [each.problem for each in report.findings if each.damage is Damage.BLOCKED] == [blocked]
    assert report.undecided == 0


@pytest.mark.parametrize("repair", [False, True])
async def test_whether_a_row_is_as_it_was(db: Database, repair: bool) -> None:
    """What is found is reported if the row has the ETag that it was read with, or is still not there."""
    context = context_of(db, repair=repair)
    row = await context.read(RowAddress(TABLE, "Sales", E1))

    assert await context.settle(RowAddress(TABLE, "Sales", E1), row)
    assert not await context.settle(RowAddress(TABLE, "Sales", E1), None)
    assert await context.settle(RowAddress(TABLE, "Sales", "nothing"), None)
    assert not await context.settle(RowAddress(TABLE, "Sales", "nothing"), row)
    await merge(db, E1, age=31)
    assert not await context.settle(RowAddress(TABLE, "Sales", E1), row)
    assert context.counts.requests == 6


@pytest.mark.parametrize(
    ("fault", "times", "sent"),
    [(412, 1, False), (409, 1, False), (404, 1, False), ("ServerBusy", 2, False), (412, 0, True)],
)
async def test_a_repair_that_is_not_done(db: Database, fault: int | str, times: int, sent: bool) -> None:
    """If somebody else has written, or the store has no time, it says so; then everything is looked at again."""
    context = context_of(db)
    entry, keys = RowAddress(TABLE, "Sales", "email_e1@x"), {"PartitionKey": "Sales", "RowKey": "email_e1@x"}
    faults = Faults(db)
    if times:
        faults.fail_next("transaction", with_=fault, times=times)

    assert await context.settle(entry, None, [Operation(Verb.DELETE, keys, "*")]) is sent
    assert (await context.read(entry) is None) is sent
    assert context.counts.requests == 2


async def test_a_repair_counts_as_one_request(db: Database) -> None:
    """Whatever it sends, it counts as much as the last look at the row of an audit that only reports."""
    await merge(db, E1, _ix="nonsense")
    reporting, repairing = context_of(db, repair=False), context_of(db)
    await TableAudit(reporting).verify_entity(RowAddress(TABLE, "Sales", E1))
    await TableAudit(repairing).verify_entity(RowAddress(TABLE, "Sales", E1))

    assert (reporting.counts.repaired, repairing.counts.repaired) == (0, 4)
    assert repairing.counts.requests == reporting.counts.requests == 5


async def test_a_repair_that_is_forbidden(db: Database) -> None:
    """That is raised, with the name of the call."""
    context = context_of(db)
    keys = {"PartitionKey": "Sales", "RowKey": "email_e1@x"}
    Faults(db).fail_next("transaction", with_=403)
    with pytest.raises(AccessDenied, match=r"^audit\(repair=True\): "):
        await context.send([Operation(Verb.DELETE, keys, "*")])


async def test_pages_that_are_refused_name_the_audit(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of one partition, which are read to verify a row; there is no decision row among them."""
    monkeypatch.setattr(decisions, "_MOST_DECISIONS", 1)
    context = context_of(db)
    with Faults(db).fail_next("query", with_=403), pytest.raises(AccessDenied, match=r"^audit: "):
        await anext(context.rows("Sales"))
    with Faults(db).fail_next("query", with_=403), pytest.raises(AccessDenied, match=r"^audit: "):
        await is_under_way(context, RowAddress(TABLE, "Sales", E1))
    assert not await is_under_way(context, RowAddress(TABLE, "Sales", E1))
    assert not await is_under_way(context, RowAddress(TABLE, "no/place", E1))
    assert sum([len(rows) async for rows in context.rows("Sales")]) == 20


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
    assert [each.operation for each in seen.requests].count("get") < 10
    assert [each.operation for each in seen.requests].count("transaction") == 1


async def test_a_damaged_manifest_of_an_older_entity(db: Database) -> None:
    """A repair would upgrade the entity, with all of its derived rows, so that it is reported and left."""

    class First(Entity, table="OlderThings", kind="Thing", partition_key="p", row_key="t_{id:03d}"):
        id: Mapped[int]
        name: Mapped[str]
        by_name = Index(row_key="name_{name}_{id:03d}")

    class Second(Entity, table="OlderThings", kind="Thing", partition_key="p", row_key="t_{id:03d}", version=2):
        id: Mapped[int]
        name: Mapped[str]
        by_name = Index(row_key="name_{name}_{id:03d}")

    @upgrade(Second, from_version=1)
    def keep(bag: PropertyBag) -> PropertyBag:
        return bag

    await db.create_tables(First)
    await db.insert(First(id=1, name="lamp"))
    await db.store.write(
        "OlderThings", Operation(Verb.MERGE, {"PartitionKey": "p", "RowKey": "t_001", "_ix": "{"}, "*")
    )
    before = await db.store.get("OlderThings", "p", "t_001")

    report = await db.audit(Second, repair=True)

    assert [(each.index, each.repaired, each.refused) for each in report.findings] == [
        (None, False, None),
        ("by_name", False, None),
    ]
    assert await db.store.get("OlderThings", "p", "t_001") == before


@pytest.mark.parametrize("row_key", [E1, "clerk_000001", "nothing"])
async def test_an_entity_that_is_right_or_none(db: Database, row_key: str) -> None:
    """Nothing is found of an entity that is right again, or gone, or in whose place a row of another kind is."""
    context = context_of(db)

    await TableAudit(context).verify_entity(RowAddress(TABLE, "Sales", row_key))

    assert (context.counts.findings, context.counts.undecided) == ([], 0)


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
    await db.store.write("Versioned", Operation(Verb.MERGE, entry, "*"))
    assert [each.problem for each in (await db.audit(Third)).findings] == [
        "the index entry at 'name_lamp_001' is not as the entity is"
    ]


def test_the_rows_that_are_asked_for() -> None:
    """Entities and what is derived from them, with or without a version; of models of other tables what is derived."""
    own, guest = KindSet.of([Employee]), KindSet((), "Others", bags=False)

    def asked(*given: Any, **options: Any) -> str:
        condition = family_filter(*given, **options)
        return "" if condition is None else to_odata(condition)

    mine = "EntityType ge 'Employee' and EntityType lt 'Employee;'"
    derived = "EntityType ge 'Employee#' and EntityType lt 'Employee$'"
    markers = "EntityType ge '#_' and EntityType lt '#`'"
    assert asked(own) == mine
    assert asked(own, markers=True) == f"{mine} or {markers}"
    assert asked(guest, [Employee.__schema__]) == derived
    assert asked(own, [Employee.__schema__], markers=True) == f"{mine} or {derived} or {markers}"


@pytest.mark.parametrize(
    ("text", "kind"), [("Employee", "Employee"), ("Employee#by_email:2", "Employee#by_email"), (5, ""), (None, "")]
)
def test_the_kind_of_a_row(text: object, kind: str) -> None:
    """It is without the version; a row that says none, or something else than a text, has none."""
    assert kind_of({} if text is None else {"EntityType": text}) == kind
