"""
Serving: from a file and an address to a server that runs, and to its end.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Self

from aiohttp import web

from ..engine import Engine
from .dispatch import Service
from .front.access_log import AccessLog
from .front.http import Front
from .front.limits import Limits
from .front.metrics import Metrics
from .security.accounts import Account, Accounts, is_loopback

__all__ = ["Server", "data_files", "serve"]

_logger = logging.getLogger("tableorm.server")

_BACKLOG = 1024
_PUBLISH_SECONDS = 1.0


def serve(
    data: str | os.PathLike[str] | None,
    *,
    host: str = "127.0.0.1",
    port: int = 10002,
    accounts: Iterable[Account] | None = None,
    cert: str | os.PathLike[str] | None = None,
    cert_key: str | os.PathLike[str] | None = None,
    access_log: IO[bytes] | None = None,
    limits: Limits | None = None,
    open_metrics: bool = False,
    compress_for_all: bool = False,
    share_port: bool = False,
    metrics: Metrics | None = None,
) -> "Server":
    """
    Speak the Table service's REST protocol.

        async with serve("hr.tables") as server:
            print(server.url)

    Args:
        data: The file, as for `connect("local:...")`, which may be open elsewhere too; None for memory. With several
            accounts a folder, in which each has its file `NAME.tables`.
        host: Where to listen: an address of this machine.
        port: 0 for any that is free; `server.port` tells which.
        accounts: Who may sign requests; the development account if left out, whose key everyone knows.
        cert: A file with a certificate chain, in PEM, to speak TLS.
        cert_key: The file with its private key, if that is not in `cert`.
        access_log: A stream of bytes that gets a line of JSON for each request.
        limits: What clients can make the server hold.
        open_metrics: Whether clients of other machines may read `/metrics`.
        compress_for_all: Whether answers to clients of this machine are compressed too, if they accept that.
        share_port: Whether other processes may listen at the same address; connections are spread among them.
        metrics: Where it counts, if others beside it count too.

    Raises:
        ValueError: The development key would be good for other machines; accounts and data do not go together; or there
            is a private key and no certificate.
    """
    chosen = Accounts([Account.development()] if accounts is None else accounts)
    if chosen.any_public and not is_loopback(host):
        raise ValueError(
            f"the development key is published, so with it {host!r} would be open to everyone who can connect; give "
            "accounts with keys of their own, or listen at 127.0.0.1"
        )
    files = data_files(data, chosen.names)
    if cert is None and cert_key is not None:
        raise ValueError("a private key alone is not enough to speak TLS; give its certificate too, as cert")
    context = None if cert is None else _tls(cert, cert_key)
    log = None if access_log is None else AccessLog(access_log)
    return Server(
        files,
        chosen,
        (host, port),
        tls=context,
        log=log,
        limits=limits or Limits(),
        open_metrics=open_metrics,
        compress_for_all=compress_for_all,
        share_port=share_port,
        metrics=metrics or Metrics(),
    )


def data_files(data: str | os.PathLike[str] | None, names: Iterable[str]) -> dict[str, Path | None]:
    """
    The file of each account, None for memory.

    Raises:
        ValueError: Several accounts and a single file, or no name.
    """
    if data is not None and not os.fspath(data):
        raise ValueError("the data has no name; give a file, or :memory: on the command line and None from Python")
    path = None if data is None else Path(data)
    files: dict[str, Path | None] = dict.fromkeys(names, path)
    if path is not None and path.is_dir():
        files = {name: path / f"{name}.tables" for name in files}
    elif path is not None and len(files) > 1:
        raise ValueError(
            f"{os.fspath(path)!r} is no folder, and there are {len(files)} accounts; give a folder, in which each gets "
            "a file of its own"
        )
    return files


def _tls(cert: str | os.PathLike[str], cert_key: str | os.PathLike[str] | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, cert_key)
    return context


class Server:
    """
    A server of the Table service; made by `serve`, and running inside of `async with`.

    Args:
        files: The data of each account.
        accounts: Who may sign.
        address: Host and port.
        tls: To speak TLS.
        log: Where requests are noted.
        limits: What clients can make it hold.
        open_metrics: As for `serve`.
        compress_for_all: As for `serve`.
        share_port: As for `serve`.
        metrics: Where it counts.
    """

    def __init__(
        self,
        files: Mapping[str, Path | None],
        accounts: Accounts,
        address: tuple[str, int],
        *,
        tls: ssl.SSLContext | None,
        log: AccessLog | None,
        limits: Limits,
        open_metrics: bool,
        compress_for_all: bool,
        share_port: bool,
        metrics: Metrics,
    ) -> None:
        self._engines = {name: Engine(path) for name, path in files.items()}
        self._accounts, self._address, self._tls, self._log = accounts, address, tls, log
        self._limits, self._share_port, self._metrics = limits, share_port, metrics
        self._publishing: asyncio.Task[None] | None = None
        self._open_metrics, self._compress_for_all = open_metrics, compress_for_all
        self._running: tuple[web.ServerRunner, web.SockSite, Front] | None = None
        self._port = address[1]

    @property
    def port(self) -> int:
        """Where it listens; once it runs, never 0."""
        return self._port

    @property
    def url(self) -> str:
        """The URL of the first account, in path style."""
        return self.url_of(self._accounts.names[0])

    def url_of(self, account: str) -> str:
        """The URL of an account, in path style."""
        scheme = "http" if self._tls is None else "https"
        host = self._address[0]
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{self._port}/{account}"

    def replace_keys(self, keys: Mapping[str, Iterable[str]]) -> None:
        """
        Give accounts other keys, at once: `server.replace_keys({"hr": [new_key, old_key]})`.

        Raises:
            ValueError: An account that there is not, keys that cannot be used, or the development key where other
                machines can connect; nothing was changed.
        """
        given = {name: tuple(some) for name, some in keys.items()}
        if not is_loopback(self._address[0]) and any(
            Account(name=name, keys=some).is_public for name, some in given.items()
        ):
            raise ValueError("the development key is published; it is refused where other machines can connect")
        self._accounts.replace_keys(given)

    def replace_certificate(self, cert: str | os.PathLike[str], cert_key: str | os.PathLike[str] | None) -> None:
        """
        Use another certificate for connections from now on.

        Raises:
            OSError: It cannot be read, or is none; the old one stays in use.
        """
        if self._tls is not None:
            _tls(cert, cert_key)
            self._tls.load_cert_chain(cert, cert_key)

    async def start(self) -> None:
        """
        Open the data and listen.

        Raises:
            tableorm_local.engine.OpenError: The data cannot be opened.
            OSError: The address cannot be listened at.
        """
        front = Front(
            Service(self._accounts, self._engines, pages=self._limits.pages),
            self._limits,
            self._log,
            metrics=self._metrics,
            open_metrics=self._open_metrics,
            compress_for_all=self._compress_for_all,
        )
        runner = web.ServerRunner(front.server, shutdown_timeout=self._limits.stop_seconds)
        try:
            for engine in self._engines.values():
                await engine.open()
            await runner.setup()
            listener = _listen(*self._address, share=self._share_port)
            self._check_public(listener)
            self._port = listener.getsockname()[1]
            site = web.SockSite(runner, listener, ssl_context=self._tls, backlog=_BACKLOG)
            await site.start()
        except BaseException:
            await self._close(runner)
            raise
        self._running = runner, site, front
        self._publishing = asyncio.create_task(_publish(front))

    def _check_public(self, listener: socket.socket) -> None:
        # A name may stand for another address than it seems to.
        if self._accounts.any_public and not is_loopback(listener.getsockname()[0]):
            listener.close()
            raise OSError("the name stands for no loopback address, and the development key is published")

    async def stop(self) -> None:
        """Take no more connections, finish what was asked for, close the data. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            runner, site, front = running
            try:
                await site.stop()
                await front.drain()
            finally:  # also if nobody wants to wait for what is under way
                await self._close(runner)

    async def _close(self, runner: web.ServerRunner) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
        try:
            await runner.cleanup()
        finally:
            for engine in self._engines.values():
                await engine.close()
            if self._log is not None:
                await asyncio.to_thread(self._log.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


async def _publish(front: Front) -> None:
    while True:
        front.gauge()
        try:
            await asyncio.to_thread(front.metrics.publish)
        except OSError as error:
            _logger.warning("the metrics cannot be written: %s", error)
        await asyncio.sleep(_PUBLISH_SECONDS)


def _listen(host: str, port: int, *, share: bool) -> socket.socket:
    """A socket bound to the address; the first that the name stands for."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener
