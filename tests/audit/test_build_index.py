"""
`db.build_index`: entities that were there before the index get their copies, whatever happens meanwhile.
"""

import re
from typing import Any

import pytest

from tableorm import Database, Entity, Index, Mapped, ModelError, NotSupported, PropertyBag, connect
from tableorm.jobs.process import RunOptions
from tableorm.stores import Verb
from tableorm.writes.bulk.pacing import Pace
from tests.audit.foreign import TABLE, Employee, EmployeeOfOld, everyone, fill, snapshot, write
from tests.audit.turns import MOST, count_snapshots
from tests.databases import memory_database
from tests.derived.patterns.firm import Department
from tests.rows import insert_row


class AnyWorker(Entity, table="Workers", partition_key="{team}", row_key="w_{id:05d}", abstract=True):
    team: Mapped[str]
    id: Mapped[int]
    badge: Mapped[str | None]


class Before(AnyWorker, kind="Worker"): ...


class Worker(AnyWorker):
    """With an index that is being built."""

    by_badge = Index(row_key="badge_{badge}", unique=True, building=True)


class Ready(AnyWorker, kind="Worker"):
    """When it is built."""

    by_badge = Index(row_key="badge_{badge}", unique=True, building=False)


async def workers(db: Database, teams: int = 3, count: int = 130) -> None:
    await db.create_tables(Before)
    async with db.bulk(errors="report") as bulk:
        for team in range(teams):
            for number in range(count):
                badge = f"b{number}" if number % 10 else None
                await bulk.insert(Before(team=f"{team}T", id=number, badge=badge))
    assert bulk.report.failures == 0


async def test_entities_get_their_copies(db: Database) -> None:
    """An index that is being built is not read; when it is built each entity is found by it."""
    await workers(db)
    with pytest.raises(NotSupported, match="build_index"):
        db.select(Worker.by_badge)

    report = await db.build_index(Worker.by_badge)

    assert report.complete
    assert (report.entities, report.written) == (390, 351)
    assert report.seconds > 0
    found = await db.select(Ready.by_badge).where(Ready.team == "1T").all()
    assert sorted(worker.id for worker in found) == [number for number in range(130) if number % 10]
    assert (await db.get(Ready.by_badge, team="2T", badge="b7")).id == 7
    assert (await db.audit(Ready)).found == 0


async def test_what_is_built_is_as_written(db: Database) -> None:
    """The rows are the same as those of a program that had the index from the beginning."""
    await fill(db)
    wanted = await snapshot(db)
    for key, row in wanted.items():
        if row.get("EntityType") == "Employee" or row.get("EntityType", "").startswith("Employee#"):
            await write(db, Verb.DELETE, *key)
    for employee in [*everyone("Sales"), *everyone("HR")]:
        members = wanted[employee.department, employee.key.row_key]
        await insert_row(db, TABLE, {**members, "_ix": None})

    reports = [await db.build_index(index) for index in (Employee.by_email, Employee.by_name, Employee.by_age)]

    assert [report.written for report in reports] == [6, 10, 8]
    assert await snapshot(db) == wanted


async def test_row_in_the_way_is_a_finding(db: Database) -> None:
    """A row of another kind is where a copy belongs: it stays."""
    await workers(db, teams=1, count=20)
    await db.insert(PropertyBag("Workers", "0T", "badge_b3", {"Text": "mine"}))

    report = await db.build_index(Worker.by_badge)

    assert not report.complete and len(report.failures) == 1
    assert "'w_00003'): blocked: a row of kind" in report.failures[0]
    assert (await db.get(PropertyBag.key("Workers", "0T", "badge_b3")))["Text"] == "mine"


async def test_copies_that_were_left_are_taken_over(db: Database) -> None:
    """Copies of an earlier time, wrong ones too, become right; those of nobody go."""
    await workers(db, teams=1, count=20)
    for number, of in [(1, "w_00001"), (2, "w_00099"), (77, "w_00005")]:
        bag = PropertyBag("Workers", "0T", f"badge_b{number}", {"EntityType": "Worker#by_badge", "_of": of})
        await db.insert(bag)

    report = await db.build_index(Worker.by_badge)

    assert report.complete
    found = await db.select(Ready.by_badge).where(Ready.team == "0T").all()
    assert sorted(str(worker.badge) for worker in found) == sorted(f"b{n}" for n in range(20) if n % 10)


