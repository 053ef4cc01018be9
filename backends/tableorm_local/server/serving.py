"""
Serving: makes a server of a file and an address, starts it and stops it.
"""

import asyncio
import contextlib
import functools
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Self

from tableorm.protocol.codes import Fault

from ..engine import Engine
from .dispatch import Service
from .front.access_log import AccessLog
from .front.http import Front
from .front.limits import Limits
from .front.metrics import Metrics
from .operations.service_properties import read_cors_rules
from .security.accounts import Account, Accounts, is_loopback
from .security.cors import CorsRule

_logger = logging.getLogger("tableorm.server")

# Connections that the system keeps until they are accepted, in one turn of the event loop.
_BACKLOG = 256
_GAUGE_SECONDS = 1.0
_TURNS_TO_CONNECT = 5


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
    file_tokens: bool = True,
) -> "Server":
    """
    Make a server that offers a file's tables over the Table service's REST protocol; `async with` runs it.

        async with serve("hr.tables") as server:
            print(server.url)

    Args:
        data: The file, as in `connect("local:...")`, which other processes can have open too; None or ":memory:" for
            memory. With several accounts, a folder in which each account has a file `NAME.tables`.
        host: The address to listen at.
        port: The port to listen at; 0 for any free port, which `server.port` returns.
        accounts: The accounts that sign requests. The default is the development account, whose key everyone knows.
        cert: A file with a certificate chain, in PEM, for TLS.
        cert_key: The file with its private key, if `cert` doesn't contain it.
        access_log: A binary stream that receives a line of JSON for each request.
        limits: Limits on the server's use of memory and time; the default is `Limits()`.
        open_metrics: Whether clients of other machines may read `/metrics`.
        compress_for_all: Whether responses to clients on this machine are compressed too, if the clients accept that.
        share_port: Whether other processes may listen at the same address; connections are distributed among them.
        file_tokens: Whether to accept tokens that are signed with the key of the file itself. Copies of the file, such
            as backups, contain that key too.

    Raises:
        ValueError: Other machines could use the development key; accounts and data don't fit together; or there is a
            private key without a certificate.
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
    context = None if cert is None else read_certificate(cert, cert_key)
    chosen_limits = limits or Limits()
    engines = {name: Engine(path) for name, path in files.items()}
    make_front = functools.partial(
        Front,
        Service(chosen, engines, pages=chosen_limits.pages, file_tokens=file_tokens),
        chosen_limits,
        None if access_log is None else AccessLog(access_log),
        metrics=_make_metrics(),
        open_metrics=open_metrics,
        compress_for_all=compress_for_all,
    )
    return Server(make_front, engines, chosen, (host, port), tls=context, share_port=share_port)


def data_files(data: str | os.PathLike[str] | None, names: Iterable[str]) -> dict[str, Path | None]:
    """
    Return the file of each account, None for memory.

    Raises:
        ValueError: Several accounts have a single file, the file has no name, or it is a URL.
    """
    if data is not None and not os.fspath(data):
        raise ValueError("the data has no name; give a file, or :memory:")
    if data is not None and os.fspath(data).startswith("local:"):
        raise ValueError(f"the data {data!r} is a URL; give what follows 'local:', which is a file or :memory:")
    path = None if data in (None, ":memory:") else Path(data)
    files: dict[str, Path | None] = dict.fromkeys(names, path)
    if path is not None and path.is_dir():
        files = {name: path / f"{name}.tables" for name in files}
    elif path is not None and len(files) > 1:
        raise ValueError(
            f"{os.fspath(path)!r} is not a folder, and there are {len(files)} accounts; give a folder, in which each "
            "gets a file of its own"
        )
    return files


def read_certificate(cert: str | os.PathLike[str], cert_key: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """
    Read a certificate and its private key.

    Raises:
        OSError: A file cannot be read, or is not what it should be.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, cert_key)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


