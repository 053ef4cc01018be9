"""
The command `tableorm drop-periods`, which drops the tables of periods that have ended.
"""

import argparse
import datetime as dt

import attrs

from ..errors import ModelError, counted
from ..models.entity import schema_of
from ..models.schema import Schema
from .arguments import DATABASE, OwnCommand, flag, models, open_existing, option
from .output import emit


async def _drop_periods(args: argparse.Namespace) -> int:
    r"""
    `tableorm drop-periods URL MODULE:MODEL --before DATE` deletes the tables of the periods that have ended by a date,
    and prints their names.

    Examples:
        tableorm drop-periods local:./logs.tables logs.models:Entry \
            --before 2026-03-01 --dry-run
    """
    chosen = [(model, _parse_bound(schema_of(model), args.before)) for model in args.models]
    found = False
    async with open_existing(args) as db:
        for model, before in chosen:
            dropped = await db.drop_periods(model, before=before, blobs=args.delete_blobs, dry_run=args.dry_run)
            lines = [*dropped.tables, *([counted(dropped.blobs, "blob")] if dropped.blobs else [])]
            if lines or args.json:
                emit(args, attrs.asdict(dropped), *lines)
            found = found or bool(lines)
    if not found and not args.json:
        print(f"nothing to delete: no table of a period that ended by {args.before}")
    return 0


def _parse_bound(schema: Schema, text: str) -> dt.datetime | dt.date | int:
    """Return the bound as a value of the field that tells the period. Raises ModelError."""
    try:
        if schema.periods is not None and schema.periods.numbered:
            return int(text)
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ModelError(
            f"--before {text!r} is rejected: give a day such as 2026-03-01, a time such as 2026-03-01T12:00+01:00, or, "
            "for tables of numbers, a number"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return moment if schema.periods is None else schema.periods.as_value(moment.astimezone(dt.UTC))


DROP_PERIODS = OwnCommand(
    "delete the tables of periods that have ended",
    _drop_periods,
    *DATABASE,
    models(),
    option(
        "--before",
        metavar="DATE",
        required=True,
        help="the first day to keep, such as 2026-03-01, in UTC; a time as 2026-03-01T12:00+01:00; or a number",
    ),
    option(
        "--delete-blobs",
        metavar="CONTAINER/NAME",
        help="also delete the blobs of these periods, such as logs/queue for logs/queue/2026/02/28/...",
    ),
    flag("--dry-run", "delete nothing, and print what would be deleted"),
)
