"""
What a query asks for, and how it is to run: what its methods change before it is read.
"""

from typing import Any, Generic, Literal, Self, TypeVar, cast

import attrs

from ..connection.connection import Connected, Connection, connection_of
from ..errors import ModelError, shown
from ..expressions import Expression, Field
from ..keys.ranges import KeyInterval
from ..models.derivation import RowsOf
from ..models.index_declaration import IndexDeclaration
from ..models.kinds import KindSet
from .execution import CONCURRENCY
from .misfits import MisfitPolicy, check_policy
from .misuse import NotAList, check_count
from .planning.plan import QueryPlan, Scans

__all__ = ["Loads", "QueryDescription"]

E_co = TypeVar("E_co", covariant=True)


class Loads:
    """
    What a query can load for the entities that it finds: the base of relations, which are above queries.

    Attributes:
        model: The class of the entities that it belongs to.
    """

    __slots__ = ()
    model: type[Any]


@attrs.frozen(eq=False, repr=False, slots=False)  # for what is cached
class QueryDescription(NotAList, Generic[E_co]):
    """
    What a query asks for. It is immutable: each method returns a new query.
    """

    _db: Connection | None
    _kinds: KindSet
    _models: tuple[type[Any] | RowsOf[Any], ...]
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
    _loads: tuple[tuple["Loads", ...], ...] = ()  # what belongs to the entities, by paths of relations
    _is_part: bool = False  # of another query: its table may be absent, and is named in cursors
    _plans: dict[tuple[str, ...] | None, QueryPlan] = attrs.field(init=False, factory=lambda: {})  # noqa: PIE807

    def limit(self, count: int) -> Self:
        """
        Return the query for at most `count` entities, the first in key order.

        Args:
            count: How many entities, from 0.

        Raises:
            ModelError: The count is negative.
        """
        if type(count) is not int or count < 0:
            raise ModelError(f"limit({count!r}) is refused: give a number of entities from 0")
        return attrs.evolve(self, limit=count)

    def allow_scan(self, *, partitions: Literal["all", "range"] = "all", parallel: int = 1) -> Self:
        """
        Allow the query to visit every partition, if its conditions do not name some.

        Args:
            partitions: "range" to allow no more than the partitions of a range that the conditions bound, as
                `Hash.number > 5` does under `partition_key="{number:010d}"`.
            parallel: About how many ranges of keys are read at the same time, which are divided as by `split`.

        Raises:
            ModelError: `partitions` is neither "all" nor "range", or `parallel` is not a number from 1.
        """
        if partitions not in ("all", "range"):
            raise ModelError(f'allow_scan(partitions={partitions!r}) is refused: give "all" or "range"')
        check_count("allow_scan(parallel=...)", parallel)
        return attrs.evolve(self, scan=True if partitions == "all" else "range", parallel=parallel)

    def unordered(self) -> Self:
        """Give results as they arrive, instead of in key order. Such a query has no cursors."""
        return attrs.evolve(self, ordered=False)

    def concurrency(self, count: int) -> Self:
        """
        Send at most `count` requests at the same time; 16 is the default.

        Raises:
            ModelError: The count is not a number from 1.
        """
        check_count("concurrency", count)
        return attrs.evolve(self, concurrency=count)

    def misfits(self, policy: MisfitPolicy) -> Self:
        """
        Tell what to do with rows that do not fit their model, each of which is a `DecodeError`.

        Args:
            policy: "raise", as by default, gives the entities before the row, and then raises the error; its `cursor`
                goes on behind the row. "skip" leaves such rows out. A function also leaves them out, and is called with
                each error: `query.misfits(errors.append)` collects them in a list.

        Raises:
            ModelError: It is none of these.
        """
        check_policy(f"{self}.misfits({policy!r})", policy)
        return attrs.evolve(self, misfits=policy)

    def load(self, relation: Loads, /, *more: Loads) -> Self:
        """
        Load what belongs to the entities that are found, a page at a time: `db.select(Team).load(Team.employees)`.

        Args:
            relation: A relation of the model; several calls load several.
            more: What to load then for what was found, as in `Database.load`.

        Raises:
            ModelError: It is not a relation, or one of another model.
        """
        for each in (relation, *more):
            if not isinstance(cast("object", each), Loads):
                problem = f"{self}.load({shown(each)}) is refused"
                raise ModelError(f"{problem}: give a relation of the class, such as Team.employees")
        models = [each for each in self._models if isinstance(each, type)]
        if not any(issubclass(each, relation.model) or issubclass(relation.model, each) for each in models):
            raise ModelError(f"{self}.load({relation}) is refused: it finds no {relation.model.__name__}")
        return attrs.evolve(self, loads=(*self._loads, (relation, *more)))

    def bind(self, db: Connected) -> Self:
        """Return the same query on another database, or in a scope; one that was pickled has neither."""
        return attrs.evolve(self, db=connection_of(db))

    def _as(self, cls: "type[Described]") -> "Described":
        """Return the same description as a query of another class."""
        fields = (each for each in attrs.fields(QueryDescription) if each.init)
        return cls(**{each.name.removeprefix("_"): getattr(self, each.name) for each in fields})

    def _head(self) -> str:
        return f"select({', '.join(model.__name__ for model in self._models)})"

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
