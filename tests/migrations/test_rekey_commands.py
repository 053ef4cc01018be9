"""
The actions of `tableorm migrate` that give the entities of a model other keys.
"""

import json
import sys
from asyncio import run
from pathlib import Path

import pytest

from tableorm import Entity, Mapped, RangeProgress, RunReport, connect
from tableorm.cli.output import clear_progress, show_progress
from tableorm.cli.progress import show_report
from tests.commandline import run_command
from tests.migrations.test_commands import Terminal
from tests.screen import Screen

MODULE = """
from tableorm import Entity, Mapped, MovedFrom


class Note(Entity, table="CommandNotes", tracked=True, partition_key="{author}", row_key="{number:06d}"):
    author: Mapped[str]
    number: Mapped[int]
    topic: Mapped[str]


class TopicNote(
    Entity,
    table="CommandTopics",
    tracked=True,
    moved_from=MovedFrom(Note),
    partition_key="{topic}",
    row_key="{author}_{number:06d}",
):
    topic: Mapped[str]
    author: Mapped[str]
    number: Mapped[int]
"""
URL = "local:./notes.tables"


class Note(Entity, table="CommandNotes", tracked=True, partition_key="{author}", row_key="{number:06d}"):
    author: Mapped[str]
    number: Mapped[int]
    topic: Mapped[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models of a program, and a database with 30 notes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rekeyed_notes.py").write_text(MODULE, encoding="utf-8")

    async def fill() -> None:
        async with connect(URL, create=True) as db:
            await db.create_tables(Note)
            async with db.bulk() as bulk:
                for number in range(30):
                    await bulk.insert(Note(author=f"a{number % 3}", number=number, topic=f"t{number % 2}"))

    run(fill())
    return tmp_path


def migrate(action: str, *options: str) -> tuple[int, str, str]:
    done = run_command("migrate", action, URL, "rekeyed_notes:TopicNote", *options)
    return done.returncode, done.stdout, done.stderr


def test_a_table_is_rekeyed_offline(folder: Path) -> None:
    """Plan, move, verify and finalize, each by a command; what is left is the table with the newer keys."""
    planned = migrate("plan", "--offline", "--request-price", "0.5", "--requests-per-second", "10")
    refused = migrate("move", "--offline")
    moved = migrate("move", "--offline", "--writers-stopped", "--json")
    verified = migrate("verify", "--offline")
    finalized = migrate("finalize", "--offline")

    assert planned[0] == 0
    assert planned[1].splitlines()[0] == "re-key Note as TopicNote: 30 entities, which become 30"
    assert planned[1].splitlines()[-1].startswith("  time: ")
    assert refused[0] != 0
    assert "say --writers-stopped; or re-key online" in refused[2]
    assert (moved[0], json.loads(moved[1].splitlines()[-1])["written"]) == (0, 30)
    assert (verified[0], finalized[0]) == (0, 0)
    assert "30 entities read, 30 written" in finalized[1]

    async def look() -> list[str]:
        async with connect(URL) as db:
            return [row.partition_key async for row in db.select_raw("CommandTopics").allow_scan()]

    assert run(look()) == ["t0"] * 15 + ["t1"] * 15
    assert sorted(each.name for each in folder.iterdir() if each.suffix == ".tables") == ["notes.tables"]


def test_a_rekey_offline_is_given_up() -> None:
    """A command deletes what was copied, if the operator gives his word; then a move while programs go on can begin."""
    moved = migrate("move", "--offline", "--writers-stopped")
    refused = migrate("rollback", "--offline")
    misled = migrate("rollback")
    back = migrate("rollback", "--offline", "--no-new-programs", "--json")
    again = migrate("rollback", "--offline", "--no-new-programs", "--delete-changed")
    online = migrate("move", "--no-blind-writers")

    assert [each[0] for each in (moved, refused, back, again, online)] == [0, 1, 0, 1, 0]
    assert "--no-new-programs" in refused[2]
    assert "after run_rekey(), call roll_back_rekey() (the command: rollback --offline)" in misled[2]
    assert json.loads(back[1].splitlines()[-1])["written"] == 30
    assert "there is nothing to go back from" in again[2]


def test_a_table_is_rekeyed_online(known_at_once: None) -> None:
    """Each phase by a command, with the word of the operator at each gate; and the way back, until it is sealed."""
    planned = migrate("plan")
    refused = [migrate("move"), migrate("seal", "--no-old-programs")]
    moved, status = migrate("move", "--no-blind-writers"), run_command("migrate", "status", URL)
    back = migrate("rollback")
    again = [migrate("move", "--no-blind-writers"), migrate("verify"), migrate("seal", "--no-old-programs")]
    finalized = migrate("finalize", "--json")

    assert [line.split(":")[0].strip() for line in planned[1].splitlines()[1:5]] == [
        "move",
        "verify",
        "seal (verify again)",
        "finalize",
    ]
    assert ["--no-blind-writers" in refused[0][2], "in phase 'expand'" in refused[1][2]] == [True, True]
    assert [each[0] for each in (planned, *refused, moved, back, *again, finalized)] == [0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert "re-keys:\n  Note as TopicNote: move since 20" in status.stdout
    assert json.loads(finalized[1].splitlines()[-1])["written"] == 30
    assert "only another re-key can restore the older keys" in migrate("rollback")[2]


def test_bars_for_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows a bar for the whole run, with its rate and the time left, and one for each range."""
    working = (
        RangeProgress(number=3, entities=1200, share=0.5),
        RangeProgress(number=14, entities=0, share=0.0),
    )
    report = RunReport(
        name="r",
        what="w",
        state="open",
        ranges=2,
        ranges_done=0,
        owners=(),
        entities=1200,
        written=0,
        failed=0,
        failures=(),
        others={},
        working=working,
        seconds=100.0,
    )
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    show_report(report)
    bars = Screen(terminal.getvalue()).lines
    show_progress("first", "one", "two")
    first = Screen(terminal.getvalue()).lines
    show_progress("second", "1")
    second = Screen(terminal.getvalue()).lines
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())  # a low one
    monkeypatch.setenv("LINES", "3")
    show_progress("third", "1", "2", "3", "4")
    third = Screen(terminal.getvalue()).lines
    clear_progress()
    left = Screen(terminal.getvalue())

    assert bars == [
        "[######------------------]  25% r (w): 1,200 entities read, 0 written; 0 of 2 ranges done",
        "12 entities/s, about 0:05:00 left",
        "[############------------]  50% range 3: 1,200 entities",
        "[------------------------]    ? range 14: 0 entities",
    ]
    assert (first, second, third) == (["first", "one", "two"], ["second", "1"], ["third", "1"])
    assert (left.lines, left.row, left.column, left.cursor) == ([""], 0, 0, True)
