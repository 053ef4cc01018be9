"""
Measure what the tests see: put faults into copies of the code, by a seed, and run the tests that execute the changed
line.

    .venv/bin/python -m scripts.mutate --seed 1 --count 200 --jobs 2

First every test runs once under coverage, which says which tests execute a line; that is kept in `.cache/mutation`, and
measured anew for what has changed. Then each fault gets its tests, the likeliest first, until one fails: in a fork of a
process that has collected all tests, or in a process of its own where the import executes the changed line. What no
test saw is printed with its change. A fault that changes no behaviour cannot be seen: whoever has found out why writes
it into `scripts/judged_faults.toml`, as it is printed, with the reason.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import defaultdict
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import count
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from coverage import CoverageData
from coverage.exceptions import DataError

from scripts.faults import Fault, draw_faults

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mutation"
JUDGED = ROOT / "scripts" / "judged_faults.toml"
LOCAL = "backends/tableorm_local"
PACKAGES = ["tableorm/writes", "tableorm/queries/planning", f"{LOCAL}/engine", f"{LOCAL}/server", "tableorm/audit"]
CODE = ("tableorm", "backends", "migrations", "tests")
# These tests check the layout and the types, which a fault may well leave as they are.
NOT_BEHAVIOUR = {"packaging", "typing"}
MOST_UNSEEN = 0.05
# So many tests are tried before all others are collected, which takes longer than to run them.
FIRST_TESTS = 30
# A test that executes lines so near to a fault, which few others do, probably sees it.
AROUND = 12
# What a test needs beside what is measured.
SETUP_SECONDS = 0.02

SETTINGS = """
[run]
relative_files = true
parallel = true
sigterm = true
source = tableorm, backends
context = ${MUTATE_TEST-}
data_file = ${MUTATE_DATA}
disable_warnings = no-data-collected, module-not-measured, module-not-imported, already-imported
"""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a fault: "seen", "hang", "unseen", "not run" or "judged"; by which test, and what that said."""

    outcome: str
    test: str = ""
    error: str = ""


class Copies:
    """Copies of the project, of which each is used by one run at a time."""

    def __init__(self, folder: Path, number: int) -> None:
        self._free = SimpleQueue[Path]()
        self._times = count(1)
        for each in range(number):
            tree = folder / f"tree{each}"
            # What begins with a dot is the environment and caches.
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "site"))
            if (ROOT / ".azurite").exists():
                (tree / ".azurite").symlink_to((ROOT / ".azurite").resolve())
            self._free.put(tree)

    @contextmanager
    def take(self, fault: Fault | None = None) -> Generator[Path]:
        """Lend a copy, with a fault in it."""
        tree = self._free.get()
        source = (ROOT / fault.path).read_bytes() if fault else b""
        try:
            if fault:
                self._write(tree / fault.path, fault.apply(source))
            yield tree
        finally:
            if fault:
                self._write(tree / fault.path, source)
            self._free.put(tree)

    def _write(self, path: Path, text: bytes) -> None:
        path.write_bytes(text)
        # Python takes compiled code for current by the size and the time of its source: no time comes twice.
        time = next(self._times)
        os.utime(path, (time, time))


def start_pytest(tree: Path, arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    """Start pytest in a copy, with the plug-in."""
    path = os.pathsep.join([str(tree), str(tree / "backends"), str(tree / "migrations")])
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "scripts.mutate_plugin", "-p", "no:cacheprovider", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "MUTATE_REPORT": str(tree / ".report"), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def read_report(tree: Path) -> list[dict[str, Any]]:
    """Return the plug-in's lines, and begin a new report."""
    report = tree / ".report"
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    report.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]


def run_tests(
    tree: Path, arguments: list[str], seconds: float, **environment: str
) -> tuple[int, str, list[dict[str, Any]]]:
    """Run pytest in a copy. Return its status, -1 after so many seconds; what it printed; and the plug-in's lines."""
    read_report(tree)
    started = start_pytest(tree, arguments, **environment)
    printed: list[str] = []
    # A process that a test has left behind may hold the output open for ever, so that nothing waits for its end.
    reader = threading.Thread(target=lambda: printed.extend(started.stdout or ()), daemon=True)
    reader.start()
    try:
        status = started.wait(seconds)
    except subprocess.TimeoutExpired:
        status = -1
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    reader.join(5)
    return status, "".join(printed), read_report(tree)


