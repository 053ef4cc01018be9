"""
The command `tableorm stats`: tables, as text and as JSON, and what is printed of costs.
"""

import json
import re
from pathlib import Path

import pytest

from tableorm import Database
from tests.commandline import in_database, posix_only, run_command, show_on_terminal
from tests.rows import insert_row


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with two tables, of one row and of none."""
    url = f"local:{tmp_path / 'stats.tables'}"

    async def fill(db: Database) -> None:
        await db.create_tables("Empty", "Orders")
        await insert_row(db, "Orders", {"PartitionKey": "a", "RowKey": "b"})

    in_database(url, fill)
    return url


def test_all_tables(url: str) -> None:
    """All tables are measured if none is named, in the order of their names."""
    done = run_command("stats", url)

    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == [
        "Empty: 0 rows in 0 partitions, 0 B",
        "Orders: 1 row in 1 partition, 8 B",
    ]
    assert "cost" not in done.stdout


def test_no_tables(tmp_path: Path) -> None:
    """A database without tables is said to have none; as JSON nothing is printed."""
    url = f"local:{tmp_path / 'none.tables'}"

    async def make(db: Database) -> None:
        await db.create_tables("Other")
        await db.drop_table("Other")

    in_database(url, make)

    assert run_command("stats", url).stdout == "no tables\n"
    assert run_command("stats", url, "--json").stdout == ""


def test_the_url_of_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables may come first, as in other commands."""
    monkeypatch.setenv("TABLEORM_URL", url)

    assert run_command("stats", "Orders").stdout.startswith("Orders: 1 row")
    assert run_command("stats").stdout.startswith("Empty: 0 rows")


def test_json_and_costs(url: str) -> None:
    """Each table is an object on a line; a cost is there if a price was given."""
    done = run_command("stats", url, "Orders", "--json", "--sample", "3", "--gib-price", "0.05")
    text = run_command("stats", url, "Orders", "--request-price", "10000").stdout
    without = json.loads(run_command("stats", url, "Orders", "--json").stdout)

    said = json.loads(done.stdout)
    assert (said["table"], said["rows"], said["exact"], said["requests"]) == ("Orders", 1, True, 1)
    assert said["largest"] == {"a": 1}
    assert said["cost"] == {"storage": pytest.approx(8 / 2**30 * 0.05), "scan": 0.0}
    assert "  cost: 0 a month for storage, 1 to read all rows once\n" in text
    assert "cost" not in without


@posix_only
@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal(tmp_path: Path, columns: int) -> None:
    """A terminal gets bold titles and bars, and no line that is wider than it; `NO_COLOR` drops colours."""
    url = f"local:{tmp_path / 'stats.tables'}"

    async def fill(db: Database) -> None:
        await db.create_tables("Orders")
        for key in ("A customer with a long name", "B"):
            await insert_row(db, "Orders", {"PartitionKey": key, "RowKey": "1", "EntityType": "OrderOfACustomer"})

    in_database(url, fill)
    shown = show_on_terminal(columns, "stats", url)

    assert shown.startswith("\x1b[1mOrders:\x1b[0m 2 rows")
    assert (" 50%  \x1b[32m████████████\x1b[0m" in shown) is (columns == 80)
    assert all(len(re.sub(r"\x1b\[\d+m", "", line)) <= columns for line in shown.splitlines())
    assert show_on_terminal(columns, "stats", url, NO_COLOR="1") == re.sub(r"\x1b\[\d+m", "", shown)
