"""
Fixtures of the engine's tests: a file, an engine on it, other processes.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tableorm_local.engine import Engine
from tests.torture import choose_rounds

Child = Callable[..., "subprocess.Popen[str]"]


_SECONDS = choose_rounds(120, 3600)
_MEMORY_SECONDS = 30  # so that what hangs fails


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Fail a test that hangs, where the system has alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def fail(*_: object) -> None:
        raise TimeoutError(f"the test has not ended after {_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS, 1.0)  # again and again, since an event loop may only log it
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may be made."""
    return tmp_path / "data.tables"


@asynccontextmanager
async def opened(path: Path | str | None, *tables: str, patience: float = 30.0) -> AsyncGenerator[Engine]:
    """An engine of a file with these new tables, which is closed in the end."""
    engine = Engine(path, timeout=patience)
    await engine.open()
    for table in tables:
        await engine.create_table(table)
    try:
        yield engine
    finally:
        await engine.close()


@contextmanager
def callbacks_succeed() -> Generator[None]:
    """Fail if a callback of the event loop raises an error, which asyncio does no more than log."""
    errors = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    yield
    assert errors == []


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[Engine]:
    """An open engine with the table "Shared"."""
    with callbacks_succeed():
        async with opened(path, "Shared") as engine:
            yield engine


@pytest.fixture
async def memory() -> AsyncIterator[Engine]:
    """An engine in memory with the table "Shared"."""
    engine = Engine(None)
    await engine.open()
    await engine.create_table("Shared")
    with callbacks_succeed():
        async with asyncio.timeout(_MEMORY_SECONDS):
            yield engine
        await engine.close()


@pytest.fixture
def child() -> Iterator[Child]:
    """Starts a function of child.py, or another script, in another process; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, script: str = "child.py") -> "subprocess.Popen[str]":
        command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
