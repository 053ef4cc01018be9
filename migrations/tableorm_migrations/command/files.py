"""
The actions that need no database: `tableorm migrate check` and `tableorm migrate revision`.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from tableorm import ModelError
from tableorm.cli.arguments import OwnCommand, flag, option
from tableorm.cli.output import emit, report

from ..evolution import Difference, carry_removed, compare_snapshots
from ..revisions import load_revisions, write_revision
from ..revisions.line import check_snapshot
from ..rules import Verdict
from ..snapshot import describe_models, read_snapshot, write_snapshot
from .arguments import DIRECTORY, MODULES, SNAPSHOT, find_models


def _check(args: argparse.Namespace) -> int:
    """
    `tableorm migrate check MODULE ...` prints what has changed since the snapshot was written, and what each change
    needs. The exit status is 1 if something has changed; with `--write`, which writes the snapshot, only if a change
    is rejected.

    Examples:
        tableorm migrate check hr.models
        tableorm migrate check hr.models --write
    """
    path: Path = args.snapshot
    now = describe_models(find_models(args))
    before = read_snapshot(path) if path.exists() else None
    line = load_revisions(args.directory)
    check_snapshot(line, before, args.directory, path)
    if before is None:
        if not args.write:
            raise ModelError(f"there is no snapshot {path}; write the first one with --write")
        write_snapshot(path, now)
        written = {"written": str(path), "models": len(now.models)}
        emit(args, written, f"{path} was written; models: {len(now.models)}")
        return 0
    differences = compare_snapshots(before, now)
    _print_differences(args, differences)
    if not differences:
        emit(args, {"differences": 0}, f"nothing has changed since {path} was written")
    if not args.write:
        return int(bool(differences))
    if any(each.rule.verdict is Verdict.REFUSED for each in differences):
        report(f"{path} was not written, since a change is rejected")
        return 1
    if line and differences:
        raise ModelError(
            f"{path} was not written, since there are revisions in {args.directory}; run tableorm migrate revision"
        )
    write_snapshot(path, carry_removed(before, now))
    if differences:
        emit(args, {"written": str(path)}, f"{path} was written anew")
    return 0


CHECK = OwnCommand(
    "print what has changed since the snapshot was written, and what each change needs",
    _check,
    MODULES,
    SNAPSHOT,
    DIRECTORY,
    flag("--write", "update the snapshot, unless a change is rejected"),
)


def _write_revision(args: argparse.Namespace) -> int:
    """
    `tableorm migrate revision MODULE ... --message TEXT` writes what has changed since the snapshot was written as a
    new revision, and the snapshot anew. The exit status is 1, and nothing is written, if a change is rejected or needs
    a re-key.

    Examples:
        tableorm migrate revision hr.models --message "index of names"
    """
    models = find_models(args)
    draft = write_revision(models, args.directory, args.message, snapshot=args.snapshot)
    _print_differences(args, draft.differences)
    if draft.refused:
        report("no revision was written, since a change is rejected or needs a re-key")
        return 1
    if draft.path is None:
        emit(args, {"written": None}, "nothing has changed since the last revision")
        return 0
    steps = [str(each) for each in draft.steps]
    written = {"written": str(draft.path), "steps": steps}
    emit(args, written, f"{draft.path} was written; steps: {', '.join(steps) or 'none'}")
    return 0


REVISION = OwnCommand(
    "write what has changed in models as a revision, with what it needs done to stored rows",
    _write_revision,
    MODULES,
    option("--message", metavar="TEXT", required=True, help="the change in a few words"),
    SNAPSHOT,
    DIRECTORY,
)


def _print_differences(args: argparse.Namespace, differences: Iterable[Difference]) -> None:
    for each in differences:
        emit(args, {"subject": each.subject, "verdict": each.rule.verdict, "detail": str(each)}, str(each), wrap=True)
