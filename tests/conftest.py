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
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

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


class _Program:
    """
    The program that the tests of a folder are: a new model is compared with all others of its program, which are those
    of this folder and of helpers.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._models = WeakValueDictionary[tuple[str, str], Any]()  # of all folders
        self._met = set[tuple[str, str]]()

    def enter(self, folder: Path) -> None:
        """Go on in a folder."""
        if folder == self._folder:
            return
        from tableorm.models import placement

        declared: WeakValueDictionary[tuple[str, str], Any] = placement.__dict__["_declared"]
        for name in self._met.difference(declared.keys()):
            self._models.pop(name, None)
        self._models.update(declared)
        self._folder = folder
        meets = {module: self._meets(module) for module in {module for module, _ in self._models}}
        found = {name: model for name, model in self._models.items() if meets[name[0]]}
        self._met = set(found)
        placement.__dict__.update(_declared=WeakValueDictionary(found), _staged={})

    def _meets(self, module: str) -> bool:
        file = getattr(sys.modules.get(module), "__file__", None)
        return not module.rpartition(".")[2].startswith("test_") or file is None or Path(file).parent == self._folder


_program = _Program()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let each test meet the models of its folder alone."""
    _program.enter(item.path.parent)
    return (yield)


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
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each module meet the models of its folder; in CI one that is skipped fails, unless its reason is accepted."""
    if isinstance(collector, pytest.Module):
        _program.enter(collector.path.parent)
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
