"""
The `tableorm` command: as a process of its own where that matters, and otherwise in this one, which is much faster.
"""

import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tableorm import Database, Entity, Mapped, TableOrmError, __version__
from tableorm.cli.command_line import make_parser
from tests.commandline import COMMAND, in_database, insert_all, posix_only, read_terminal
from tests.commandline import run_command as tableorm
from tests.screen import Screen

ROOT = Path(__file__).parents[2]
EMPLOYEES = 2500  # more than two pages


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    level: Mapped[int]


ANN = Employee(department="HR", id=1, name="Ann", level=1)


def process(*arguments: str, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the command as a process; `path` is a folder with further distributions."""
    environment = {**os.environ, "PYTHONPATH": str(path or "")}
    return subprocess.run([COMMAND, *arguments], env=environment, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a partition of many rows, and one with a single row."""
    url = f"local:{tmp_path_factory.mktemp('cli') / 'hr.tables'}"

    async def fill(db: Database) -> None:
        await db.create_tables(Employee)
        for start in range(0, EMPLOYEES, 100):
            async with db.transaction() as tx:
                for number in range(start, start + 100):
                    tx.insert(Employee(department="Sales", id=number, name=f"Jürgen {number}", level=3))
        await db.insert(ANN)

    in_database(url, fill)
    return url


def plugin(folder: Path, name: str, entry_points: str, code: str) -> Path:
    """Install a distribution into a folder, by hand: its metadata and one module."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[tableorm.commands]\n{entry_points}\n", encoding="utf-8")
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


HELLO = """
class Hello:
    help = "say hello"
    def configure(self, parser):
        parser.add_argument("name")
        parser.add_argument("--status", type=int, default=0)
    def run(self, args):
        print("hello", args.name)
        return args.status
HELLO = Hello()
"""


def test_version() -> None:
    """`--version` prints the version of the package."""
    done = tableorm("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"tableorm {__version__}\n", "")


def test_no_command() -> None:
    """Without a command it prints the help, and so does a command without its action."""
    for group in ([], ["migrate"], ["outbox"], ["keys"]):
        assert (tableorm(*group).stdout, tableorm(*group).returncode) == (tableorm(*group, "--help").stdout, 0)


def test_prefix(tmp_path: Path) -> None:
    """With `--prefix` the commands are about the tables of one environment, by their names without it."""
    url = f"local:{tmp_path / 'shared.tables'}"
    insert_all(url, ANN, prefix="dev")

    assert tableorm("tables", url).stdout == "devDirectory\n"
    assert tableorm("tables", url, "--prefix", "dev").stdout == "Directory\n"
    assert json.loads(tableorm("show", url, "Directory", "--prefix", "dev").stdout)["name"] == "Ann"
    assert "1 entity" in tableorm("audit", url, f"{__name__}:Employee", "--prefix", "dev").stdout


def test_show_everything(url: str) -> None:
    """`show` prints every row, over all pages, in key order, as JSON."""
    done = tableorm("show", url, "Directory")

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    keys = [(row["PartitionKey"], row["RowKey"]) for row in rows]
    assert (done.returncode, done.stderr) == (0, "tableorm: 2,501 rows\n")
    assert keys == [("HR", "empid_000001"), *(("Sales", f"empid_{number:06d}") for number in range(EMPLOYEES))]
    assert (rows[8]["name"], rows[8]["level"], rows[8]["level@odata.type"]) == ("Jürgen 7", "3", "Edm.Int64")
    assert {"Timestamp", "odata.etag"} < rows[8].keys()


@pytest.mark.parametrize(("limit", "count"), [("1", 1), ("1500", 1500), ("9999", EMPLOYEES)])
def test_show_some(url: str, limit: str, count: int) -> None:
    """`--partition` and `--limit` restrict it; a limit may be more than a page, or than there is."""
    done = tableorm("show", url, "directory", "--partition", "Sales", "--limit", limit)

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["RowKey"] for row in rows] == [f"empid_{number:06d}" for number in range(count)]


def test_traceback(url: str) -> None:
    """An error of tableorm, which is one line, is let through by `--traceback`, before or after the arguments."""
    arguments, problem = ("show", url, "Nothing"), "there is no table 'Nothing'"

    for traced in (("--traceback", *arguments), (*arguments, "--traceback")):
        with pytest.raises(TableOrmError, match=re.escape(problem)):
            tableorm(*traced)


@posix_only
def test_reader_that_stops(url: str) -> None:
    """When the reader of its output has enough, as `head` has, it stops without a word, and with status 0."""
    command = [COMMAND, "show", url, "Directory"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()

    assert (process.returncode, complaint) == (0, b"")


def test_command_of_another_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of another distribution is found, gets its arguments, and decides on the status."""
    path = plugin(tmp_path, "hello", "hello = hello:HELLO", HELLO)

    done = process("hello", "you", "--status", "7", path=path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello you\n", "")
    monkeypatch.setattr(sys, "path", [str(path), *sys.path])
    importlib.invalidate_caches()
    assert "say hello" in tableorm("--help").stdout


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("", "AttributeError: module 'broken' has no attribute 'HELLO'"),
        ("HELLO = 42", "TypeError: broken:HELLO lacks a member of tableorm.cli.Command: help, configure or run"),
        (HELLO.replace('"name"', '"name", type="no type"'), "'no type' is not callable"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_broken_command(tmp_path: Path, code: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that cannot be loaded is reported on stderr and left out; the others work."""
    monkeypatch.setattr(sys, "path", [str(plugin(tmp_path, "broken", "broken = broken:HELLO", code)), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "broken", raising=False)

    done = tableorm("--help")
    assert (done.returncode, "list the tables" in done.stdout) == (0, True)
    assert done.stderr.startswith("tableorm: command 'broken' of broken is left out: it cannot be loaded: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert tableorm("broken").returncode == 2


def test_built_in_names_are_taken(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of another distribution does not replace a built-in one, and that is reported."""
    monkeypatch.setattr(sys, "path", [str(plugin(tmp_path, "aaa", "tables = aaa:HELLO", HELLO)), *sys.path])
    importlib.invalidate_caches()

    done = tableorm("tables", url)
    assert (done.returncode, done.stdout) == (0, "Directory\n")
    assert done.stderr == "tableorm: command 'tables' of aaa is left out: another command has that name\n"


def interrupt(command: list[str], *path: Path) -> tuple[int, bytes]:
    """Send a process SIGINT when it has printed a line, and return its status and its complaint."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    # A shell's background job ignores the signal, and so would its children; what has a handler here has none there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        complaint = process.stderr.read()
    return process.returncode, complaint


@posix_only
def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C ends it with status 130, and a line that says how to go on."""
    code = HELLO.replace('print("hello", args.name)', 'print("hello", flush=True); import time; time.sleep(60)')
    path = plugin(tmp_path, "hello", "hello = hello:HELLO", code)

    assert interrupt([COMMAND, "hello", "you"], path) == (130, b"tableorm: interrupted; run it again\n")


@posix_only
def test_interrupt_while_it_ends(tmp_path: Path) -> None:
    """Ctrl-C after the outcome was printed changes nothing, where Python would die of the signal without a line."""
    code = "import atexit, time\natexit.register(time.sleep, 1)\natexit.register(print, 'ending', flush=True)\n" + HELLO
    path = plugin(tmp_path, "hello", "hello = hello:HELLO", code.replace('print("hello", args.name)', ""))

    assert interrupt([COMMAND, "hello", "you"], path) == (0, b"")


@posix_only
def test_interrupt_removes_the_bar(tmp_path: Path) -> None:
    """A bar leaves room for the ^C that a terminal shows beside it, so that it fits into the line that is removed."""
    import pty

    show = 'from tableorm.cli.output import show_progress; show_progress("#" * 200); import time; time.sleep(60)'
    code = HELLO.replace('print("hello", args.name)', show)
    environment = {**os.environ, "PYTHONPATH": str(plugin(tmp_path, "hello", "hello = hello:HELLO", code))}
    environment |= {"COLUMNS": "40", "NO_COLOR": "1"}
    main, side = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "hello", "you"], stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True
    ) as process:
        shown = ""
        while not shown.endswith("#"):
            shown += os.read(main, 1000).decode()
        process.send_signal(signal.SIGINT)
        process.wait()
    os.close(side)
    left = read_terminal(main)

    screen = Screen(shown + "^C" + left)
    assert len(Screen(shown).lines[0]) + len("^C") < 40
    assert (screen.lines, screen.row) == (["tableorm: interrupted; run it again"], 1)
    assert screen.cursor


def test_pipes_do_not_wait_for_colours(url: str) -> None:
    """Neither the package nor a command whose output is no terminal imports what rich prints with."""
    code = (
        "import atexit, sys, tableorm; from tableorm.cli import main;"
        "atexit.register(lambda: print('rich.console' in sys.modules)); main(sys.argv[1:])"
    )
    for command in (["tables", url], ["stats", url], ["query", url, "Directory", "--all"], ["query", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, check=True)
        *printed, imported = done.stdout.splitlines()
        assert printed
        assert imported == b"False"


@posix_only
def test_interrupt_while_it_starts(tmp_path: Path) -> None:
    """Ctrl-C ends it in the same way while its modules are still imported."""
    (tmp_path / "attrs.py").write_text("print('importing', flush=True); import time; time.sleep(60)", encoding="utf-8")
    code = "import sys; from tableorm_command import main; sys.exit(main())"

    ended = interrupt([sys.executable, "-c", code], tmp_path, ROOT)
    assert ended == (130, b"tableorm: interrupted; run it again\n")


def test_an_interrupted_backup(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves no copy behind, so that the command can be run again as it says."""
    command = "backup", url.removeprefix("local:"), str(tmp_path / "copy.tables")

    def stop(_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("tableorm_local.engine.backup.find_damage", stop)
        interrupted = tableorm(*command)
        left = [*tmp_path.iterdir()]

    assert (interrupted.returncode, interrupted.stderr) == (130, "tableorm: interrupted; run it again\n")
    assert left == []
    assert tableorm(*command).returncode == 0


MODELS = """
from tableorm import Entity, Index, Mapped
class Employee(Entity, table="Directory", partition_key="{department}", row_key="employee_{id}"):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    by_name = Index(row_key="name_{name}_{id}")
Entry = Employee
"""
KEYS = """
from tableorm import Encryption, KeyRing
encryption = Encryption(KeyRing({"a": bytes(32)}, wrap_with="a"))
"""


def test_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The help of every command ends with examples, which are whole lines that it takes; the rest fits the terminal."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for package in ("hr", "logs"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "models.py").write_text(MODELS, encoding="utf-8")
        (tmp_path / package / "keys.py").write_text(KEYS, encoding="utf-8")
    root = make_parser([])
    commands = [name for name, _ in root.words() if " --" not in name]  # those of options have their values
    assert len(commands) > 33
    for name in commands:
        shown = tableorm(*name.split()[1:], "--help").stdout
        help_of_arguments, _, examples = shown.partition("\n\n")[2].partition("\nexamples:\n")
        assert max(map(len, help_of_arguments.splitlines())) <= 40, name
        lines = examples.replace("\\\n        ", "").splitlines()
        assert lines, name
        assert max(map(len, examples.splitlines())) <= 80, name
        for line in lines:
            assert line.startswith("    tableorm "), line
            arguments = shlex.split(line, comments=True)[1:]
            end = next((at for at, each in enumerate(arguments) if each in ("|", ">")), None)
            make_parser(arguments[:end]).parse_command(arguments[:end])
    for module in [name for name in sys.modules if name.partition(".")[0] in ("hr", "logs")]:
        del sys.modules[module]  # the pages have packages of these names too
