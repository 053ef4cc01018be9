"""
The actions on a database: `tableorm migrate upgrade`, `status`, `rewrite` and `build-index`.
"""

import argparse
from typing import Any

from tableorm import Database, NotSupported
from tableorm.cli.arguments import DATABASE, JOB, NAME, OwnCommand, models, open_existing, run_options, shared_run
from tableorm.cli.output import emit
from tableorm.cli.progress import ProgressReporter, run_job
from tableorm.models.derivation import DerivationOf

from ..revisions import StepReport, apply_revisions, migration_status
from ..revisions.apply import Outcome
from ..rewrite import rewrite
from .arguments import DIRECTORY, NO_OLDER_WRITERS

_LEFT = 3  # the exit status if something is left that only waits for older programs to end


async def _upgrade(args: argparse.Namespace) -> int:
    """
    `tableorm migrate upgrade URL MODULE[:MODEL] ...` applies the revisions that the database has not applied. The exit
    status is 0 if none is left, 1 if a step has failed, and 3 if one waits for `--no-older-writers`.

    Examples:
        tableorm migrate upgrade local:./hr.tables hr.models
    """
    progress = ProgressReporter(None)

    def show(report: StepReport) -> None:
        if report.outcome is Outcome.RUNNING:
            progress.note(report)
        else:
            emit(args, report.to_dict(), str(report), wrap=True)

    async with open_existing(args) as db:
        report = await apply_revisions(
            db,
            args.models,
            args.directory,
            no_older_writers=args.no_older_writers,
            on_progress=show,
            **run_options(args),
        )
    emit(args, report.to_dict(), str(report), wrap=True)
    return 0 if report.complete else 1 if report.failed else _LEFT


UPGRADE = OwnCommand(
    "apply the revisions that the database has not applied yet",
    _upgrade,
    *DATABASE,
    models(),
    DIRECTORY,
    NO_OLDER_WRITERS,
    *shared_run(),
)


async def _print_status(args: argparse.Namespace) -> int:
    """
    `tableorm migrate status URL` prints which revisions are applied, what is under way, and which indexes are complete.

    Examples:
        tableorm migrate status local:./hr.tables
    """
    async with open_existing(args) as db:
        status = await migration_status(db, args.directory if args.directory.exists() else None)
    emit(args, status.to_dict(), *str(status).split("\n"), wrap=True)
    return 0


STATUS = OwnCommand(
    "show revisions, shared runs with their progress, the states of indexes, and the phases of re-keys",
    _print_status,
    *DATABASE,
    DIRECTORY,
)


async def _rewrite(args: argparse.Namespace) -> int:
    """
    `tableorm migrate rewrite URL MODULE[:MODEL] ...` writes the rows of older versions as rows of the current one. The
    exit status is 1 if a row could not be rewritten.

    Examples:
        tableorm migrate rewrite local:./hr.tables hr.models:Employee
    """
    return await run_job(args, rewrite, *args.models)


REWRITE = OwnCommand("write rows of older versions as rows of the current one", _rewrite, *JOB)


async def _build_index(args: argparse.Namespace) -> int:
    """
    `tableorm migrate build-index URL MODULE:MODEL.INDEX ...` builds indexes, lists, counts and sums for entities that
    are older than the declaration. The exit status is 1 if one is not complete afterwards.

    Examples:
        tableorm migrate build-index local:./hr.tables hr.models:Employee.by_name
    """
    indexes: list[DerivationOf[Any]] = args.models
    if args.name is not None and len(indexes) > 1:
        raise NotSupported("--name is the name of one run; give one index, or leave the name out")
    status = 0
    for index in indexes:
        status |= await run_job(args, Database.build_index, index, no_older_writers=args.no_older_writers)
    return status


BUILD_INDEX = OwnCommand(
    "build indexes, lists, counts and sums for entities that were stored before",
    _build_index,
    *DATABASE,
    models(DerivationOf),
    NAME,
    NO_OLDER_WRITERS,
    *shared_run(),
)
