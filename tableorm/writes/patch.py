"""
What a write changes in its row, and what is known of that row: pure values, which say nothing of models or requests.
"""

from enum import Enum

import msgspec

from ..protocol.edm import ANNOTATION
from ..stores import Row
from .rows import overlaid


class Value(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The base of what a write consists of: frozen, equal to nothing but itself, and never searched for cycles."""


class Expects(Enum):
    """Whether there must be a row."""

    ABSENT = "absent"
    PRESENT = "present"
    EITHER = "either"


class Extent(Enum):
    """How much of a row a patch decides."""

    SOME = "some"
    """The properties that it sets or removes; others stay as they are."""
    FIELDS = "fields"
    """These too, but it is sent as a whole row: that of a replace, which keeps what its model does not know."""
    ROW = "row"
    """All of it: what is not set is removed."""


class Patch(Value, frozen=True):
    """
    What a write changes, computed once, when its verb is called.

    Args:
        expects: Whether there must be a row.
        extent: How much of the row it decides.
        set: The members to write, unknown properties among them; None to delete the row. A patch that neither sets nor
            removes anything is a guard: the row must be there.
        remove: Names of the properties to remove, whether they are there or not.
    """

    expects: Expects
    extent: Extent
    set: Row | None
    remove: frozenset[str] = frozenset()

    @property
    def is_idle(self) -> bool:
        """Whether it leaves every row as it is."""
        return self.extent is Extent.SOME and not self.remove and self.set is not None and not self.set


HELD = "held"
"""The proof of a row that the transaction writes: no request can come between."""

Proof = str | frozenset[str] | None
"""
What proves that a row is still as it is known: its ETag; `HELD`; for what was read from an index entry the properties
that must still be as they were read; None for nothing.
"""


class Known(Value, frozen=True):
    """
    A row as it is stored, as far as it is known.

    Args:
        row: Its members.
        complete: Whether it has no others.
        proof: What proves that it is still so.
        upgraded: Whether it was of an older version, and `row` is what it was upgraded to: a merge would leave it half
            old.
    """

    row: Row
    complete: bool = True
    proof: Proof = None
    upgraded: bool = False


def apply(patch: Patch, row: Row | None) -> Row | None:
    """Return what a row, or None for no row, is after a patch: without ETag and Timestamp."""
    if patch.set is None:
        return None
    if row is None or patch.extent is Extent.ROW:
        return patch.set.copy()
    return overlaid(without(row, patch.remove), patch.set)


def then(one: Patch, two: Patch) -> Patch:
    """
    Return the patch that does what two do in turn: `apply(then(one, two), row) == apply(two, apply(one, row))`.

    Args:
        one: The first.
        two: The second. It must be possible after the first, which whoever joins them sees to: no insert of a row that
            is there, and nothing but an insert or upsert of one that was deleted.
    """
    if two.set is None:
        return Patch(one.expects, Extent.ROW, None)
    if one.set is None or two.extent is Extent.ROW:
        return Patch(one.expects, Extent.ROW, two.set)
    members = overlaid(without(one.set, two.remove), two.set)
    if one.extent is Extent.ROW:
        return Patch(one.expects, Extent.ROW, members)
    extent = Extent.SOME if one.extent is two.extent is Extent.SOME else Extent.FIELDS
    return Patch(one.expects, extent, members, (one.remove | two.remove).difference(members))


def without(row: Row, names: frozenset[str]) -> Row:
    """Return a row without some properties."""
    if not names:
        return row
    return {name: value for name, value in row.items() if name.removesuffix(ANNOTATION) not in names}


def is_removed(patch: Patch, row: Row) -> bool:
    """Return whether a patch removes a property that a row has."""
    return any(name in row for name in patch.remove)
