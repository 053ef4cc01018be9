"""
`tableorm serve` as a program: what it survives, how it stops, several processes, TLS, rotation of keys.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.data.tables.aio import TableServiceClient

from tableorm import connect
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tests.commandline import posix_only, run_command
from tests.local.server.client import KEYS, Api, make_certificate
from tests.local.server.test_keys import HOUR, Item

COMMAND = [sys.executable, "-m", "tableorm.cli", "serve"]

pytestmark = posix_only


_POLL_SECONDS = 0.05
"""How long a test sleeps before it looks again: the processes that it waits for need the processor."""


class Program:
    """A running server; `url` is what it said."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self.line = process.stdout.readline()
        self.url = next((word for word in self.line.split() if word.startswith("http")), "")
        self.root = self.url.rpartition("/")[0]

    def next_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts it; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> Program:
        command = [*COMMAND, *map(str, arguments), "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return Program(process)

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def count_tables_as_others_do(connection_string: str) -> int:
    """Return how many tables the client of the Azure SDK and `connect` see with a connection string."""
    seen: set[int] = set()
    service: Any = TableServiceClient.from_connection_string(connection_string)
    async with service, connect(connection_string) as db:
        seen.add(len([table async for table in service.list_tables()]))
        seen.add(len(await db.tables()))
    (count,) = seen
    return count


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("name", "terminal"), [("SIGINT", True), ("SIGHUP", True), ("SIGINT", False)])
def test_an_interrupt(name: str, terminal: bool) -> None:
    """Ctrl-C ends it with a line that says how to go on, and so does closing the terminal."""
    import pty

    main, side = pty.openpty()
    command = [*COMMAND, "--data", ":memory:", "--port", "0"]
    stdin = side if terminal else subprocess.DEVNULL
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.Signals[name])
        _, complaint = process.communicate(timeout=60)
    os.close(side)
    os.close(main)

    assert (process.returncode, complaint) == (0, "tableorm: stopped; the same command serves :memory: again\n")


async def test_connection_string(start: Start, tmp_path: Path) -> None:
    """
    What the program prints for the development account opens it, in `connect` and in the SDK. With `--access-log` each
    request is appended to a file.
    """
    log = tmp_path / "access.log"
    program = start("--data", ":memory:", "--access-log", log)
    title, _, text = program.next_line().partition(": ")

    assert title == "connection string"
    assert await count_tables_as_others_do(text) == 0
    async with connect(program.url) as db:
        assert await db.tables() == []
    assert await asyncio.to_thread(program.stop, signal.SIGINT) == 0
    assert '"operation":"QueryTables","status":200' in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    printed = json.loads(start("--data", ":memory:", "--json").line)
    assert await count_tables_as_others_do(printed["connection_string"]) == 0


@pytest.mark.one_of(2)
@pytest.mark.parametrize("account", ["staff", DEVELOPMENT_ACCOUNT])
async def test_connection_string_without_its_key(start: Start, tmp_path: Path, account: str) -> None:
    """The key of a file is not printed, whatever account it opens; with the key in its place the text is complete."""
    file = tmp_path / "staff.keys"
    file.write_text(KEYS[0], encoding="ascii")
    file.chmod(0o600)
    program = start("--data", ":memory:", "--account", account, "--key-file", file)
    line = program.next_line()
    text, _, rest = line.removeprefix("connection string: ").partition(" ")

    assert KEYS[0] not in line
    assert DEVELOPMENT_KEY not in line
    assert rest == f"(in place of KEY put a line of {file})\n"
    assert await count_tables_as_others_do(text.replace("=KEY;", f"={KEYS[0]};")) == 0


def said(program: Program) -> str:
    """All that it wrote to stderr; it must have ended."""
    return program.process.communicate()[1]


async def write_until_it_ends(api: Api, worker: int, acknowledged: set[str], enough: asyncio.Event) -> None:
    """Insert entities one after the other until the server is no more, noting what it acknowledged."""
    number = 0
    while True:
        key = f"{worker}-{number}"
        row = {"PartitionKey": str(worker), "RowKey": key, "Text": "x" * 500}
        try:
            reply = await api("POST", "/Tab", row, Prefer="return-no-content")
        except aiohttp.ClientError:
            return
        if reply.status == 204:
            acknowledged.add(key)
        if len(acknowledged) >= 100:
            enough.set()
        number += 1