class Collected:
    """A process for each copy that has collected all tests, and forks for each fault."""

    def __init__(self, copies: Copies, jobs: int) -> None:
        self._connections: dict[Path, Connection] = {}
        self._started: list[subprocess.Popen[str]] = []
        self._copies = copies
        self._passing: dict[str, bool] = {}
        with ExitStack() as lent:
            for tree in [lent.enter_context(copies.take()) for _ in range(jobs)]:  # without a fault to import
                self._connections[tree] = self._start(tree)

    def run(
        self, tree: Path, tests: list[str], seconds: float, fault: Fault | None
    ) -> tuple[int, list[dict[str, Any]]]:
        """Run tests with a fault. Return the status of pytest, -1 after so many seconds, and the plug-in's lines."""
        read_report(tree)
        asked: dict[str, Any] = {"source": None, "tests": tests, "seconds": seconds}
        if fault:
            source = (ROOT / fault.path).read_bytes()
            asked |= {"path": str(tree / fault.path), "source": (source, fault.apply(source))}
        self._connections[tree].send(asked)
        status: int = self._connections[tree].recv()
        return status, read_report(tree)

    def passes(self, test: str, seconds: float) -> bool:
        """Whether a test passes in a fork without a fault: one that does not can see none."""
        if test not in self._passing:
            with self._copies.take() as tree:
                status, _ = self.run(tree, [test], seconds, None)
            self._passing[test] = not status
        return self._passing[test]

    def _start(self, tree: Path) -> Connection:
        address = tree / ".socket"
        with Listener(str(address)) as listener:
            # Without "plain" pytest changes the code of functions that assert, of the project's modules too.
            options = ["--assert=plain", "--basetemp", str(tree / ".basetemp"), "tests"]
            started = start_pytest(tree, options, MUTATE_SERVE=str(address))
            threading.Thread(target=lambda: list(started.stdout or ()), daemon=True).start()
            self._started.append(started)
            return listener.accept()

    def close(self) -> None:
        """End the processes."""
        for each in self._connections.values():
            each.close()
        for started in self._started:
            started.kill()
            started.wait()


