"""
`tableorm migrate`: a program changes its models, and its database follows; in processes of its own where that matters.
"""

import io
import json
import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from asyncio import run
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tableorm import Entity, Mapped, connect, field
from tableorm.cli.output import emit, show_progress
from tableorm.cli.progress import ProgressReporter, each_second
from tableorm_migrations import StepReport
from tableorm_migrations.revisions.apply import Outcome
from tests.azurite import Azurite
from tests.commandline import run_command
from tests.screen import Screen

FIELDS = """
import os
import signal

from tableorm import Entity, Index, Mapped, PropertyBag, field, upgrade


class Item(Entity, table="CommandItems", kind="Item"{version}, partition_key="{{group}}", row_key="item_{{id:04d}}"):
    group: Mapped[str]
    id: Mapped[int]
"""

FIRST = FIELDS.format(version="") + '    note: Mapped[str] = field(default="")\n'
SECOND = (
    FIELDS.format(version=", version=2")
    + """    title: Mapped[str]
    by_title = Index(row_key="title_{title}_{id:04d}")


seen = 0


@upgrade(Item, from_version=1)
def name_title(bag: PropertyBag) -> PropertyBag:
    global seen
    seen += 1
    if seen == int(os.environ.get("DIE_AT", "0")):
        os.kill(os.getpid(), signal.SIGKILL)
    if bag["note"] == "bad":
        raise ValueError("a note is bad")
    bag["title"] = bag.pop("note")
    return bag
"""
)

URL = "local:./items.tables"


class Item(Entity, table="CommandItems", partition_key="{group}", row_key="item_{id:04d}"):
    """The model of the first program."""

    group: Mapped[str]
    id: Mapped[int]
    note: Mapped[str] = field(default="")


