"""
`tableorm serve`: the table server as a program, in one process or in several that share the file and the port.
"""

import argparse
import contextlib

from tableorm.cli.arguments import OwnCommand, flag, number, option, parse_port, pick
from tableorm.cli.output import report
from tableorm.errors import NotSupported

from .file_argument import parse_path


def _serve(args: argparse.Namespace) -> int:
    """
    `tableorm serve --data FILE` lets clients in any language use the tables in a file.

    Examples:
        tableorm serve --data hr.tables
        tableorm serve --data hr.tables --port 0 --access-log -
    """
    if len(args.account) != len(args.key_file):
        raise NotSupported("each --account needs a --key-file of its own, in the same order")
    # The other commands do not wait for the import of an HTTP server.
    from .server_process import Options, run_alone, warn_of_open_keys  # noqa: PLC0415
    from .workers import supervise  # noqa: PLC0415

    options = Options(
        **pick(args, "data", "host", "port", "cert", "cert_key", "access_log", "open_metrics", "json"),
        accounts=tuple(zip(args.account, args.key_file, strict=True)),
        file_tokens=not args.no_file_tokens,
    )
    warn_of_open_keys(options)
    _allow_many_files()
    status = run_alone(options) if args.workers == 1 else supervise(options, args.workers)
    report(f"stopped; the same command serves {args.data} again", "dim")
    return status


def _allow_many_files() -> None:
    """Allow as many open files as possible: each connection is one, and the default is often too few."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - Windows has none

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


SERVE = OwnCommand(
    "serve a file to clients of Azure Table Storage in any language",
    _serve,
    option(
        "--data",
        metavar="FILE",
        type=parse_path,
        required=True,
        help="the file; with several accounts a folder; or :memory:",
    ),
    option("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)"),
    option("--port", type=parse_port, default=10002, help="0 for any free port (default: 10002)"),
    option("--account", metavar="NAME", action="append", default=[], help="an account; may be given several times"),
    option("--key-file", metavar="FILE", action="append", default=[], help="its one or two keys, a line each"),
    option("--cert", metavar="FILE", help="certificate chain in PEM, to speak TLS"),
    option("--cert-key", metavar="FILE", help="its private key, if that is not in the same file"),
    option(
        "--workers",
        metavar="N",
        type=number("a number of processes, 1 to 64", 1, 64),
        default=1,
        help="processes (default: 1)",
    ),
    option("--access-log", metavar="FILE", help="a line of JSON for each request; - for stderr"),
    flag(
        "--no-file-tokens",
        "refuse tokens that are signed with the key of the file, which copies of the file have too",
    ),
    flag("--open-metrics", "let other machines read /metrics"),
)
