"""
The command itself: each action is one in the form of a command.
"""

import argparse
from collections.abc import Coroutine
from typing import Any

from tableorm.cli import Command
from tableorm.cli.parser import add_command

from .files import CheckAction, RevisionAction
from .rekey import REKEY_ACTIONS
from .stored import BuildIndexAction, RewriteAction, StatusAction, UpgradeAction

_ACTIONS: dict[str, Command] = {
    "check": CheckAction(),
    "revision": RevisionAction(),
    "upgrade": UpgradeAction(),
    "status": StatusAction(),
    "rewrite": RewriteAction(),
    "build-index": BuildIndexAction(),
    **REKEY_ACTIONS,
}


class MigrateCommand:
    """
    `tableorm migrate check|revision` compares models with their snapshot, and `tableorm migrate
    upgrade|status|rewrite|build-index` does to a database what changes of models need. `tableorm migrate
    plan|move|verify|seal|finalize|rollback` gives the entities of a model other keys.

    Examples:
        tableorm migrate revision hr.models --message "find by email"
        tableorm migrate upgrade local:./hr.tables hr.models
    """

    help = "check changes of models, and do to stored rows what they need"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        choices = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
        for name, action in _ACTIONS.items():
            add_command(choices, name, action)

    def run(self, args: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
        """
        Do what is asked for.

        Raises:
            TableOrmError: It cannot be done.
            OSError: A file cannot be read or written.
        """
        return _ACTIONS[args.action].run(args)


MIGRATE = MigrateCommand()
