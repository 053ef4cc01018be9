"""
The command `tableorm copy`: what it prints, its status, and that it goes on after an interrupt and after `kill -9`.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tableorm import Database, TransferReport, connect
from tests.children import environment
from tests.commandline import in_database, run_command
from tests.rows import replace_row
from tests.transfer.rows import content_of, fill, make_rows

COUNT = 600

STANDING_STILL = """
import asyncio, sys
from tableorm.cli import main
from tableorm.writes.bulk.pacing import Pace

rows = 0

async def wait(pace, count):
    global rows
    rows += count
    if rows > 200:
        await asyncio.Event().wait()
    return True

Pace.wait = wait
sys.exit(main())
"""
"""The command, with a pace that lets at most 200 rows through: however late a signal comes, it finds a part copied."""


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    """A file with a table, and one that is not there yet."""
    source, target = f"local:{tmp_path / 'from.tables'}", f"local:{tmp_path / 'to.tables'}"

    async def make(db: Database) -> None:
        await fill(db.store, make_rows(COUNT))

    in_database(source, make)
    return source, target


async def are_equal(source: str, target: str) -> bool:
    async with connect(source) as db, connect(target) as other:
        return await content_of(db) == await content_of(other)


def test_large_numbers_in_reports() -> None:
    """Every number is written alike."""
    report = TransferReport(entities=400_000, written=399_999, failed=1, cursor=lambda: None, requests=400, seconds=9)

    assert str(report) == "400,000 rows read, 399,999 written, 1 failed, in 9.0 s"


def test_copy_and_verify(urls: tuple[str, str]) -> None:
    """Both reports are printed; a difference is printed, and is the status."""
    done = run_command("copy", *urls, "--verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(", in ")[0] for line in done.stdout.splitlines()] == [
        "600 rows read, 600 written",
        "600 rows read, 600 equal",
    ]
    assert asyncio.run(are_equal(*urls))

    row = {"PartitionKey": "p1", "RowKey": "000001", "n": 5}
    in_database(urls[1], lambda db: replace_row(db, "Transferred", row))
    done = run_command("copy", *urls, "Transferred", "--if-exists", "skip", "--verify", "--json", "--where", "n lt 9")
    copied, compared = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, copied["equal"], copied["skipped"], copied["complete"]) == (1, 8, 1, True)
    assert (compared["equal"], compared["failed"], compared["share"]) == (8, 1, 1.0)
    assert "'000001'" in compared["failures"][0]


def test_lists_in_blobs_are_told_of(urls: tuple[str, str]) -> None:
    """Index lists that lie in blobs stay behind, and the command says what makes them."""

    async def put(db: Database) -> None:
        await db.blobs.create_container("tableorm-lists")
        await db.blobs.put("tableorm-lists", "Order.by_tag/x", b"x")

    in_database(urls[0], put)

    assert "build-index" in run_command("copy", *urls).stderr


def test_the_credential_of_the_target(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side has variables of its own: the key of the one is never given to the other."""
    monkeypatch.setenv("TABLEORM_KEY", "bm90IGEga2V5")
    refused = run_command("copy", urls[0], "http://127.0.0.1:1/contoso")
    assert refused.returncode == 1
    assert "TABLEORM_KEY" not in refused.stderr

    monkeypatch.setenv("TABLEORM_TO_URL", "http://127.0.0.1:2/contoso")
    monkeypatch.setenv("TABLEORM_TO_KEY", "bm90IGEga2V5")
    assert run_command("copy", urls[0], "http://127.0.0.1:1/contoso").stderr == refused.stderr


@pytest.mark.one_of(2)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_stopped(urls: tuple[str, str], how: int) -> None:
    """The same command goes on, and in the end both sides are equal."""
    command = [sys.executable, "-c", STANDING_STILL, "copy", *urls, "--rate", "60"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())

    async def count(db: Database) -> int:
        return len(await content_of(db)) if await db.tables() else 0

    written = 0
    while written < 100:
        assert process.poll() is None
        time.sleep(0.05)
        written = in_database(urls[1], count) if Path(urls[1].removeprefix("local:")).exists() else 0
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)

    assert 100 <= in_database(urls[1], count) <= 200
    if how == signal.SIGINT:
        assert (process.returncode, "the same command resumes" in errors) == (130, True)
    done = run_command("copy", *urls)
    assert (done.returncode, done.stdout.split(" read")[0]) == (0, "600 rows")
    assert asyncio.run(are_equal(*urls))
