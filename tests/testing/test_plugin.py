"""
The fixtures of the pytest plugin, in test suites of programs: each is run as a user would run it.
"""

from pathlib import Path

import pytest

from tests.azurite import Azurite

MODEL = """
import datetime as dt

import pytest
import pytest_asyncio

from tableorm import Entity, Mapped, connect, field, utc_now
from tableorm.testing import temporary_database


class Note(Entity, table="Notes", partition_key="notes", row_key="{id}"):
    id: Mapped[str]
    changed: Mapped[dt.datetime | None] = field(default=None, on_write=utc_now)


@pytest.fixture(scope="session")
def tableorm_models():
    return [Note]
"""


def run(
    pytester: pytest.Pytester, tests: str, *arguments: str, mode: str = "strict", passed: int = 0, errors: int = 0
) -> pytest.RunResult:
    """Run tests of a program that has `Note`; so many must pass or meet an error, and none may fail or warn."""
    pytester.makepyfile(MODEL + tests)
    result = pytester.runpytest_inprocess(
        "--assert=plain",
        "-W",
        "error",
        "-o",
        f"asyncio_mode={mode}",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        *arguments,
    )
    result.assert_outcomes(passed=passed, errors=errors)
    return result


INSERTS = """
@pytest.mark.asyncio
async def test_first(tableorm_db):
    await tableorm_db.insert(Note(id="a"))

@pytest.mark.asyncio
async def test_second(tableorm_db):
    assert await tableorm_db.tables() == ["Notes"]
    await tableorm_db.insert(Note(id="a"))
"""


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_each_test_has_a_database_of_its_own(pytester: pytest.Pytester, mode: str) -> None:
    """Without configuration it is in memory, new for each test, and has the tables of the models."""
    run(pytester, INSERTS, mode=mode, passed=2)


