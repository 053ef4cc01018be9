"""
Several processes that serve one file at one address: started, replaced when they die, stopped together.

The kernel spreads connections among them. Whoever asks one for metrics gets those of all.
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
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import attrs
import msgspec

from tableorm.errors import NotSupported, TableOrmError, Unavailable

from .server import Server
from .server.front.metrics import retire
from .server_process import Options, run_server

__all__ = ["supervise"]

# So many deaths within so many seconds: another process would die too.
_MAX_DEATHS = 5
_DEATHS_SECONDS = 10.0
_START_SECONDS = 60.0


class _Told(msgspec.Struct):
    """What a process says of its start."""

    urls: list[str] = msgspec.field(default_factory=list[str])
    problem: str = ""


def supervise(options: Options, count: int) -> int:
    """
    Run so many processes until SIGTERM or SIGINT.

    Returns:
        The exit status.

    Raises:
        TableOrmError: They do not start.
    """
    if options.data == ":memory:":
        raise NotSupported("several processes cannot share a database in memory; give a file, or one worker")
    if sys.platform == "win32":
        raise NotSupported("on Windows several processes cannot listen at one port; use one worker")
    with _reserve(options) as reserved, tempfile.TemporaryDirectory(prefix="tableorm-") as folder:
        port: int = reserved.getsockname()[1]
        return _Supervisor(attrs.evolve(options, port=port, share_port=True, metrics=folder)).run(count)


def _reserve(options: Options) -> socket.socket:
    """A socket that keeps the port, without listening: nobody is connected to it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        reserved = socket.socket(family, kind, protocol)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError as error:
        raise Unavailable(f"cannot listen at {options.host} port {options.port}: {error}") from error
    return reserved


class _Supervisor:
    """The parent of the processes that serve."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[BaseProcess] = []
        # Of those that have taken the place of others, until they have told how they started.
        self._starting: list[Connection[object, object]] = []
        self._started = 0
        # Children see the end of `_alive` when this process ends, however it does.
        self._alive, self._watched = socket.socketpair()
        self._signals, self._woken = socket.socketpair()
        self._woken.setblocking(False)

    def run(self, count: int) -> int:
        """Start them, and wait until they shall stop, or cannot run."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        deaths = list[float]()
        try:
            ready = [self._start() for _ in range(count)]
            for url in self._await_all(ready):
                print(f"serving {self._options.data} at {url} with {count} processes", flush=True)  # noqa: T201
            while True:
                ended = wait([*(worker.sentinel for worker in self._workers), *self._starting, self._signals])
                if self._signals in ended and self._stops():
                    return 0
                for pipe in [pipe for pipe in self._starting if pipe in ended]:
                    self._starting.remove(pipe)
                    if problem := _told(pipe).problem:
                        _say(f"a process of the server: {problem}")
                for worker in [worker for worker in self._workers if not worker.is_alive()]:
                    self._workers.remove(worker)
                    deaths = [when for when in deaths if time.monotonic() - when < _DEATHS_SECONDS]
                    deaths.append(time.monotonic())
                    if len(deaths) >= _MAX_DEATHS:
                        raise Unavailable(f"the processes of the server end again and again, status {worker.exitcode}")
                    _say(f"process {worker.pid} ended with status {worker.exitcode}; another takes its place")
                    self._retire(worker)
                    self._starting.append(self._start())
        finally:
            self._stop()

    def _on_signal(self, number: int, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.send(bytes([number]))

    def _stops(self) -> bool:
        """Deal with signals; whether one of them asks to stop."""
        numbers = self._signals.recv(100)
        if signal.SIGHUP in numbers:
            for worker in self._workers:
                if worker.pid is not None:
                    os.kill(worker.pid, signal.SIGHUP)
        return signal.SIGTERM in numbers or signal.SIGINT in numbers

    def _start(self) -> "Connection[object, object]":
        ours, theirs = self._context.Pipe(duplex=False)
        self._started += 1
        options = attrs.evolve(self._options, name=f"worker-{self._started}")
        worker = self._context.Process(target=_work, args=(options, self._watched, theirs), name=options.name)
        worker.start()
        theirs.close()
        self._workers.append(worker)
        return ours

    def _await_all(self, ready: "list[Connection[object, object]]") -> list[str]:
        """The URLs, once all of them listen."""
        urls = list[str]()
        until = time.monotonic() + _START_SECONDS
        for pipe in ready:
            told = _told(pipe, max(0.0, until - time.monotonic()))
            if told.problem:
                raise Unavailable(f"a process of the server: {told.problem}")
            urls = told.urls
        return urls

    def _retire(self, worker: BaseProcess) -> None:
        """What a process has counted stays; what was under way in it is no more."""
        if self._options.metrics is not None:
            retire(Path(self._options.metrics), worker.name)

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


def _told(pipe: "Connection[object, object]", seconds: float = 0.0) -> _Told:
    """What a process says of its start, for which it has so many seconds."""
    with pipe, contextlib.suppress(EOFError):
        if pipe.poll(seconds):
            return msgspec.json.decode(pipe.recv_bytes(), type=_Told)
    return _Told(problem="it does not start")


def _say(text: str) -> None:
    print(f"tableorm: {text}", file=sys.stderr, flush=True)  # noqa: T201 - what the program says


def _work(options: Options, until: socket.socket, pipe: "Connection[object, object]") -> None:
    """What each process does."""

    def started(server: Server, options: Options) -> None:
        names = [name for name, _ in options.accounts]
        urls = [server.url_of(name) for name in names] or [server.url]
        pipe.send_bytes(msgspec.json.encode(_Told(urls=urls)))

    try:
        asyncio.run(run_server(options, started, until))
    except TableOrmError as error:
        pipe.send_bytes(msgspec.json.encode(_Told(problem=str(error))))
        sys.exit(1)
