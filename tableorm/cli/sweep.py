"""
The command `tableorm sweep`, which deletes entities that have expired, and trims change feeds.
"""

import argparse

from ..database.database import Database
from ..errors import ModelError
from ..models.entity import schema_of
from ..models.schema import concrete
from ..queries.sweep import is_swept
from .arguments import add_job, add_state
from .progress import run_job


class Sweep:
    """
    `tableorm sweep URL MODULE[:MODEL]` deletes the entities of models that have expired, and the changes that feeds no
    longer keep. Of a module it takes the models that have a field with `expiry=True`, or a `Feed`.

    The exit status is 0 if all of them were deleted; 1 if some could not be; 2 after wrong usage.

    Examples:
        tableorm sweep local:./hr.tables hr.models
    """

    help = "delete entities that have expired, and trim change feeds"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_job(parser)
        add_state(parser, "sweep")

    async def run(self, args: argparse.Namespace) -> int:
        """Run the sweep and print its report."""
        # A module has other models too.
        swept = [each for each in args.models if any(map(is_swept, concrete(schema_of(each))))]
        if not swept:
            names = ", ".join(each.__name__ for each in args.models)
            raise ModelError(
                f"there is nothing to sweep: no entities of {names} expire, and none has a change feed; "
                "name models that have a field with `expiry=True`, or a `Feed`"
            )
        return await run_job(args, Database.sweep, *swept)


SWEEP = Sweep()
