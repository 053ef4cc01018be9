"""
`tableorm audit`: as a process of its own where that matters.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tableorm import Database, ModelError
from tableorm.audit.report import AuditReport
from tableorm.cli.progress import ProgressReporter
from tableorm.stores import Verb
from tests.audit.foreign import Employee, everyone, fill, write
from tests.commandline import in_database, insert_all
from tests.commandline import run_command as tableorm
from tests.derived.patterns.firm import Department
from tests.derived.patterns.firm import Employee as Listed
from tests.outbox.test_blob_lists import Book
from tests.rows import delete_row, insert_row

MODEL = "tests.audit.foreign:Employee"
ROOT = Path(__file__).parents[2]  # modules of the working directory are found


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with one copy less than there should be."""
    url = f"local:{tmp_path / 'hr.tables'}"

    async def make(db: Database) -> None:
        await fill(db)
        await write(db, Verb.DELETE, "Sales", "email_e1@x")

    in_database(url, make)
    return url


def test_findings_are_printed(url: str) -> None:
    """A line for each finding, then the sum; the status is 1, and 0 once all is repaired."""
    found = tableorm("audit", url, MODEL)
    assert found.returncode == 1
    lines = found.stdout.splitlines()
    assert lines[0].startswith("Employee.by_email ('Sales', 'empid_000001'): missing: ")
    assert lines[1].startswith("10 entities and 23 derived rows checked: 1 finding (1 missing), 0 repaired")

    repaired = tableorm("audit", url, MODEL, "tests.audit.foreign:Clerk", "--repair", "--parallel", "2")
    assert repaired.returncode == 0 and repaired.stdout.splitlines()[0].endswith("; repaired")

    again = tableorm("audit", url, MODEL)
    assert again.returncode == 0 and "nothing found" in again.stdout


def test_an_audit_with_a_name_is_a_shared_run(url: str) -> None:
    """The store keeps what is done, and an audit that has ended is not done again under its name."""
    shared = ("audit", url, MODEL, "--name", "nightly", "--rate", "1000", "--lease", "60")
    first, second = tableorm(*shared, "--repair"), tableorm(*shared, "--repair")
    assert (first.returncode, first.stdout.splitlines()[0]) == (0, second.stdout.splitlines()[0])
    assert first.stdout.splitlines()[0].endswith("; repaired")

    async def look(db: Database) -> None:
        (run,) = await db.runs()
        assert (run.name, run.what, run.state, run.written) == ("nightly", "repair Employee", "done", 1)
        with pytest.raises(ModelError, match=r"audit\(name='nightly', cursor=...\) is rejected"):
            await db.audit(Employee, name="nightly", cursor="x")

    in_database(url, look)


def test_counts_and_lists_are_checked(tmp_path: Path) -> None:
    """Of a model with lists and counts, together with the model that keeps these."""
    url, model = f"local:{tmp_path / 'firm.tables'}", "tests.derived.patterns.firm:Employee"
    insert_all(url, Department(name="Sales"), Listed(department="Sales", id=1))
    in_database(url, lambda db: delete_row(db, "Firm", {"PartitionKey": "Sales", "RowKey": "empid_000001"}))
    found = tableorm("audit", url, model, "--repair")

    assert found.returncode == 0
    assert [line.partition(": ")[0] for line in found.stdout.splitlines()[:-1]] == [
        "Department.employee_count ('Sales', 'department')",
        "Department.juniors ('Sales', 'department')",
        "Employee.by_last_name ('Sales', 'empid_000001')",
    ]
    assert "nothing found" in tableorm("audit", url, model).stdout


def test_report_as_json(url: str) -> None:
    """With --json the report is one object, and nothing else is on stdout."""
    done = tableorm("audit", url, MODEL, "--json")

    report = json.loads(done.stdout)
    assert (report["entities"], report["found"], report["clean"]) == (10, 1, False)
    assert report["findings"][0]["address"] == "email_e1@x"


