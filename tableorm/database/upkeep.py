"""
Upkeep: auditing and repairing what is derived from entities, and building indexes. See `tableorm.audit`.
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
    The part of a database that audits, repairs, and builds indexes.
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
        Check what is derived from the entities of some models: their index entries, their index lists, the counts and
        sums that they are in, and the fields that they copy from others. Every row is read, in memory that does not
        depend on how many there are.

        Others may write meanwhile: nothing is reported that one of their writes explains. A repair is written only if
        the rows that it was decided upon have not changed; rows of other kinds are never touched.

        Args:
            models: The models; an abstract base stands for all of its classes. The models in which their entities are
                counted, or of which they hold copies, are checked too.
            parallel: How many ranges of keys are read at the same time.
            cursor: The place that an earlier audit of these models had reached: `AuditReport.cursor`.
            repair: Whether to repair what is found. Damage that needs a decision is left: see `Damage`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to go on after a crash.

        Returns:
            The report of what was found.

        Raises:
            CursorError: The cursor is of other models or indexes, or damaged.
            ModelError: No model is given, or one without a kind.
            AccessDenied: In a scope, since an audit reads whole tables.
            TableNotFound: There is no such table.
        """
        self.boundary.check_whole_table(f"audit({', '.join(model.__name__ for model in models)})")
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
        Build an index for entities that were there before it was declared, while others write; then audit it. An index
        list, a count or a sum is built in the same way.

        By then all programs that write such entities must declare the index, an `Index` with `building=True`: an entity
        that another program writes meanwhile may lack its entry. Run it again when the last such program has ended.

        Args:
            index: The index, list, count or sum: `Employee.by_email`.
            parallel: How many ranges of keys are worked on at the same time.
            cursor: The place that an earlier call had reached: `BuildReport.cursor`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to go on after a crash.

        Returns:
            The report; its `complete` says whether the index can be read from now on.

        Raises:
            CursorError: The cursor is of another index, or damaged.
            AccessDenied: In a scope, since building writes whole tables.
            TableNotFound: There is no such table.
        """
        self.boundary.check_whole_table(f"build_index({index})")
        return await build_index(self, index, parallel=parallel, cursor=cursor, on_progress=on_progress)
