"""
Arguments that several actions of `tableorm migrate` take.
"""

import argparse
from pathlib import Path

from tableorm import Entity
from tableorm.cli.arguments import add_flag, find_targets


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
    add_flag(
        parser,
        "--no-older-writers",
        "say that every program that writes has these models; indexes are read from then on",
    )


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
    return [model for module in args.modules for model in find_targets(module, Entity)]
