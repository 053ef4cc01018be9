"""
Several processes that serve one file at one address: starts them, replaces those that die, stops them together.

The kernel spreads connections among them. Each of them answers the metrics of all.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import attrs
import msgspec

from tableorm.errors import NotSupported, TableOrmError, Unavailable

from .server.front.metrics import drop_process, share_metrics
from .server.serving import bind
from .server_process import Options, has_terminal, print_urls, run_server

# After so many deaths within so many seconds another process would die too.
_MAX_DEATHS = 5
_DEATHS_SECONDS = 10.0
_START_SECONDS = 60.0


class _StartReport(msgspec.Struct):
    """What a process reports when it has started: its URLs, or why it cannot start."""

    urls: list[str] = msgspec.field(default_factory=list[str])
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
            return _Supervisor(attrs.evolve(options, port=port, share_port=True), folder).run(count)


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
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[BaseProcess] = []
        # The pipes of processes that replace others, until they have reported how they started.
        self._starting: list[Connection[object, object]] = []
        self._started = 0
        # Children see the end of `_alive` when this process ends, in whatever way.
        self._alive, self._watched = socket.socketpair()
        self._signals, self._woken = socket.socketpair()
        self._woken.setblocking(False)

    def run(self, count: int) -> int:
        """Start the processes, and wait until they are to stop, or cannot run."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        deaths = list[float]()
        try:
            ready = [self._start() for _ in range(count)]
            print_urls(self._options, self._await_all(ready), f" with {count} processes")
            while True:
                ended = wait([*(worker.sentinel for worker in self._workers), *self._starting, self._signals])
                if self._signals in ended and self._handle_signals():
                    return 0
                for pipe in [pipe for pipe in self._starting if pipe in ended]:
                    self._starting.remove(pipe)
                    if problem := _read_report(pipe).problem:
                        _print_error(f"a process of the server: {problem}")
                for worker in [worker for worker in self._workers if not worker.is_alive()]:
                    self._workers.remove(worker)
                    deaths = [when for when in deaths if time.monotonic() - when < _DEATHS_SECONDS]
                    deaths.append(time.monotonic())
                    if len(deaths) >= _MAX_DEATHS:
                        raise Unavailable(f"the processes of the server end again and again, status {worker.exitcode}")
                    _print_error(f"process {worker.pid} ended with status {worker.exitcode}; another takes its place")
                    if worker.pid is not None:
                        drop_process(self._metrics_folder, worker.pid)
                    self._starting.append(self._start())
        finally:
            self._stop()

    def _on_signal(self, number: int, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.send(bytes([number]))

    def _handle_signals(self) -> bool:
        """Handle the signals that have come. Return whether one of them asks to stop."""
        numbers = self._signals.recv(100)
        hung_up = signal.SIGHUP in numbers
        if hung_up and has_terminal():
            return True
        if hung_up:
            for worker in self._workers:
                if worker.pid is not None:
                    os.kill(worker.pid, signal.SIGHUP)
        return signal.SIGTERM in numbers or signal.SIGINT in numbers

    def _start(self) -> "Connection[object, object]":
        ours, theirs = self._context.Pipe(duplex=False)
        self._started += 1
        arguments = self._options, self._watched, theirs
        worker = self._context.Process(target=_run_worker, args=arguments, name=f"worker-{self._started}")
        worker.start()
        theirs.close()
        self._workers.append(worker)
        return ours

    def _await_all(self, ready: "list[Connection[object, object]]") -> list[str]:
        """Wait until all processes listen, and return their URLs."""
        urls = list[str]()
        until = time.monotonic() + _START_SECONDS
        for pipe in ready:
            report = _read_report(pipe, max(0.0, until - time.monotonic()))
            if report.problem:
                raise Unavailable(f"a process of the server: {report.problem}")
            urls = report.urls
        return urls

    def _stop(self) -> None:
        self._alive.close()
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.join()
        for end in (self._watched, self._signals, self._woken):
            end.close()
        for pipe in self._starting:
            pipe.close()


def _read_report(pipe: "Connection[object, object]", seconds: float = 0.0) -> _StartReport:
    """Return what a process reports of its start, for which it has so many seconds."""
    with pipe, contextlib.suppress(EOFError):
        if pipe.poll(seconds):
            return msgspec.json.decode(pipe.recv_bytes(), type=_StartReport)
    return _StartReport(problem="it does not start")


def _print_error(text: str) -> None:
    print(f"tableorm: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _run_worker(options: Options, until: socket.socket, pipe: "Connection[object, object]") -> None:
    """Serve in a process that the supervisor started."""

    def report(urls: Sequence[str] = (), problem: str = "") -> None:
        pipe.send_bytes(msgspec.json.encode(_StartReport(urls=list(urls), problem=problem)))

    try:
        asyncio.run(run_server(options, report, until))
    except TableOrmError as error:
        report(problem=str(error))
        sys.exit(1)
