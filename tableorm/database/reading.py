"""
Reading: points by key, and queries.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

from ..connection.connection import TURN, Connection
from ..connection.rows import read_row
from ..connection.tasks import work_together
from ..connection.translate import translate
from ..derived.index.index import IndexOf
from ..derived.index.lookup import look_up
from ..derived.index_list.index_list import ListOf
from ..errors import EntityNotFound, ModelError, WrongKind
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.kinds import KindSet, describe_kind
from ..models.property_bag import PropertyBag
from ..models.reserved import COPY_OF
from ..models.schema import Schema
from ..protocol.codes import Code, Fault
from ..protocol.limits import check_table_name
from ..queries.planning.index_following import is_current
from ..queries.projection import Projection
from ..queries.query import Query, Select
from ..queries.raw import RawSelect
from ..queries.run import CONCURRENCY
from ..queries.union import Union
from ..stores import Row

__all__ = ["Reader"]

E = TypeVar("E", bound=Entity)
M = TypeVar("M", bound=Entity | PropertyBag)
A = TypeVar("A", bound=Entity | PropertyBag)
B = TypeVar("B", bound=Entity | PropertyBag)
C = TypeVar("C", bound=Entity | PropertyBag)
D = TypeVar("D", bound=Entity | PropertyBag)
R = TypeVar("R")

_LOOKS = 3  # at a copy whose primary is moved while it is read
# Of classes that are asked for together, and tables of raw queries. A program has few; names of tables can be many.
_MOST_KINDS = 256


class Reader(Connection):
    """
    What of a database reads.
    """

    @cached_property
    def _kinds(self) -> dict[type[Any] | IndexOf[Any], KindSet]:
        return {}

    @cached_property
    def _together(self) -> dict[tuple[object, ...], KindSet]:
        return {}

    @overload
    async def get(self, target: type[E], /, **fields: Any) -> E: ...
    @overload
    async def get(self, target: Key[M], /) -> M: ...
    @overload
    async def get(self, target: IndexOf[E], /, **fields: Any) -> E: ...
    async def get(self, target: Any, /, **fields: Any) -> Any:
        """
        Read one entity by its key: a point query.

        Args:
            target: A model, with its key fields; a `Key`; or an index, with the fields of its keys: the entity then has
                no ETag, unless the index holds keys alone, and its first write reads the row.
            fields: The key fields.

        Raises:
            EntityNotFound: There is none.
            WrongKind: The row is of another kind.
            TemplateError: A key field is missing, unknown, or does not fit.
            DecodeError: The row does not fit the model.

        Source: Table service REST, "Query Entities", addressed by PartitionKey and RowKey.
        """
        read: Any = self._by_index if type(target) is IndexOf else self._point
        entity = await read(target, fields)
        if entity is None:
            raise self._not_found(target, fields)
        return entity

    @overload
    async def get_or_none(self, target: type[E], /, **fields: Any) -> E | None: ...
    @overload
    async def get_or_none(self, target: Key[M], /) -> M | None: ...
    @overload
    async def get_or_none(self, target: IndexOf[E], /, **fields: Any) -> E | None: ...
    async def get_or_none(self, target: Any, /, **fields: Any) -> Any:
        """As `get`, but None if there is no such row."""
        return await self._point(target, fields)

    async def lookup(self, index: ListOf[E], /, *, concurrency: int = CONCURRENCY, **fields: Any) -> list[E]:
        """
        The entities of an index list, in key order: the list is read, then they are, several at the same time.

        Args:
            index: An index list of a model: `Employee.by_last_name`.
            concurrency: Requests at the same time, at most.
            fields: The fields of the list's key and of the PartitionKey.

        Raises:
            TemplateError: A field is missing, unknown, or does not fit.
            DecodeError: A row does not fit its model.
        """

        def load(row: Row) -> E:
            entity: E = self.load_row(index.model, index.model.__schema__.table_name(), row)
            return entity

        return await look_up(self, load, index, fields, concurrency)

    async def get_many(self, keys: Iterable[Key[M]], *, concurrency: int = CONCURRENCY) -> "list[M | None]":
        """
        Read entities by their keys, several at the same time.

        Args:
            keys: Of any tables and kinds.
            concurrency: Requests at the same time, at most.

        Returns:
            For each key, in that order, its entity; None if there is none.

        Raises:
            WrongKind: A row is of another kind than its key says.
            DecodeError: A row does not fit its model.
        """
        if type(concurrency) is not int or concurrency < 1:
            raise ModelError(f"get_many(concurrency={concurrency!r}) is refused: give a number from 1")
        wanted = list(keys)
        for key in wanted:
            if not isinstance(key, Key):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(f"get_many() needs keys, got {key!r}; make them with Model.key(...)")
        found: list[Any] = [None] * len(wanted)
        numbered = enumerate(wanted)

        async def work() -> None:
            for index, key in numbered:
                found[index] = await self._point(key, {})

        await work_together(work, min(concurrency, len(wanted)))
        return found

    @overload
    async def exists(self, target: type[E], /, **fields: Any) -> bool: ...
    @overload
    async def exists(self, target: Key[Any], /) -> bool: ...
    @overload
    async def exists(self, target: IndexOf[Any], /, **fields: Any) -> bool: ...
    async def exists(self, target: Any, /, **fields: Any) -> bool:
        """Whether there is such an entity. Takes and raises what `get` does, besides EntityNotFound."""
        return await self._point(target, fields, whole=False) is not None

    async def _point(self, target: Any, fields: dict[str, Any], *, whole: bool = True) -> Any:
        store = self.require_open()
        model: Any
        if isinstance(target, Key):
            if fields:
                raise ModelError(f"{target!r} is a key already; give it without fields")
            key = _any_key(target)
            table, partition_key, row_key, model = key.table, key.partition_key, key.row_key, key.model
        else:
            schema: Schema | None = getattr(target, "__schema__", None)
            if schema is None:
                if isinstance(target, IndexOf):
                    return await self._by_index(_any_index(target), fields, whole=whole)
                schema = schema_of(target)
            if fields.keys() != schema.key_names or schema.abstract:
                self._refuse_fields(schema, fields)
            partition_key, row_key = schema.make_keys(fields)
            table, model = schema.table_name(), target
        self.stats.requests += 1
        try:
            select = None if whole or model is PropertyBag else Projection.of(self._kinds_of(model), ()).select
            row = await store.get(table, partition_key, row_key, select)
        except Fault as fault:
            if fault.code == Code.RESOURCE_NOT_FOUND:
                return None
            raise translate(fault, f"get of {model.__name__} ({partition_key!r}, {row_key!r})", table) from fault
        self.stats.rows += 1
        self._since_turn += 1
        if self._since_turn >= TURN:  # as yield_to_loop, without a call
            self._since_turn = 0
            await asyncio.sleep(0)
        if model is PropertyBag:
            return PropertyBag.of_row(table, row)
        kinds = self._kinds_of(model)
        entity = kinds.load(row) if whole else kinds.resolve(row)
        if entity is None:
            raise WrongKind(
                f"the row ({partition_key!r}, {row_key!r}) in table {table} is no {model.__name__}: it has "
                f"{describe_kind(row)}; read it with PropertyBag.key({table!r}, {partition_key!r}, {row_key!r})",
                (partition_key, row_key),
                row.get("EntityType"),
            )
        return entity

    async def read_row(self, table: str, partition_key: str, row_key: str) -> Row | None:
        """
        A row as it is stored; None if there is none.

        Raises:
            TableNotFound: There is no such table.
        """
        return await read_row(self, table, partition_key, row_key)

    def load_row(self, model: type[Any], table: str, row: Row) -> Any:
        """
        The entity or bag of a row.

        Raises:
            WrongKind: It is of another kind.
            DecodeError: It does not fit the model.
        """
        if model is PropertyBag:
            return PropertyBag.of_row(table, row)
        entity = self._kinds_of(model).load(row)
        if entity is None:
            keys = row["PartitionKey"], row["RowKey"]
            raise WrongKind(
                f"the row {keys} in table {table} is no {model.__name__}: it has {describe_kind(row)}",
                keys,
                row.get("EntityType"),
            )
        return entity

    async def _by_index(self, index: IndexOf[Any], fields: dict[str, Any], *, whole: bool = True) -> Any:
        """The entity that has a copy under this key of an index."""
        store = self.require_open()
        kinds = self._kinds_of(index)
        if len(kinds.schemas) != 1:
            raise ModelError(f"{index} is of an abstract model: get by the index of one of its concrete classes")
        schema = kinds.schemas[0]
        if fields.keys() != schema.key_names:
            schema.key(fields)  # raises, and says which field is missing or unknown
        partition_key, row_key = schema.make_keys(fields)
        table = schema.table_name()
        for _ in range(_LOOKS):
            self.stats.requests += 1
            try:
                copy = await store.get(table, partition_key, row_key)
            except Fault as fault:
                if fault.code == Code.RESOURCE_NOT_FOUND:
                    return None
                raise translate(fault, f"get of {index} ({partition_key!r}, {row_key!r})", table) from fault
            self.stats.rows += 1
            self._since_turn += 1
            if self._since_turn >= TURN:  # as yield_to_loop, without a call
                self._since_turn = 0
                await asyncio.sleep(0)
            found = kinds.load(copy)
            if found is None:
                raise WrongKind(
                    f"the row ({partition_key!r}, {row_key!r}) in table {table} is no copy of {index}: it has "
                    f"{describe_kind(copy)}",
                    (partition_key, row_key),
                    copy.get("EntityType"),
                )
            if not isinstance(found, dict) or not whole:
                return found
            row = await self.read_row(table, partition_key, copy[COPY_OF])
            if row is not None and is_current(copy, row):
                return self._kinds_of(schema.model).load(row)
        return None  # it was moved each time between the two reads

    def _not_found(self, target: Any, fields: dict[str, Any]) -> EntityNotFound:
        if isinstance(target, IndexOf):
            given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
            return EntityNotFound(f"there is no {target} of {given}", Code.RESOURCE_NOT_FOUND)
        key = _any_key(target) if isinstance(target, Key) else schema_of(target).key(fields)
        return EntityNotFound(f"there is no {key}", Code.RESOURCE_NOT_FOUND, key)

    @staticmethod
    def _refuse_fields(schema: Schema, fields: dict[str, Any]) -> None:
        if schema.abstract:
            raise ModelError(f"{schema.name} is abstract: get one of its concrete classes, or give a Key")
        schema.key(fields)  # raises, and says which field is missing or unknown

    def _kinds_of(self, model: Any) -> KindSet:
        kinds = self._kinds.get(model)
        if kinds is None:
            kinds = self._shared([model])
            owner: Any = _any_index(model).model if isinstance(model, IndexOf) else model
            if not schema_of(owner).abstract:  # an abstract base can still get more kinds
                self._kinds[model] = kinds
        return kinds

    def _shared(self, models: Sequence[Any], table: str | None = None) -> KindSet:
        """The kinds of these classes: the same object each time, which knows the queries that were planned before."""
        kinds = KindSet.of(models, table)
        if len(self._together) >= _MOST_KINDS:
            self._together.clear()
        return self._together.setdefault((kinds.schemas, kinds.table, kinds.bags), kinds)

    @overload
    def select(self, model: IndexOf[E], /) -> Select[E]: ...
    @overload
    def select(self, model: type[A], /) -> Select[A]: ...
    @overload
    def select(self, model: type[A], model2: type[B], /) -> Select[A | B]: ...
    @overload
    def select(self, model: type[A], model2: type[B], model3: type[C], /) -> Select[A | B | C]: ...
    @overload
    def select(self, model: type[A], model2: type[B], model3: type[C], model4: type[D], /) -> Select[A | B | C | D]: ...
    def select(self, *models: Any) -> Select[Any]:
        """
        A query for entities of these models, which share a table.

        Args:
            models: One to four classes, or one index, whose copies are read then, in its order. An abstract base brings
                all of its kinds; `PropertyBag` among them brings rows of every other kind as bags.

        Raises:
            ModelError: They live in different tables, or are no models.
        """
        index = len(models) == 1 and isinstance(models[0], IndexOf)
        if not index and (not 1 <= len(models) <= 4 or not all(isinstance(model, type) for model in models)):
            raise ModelError(f"select{models!r} is refused: give one to four models, or one index")
        kinds = self._kinds_of(models[0]) if len(models) == 1 and models[0] is not PropertyBag else self._shared(models)
        self.narrowing(kinds, ())  # at once, what a scope refuses
        return Select(self, kinds, models)

    def select_raw(self, table: str) -> RawSelect:
        """
        A query for the rows of a table as property bags, by filters in the service's own language.

        Raises:
            ModelError: It is no name of a table.
        """
        try:
            check_table_name(table)
        except Fault as fault:
            raise ModelError(f"select_raw({table!r}): {fault.message}") from None
        kinds = self._shared([PropertyBag], table)
        self.narrowing(kinds, ())
        return RawSelect(self, kinds, (PropertyBag,))

    def union(self, *queries: Query[R]) -> Union[R]:
        """
        The results of independent queries, which run at the same time: `db.union(first, second)`.

        Results come query by query, in the order given; `.unordered()` gives them as they come.
        """
        for query in queries:
            if not isinstance(query, Query):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(f"union({query!r}) is refused: give queries, as db.select(...) makes them")
        return Union(queries)


def _any_index(index: Any) -> IndexOf[Any]:
    found: IndexOf[Any] = index
    return found


def _any_key(key: Any) -> Key[Any]:
    found: Key[Any] = key
    return found
