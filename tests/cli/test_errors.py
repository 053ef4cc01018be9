"""
What is printed for mistakes: always one line, which names what is wrong and what could be meant.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tableorm.cli.wording import in_options
from tests.cli.models import Employee
from tests.commandline import COMMAND, insert_all
from tests.commandline import run_command as tableorm

MODELS = """
from tableorm import Entity, Mapped
class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int]
"""
ENTRY = """
import datetime as dt
class Entry(Entity, table="Entries{at:%Y%m}", partition_key="{source}", row_key="{at:ticks}"):
    source: Mapped[str]
    at: Mapped[dt.datetime]
from tableorm import Index
class Note(Entity, table="Notes", partition_key="{topic}", row_key="note_{id}"):
    topic: Mapped[str]
    id: Mapped[int]
    by_id = Index(row_key="id_{id}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with databases of one table, a module of models, modules that cannot be imported, and other files."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "mistaken.py").write_text(MODELS + ENTRY, encoding="utf-8")
    (folder / "broken.py").write_text(f"{MODELS}\n\nprint(Manager)\n", encoding="utf-8")
    (folder / "hr.py").write_text(MODELS, encoding="utf-8")
    (folder / "interrupted.py").write_text("import signal; signal.raise_signal(signal.SIGINT)", encoding="utf-8")
    (folder / "misspelt.py").write_text(f"{MODELS}    name: Mapped[int\n", encoding="utf-8")
    (folder / "leaves.py").write_text("import sys; sys.exit(3)", encoding="utf-8")
    (folder / "notes.txt").write_text("no database\n" * 100, encoding="utf-8")
    (folder / "noise.csv").write_bytes(b"\xff\xfe\x00")
    (folder / "one.key").write_text("c2VjcmV0", encoding="utf-8")
    (folder / "one.key").chmod(0o600)
    insert_all(f"local:{folder / 'hr.tables'}", Employee)
    insert_all(f"local:{folder / 'few.tables'}", Employee, Employee(department="Sales", id=7))
    return folder


@pytest.fixture(autouse=True)
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command runs in this folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TABLEORM_URL", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in ("mistaken", "broken", "misspelt"):
        sys.modules.pop(name, None)


URL = "local:./hr.tables"
MODULE = f"audit {URL} mistaken"
SERVE = "serve --port 0 --data"
ACCOUNT = "--account one --key-file one.key"