class Recorded:
    """Which tests execute a line, and how long each takes; measured for each file of tests whose code has changed."""

    def __init__(self, copies: Copies, jobs: int, chosen: list[str]) -> None:
        files = {path for name in CODE for path in (ROOT / name).rglob("*.py")}
        tests = {path for path in files if path.name.startswith("test_") and path.is_relative_to(ROOT / "tests")}
        code = sha256(os.environ.get("PYTEST_ADDOPTS", "").encode())
        for path in sorted(files - tests):
            code.update(path.read_bytes())
        self._copies, self._code = copies, code.digest()
        tests = {path for path in tests if any(path.is_relative_to(ROOT / each) for each in chosen)}
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "settings.ini").write_text(SETTINGS, encoding="utf-8")
        with ThreadPoolExecutor(jobs) as pool:
            wanted = [path for path in tests if path.relative_to(ROOT).parts[1] not in NOT_BEHAVIOUR]
            self._measured = list(pool.map(self._measure, sorted(wanted)))
        self.durations: dict[str, float] = {}
        for each in self._measured:
            self.durations |= json.loads(each.with_suffix(".json").read_text(encoding="utf-8"))

    def _measure(self, path: Path) -> Path:
        name = path.relative_to(ROOT).as_posix()
        data = CACHE / f"{sha256(self._code + name.encode() + path.read_bytes()).hexdigest()[:24]}.coverage"
        if data.with_suffix(".json").exists():
            return data
        environment = {"COVERAGE_PROCESS_START": str(CACHE / "settings.ini"), "MUTATE_DATA": str(data)}
        with self._copies.take() as tree:
            _, printed, lines = run_tests(tree, [name], 1800, **environment)
        data.unlink(missing_ok=True)
        measured = CoverageData(str(data))
        for each in CACHE.glob(f"{data.name}.*"):  # one of each process
            part = CoverageData(str(each))
            with suppress(DataError):  # the process was killed while it wrote
                part.read()
                measured.update(part)
            each.unlink()
        durations = defaultdict[str, float](float)
        for line in lines:
            durations[line["test"]] += line.get("duration", 0)
        failed = {line["test"] for line in lines if line.get("outcome") == "failed"}
        print(f"measured {name}: {len(durations)} tests, {len(failed)} failed", flush=True)
        if failed:
            print(printed[-2000:], flush=True)
        passed = {test: seconds for test, seconds in durations.items() if test not in failed}
        data.with_suffix(".json").write_text(json.dumps(passed), encoding="utf-8")
        return data

    @cache  # noqa: B019 - it lives as long as the program
    def _lines_of(self, path: str) -> dict[int, set[str]]:
        found = defaultdict[int, set[str]](set)
        for each in self._measured:
            data = CoverageData(str(each))
            data.read()
            for line, tests in data.contexts_by_lineno(path).items():
                found[line].update(tests)
        return found

    def tests_of(self, fault: Fault, seconds: float) -> list[str]:
        """
        Return the tests that execute what is changed, as many as take so many seconds together.

        The first ones are fast, and execute lines around it that few others do. Where what is changed is executed by
        the import, or in no test, these are all tests that execute something of the module.
        """
        lines = self._lines_of(fault.path)
        near = {test for line in fault.lines for test in lines.get(line, ()) if test in self.durations}
        if not near or fault.on_import:
            near = {test for tests in lines.values() for test in tests if test in self.durations}
        least = dict.fromkeys(near, len(self.durations))
        for line in range(fault.lines.start - AROUND, fault.lines.stop + AROUND):
            tests = lines.get(line, set())
            for test in tests & near:
                least[test] = min(least[test], len(tests))
        chosen: list[str] = []
        for test in sorted(near, key=lambda test: ((self.durations[test] + SETUP_SECONDS) * least[test], test)):
            if self.durations[test] <= seconds or not chosen:  # what takes too long keeps no shorter one out
                seconds -= self.durations[test]
                chosen.append(test)
        return chosen

    def runs_on_import(self, fault: Fault) -> bool:
        """Whether the import of a module, or the collection of tests, executes what is changed."""
        lines = self._lines_of(fault.path)
        return fault.on_import or any("" in lines.get(line, ()) for line in fault.lines)


def try_fault(
    fault: Fault, copies: Copies, collected: Collected, recorded: Recorded, seconds: float, most: float
) -> Verdict:
    """Run a fault's tests until one fails, or for `most` seconds. A test hangs after `seconds`."""
    tests = recorded.tests_of(fault, most)
    if not tests:
        return Verdict(outcome="not run")
    total = 4 * seconds + 5 * sum(recorded.durations[test] for test in tests)
    if not fault.on_import:
        # Python compiles nothing anew for a fork. Processes that its tests start read the changed file.
        while True:
            with copies.take(fault) as tree:
                status, lines = collected.run(tree, tests, total, fault)
            verdict = judge(status, lines)
            if verdict.test not in tests or collected.passes(verdict.test, total):
                break
            print(f"{verdict.test} fails in a fork without a fault: {verdict.error}", flush=True)
            tests = [test for test in tests if test != verdict.test]
        possible = not any(line["when"] == "swap" for line in lines)
        if possible and (verdict.outcome != "unseen" or not recorded.runs_on_import(fault)):
            return verdict
    with copies.take(fault) as tree:
        for part in filter(None, (tests[:FIRST_TESTS], tests[FIRST_TESTS:])):
            (tree / ".tests").write_text("\n".join(part), encoding="utf-8")
            longest = max(recorded.durations[test] for test in part)
            options = ["-x", "-o", f"faulthandler_timeout={seconds + 5 * longest:.0f}"]
            files = list(dict.fromkeys(test.partition("::")[0] for test in part))
            status, printed, lines = run_tests(tree, [*options, *files], total, MUTATE_TESTS=str(tree / ".tests"))
            verdict = judge(-1 if "Timeout (" in printed else status, lines)
            if verdict.outcome != "unseen":
                return verdict
    return Verdict(outcome="unseen")