async def test_other_copies_are_left_alone(db: Database) -> None:
    """Building one index does not touch what is wrong with another, nor copies of indexes that are not declared."""
    await fill(db)
    await write(db, Verb.DELETE, "Sales", "name_n1_000001")
    await db.insert(EmployeeOfOld(department="Sales", id=100, name="old", email="old@x"))

    report = await db.build_index(Employee.by_email)

    assert report.complete and report.written == 1
    assert (await db.audit(Employee)).counts == {"missing": 3, "undeclared": 1}
    assert (await db.get(Employee.by_email, department="Sales", email="old@x")).id == 100


async def test_what_is_no_index_is_refused() -> None:
    """Only an index can be built, or what is like one; which of them the model has is said."""
    give = "give an index of a class, as in Employee.by_email, or a list, a count, or a sum"
    refused: list[tuple[Any, str]] = [
        (5, f"build_index(5) is rejected: {give}"),
        (int, f"build_index(int) is rejected: {give}"),
        (Employee.name, f"build_index(<field Employee.name>) is rejected: {give}"),
        (Employee, f"build_index(Employee) is rejected: {give}; Employee has by_email, by_name, by_age"),
        (Before, f"build_index(Before) is rejected: {give}; Before has none"),
        (Department.manager, f"build_index(Department.manager) is rejected: {give}; Department has none"),
    ]
    number: Any = 1
    async with connect("local::memory:") as db:
        for index, message in refused:
            with pytest.raises(ModelError, match=f"^{re.escape(message)}"):
                await db.build_index(index)
        with pytest.raises(ModelError, match=r"^build_index\(parallel=0\) is rejected: give a number from 1 up$"):
            await db.build_index(Worker.by_badge, parallel=0)
        with pytest.raises(ModelError, match=r"^build_index\(no_older_writers=1\) is rejected: give True or False$"):
            await db.build_index(Worker.by_badge, no_older_writers=number)


class Counted(Pace):
    """A pace that takes no time, and tells for how many rows it was asked."""

    def __init__(self) -> None:
        super().__init__(2.0)
        self.rows: list[int] = []

    async def wait(self, count: int) -> bool:
        self.rows.append(count)
        return True


async def test_a_build_and_its_audit_keep_a_pace(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page that is read counts, and has the rows of a second at most."""
    await workers(db, teams=1, count=3)
    pace = Counted()
    monkeypatch.setattr(RunOptions, "pace", pace)

    await db.build_index(Worker.by_badge, rate=2)

    assert pace.rows == [2, 1, 2, 2, 1]  # three entities; then these and two entries, since one has no badge


async def test_report_is_printable(db: Database) -> None:
    """The report says how much was built, and whether it can be read."""
    await workers(db, teams=1, count=20)

    begun: list[tuple[str, bool]] = []
    await db.build_index(Worker.by_badge, on_progress=lambda report: begun.append((str(report), report.complete)))
    report = await db.build_index(Ready.by_badge)

    assert "build Worker.by_badge" in begun[0][0] and "0 of 2 ranges done" in begun[0][0] and not begun[0][1]
    assert ": 20 entities read, 0 written; done in " in str(report)
    assert (report.to_dict()["complete"], report.to_dict()["readable"]) == (True, report.readable)
    assert report.rate > 0


async def test_what_is_built_together_has_one_write_token() -> None:
    """The entities of a transaction share it, so that one row tells after a lost reply what became of all of them."""
    async with memory_database(Before) as db:
        for number in range(3):
            await db.insert(Before(team="a", id=number, badge=f"b{number}"))
        assert (await db.build_index(Worker.by_badge)).written == 3
        rows = await db.select_raw("Workers").where("PartitionKey eq {}", "a").all()
        tokens = {bag["_w"].split()[0] for bag in rows if bag.row_key.startswith("w_")}
    assert len(tokens) == 1


async def test_a_build_lets_others_work_between_rows(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the event loop looks at more than a few entities, neither to build nor to audit what was built."""
    await workers(db, teams=2, count=40)
    async with count_snapshots(monkeypatch) as counts:
        await db.build_index(Worker.by_badge)

    assert counts.total >= 2 * 2 * 40
    assert counts.most <= MOST


async def test_a_build_counts_entities_alone(db: Database) -> None:
    """Where the keys tell the kinds all rows are read; those of entries are not built, nor counted."""

    class Tool(
        Entity, table="Tools", kind="tool", partition_key="{shop}", row_key="{kind}_{id}", discriminator="row_key"
    ):
        shop: Mapped[str]
        id: Mapped[int]
        name: Mapped[str]
        by_name = Index(row_key="named_{name}", unique=True, building=True)

    await db.create_tables(Tool)
    for number in range(3):
        await db.insert(Tool(shop="s", id=number, name=f"t{number}"))

    report = await db.build_index(Tool.by_name)

    assert (report.entities, report.written, report.complete) == (3, 0, True)