WRONG_USAGE = {
    # The command, or its arguments, are misspelt or missing.
    "tabels": "tableorm: there is no command 'tabels': did you mean 'tables'?",
    "--versions": "tableorm: unknown argument '--versions': did you mean '--version'?",
    "outbox --tracback": "outbox: unknown argument '--tracback': did you mean '--traceback'?",
    f"outbox lst {URL} Directory": "outbox: there is no action 'lst': did you mean 'list'?",
    f"show {URL} Directory --limt 3": "show: unknown argument '--limt': did you mean '--limit'?",
    f"show {URL} Directory --limit": "show: argument --limit: expected one argument",
    f"show {URL}": "show: TABLE is missing",
    f"audit {URL}": "audit: MODULE[:MODEL] is missing",
    "audit mistaken": "audit: 'mistaken' is not a URL; give one first, such as local:./hr.tables, or set",
    "tables": "tables: argument URL: it is missing; give it first, such as local:./hr.tables, or set",
    "tables foo": "tables: 'foo' is not a URL; give one first, such as local:./hr.tables, or set TABLEORM_URL",
    "copy local:./hr.tables": "copy: TO is missing",
    f"tables {URL} Directory": "tables: unknown argument 'Directory': in the wrong place, or one too many",
    f"migrate status {URL} UNKNOWN": "migrate status: unknown argument 'UNKNOWN': in the wrong place",
    f"tables {URL} AccountKey=c2VjcmV0": "tables: unknown argument in the wrong place, or one too many",
    "backup hr.tables local:./copy.tables": "'local:./copy.tables' is a URL; give the path, ./copy.tables",
    f"query {URL} Directory --all --csv --json": "query: --csv and --json cannot be combined; choose one",
    "serve": "serve: --data is missing",
    "keys rotate": "keys rotate: FILE is missing",
    f"outbox drop {URL} Directory": "outbox drop: --token is missing",
    "migrate revision mistaken": "migrate revision: --message is missing",
    f"import {URL} Directory x.csv --if-exists merge": (
        "argument --if-exists: there is no choice 'merge': the choices are"
    ),
    f"copy {URL} local:./none --if-exists merge": "argument --if-exists: there is no choice 'merge': the choices are",
    # What is opened is not there, or is no database.
    f"query {URL} hr --all": "'hr' is not the name of a table; for a model write MODULE:MODEL; see",
    f"query {URL} hr --explain": "'hr' is not the name of a table; for a model write MODULE:MODEL; see",
    f"query {URL} hr.Employee": "'hr.Employee' is not the name of a table; for a model write MODULE:MODEL; see",
    f"query {URL} hr.models": "'hr.models' is not the name of a table; for a model write MODULE:MODEL; see",
    # The models cannot be loaded.
    f"{MODULE}:Employe": "mistaken has no attribute 'Employe': did you mean 'Employee'?",
    f"{MODULE}:Mapped": "'mistaken:Mapped' is not a model",
    f"{MODULE}:dt": "'mistaken:dt' is not a model",
    f"worker {URL} mistaken:Employe": "mistaken has no attribute 'Employe': did you mean 'Employee'?",
    f"migrate rewrite {URL} mistaken:Employe": "mistaken has no attribute 'Employe': did you mean 'Employee'?",
    f"migrate build-index {URL} mistaken:Note.by_ids": (
        "Note has no attribute 'by_ids': did you mean 'by_id'? the name is by_id"
    ),
    f"audit {URL} mistaken/models": "the argument is not a model; give MODULE:MODEL",
    f"audit {URL} c2VjcmV0==": "the argument is not a model; give MODULE:MODEL",
    f"audit {URL} tests.azurite": "'tests.azurite' has no models; name the module that declares or imports them",
    f"audit {URL} AccountName=acc;AccountKey=c2VjcmV0": "the argument is not a model; give MODULE:MODEL",
    # Options that are given twice, or have values that they do not take.
    f"query {URL} Directory --top 5 --top 5": "query: argument --top: it is given twice; see tableorm query",
    f"export {URL} Directory - --where a --where=b": "export: argument --where: it is given twice",
    f"query {URL} Directory --top 0": "argument --top: '0' is not a whole number from 1 up",
    f"query {URL} Directory --top 1_0": "argument --top: '1_0' is not a whole number from 1 up",
    f"--json=1 tables {URL}": "argument --json: ignored explicit argument '1'",
    f"browse {URL} --web --port 70000": "argument --port: '70000' is not a port, 0 to 65535",
    f"stats {URL} --gib-price nan": "argument --gib-price: 'nan' is not a price, such as 0.045",
    f"stats {URL} --gib-price 1e400": "argument --gib-price: '1e400' is not a price, such as 0.045",
    f"stats {URL} --gib-price free": "argument --gib-price: 'free' is not a price, such as 0.045",
    f"stats {URL} --gib-price=-1": "argument --gib-price: '-1' is not a price, such as 0.045",
    f"worker {URL} mistaken:Employee --concurrency 0": "argument --concurrency: '0' is not a whole number from 1 up",
    f"migrate rewrite {URL} mistaken:Employee --rate 0": "argument --rate: '0' is not a whole number from 1 up",
    "serve --data hr.tables --workers 0": "argument --workers: '0' is not a number of processes, 1 to 64",
    "serve --data hr.tables --port 70000": "argument --port: '70000' is not a port, 0 to 65535",
    "serve --data hr.tables --workers 65": "argument --workers: '65' is not a number of processes, 1 to 64",
}
"""Commands whose arguments are wrong, which the status 2 tells, and what is said of them."""
FAILURES = {
    # The command, or its arguments, are misspelt or missing.
    f"browse {URL}": "tableorm browse needs a terminal; give --web for a page that shows the same",
    # What is opened is not there, or is no database.
    "tables local:./notes.txt": "notes.txt",
    "tables ./hr.tables": "tableorm: url does not begin with a scheme",
    "tables local:./none": "none'; check the path, or let `tableorm import` or `tableorm copy` create it",
    "copy local:./none local:./copy.tables": "there is no database",
    "keys rotate none": "there is no database",
    "backup none copy.tables": "there is no database",
    "migrate status local:./none": "there is no database",
    "migrate upgrade local:./none mistaken": "there is no database",
    "tables ftp://example.org": "no installed backend opens 'ftp:'",
    "check hr.tabels": "there is no database",
    f"show {URL} $MetricsHourly": "there is no table '$MetricsHourly'",
    f"show {URL} Direktory": "there is no table 'Direktory'; did you mean 'Directory'? the table is Directory",
    f"query {URL} Direktory": "there is no table 'Direktory'; did you mean 'Directory'? the table is Directory",
    f"query {URL} mistaken": "tableorm: there is no table 'mistaken'; for a model write mistaken:MODEL\n",
    f"get {URL} mistaken PartitionKey=a RowKey=b": "there is no table 'mistaken'; for a model write mistaken:MODEL",
    "get local:./few.tables mistaken:Employee department=Sales id=8": "there is no Employee",
    f"get {URL} Directory PartitionKey=P RowKey=R": "there is no row ('P', 'R') in table Directory",
    f"export {URL} Directory \x1b[31m/x.csv": "31m/x.csv: its folder does not exist; create it first",
    f"export {URL} Directory noise.csv": "noise.csv: the file already exists",
    f"export {URL} Directory no/such/folder/x.csv": "no/such/folder/x.csv: its folder does not exist; create it first",
    "backup hr.tables no/such/folder/x": "tableorm: no/such/folder/x: ",
    f"import {URL} Directory notes.txt": "or give --format 'jsonl', 'csv' or 'parquet'",
    f"import {URL} Directory none.csv": "none.csv",
    # Files that cannot be written or read.
    f"export {URL} Directory notes.txt/x.csv": "tableorm: notes.txt/x.csv: ",
    f"export {URL} Directory . --format csv --overwrite": "tableorm: .: it is a folder or a device; give the path of a",
    "backup hr.tables hr.tables --overwrite": "it is the database itself",
    "backup hr.tables . --overwrite": "tableorm: .: it is a folder or a device; give the path of a file",
    f"import {URL} Directory . --format csv": "tableorm: .: ",
    f"import {URL} Directory noise.csv": "tableorm: noise.csv, line 1: 'noise.csv' is not CSV in UTF-8: ",
    f"copy {URL} local:./no/such/folder/x": "cannot be created: there is no folder",
    f"audit {URL} mistaken:Employee --state .": "tableorm: .: ",
    f"audit {URL} mistaken:Employee --state noise.csv": "is not a cursor, or is damaged",
    f"audit {URL} mistaken:Employee --state notes.txt": "start again",
    "migrate check mistaken --snapshot .": "tableorm: .: ",
    "migrate check mistaken --snapshot noise.csv": "noise.csv is no snapshot of models: ",
    "init notes.txt": "tableorm: notes.txt: ",
    "init 2nd": "'2nd' is not a valid package name",
    "init asyncio": "'asyncio' is a module",
    "init Pytest": "'pytest' is a module",
    # What cannot be served.
    f"{SERVE} :memory: --host 192.0.2.1 {ACCOUNT}": "cannot listen at",
    f"{SERVE} x.tables --host 0.0.0.0": "the development key is published",
    f"{SERVE} one.key": "is not a database",
    f"{SERVE} x.tables --account one": "each --account needs a --key-file",
    f"{SERVE} x.tables --account one --key-file none.key": "none.key",
    f"{SERVE} x.tables {ACCOUNT} {ACCOUNT}": "two accounts have one name",
    f"{SERVE} :memory: --workers 2": "several processes cannot share a database in memory",
    f"{SERVE} no/such/x.tables --workers 2": "no/such",
    f"{SERVE} x.tables --cert none.pem": "the certificate cannot be used",
    # The models cannot be loaded.
    f"audit {URL} nowhere": "'nowhere' cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
    f"audit {URL} broken": "NameError: name 'Manager' is not defined (broken.py, line 9)",
    f"audit {URL} leaves": "'leaves' cannot be imported: SystemExit: 3 (leaves.py, line 1)",
    f"audit {URL} misspelt": "SyntaxError: '[' was never closed (misspelt.py, line 7)",
    f"query {URL} mistaken:Employee --where agee>3": "Employee has no field 'agee'; did you mean 'age'?",
    f"query {URL} mistaken:Employee --where age>'x'": "the field is int",
    f"query {URL} mistaken:Employee --where age>": "--where 'age>' is rejected: invalid syntax",
    f"query {URL} Directory --where age>3": "tableorm: --where: filter at position 3: '>' is not an operator",
    f"query {URL} mistaken:Employee --only nmae": "Employee has no such field; the fields are department, id, age",
    f"query {URL} mistaken:Employee": 'is built; add "department == ..." to --where, or --all to scan anyway',
    f"query {URL} Directory": 'tableorm: the query visits every partition of table Directory; add "PartitionKey eq',
    f"query {URL} mistaken:Entry": (
        'the query of Entry would visit the tables of all periods; add "at >= ..." to --where, or --all'
    ),
    f"query {URL} mistaken:Entry --where source>'a)'": "tableorm: the query of Entry would visit the tables of all",
    f"rewrap {URL} mistaken:Employee": "tableorm: rewrap needs keys; give --encryption MODULE:NAME",
    f"drop-periods {URL} mistaken:Employee --before 2026-01-01": "tableorm: drop-periods Employee is rejected: ",
    f"get {URL} mistaken:Employee department=Sales department=HR id=7": (
        "'department=HR' is rejected: department is given twice"
    ),
    f"get {URL} mistaken:Employee department=Sales": "Employee.key needs 'id'",
    f"get {URL} mistaken:Employee department=Sales id=x": "needs an int, got 'x'",
    f"get {URL} mistaken:Employee department=Sales no=7": "give FIELD=VALUE; the fields are department, id, age",
    f"get {URL} Directory PartitionKey=Sales": "RowKey is missing; give PartitionKey=VALUE and RowKey=VALUE",
    f"sweep {URL} tests.cli.models:Employee tests.cli.models:Manager": (
        "there is nothing to sweep: no entities of Employee, Manager expire, and none has a change feed; "
        "name models that have a field with `expiry=True`, or a `Feed`\n"
    ),
    "lint mistaken --ignore x": "lint --ignore 'x' is rejected",
    "migrate check mistaken": "there is no snapshot models.snapshot.json; write the first one with --write",
    f"migrate build-index {URL} mistaken:Employee": (
        "tableorm: migrate build-index Employee is rejected: give an index of a class, as in Employee.by_email"
    ),
    f"migrate build-index {URL} mistaken:Note.by_id mistaken:Employee --name x": (
        "tableorm: --name is the name of one run; give one index, or leave the name out\n"
    ),
    f"migrate plan {URL} mistaken:Employee": "give one model with moved_from=, as MODULE:MODEL; 0 were found",
    f"migrate verify {URL} mistaken:Employee --offline": "give one model with moved_from=",
    f"migrate upgrade {URL} mistaken --directory none": "none has no revisions; write the first one",
}
"""Commands that fail otherwise, with the status 1."""
INTERRUPTED = {
    f"audit {URL} interrupted --name n": "interrupted; with --name or --state, the same command resumes where",
    "lint interrupted": "tableorm: interrupted; run it again\n",
}
"""Commands whose models interrupt them."""
CASES = [
    (command, status, problem)
    for status, problems in ((2, WRONG_USAGE), (1, FAILURES), (130, INTERRUPTED))
    for command, problem in problems.items()
]


