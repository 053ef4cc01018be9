"""
A plug-in of pytest for `scripts/mutate.py`: runs chosen tests in a given order, and writes down what each test did.

Environment variables say what it does: `MUTATE_TESTS` is a file with the tests to run, one a line, and `MUTATE_REPORT`
the file that gets a line of JSON for every step of a test. Where coverage measures, it learns which test runs.
"""

import json
import os
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

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
