"""
`tableorm outbox` and `tableorm worker`: what is left to do, and those who do it.
"""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tableorm import Database, connect
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import IndexEntry
from tableorm.outbox.bell import OUTBOX, ring
from tableorm.outbox.decision import Decision, Work, note_failure
from tableorm.outbox.doorbell import Begun, Doorbell
from tableorm.stores import Row
from tests.commandline import COMMAND, in_database, insert_all, posix_only
from tests.commandline import run_command as tableorm
from tests.rows import insert_row, merge_row

MODEL = "tests.cli.models:Employee"
ROOT = Path(__file__).parents[2]  # modules of the working directory are found
TOKENS = [f"token_{number:07d}" for number in range(4)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with three changes that have something left to do: one was given up, one is of an unknown kind."""
    url = f"local:{tmp_path / 'hr.tables'}"
    asyncio.run(fill(url))
    return url


async def fill(url: str) -> None:
    async with connect(url) as db:
        await db.create_tables("Directory", "Other")
        for token, kind in zip(TOKENS, ("Employee", "Employee", "Dog", ""), strict=True):
            await begin(db, token, kind)
        await note_failure(connection_of(db), begun(TOKENS[1]), "ValueError: no", 7)


async def begin(db: Database, token: str, kind: str) -> None:
    """Write a decision row, and ring for its work if it has any."""
    works = (Work(kind=kind, row_key="empid_000001"),) if kind else ()
    await insert_row(db, "Directory", Decision(partition_key="Sales", token=token, works=works).to_row())
    if kind:
        await ring(connection_of(db), Doorbell(changes=(begun(token),), kinds=(kind,)), delay_seconds=0)


def begun(token: str) -> Begun:
    return Begun(table="Directory", partition_key="Sales", token=token)


def messages(url: str) -> int:
    return in_database(url, lambda db: db.queues.length(OUTBOX))


def tokens(url: str, *arguments: str) -> list[str]:
    listed = tableorm("outbox", "list", url, "Directory", *arguments)
    assert listed.returncode == 0, listed.stderr
    return [json.loads(line)["token"] for line in listed.stdout.splitlines()]


def test_what_is_left_to_do_is_listed(url: str) -> None:
    """A line for each committed decision row, with the kinds, and the error and tries of one that was given up."""
    listed = tableorm("outbox", "list", url, "Other", "Directory")
    first, second, third = map(json.loads, listed.stdout.splitlines())

    assert first["works"] == [{"kind": "Employee", "row_key": "empid_000001", "left": []}]
    assert (first["table"], first["partition_key"], first["token"]) == ("Directory", "Sales", TOKENS[0])
    assert (first["error"], first["tries"]) == (None, 0)
    assert (second["error"], second["tries"]) == ("ValueError: no", 7)
    assert third["works"][0]["kind"] == "Dog"
    assert first["since"].endswith("Z")


def test_a_part_is_listed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one partition, or by token; the URL may come from the environment."""
    assert tokens(url, "--partition", "Sales") == TOKENS[:3]
    assert tokens(url, "--partition", "Other") == []
    assert tokens(url, "--token", TOKENS[1]) == [TOKENS[1]]
    monkeypatch.setenv("TABLEORM_URL", url)

    listed = tableorm("outbox", "list", "Directory", "Other")
    assert len(listed.stdout.splitlines()) == 3


def test_one_change_is_shown(url: str) -> None:
    """With the rows that have to be made right; one that is not there is told, and the status is 1."""

    async def add(db: Database) -> None:
        work = Work(kind="Employee", row_key="r", entries={"by_name": (IndexEntry("name_jones"),)})
        decision = Decision(partition_key="p", token="another_token", works=(work,))
        await insert_row(db, "Other", decision.to_row())

    in_database(url, add)
    shown = tableorm("outbox", "show", url, "Other", "--token", "another_token")
    assert json.loads(shown.stdout)["works"][0]["left"] == {"by_name": ["name_jones"]}
    assert json.loads(tableorm("outbox", "list", url, "Other").stdout)["works"][0]["left"] == ["by_name"]

    absent = tableorm("outbox", "show", url, "Other", "--token", "never_written")
    assert absent.returncode == 1 and "no change never_written in Other" in absent.stderr


def test_a_workflow_is_shown(url: str) -> None:
    """With its next step, null for the first, and the arguments of that, without secrets; not when it has ended."""

    async def add(db: Database) -> None:
        arguments = '{"order":7,"authorization":"Bearer Ab1","urls":["https://x.org/?sig=abc"]}'
        works = tuple(Work(kind="workflow ship:1", row_key=key, arguments=arguments) for key in "abc")
        decision = Decision(partition_key="p", token="another_token", works=works)
        await insert_row(db, "Other", decision.to_row())
        reached = Decision(
            partition_key="p", token="another_token", progress={1: ("tell", {"parcel": "x"}), 2: (None, None)}
        )
        await merge_row(db, "Other", reached.progress_row())

    in_database(url, add)
    shown = tableorm("outbox", "show", url, "Other", "--token", "another_token").stdout
    hidden = {"order": 7, "authorization": "REDACTED", "urls": ["https://x.org/?sig=REDACTED"]}
    assert json.loads(shown)["works"] == [
        {"kind": "workflow ship:1", "row_key": "a", "step": None, "arguments": hidden},
        {"kind": "workflow ship:1", "row_key": "b", "step": "tell", "arguments": {"parcel": "x"}},
    ]
    assert tableorm("outbox", "list", url, "Other").stdout == shown


def test_workers_are_told_again(url: str) -> None:
    """`retry` puts a message for each change, or for one."""
    assert messages(url) == 3
    assert tableorm("outbox", "retry", url, "Directory", "--token", TOKENS[1]).returncode == 0
    assert messages(url) == 4
    assert tableorm("outbox", "retry", url, "Directory").returncode == 0
    assert messages(url) == 7


def test_a_change_is_dropped(url: str) -> None:
    """`drop` deletes the decision row of one change."""
    assert tableorm("outbox", "drop", url, "Directory", "--token", TOKENS[1]).returncode == 0
    assert tokens(url) == [TOKENS[0], TOKENS[2]]


def test_a_row_that_cannot_be_read(url: str) -> None:
    """A decision row of a newer program, or a damaged one, is listed with what is wrong; nobody is told of it again."""

    async def damage(db: Database) -> None:
        row = {"PartitionKey": "Sales", "RowKey": f"~o_{TOKENS[0]}", "Work": '{"format": 9}'}
        await merge_row(db, "Directory", row)

    in_database(url, damage)
    listed = json.loads(tableorm("outbox", "list", url, "Directory", "--token", TOKENS[0]).stdout)
    assert "has the format 9" in listed["error"]

    again = tableorm("outbox", "retry", url, "Directory", "--token", TOKENS[0])
    assert again.returncode == 1 and "cannot be read" in again.stderr


def test_a_decision_row_that_fits_into_no_message_is_told_of(url: str) -> None:
    """`retry` goes on with the others after a decision row whose kinds are longer than a message."""
    work = json.dumps(
        {"format": 1, "works": [{"kind": "k\u20ac" * 15_000, "row": "x", "entries": {}}]}, ensure_ascii=False
    )
    row = {"PartitionKey": "!", "RowKey": f"~o_{TOKENS[3]}", "EntityType": "#_decision", "State": "committed"}
    insert(url, {**row, "Work": work})
    before = messages(url)
    again = tableorm("outbox", "retry", url, "Directory")

    assert again.returncode == 1 and "cannot be read or say too much: 1" in again.stderr
    assert messages(url) == before + 3
    assert messages(url) == 3 + 3


def test_a_decision_row_without_a_token_is_dropped(url: str) -> None:
    """What `list` shows can be shown and dropped by its token, also if no program gives such a one."""
    work = '{"format":1,"works":[{"kind":"Employee","row":"empid_000001","entries":{}}]}'
    row = {"PartitionKey": "Sales", "RowKey": "~o_x!", "EntityType": "#_decision", "State": "committed", "Work": work}
    insert(url, row)

    assert "x!" in tokens(url)
    assert "no token" in tableorm("outbox", "show", url, "Directory", "--token", "x!").stdout
    assert tableorm("outbox", "retry", url, "Directory", "--token", "x!").returncode == 1
    assert tableorm("outbox", "drop", url, "Directory", "--token", "x!").returncode == 0
    assert tokens(url) == TOKENS[:3]


def insert(url: str, row: Row) -> None:
    in_database(url, lambda db: insert_row(db, "Directory", row))


def test_a_worker_empties_the_queue(url: str) -> None:
    """`worker --drain` carries out what it knows, prints what became of the messages, and ends."""
    done = tableorm("worker", url, MODEL, "--drain")

    assert done.returncode == 0
    assert done.stdout == "finished: 2 done, 1 left\n"
    assert tokens(url) == [TOKENS[2]]


@pytest.mark.one_of(2)
@posix_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_at_a_signal(url: str, number: signal.Signals) -> None:
    """A worker that is terminated or interrupted finishes what it has begun, and ends with status 0."""
    worker = start_worker(url)
    until(lambda: tokens(url) == [TOKENS[2]])
    worker.send_signal(number)
    output, errors = worker.communicate(timeout=30)

    assert worker.returncode == 0, errors
    assert output == "finished: 2 done, 1 left\n"
    assert "a message is left to others" not in output and "2 done" in errors
    assert errors.endswith("the same command resumes with the messages that are left\n")


def start_worker(url: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [COMMAND, "worker", url, MODEL, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_queues_that_are_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker finds the queue of programs whose queues are not where the tables are."""
    url, queues = f"local:{tmp_path / 'hr.tables'}", f"local:{tmp_path / 'work.tables'}"
    insert_all(url, "Directory")
    in_database(url, lambda db: begin(db, TOKENS[0], "Employee"), queues=queues)
    idle = tableorm("worker", url, MODEL, "--drain")
    assert idle.stdout == "finished: nothing\n"
    assert "no messages" in caplog.messages
    assert json.loads(tableorm("worker", url, MODEL, "--drain", "--queues", queues, "--json").stdout) == {"done": 1}
