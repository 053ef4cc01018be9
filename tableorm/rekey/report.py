"""
What became of some rows of a re-key.
"""

import attrs

from ..errors import TableOrmError
from ..stores import RowAddress

__all__ = ["RowFailure", "WindowReport"]


@attrs.frozen
class RowFailure:
    """
    A row that was left as it is.

    Args:
        place: Where it is.
        error: Why.
    """

    place: RowAddress
    error: TableOrmError


@attrs.define(kw_only=True)
class WindowReport:
    """
    What became of some rows, and what it took.

    Attributes:
        moved: How many were changed.
        collisions: Those whose new key is that of another entity.
        failures: Those that could not be changed for another reason.
        transactions: How many transactions of several operations were sent.
        operations: How many operations these had.
    """

    moved: int = 0
    collisions: list[RowFailure] = attrs.field(factory=list[RowFailure])
    failures: list[RowFailure] = attrs.field(factory=list[RowFailure])
    transactions: int = 0
    operations: int = 0
