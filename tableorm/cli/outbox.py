"""
The command `tableorm outbox`, which shows what writes have left to do, and lets people decide about it.
"""

import argparse
from collections.abc import Awaitable, Callable

from ..connection.connection import Connection, connection_of
from ..errors import LimitExceeded, NotSupported
from ..outbox.overview import Pending, drop_pending, find_pending, ring_again
from .arguments import DATABASE, TABLES, OwnCommand, open_existing, option
from .output import report, to_json

_ACTIONS: dict[str, tuple[str, Callable[[Connection, Pending], Awaitable[object]] | None]] = {
    "list": ("list pending writes, as lines of JSON", None),
    "show": ("show one change in full: its entities, and the rows that still have to be corrected", None),
    "retry": ("queue pending writes for workers again, even those they have given up", ring_again),
    "drop": ("discard a pending write by deleting its decision row, so that it is never finished", drop_pending),
}


async def _run_action(args: argparse.Namespace) -> int:
    """
    `tableorm outbox list|show|retry|drop URL TABLE` prints changes that have something left to do in other partitions,
    as lines of JSON, and rings for workers again, or drops them.

    The exit status is 1 if `show` or `drop` has found nothing, or `retry` a decision row that cannot be read.

    Examples:
        tableorm outbox list local:./hr.tables Directory
        tableorm outbox retry local:./hr.tables Directory --token 8e6e5f2a
    """
    _, act = _ACTIONS[args.action]
    found = unread = 0
    async with open_existing(args) as db:
        connection = connection_of(db)
        for table in args.tables:
            async for pending in find_pending(connection, table, args.partition, args.token):
                found += 1
                shown = pending.to_dict(whole=args.action == "show")
                try:
                    if act is not None:
                        await act(connection, pending)
                except (LimitExceeded, NotSupported) as error:
                    unread += 1
                    shown["error"] = str(error)
                print(to_json(shown))
    if unread:
        report(f"workers were not told of decision rows that cannot be read or say too much: {unread}")
        return 1
    if args.token is not None and not found:
        report(f"there is no change {args.token} in {', '.join(args.tables)}")
        return 1
    if not found:
        report("nothing is left to do", "dim")
    return 0


def _add_actions(parser: argparse.ArgumentParser) -> None:
    choices = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    for action, (what, _) in _ACTIONS.items():
        choice = choices.add_parser(action, help=what, description=what)
        choice.epilog = f"examples:\n    tableorm outbox {action} local:./hr.tables Directory --token 8e6e5f2a"
        for declare in (
            *DATABASE,
            TABLES,
            option("--partition", metavar="PK", help="only changes in this partition"),
            option(
                "--token", metavar="TOKEN", required=action in ("show", "drop"), help="only the change with this token"
            ),
        ):
            declare(choice)


OUTBOX = OwnCommand("inspect, retry or discard pending writes", _run_action, _add_actions)