def test_a_module_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module alone means all of its models, those that it imports included, but for abstract ones; each once."""
    url = f"local:{tmp_path / 'hr.tables'}"
    (tmp_path / "every_model.py").write_text(
        "from tests.cli.models import Employee, Manager\n"
        "from tableorm import Entity, Mapped\n\n"
        "Same = Employee\n\n"
        "class Base(Entity, abstract=True):\n    id: Mapped[int]\n\n"
        "class Desk(Base, table='Desks', partition_key='desks', row_key='desk_{id}'): ...\n"
    )
    monkeypatch.chdir(tmp_path)

    async def make(db: Database) -> None:
        await db.create_tables("Directory", "Desks")
        for key, kind in ("empid_000001", "Employee"), ("manager_000001", "Manager"):
            await insert_row(db, "Directory", {"PartitionKey": "Sales", "RowKey": key, "EntityType": kind})
        await insert_row(db, "Desks", {"PartitionKey": "desks", "RowKey": "desk_1", "EntityType": "Desk"})

    in_database(url, make)
    assert json.loads(tableorm("audit", url, "every_model", "--json").stdout)["entities"] == 3
    again = tableorm("audit", url, "every_model", "every_model:Employee", "--json")
    assert json.loads(again.stdout)["entities"] == 3
    monkeypatch.setenv("TABLEORM_URL", url)
    assert json.loads(tableorm("audit", "every_model", "--json").stdout)["entities"] == 3
    assert json.loads(tableorm("audit", "every_model:Desk", "every_model:Base", "--json").stdout)["entities"] == 1


def test_interrupt_leaves_a_state_to_go_on_from(tmp_path: Path) -> None:
    """After SIGINT the state file has how far it got; with it the next run goes on, and removes it at the end."""
    url, state = f"local:{tmp_path / 'hr.tables'}", tmp_path / "state"

    async def make(db: Database) -> None:
        await db.create_tables(Employee)
        for letter in "0123456789abcdef":
            async with db.transaction() as tx:
                for employee in everyone(f"{letter}D", 25):
                    tx.insert(employee)
            await write(db, Verb.DELETE, f"{letter}D", "email_e1@x")

    in_database(url, make)
    script = tmp_path / "slow.py"
    # The command itself, told to stop by the terminal when it is half through.
    script.write_text(
        "import os, signal, sys\n"
        "from tableorm.cli import progress\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background ignores it
        "save = progress.ProgressReporter.save\n"
        "done = 0\n"
        "progress._SECONDS = 0\n"
        "def saved(self):\n"
        "    global done\n"
        "    save(self)\n"
        "    done += 1\n"
        "    if done == 8: os.kill(os.getpid(), signal.SIGINT)\n"
        "progress.ProgressReporter.save = saved\n"
        "from tableorm.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["audit", url, MODEL, "--state", str(state), "--repair"]

    interrupted = subprocess.run(
        [sys.executable, str(script), *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )

    assert interrupted.returncode in (130, -signal.SIGINT), interrupted.stderr
    assert re.search(r"#-*\] +[0-9]+% [0-9]+ entities and [0-9]+ derived rows checked: ", interrupted.stderr)
    assert state.exists()

    done = tableorm(*arguments, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    # What was repaired just before the interrupt, and not reported any more, is not found again.
    assert report["entities"] == 400 and 0 < report["repaired"] == report["found"] <= 16
    assert not state.exists()
    assert "400 entities" in tableorm("audit", url, MODEL).stdout.splitlines()[0]


def test_large_numbers() -> None:
    """They have the commas that `stats` prints too."""
    assert str(AuditReport(entities=100_000, derived_rows=1, cursor=str)).startswith(
        "100,000 entities and 1 derived row checked"
    )


def test_the_state_is_written_to_a_file_of_its_own(tmp_path: Path) -> None:
    """The state holds keys of rows: its file is the user's alone, and no link in its place is followed."""
    state, other = tmp_path / "state", tmp_path / "other"
    other.write_text("precious")
    state.symlink_to(other)
    progress = ProgressReporter(state)
    progress.note(AuditReport(cursor=lambda: "text"))
    for _ in range(2):
        progress.save()
        assert state.read_text() == "text\n"

    assert other.read_text() == "precious"
    assert not state.is_symlink()
    assert state.stat().st_mode & 0o777 == 0o600


def test_blobs_elsewhere(tmp_path: Path) -> None:
    """An audit looks for lists in the blobs that the option names."""
    url, blobs = f"local:{tmp_path / 'hr.tables'}", f"local:{tmp_path / 'blobs.tables'}"
    insert_all(url, Book(shelf="a", id=1, tag="new"), blobs=blobs)
    model = "tests.outbox.test_blob_lists:Book"
    assert "1 finding (1 missing)" in tableorm("audit", url, model).stdout
    assert "nothing found" in tableorm("audit", url, model, "--blobs", blobs).stdout
