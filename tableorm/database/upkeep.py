"""
Upkeep: what a database can do to see to it that what is derived from entities is right. See `tableorm.audit`.
"""

from collections.abc import Callable
from typing import Any

from ..audit.audit import audit
from ..audit.build import build_index
from ..audit.report import AuditReport, BuildReport
from ..models.derivation import DerivationOf
from ..models.entity import Entity
from .granting import Granting

__all__ = ["Upkeep"]


class Upkeep(Granting):
    """
    A reader that can also audit, repair, and build indexes.
    """

    async def audit(
        self,
        *models: type[Entity],
        parallel: int = 8,
        cursor: str | None = None,
        repair: bool = False,
        on_progress: Callable[[AuditReport], object] | None = None,
    ) -> AuditReport:
        """
        Check what is derived from the entities of some models: that the copies in their indexes are there, and are as
        the entities are; so are their index lists, the counts and sums that they are in, and what they hold of others.
        Every row is read, in memory that does not depend on how many there are.

        Others may write meanwhile: nothing is reported that one of their writes explains. A repair is conditional on
        what it was decided upon; rows of other kinds are never touched.

        Args:
            models: The models; an abstract base stands for all of its classes. Those in which their entities are
                counted, or of which they hold copies, are checked too.
            parallel: How many ranges of keys are read at the same time.
            cursor: Where an earlier audit of these models got to: `AuditReport.cursor`.
            repair: Whether to repair what is found. What needs a decision is left: see `Damage`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to go on after a crash.

        Returns:
            What was found.

        Raises:
            CursorError: The cursor is of other models or indexes, or damaged.
            ModelError: There is no model, or one without kind.
            TableNotFound: There is no such table.
        """
        return await audit(self, models, parallel=parallel, cursor=cursor, repair=repair, on_progress=on_progress)

    async def build_index(
        self,
        index: DerivationOf[Any],
        *,
        parallel: int = 8,
        cursor: str | None = None,
        on_progress: Callable[[BuildReport], object] | None = None,
    ) -> BuildReport:
        """
        Give the entities that were there before an index their copies in it, while others write; then audit the index.
        Likewise for an index list, a count or a sum: they come into the list, or are counted.

        All programs that write such entities must declare it by then, an `Index` with `building=True`: what one that
        has not writes meanwhile may lack its copy. QueryExecution it again when the last such program has ended.

        Args:
            index: The index, list, count or sum: `Employee.by_email`.
            parallel: How many ranges of keys are worked on at the same time.
            cursor: Where an earlier call got to: `BuildReport.cursor`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to go on after a crash.

        Returns:
            What became of it: `complete` says whether the index can be read from now on.

        Raises:
            CursorError: The cursor is of another index, or damaged.
            TableNotFound: There is no such table.
        """
        return await build_index(self, index, parallel=parallel, cursor=cursor, on_progress=on_progress)
