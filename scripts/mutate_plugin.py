"""
A plug-in of pytest for `scripts/mutate.py`: runs chosen tests in a given order, and writes down what each test did.

Environment variables say what it does: `MUTATE_TESTS` is a file with the tests to run, one a line, and `MUTATE_REPORT`
the file that gets a line of JSON for every step of a test. Where coverage measures, it learns which test runs.

Where `MUTATE_SERVE` is the address of a socket, pytest collects all tests once, and then waits there for faults to try:
each in a fork of its own, in which the functions of the changed module get the changed code.
"""

import gc
import json
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from multiprocessing.connection import Client
from pathlib import Path
from types import FunctionType
from typing import Any

import coverage
import pytest

from scripts.swap_code import swap_code

# A fault may fill the memory without end; a test needs a tenth of this.
_MOST_BYTES = 4 << 30


def pytest_configure() -> None:
    """Bound the memory of this process and of those that tests start."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that are asked for, in the order of the list."""
    if wanted := os.environ.get("MUTATE_TESTS"):
        order = {test: number for number, test in enumerate(Path(wanted).read_text(encoding="utf-8").splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Say which test begins, to the report, to coverage, and to the processes that the test starts."""
    _report(test=item.nodeid, when="start")
    measured = coverage.Coverage.current()
    if measured is not None:
        os.environ["MUTATE_TEST"] = item.nodeid
        measured.switch_context(item.nodeid)
    result = yield
    if measured is not None:
        measured.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what came of a step: set-up, call or tear-down."""
    crash = getattr(report.longrepr, "reprcrash", None)
    error = str(getattr(crash, "message", report.longrepr or "")).strip().partition("\n")[0]
    _report(test=report.nodeid, when=report.when, outcome=report.outcome, duration=report.duration, error=error)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write down a module that cannot be imported."""
    if report.failed:
        error = report.longreprtext.strip().rpartition("\n")[2]
        _report(test=f"import of {report.nodeid}", when="collect", outcome="failed", error=error)


def _report(**line: Any) -> None:
    with Path(os.environ["MUTATE_REPORT"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Try one fault after the other, if that is asked for."""
    address = os.environ.get("MUTATE_SERVE")
    return _serve(session, address) if address else None


def _serve(session: pytest.Session, address: str) -> object:
    """Fork for each fault. The fork leaves this function and runs its tests as pytest always does."""
    items = {item.nodeid: item for item in session.items}
    functions = _functions_by_file()
    with Client(address) as controller:
        while True:
            try:
                asked: dict[str, Any] = controller.recv()
            except EOFError:
                return True
            child = os.fork()
            if not child:
                break
            controller.send(_wait(child, asked["seconds"]))
    os.setsid()
    swapped = not asked["source"] or swap_code(functions[asked["path"]], Path(asked["path"]), *asked["source"])
    if not swapped:
        _report(test="", when="swap", outcome="impossible")
    session.items[:] = [items[test] for test in asked["tests"] if test in items] if swapped else []
    session.config.option.maxfail = 1
    session.config.add_cleanup(lambda: os._exit(session.exitstatus))
    return None


def _functions_by_file() -> dict[str, list[FunctionType]]:
    """Return all functions that exist, closures too."""
    gc.unfreeze()
    found = defaultdict[str, list[FunctionType]](list)
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found[each.__code__.co_filename].append(each)
    gc.freeze()
    return found


def _wait(child: int, seconds: float) -> int:
    """Wait for a fork. Return its status, or -1 if it had to be killed after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status = -1
            break
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status
