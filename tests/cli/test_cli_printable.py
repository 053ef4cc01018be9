"""
What a database holds is printed without control characters, which a terminal would obey.
"""

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm import Database
from tableorm.cli import main
from tableorm.cli.output import find_terminal, report, show_progress
from tableorm.protocol.redaction import escape_unprintable
from tests.azure.conftest import stub
from tests.azure.stub import KEY, Answer, Stub
from tests.commandline import in_database, posix_only, run_command, show_on_terminal
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


@pytest.mark.parametrize(
    ("terminal", "command", "printed"),
    [
        (False, "query --all --csv --only Value", b"\xc3\xa9"),
        (False, "show", b"\xc3\xa9"),
        (True, "query --all --only Value", rb"\xe9"),
    ],
)
def test_streams_without_an_accent(
    url: str, terminal: bool, command: str, printed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe or a file gets UTF-8, whatever the locale is; a terminal its own encoding, and escapes for the rest."""
    name, *options = command.split()
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as stream:
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
        monkeypatch.setattr(sys, "stdout", stream)
        status = main([name, url, "Things", *options])
        written = stream.buffer.getvalue()

    assert status == 0
    assert printed in written


def test_each_stream_has_one_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long table on a terminal costs no new console for each line."""
    with io.StringIO() as stream:
        monkeypatch.setattr(stream, "isatty", lambda: True)

        assert find_terminal(stream) is not None
        assert find_terminal(stream) is find_terminal(stream)


@posix_only
def test_a_terminal_without_columns(url: str) -> None:
    """With COLUMNS=0, which stands for a width that nobody knows, everything is shown."""
    shown = show_on_terminal(0, "query", url, "Things", "--all", "--only", "PartitionKey", NO_COLOR="1")

    assert shown.splitlines() == ["PartitionKey", "p"]


def test_progress_without_escapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal that obeys no escapes gets lines of progress one below the other."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show_progress("[###---] 50%", "range 1")
    show_progress("[######] 100%")
    report("done")

    assert capsys.readouterr().err == "[###---] 50%\n[######] 100%\ntableorm: done\n"


def test_closed_streams(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Closed stdout and stderr, for which Python has None, take what is printed, and the status says how it went; a closed
    stdin is empty.
    """
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    commands = ["tables", url], ["tables", "local:./none"], ["import", url, "Things", "-"]
    statuses = [main(command) for command in commands]
    with sys.stdin, sys.stdout, sys.stderr:
        assert statuses == [0, 1, 0]


@pytest.mark.parametrize("text", ["", "plain", "Jürgen, 日本 🎉", r"a\nb"])
def test_what_is_printable_stays(text: str) -> None:
    """Text in any language is not changed."""
    assert escape_unprintable(text) == text
