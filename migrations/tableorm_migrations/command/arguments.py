"""
Arguments that several actions of `tableorm migrate` take.
"""

import argparse
from pathlib import Path
from typing import Any

from tableorm import Entity
from tableorm.cli.arguments import find_targets, parse_count

__all__ = [
    "add_directory",
    "add_modules",
    "add_no_older_writers",
    "add_run",
    "add_snapshot",
    "find_models",
    "run_options",
]


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    """Declare where the snapshot is."""
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        type=Path,
        default=Path("models.snapshot.json"),
        help="where the snapshot is; models.snapshot.json if not given",
    )


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Declare where the revisions are."""
    parser.add_argument(
        "--directory",
        metavar="FOLDER",
        type=Path,
        default=Path("revisions"),
        help="where the revisions are; revisions if not given",
    )


def add_no_older_writers(parser: argparse.ArgumentParser) -> None:
    """Declare the option by which the operator says that no older program writes any more."""
    parser.add_argument(
        "--no-older-writers",
        action="store_true",
        help="say that every program that writes has these models; indexes are read from then on",
    )


def add_run(parser: argparse.ArgumentParser, parallel: int = 8) -> None:
    """Declare the arguments of runs that several processes share, with how many ranges they work on if not told."""
    parser.add_argument(
        "--parallel",
        metavar="N",
        type=parse_count,
        default=parallel,
        help=f"how many ranges of keys to work on at the same time; {parallel} if not given",
    )
    parser.add_argument("--rate", metavar="N", type=parse_count, help="work on N rows in a second at most")
    parser.add_argument(
        "--lease",
        metavar="SECONDS",
        type=parse_count,
        default=30,
        help="after how many seconds others take over if this process dies; 30 if not given",
    )
    parser.add_argument("--json", action="store_true", help="print progress and outcome as lines of JSON")


def run_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_run` declares as the arguments of a function."""
    return {"parallel": args.parallel, "rate": args.rate, "lease": float(args.lease)}


def add_modules(parser: argparse.ArgumentParser) -> None:
    """Declare the modules of models, for an action that needs no database."""
    parser.add_argument(
        "modules",
        metavar="MODULE",
        nargs="+",
        help="modules of the models, such as hr.models; those that they import are included",
    )


def find_models(args: argparse.Namespace) -> list[type[Entity]]:
    """
    Return the models of the modules that `add_modules` declares.

    Raises:
        ModelError: A module cannot be imported, or has no models.
    """
    return [model for module in args.modules for model in find_targets(module, (Entity,))]
