"""
The `tableorm` command: finds its subcommands in the entry-point group `tableorm.commands`, and runs one.

Any distribution can add a command; the built-in ones are registered in the same way:

    [project.entry-points."tableorm.commands"]
    export = "my_package.commands:EXPORT"      # an object with the members of `Command`
"""

import argparse
import asyncio
import inspect
import os
import sys
from collections.abc import Coroutine, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, runtime_checkable

from .. import __version__
from ..errors import TableOrmError
from .output import clear_progress, prepare_streams, report
from .parser import CommandParser, add_command
from .wording import in_options

COMMANDS = "tableorm.commands"
"""The entry-point group that subcommands are found in; the entry point's name is the command's."""

_OWN = "tableorm"
_EXAMPLES = """examples:
    tableorm init staff
    tableorm tables local:./hr.tables
    tableorm query local:./hr.tables Directory --top 10
    tableorm stats local:./hr.tables"""


@runtime_checkable
class Command(Protocol):
    """
    A subcommand: what an entry point of the group `tableorm.commands` loads.
    """

    @property
    def help(self) -> str:
        """The line that `tableorm --help` shows."""
        ...

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments. May be called more than once, each time with a new parser."""
        ...

    def run(self, args: argparse.Namespace, /) -> int | Coroutine[Any, Any, int]:
        """
        Run the command.

        Args:
            args: The arguments that `configure` declared; `args.json` says whether `--json` was given. After Ctrl-C the
                string `args.resume`, if there is one, says how to resume.

        Returns:
            The exit status, or a coroutine that returns it.

        Raises:
            TableOrmError: It is printed as one line, and the exit status is 1.
            OSError: Likewise, of a file that the command reads or writes.
        """
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the command line.

    Args:
        arguments: The arguments after the program's name; None for those of the process.

    Returns:
        The exit status: the command's, 1 after an error of tableorm or of a file, or 130 after an interrupt.

    Raises:
        SystemExit: After `--help`, `--version` and wrong usage, as argparse does.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    args = argparse.Namespace()
    prepare_streams()
    try:
        parser = make_parser(given)
        args.resume = parser.get_default("resume")  # for Ctrl-C while models are imported
        args = parser.parse_command(given)
        status: int | Coroutine[Any, Any, int] = args.command.run(args)
        if inspect.iscoroutine(status):
            status = asyncio.run(status)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # the reader, `head` perhaps, has what it wanted
        return 0
    except (TableOrmError, OSError, KeyboardInterrupt) as error:
        if "--traceback" in given:
            raise
        if isinstance(error, KeyboardInterrupt):
            report(f"interrupted; {getattr(args, 'resume', None) or 'run it again'}")
            return 130
        problem = str(error)
        if isinstance(error, TableOrmError):
            problem = in_options(problem)
        elif error.strerror:
            file = "" if error.filename is None else f"{error.filename}: "
            problem = f"{file}{in_options(error.strerror)}"
        report(problem)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return 1
    finally:
        clear_progress()  # which hides the cursor
    assert isinstance(status, int)
    return status


def _drop_output() -> None:
    """Drop what could not be written to stdout. Python would try it again at exit, and print an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_parser(arguments: Sequence[str]) -> CommandParser:
    """Return a parser with the command that the arguments begin with, or with all commands if they name none."""
    about = "Show, check and serve the tables of a database."
    parser = CommandParser(prog="tableorm", description=about, epilog=_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"tableorm {__version__}")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in sorted(_commands(next(iter(arguments), "")).items()):
        choice = add_command(choices, name, command)
        choice.set_defaults(command=command)
        parser.set_defaults(resume=choice.get_default("resume"))
    return parser


def _commands(name: str) -> dict[str, Command]:
    """Return the command with a name, since loading the others takes a while; all of them if there is none."""
    commands: dict[str, Command] = {}
    found = entry_points(group=COMMANDS)
    # Our own commands come first: another distribution cannot take their names.
    entries = found.select(name=name) or found
    for entry in sorted(entries, key=lambda entry: (_distribution(entry) != _OWN, entry.name)):
        problem = "another command has that name" if entry.name in commands else ""
        try:
            commands.setdefault(entry.name, _load(entry))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken command must not break the others
            problem = f"it cannot be loaded: {type(error).__name__}: {error}"
        if problem:
            report(f"command {entry.name!r} of {_distribution(entry)} is left out: {problem}")
    return commands


def _load(entry: EntryPoint) -> Command:
    command = entry.load()
    if not isinstance(command, Command):
        raise TypeError(f"{entry.value} lacks a member of tableorm.cli.Command: help, configure or run")
    # A trial, so that a command which fails here does not leave half of its arguments behind.
    command.configure(CommandParser())
    return command


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown distribution"
