"""Reading: single entities by key, and queries."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, Literal, NoReturn, TypeVar, overload

from ..access.grant import check_target_table
from ..connection.blob_fields import bind_blobs
from ..connection.index_states import find_unreadable, not_readable
from ..connection.nearby import NearbyRows
from ..connection.rows import read_row
from ..connection.tasks import work_together
from ..derived.index.schema import EntrySchema
from ..derived.index_list.index_list import ListOf
from ..derived.index_list.lookup import look_up
from ..errors import DecodeError, EntityNotFound, ModelError, TableOrmError, WrongKind, shown, without_own_frames
from ..expressions import Field
from ..models.derivation import IndexOf
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.kinds import KindSet, describe_kind
from ..models.marker_rows import is_marker
from ..models.property_bag import PropertyBag, bag_of_row
from ..models.schema import Schema
from ..models.visibility import is_live
from ..protocol.codes import Code
from ..queries.changes import ChangeStream, open_changes
from ..queries.execution import CONCURRENCY
from ..queries.home import QueriedHome, load_moved
from ..queries.misfits import check_policy, settle_error
from ..queries.periods import PeriodSelect
from ..queries.projection import Projection
from ..queries.query import Query, loads_relations
from ..queries.raw import RawSelect
from ..queries.select import Select
from ..queries.union import Union
from ..stores import Row, RowAddress, utc_now
from ..writes.subject import key_from
from .stores import Stores

E = TypeVar("E", bound=Entity)
M = TypeVar("M", bound=Entity | PropertyBag)
A = TypeVar("A", bound=Entity | PropertyBag)
B = TypeVar("B", bound=Entity | PropertyBag)
C = TypeVar("C", bound=Entity | PropertyBag)
D = TypeVar("D", bound=Entity | PropertyBag)
R = TypeVar("R")

_LOOKS = 3  # how often an index entry is read whose entity moves meanwhile

# How many sets of kinds are kept: for each combination of classes in a query, and for each table of a raw query.
_MOST_KINDS = 256


class Reader(Stores):
    """The part of a database that reads."""

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
    async def get(self, target: Any, /, *values: Any, **fields: Any) -> Any:
        """
        Read one entity by its key: a point query.

            employee = await db.get(Employee, department="Sales", id=7)

        Args:
            target: A model with its key fields, a `Key`, or an index with the fields of its keys. An entity that is
                read through an index has no ETag, unless the index holds keys only or is eventual; its first write
                reads the row.
            values: Not used; fields are given by name.
            fields: The key fields.

        Raises:
            EntityNotFound: There is no such entity, or it has expired.
            WrongKind: The row is of another kind.
            TemplateError: A key field is missing or unknown, or its value does not fit.
            DecodeError: The row does not fit the model.

        Source: Table service REST, "Query Entities", addressed by PartitionKey and RowKey.
        """
        if values:
            _refuse_values("get", target, values)
        entity = await self._point(target, fields)
        if entity is None:
            raise self._not_found(target, fields)
        return entity

    @overload
    async def get_or_none(self, target: type[E], /, **fields: Any) -> E | None: ...
    @overload
    async def get_or_none(self, target: Key[M], /) -> M | None: ...
    @overload
    async def get_or_none(self, target: IndexOf[E], /, **fields: Any) -> E | None: ...
    async def get_or_none(self, target: Any, /, *values: Any, **fields: Any) -> Any:
        """
        Read one entity by its key, or return None if it doesn't exist. Takes the same arguments as `get`.

            jun = await db.get_or_none(Employee, department="Sales", id=223)
        """
        if values:
            _refuse_values("get_or_none", target, values)
        return await self._point(target, fields)

    async def lookup(self, index: ListOf[E], /, *, concurrency: int = CONCURRENCY, **fields: Any) -> list[E]:
        """
        Read the entities of an index list, in key order: first the list, then several entities at a time.

            employees = await db.lookup(
                Employee.by_last_name, department="Sales", last_name="Jones"
            )

        Args:
            index: An index list of a model, such as `Employee.by_last_name`.
            concurrency: The maximum number of requests at a time.
            fields: The fields of the list's key and of the PartitionKey.

        Raises:
            TemplateError: A field is missing or unknown, or its value does not fit.
            DecodeError: A row does not fit its model, or the list is damaged.
            NotSupported: The store has no record that every entity is in its list; or the lists are in blobs, and the
                database has none.
        """

        def load(row: Row) -> E | None:
            entity: E | None = self._load_row(index.model, index.model.__schema__.table_name(), row)
            return entity

        return await look_up(self._connection, load, index, fields, concurrency)

    def changes(self, model: type[Entity], /, *, after: str | None = None, **fields: Any) -> ChangeStream:
        """
        Read the change feed of a partition: what its transactions changed, in commit order. The model declares it by
        `Feed`.

            async for change in db.changes(Employee, department="Sales", after=cursor):
                for each in change.entities:
                    print(each.verb, each.key)
                cursor = change.cursor

        Nothing is sent until you iterate. The feed contains the changes of all models of the partition that declare
        one.

        Args:
            model: A model of the partition.
            after: The cursor of the last change that you've seen; None to start with the oldest change that is kept.
            fields: The fields of the PartitionKey.

        Raises:
            ModelError: The model declares no change feed, or is abstract; in a scope, also if the partition may hold
                rows outside of the scope.
            TemplateError: A field is missing or unknown, or its value does not fit.
            CursorError: `after` is not a cursor. While reading: it belongs to another feed, or what follows it was
                trimmed.
        """
        return open_changes(self._connection, model, after, fields)

    async def get_many(
        self,
        keys: Iterable[Key[M]],
        *,
        concurrency: int = CONCURRENCY,
        misfits: Literal["raise", "skip"]
        | Callable[[DecodeError | WrongKind], object]
        | dict[Key[M], DecodeError | WrongKind] = "raise",
    ) -> "list[M | None]":
        """
        Read entities by their keys, several at a time. Keys of one partition that lie close together share a range
        read.

            keys = [Employee.key(department="Sales", id=number) for number in (7, 8, 9)]
            employees = await db.get_many(keys)

        Args:
            keys: The keys, of any tables and models. Equal keys are read once.
            concurrency: The maximum number of requests at a time.
            misfits: What happens with a row that does not fit its model or is of another kind. "raise", the default,
                raises the error; "skip" returns None in its place; a function does the same, and is called with the
                error, such as `errors.append`; a dict gets the errors by their keys.

        Returns:
            The entity of each key, in the order of the keys; None where there is none. Equal keys give the same object.

        Raises:
            WrongKind: A row is of another kind than its key's model.
            DecodeError: A row does not fit its model.
        """
        if not isinstance(misfits, dict):
            check_policy(f"get_many(misfits={misfits!r})", misfits)
        if type(concurrency) is not int or concurrency < 1:
            raise ModelError(f"get_many(concurrency={concurrency!r}) is rejected: give a number from 1")
        if not isinstance(keys, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"get_many({shown(keys)}) is rejected: give a list of keys; make them with Model.key(...)")
        wanted = list(keys)
        for key in wanted:
            if not isinstance(key, Key):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(f"get_many() needs keys, got {key!r}; make them with Model.key(...)")
        found: dict[Key[M], Any] = dict.fromkeys(wanted)
        nearby = await self._read_nearby([*found], concurrency)
        left = iter([*found])

        async def work() -> None:
            for key in left:
                try:
                    if key not in nearby:
                        found[key] = await self._point(key, {})
                    elif (row := nearby[key]) is not None:
                        await self._connection.yield_to_loop(1)
                        kinds = self._kinds_of(key.model)
                        entity = self._make(key.model, kinds, key.table, row)
                        if entity is None:
                            entity = await self._make_other(key.model, kinds, key.table, row, whole=True)
                        found[key] = entity
                except (DecodeError, WrongKind) as error:
                    settle_error(misfits, error, key)

        await work_together(work, min(concurrency, len(found)))
        return [found[key] for key in wanted]

    async def _read_nearby(self, keys: Sequence[Key[Any]], concurrency: int) -> dict[Key[Any], Row | None]:
        """Return the rows of those keys that ranges of keys bring; None for a row that is not there."""
        boundary, found = self._connection.boundary, dict[Key[Any], Row | None]()
        by_model: dict[tuple[type[Any], str], list[Key[Any]]] = {}
        for key in keys:
            by_model.setdefault((key.model, key.table), []).append(key_from(boundary, key, {}))
        for (model, table), some in by_model.items():
            nearby = self._nearby_of(model, table, concurrency)
            if nearby is not None:
                schema = schema_of(model)
                held = [each for each in some if boundary.holds_partition(schema, each.partition_key)]
                rows = await nearby.read([(each.partition_key, each.row_key) for each in held])
                places = ((each, (each.partition_key, each.row_key)) for each in held)
                found |= {each: rows[place] for each, place in places if place in rows}
        return found

    def _nearby_of(self, model: type[Any], table: str, concurrency: int) -> NearbyRows | None:
        """Return what reads rows of a model by ranges of keys; None if its entities may be elsewhere, or are bags."""
        if model is PropertyBag or isinstance(self._kinds_of(model).home, QueriedHome):
            return None
        return NearbyRows(self._connection, table, name=model.__name__, concurrency=concurrency)

    async def exists(self, target: type[Entity] | IndexOf[Any] | Key[Any], /, **fields: Any) -> bool:
        """
        Return whether there is such an entity. Takes the same arguments as `get`, and raises the same errors except
        EntityNotFound.

            if await db.exists(Employee, department="Sales", id=7): ...
        """
        return await self._point(target, fields, whole=False) is not None

    async def _point(self, target: Any, fields: dict[str, Any], *, whole: bool = True) -> Any:
        """Read the entity of a key, of a model and its key fields, or of an index and its fields, or return None."""
        db = self._connection
        model: Any = target
        if not isinstance(target, type):
            if isinstance(target, IndexOf):
                return await self._by_index(_any_index(target), fields, whole=whole)
            if isinstance(target, Entity):
                raise ModelError(f"get() takes a model or a key, got the entity {target!r}; refresh() reads it again")
            key = key_from(db.boundary, target, fields)
            model, table, address = key.model, key.table, RowAddress.of(key)
        else:
            schema: Schema = getattr(target, "__schema__", None) or schema_of(model)
            if db.boundary.narrows:
                fields = db.boundary.fill_key(schema, fields)
            if schema.abstract:
                raise ModelError(f"{schema.name} is abstract: get one of its concrete classes, or give a Key")
            if fields.keys() != schema.key_names:
                schema.key(fields)  # raises, and says which field is missing or unknown
            partition_key, row_key = schema.make_keys(fields)
            table = schema.only_table or schema.table_of(partition_key, row_key)
            address = RowAddress(table, partition_key, row_key)
            if db.boundary.narrows:
                db.boundary.check_row(schema, address)
        kinds = None if model is PropertyBag else self._kinds.get(model) or self._kinds_of(model)
        home = None if kinds is None else kinds.home
        whole = whole or kinds is None or kinds.hides or home is not None
        try:
            if kinds is not None and isinstance(home, QueriedHome):
                row = await home.find(db, kinds, model.__name__, address, fields)
            else:
                select = None if kinds is None or whole else Projection.of(kinds, ()).select
                row = await read_row(db, address, select, model.__name__)
            if row is None:
                return None
            await db.yield_to_loop(1)
            found: Any = self._make(model, kinds, table, row) if kinds is None or whole else kinds.resolve(row)
            if found is not None or kinds is None:
                return found
            return await self._make_other(model, kinds, table, row, whole=whole)
        except TableOrmError as error:
            raise without_own_frames(error) from error.__cause__

    async def _make_other(self, model: type[Any], kinds: KindSet, table: str, row: Row, *, whole: bool) -> Any:
        """Return the entity of a row that is not one by itself, such as one that moves; None if there is none."""
        if is_marker(row):
            load = partial(self._make, model, kinds, table)
            return await load_moved(self._connection, kinds, RowAddress.of_row(table, row), model.__name__, load)
        return None if whole else self._refuse_kind(model, table, row)

    async def _by_index(self, index: IndexOf[Any], fields: dict[str, Any], *, whole: bool) -> Any:
        """Read the entity that has an entry under this key of an index; None if there is none."""
        db = self._connection
        kinds = self._kinds_of(index)
        if len(kinds.schemas) != 1:
            raise ModelError(f"{index} is of an abstract model: get by the index of one of its concrete classes")
        schema = kinds.schemas[0]
        assert isinstance(schema, EntrySchema)  # as it is of every index entry
        primary = schema.primary
        fields = db.boundary.fill_key(primary, fields, schema.key_names)
        if fields.keys() != schema.key_names:
            schema.key(fields)  # raises, and says which field is missing or unknown
        home = primary.home
        if isinstance(home, QueriedHome) and not await home.has_all_entries(db):
            model: Any = primary.model
            where = [Field[Any](model, name) == value for name, value in fields.items()]
            query: Select[Any] = self.select(model)
            return await home.first(query.where(*where), str(index))
        partition_key, row_key = schema.make_keys(fields)
        table = schema.table_of(partition_key, row_key)
        owners = table if primary.periods is not None else primary.table_name()
        if schema.building is None and await find_unreadable(db, (schema.declaration,)):
            raise not_readable(db, schema.declaration)
        for _ in range(_LOOKS if schema.exact else 1):
            entry = await read_row(db, RowAddress(table, partition_key, row_key), name=str(index))
            if entry is None:
                return None
            await db.yield_to_loop(1)
            entity: Any = kinds.load(entry)
            if entity is None:
                if db.boundary.narrows or is_marker(entry):
                    return None  # whose row that is, is not told
                raise WrongKind(
                    f"the row ({partition_key!r}, {row_key!r}) in table {table} is not an entry of {index}: it has "
                    f"{describe_kind(entry)}",
                    (partition_key, row_key),
                    entry.get("EntityType"),
                )
            owner = RowAddress(owners, *schema.owner_keys(entry))
            if not db.boundary.holds_row(primary, owner):
                return None  # an entry of others, in an index that scopes share
            # The entry itself is all that there is if it may be old, or holds keys alone.
            if not isinstance(entity, Entity) and (whole or not schema.exact or kinds.hides):
                row = await read_row(db, owner, name=primary.name)
                entity = None if row is None else self._kinds_of(schema.model).load(row)
                if row is None or entity is None or not schema.leads_to(entry, row, entity.__dict__):
                    continue  # it was moved meanwhile
            if isinstance(entity, Entity):
                db.boundary.check(entity)
                bind_blobs(db, (entity,))
            return None if kinds.hides and not is_live(entity, utc_now()) else entity
        return None  # it was moved each time between the two reads

    def _load_row(self, model: type[Any], table: str, row: Row) -> Any:
        """Make the entity or bag of a row. Returns and raises what `_make` does."""
        return self._make(model, None if model is PropertyBag else self._kinds_of(model), table, row)

    def _make(self, model: type[Any], kinds: KindSet | None, table: str, row: Row) -> Any:
        """
        Make the entity or bag of a row; None for a marker row, or an entity that does not count.

        Raises:
            AccessDenied: It is outside of the boundary.
            WrongKind: The row is of another kind.
            DecodeError: It does not fit the model.
        """
        if kinds is None:
            entity: Any = bag_of_row(table, row)
        else:
            entity = kinds.load(row)
            if entity is None:
                return self._refuse_kind(model, table, row)
            if kinds.uploads:
                bind_blobs(self._connection, (entity,))
            if kinds.hides and not is_live(entity, utc_now()):
                return None
        if self._connection.boundary.narrows:
            self._connection.boundary.check(entity)
        return entity

    @staticmethod
    def _refuse_kind(model: type[Any], table: str, row: Row) -> None:
        if is_marker(row):
            return
        keys = row["PartitionKey"], row["RowKey"]
        raise WrongKind(
            f"the row {keys} in table {table} is not of the model {model.__name__}: it has {describe_kind(row)}; read "
            f"it with PropertyBag.key({table!r}, {keys[0]!r}, {keys[1]!r})"
            + ", or declare the model with kind=None if its rows have no kind"
            * ("EntityType" not in row),
            keys,
            row.get("EntityType"),
        )

    def _not_found(self, target: Any, fields: dict[str, Any]) -> EntityNotFound:
        if isinstance(target, IndexOf):
            index = _any_index(target)
            schema = self._kinds_of(index).schemas[0]
            given = self._connection.boundary.fill_key(schema.primary or schema, fields, schema.key_names).items()
            text = ", ".join(f"{name}={value!r}" for name, value in given)
            return EntityNotFound(f"there is no {index} of {text}", Code.RESOURCE_NOT_FOUND)
        key = key_from(self._connection.boundary, target, fields)
        return EntityNotFound(f"there is no {key}", Code.RESOURCE_NOT_FOUND, key)

    def _kinds_of(self, model: Any) -> KindSet:
        kinds = self._kinds.get(model)
        if kinds is None:
            kinds = self._shared([model])
            owner: Any = _any_index(model).model if isinstance(model, IndexOf) else model
            if not schema_of(owner).abstract:  # an abstract base can still get more kinds
                self._kinds[model] = kinds
        return kinds

    def _shared(self, models: Sequence[Any], table: str | None = None) -> KindSet:
        """Return the kinds of these classes: the same object each time, which caches the plans of earlier queries."""
        kinds = KindSet.of(models, table)
        self._connection.used_models.add(*kinds.schemas)
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
        Make a query for the entities of one or more models that share a table.

            query = db.select(Employee).where(
                Employee.department == "Sales", Employee.age > 30
            )
            employees = await query.all()

        Args:
            models: One to four classes; or a single index, whose entries are then read in its order. An abstract base
                stands for all of its kinds. Adding `PropertyBag` also returns the rows of all other kinds, as bags.

        Raises:
            ModelError: They are in different tables, or are not models.
        """
        index = len(models) == 1 and isinstance(models[0], IndexOf)
        if not index and (not 1 <= len(models) <= 4 or not all(isinstance(model, type) for model in models)):
            given = ", ".join(map(shown, models))
            raise ModelError(f"select({given}) takes one to four models, or one index; fields are chosen by .only()")
        kinds = self._kinds_of(models[0]) if len(models) == 1 and models[0] is not PropertyBag else self._shared(models)
        self._connection.boundary.narrow(kinds, ())  # to refuse now what a scope refuses
        if kinds.periods is not None:
            return PeriodSelect[Any](self._connection, kinds, models)
        if isinstance(kinds.home, QueriedHome):
            return kinds.home.select(self._connection, kinds, models)
        return Select(self._connection, kinds, models)

    def select_raw(self, table: str) -> RawSelect:
        """
        Make a query for the rows of a table as property bags, with filters in OData, the service's own language.

            rows = await db.select_raw("Staff").where("PartitionKey eq 'Sales'").all()

        Raises:
            ModelError: This is not a valid table name.
        """
        check_target_table(f"select_raw({shown(table)})", table)
        kinds = self._shared([PropertyBag], table)
        self._connection.boundary.narrow(kinds, ())
        return RawSelect(self._connection, kinds, (PropertyBag,))

    @overload
    def union(self, first: Query[A], second: Query[B], /) -> Union[A | B]: ...
    @overload
    def union(self, first: Query[A], second: Query[B], third: Query[C], /) -> Union[A | B | C]: ...
    @overload
    def union(self, *queries: Query[R]) -> Union[R]: ...
    def union(self, *queries: Query[Any]) -> Union[Any]:
        """
        Combine the results of independent queries, which run in parallel.

            async for entity in db.union(first, second): ...

        Results come query by query, in the order given; with `.unordered()` they come as they arrive.
        """
        for query in queries:
            if not isinstance(query, Query):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(f"union({query!r}) is rejected: give queries, as db.select(...) makes them")
            if loads_relations(query):
                raise ModelError(f"union({query!r}) is rejected: load relations of its results by db.load(...)")
        return Union(tuple(query.bind(self) for query in queries) if self._connection.boundary.narrows else queries)


def _refuse_values(verb: str, target: Any, values: tuple[Any, ...]) -> NoReturn:
    schema = getattr(target, "__schema__", None)
    names = schema.key_fields if isinstance(schema, Schema) and len(schema.key_fields) == len(values) else ()
    named = (
        ", ".join(f"{name}={shown(value)}" for name, value in zip(names, values, strict=False)) or "field=value, ..."
    )
    what = getattr(target, "__name__", None) or shown(target)
    raise ModelError(f"{verb}({what}, {', '.join(map(shown, values))}) takes fields by name: {verb}({what}, {named})")


def _any_index(index: Any) -> IndexOf[Any]:
    found: IndexOf[Any] = index
    return found
