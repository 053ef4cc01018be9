"""
Patches: what a write changes in its row, and what two of them are together.
"""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tableorm.protocol.edm import ANNOTATION
from tableorm.stores import Row
from tableorm.writes.patch import Expects, Extent, Patch, apply, then

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES: Any = st.one_of(st.integers(0, 2), st.just("text"))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Members of a few properties, some with the annotation of a type."""
    row: Row = {}
    for name in draw(st.sets(NAMES)):
        row[name] = draw(VALUES)
        if draw(st.booleans()):
            row[name + ANNOTATION] = "Edm.Int64"
    return row


@st.composite
def patches(draw: st.DrawFn) -> Patch:
    """Every patch that a verb can make."""
    if draw(st.integers(0, 5)) == 0:
        return Patch(Expects.PRESENT, Extent.ROW, None)
    extent, members = draw(st.sampled_from(Extent)), draw(rows())
    expects = draw(st.sampled_from(Expects)) if extent is not Extent.FIELDS else Expects.PRESENT
    if expects is Expects.ABSENT:
        extent = Extent.ROW
    removed = frozenset[str]() if extent is Extent.ROW else frozenset(draw(st.sets(NAMES))).difference(members)
    return Patch(expects, extent, members, removed)


def is_possible(patch: Patch, row: Row | None) -> bool:
    """Whether a store takes it for such a row."""
    if patch.expects is Expects.EITHER:
        return True
    return (row is None) == (patch.expects is Expects.ABSENT)


@given(one=patches(), two=patches(), row=st.none() | rows())
def test_two_patches_as_one(one: Patch, two: Patch, row: Row | None) -> None:
    """Applying the two together is applying them in turn, to whatever row both can be applied."""
    assume(is_possible(one, row))
    between = apply(one, row)
    assume(is_possible(two, between))
    # What removes a property needs the row, so that it is never the patch of an upsert that finds none.
    together = then(one, two)

    assert apply(together, row) == apply(two, between)
    assert is_possible(together, row)


@given(patch=patches(), row=rows())
def test_what_a_patch_leaves_alone(patch: Patch, row: Row) -> None:
    """A property that it neither sets nor removes stays as it is, with its type, unless the patch is the whole row."""
    after = apply(patch, row)
    if patch.set is None:
        assert after is None
        return
    assert after is not None
    assert {name: after[name] for name in patch.set} == patch.set
    assert not patch.remove & after.keys()
    rest = {n: v for n, v in row.items() if not {n, n.removesuffix(ANNOTATION)} & (patch.set.keys() | patch.remove)}
    assert {n: after[n] for n in rest if n in after} == (rest if patch.extent is not Extent.ROW else {})
