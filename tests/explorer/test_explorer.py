"""
The explorer in the terminal, as textual's pilot uses it.
"""

import asyncio
import datetime as dt
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static, Tree

from tableorm import Database, Entity, Mapped, connect
from tableorm.cli.conditions import parse_where
from tableorm.explorer.app import Explorer
from tableorm.explorer.views import PAGE, View
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import StoreRequest
from tests.explorer.models import SALES, SITES, Employee, Visit, fill
from tests.faults import before_requests

EMPLOYEE = Employee.key(department="Sales", id=0)


MODELS: list[type[Entity]] = [Employee, Visit]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local:{tmp_path_factory.mktemp('explorer') / 'hr.tables'}"


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    """What is looked at, of which the explorer changes nothing."""
    async with connect(url) as database:
        if not await database.tables():
            await fill(database)
    async with connect(url) as database:
        yield database
        assert database.stats.operations == 0


@attrs.frozen
class Person:
    """Somebody at the keyboard."""

    app: Explorer
    pilot: Pilot[None]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await self.pilot.pause()
        while any(not each.is_finished for each in self.app.workers):
            await self.pilot.pause()
        await self.pilot.pause()

    @property
    def tree(self) -> "Tree[Any]":
        return cast("Tree[Any]", self.app.query_one("#tables"))

    @property
    def table(self) -> "DataTable[Text]":
        return cast("DataTable[Text]", self.app.query_one("#rows"))

    async def choose(self, table: str, label: str) -> None:
        tree = self.tree
        nodes = [node for node in tree.root.children if str(node.label) == table]
        for node in nodes:
            node.expand()
            await self.pilot.pause()
            nodes = [leaf for leaf in node.children if str(leaf.label) == label] or nodes
        tree.focus()
        tree.move_cursor(nodes[0])
        await self.press("enter")

    async def type(self, text: str) -> None:
        line = self.app.query_one("#filter", Input)
        line.focus()
        line.value = text
        await self.pilot.pause()

    @property
    def rows(self) -> list[list[str]]:
        return [[cell.plain for cell in self.table.get_row_at(row)] for row in range(self.table.row_count)]

    def text(self, name: str) -> str:
        return str(self.app.query_one(name, Static).content)


@pytest.fixture
async def person(db: Database) -> AsyncIterator[Person]:
    app = Explorer(db, MODELS, parse_where)
    app.animation_level = "none"
    async with app.run_test(size=(110, 24)) as pilot:
        found = Person(app, pilot)
        await found.settle()
        yield found


async def test_entities_are_decoded_and_keys_split(person: Person) -> None:
    """
    The rows are entities in key order; below them is all of the one under the cursor, with the fields of its key. A
    cell is copied as it is, a row as Python.
    """
    await person.choose("Directory", "Employee")

    assert person.rows[0][:6] == ["Sales", "empid_000000", "Sales", "0", "20", "2026-01-01"]
    await person.press("right", "c")
    assert person.app.clipboard == "empid_000000"
    await person.press("r")
    assert person.app.clipboard == repr(Employee(department="Sales", id=0, age=20, hired=dt.date(2026, 1, 1)))
    await person.press("down")
    details = person.text("#details Static")
    assert "empid_000001  id=000001" in details and "2026-01-02" in details
    assert [(span.start, span.style) for span in person.table.get_row_at(0)[1].spans] == [(len("empid_"), "bold cyan")]
    await person.choose("Visits", "Visit")
    assert "Oslo_2026-01-01  site=Oslo  day=2026-01-01" in person.text("#details Static")


async def test_pages_go_on_by_cursor(db: Database, person: Person) -> None:
    """Each page is one request, and all pages together are the table; the way back reads the same pages."""
    await person.choose("Directory", "Employee")
    pages = [person.rows]
    while "more follow" in person.text("#status"):
        before = db.stats.requests
        await person.press("n")
        assert db.stats.requests <= before + 2
        pages.append(person.rows)

    found = [tuple(row[2:4]) for page in pages for row in page]
    assert found == [(each.department, str(each.id)) for each in await db.select(Employee).allow_scan().all()]
    assert [len(page) for page in pages[:-1]] == [PAGE] * (len(pages) - 1) and len(found) == SALES + SITES
    await person.press("n", "p")
    assert person.rows == pages[-2]


