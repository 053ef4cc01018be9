"""
What a query asks for, and how it is to run: what its methods change before it is read. Relations,
which a query can load, are bound and read above queries.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Generic, Literal, Self, TypeVar, cast

import attrs

from ..connection.connection import Connected, Connection, connection_of
from ..errors import ModelError, shown
from ..expressions import Expression, Field
from ..keys.ranges import KeyInterval
from ..models.derivation import IndexOf
from ..models.entity import Entity
from ..models.index_declaration import IndexDeclaration
from ..models.kinds import KindSet
from .execution import CONCURRENCY
from .explain import Explanation, describe, explain_request, left_out, needed_kinds
from .misfits import MisfitPolicy, check_policy
from .misuse import check_count, not_a_list
from .planning.index_following import PrimaryFetch, conditions_on_primaries
from .planning.plan import Access, MergedRequests, QueryPlan, Scans
from .planning.planner import planner_of

E_co = TypeVar("E_co", covariant=True)
P_contra = TypeVar("P_contra", bound=Entity, contravariant=True)
C_co = TypeVar("C_co", bound=Entity, covariant=True)


@attrs.frozen(eq=False, repr=False)
class Relation(Generic[P_contra, C_co]):
    """
    A relation of a model, such as `Team.employees`. Pass it to `Database.load`, or to `load` of a query.

    Args:
        declared: The declaration.
        model: The class on which it was accessed.
    """

    declared: Any  # a `RelationDeclaration`, which as a descriptor would be read as the type of what it gives
    model: type[Any]

    def __str__(self) -> str:
        return f"{self.model.__name__}.{self.declared.name}"

    def __repr__(self) -> str:
        return f"<relation {self}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.model, self.declared.name)

    async def _read_with(self, db: Connection, query: Any, where: Sequence[Expression]) -> list[Any] | None:
        """
        Return the results of a query with what belongs to them, if one query in its place reads both; otherwise None.

        Args:
            db: The database, or scope.
            query: The query, for all entities of the model that satisfy the conditions.
            where: Its conditions.
        """
        del db, query, where
        return None


@cache
def _names_of(query: type[Any]) -> tuple[str, ...]:
    """Return the attributes that describe a query: all but what is cached in it."""
    return tuple([each.name for each in attrs.fields(query) if each.init])


@not_a_list
@attrs.frozen(eq=False, repr=False, slots=False)  # for what is cached
class QueryDescription(Generic[E_co]):
    """What a query asks for. It is immutable: each method returns a new query."""

    _db: Connection | None
    _kinds: KindSet
    _models: tuple[type[Any] | IndexOf[Any], ...]
    _where: tuple[Expression, ...] = ()
    _limit: int | None = None
    _scan: Scans = False
    _parallel: int = 1
    _interval: KeyInterval | None = None
    _only: tuple[Field[Any], ...] | None = None
    _ordered: bool = True
    _verified: bool = True
    _concurrency: int = CONCURRENCY
    _misfits: MisfitPolicy = "raise"
    _hidden: tuple[IndexDeclaration, ...] = ()  # indexes that may be incomplete
    _loads: tuple[tuple[Relation[Any, Any], ...], ...] = ()  # what belongs to the entities, by paths of relations
    _part: str | None = None  # what cursors begin with if it's part of another query; then its table may be absent
    _plans: dict[tuple[str, ...] | None, QueryPlan] = attrs.field(init=False, factory=lambda: {})  # noqa: PIE807

    def _with(self, **changes: Any) -> Self:
        """Return the query with some attributes changed: what `attrs.evolve` does, in a fifth of the time."""
        own = self.__dict__
        kind: Any = type(self)
        made: Self = object.__new__(kind)
        made.__dict__.update({name: own[name] for name in _names_of(kind)}, _plans={}, **changes)
        return made

    def limit(self, count: int) -> Self:
        """
        Limit the query to the first `count` results in key order.

            latest = await db.select(Login).where(Login.user == "ken").limit(10).all()

        Args:
            count: The maximum number of results; 0 is allowed.

        Raises:
            ModelError: The count is negative.
        """
        if type(count) is not int or count < 0:
            raise ModelError(f"limit({count!r}) is rejected: give a number of entities from 0")
        return self._with(_limit=count)

    def allow_scan(self, *, partitions: Literal["all", "range"] = "all", parallel: int = 1) -> Self:
        """
        Allow the query to visit every partition if its conditions don't name any.

            await db.select(Employee).where(Employee.age > 68).allow_scan().all()

        Args:
            partitions: "range" allows only a range of partitions that the conditions bound, as `Hash.number > 5` does
                with `partition_key="{number:010d}"`.
            parallel: About how many key ranges to read at a time; they are divided as in `split`.

        Raises:
            ModelError: `partitions` is neither "all" nor "range", or `parallel` is not a positive number.
        """
        if partitions not in ("all", "range"):
            raise ModelError(f'allow_scan(partitions={partitions!r}) is rejected: give "all" or "range"')
        check_count("allow_scan(parallel=...)", parallel)
        return self._with(_scan=True if partitions == "all" else "range", _parallel=parallel)

    def unordered(self) -> Self:
        """
        Return results as they arrive instead of in key order. Such a query has no cursors.

            async for employee in db.select(Employee).allow_scan().unordered(): ...
        """
        return self._with(_ordered=False)

    def concurrency(self, count: int) -> Self:
        """
        Send at most `count` requests at a time; the default is 16.

            query = db.select(Login).where(Login.day == today).concurrency(4)

        Raises:
            ModelError: The count is not a positive number.
        """
        check_count("concurrency", count)
        return self._with(_concurrency=count)

    def misfits(self, policy: MisfitPolicy) -> Self:
        """
        Choose what happens with rows that don't fit their model; each is a `DecodeError`.

            errors: list[DecodeError] = []
            employees = await query.misfits(errors.append).all()

        Args:
            policy: "raise", the default, returns the entities before the row and then raises the error, whose `cursor`
                resumes after the row. "skip" leaves such rows out. A function also leaves them out, and is called with
                each error.

        Raises:
            ModelError: It is none of these.
        """
        check_policy(f"{self}.misfits({policy!r})", policy)
        return self._with(_misfits=policy)

    def load(self, relation: Relation[Any, Any], /, *more: Relation[Any, Any]) -> Self:
        """
        Also load what belongs to the results, one page at a time.

            teams = await db.select(Team).load(Team.employees).all()

        Args:
            relation: A relation of the model. Call `load` several times for several relations.
            more: What to load next for the entities that were found, as in `Database.load`.

        Raises:
            ModelError: It is not a relation, or is a relation of another model.
        """
        for each in (relation, *more):
            if not isinstance(cast("object", each), Relation):
                problem = f"{self}.load({shown(each)}) is rejected"
                raise ModelError(f"{problem}: give a relation of the class, such as Team.employees")
        models = [each for each in self._models if isinstance(each, type)]
        if not any(issubclass(each, relation.model) or issubclass(relation.model, each) for each in models):
            raise ModelError(f"{self}.load({relation}) is rejected: it finds no {relation.model.__name__}")
        return self._with(_loads=(*self._loads, (relation, *more)))

    def bind(self, db: Connected) -> Self:
        """
        Return the same query for another database or scope. A query that was pickled has neither until you bind it.

            orders = await query.bind(db.scope(tenant="acme")).all()
        """
        return self._with(_db=connection_of(db))

    def _as(self, cls: "type[Described]") -> "Described":
        """Return the same description as a query of another class."""
        fields = (each for each in attrs.fields(QueryDescription) if each.init)
        return cls(**{each.name.removeprefix("_"): getattr(self, each.name) for each in fields})

    def _head(self) -> str:
        return f"select({', '.join(model.__name__ for model in self._models)})"

    def _explain_plan(
        self, plan: QueryPlan, where: Sequence[Expression], primaries: PrimaryFetch | None, *, show_values: bool
    ) -> Explanation:
        """
        Return what a plan of the query sends.

        Args:
            plan: The plan.
            where: The conditions, with those of the boundary.
            primaries: How the primary of each index entry is fetched; None if none is.
            show_values: Whether filters and conditions are shown with the values of properties.
        """
        limit, target = self._limit, plan.target
        requests = () if limit == 0 else plan.requests
        table = f"{self._db.prefix if self._db else ''}{target.table}"
        explained = tuple(explain_request(plan, each, limit, table, show_values=show_values) for each in requests)
        left = () if primaries is None or not explained else conditions_on_primaries(target, where)
        after = () if primaries is None else describe(primaries.target, left, show_values=show_values)
        here = tuple(dict.fromkeys([*(text for request in explained for text in request.client_side), *after]))
        points = all(request.top is None for request in explained)
        # Rows of an older version are read once more in full; the primary of an index entry is read in part first.
        twice = self._only is not None and any(schema.version > 1 for schema in self._kinds.schemas)
        more = twice + (target.fetches_primaries or (twice and target.primaries is not None))
        # With a limit the first requests may be enough.
        merged = len(MergedRequests(requests).by_partition) if plan.merged and self._ordered else 0
        least = len(explained) if limit is None else min(len(explained), max(merged, 1))
        most = len(explained) * (1 + more) if points or plan.access in (Access.POINT, Access.POINTS) else None
        return Explanation(
            query=str(self) if show_values else f"query of {planner_of(self._kinds).target.name}",
            access=plan.access if explained else Access.NOTHING,
            path="primary key" if target.primaries is None else f"index {target.name}",
            requests=explained,
            client_side=here,
            min_transactions=least,
            max_transactions=most,
            ordered=self._ordered,
            concurrency=self._concurrency,
            fetches_primaries=target.fetches_primaries,
            primary_select=None if primaries is None else primaries.select,
            primary_conditions=after,
            merged_partitions=merged,
            not_loaded=left_out(plan),
            kinds=needed_kinds(target) if explained and show_values else None,
        )

    def __repr__(self) -> str:
        text = self._head()
        if self._where:
            text += f".where({', '.join(map(str, self._where))})"
        if self._only is not None:
            text += f".only({', '.join(map(str, self._only))})"
        if self._limit is not None:
            text += f".limit({self._limit})"
        for path in self._loads:
            text += f".load({', '.join(map(str, path))})"
        if self._scan:
            options = ["partitions='range'"] * (self._scan == "range")
            options += [f"parallel={self._parallel}"] * (self._parallel != 1)
            text += f".allow_scan({', '.join(options)})"
        if self._misfits != "raise":
            text += f".misfits({shown(self._misfits)})"
        return f"<{text}{'.unordered()' * (not self._ordered)}{'.verify(False)' * (not self._verified)}>"


Described = TypeVar("Described", bound=QueryDescription[Any])