@pytest.mark.one_of(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_acknowledged_is_lost(
    start: Start, session: aiohttp.ClientSession, tmp_path: Path, number: signal.Signals
) -> None:
    """However the server ends while clients write, what it acknowledged is there when it starts again."""
    program = start("--data", tmp_path / "hr.tables")
    api = Api(session, program.root)
    assert (await api("POST", "/Tables", {"TableName": "Tab"})).status == 201
    acknowledged, enough = set[str](), asyncio.Event()
    writers = [asyncio.create_task(write_until_it_ends(api, worker, acknowledged, enough)) for worker in range(8)]
    await enough.wait()
    status = await asyncio.to_thread(program.stop, number)
    await asyncio.gather(*writers)
    assert status == (-number if number is signal.SIGKILL else 0)
    if number is signal.SIGTERM:
        assert said(program) == ""

    api = Api(session, start("--data", tmp_path / "hr.tables").root)
    found = set[str]()
    for worker in range(8):
        query = f"$select=RowKey&$filter=PartitionKey%20eq%20'{worker}'"
        found |= {row["RowKey"] for row in (await api("GET", "/Tab()", query=query)).rows}
    assert acknowledged <= found


async def test_several_processes(start: Start, tmp_path: Path) -> None:
    """
    Processes share port and file, and print what one prints; their metrics add up; one that dies is replaced; SIGTERM
    stops all.
    """
    program = start("--data", tmp_path / "hr.tables", "--workers", 2)
    assert "with 2 processes" in program.line
    assert await count_tables_as_others_do(program.next_line().partition(": ")[2]) == 0
    async with aiohttp.ClientSession() as session:
        assert (await Api(session, program.root)("POST", "/Tables", {"TableName": "Tab"})).status == 201

    async def insert(number: int) -> int:
        async with aiohttp.ClientSession() as one:
            row = {"PartitionKey": "p", "RowKey": str(number)}
            return (await Api(one, program.root)("POST", "/Tab", row)).status

    assert {await insert(number) for number in range(10)} == {201}
    line = 'tableorm_requests_total{operation="InsertEntity",status="201"} 10'
    seen = 0
    async with asyncio.timeout(120):
        # Of several in a row, since each process knows its own counts before it has told the others.
        while seen < 8:
            async with aiohttp.ClientSession() as session, session.get(f"{program.root}/metrics") as metrics:
                seen = seen + 1 if line in await metrics.text() else 0
    async with asyncio.timeout(120):
        # One after the other: in the end only those answer that took the place of others.
        for child in await asyncio.to_thread(_children, program.process.pid):
            os.kill(child, signal.SIGKILL)
            while await asyncio.to_thread(_children_without, program.process.pid, child) < 2:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
        while await _status(program) != 201:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        # Of the dead what they counted stays, and nothing is under way in them.
        text = ""
        while not (line in text and "\ntableorm_connections 1.0\n" in text):
            await asyncio.sleep(_POLL_SECONDS)
            async with session.get(f"{program.root}/metrics") as metrics:
                text = await metrics.text()
    assert await asyncio.to_thread(program.stop) == 0
    *replaced, last = said(program).splitlines()
    assert [shown.partition("ended")[2] for shown in replaced] == [" with status -9; another takes its place"] * 2
    assert last == f"tableorm: stopped; the same command serves {tmp_path / 'hr.tables'} again"


async def _status(program: Program) -> int:
    """Of an attempt to make another table."""
    name = f"T{time.monotonic_ns()}"
    with contextlib.suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session:
            return (await Api(session, program.root)("POST", "/Tables", {"TableName": name})).status
    return 0


def _children_without(parent: int, child: int) -> int:
    return len([each for each in _children(parent) if each != child])


def _children(parent: int) -> list[int]:
    """The processes that serve."""
    found = list[int]()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
            command = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if f"PPid:\t{parent}\n" in text and b"tableorm_local.workers" in command:
            found.append(int(status.parent.name))
    return sorted(found)


async def test_keys_and_their_rotation(start: Start, session: aiohttp.ClientSession, tmp_path: Path) -> None:
    """An account has its keys from a file, which SIGHUP has read again; a file that is wrong changes nothing."""
    file = tmp_path / "one.keys"
    file.write_text(f"# the first\n{KEYS[0]}\n\n{KEYS[1]}\n")
    file.chmod(0o600)
    program = start("--data", ":memory:", "--account", "one", "--key-file", file)
    stderr = program.process.stderr
    assert stderr is not None

    async def statuses() -> list[int]:
        replies = [await Api(session, program.root, "one", key)("GET", "/Tables") for key in KEYS]
        return [reply.status for reply in replies]

    assert await statuses() == [200, 200, 403]
    for text, told, expected in (("nonsense!", "nothing is changed", 200), (KEYS[1], "read again", 403)):
        file.write_text(text)
        program.process.send_signal(signal.SIGHUP)
        assert told in await asyncio.to_thread(stderr.readline)
        assert await statuses() == [expected, 200, 403]


@pytest.mark.one_of(3, group="serve")
async def test_no_file_tokens(start: Start, session: aiohttp.ClientSession, tmp_path: Path) -> None:
    """With `--no-file-tokens` the server refuses what a program grants that has the file open."""
    path = tmp_path / "x.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Item)
        token = await db.grant(Item, "r", HOUR)
    program = start("--data", path, "--no-file-tokens")

    assert (await Api(session, program.root)("GET", "/Items()", query=token, scheme=None)).status == 403


async def test_a_wrong_certificate_changes_nothing(start: Start, tmp_path: Path) -> None:
    """If one of the files that SIGHUP has read again is wrong, also the others are not used."""
    cert, key = await asyncio.to_thread(make_certificate, tmp_path / "tls")
    keys = tmp_path / "one.keys"
    context = ssl.create_default_context(cafile=str(cert))
    keys.write_text(KEYS[0])
    keys.chmod(0o600)
    account = "--account", "one", "--key-file", keys
    program = start("--data", ":memory:", "--cert", cert, "--cert-key", key, *account)
    good, stderr = cert.read_text(), program.process.stderr
    assert stderr is not None
    statuses = list[list[int]]()
    for text, said in (("nonsense", "nothing is changed"), (good, "read again")):
        keys.write_text(KEYS[1])
        cert.write_text(text)
        program.process.send_signal(signal.SIGHUP)
        assert said in await asyncio.to_thread(stderr.readline)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            replies = [await Api(session, program.root, "one", key)("GET", "/Tables") for key in KEYS[:2]]
        statuses.append([reply.status for reply in replies])

    assert statuses == [[200, 403], [403, 200]]


@pytest.mark.parametrize("dangling", [False, True])
def test_access_log_follows_no_link(tmp_path: Path, dangling: bool) -> None:
    """Who may write to the folder of the log cannot have the server write to another file."""
    victim, log = tmp_path / "victim", tmp_path / "access.log"
    if not dangling:
        victim.touch()
    log.symlink_to(victim)
    done = run_command("serve", "--data", str(tmp_path / "no" / "x"), "--access-log", str(log))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"--access-log: '{log}' is a symbolic link; give the file itself" in done.stderr
    assert victim.exists() is not dangling


@pytest.mark.parametrize(
    ("mode", "problem"),
    [(0o644, "read"), (0o604, "read"), (0o602, "change"), (0o606, "read and change"), (0o660, None), (0o600, None)],
)
def test_keys_that_everyone_has(tmp_path: Path, mode: int, problem: str | None) -> None:
    """A key file that every user can read or change is warned of, with the remedy, whether the server starts or not."""
    keys = tmp_path / "some keys"
    keys.write_text(KEYS[0])
    keys.chmod(mode)
    done = run_command("serve", "--data", str(tmp_path / "no" / "x"), "--account", "one", "--key-file", str(keys))

    assert ("every user of this machine" in done.stderr) is (problem is not None)
    assert problem is None or f"can {problem} the keys in {keys}; do: chmod 600 '{keys}'" in done.stderr
    assert KEYS[0] not in done.stderr


@pytest.mark.parametrize("arguments", [["one", KEYS[1]], [KEYS[1], "FILE"], ["one", f"/{KEYS[1]}"]])
def test_keys_in_the_wrong_place(tmp_path: Path, arguments: list[str]) -> None:
    """A key that is given for the name of its account, or for the file with it, is not shown."""
    (tmp_path / "keys").write_text(KEYS[0])
    account, file = arguments
    file = str(tmp_path / "keys") if file == "FILE" else file
    done = run_command("serve", "--data", ":memory:", "--account", account, "--key-file", file, "--port", "0")

    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert KEYS[1] not in done.stderr
