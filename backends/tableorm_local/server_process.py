"""
One process of the server: from what the command line says to a server that runs until it is told to stop.
"""

import asyncio
import contextlib
import errno
import os
import shlex
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import msgspec

from tableorm.errors import NotSupported, Unavailable
from tableorm.protocol.redaction import without_secrets

from .server import DEVELOPMENT_KEY, Account, Server, serve
from .server.security.accounts import read_keys
from .server.serving import read_certificate


@attrs.frozen(kw_only=True)
class Options:
    """
    The options of the command line, which every process of the server gets, under the names that `serve` has for them;
    it does not have `json`.

    Args:
        data: The file, a folder, or `:memory:`.
        host: The address to listen at.
        port: The port to listen at; 0 for any that is free.
        accounts: Name and key file of each account; empty for the development account.
        cert: File with the certificate chain; None to speak without TLS.
        cert_key: File with its private key.
        access_log: A file, `-` for stderr, None for no log.
        open_metrics: Whether other machines may read `/metrics`.
        file_tokens: Whether tokens are good that are signed with the key of the file itself.
        json: Whether the addresses are printed as JSON.
        share_port: Whether other processes listen at the same port.
    """

    data: str
    host: str
    port: int
    accounts: tuple[tuple[str, str], ...] = ()
    cert: str | None = None
    cert_key: str | None = None
    access_log: str | None = None
    open_metrics: bool = False
    file_tokens: bool = True
    json: bool = False
    share_port: bool = False


def warn_of_open_keys(options: Options) -> None:
    """Say of each key file that every user of the machine can read or change how to end that."""
    for _, file in options.accounts:
        with contextlib.suppress(OSError):
            mode = Path(file).stat().st_mode if os.name == "posix" else 0
            verbs = [verb for verb, bit in (("read", stat.S_IROTH), ("change", stat.S_IWOTH)) if mode & bit]
            if verbs:
                can = f"every user of this machine can {' and '.join(verbs)}"
                problem = f"{can} the keys in {file}; do: chmod 600 {shlex.quote(file)}"
                print_error(problem)


def print_error(text: str) -> None:
    """Print a line on stderr."""
    print(f"tableorm: {text}", file=sys.stderr, flush=True)  # noqa: T201


def run_alone(options: Options) -> int:
    """
    Run a server in this process until SIGTERM or SIGINT.

    Returns:
        The exit status.

    Raises:
        TableOrmError: The server does not start.
    """
    asyncio.run(run_server(options, lambda urls: print_urls(options, urls)))
    return 0


def print_urls(options: Options, urls: Iterable[str], remark: str = "") -> None:
    """
    Print where each account is served, and the connection string that opens it.

    A key that was read from a file is never printed: what a service prints is kept in logs, which others read.
    """
    files = dict(options.accounts)
    for url in urls:
        name = url.rpartition("/")[2]
        key, hint = DEVELOPMENT_KEY, ""
        if name in files:
            key, hint = "KEY", f" (in place of KEY put a line of {files[name]})"
        protocol = url.partition(":")[0]
        account = f"DefaultEndpointsProtocol={protocol};AccountName={name};AccountKey={key};TableEndpoint={url};"
        if options.json:
            found = {"data": options.data, "url": url, "connection_string": account, "key_file": files.get(name)}
            lines = [msgspec.json.encode(found).decode()]
        else:
            lines = [f"serving {options.data} at {url}{remark}", f"connection string: {account}{hint}"]
        print(*lines, sep="\n", flush=True)  # noqa: T201


async def run_server(
    options: Options, on_start: Callable[[Sequence[str]], None], until: BinaryIO | None = None
) -> None:
    """
    Serve until SIGTERM, SIGINT, or the end of `until`. SIGHUP reads keys and certificate again; a
    terminal sends it when it is closed, which ends the server.

    Raises:
        TableOrmError: The server does not start.
    """
    stream = _open_log(options.access_log)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        server = _make_server(options, stream)
        try:
            await server.start()
        except OSError as error:
            raise Unavailable(f"cannot listen at {options.host} port {options.port}: {error}") from error
        if until is not None:
            loop.add_reader(until, stop.set)
        # On Windows event loops know no signals; there Ctrl-C interrupts.
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            if sys.platform != "win32":
                if has_terminal():
                    loop.add_signal_handler(signal.SIGHUP, stop.set)
                else:
                    loop.add_signal_handler(signal.SIGHUP, _reload, server, options)
        try:
            on_start(server.urls)
            await stop.wait()
        finally:
            await server.stop()
    finally:
        if stream is not None and stream is not sys.stderr.buffer:
            stream.close()


def has_terminal() -> bool:
    """Return whether the process was started in a terminal."""
    streams = sys.stdin, sys.stdout, sys.stderr
    return any(stream is not None and stream.isatty() for stream in streams)


def _open_log(file: str | None) -> BinaryIO | None:
    if file is None or file == "-":
        return None if file is None else sys.stderr.buffer
    try:
        return open(file, "ab", opener=_open_own)
    except OSError as error:
        if error.errno == errno.ELOOP:
            problem = f"{file!r} is a symbolic link; give the file itself, or - for stderr"
            raise NotSupported(f"--access-log: {problem}") from error
        raise Unavailable(f"--access-log: {error}") from error


def _open_own(file: str, flags: int) -> int:
    """Open a file for its owner alone, and follow no link; a file that exists keeps its mode."""
    return os.open(file, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _make_server(options: Options, stream: BinaryIO | None) -> Server:
    try:
        given: dict[str, Any] = attrs.asdict(options, recurse=False, filter=attrs.filters.exclude("json"))
        given.update(accounts=_read_accounts(options), access_log=stream)
        return serve(**given)
    except ValueError as error:
        raise NotSupported(str(error)) from error
    except OSError as error:
        raise Unavailable(f"the certificate cannot be used: {error}") from error


def _read_accounts(options: Options) -> list[Account] | None:
    try:
        accounts = [Account(name=name, keys=read_keys(Path(file))) for name, file in options.accounts]
    except ValueError as error:
        raise NotSupported(f"--key-file: {error}") from error
    except OSError as error:
        # What was given in place of a file may be a key.
        raise Unavailable(f"--key-file: {without_secrets(str(error))}") from None
    return accounts or None


def _reload(server: Server, options: Options) -> None:
    try:
        keys = {name: read_keys(Path(file)) for name, file in options.accounts}
        if options.cert is not None:
            read_certificate(options.cert, options.cert_key)  # nothing is replaced if this fails
        server.replace_keys(keys)
        if options.cert is not None:
            server.replace_certificate(options.cert, options.cert_key)
    except (OSError, ValueError) as error:
        print_error(f"nothing is changed: {error}")
    else:
        print_error("keys and certificate are read again")
