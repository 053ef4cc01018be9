"""
The command `tableorm sweep`, which deletes entities that have expired, and trims change feeds.
"""

import argparse

from ..database.database import Database
from ..errors import ModelError
from ..models.entity import schema_of
from ..models.schema import concrete
from ..queries.sweep import is_swept
from .arguments import JOB, OwnCommand, state
from .progress import run_job


async def _sweep(args: argparse.Namespace) -> int:
    """
    `tableorm sweep URL MODULE[:MODEL]` deletes the entities of models that have expired, and the changes that feeds no
    longer keep. Of a module it takes the models that have a field with `expiry=True`, or a `Feed`.

    The exit status is 0 if all of them were deleted; 1 if some could not be; 2 after wrong usage.

    Examples:
        tableorm sweep local:./hr.tables hr.models
    """
    # A module has other models too.
    swept = [each for each in args.models if any(map(is_swept, concrete(schema_of(each))))]
    if not swept:
        names = ", ".join(each.__name__ for each in args.models)
        raise ModelError(
            f"there is nothing to sweep: no entities of {names} expire, and none has a change feed; "
            "name models that have a field with `expiry=True`, or a `Feed`"
        )
    return await run_job(args, Database.sweep, *swept)


SWEEP = OwnCommand("delete entities that have expired, and trim change feeds", _sweep, *JOB, *state("sweep"))