async def test_plan_is_shown_before_anything_is_sent(db: Database, person: Person) -> None:
    """
    Whoever types a filter sees its requests and its cost; it runs by Enter, and a scan by another Enter. Before rows
    are chosen there is nothing to filter; then the line has an example in the language that they take.
    """
    line = person.app.query_one("#filter", Input)
    await person.press("slash", "a", "g", "e")
    assert (line.placeholder, line.value) == ("Choose a table or a kind before you filter", "")
    assert "choose a table or a kind on the left" in person.text("#status")
    await person.choose("Directory", "rows")
    assert line.placeholder == "Filter, e.g. age gt 30"
    await person.choose("Directory", "Employee")
    assert line.placeholder == "Filter, e.g. age > 30"
    before = db.stats.requests
    await person.type("department == 'Sales' and id == 7")
    assert "access: point" in person.text("#plan") and "cost: 1 storage transaction" in person.text("#plan")
    assert db.stats.requests == before
    await person.press("enter")
    assert db.stats.requests == before + 1 and [row[3] for row in person.rows] == ["7"]

    await person.type("age >= 59")
    assert "access: table scan" in person.text("#plan") and person.app.query_one("#plan").has_class("scan")
    await person.press("enter")
    assert db.stats.requests == before + 1 and "press Enter again" in person.text("#status")
    await person.press("enter")
    assert {row[4] for row in person.rows} == {"59"}

    for text, problem in (("agee == 1", "did you mean 'age'?"), ("age == 'x'", "Employee.age"), ("age ==", "rejected")):
        await person.type(text)
        assert problem in person.text("#plan") and person.app.query_one("#plan").has_class("refused")


FILTERS = [
    "(department == 'Sales' and id == 3) or (department == 'Site05' and not age != 30)",
    "department == 'Sales' and hired <= '2026-01-09'",
]


async def test_copied_query_is_python(db: Database, person: Person) -> None:
    """The copied query, run by Python, gives the rows that are shown; without a model too."""
    names: dict[str, Any] = {"db": db, "Employee": Employee, "datetime": dt}
    for label, texts in (("Employee", FILTERS), ("rows", ["PartitionKey eq 'Sales' and age eq 59"])):
        await person.choose("Directory", label)
        for text in texts:
            await person.type(text)
            await person.press("enter", "y")

            exec(f"async def run():\n    return {person.app.clipboard}", names)
            page = await names["run"]()
            assert person.rows
            assert [tuple(row[:2]) for row in person.rows] == [_keys(item) for item in page.items]


def _keys(item: Any) -> tuple[str, str]:
    key = item.key if isinstance(item, Entity) else item
    return key.partition_key, key.row_key


async def test_nothing_is_written_unless_it_may_be(person: Person) -> None:
    """Without the flag the keys that write do nothing; the fixture sees that nothing is written."""
    await person.choose("Directory", "Employee")
    await person.press("d", "d", "e")
    assert not person.app.query_one("#value").display


@pytest.fixture
async def writer() -> AsyncIterator[tuple[Database, Person]]:
    async with connect("local::memory:") as db:
        await fill(db)
        async with Explorer(db, MODELS, parse_where, write=True).run_test(size=(110, 24)) as pilot:
            found = Person(cast("Explorer", pilot.app), pilot)
            await found.settle()
            yield db, found


async def change(person: Person, column: int, text: str) -> str:
    """Type another value of the first row, and return what is said."""
    person.table.move_cursor(row=0, column=column)
    await person.press("e")
    person.app.query_one("#value", Input).value = text
    await person.press("enter")
    return person.text("#status")


async def test_a_row_is_deleted_when_the_key_is_pressed_twice(writer: tuple[Database, Person]) -> None:
    """With its index entries, and only as it was read."""
    db, person = writer
    await person.choose("Directory", "Employee")
    await person.press("d")
    assert "press d again to delete Employee" in person.text("#status")
    await db.modify(EMPLOYEE, lambda each: setattr(each, "age", 33))
    await person.press("d")
    assert "PreconditionFailed" in person.text("#status") and await db.exists(EMPLOYEE)
    await person.choose("Directory", "Employee")
    await person.press("d", "d")
    assert not await db.exists(EMPLOYEE)
    assert (await db.audit(Employee)).clean


async def test_a_write_ends_whatever_is_pressed_meanwhile(writer: tuple[Database, Person]) -> None:
    """Its outcome is said, also if the page cannot be read afterwards; keys that would begin other work do nothing."""
    db, person = writer
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def wait_first(request: StoreRequest) -> None:
        if request.method == "transact":
            arrived.set()
            await ended.wait()
        elif ended.is_set() and request.method == "query":
            raise Fault(Code.SERVER_BUSY, "not now")

    await person.choose("Directory", "Employee")
    before_requests(db, wait_first)
    await person.pilot.press("d", "d")
    await arrived.wait()
    before = db.stats.requests
    person.tree.focus()
    await person.pilot.press("down", "enter", "n", "p", "d", "e", "q", "ctrl+c", "slash", "enter", "escape")
    assert db.stats.requests == before and not person.app.query_one("#value").display
    ended.set()
    await person.settle()

    assert "deleted; the rows couldn't be reread" in person.text("#status")
    assert not await db.exists(EMPLOYEE)
    assert person.app.is_running


async def test_ctrl_c_quits(person: Person) -> None:
    """It ends the explorer at once, as it ends every command."""
    await person.pilot.press("ctrl+c")

    assert person.app.return_code == 0