@pytest.mark.parametrize(("command", "status", "problem"), CASES, ids=[command for command, *_ in CASES])
def test_mistakes(command: str, status: int, problem: str, folder: Path) -> None:
    """
    Each is one line on stderr, which can be printed, and nothing on stdout; no file is made or deleted. The status is 2
    if the arguments are wrong, otherwise 1.
    """
    files = {*folder.rglob("*")}
    done = tableorm(*command.split())

    assert (done.returncode, done.stdout) == (status, ""), done
    assert done.stderr.startswith("tableorm: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.removesuffix("\n").isprintable()
    assert "c2VjcmV0" not in done.stderr
    assert {*folder.rglob("*")} == files


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="capability: only Linux has a disk that is full")
@pytest.mark.parametrize(
    "command", [f"tables {URL}", "query local:./few.tables Directory --all --csv", "tables --help", "completion zsh"]
)
def test_a_disk_that_is_full(command: str) -> None:
    """What cannot be written to stdout is a line on stderr, and the status is 1."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run([COMMAND, *command.split()], stdout=full, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.startswith(b"tableorm: ") and b"Errno" not in done.stderr


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("connect(prefix='9'): no name begins so", "--prefix '9': no name begins so"),
        (
            'this database has no queues; say where they are: connect(url, queues=...), for example queues="local:./q"',
            "this database has no queues; say where they are: --queues URL",
        ),
        (
            "read it with PropertyBag.key('Staff', 'a', 'b'), or declare the model with kind=None",
            "read it with `get URL 'Staff' PartitionKey='a' RowKey='b'`, or declare the model with kind=None",
        ),
        (
            "run db.build_index(Employee.by_name, no_older_writers=True) once every program",
            "run `migrate build-index URL MODULE:Employee.by_name --no-older-writers` once every program",
        ),
        (
            "run_move(Note) is rejected: stop it, and pass no_blind_writers=True (the command: --no-blind-writers)",
            "move Note is rejected: stop it, and pass --no-blind-writers",
        ),
        (
            "add .where(Log.a == ..., Log.b == ...), or .allow_scan() to scan",
            'add "a == ... and b == ..." to --where, or --all to scan',
        ),
        ("drop_periods(Log): blobs='x' is rejected", "drop-periods Log: --delete-blobs 'x' is rejected"),
        (
            "the file already exists; use overwrite=True or --overwrite to replace it",
            "the file already exists; use --overwrite to replace it",
        ),
        ("Employee.name: 'a.where(b)' can't be where=True or --x", "Employee.name: 'a.where(b)' can't be --x"),
        ("there is no row ('x', \"q=True or --a's\")", "there is no row ('x', \"q=True or --a's\")"),
    ],
)
def test_words_of_the_command_line(message: str, shown: str) -> None:
    """Calls and arguments of programs become commands and options; everything else stays."""
    assert in_options(message) == shown


@pytest.mark.parametrize("text", ["a" * 100_000, "run_" * 25_000, ".where(" * 15_000, "PropertyBag.key(" * 6_000])
def test_long_words_take_no_time(text: str) -> None:
    """A message with a long word in it is printed at once."""
    begun = time.monotonic()
    assert in_options(text) == text
    assert time.monotonic() - begun < 5
