"""
What a database holds is printed without control characters, which a terminal would obey.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm import Database
from tableorm.protocol.redaction import escape_unprintable
from tests.azure.conftest import stub
from tests.azure.stub import KEY, Answer, Stub
from tests.commandline import in_database, run_command
from tests.rows import insert_row

__all__ = ["stub"]

ODD = "\x1b]0;owned\x07\x7f\x9b31m\u202ea\n\U000e0041é"
SHOWN = r"\u001b]0;owned\u0007\u007f\u009b31m\u202ea\u000a\udb40\udc41é"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database in which a value holds control characters."""
    path = tmp_path / "data.tables"

    async def fill(db: Database) -> None:
        await db.store.create_table("Things")
        await insert_row(db, "Things", {"PartitionKey": "p", "RowKey": "r", "Value": ODD})

    in_database(f"local:{path}", fill)
    return f"local:{path}"


async def test_names_of_tables(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name that a server tells is one line, in which whatever is not printable is escaped."""
    body = json.dumps({"value": [{"TableName": ODD}]}).encode()
    stub.answers = [Answer(200, {"Content-Type": "application/json"}, body)]
    monkeypatch.setenv("TABLEORM_URL", stub.url)
    monkeypatch.setenv("TABLEORM_KEY", KEY)
    done = await asyncio.to_thread(run_command, "tables")

    assert done.stdout == SHOWN + "\n"


def test_a_name_in_a_file(url: str) -> None:
    """A file in which a table has such a name is listed by a line that can be printed."""
    connection: Any = apsw.Connection(url.removeprefix("local:"))
    connection.execute("UPDATE catalog SET name = ?", (ODD,))
    connection.close()
    done = run_command("tables", url)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.removesuffix("\n").isprintable()


def test_rows(url: str) -> None:
    """Lines of JSON escape it as JSON does, and mean the same."""
    printed = run_command("show", url, "Things").stdout

    assert printed.removesuffix("\n").isprintable()
    assert json.loads(printed)["Value"] == ODD


def test_errors() -> None:
    """An error is one line that can be printed, whatever it names."""
    done = run_command("show", "local:\x1b[31m/none.tables", "Things")

    assert done.returncode == 1
    assert done.stderr.removesuffix("\n").isprintable()


@pytest.mark.parametrize("text", ["", "plain", "Jürgen, 日本 🎉", r"a\nb"])
def test_what_is_printable_stays(text: str) -> None:
    """Text in any language is not changed."""
    assert escape_unprintable(text) == text
