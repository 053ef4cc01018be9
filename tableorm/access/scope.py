"""
Scopes: a view of a database in which some key fields have one value, say the tenant.

It fills these fields in keys, queries and new entities, and refuses what has another value. That is a guard against
mistakes of a program which has all rights; against others there are tokens (`grant`), and both work together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, Self, TypeVar

from ..audit.report import AuditReport, BuildReport
from ..database.database import Database
from ..derived.index.index import IndexOf
from ..derived.index.schema import IndexSchema
from ..derived.index_list.index_list import ListOf
from ..derived.index_list.schema import ListSchema
from ..errors import AccessDenied, ModelError, NotSupported
from ..expressions import Comparison, Expression, PropertyComparison, conjuncts
from ..keys.bounds import Condition
from ..keys.ranges import EVERYTHING, KeyRegion
from ..keys.template import Template
from ..models.derivation import DerivationOf
from ..models.entity import Entity, schema_of, stored_row
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..models.schema import Schema, concrete
from ..protocol.filters import Compare, Op
from ..protocol.key_range import KeyRange
from ..queries.query import Query
from ..queries.run import CONCURRENCY
from ..queries.union import Union
from ..stores import QueueStore, Row, TableStore
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.report import BulkReport
from ..writes.plan import Change, PlannedWrite
from ..writes.transaction import Transaction
from .policies import TablePolicies
from .scoped import ScopedBulk, ScopedTransaction

__all__ = ["Scope"]

E = TypeVar("E", bound=Entity)
R = TypeVar("R")

Subject = Entity | PropertyBag


class Scope(Database):
    """
    A database in which some key fields have one value. Made by `db.scope(tenant="acme")`; shares the connection.

    Everything works as on the database; `grant` gives tokens for rows of the scope. What has another value raises
    `AccessDenied`, as do `drop_table`, `policies`, `audit` and `build_index`, which concern whole tables; what cannot
    tell raises `ModelError`: models whose keys do not hold the fields, and rows without a model, unless `scope` was
    given a model of their table. The stores themselves (`store`, `queues`, `blobs`) lie below and are not scoped.
    """

    def __init__(self, parent: Database, models: Sequence[type[Entity]], fields: Mapping[str, Any]) -> None:
        super().__init__(parent.backend, queues=parent._queues, blobs=parent._blobs, retry=parent.retry)
        if not fields:
            raise ModelError("scope() is refused: give the key fields and their values, as in scope(tenant='acme')")
        for name, value in fields.items():
            if value is None:
                raise ModelError(f"scope({name}=None) is refused: a key field has a value; give that of {name!r}")
        self._parent, self._fields, self._models = parent, dict(fields), tuple(models)
        self._kinds, self._grants, self.stats = parent._kinds, parent._grants, parent.stats
        self._rectangles: dict[str, KeyRegion] = {}
        for model in self._models:
            for schema in concrete(schema_of(model)) or [schema_of(model)]:
                self._add_rectangle(schema)

    def __repr__(self) -> str:
        return f"<scope {self._text}>"

    @property
    def _text(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._fields.items())

    # The connection is the database's

    async def open(self) -> Self:
        """Refused: a scope is open while its database is."""
        raise NotSupported("a scope is a view of an open database; open the database, and use the scope as it is")

    async def close(self) -> None:
        """Refused: a scope is open while its database is."""
        raise NotSupported("a scope is a view of an open database; close the database itself")

    @property
    def store(self) -> TableStore:
        """The tables themselves, below the mapper, not scoped."""
        return self._parent.store

    @property
    def queues(self) -> QueueStore:
        """The queues, not scoped."""
        return self._parent.queues

    def require_open(self) -> TableStore:
        """As the database."""
        return self._parent.require_open()

    def scope(self, *models: type[Entity], **fields: Any) -> "Scope":
        """
        A narrower scope: of these fields too.

        Raises:
            AccessDenied: A field has another value here.
        """
        for name, value in fields.items():
            if name in self._fields and self._fields[name] != value:
                raise AccessDenied(f"scope({name}={value!r}): this scope is of {self._text}")
        return Scope(self._parent, (*self._models, *models), self._fields | fields)

    # Entities

    def new(self, model: type[E], /, **fields: Any) -> E:
        """
        A new entity of this scope, not inserted: `mine.new(Order, number=7)`.

        Raises:
            AccessDenied: A field has another value.
            ModelError: The model has no such key fields.
        """
        return model(**self.filled(schema_of(model), fields))

    async def insert(self, entity: Subject, *, repeat: bool = True) -> None:
        """As `Database.insert`; a field of the scope that is None gets its value."""
        self.fill(entity)
        await super().insert(entity, repeat=repeat)

    async def upsert(self, entity: Subject, mode: Literal["merge", "replace"] = "merge") -> None:
        """As `Database.upsert`; a field of the scope that is None gets its value."""
        self.fill(entity)
        await super().upsert(entity, mode)

    async def refresh(self, entity: Subject) -> None:
        """As `Database.refresh`."""
        self.check(entity)
        await super().refresh(entity)

    async def move(self, entity: Subject, /, **fields: Any) -> None:
        """As `Database.move`."""
        self.check_move(entity, fields)
        await super().move(entity, **fields)

    def transaction(self, *, repeat: bool = True) -> Transaction:
        """As `Database.transaction`."""
        return ScopedTransaction(self, repeat=repeat)

    def bulk(
        self,
        *,
        concurrency: int = 16,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
    ) -> Bulk:
        """As `Database.bulk`."""
        return ScopedBulk(self, concurrency=concurrency, rate=rate, on_progress=on_progress)

    async def run_writes(self, writes: Sequence[PlannedWrite], *, repeat: bool = True) -> None:
        """As `Database.run_writes`."""
        for write in writes:
            self.check(write.change.subject)
        await super().run_writes(writes, repeat=repeat)

    def _changes_of(self, verb: str, target: Any, arguments: dict[str, Any]) -> Sequence[Change]:
        if verb == "move":
            self.check_move(target, arguments)
        else:
            self.check(target)
        return super()._changes_of(verb, target, arguments)

    async def _write(self, change: Change, *, repeat: bool = True, missing_ok: bool = False) -> None:
        self.check(change.subject)
        await super()._write(change, repeat=repeat, missing_ok=missing_ok)

    # Reading

    def narrowing(self, kinds: KindSet, where: Sequence[Expression]) -> tuple[Expression, ...]:
        """
        As `Connection.narrowing`: the fields of the scope, or the keys that hold them.

        Raises:
            AccessDenied: The query asks for another value of a field.
            ModelError: A model has no such key fields, or the models' keys hold them in different ways.
        """
        for schema in kinds.schemas:
            self._require(schema)
        for term in (each for expression in where for each in conjuncts(expression)):
            if isinstance(term, Comparison) and term.op is Op.EQ:
                name = term.field.name
                if name in self._fields and self._fields[name] != term.value:
                    self._deny(term.field.model.__name__, name, term.value)
        base = None if kinds.bags else _common_base([schema.model for schema in kinds.schemas], self._fields)
        if base is not None:
            return tuple(getattr(base, name) == value for name, value in self._fields.items())
        found = {region for schema in kinds.schemas if (region := self._rectangle(schema)) is not None}
        if kinds.bags:
            found.add(self._rectangle_of(kinds.table))
        if len(found) != 1 or not all(self._rectangle(schema) for schema in kinds.schemas):
            names = ", ".join(schema.name for schema in kinds.schemas)
            raise ModelError(f"the keys of {names} hold {', '.join(self._fields)} in different ways; query them apart")
        (region,) = found
        conditions = [*region.partition.conditions("PartitionKey"), *region.row.conditions("RowKey")]
        return tuple(PropertyComparison(c.property, c.op, c.constant) for c in conditions if isinstance(c, Compare))

    def union(self, *queries: Query[R]) -> Union[R]:
        """As `Database.union`; of queries of the database itself too, which are narrowed to the scope."""
        _ = super().union(*queries)  # refuses what is no query
        return super().union(*(query.bind(self) for query in queries))

    async def lookup(self, index: ListOf[E], /, *, concurrency: int = CONCURRENCY, **fields: Any) -> list[E]:
        """As `Database.lookup`."""
        return await super().lookup(index, concurrency=concurrency, **self._filled_of_index(index.schemas, fields))

    def key_from(self, target: Any, fields: dict[str, Any]) -> Key[Any]:
        """As `Database.key_from`."""
        if isinstance(target, Key):
            self.check(_any_key(target))
            return super().key_from(target, fields)
        return super().key_from(target, self.filled(schema_of(target), fields))

    def key_of_target(self, target: Any, fields: dict[str, Any]) -> Key[Any]:
        """As `Database.key_of_target`."""
        if isinstance(target, (Entity, PropertyBag)):
            self.check(target)
        return super().key_of_target(target, fields)

    def load_row(self, model: type[Any], table: str, row: Row) -> Any:
        """As `Database.load_row`."""
        entity = super().load_row(model, table, row)
        self.check(entity)
        return entity

    async def _point(self, target: Any, fields: dict[str, Any], *, whole: bool = True) -> Any:
        if isinstance(target, Key):
            self.check(_any_key(target))
        elif isinstance(target, type):
            fields = self.filled(schema_of(target), fields)
        found = await super()._point(target, fields, whole=whole)
        if isinstance(found, (Entity, PropertyBag)):
            self.check(found)
        return found

    async def _by_index(self, index: IndexOf[Any], fields: dict[str, Any], *, whole: bool = True) -> Any:
        found = await super()._by_index(index, self._filled_of_index(index.schemas, fields), whole=whole)
        if isinstance(found, Entity):
            self.check(found)
        return found

    def _not_found(self, target: Any, fields: dict[str, Any]) -> Any:
        return super()._not_found(target, fields if isinstance(target, Key) else {**fields, **self._fields})

    # Access

    def _keys_between(
        self, what: str, schema: Schema | None, start: Mapping[str, Any] | None, end: Mapping[str, Any] | None
    ) -> KeyRange:
        # A token is for rows of the scope: the model's keys have to begin with its fields.
        if schema is None:
            raise ModelError(f"{what} is refused in the scope of {self._text}: give a model of the table")
        return super()._keys_between(what, schema, self.filled(schema, start or {}), self.filled(schema, end or {}))

    def policies(self, target: type[Entity] | str) -> TablePolicies:
        """Refused: policies are of whole tables."""
        self._refuse(f"policies({target if isinstance(target, str) else target.__name__})")

    async def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """Refused: a table may have rows of other scopes."""
        self._refuse(f"drop_table({name!r}, missing_ok={missing_ok!r})")

    async def audit(
        self,
        *models: type[Entity],
        parallel: int = 8,
        cursor: str | None = None,
        repair: bool = False,
        on_progress: Callable[[AuditReport], object] | None = None,
    ) -> AuditReport:
        """Refused: it reads the rows of all scopes."""
        del parallel, cursor, repair, on_progress
        self._refuse(f"audit({', '.join(model.__name__ for model in models)})")

    async def build_index(
        self,
        index: DerivationOf[Any],
        *,
        parallel: int = 8,
        cursor: str | None = None,
        on_progress: Callable[[BuildReport], object] | None = None,
    ) -> BuildReport:
        """Refused: it writes the rows of all scopes."""
        del parallel, cursor, on_progress
        self._refuse(f"build_index({index})")

    def _refuse(self, what: str) -> NoReturn:
        raise AccessDenied(f"{what} concerns a whole table, and this scope is of {self._text}; use the database itself")

    # Checks

    def filled(self, schema: Schema, fields: Mapping[str, Any]) -> dict[str, Any]:
        """
        Key fields with those of the scope.

        Raises:
            AccessDenied: One has another value.
            ModelError: The model has no such key fields.
        """
        self._require(schema)
        for name, value in self._fields.items():
            if name in fields and fields[name] != value:
                self._deny(schema.name, name, fields[name])
        return {**fields, **self._fields}

    def _filled_of_index(
        self, schemas: Sequence[IndexSchema] | Sequence[ListSchema], fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The fields of an index or list, with those of the scope that its keys hold."""
        for schema in schemas:
            self._require(schema.primary)
        names = set[str]().union(*(schema.key_names for schema in schemas))
        own = {name: value for name, value in self._fields.items() if name in names}
        for name, value in own.items():
            if name in fields and fields[name] != value:
                self._deny(schemas[0].primary.name, name, fields[name])
        return {**fields, **own}

    def fill(self, subject: Subject) -> None:
        """
        Give a new entity the scope's values, where it has None.

        Raises:
            ModelError: The model has no such key fields.
        """
        if isinstance(subject, Entity):
            self._require(schema_of(type(subject)))
            for name, value in self._fields.items():
                if subject.__dict__.get(name) is None:
                    setattr(subject, name, value)

    def check(self, subject: Subject | Key[Any]) -> None:
        """
        Refuse what is not of the scope.

        Raises:
            AccessDenied: It has another value of a field.
            ModelError: The model has no such key fields, or there is no model.
        """
        if isinstance(subject, PropertyBag) or (isinstance(subject, Key) and subject.model is PropertyBag):
            keys = subject.partition_key, subject.row_key
            if not self._rectangle_of(subject.table).holds(keys):
                raise AccessDenied(f"the row {keys} of table {subject.table} is not of the scope {self._text}")
            return
        if isinstance(subject, Key):
            self._check_keys(schema_of(subject.model), subject.partition_key, subject.row_key)
            return
        schema, own = schema_of(type(subject)), subject.__dict__
        self._require(schema)
        for name, value in self._fields.items():
            if name in own and own[name] != value:
                self._deny(schema.name, name, own[name])
        row = stored_row(subject)
        if row is not None:
            self._check_keys(schema, row["PartitionKey"], row["RowKey"])

    def check_move(self, subject: Subject, fields: Mapping[str, Any]) -> None:
        """
        Refuse a move of what is not of the scope, or out of it. Raises as `check`.
        """
        self.check(subject)
        if isinstance(subject, Entity):
            self.filled(schema_of(type(subject)), fields)
        elif not self._rectangle_of(subject.table).holds(
            (fields.get("partition_key", subject.partition_key), fields.get("row_key", subject.row_key))
        ):
            raise AccessDenied(f"move of {subject!r} to {fields} leaves the scope {self._text}")

    def _check_keys(self, schema: Schema, partition_key: str, row_key: str) -> None:
        self._require(schema)
        for name, value in self._fields.items():
            template, member = schema.key_holders[name]
            try:
                held = template.parse(partition_key if member == "PartitionKey" else row_key)[name]
            except ValueError as error:
                raise AccessDenied(f"{schema.name} in the scope of {self._text}: {error}") from None
            if held != value:
                self._deny(schema.name, name, held)

    def _deny(self, model: str, name: str, value: object) -> NoReturn:
        raise AccessDenied(
            f"{model}.{name} is {value!r}, and this scope is of {self._text}; use the database itself, or the scope of "
            f"{name}={value!r}"
        )

    def _require(self, schema: Schema) -> None:
        if schema.abstract:
            return  # its kinds are asked
        for name in self._fields:
            if name in schema.key_holders:
                continue
            what = "no field of it" if name not in schema.fields else "no key field of it"
            if name in schema.key_names:
                what = "not held by its keys in full, so that another value may have the same keys"
            raise ModelError(
                f"{schema.name} cannot be used in the scope of {self._text}: {name!r} is {what}; its key templates are "
                f"{schema.partition and schema.partition.text!r} and {schema.row and schema.row.text!r}"
            )

    # Rows without a model

    def _add_rectangle(self, schema: Schema) -> None:
        self._require(schema)
        region, table = self._rectangle(schema), schema.table_name().lower()
        if region is None or self._rectangles.setdefault(table, region) != region:
            raise ModelError(
                f"scope({schema.name}, {self._text}): no range of keys in table {schema.table_name()} is just the rows "
                "of the scope, so they cannot be read without their models; leave the model out"
            )

    def _rectangle(self, schema: Schema) -> KeyRegion | None:
        """The range of keys that holds the rows of a model in this scope, and of no other; None if there is none."""
        partition, row = _bounds(schema, self._fields)
        if partition is None or row is None or not partition[1] | row[1] >= self._fields.keys():
            return None
        # What RowKeys begin with tells kinds apart, not scopes.
        narrow = not partition[1] >= self._fields.keys()
        return KeyRegion(partition[0], row[0] if narrow else EVERYTHING)

    def _rectangle_of(self, table: str) -> KeyRegion:
        found = self._rectangles.get(table.lower())
        if found is None:
            raise ModelError(
                f"rows of table {table} without a model cannot be told apart in the scope of {self._text}; give it a "
                f"model of the table: db.scope(Model, {self._text})"
            )
        return found


def _bounds(schema: Schema, fields: Mapping[str, Any]) -> list[tuple[Any, set[str]] | None]:
    """For PartitionKey and RowKey the interval of keys with these fields, and the fields that it proves."""
    return [_bounds_of(template, fields) for template in (schema.partition, schema.row)]


def _bounds_of(template: Template | None, fields: Mapping[str, Any]) -> tuple[Any, set[str]] | None:
    if template is None:
        return None
    conditions = [Condition(name, Op.EQ, fields[name]) for name in fields if name in template.fields]
    found = template.bounds(conditions)
    if found.bounds is None:
        return None
    return found.bounds, {condition.field for n, condition in enumerate(conditions) if n in found.exact}


def _any_key(key: Any) -> Key[Any]:
    found: Key[Any] = key
    return found


def _common_base(models: Sequence[type[Any]], fields: Iterable[str]) -> type[Any] | None:
    """The class whose fields stand for those of all the models."""
    for base in models[0].__mro__ if models else ():
        schema = base.__dict__.get("__schema__")
        if isinstance(schema, Schema) and all(issubclass(model, base) for model in models):
            return base if all(name in schema.fields for name in fields) else None
    return None