@attrs.frozen
class Project:
    """A folder with the models of a program, its revisions and its database."""

    folder: Path

    def declare(self, text: str) -> None:
        (self.folder / "items.py").write_text(text, encoding="utf-8")

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Run a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "tableorm.cli", "migrate", *arguments],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command in this process, with the models as they are declared now: status, output, and errors."""
        sys.modules.pop("items", None)
        done = run_command("migrate", *arguments)
        return done.returncode, done.stdout, done.stderr

    async def fill(self, count: int, **notes: str) -> None:
        """Insert rows as the first program would, and make its tables."""
        async with connect(f"local:{self.folder}/items.tables") as db:
            await db.create_tables(Item)
            async with db.bulk() as bulk:
                for number in range(count):
                    note = notes.get(f"note{number}", f"note {number}")
                    await bulk.insert(Item(group=f"g{number % 7}", id=number, note=note))

    async def rows(self) -> list[Any]:
        async with connect(f"local:{self.folder}/items.tables") as db:
            return await db.select_raw("CommandItems").allow_scan().all()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Its first revision is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    project = Project(tmp_path)
    project.declare(FIRST)
    assert project.run("revision", "items", "--message", "items") == (
        0,
        "revisions/0001_items.py was written; steps: none\n",
        "",
    )
    yield project
    sys.modules.pop("items", None)


def test_a_change_from_its_check_to_its_end(project: Project) -> None:
    """The check fails until the revision is written; the upgrade waits until older programs have ended."""
    run(project.fill(10))
    assert project.run("upgrade", URL, "items") == (0, "applied: 0001_items\n", "")
    project.declare(SECOND)
    status, said, _ = project.run("check", "items")
    assert status == 1
    assert "Item: version 1 becomes 2 (version-raised): needs rewrite" in said
    status, _, error = project.run("upgrade", URL, "items")
    assert status == 1
    assert error.startswith("tableorm: the models are not what revision 0001_items leads to: Item: version 1 becomes 2")

    status, said, _ = project.run("revision", "items", "--message", "Titles, and an index")
    assert status == 0
    assert said.endswith("0002_titles_and_an_index.py was written; steps: rewrite Item, build Item.by_title\n")
    assert project.run("check", "items") == (0, "nothing has changed since models.snapshot.json was written\n", "")
    assert project.run("revision", "items", "--message", "x") == (
        0,
        "nothing has changed since the last revision\n",
        "",
    )

    status, said, _ = project.run("upgrade", URL, "items")
    assert status == 3
    assert "0002_titles_and_an_index: rewrite Item: waiting: " in said
    assert said.endswith("run it again with --no-older-writers when no older program runs any more\n")
    status, said, _ = project.run("upgrade", URL, "items", "--no-older-writers", "--json")
    assert status == 0
    assert json.loads(said.splitlines()[-1])["applied"] == ["0002_titles_and_an_index"]
    assert {row["EntityType"] for row in run(project.rows())} == {"Item:2", "Item#by_title:2"}

    status, said, _ = project.run("status", URL)
    assert status == 0
    lines = said.splitlines()
    assert lines[0] == "revisions:"
    assert lines[1].startswith("  0001_items: applied 20") and lines[2].startswith(
        "  0002_titles_and_an_index: applied"
    )
    assert "  Item.by_title of table CommandItems: readable since" in said


@pytest.mark.one_of(3, group="killed")
def test_a_process_that_is_killed(project: Project) -> None:
    """The same command goes on where it was, and each row is rewritten."""
    run(project.fill(120))
    project.declare(SECOND)
    project.run("revision", "items", "--message", "titles")
    upgrade = ("upgrade", URL, "items", "--no-older-writers", "--lease", "1")
    killed = project.start(*upgrade, DIE_AT="60")
    killed.communicate()
    assert killed.returncode == -9
    status, said, _ = project.run("status", URL, "--json")
    assert status == 0
    assert [each["applied"] is None for each in json.loads(said)["revisions"]] == [False, True]
    assert re.search(
        r"\n  0002_titles rewrite Item: .* done, by \S+:\d+, \d+ entities a second\n", project.run("status", URL)[1]
    )

    status, said, _ = project.run(*upgrade)
    assert (status, said.splitlines()[-1]) == (0, "applied: 0002_titles")
    rows = [row for row in run(project.rows()) if "#" not in row["EntityType"]]
    assert {row["EntityType"] for row in rows} == {"Item:2"}
    assert len(rows) == 120


def test_a_row_that_cannot_be_upgraded(project: Project) -> None:
    """It is named, and the exit status is 1."""
    run(project.fill(3, note1="bad"))
    project.declare(SECOND)
    project.run("revision", "items", "--message", "titles")
    status, said, _ = project.run("upgrade", URL, "items", "--no-older-writers")
    assert status == 1
    assert "a note is bad" in said
    assert said.splitlines()[-1] == "applied: 0001_items; not applied yet: 0002_titles"

    status, said, _ = project.run("rewrite", URL, "items")
    assert status == 1
    failure, report = said.splitlines()[-2:]
    assert "a note is bad" in failure
    assert report.startswith("rewrite Item ") and ", 1 failed;" in report


def test_a_snapshot_is_not_written_past_revisions(project: Project) -> None:
    """Where there are revisions, `check --write` would lose what they need done."""
    project.declare(SECOND)
    kept = (project.folder / "models.snapshot.json").read_bytes()
    status, _, error = project.run("check", "items", "--write")

    assert status == 1
    assert "since there are revisions in revisions; run tableorm migrate revision" in error
    assert (project.folder / "models.snapshot.json").read_bytes() == kept


def test_branches_that_meet_are_noticed_by_the_check(project: Project) -> None:
    """Two revisions that follow the same one are rejected by name."""
    text = (project.folder / "revisions" / "0001_items.py").read_text(encoding="utf-8")
    for name in ("0002_mine", "0002_theirs"):
        branch = text.replace("'0001_items'", repr(name)).replace("follows=None", "follows='0001_items'")
        (project.folder / "revisions" / f"{name}.py").write_text(branch, encoding="utf-8")
    status, _, error = project.run("check", "items")

    assert status == 1
    assert "revisions 0002_mine and 0002_theirs both follow 0001_items" in error


def test_a_change_that_is_refused(project: Project) -> None:
    """No revision is written, and the exit status is 1."""
    project.declare(FIRST.replace('note: Mapped[str] = field(default="")', "note: Mapped[int | None]"))
    status, said, error = project.run("revision", "items", "--message", "numbers")

    assert status == 1
    assert "(type-changed): is rejected" in said
    assert error == "tableorm: no revision was written, since a change is rejected or needs a re-key\n"


def test_rewrite_and_build_index(project: Project) -> None:
    """By themselves, without revisions; a run that has a name is done once."""
    run(project.fill(5))
    project.declare(SECOND)
    status, said, _ = project.run("rewrite", URL, "items:Item", "--name", "once")
    assert status == 0
    assert said.startswith("once (rewrite Item): 5 entities read, 5 written; done in ")
    _, said, _ = project.run("rewrite", URL, "items:Item", "--name", "once", "--json")
    assert json.loads(said)["written"] == 5

    index = ("build-index", URL, "items:Item.by_title")
    assert project.run(*index, "--rate", "1000", "--parallel", "2")[0] == 0
    assert "readable" not in project.run("status", URL)[1]
    assert project.run(*index, "--no-older-writers")[0] == 0
    assert "Item.by_title of table CommandItems: readable" in project.run("status", URL)[1]


class Terminal(io.StringIO):
    """A terminal on which everything is written."""

    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is one line that is written again, at most once a second, and is gone before the outcome is printed."""
    now = 100.0
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setenv("COLUMNS", "14")  # with room for the ^C of an interrupt
    show = each_second(show_progress)
    show("too early")
    screens = list[list[str]]()
    for text in ("a long line\x1b[0m", "short"):
        now += 1
        show(text)
        screens.append(Screen(terminal.getvalue()).lines)
    emit(Namespace(json=False), {}, "the outcome")
    left = Screen(terminal.getvalue())

    assert screens == [["a long line"], ["short"]]
    assert (left.lines, left.row, left.column, left.cursor) == ([""], 0, 0, True)
    assert capsys.readouterr().out == "the outcome\n"


def test_progress_elsewhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Into a file it is lines for people, beside the outcome, which alone is JSON with --json."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    step = StepReport(revision="0001", step="rewrite Item", outcome=Outcome.RUNNING, detail="half")
    for as_json, outcome in ((False, "all\n"), (True, '{"done":2}\n')):
        progress = ProgressReporter(None)
        now += 1
        progress.note(step)
        emit(Namespace(json=as_json), {"done": 2}, "all")
        assert capsys.readouterr() == (outcome, "0001: rewrite Item: running: half\n")


def test_on_azure(project: Project, azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL may be in the environment, as for all commands."""
    monkeypatch.setenv("TABLEORM_URL", azurite.connection_string)
    project.declare(SECOND)
    assert project.run("revision", "items", "--message", "titles")[0] == 0
    status, said, _ = project.run("upgrade", "items", "--no-older-writers", "--prefix", "upgraded")
    assert (status, said.splitlines()[-1]) == (0, "applied: 0001_items, 0002_titles")
    _, said, _ = project.run("status", "--prefix", "upgraded", "--json")
    assert [each["name"] for each in json.loads(said)["revisions"]] == ["0001_items", "0002_titles"]
