"""
Alternatives: the conditions of a query as regions of keys, one for each alternative, merged where they overlap.

`or` and `in_` over key fields are taken apart, so that each alternative can be a point or a range of its own. What the
parameterised conditions tell is prepared once for each query shape; values decide where the regions are and which of
them overlap.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import msgspec

from ...expressions import AllOf, AnyOf, Comparison, Expression, Membership, PropertyComparison
from ...models.entity import schema_of
from ...protocol.filters import Filter, Op, Or
from ...stores import Bounds
from ...stores.intervals import high_of, hull, low_of, meet
from .key_ranges import KeyRegions, RegionMatch
from .normalize import has_field, properties_of
from .parameters import Parameter, QueryShape, Values, bind, parameter_of, renumber
from .server_filter import FilterBuilder, filter_builder, join_filters
from .target import QueryTarget

MAX_ALTERNATIVES = 1_000
"""Alternatives of a query at most, multiplied: each can be a request of its own."""


class ResidualPredicate:
    """
    A condition that the keys of an alternative do not imply.

    Args:
        target: What is asked for.
        term: The parameterised condition.
        given: Equalities that hold besides it.

    Attributes:
        build_filter: Takes values and returns the filter that is pushed down; None if the service cannot express it.
        properties: The properties that the condition is about.
        bounds_keys: Whether it is on a part of a key and bounds the keys of the alternative, so that few of its rows do
            not satisfy it: those whose text goes on as the rest of a key does.
    """

    def __init__(self, target: QueryTarget, term: Expression, given: Sequence[Comparison]) -> None:
        self._term = term
        self.bounds_keys: bool = isinstance(term, Comparison) and _bounds_keys(target, term, given)
        self.build_filter: FilterBuilder = filter_builder(target, term, given)
        self.properties: tuple[str, ...] = tuple(dict.fromkeys(properties_of(target, term)))

    def bind(self, values: Values) -> Expression:
        """Return the condition with these values."""
        return bind(self._term, values)


def _bounds_keys(target: QueryTarget, term: Comparison, given: Sequence[Comparison]) -> bool:
    if len(target.schemas) != 1 or target.bags:
        return False
    schema = target.schemas[0]
    template, _ = schema.key_holders.get(term.field.name) or (schema.row, "")
    if template is None or term.field.name not in (template.each, *template.full_fields):
        return False
    shape = (*[(each.field.name, Op.EQ) for each in given if each is not term], (term.field.name, term.op))
    return len(shape) - 1 in template.constrain(shape).bounding


class DisjunctionPredicate:
    """
    The condition that at least one of several alternatives holds, each with values of its own.

    It takes the place of a `ResidualPredicate`, and does not look at the values that it is given.
    """

    bounds_keys = False

    def __init__(self, sides: "list[Residual]") -> None:
        self._sides = sides
        names = [name for side in sides for name in side.predicate.properties]
        self.properties: tuple[str, ...] = tuple(dict.fromkeys(names))

    def build_filter(self, values: Values) -> Filter | None:
        """Return the filter that is pushed down; None if the service cannot express it."""
        return join_filters(Or, [side.predicate.build_filter(side.values) for side in self._sides])

    def bind(self, values: Values) -> Expression:
        """Return the condition."""
        return AnyOf(tuple([side.predicate.bind(side.values) for side in self._sides]))


class Residual(msgspec.Struct, frozen=True, eq=False):
    """A condition that keys do not imply, and its values."""

    predicate: ResidualPredicate | DisjunctionPredicate
    values: Values


class Alternative(msgspec.Struct, frozen=True, eq=False):
    """
    A region of keys that becomes one request.

    Args:
        partition: The PartitionKeys.
        row: The RowKeys.
        target: The kinds whose rows can be there.
        residuals: The conditions that these keys do not imply.
    """

    partition: Bounds
    row: Bounds
    target: QueryTarget
    residuals: Sequence[Residual]


_Choice = tuple[Expression, ...]
"""Terms of which all hold in an alternative. An equality with all values of an `in_` stands for one with each."""


class _Disjunct:
    """
    Terms that all hold: those that all alternatives share, and a choice.

    Alternatives whose choices differ in values alone share a disjunct. The values that it takes are those of the shared
    terms first, then those of the choice.
    """

    def __init__(
        self,
        target: QueryTarget,
        common: Sequence[Expression],
        chosen: Sequence[Expression] = (),
        *,
        by_bucket: bool,
    ) -> None:
        self._target, self._common = target, common
        self.terms = (*common, *chosen)
        self.own = frozenset(range(len(common), len(self.terms)))
        self.regions = KeyRegions(target, self.terms, by_bucket=by_bucket)
        self._picks: list[tuple[int, ...]] = []
        self._spread: list[list[tuple[int, bool]]] = []
        self._residuals: dict[frozenset[int], tuple[ResidualPredicate, ...]] = {}
        self._chosen: ResidualPredicate | None = None

    def add(self, terms: Sequence[Expression], parameters: Sequence[Parameter]) -> None:
        """Add an alternative: its terms, and where its values are among those of a query."""
        spread = {at.at for term in terms if isinstance(term, Comparison) and (at := parameter_of(term)).many}
        if spread:
            self._spread.append([(parameter.at, parameter.at in spread) for parameter in parameters])
        else:
            self._picks.append(tuple([parameter.at for parameter in parameters]))

    def count(self, values: Values) -> int:
        """Return how many alternatives there are with these values."""
        spread = [math.prod([len(values[at]) for at, many in each if many]) for each in self._spread]
        return (len(self._picks) + sum(spread)) * max(self.regions.buckets, 1)

    def expand(self, common: Values, values: Values) -> Iterator[Values]:
        """Yield the values of each alternative, which has one value of each `in_`."""
        for pick in self._picks:
            yield [*common, *[values[at] for at in pick]]
        for each in self._spread:
            for choice in product(*[dict.fromkeys(values[at]) if many else (values[at],) for at, many in each]):
                yield [*common, *choice]

    def residuals(self, implied: frozenset[int], values: Values) -> list[Residual]:
        """Return the terms that keys which imply `implied` leave to be checked."""
        found = self._residuals.get(implied)
        if found is None:
            given = _equalities(self._target, self.terms)
            left = [term for index, term in enumerate(self.terms) if index not in implied]
            found = tuple([ResidualPredicate(self._target, term, given) for term in left])
            self._residuals[implied] = found
        return [Residual(predicate, values) for predicate in found]

    def choice(self) -> ResidualPredicate:
        """Return the terms of the choice as one condition."""
        if self._chosen is None:
            chosen = self.terms[len(self._common) :]
            whole = chosen[0] if len(chosen) == 1 else AllOf(chosen)
            self._chosen = ResidualPredicate(self._target, whole, _equalities(self._target, self._common))
        return self._chosen

    def alternative(self, region: RegionMatch, values: Values) -> Alternative:
        """Return the alternative of one of its regions."""
        return Alternative(region.partition, region.row, region.target, self.residuals(region.implied, values))


def _equalities(target: QueryTarget, terms: Iterable[Expression]) -> list[Comparison]:
    """Return the equalities on fields of the one kind; none if there are several, each with keys of its own."""
    if len(target.schemas) != 1:
        return []
    return [t for t in terms if isinstance(t, Comparison) and t.op is Op.EQ]


class _Candidate(msgspec.Struct, frozen=True, eq=False):
    """A region of a disjunct with the values that it was found for, and where it begins."""

    low_partition: tuple[bytes, bool]
    low_row: tuple[bytes, bool]
    region: RegionMatch
    disjunct: _Disjunct
    values: Values

    def alternative(self) -> Alternative:
        return self.disjunct.alternative(self.region, self.values)


class Alternatives:
    """
    The alternatives of terms, for any values.

    Args:
        target: What is asked for. Its key templates are the only ones that are looked at, besides those of models that
            conditions name.
        terms: Parameterised conditions in normal form, all of which must hold.
        divide: Whether `or` and `in_` over key fields are taken apart; otherwise there is one alternative.
        by_bucket: Whether each hash bucket that the terms leave open in a PartitionKey is an alternative.

    Attributes:
        weight: About how much there is to keep.
        has_buckets: Whether there are alternatives for hash buckets.
    """

    def __init__(
        self, target: QueryTarget, terms: Sequence[Expression], *, divide: bool = True, by_bucket: bool = True
    ) -> None:
        self._target, self._by_bucket = target, by_bucket
        common: list[Expression] = []
        choices: list[list[_Choice]] = []
        self._least = 1  # alternatives, with one value for each `in_`
        for term in terms:
            expanded = _expand(target, term) if divide and self._least <= MAX_ALTERNATIVES else None
            if expanded is None:
                common.append(term)
            else:
                choices.append(expanded)
                self._least *= len(expanded)
        shared = renumber(common, 0)
        self._at = [parameter.at for parameter in shared.before]
        self._base = _Disjunct(target, shared.terms, by_bucket=by_bucket)
        self._disjuncts: list[_Disjunct] = []
        if choices and self._least <= MAX_ALTERNATIVES:
            self._disjuncts = self._divide(shared.terms, choices)
        self.has_buckets = any(each.regions.buckets for each in self._disjuncts or [self._base])
        self.weight = (1 + len(self._disjuncts)) * (1 + len(terms)) + self._least // 2

    def _divide(self, common: Sequence[Expression], choices: list[list[_Choice]]) -> list[_Disjunct]:
        """Make the disjuncts; alternatives that differ in values alone share one."""
        by_shape: dict[QueryShape, _Disjunct] = {}
        for choice in product(*choices):
            terms = [term for part in choice for term in part]
            own = renumber(terms, len(self._at))
            disjunct = by_shape.get(own.shape)
            if disjunct is None:
                disjunct = by_shape[own.shape] = _Disjunct(self._target, common, own.terms, by_bucket=self._by_bucket)
            disjunct.add(terms, own.before)
        return list(by_shape.values())

    def count(self, values: Values) -> int | None:
        """
        Return how many alternatives there are with these values, before overlapping ones are merged; None if there are
        more than `MAX_ALTERNATIVES` with any values, which nobody counts to the end.
        """
        if self._least > MAX_ALTERNATIVES:
            return None
        if not self._disjuncts:
            return 1
        return sum([disjunct.count(values) for disjunct in self._disjuncts])

    def find(self, values: Values) -> list[Alternative]:
        """Return the alternatives that can satisfy all terms, in key order; no two of them overlap."""
        common = [values[at] for at in self._at]
        base = self._base.regions.find(common)
        if not base or not self._disjuncts:
            if len(base) > 1:  # they are in a partition each, of several kinds or hash buckets
                base.sort(key=lambda region: (low_of(region.partition), low_of(region.row)))
            return [self._base.alternative(region, common) for region in base]
        candidates = [
            _Candidate(low_of(region.partition), low_of(region.row), region, disjunct, each)
            for disjunct in self._disjuncts
            for each in disjunct.expand(common, values)
            for region in disjunct.regions.find(each)
        ]
        # Partitions that are not points are scanned anyway: what else is wanted of them comes with it.
        scans = not base[0].partition.point and not all(each.region.partition.point for each in candidates)
        candidates.sort(key=lambda candidate: (candidate.low_partition, candidate.low_row))
        return [
            cluster[0].alternative() if len(cluster) == 1 else self._merge(cluster, base, common)
            for cluster in _cluster(candidates, scans=scans)
        ]

    def _merge(self, cluster: "list[_Candidate]", base: list[RegionMatch], common: Values) -> Alternative:
        """Return the one alternative that reads what several overlapping ones would read."""
        # What the common conditions alone imply holds in every part of it that is within theirs. A disjunct can be
        # wider: an equality makes a key, whatever else is said of that field.
        implied: frozenset[int] = frozenset()
        partition = hull([each.region.partition for each in cluster])
        row = hull([each.region.row for each in cluster])
        around = base if len(base) == 1 else [each for each in base if each.partition == partition]
        if len(around) == 1:
            inside, along = meet(partition, around[0].partition), meet(row, around[0].row)
            if inside is not None and along is not None:
                partition, row, implied = inside, along, around[0].implied
        residuals = self._base.residuals(implied, common)
        if not any(self._is_whole(each, partition, row) for each in cluster):
            residuals.append(self._any_of([(each.disjunct, each.values) for each in cluster]))
        return Alternative(partition, row, self._target, residuals)

    def _is_whole(self, candidate: _Candidate, partition: Bounds, row: Bounds) -> bool:
        """Return whether a candidate reads everything in these bounds, with nothing of its choice left to check."""
        region = candidate.region
        return (
            region.target is self._target
            and region.implied >= candidate.disjunct.own
            and region.row == row
            and region.partition == partition
        )

    def _any_of(self, parts: list[tuple[_Disjunct, Values]]) -> Residual:
        # Each bucket of a spread key has an alternative of its own, which says the same.
        different = {(id(disjunct), id(values)): (disjunct, values) for disjunct, values in parts}.values()
        sides = [Residual(disjunct.choice(), values) for disjunct, values in different]
        return Residual(DisjunctionPredicate(sides), ())


def _expand(target: QueryTarget, term: Expression) -> list[_Choice] | None:
    """
    Return the alternatives of a term, each with terms that all hold; None if none of them says anything of keys.

    An `in_` is one of them here; if there are more than `MAX_ALTERNATIVES`, the others are left out.
    """
    if isinstance(term, Membership):
        if term.negated or not _is_on_key(target, term):
            return None
        return [(Comparison(term.field, Op.EQ, parameter_of(term)),)]
    return _expand_any(target, term) if isinstance(term, AnyOf) else None


def _expand_any(target: QueryTarget, term: AnyOf) -> list[_Choice] | None:
    if not any(_says_of_keys(target, each) for each in term.terms):
        return None
    found: list[_Choice] = []
    for each in term.terms:
        found += _expand_all(target, each) if isinstance(each, AllOf) else _expand(target, each) or [(each,)]
        if len(found) > MAX_ALTERNATIVES:
            break
    return found


def _expand_all(target: QueryTarget, term: AllOf) -> list[_Choice]:
    found: list[_Choice] = [()]
    for each in term.terms:
        parts = _expand(target, each) or [(each,)]
        found = [(*choice, *part) for choice in found for part in parts]
        if len(found) > MAX_ALTERNATIVES:
            break
    return found


def _says_of_keys(target: QueryTarget, term: Expression) -> bool:
    """Return whether a condition can make a region of keys."""
    if isinstance(term, (AllOf, AnyOf)):
        return any(_says_of_keys(target, each) for each in term.terms)
    if isinstance(term, PropertyComparison):
        return term.property in ("PartitionKey", "RowKey") and term.op is not Op.NE
    if isinstance(term, Comparison):
        return term.op is not Op.NE and _is_on_key(target, term)
    return isinstance(term, Membership) and not term.negated and _is_on_key(target, term)


def _is_on_key(target: QueryTarget, term: Comparison | Membership) -> bool:
    owners = [schema for schema in target.schemas if has_field(schema, term.field)] or [schema_of(term.field.model)]
    return any(term.field.name in owner.key_names for owner in owners)


def _cluster(candidates: list[_Candidate], *, scans: bool) -> list[list[_Candidate]]:
    """
    Group the candidates that overlap; the keys of each group are before those of the next.

    Args:
        candidates: The candidates, in the order of where they begin.
        scans: Whether PartitionKeys are intervals, which alone are compared then.
    """
    clusters: list[list[_Candidate]] = []
    cluster: list[_Candidate] = []
    last_partition: tuple[bytes, bool] | None = None
    unbounded, until, included = 0, b"", False
    for candidate in candidates:
        low, low_open = candidate.low_partition if scans else candidate.low_row
        high = high_of(candidate.region.partition if scans else candidate.region.row)
        # Partitions that are points are one if they begin together.
        if (scans or candidate.low_partition == last_partition) and (
            unbounded or low < until or (low == until and included and not low_open)
        ):
            cluster.append(candidate)
            unbounded, until, included = max((unbounded, until, included), high)
        else:
            cluster = [candidate]
            clusters.append(cluster)
            last_partition = candidate.low_partition
            unbounded, until, included = high
    return clusters
