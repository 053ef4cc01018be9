"""
The command `tableorm drop-periods`: what it deletes and prints, and what it refuses.
"""

from pathlib import Path
from typing import Any

import pytest

from tableorm import Database
from tests.commandline import in_database, run_command, write_module

MODELS = """
import datetime as dt

from tableorm import Entity, Mapped


class Login(Entity, table="CommandLogins{at:%Y%m%d}", partition_key="{user}", row_key="{at:ticks}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]


class Bill(Entity, table="CommandBills{day:%Y%m}", partition_key="{shop}", row_key="{day}"):
    shop: Mapped[str]
    day: Mapped[dt.date]


class Batch(Entity, table="CommandBatches{number:03d}", partition_key="{number:03d}", row_key="{item}"):
    number: Mapped[int]
    item: Mapped[str]
"""
TABLES = [
    "CommandBatches001",
    "CommandBatches002",
    "CommandBills202401",
    "CommandBills202402",
    "CommandLogins20240131",
    "CommandLogins20240201",
]


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    write_module(tmp_path, "period_models", MODELS, monkeypatch)
    url = f"local:{tmp_path}/a.tables"
    monkeypatch.setenv("TABLEORM_URL", url)

    async def fill(db: Database) -> None:
        await db.create_tables(*TABLES)
        await db.blobs.create_container("logs")
        await db.blobs.put("logs", "logins/2024/01/31/1800/000001.log", b"x")

    in_database(url, fill)
    return url


def left(url: str) -> list[str]:
    async def read(db: Database) -> list[Any]:
        return [*await db.tables(), *(blob.name for blob in (await db.blobs.list_blobs("logs")).blobs)]

    return in_database(url, read)


def test_a_dry_run_prints_what_would_go(url: str) -> None:
    """A dry run deletes nothing, and prints the tables, and how many blobs there are."""
    done = run_command(
        "drop-periods", "--before", "2024-02-01", "--delete-blobs", "logs/logins", "--dry-run", "period_models:Login"
    )

    assert (done.returncode, done.stdout) == (0, "CommandLogins20240131\n1 blob\n")
    assert len(left(url)) == len(TABLES) + 1


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_nothing_to_delete(dry: list[str]) -> None:
    """Where no period has ended, the command says so."""
    done = run_command("drop-periods", "--before", "2023-01-01", *dry, "period_models:Login", "period_models:Bill")

    assert (done.returncode, done.stdout) == (0, "nothing to delete: no table of a period that ended by 2023-01-01\n")


@pytest.mark.parametrize(
    ("before", "model", "gone"),
    [
        ("2024-02-01", "Login", ["CommandLogins20240131"]),
        ("2024-02-02T00:30+01:00", "Login", ["CommandLogins20240131"]),
        ("2024-02-02T01:00+01:00", "Login", ["CommandLogins20240131", "CommandLogins20240201"]),
        ("2024-02-28", "Bill", ["CommandBills202401"]),
        ("2", "Batch", ["CommandBatches001"]),
    ],
)
def test_what_goes(url: str, before: str, model: str, gone: list[str]) -> None:
    """A day without a zone begins in UTC; each table that has gone is a line."""
    done = run_command("drop-periods", url, f"period_models:{model}", "--before", before)

    assert (done.returncode, done.stdout.splitlines()) == (0, gone)
    assert left(url)[:-1] == [name for name in TABLES if name not in gone]


def test_what_is_refused(url: str) -> None:
    """What is no day is rejected before anything is deleted."""
    done = run_command("drop-periods", "--before", "yesterday", "period_models:Login")

    assert done.returncode == 1
    assert "give a day such as 2026-03-01" in done.stderr
    assert len(left(url)) == len(TABLES) + 1
