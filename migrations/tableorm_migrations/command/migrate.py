"""
The command itself: each action is one in the form of a command.
"""

import argparse

import attrs

from tableorm.cli import Command

from .files import CheckAction, RevisionAction

__all__ = ["MIGRATE", "MigrateCommand"]

_ACTIONS: dict[str, Command] = {
    "check": CheckAction(),
    "revision": RevisionAction(),
}


@attrs.frozen
class MigrateCommand:
    """
    `tableorm migrate check|revision` compares models with their snapshot.
    """

    help: str = "compare models with the snapshot of them, and say what each change needs"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        choices = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
        for name, action in _ACTIONS.items():
            choice = choices.add_parser(name, help=action.help, description=action.help, allow_abbrev=False)
            action.configure(choice)

    def run(self, args: argparse.Namespace) -> int:
        """
        Do what is asked for.

        Raises:
            TableOrmError: It cannot be done.
            OSError: A file cannot be read or written.
        """
        return _ACTIONS[args.action].run(args)


MIGRATE = MigrateCommand()
