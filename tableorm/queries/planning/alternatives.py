"""
Pieces: the conditions of a query as regions of keys, one for each alternative, merged where they overlap.

`or` and `in_` over key fields are taken apart, so that each alternative can be a point or a range of its own. What the
patterns tell is prepared once for each shape of query; values decide where the regions are and which overlap.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from typing import cast

import attrs

from ...expressions import AllOf, AnyOf, Comparison, Expression, Membership, PropertyComparison
from ...keys.ranges import high_of, hull, low_of, meet
from ...models.entity import schema_of
from ...models.kinds import KindSet
from ...protocol.filters import Filter, Op, Or
from ...stores import Bounds
from .client_filter import Local, local_of
from .key_ranges import Found, Intervals, KeyRegions
from .normalize import has_field, leaves, properties_of
from .parameters import Shape, Slot, filled, moved, slot_of
from .server_filter import Sender, Values, sender

__all__ = ["MOST_REQUESTS", "Left", "Piece", "Pieces", "Remaining"]

# More alternatives than this, multiplied, are no requests of their own any more; what is beyond is evaluated here.
MOST_REQUESTS = 20_000


@attrs.frozen(eq=False)
class Left:
    """
    A condition that the keys of a piece do not imply.

    Args:
        send: From values to its filter.
        fill: From values to the condition itself.
        local: From values to what is evaluated here.
        needs: The properties that it is about.
    """

    send: Sender
    fill: Callable[[Values], Expression]
    local: Callable[[Values], Local]
    needs: tuple[str, ...]


class _Either:
    """That one of some alternatives holds, each with values of its own: as `Left`, of whatever values it is asked."""

    __slots__ = ("_kinds", "_sides")

    def __init__(self, kinds: KindSet, sides: list[tuple[Left, Values]]) -> None:
        self._kinds, self._sides = kinds, sides

    def send(self, values: Values) -> Filter | None:
        del values
        nodes = [side.send(each) for side, each in self._sides]
        return None if None in nodes else Or(tuple(cast("list[Filter]", nodes)))

    def fill(self, values: Values) -> Expression:
        del values
        return AnyOf(tuple([side.fill(each) for side, each in self._sides]))

    def local(self, values: Values) -> Local:
        return local_of(self._kinds, self.fill(values))

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([name for side, _ in self._sides for name in side.needs]))


Remaining = tuple[Left | _Either, Values]
"""A condition that keys do not imply, and its values."""

Piece = tuple[Bounds, Bounds, KindSet, Sequence[Remaining]]
"""PartitionKeys and RowKeys, the kinds that can be there, and the conditions that these keys do not imply."""

_Choice = tuple[Expression, ...]
"""Terms that all hold in an alternative. An equality with the values of an `in_` stands for one with each of them."""


class _Branch:
    """
    Terms that all hold: those that all alternatives share, and a choice.

    Alternatives whose choices differ in values alone share a branch. What it is asked has the values of the shared
    terms first, then those of the choice.
    """

    __slots__ = ("_kinds", "_picks", "_rests", "_spread", "chosen", "own", "regions", "side", "terms")

    def __init__(
        self, kinds: KindSet, common: Sequence[Expression], chosen: Sequence[Expression], base: KeyRegions | None = None
    ) -> None:
        self._kinds, self.chosen = kinds, tuple(chosen)
        self.own = frozenset(range(len(common), len(common) + len(chosen)))
        self.terms = (*common, *chosen)
        self.regions = KeyRegions(kinds, self.terms, base)
        self._picks: list[tuple[int, ...]] = []
        self._spread: list[list[tuple[int, bool]]] = []
        self._rests: dict[frozenset[int], tuple[Left, ...]] = {}
        self.side: Left | None = None

    def add(self, terms: Sequence[Expression], slots: Sequence[Slot]) -> None:
        """Add an alternative: its terms, and where its values are among those of a query."""
        spread = {slot.at for term in terms if isinstance(term, Comparison) and (slot := slot_of(term)).many}
        if spread:
            self._spread.append([(slot.at, slot.at in spread) for slot in slots])
        else:
            self._picks.append(tuple([slot.at for slot in slots]))

    def count(self, values: Values) -> int:
        """How many alternatives there are with these values."""
        spread = [math.prod([len(values[at]) for at, many in each if many]) for each in self._spread]
        return len(self._picks) + sum(spread)

    def alternatives(self, common: Values, values: Values) -> Iterator[Values]:
        """The values of each alternative: of an `in_` there is one each."""
        for pick in self._picks:
            yield [*common, *[values[at] for at in pick]]
        for each in self._spread:
            for choice in product(*[dict.fromkeys(values[at]) if many else (values[at],) for at, many in each]):
                yield [*common, *choice]

    def rest(self, exact: frozenset[int]) -> tuple[Left, ...]:
        """The terms that are left where keys imply those."""
        found = self._rests.get(exact)
        if found is None:
            given = _equalities(self._kinds, self.terms)
            left = [term for index, term in enumerate(self.terms) if index not in exact]
            found = self._rests[exact] = tuple([_left(self._kinds, term, given) for term in left])
        return found


def _left(kinds: KindSet, term: Expression, given: Sequence[Comparison]) -> Left:
    needs = tuple(dict.fromkeys(properties_of(kinds, term)))
    return Left(sender(kinds, term, given), partial(filled, term), _evaluated(kinds, term), needs)


def _evaluated(kinds: KindSet, term: Expression) -> Callable[[Values], Local]:
    if any(isinstance(leaf, (Comparison, Membership, PropertyComparison)) for leaf in leaves(term)):
        return lambda values: local_of(kinds, filled(term, values))
    known: list[Local] = []  # a condition without values is the same each time

    def local(values: Values) -> Local:
        del values
        if not known:
            known.append(local_of(kinds, term))
        return known[0]

    return local


def _equalities(kinds: KindSet, terms: Iterable[Expression]) -> list[Comparison]:
    """What is said of the fields of the one kind; of several kinds each has its own keys."""
    if len(kinds.schemas) != 1:
        return []
    schema = kinds.schemas[0]
    return [t for t in terms if isinstance(t, Comparison) and t.op is Op.EQ and has_field(schema, t.field)]


_Alternative = tuple[tuple[bytes, bool], tuple[bytes, bool], Found, _Branch, Values]
"""Where its PartitionKeys and its RowKeys begin, a region of a branch, and the values of that."""

_LOWS = itemgetter(0, 1)


class Pieces:
    """
    What terms say of keys, for any values.

    Args:
        kinds: What is asked for. Its key templates are the only ones that are looked at, besides those of models that
            conditions name.
        terms: Patterns in normal form that all must hold.
        sizes: How many values there are for each `in_`, by their place, where they are too many for requests.

    Attributes:
        weight: About how much there is to keep.
    """

    def __init__(self, kinds: KindSet, terms: Sequence[Expression], sizes: Mapping[int, int] | None = None) -> None:
        self._kinds = kinds
        common: list[Expression] = []
        choices: list[list[_Choice]] = []
        count = 1
        for term in terms:
            sized = _choices(kinds, term, sizes or {}) if isinstance(term, (Membership, AnyOf)) else None
            if sized is None or count * sized[1] > MOST_REQUESTS:
                common.append(term)
            else:
                count *= sized[1]
                choices.append(sized[0])
        self._common, _, slots = moved(common, 0)
        self._at = [slot.at for slot in slots]
        self._base = _Branch(kinds, self._common, ())
        self._base.add((), ())
        self._branches: list[_Branch] = []
        if choices:
            self._divide(choices, len(slots))
        # In one partition of one kind everything that a request can read is one interval.
        self._whole = next((branch for branch in self._branches if branch.regions.like), None)
        self._varies = any(slot.many for choice in choices for each in choice for slot in _slots(each))
        self.weight = (1 + len(self._branches)) * (1 + len(terms)) + count // 8

    def _divide(self, choices: list[list[_Choice]], first: int) -> None:
        """Make the branches; alternatives that differ in values alone share one."""
        by_shape: dict[Shape, _Branch] = {}
        for choice in product(*choices):
            chosen = [term for part in choice for term in part]
            patterns, shape, slots = moved(chosen, first)
            branch = by_shape.get(shape)
            if branch is None:
                branch = by_shape[shape] = _Branch(self._kinds, self._common, patterns, self._base.regions)
            branch.add(chosen, slots)
        self._branches = list(by_shape.values())

    def fits(self, values: Values) -> bool:
        """Whether there are few enough alternatives for a request each."""
        return not self._varies or sum([branch.count(values) for branch in self._branches]) <= MOST_REQUESTS

    def find(self, values: Values) -> list[Piece]:
        """The regions of keys that can satisfy all terms, in key order, none of which overlap."""
        common = [values[at] for at in self._at]
        like = self._base.regions.intervals(common)
        base = self._base.regions.of(like)
        if not base or (len(base) == 1 and not self._branches):
            return [_piece(found, self._base, common) for found in base]
        if self._whole is not None:
            return [self._swallowed(self._whole, base[0], like, common, values)]
        # Most alternatives differ in one key alone.
        partition, row, *_ = base[0]
        low_partition, low_row, scans = low_of(partition), low_of(row), not partition.point
        alternatives: list[_Alternative] = []
        for branch in self._branches or (self._base,):  # of several kinds, in a partition each, there is no other
            find = branch.regions.find
            for each in branch.alternatives(common, values):
                for found in find(each, like):
                    low = low_partition if found[0] is partition else low_of(found[0])
                    alternatives.append((low, low_row if found[1] is row else low_of(found[1]), found, branch, each))
        if len(alternatives) > 1:
            if scans:
                scans = not all(found[0].point for _, _, found, _, _ in alternatives)
            alternatives.sort(key=_LOWS)
            clusters = _clusters(alternatives, scans=scans)
            if len(clusters) < len(alternatives):
                return [
                    _piece(*cluster[0][2:]) if len(cluster) == 1 else self._merged(cluster, base, common)
                    for cluster in clusters
                ]
        return [_piece(found, branch, each) for _, _, found, branch, each in alternatives]

    def _swallowed(
        self, whole: _Branch, base: Found, like: Sequence[Intervals], common: Values, values: Values
    ) -> Piece:
        """The piece of alternatives of which one says nothing of keys: all others are in what it reads."""
        parts = [(whole, each) for each in whole.alternatives(common, values)]
        for branch in self._branches:
            if branch is not whole:
                find = branch.regions.find
                parts += [(branch, each) for each in branch.alternatives(common, values) if find(each, like)]
        if len(parts) == 1:
            return _piece(base, *parts[0])
        partition, row, kinds, exact = base
        left: list[Remaining] = [(each, common) for each in self._base.rest(exact)]
        left.append((self._either(parts), common))
        return partition, row, kinds, left

    def _merged(self, cluster: list[_Alternative], base: list[Found], common: Values) -> Piece:
        # What the common conditions alone imply holds in every part of it that is within theirs. A branch can be
        # wider: an equality makes a key, whatever else is said of that field.
        exact: frozenset[int] = frozenset()
        partition, row = hull([each[2][0] for each in cluster]), hull([each[2][1] for each in cluster])
        if len(base) == 1:
            inside, along = meet(partition, base[0][0]), meet(row, base[0][1])
            if inside is not None and along is not None:
                partition, row, exact = inside, along, base[0][3]
        left: list[Remaining] = [(each, common) for each in self._base.rest(exact)]
        for _, _, found, branch, _ in cluster:
            if found[2] is self._kinds and found[3] >= branch.own and found[1] == row and found[0] == partition:
                break  # it has all that the others have
        else:
            left.append((self._either([(branch, each) for *_, branch, each in cluster]), common))
        return partition, row, self._kinds, left

    def _either(self, parts: list[tuple[_Branch, Values]]) -> _Either:
        return _Either(self._kinds, [(self._side(branch), each) for branch, each in parts])

    def _side(self, branch: _Branch) -> Left:
        """The choice of a branch as one condition."""
        side = branch.side
        if side is None:
            side = _left(self._kinds, _all_of(branch.chosen), _equalities(self._kinds, self._common))
            branch.side = side
        return side


def _piece(found: Found, branch: _Branch, values: Values) -> Piece:
    partition, row, kinds, exact = found
    rest = branch.rest(exact)
    return partition, row, kinds, [(left, values) for left in rest] if rest else ()


def _all_of(terms: tuple[Expression, ...]) -> Expression:
    return terms[0] if len(terms) == 1 else AllOf(terms)


def _slots(terms: Iterable[Expression]) -> Iterator[Slot]:
    """Those of single comparisons."""
    return (slot_of(term) for term in terms if isinstance(term, Comparison))


def _choices(kinds: KindSet, term: Expression, sizes: Mapping[int, int]) -> tuple[list[_Choice], int] | None:
    """
    The alternatives of a term, each of terms that all hold, and how many they are with the values of each `in_`; None
    if none of them says anything of keys, or there are too many.
    """
    if isinstance(term, Membership):
        if term.negated or not _is_of_key(kinds, term):
            return None
        slot = slot_of(term)
        return [(Comparison(term.field, Op.EQ, slot),)], sizes.get(slot.at, 1)
    if isinstance(term, AnyOf):
        if not any(_says_of_keys(kinds, each) for each in term.terms):
            return None
        found: list[_Choice] = []
        count = 0
        for each in term.terms:
            choices, size = _choices(kinds, each, sizes) or ([(each,)], 1)
            found += choices
            count += size
            if count > MOST_REQUESTS:
                return None
        return found, count
    if isinstance(term, AllOf):
        parts = [_choices(kinds, each, sizes) or ([(each,)], 1) for each in term.terms]
        count = math.prod(size for _, size in parts)
        if count > MOST_REQUESTS:
            return None
        combined = product(*(choices for choices, _ in parts))
        return [tuple([inner for part in choice for inner in part]) for choice in combined], count
    return None


def _says_of_keys(kinds: KindSet, term: Expression) -> bool:
    if isinstance(term, (AllOf, AnyOf)):
        return any(_says_of_keys(kinds, each) for each in term.terms)
    if isinstance(term, PropertyComparison):
        return term.property in ("PartitionKey", "RowKey") and term.op is not Op.NE
    if isinstance(term, Comparison):
        return term.op is not Op.NE and _is_of_key(kinds, term)
    return isinstance(term, Membership) and not term.negated and _is_of_key(kinds, term)


def _is_of_key(kinds: KindSet, term: Comparison | Membership) -> bool:
    if id(term.field) in kinds.own_fields:
        return id(term.field) in kinds.point_shape
    owners = [schema for schema in kinds.schemas if has_field(schema, term.field)] or [schema_of(term.field.model)]
    return any(term.field.name in owner.key_names for owner in owners)


def _clusters(alternatives: list[_Alternative], *, scans: bool) -> list[list[_Alternative]]:
    """Alternatives that overlap, together; each cluster's keys are before those of the next."""
    # A scan visits its partitions anyway: what else is wanted of them comes with it.
    clusters: list[list[_Alternative]] = []
    cluster: list[_Alternative] = []
    last_partition: tuple[bytes, bool] = (b"", False)
    unbounded, until, included = 0, b"", False
    for alternative in alternatives:
        low_partition, low_row, found, _, _ = alternative
        (low, low_open), interval = (low_partition, found[0]) if scans else (low_row, found[1])
        high = high_of(interval)
        # Partitions that are points are one if they begin together.
        if (
            cluster
            and (scans or low_partition == last_partition)
            and (unbounded or low < until or (low == until and included and not low_open))
        ):
            cluster.append(alternative)
            unbounded, until, included = max((unbounded, until, included), high)
        else:
            cluster = [alternative]
            clusters.append(cluster)
            last_partition = low_partition
            unbounded, until, included = high
    return clusters