class Server:
    """
    A server of the Table service's protocol; made by `serve`, and running inside `async with`.

    Args:
        make_front: Makes the front, in a running event loop.
        engines: The data of each account.
        accounts: The accounts that sign requests.
        address: Host and port.
        tls: The certificate; None to speak without TLS.
        share_port: Whether other processes may listen at the same address.
    """

    def __init__(
        self,
        make_front: Callable[[], Front],
        engines: Mapping[str, Engine],
        accounts: Accounts,
        address: tuple[str, int],
        *,
        tls: ssl.SSLContext | None,
        share_port: bool,
    ) -> None:
        self._make_front, self._engines = make_front, engines
        self._accounts, self._address, self._tls, self._share_port = accounts, address, tls, share_port
        self._gauging: asyncio.Task[None] | None = None
        self._running: tuple[asyncio.Server, Front] | None = None
        self._port = address[1]

    def __repr__(self) -> str:
        return f"<server {', '.join(self.urls)}: {'running' if self._running else 'not running'}>"

    @property
    def port(self) -> int:
        """The port that the server listens at; never 0 once it runs."""
        return self._port

    @property
    def url(self) -> str:
        """The URL of the first account, in path style."""
        return self.url_of(self._accounts.names[0])

    @property
    def urls(self) -> list[str]:
        """The URLs of all accounts, in path style."""
        return [self.url_of(name) for name in self._accounts.names]

    def url_of(self, account: str) -> str:
        """Return the URL of an account, in path style."""
        scheme = "http" if self._tls is None else "https"
        host = self._address[0]
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{self._port}/{account}"

    def replace_keys(self, keys: Mapping[str, Iterable[str]]) -> None:
        """
        Replace the keys of accounts at once: `server.replace_keys({"hr": [new_key, old_key]})`.

        Raises:
            ValueError: An account does not exist, a key cannot be used, or a key is the development key and other
                machines can connect. Then nothing is changed.
        """
        given = {name: tuple(some) for name, some in keys.items()}
        if not is_loopback(self._address[0]) and any(
            Account(name=name, keys=some).is_public for name, some in given.items()
        ):
            raise ValueError("the development key is published; it is rejected where other machines can connect")
        self._accounts.replace_keys(given)

    def replace_certificate(self, cert: str | os.PathLike[str], cert_key: str | os.PathLike[str] | None) -> None:
        """
        Use another certificate for all new connections.

        Raises:
            OSError: The file can't be read, or isn't a certificate; the old one stays in use.
        """
        if self._tls is not None:
            read_certificate(cert, cert_key)
            self._tls.load_cert_chain(cert, cert_key)

    async def start(self) -> None:
        """
        Open the data and listen.

        Raises:
            TableOrmError: The data cannot be opened.
            OSError: The server can't listen at the address.
        """
        front = self._make_front()
        try:
            for engine in self._engines.values():
                await engine.open()
            await self._warn_of_cors()
            listener = bind(*self._address, share=self._share_port)
            self._check_public(listener)
            self._port = listener.getsockname()[1]
            loop = asyncio.get_running_loop()
            site = await loop.create_server(front.server, sock=listener, ssl=self._tls, backlog=_BACKLOG)
        except BaseException:
            await self._close(front)
            raise
        self._running = site, front
        self._gauging = asyncio.create_task(_update_gauges(front))

    async def _warn_of_cors(self) -> None:
        """Tell which web pages may use the data of a public account: another program may have made the file."""
        for name, engine in self._engines.items():
            rules: tuple[CorsRule, ...] = ()
            if self._accounts.is_public(name):
                with contextlib.suppress(Fault):  # what cannot be read lets nobody in
                    rules = await read_cors_rules(engine)
            origins = sorted({origin[:80] for rule in rules for origin in rule.origins})
            if origins:
                _logger.warning(
                    "rules of CORS in the data let web pages of %s use account %s, whose key is published; if you have "
                    "not set them, remove them (Set Table Service Properties), or give the account a key of its own",
                    ", ".join(map(repr, origins)),
                    name,
                )

    def _check_public(self, listener: socket.socket) -> None:
        # A name may stand for another address than it seems to: `localhost` need not be a loopback address.
        if self._accounts.any_public and not is_loopback(listener.getsockname()[0]):
            listener.close()
            raise OSError("the name does not stand for a loopback address, and the development key is published")

    async def stop(self) -> None:
        """Accept no more connections, finish the running requests, and close the data. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            site, front = running
            try:
                await _stop_listening(site)
            finally:  # also if the caller is cancelled while requests are under way
                await self._close(front)

    async def _close(self, front: Front) -> None:
        if self._gauging is not None:
            self._gauging.cancel()
        try:
            await front.drain()
        finally:
            for engine in self._engines.values():
                await engine.close()
            if front.log is not None:
                await asyncio.to_thread(front.log.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


async def _stop_listening(server: asyncio.Server) -> None:
    """Take no more connections. Those that the system has accepted are given to the server first."""
    loop = asyncio.get_running_loop()
    try:
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
        # asyncio makes the connection of an accepted socket in the next turns, and fails if the server closed before;
        # aiohttp ends a connection only if it waits for a request.
        for _ in range(_TURNS_TO_CONNECT):
            await asyncio.sleep(0)
    except NotImplementedError:
        pass  # an event loop whose sockets have no readers
    finally:
        server.close()


async def _update_gauges(front: Front) -> None:
    while True:
        front.update_gauges()
        await asyncio.sleep(_GAUGE_SECONDS)


def _make_metrics() -> Metrics:
    try:
        from .front.prometheus import PrometheusMetrics  # noqa: PLC0415 - it needs the extra `metrics`
    except ImportError:
        return Metrics()
    return PrometheusMetrics()


def bind(host: str, port: int, *, share: bool) -> socket.socket:
    """Return a socket that is bound to the first address that the name stands for."""
    family, _, _, _, address = socket.getaddrinfo(host, port)[0]
    listener = socket.socket(family)
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
