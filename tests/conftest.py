"""
What holds for every test: none is skipped unseen, and none waits for ever.
"""

import datetime as dt
import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.torture import Rounds, choose_cases, choose_rounds, load_profile
from tests.waiting import limit_all

if TYPE_CHECKING:
    from tests.azurite import Azurite

load_profile()

# The workers of a run and the many programs that tests start load what one of them compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_ATTACKS = Path(__file__).parent / "security"
_MEMORY, _ENOUGH_BYTES = Path("/dev/shm"), 2 << 30


def _use_memory_for_files() -> None:
    """Put the files of tests into memory where there is much: who is killed loses nothing that the kernel has."""
    if "TMPDIR" not in os.environ and _MEMORY.is_dir():
        found = os.statvfs(_MEMORY)
        if found.f_bavail * found.f_frsize > _ENOUGH_BYTES and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY):
            os.environ["TMPDIR"], tempfile.tempdir = str(_MEMORY), None


_use_memory_for_files()

_CI = os.environ.get("CI") == "true"

ACCEPTED = "capability"
"""In the reason of a skip that CI accepts: the backend under test cannot do what the test is about, and says so."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector all that is imported, which stays to the end: half a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Mark the tests that `make torture` runs: those of hypothesis, those that ask for `rounds` or have a mark that leaves
    out some of their cases elsewhere, and all attacks. Limit the time of those that do not explore.
    """
    attacks = str(_ATTACKS) + os.sep
    for item in items:
        if str(item.path).startswith(attacks):
            item.add_marker(pytest.mark.attack)
        if isinstance(item, pytest.Function) and (
            getattr(item.obj, "is_hypothesis_test", False) or "rounds" in item.fixturenames
        ):
            item.add_marker(pytest.mark.torture)
    left = set(choose_cases(items))
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    limit_all(items)


@pytest.fixture(scope="session")
def rounds() -> Rounds:
    """How many rounds a test does that explores: `rounds(few, many)`."""
    return choose_rounds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped fails, unless its reason is accepted."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI a module that is skipped fails, unless its reason is accepted."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped too.
    if _CI and report.skipped and not hasattr(report, "wasxfail") and ACCEPTED not in str(report.longrepr):
        problem = (
            f"Skipped in CI, where nothing is skipped except for lack of a backend's {ACCEPTED}: {report.longrepr}"
        )
        report.outcome, report.longrepr = "failed", problem


@pytest.fixture(scope="session")
def azurite() -> Iterator["Azurite"]:
    """The emulator, started for the first test of this worker that asks for it."""
    from tests.azurite import running_azurite

    with running_azurite() as emulator:
        yield emulator


@pytest.fixture
def stopped_clock() -> Iterator[None]:
    """The clock of the process shows the beginning of 2026, until a test puts it forward."""
    from tableorm.stores import CLOCK

    CLOCK.freeze(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    yield
    CLOCK.reset()


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers make no pauses."""
    from tableorm.outbox import worker
    from tests.faults import no_pause

    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
        monkeypatch.setattr(worker, name, 0)
    monkeypatch.setattr(worker.Patience, "pause_after", no_pause)