def test_a_url_is_shared(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """With a URL each test has tables of its own under a prefix, and nothing remains of them."""
    url = f"local:{tmp_path / 'shared.tables'}"

    run(pytester, INSERTS, f"--tableorm-url={url}", passed=2)

    left = """
@pytest.mark.asyncio
async def test_left(tableorm_url):
    async with connect(tableorm_url) as db:
        assert await db.tables() == []
"""
    run(pytester, left, f"--tableorm-url={url}", passed=1)


def test_on_azurite(pytester: pytest.Pytester, azurite: Azurite) -> None:
    """The same tests pass on the emulator, in tables of their own."""
    run(pytester, INSERTS, f"--tableorm-url={azurite.connection_string}", passed=2)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_it_is_open_in_the_loop_of_the_test(pytester: pytest.Pytester, mode: str) -> None:
    """Whatever the scope of the event loop that a test runs in, its database is open in that loop."""
    tests = """
@pytest.mark.asyncio(loop_scope="session")
async def test_session(tableorm_db):
    await tableorm_db.insert(Note(id="a"))

@pytest.mark.asyncio(loop_scope="module")
async def test_module(tableorm_db):
    await tableorm_db.insert(Note(id="a"))

@pytest.mark.asyncio(loop_scope="class")
class TestClass:
    async def test_class(self, tableorm_db):
        await tableorm_db.insert(Note(id="a"))
"""
    run(pytester, tests, mode=mode, passed=3)


def test_a_default_loop_of_the_session(pytester: pytest.Pytester) -> None:
    """The default scope of the loops of tests holds for the database too."""
    tests = """
async def test_session(tableorm_db):
    await tableorm_db.insert(Note(id="a"))
"""
    run(pytester, tests, "-o", "asyncio_default_test_loop_scope=session", mode="auto", passed=1)


def test_a_database_for_the_session(pytester: pytest.Pytester) -> None:
    """A fixture of the session opens one database for all tests that run in the loop of the session."""
    tests = """
pytestmark = pytest.mark.asyncio(loop_scope="session")

@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(tableorm_url):
    async with temporary_database(tableorm_url, Note) as db:
        yield db

async def test_first(shared, tableorm_db):
    await shared.insert(Note(id="a"))
    assert await tableorm_db.get_or_none(Note, id="a") is None

async def test_second(shared, tableorm_db):
    assert await shared.get_or_none(Note, id="a") is not None
    assert await tableorm_db.get_or_none(Note, id="a") is None
"""
    run(pytester, tests, passed=2)


def test_options_are_given_to_connect(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """`tableorm_options` has what `connect` needs besides the URL."""
    tests = """
@pytest.fixture(scope="session")
def tableorm_options():
    return {"create": False}

@pytest.mark.asyncio
async def test_any(tableorm_db):
    pass
"""
    result = run(pytester, tests, f"--tableorm-url=local:{tmp_path / 'missing.tables'}", errors=1)

    result.stdout.fnmatch_lines(["*Unavailable*missing.tables*"])


def test_a_server_that_does_not_answer(pytester: pytest.Pytester, unused_tcp_port: int) -> None:
    """It is asked once for all tests, and a test that uses no table does not pass either."""
    tests = """
from tableorm import RetryPolicy

SENT = []

@pytest.fixture(scope="session")
def tableorm_models():
    return []

@pytest.fixture(scope="session")
def tableorm_options():
    return {"retry": RetryPolicy(attempts=2, base=0), "raw_request_hook": SENT.append}

@pytest.mark.asyncio
async def test_first(tableorm_db):
    pass

@pytest.mark.asyncio
async def test_second(tableorm_db):
    pass

def test_requests():
    assert len(SENT) == 1
"""
    url = f"http://127.0.0.1:{unused_tcp_port}/devstoreaccount1"
    result = run(pytester, tests, f"--tableorm-url={url}", passed=1, errors=2)

    result.stdout.fnmatch_lines(["*Unavailable*Nothing answers*"] * 2)


def test_a_table_that_the_fixture_does_not_make(pytester: pytest.Pytester) -> None:
    """The failure names the fixture that names the models."""
    tests = """
class Other(Entity, table="Others", partition_key="others", row_key="{id}"):
    id: Mapped[str]

@pytest.mark.asyncio
async def test_other(tableorm_db):
    await tableorm_db.insert(Other(id="a"))
"""
    pytester.makepyfile(MODEL + tests)
    result = pytester.runpytest_inprocess("--assert=plain", "-o", "asyncio_default_fixture_loop_scope=function")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*there is no table 'Others'*", "*has the tables of the models that the fixture tableorm_models returns*"]
    )


def test_the_clock_is_set_right_again(pytester: pytest.Pytester) -> None:
    """A test freezes the clock that `utc_now` and timestamps show; the next test sees the system's time."""
    tests = """
BEGIN = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)

@pytest.mark.asyncio
async def test_frozen(tableorm_db, tableorm_clock):
    tableorm_clock.freeze(BEGIN)
    await tableorm_db.insert(Note(id="a"))
    tableorm_clock.advance(dt.timedelta(days=1))
    await tableorm_db.insert(Note(id="b"))
    notes = await tableorm_db.select(Note).all()
    assert [note.changed for note in notes] == [BEGIN, BEGIN + dt.timedelta(days=1)]
    assert [note.timestamp for note in notes] == [note.changed for note in notes]

def test_after():
    assert utc_now().year < 2030
"""
    run(pytester, tests, passed=2)


def test_faults_are_of_the_database(pytester: pytest.Pytester) -> None:
    """`tableorm_faults` makes requests of `tableorm_db` fail; a fault that nothing met fails the test."""
    tests = """
from tableorm import EntityExists

@pytest.mark.asyncio
async def test_met(tableorm_db, tableorm_faults):
    with tableorm_faults.fail_next("insert", with_=409), pytest.raises(EntityExists):
        await tableorm_db.insert(Note(id="a"))
    await tableorm_db.insert(Note(id="a"))

@pytest.mark.asyncio
async def test_not_met(tableorm_db, tableorm_faults):
    with pytest.raises(AssertionError, match="1 more 'delete'"):
        with tableorm_faults.fail_next("delete", with_=503):
            await tableorm_db.insert(Note(id="a"))
"""
    run(pytester, tests, passed=2)


def test_without_pytest_asyncio(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pytest-asyncio is missing, the plugin loads, and `tableorm_db` says what to install."""
    pytester.makepyfile(
        hidden="""
import sys
sys.modules["pytest_asyncio"] = None
""",
        test_any="""
def test_plain():
    pass

def test_database(tableorm_db):
    pass
""",
    )

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess("-p", "hidden", "-p", "tableorm.testing.plugin")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*tableorm_db needs pytest-asyncio: pip install pytest-asyncio*"])
