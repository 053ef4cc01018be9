"""
The pytest plugin: fixtures for tests of programs that use tableorm. Pytest finds it by itself.

`tableorm_db` is a fresh database for each test. It is opened in the event loop of the test, whatever the scope of that
is. Pytest-asyncio runs a fixture in the loop that its decorator names, so there is one fixture for each of them.
"""

from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Literal

import pytest

from ..database.connect import connect
from ..database.database import Database
from ..errors import TableNotFound, Unavailable
from ..models.entity import Entity
from ..stores import CLOCK, Clock
from .databases import MEMORY, temporary_database
from .faults import Faults


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--tableorm-url`."""
    parser.getgroup("tableorm").addoption(
        "--tableorm-url",
        default=MEMORY,
        help="where the tests' tables are, as for tableorm.connect; each test gets a table prefix of its own "
        "(default: %(default)s)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Tell a test that lacks a table which fixture makes the tables."""
    try:
        yield
    except TableNotFound as error:
        if "tableorm_db" in getattr(item, "fixturenames", ()):
            error.add_note("tableorm_db has the tables of the models that the fixture tableorm_models returns")
        raise


@pytest.fixture(scope="session")
def tableorm_url(request: pytest.FixtureRequest) -> str:
    """Return the URL that `tableorm_db` opens: `--tableorm-url`, or memory."""
    return str(request.config.getoption("--tableorm-url"))


@pytest.fixture(scope="session")
def tableorm_options() -> dict[str, Any]:
    """Return other arguments of `connect`; override it to give a credential, or `queues=`."""
    return {}


@pytest.fixture(scope="session")
def tableorm_models() -> Sequence[type[Entity]]:
    """Return the models whose tables `tableorm_db` has; override it to name yours."""
    return ()


def _open_in_loop(scope: Literal["function", "class", "module", "package", "session"]) -> Any:
    """Return a fixture that opens a database for one test, in the event loop of this loop scope."""
    import pytest_asyncio  # noqa: PLC0415 - the plugin is loaded without it too

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_tableorm_db_in_{scope}_loop")
    async def open_database(
        pytestconfig: pytest.Config,
        tableorm_url: str,
        tableorm_models: Sequence[type[Entity]],
        tableorm_options: dict[str, Any],
    ) -> AsyncIterator[Database]:
        await _check_answer(pytestconfig.stash.setdefault(_ANSWERS, {}), tableorm_url, tableorm_options)
        async with temporary_database(tableorm_url, *tableorm_models, **tableorm_options) as db:
            yield db

    return open_database


_ANSWERS = pytest.StashKey[dict[str, str | None]]()


async def _check_answer(answers: dict[str, str | None], url: str, options: dict[str, Any]) -> None:
    """
    Refuse a database where nobody answers, which is asked once for all tests, since each attempt takes its time.

    Args:
        answers: What was found out: by URL None, or why no test can open it.
        url: What is opened.
        options: Other arguments of `connect`.
    """
    if url not in answers:
        answers[url] = None
        try:
            async with connect(url, **options) as db:
                await db.ping()
        except Unavailable as error:
            answers[url] = str(error)
    if (problem := answers[url]) is not None:
        raise Unavailable(problem)


_HAS_ASYNCIO = find_spec("pytest_asyncio") is not None

if _HAS_ASYNCIO:
    _in_function_loop = _open_in_loop("function")
    _in_class_loop = _open_in_loop("class")
    _in_module_loop = _open_in_loop("module")
    _in_package_loop = _open_in_loop("package")
    _in_session_loop = _open_in_loop("session")


@pytest.fixture
def tableorm_db(request: pytest.FixtureRequest) -> Database:
    """
    Return an empty database, open in the event loop of the test: in memory, or where `--tableorm-url` says.

    It has the tables of `tableorm_models`. In the end it is closed, and its tables are gone.
    """
    if not _HAS_ASYNCIO:
        raise pytest.UsageError("the fixture tableorm_db needs pytest-asyncio: pip install pytest-asyncio")
    marker = request.node.get_closest_marker("asyncio")
    given: dict[str, Any] = marker.kwargs if marker else {}
    scope = given.get("loop_scope") or given.get("scope") or request.config.getini("asyncio_default_test_loop_scope")
    db: Database = request.getfixturevalue(f"_tableorm_db_in_{scope}_loop")
    return db


@pytest.fixture
def tableorm_faults(tableorm_db: Database) -> Faults:
    """Return what makes requests of `tableorm_db` fail: `with tableorm_faults.fail_next("insert", with_=409): ...`."""
    return Faults(tableorm_db)


@pytest.fixture
def tableorm_clock() -> Iterator[Clock]:
    """Return the clock, which the test may `freeze` and `advance`; it shows the system's time again in the end."""
    yield CLOCK
    CLOCK.reset()
