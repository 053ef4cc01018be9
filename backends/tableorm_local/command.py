"""
`tableorm serve`: the table server as a program, in one process or in several that share the file and the port.
"""

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import attrs

from tableorm.errors import NotSupported, Unavailable

from .backend import error_of
from .engine import OpenError

if TYPE_CHECKING:
    from .server import Account, Server

__all__ = ["SERVE", "Options", "Serve", "run_server"]


@attrs.frozen(kw_only=True)
class Options:
    """
    What the command line says, as the processes of the server are told.

    Args:
        data: The file, a folder, or `:memory:`.
        host: Where to listen.
        port: Likewise; 0 for any that is free.
        accounts: Name and key file of each; none for the development account.
        cert: Certificate chain.
        cert_key: Its private key.
        access_log: A file, `-` for stderr, None for no log.
        open_metrics: Whether other machines may read `/metrics`.
        share_port: Whether other processes listen there too.
        metrics: Folder in which they tell each other what they count.
        name: Of this process among them.
    """

    data: str
    host: str
    port: int
    accounts: tuple[tuple[str, str], ...] = ()
    cert: str | None = None
    cert_key: str | None = None
    access_log: str | None = None
    open_metrics: bool = False
    share_port: bool = False
    metrics: str | None = None
    name: str = ""


@attrs.frozen
class Serve:
    """`tableorm serve --data FILE` lets clients in any language use the tables in a file."""

    help: str = "speak the Table service's REST protocol"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument(
            "--data",
            metavar="FILE",
            required=True,
            help="the file; with several accounts a folder; or :memory:",
        )
        parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
        parser.add_argument("--port", type=_port, default=10002, help="0 for any that is free (default: 10002)")
        parser.add_argument(
            "--account", metavar="NAME", action="append", default=[], help="an account; may be given several times"
        )
        parser.add_argument(
            "--key-file", metavar="FILE", action="append", default=[], help="its one or two keys, a line each"
        )
        parser.add_argument("--cert", metavar="FILE", help="certificate chain in PEM, to speak TLS")
        parser.add_argument("--cert-key", metavar="FILE", help="its private key, if that is not in the same file")
        parser.add_argument("--workers", metavar="N", type=_count, default=1, help="processes (default: 1)")
        parser.add_argument("--access-log", metavar="FILE", help="a line of JSON for each request; - for stderr")
        parser.add_argument("--open-metrics", action="store_true", help="let other machines read /metrics")

    def run(self, args: argparse.Namespace) -> int:
        """Serve until SIGTERM or SIGINT."""
        if len(args.account) != len(args.key_file):
            raise NotSupported("each --account needs a --key-file of its own, in the same order")
        options = Options(
            data=args.data,
            host=args.host,
            port=args.port,
            accounts=tuple(zip(args.account, args.key_file, strict=True)),
            cert=args.cert,
            cert_key=args.cert_key,
            access_log=args.access_log,
            open_metrics=args.open_metrics,
        )
        _allow_connections()
        if args.workers > 1:
            from .workers import supervise  # noqa: PLC0415 - as in `_make`

            return supervise(options, args.workers)
        asyncio.run(run_server(options, _announce))
        return 0


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes, 1 to 64")
    return int(text)


def _allow_connections() -> None:
    """Each connection is an open file, of which the default is often too few."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - Windows has none

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _announce(server: "Server", options: Options) -> None:
    names = [name for name, _ in options.accounts]
    for url in map(server.url_of, names) if names else [server.url]:
        print(f"serving {options.data} at {url}", flush=True)  # noqa: T201 - what the program says


async def run_server(
    options: Options, started: "Callable[[Server, Options], None]", until: socket.socket | None = None
) -> None:
    """
    Serve until SIGTERM, SIGINT, or the other end of `until` is closed. SIGHUP reads keys and certificate again.

    Raises:
        TableOrmError: It does not start.
    """
    stream = _log_stream(options.access_log)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        server = _make(options, stream)
        await _start(server, options)
        if until is not None:
            loop.add_reader(until, stop.set)
        # Windows has no such signals for event loops; there Ctrl-C interrupts.
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            if sys.platform != "win32":
                loop.add_signal_handler(signal.SIGHUP, _reload, server, options)
        try:
            started(server, options)
            await stop.wait()
        finally:
            await server.stop()
    finally:
        if stream is not None and stream is not sys.stderr.buffer:
            stream.close()


def _log_stream(file: str | None) -> BinaryIO | None:
    if file is None:
        return None
    try:
        return sys.stderr.buffer if file == "-" else Path(file).open("ab")
    except OSError as error:
        raise Unavailable(f"--access-log: {error}") from error


def _make(options: Options, stream: BinaryIO | None) -> "Server":
    # The other commands do not wait for the import of an HTTP server.
    from .server import serve  # noqa: PLC0415
    from .server.metrics import Metrics  # noqa: PLC0415

    try:
        return serve(
            None if options.data == ":memory:" else options.data,
            host=options.host,
            port=options.port,
            accounts=_accounts(options),
            cert=options.cert,
            cert_key=options.cert_key,
            access_log=stream,
            open_metrics=options.open_metrics,
            share_port=options.share_port,
            metrics=Metrics(None if options.metrics is None else Path(options.metrics), options.name),
        )
    except ValueError as error:
        raise NotSupported(str(error)) from error
    except OSError as error:
        raise Unavailable(f"the certificate cannot be used: {error}") from error


def _accounts(options: Options) -> "list[Account] | None":
    from .server import Account  # noqa: PLC0415
    from .server.accounts import read_keys  # noqa: PLC0415

    try:
        found = [Account(name=name, keys=read_keys(Path(file))) for name, file in options.accounts]
    except ValueError as error:
        raise NotSupported(f"--key-file: {error}") from error
    except OSError as error:
        raise Unavailable(f"--key-file: {error}") from error
    return found or None


async def _start(server: "Server", options: Options) -> None:
    try:
        await server.start()
    except OpenError as error:
        raise error_of(error) from error
    except OSError as error:
        raise Unavailable(f"cannot listen at {options.host} port {options.port}: {error}") from error


def _reload(server: "Server", options: Options) -> None:
    from .server.accounts import read_keys  # noqa: PLC0415

    try:
        if options.accounts:
            server.replace_keys({name: read_keys(Path(file)) for name, file in options.accounts})
        if options.cert is not None:
            server.replace_certificate(options.cert, options.cert_key)
    except (OSError, ValueError) as error:
        print(f"tableorm: nothing is changed: {error}", file=sys.stderr, flush=True)  # noqa: T201
    else:
        print("tableorm: keys and certificate are read again", file=sys.stderr, flush=True)  # noqa: T201


SERVE = Serve()