async def test_a_value_is_changed(writer: tuple[Database, Person]) -> None:
    """As the model has it, with what is derived from it; of a row without a model as its stored type is."""
    db, person = writer
    await person.choose("Directory", "Employee")
    assert "age is saved" in await change(person, 4, "61")
    assert "hired is saved" in await change(person, 5, "'2025-02-03'")
    found = await db.get(EMPLOYEE)
    assert (found.age, found.hired) == (61, dt.date(2025, 2, 3))
    assert "is unchanged" in await change(person, 4, "'old'")
    assert "is unchanged" in await change(person, 4, "5 or id == 3")
    assert "is unchanged" in await change(person, 0, "'Other'")
    assert (await db.audit(Employee)).clean

    await person.choose("Rough", "rows")
    names = [str(column.label) for column in person.table.ordered_columns]
    assert "count is saved" in await change(person, names.index("count"), "7")
    assert [row["count"] for row in await db.select_raw("Rough").allow_scan().all()] == [7]


async def test_partitions_are_a_sample(db: Database, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The picture has the kinds and the largest partitions, and shows of which it counted the first page only; the kinds
    that have no model become views of their own.
    """
    monkeypatch.setattr("tableorm.advice.statistics.MAX_PAGE", 100)
    await person.choose("Directory", "partitions")

    picture = person.text("#picture Static")
    assert picture.startswith("Directory: sampled ") and "Employee#by_age" in picture
    assert re.search(r"\n    Sales +100\+ +\d+%  █+\n    Site\d\d +2  +\d+%", picture)
    assert "Directory: kinds are listed on the left" in person.text("#status")
    before = db.stats.requests
    await person.choose("Directory", "Employee#by_age")
    assert db.stats.requests == before + 1
    assert {row[1][:4] for row in person.rows} == {"age_"} and len(person.rows) == PAGE
    # Indexes, re-keys and what is left to do are rows like others.
    await person.choose("indexes", "")
    assert [row[2:4] for row in person.rows] == [["Employee", "by_age"]]
    await person.choose("re-keys", "")
    await person.press("pagedown", "c", "r")  # nothing is there to be copied
    assert person.rows == [] and "0 rows" in person.text("#status")
    await person.choose("Directory", "outbox")
    assert person.rows == [] and "the last page" in person.text("#status")


@pytest.mark.torture
async def test_100_000_entities(tmp_path: Path) -> None:
    """A page, a filter and the picture take a few requests and a moment, however large the table is."""
    async with connect(f"local:{tmp_path / 'large.tables'}") as db:
        await db.create_tables(Employee)
        async with db.bulk() as bulk:
            for number in range(100_000):
                employee = Employee(
                    department=f"D{number % 50:02d}", id=number, age=20 + number % 40, hired=dt.date(2026, 1, 1)
                )
                await bulk.insert(employee)
        async with Explorer(db, MODELS, parse_where).run_test(size=(110, 24)) as pilot:
            person = Person(cast("Explorer", pilot.app), pilot)
            await person.settle()
            for label, text, most in (
                ("Employee", "", 2),
                ("Employee", "department == 'D07' and age > 30", 11),
                ("rows", "", 2),
            ):
                before, begun = db.stats.requests, time.monotonic()
                await person.choose("Directory", label)
                await person.type(text)
                await person.press("enter")
                assert len(person.rows) == PAGE and db.stats.requests - before <= 2 * most
                assert time.monotonic() - begun < 10
            before, begun = db.stats.requests, time.monotonic()
            await person.choose("Directory", "partitions")
            assert "Employee" in person.text("#picture Static") and db.stats.requests - before <= 100
            assert time.monotonic() - begun < 10


async def test_rows_cannot_command_the_terminal(person: Person) -> None:
    """Control characters and markup in keys, names and values are shown as they are."""
    await person.choose("Rough", "rows")

    assert person.rows[0][:2] == ["[red]place", "[bold]key"] and "\\u001b]52;c;AAAA\\u0007[/red]" in person.rows[0]
    assert "[red]place" in person.text("#details Static") and "[bold]key" in person.app.export_screenshot()
    await person.press("r")
    assert "\x1b" not in person.text("#status")


class Guest(Entity, table="Rough", partition_key="{place}", row_key="{name}", kind=None):
    place: Mapped[str]
    name: Mapped[str]
    count: Mapped[str]


async def test_errors_are_said(db: Database) -> None:
    """A row that does not fit its model is left out, and the status says so; so does it where a table is gone."""
    app = Explorer(db, [Guest], parse_where)
    async with app.run_test(size=(110, 24)) as pilot:
        person = Person(app, pilot)
        await person.settle()
        await person.choose("Rough", "Guest")
        assert person.rows == [] and "1 that don't fit are left out" in person.text("#status")

        person.tree.root.add_leaf("gone", View("gone", "Gone"))
        await pilot.pause()
        await person.choose("gone", "")
        assert "TableNotFound" in person.text("#status")
