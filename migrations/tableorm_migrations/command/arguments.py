"""
Arguments that several actions of `tableorm migrate` take.
"""

import argparse
from pathlib import Path

from tableorm import Entity
from tableorm.cli.arguments import find_targets, flag, option

SNAPSHOT = option(
    "--snapshot",
    metavar="FILE",
    type=Path,
    default=Path("models.snapshot.json"),
    help="the snapshot; default: models.snapshot.json",
)
"""Where the snapshot is."""

DIRECTORY = option(
    "--directory",
    metavar="FOLDER",
    type=Path,
    default=Path("revisions"),
    help="the folder of revisions; default: revisions",
)
"""Where the revisions are."""

NO_OLDER_WRITERS = flag(
    "--no-older-writers", "confirm that every program that writes has these models; indexes are read from then on"
)
"""The option by which the operator says that no older program writes any more."""

MODULES = option(
    "modules",
    metavar="MODULE",
    nargs="+",
    help="modules with the models, such as hr.models, including those they import",
)
"""The modules of models, for an action that needs no database."""


def find_models(args: argparse.Namespace) -> list[type[Entity]]:
    """
    Return the models of the modules that `MODULES` declares.

    Raises:
        ModelError: A module cannot be imported, or has no models.
    """
    return [model for module in args.modules for model in find_targets(module, Entity)]
