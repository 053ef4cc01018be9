"""
The command `tableorm migrate`, which compares models with the snapshot of them that is kept beside the program.
"""

import argparse
import sys
from pathlib import Path

import attrs

from tableorm import Entity
from tableorm.cli.arguments import find_targets
from tableorm.errors import ModelError

from .evolution import carry_removed, compare_snapshots
from .rules import Verdict
from .snapshot import describe_models, read_snapshot, write_snapshot

__all__ = ["MIGRATE", "MigrateCommand"]


@attrs.frozen
class MigrateCommand:
    """
    `tableorm migrate check MODULE ...` prints what has changed since the snapshot was written, and what each change
    needs. The exit status is 1 if something has changed; with `--write`, which writes the snapshot, only if a change
    is refused.
    """

    help: str = "compare models with the snapshot of them, and say what each change needs"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        choices = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
        what = "print what has changed since the snapshot was written, and what each change needs"
        check = choices.add_parser("check", help=what, description=what, allow_abbrev=False)
        check.add_argument("modules", metavar="MODULE", nargs="+", help="modules of the models, such as hr.models")
        check.add_argument(
            "--snapshot",
            metavar="FILE",
            type=Path,
            default=Path("models.snapshot.json"),
            help="where the snapshot is; models.snapshot.json if not given",
        )
        check.add_argument("--write", action="store_true", help="write the snapshot anew, unless a change is refused")

    def run(self, args: argparse.Namespace) -> int:
        """
        Compare, and write.

        Raises:
            ModelError: A module or the snapshot cannot be read, or there are no models.
        """
        path: Path = args.snapshot
        now = describe_models([each for name in args.modules for each in find_targets(name, (Entity,))])
        if not path.exists():
            if not args.write:
                raise ModelError(f"there is no snapshot {path}; write the first one with --write")
            write_snapshot(path, now)
            print(f"{path} was written; models: {len(now.models)}")
            return 0
        before = read_snapshot(path)
        differences = compare_snapshots(before, now)
        for each in differences:
            print(each)
        if not args.write:
            return int(bool(differences))
        if any(each.rule.verdict is Verdict.REFUSED for each in differences):
            print(f"tableorm: {path} was not written, since a change is refused", file=sys.stderr)
            return 1
        write_snapshot(path, carry_removed(before, now))
        return 0


MIGRATE = MigrateCommand()
