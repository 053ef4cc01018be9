"""
The command itself: each action is one in the form of a command.
"""

import argparse
from collections.abc import Coroutine
from typing import Any

from tableorm.cli import Command
from tableorm.cli.arguments import OwnCommand
from tableorm.cli.parser import add_command

from .files import CHECK, REVISION
from .rekey import REKEY_ACTIONS
from .stored import BUILD_INDEX, REWRITE, STATUS, UPGRADE

_ACTIONS: dict[str, Command] = {
    "check": CHECK,
    "revision": REVISION,
    "upgrade": UPGRADE,
    "status": STATUS,
    "rewrite": REWRITE,
    "build-index": BUILD_INDEX,
    **REKEY_ACTIONS,
}


def _migrate(args: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
    """
    `tableorm migrate check|revision` compares models with their snapshot, and `tableorm migrate
    upgrade|status|rewrite|build-index` does to a database what changes of models need. `tableorm migrate
    plan|move|verify|seal|finalize|rollback` gives the entities of a model other keys.

    Examples:
        tableorm migrate revision hr.models --message "find by email"
        tableorm migrate upgrade local:./hr.tables hr.models
    """
    return _ACTIONS[args.action].run(args)


def _add_actions(parser: argparse.ArgumentParser) -> None:
    choices = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, action in _ACTIONS.items():
        add_command(choices, name, action)


MIGRATE = OwnCommand("check changes of models, and apply them to stored rows", _migrate, _add_actions)
