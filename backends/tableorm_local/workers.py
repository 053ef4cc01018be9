"""
Several processes that serve one file at one address: starts them, replaces those that die, stops them together.

The kernel spreads connections among them. Each of them answers the metrics of all. A process reads its options from its
standard input, and reports on its standard output how it has started. When its input ends, it stops: so it does
whatever way this process ends in.
"""

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from tableorm.errors import NotSupported, TableOrmError, Unavailable

from .server.front.metrics import drop_process, share_metrics
from .server.serving import bind
from .server_process import Options, has_terminal, print_error, print_urls, run_server

# After so many deaths within so many seconds another process would die too.
_MAX_DEATHS = 5
_DEATHS_SECONDS = 10.0
_START_SECONDS = 60.0


class _StartReport(msgspec.Struct):
    """What a process reports when it has started: its URLs, or why it cannot start."""

    urls: Sequence[str] = ()
    problem: str = ""


def supervise(options: Options, count: int) -> int:
    """
    Run `count` processes until SIGTERM or SIGINT.

    Returns:
        The exit status.

    Raises:
        TableOrmError: The processes do not start.
    """
    if options.data == ":memory:":
        raise NotSupported("several processes cannot share a database in memory; give a file, or one worker")
    if sys.platform == "win32":
        raise NotSupported("on Windows several processes cannot listen at one port; use one worker")
    with _reserve_port(options) as reserved, tempfile.TemporaryDirectory(prefix="tableorm-") as folder:
        port: int = reserved.getsockname()[1]
        with share_metrics(folder):
            asyncio.run(_Supervisor(attrs.evolve(options, port=port, share_port=True), folder).run(count))
    return 0


def _reserve_port(options: Options) -> socket.socket:
    """Return a socket that keeps the port without listening, so that no client is connected to it."""
    try:
        return bind(options.host, options.port, share=True)
    except OSError as error:
        raise Unavailable(f"cannot listen at {options.host} port {options.port}: {error}") from error


class _Supervisor:
    """The parent of the processes that serve."""

    def __init__(self, options: Options, metrics_folder: str) -> None:
        self._options, self._metrics_folder = options, metrics_folder
        self._processes, self._ready, self._to_reload = set[Process](), set[Process](), set[Process]()
        self._deaths = deque[float](maxlen=_MAX_DEATHS)

    async def run(self, count: int) -> None:
        """Start the processes, and wait until they are to stop, or cannot run."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, stop.set if has_terminal() else self._reload)
        tasks: list[asyncio.Task[Any]] = [loop.create_task(stop.wait())]
        try:
            started = [await self._start() for _ in range(count)]
            reports = [await self._wait_for(each) for each in started]
            for report in reports:
                if report.problem:
                    raise Unavailable(f"a process of the server: {report.problem}")
            print_urls(self._options, reports[0].urls, f" with {count} processes")
            tasks += [loop.create_task(self._keep(each)) for each in started]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for process in self._processes:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            for process in self._processes:
                await process.wait()

    def _reload(self) -> None:
        self._to_reload |= self._processes
        self._signal_ready()

    def _signal_ready(self) -> None:
        """Let processes reload that are to; those that are starting yet would end at the signal."""
        for process in self._to_reload & self._ready:
            self._to_reload.discard(process)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)

    async def _wait_for(self, process: Process) -> _StartReport:
        """Wait for the start of a process, and return what it reports."""
        report = await _read_report(process)
        self._ready.add(process)
        self._signal_ready()
        return report

    async def _start(self) -> Process:
        # -P: nothing is imported from the working directory; -I: nor from where the environment says.
        command = sys.executable, "-I" if sys.flags.isolated else "-P", "-m", __spec__.name
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        self._processes.add(process)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(self._options) + b"\n")
        return process

    async def _keep(self, process: Process) -> None:
        """Replace a process whenever it has ended."""
        while True:
            status = await process.wait()
            for processes in (self._processes, self._ready, self._to_reload):
                processes.discard(process)
            self._deaths.append(time.monotonic())
            if len(self._deaths) == _MAX_DEATHS and self._deaths[-1] - self._deaths[0] < _DEATHS_SECONDS:
                raise Unavailable(f"the processes of the server end again and again, status {status}")
            print_error(f"process {process.pid} ended with status {status}; another takes its place")
            drop_process(self._metrics_folder, process.pid)
            process = await self._start()
            if problem := (await self._wait_for(process)).problem:
                print_error(f"a process of the server: {problem}")


async def _read_report(process: Process) -> _StartReport:
    """Return what a process reports of its start, for which it has a minute."""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            if line := await process.stdout.readline():
                return msgspec.json.decode(line, type=_StartReport)
    return _StartReport(problem="it does not start")


def _serve() -> int:
    """Serve in a process that the supervisor started."""
    options = msgspec.json.decode(sys.stdin.buffer.readline(), type=Options)

    def report(urls: Sequence[str] = (), problem: str = "") -> None:
        print(msgspec.json.encode(_StartReport(urls, problem)).decode(), flush=True)  # noqa: T201

    try:
        asyncio.run(run_server(options, report, sys.stdin.buffer))
    except TableOrmError as error:
        report(problem=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_serve())
