"""
The command `tableorm sweep`.
"""

import datetime as dt
from pathlib import Path

import pytest

from tableorm import Database, Entity, Feed, Mapped, field, utc_now
from tableorm.stores import CLOCK
from tests.cli.models import Employee
from tests.commandline import in_database, insert_all, run_command
from tests.rows import insert_row

MODULE = "tests.cli.test_sweep_command"


class Pass(Entity, table="CommandPasses", partition_key="p", row_key="{id:03d}"):
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Memo(Entity, table="CommandMemos", partition_key="p", row_key="{id:03d}"):
    id: Mapped[int]

    changes = Feed(keep=dt.timedelta(days=7))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file with two entities that have expired, and one that has not."""
    url = f"local:{tmp_path / 'passes.tables'}"
    insert_all(url, Memo, Employee, *(Pass(id=number, expires=utc_now() if number else None) for number in range(3)))
    return url


def test_a_module_is_swept(url: str, tmp_path: Path) -> None:
    """Of a module those models are taken that expire or have a feed; the state file is gone when all is done."""
    state = tmp_path / "state"

    done = run_command("sweep", url, MODULE, "--rate", "100", "--parallel", "1", "--state", str(state))
    again = run_command("sweep", url, f"{MODULE}:Pass")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 expired entities deleted, in ")
    assert again.stdout.startswith("0 expired entities deleted, in ")
    assert not state.exists()


@pytest.mark.usefixtures("stopped_clock")
def test_feeds_are_trimmed(url: str) -> None:
    """Of models that have one, whether they expire or not."""
    in_database(url, lambda db: db.insert(Memo(id=1)))
    CLOCK.advance(dt.timedelta(days=8))

    assert run_command("sweep", url, f"{MODULE}:Memo").stdout.startswith(
        "0 expired entities deleted, 1 change trimmed, "
    )
    assert run_command("sweep", url, f"{MODULE}:Memo").stdout.startswith("0 expired entities deleted, in ")


def test_what_cannot_be_deleted(url: str) -> None:
    """It is printed, and the status is 1."""

    async def spoil(db: Database) -> None:
        ends = {"expires": "1999-01-01T00:00:00Z", "expires@odata.type": "Edm.DateTime"}
        await insert_row(db, "CommandPasses", {"PartitionKey": "p", "RowKey": "x", "EntityType": "Pass", **ends})

    in_database(url, spoil)
    done = run_command("sweep", url, f"{MODULE}:Pass")

    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first.startswith("('p', 'x') in table CommandPasses: DecodeError: ")
    assert last.startswith("2 expired entities deleted, 1 failed, in ")
