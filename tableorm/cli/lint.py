"""
The command `tableorm lint`, which looks for declarations that become slow, hot or too large as rows accumulate.
"""

import argparse

import attrs

from ..advice import lint
from .arguments import OwnCommand, models, option
from .output import emit


def _lint(args: argparse.Namespace) -> int:
    """
    `tableorm lint MODULE:MODEL ...` prints what the rules find in the declarations. Nothing is opened or sent.

    The exit status is 0 if nothing was found, and 1 otherwise.

    Examples:
        tableorm lint hr.models
        tableorm lint hr.models:Employee --ignore growing-partition-key
    """
    found = lint(*args.models, ignore=args.ignore)
    for each in found:
        values = {"subject": each.subject, "detail": each.detail, **attrs.asdict(each.rule)}
        emit(args, values, str(each), wrap=True)
    if not found and not args.json:
        print("nothing was found")
    return int(bool(found))


LINT = OwnCommand(
    "look for models that become slow, hot or too large",
    _lint,
    option(
        "--ignore",
        metavar="CODE",
        action="append",
        default=[],
        help="don't report this rule, or with CODE:SUBJECT, for this declaration; may be repeated",
    ),
    models(),
)
