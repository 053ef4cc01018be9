"""
Processes that are measured: a server, and programs that begin at the same time and say what they took.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import attrs

from benchmarks.measure import peak_memory
from tableorm import Database, connect
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY

_PIPE = subprocess.PIPE


@attrs.frozen
class Effort:
    """What processes took together: seconds, those of them on a processor, requests, and MiB of the largest."""

    seconds: float
    busy: float
    requests: int
    peak: float


class Crew:
    """
    Processes that begin at the same time.

    Args:
        module: The module that each of them runs; it calls `run_member`.
        arguments: What it is given.
        size: How many there are.
    """

    def __init__(self, module: str, *arguments: object, size: int) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self._running = [subprocess.Popen(command, stdin=_PIPE, stdout=_PIPE, text=True) for _ in range(size)]
        self._begun = 0.0
        for each in self._running:
            assert each.stdout is not None
            each.stdout.readline()  # it is ready

    def begin(self) -> None:
        """Let them begin."""
        self._begun = time.perf_counter()
        for each in self._running:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()

    @property
    def working(self) -> bool:
        """Whether one of them has not ended."""
        return any(each.poll() is None for each in self._running)

    def finish(self) -> Effort:
        """Wait until all have ended, and return what they took."""
        done = [each.communicate()[0].split() for each in self._running]
        busy, requests, peaks = zip(*((float(b), int(r), float(p)) for b, r, p in done), strict=True)
        return Effort(time.perf_counter() - self._begun, sum(busy), sum(requests), max(peaks))


def work(module: str, *arguments: object, size: int) -> Effort:
    """Let a crew do its work, and return what that took."""
    crew = Crew(module, *arguments, size=size)
    crew.begin()
    return crew.finish()


async def run_member(url: str, act: Callable[[Database], Awaitable[object]]) -> None:
    """Be one of a crew: say when it is ready, wait for a line, act, and print what that took."""
    async with connect(url) as db:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        begun = time.process_time()
        await act(db)
        print(time.process_time() - begun, db.stats.requests, peak_memory())


@contextlib.asynccontextmanager
async def serving(path: Path, workers: int = 1) -> AsyncGenerator[str]:
    """Serve a file by one or more processes of their own, and yield what opens it."""
    with socket.create_server(("127.0.0.1", 0)) as free:  # others may serve on this machine too
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tableorm.cli", "serve", "--data", str(path), "--port", str(port)]
    command += ["--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    url = f"http://127.0.0.1:{port}/{DEVELOPMENT_ACCOUNT}"
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            await asyncio.sleep(0.1)
        yield f"AccountName={DEVELOPMENT_ACCOUNT};AccountKey={DEVELOPMENT_KEY};TableEndpoint={url}"
    finally:
        process.terminate()
        process.wait()
