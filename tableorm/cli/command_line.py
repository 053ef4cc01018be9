"""
The `tableorm` command: finds its subcommands in the entry-point group `tableorm.commands`, and runs one.

Any distribution can add a command; the built-in ones are registered in the same way:

    [project.entry-points."tableorm.commands"]
    export = "my_package.commands:EXPORT"      # an object with the members of `Command`
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from .. import __version__
from ..errors import TableOrmError
from ..protocol.redaction import escape_unprintable

__all__ = ["COMMANDS", "Command", "main"]

COMMANDS = "tableorm.commands"
"""The entry-point group that subcommands are found in; the entry point's name is the command's."""

_OWN = "tableorm"


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

    def run(self, args: argparse.Namespace) -> int:
        """
        Run the command.

        Args:
            args: The arguments that `configure` declared.

        Returns:
            The exit status.

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
    args = _parser().parse_args(arguments)
    command: Command = args.command
    try:
        status = command.run(args)
        sys.stdout.flush()
    except TableOrmError as error:
        if args.traceback:
            raise
        _report(str(error))
        return 1
    except BrokenPipeError:
        # The reader, `head` perhaps, has closed the pipe. Python would print an error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if args.traceback:
            raise
        _report(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error))
        return 1
    except KeyboardInterrupt:
        if args.traceback:
            raise
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    about = "Show, check and serve the tables of a database."
    parser = argparse.ArgumentParser(prog="tableorm", description=about, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"tableorm {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in sorted(_commands().items()):
        choice = choices.add_parser(name, help=command.help, description=command.help, allow_abbrev=False)
        # Suppressed when absent, or its default would overwrite the option before the command.
        choice.add_argument("--traceback", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.configure(choice)
        choice.set_defaults(command=command)
    return parser


def _commands() -> dict[str, Command]:
    commands: dict[str, Command] = {}
    # Our own commands come first: another distribution cannot take their names.
    for entry in sorted(entry_points(group=COMMANDS), key=lambda entry: (_distribution(entry) != _OWN, entry.name)):
        try:
            command = _load(entry)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken command must not break the others
            problem = f"{type(error).__name__}: {error}"
            _report(f"command {entry.name!r} of {_distribution(entry)} is left out: it cannot be loaded: {problem}")
            continue
        if entry.name in commands:
            _report(f"command {entry.name!r} of {_distribution(entry)} is left out: another command has that name")
            continue
        commands[entry.name] = command
    return commands


def _load(entry: EntryPoint) -> Command:
    command = entry.load()
    if not isinstance(command, Command):
        raise TypeError(f"{entry.value} lacks a member of tableorm.cli.Command: help, configure or run")
    # A trial, so that a command which fails here does not leave half of its arguments behind.
    command.configure(argparse.ArgumentParser())
    return command


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown distribution"


def _report(message: str) -> None:
    print("tableorm:", escape_unprintable(" ".join(message.split())), file=sys.stderr)