def judge(status: int, lines: list[dict[str, Any]]) -> Verdict:
    """Say what a run of tests means: its status and the plug-in's lines."""
    for line in lines:
        if line.get("outcome") == "failed":
            return Verdict(outcome="seen", test=line["test"], error=line["error"])
    if status:  # pytest itself was ended, by a crash or for its time
        last = lines[-1]["test"] if lines else "the collection of tests"
        return Verdict(outcome="hang" if status == -1 else "seen", test=last, error=f"pytest ended with {status}")
    return Verdict(outcome="unseen")


def report(faults: dict[int, Fault], diffs: dict[int, str], verdicts: dict[int, Verdict]) -> float:
    """Print what was not seen and how many there are of each outcome. Return the share of the unseen."""
    chosen = defaultdict[str, list[int]](list)
    for number, verdict in verdicts.items():
        chosen[verdict.outcome].append(number)
    unseen = [*chosen["unseen"], *chosen["not run"]]
    for number in unseen:
        print(f"\n# Fault {number}, {faults[number].kind}: {verdicts[number].outcome}.\n[[fault]]")
        print(f"place = \"{faults[number].place}\"\ndiff = '''\n{diffs[number]}\n'''\nreason = \"\"")
    counted = len(faults) - len(chosen["judged"])
    print(f"\n{len(faults)} faults; {len(chosen['judged'])} change nothing, as somebody has judged.")
    print(f"Of the other {counted}, {len(unseen)} were not seen: {unseen}")
    print(f"{len(chosen['hang'])} were seen by a hang alone: {chosen['hang']}")
    return len(unseen) / max(counted, 1)


def main() -> None:
    """Draw faults, try them, and print what the tests saw."""
    parser = argparse.ArgumentParser(description="Put faults into copies of the code and see which the tests notice.")
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="folders or modules to put faults into")
    parser.add_argument("--seed", type=int, default=1, help="chooses the faults")
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of faults, to try these alone of all drawn")
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at once")
    parser.add_argument("--timeout", type=float, default=30, help="seconds after which a test hangs")
    parser.add_argument("--most", type=float, default=120, help="seconds of tests for each fault")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="folders or files of tests")
    given = parser.parse_args()

    drawn = draw_faults(ROOT, given.packages, given.count, given.seed)
    faults = {number: fault for number, fault in enumerate(drawn, 1) if not given.only or number in given.only}
    diffs = {number: fault.diff((ROOT / fault.path).read_bytes()) for number, fault in faults.items()}
    known = tomllib.loads(JUDGED.read_text(encoding="utf-8")).get("fault", [])
    judged: dict[tuple[str, str], str] = {(each["place"], each["diff"].strip("\n")): each["reason"] for each in known}

    def attempt(number: int) -> Verdict:
        fault = faults[number]
        reason = judged.get((fault.place, diffs[number]))
        verdict = (
            Verdict(outcome="judged", error=reason)
            if reason
            else try_fault(fault, copies, collected, recorded, timeout, most)
        )
        where = f"{fault.path}:{fault.lines.start} {fault.scope}"
        print(f"{number:4} {verdict.outcome:8} {fault.kind:12} {where}  {verdict.test}  {verdict.error}", flush=True)
        return verdict

    timeout: float = given.timeout
    most: float = given.most
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        copies = Copies(Path(folder), given.jobs)
        recorded = Recorded(copies, given.jobs, given.tests)
        collected = Collected(copies, given.jobs)
        try:
            verdicts = dict(zip(faults, pool.map(attempt, faults), strict=True))
        finally:
            collected.close()
    sys.exit(report(faults, diffs, verdicts) > MOST_UNSEEN)


if __name__ == "__main__":
    main()
