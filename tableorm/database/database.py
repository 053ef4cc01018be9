"""
The database: what an application opens once and shares between its tasks.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, Self, TypeVar, overload

from ..access.scope import ScopeRules
from ..connection.races import ATTEMPTS
from ..errors import NotSupported
from ..expressions import Field
from ..models.entity import Entity, schema_of
from ..models.json_values import new_entity
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..queries.description import Relation
from ..queries.home import QueriedHome
from ..queries.misfits import MisfitPolicy
from ..relations.cache import CachedEntities, caches_by_model
from ..relations.cascade import delete_with_children, explain_cascade
from ..relations.load import LoadExplanation, explain_load, load_relations
from ..writes.archive import archive
from ..writes.archive_copy import Archive
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.report import BulkReport
from ..writes.commit import delete_target, insert_new, refresh_entity, with_class, write_change
from ..writes.explain import WriteExplanation, changes_of_verb, explain, explain_relocation, with_prefix
from ..writes.modify import get_or_insert
from ..writes.modify_together import modify_target
from ..writes.move import leaves_partition
from ..writes.move_entity import move_entity
from ..writes.run_transaction import run_transaction
from ..writes.stages.change import insert_change, merge_change, replace_change, save_change, upsert_change
from ..writes.transaction import Transaction
from .one_class import one_class
from .upkeep import Upkeep

E = TypeVar("E", bound=Entity)
M = TypeVar("M", bound=Entity | PropertyBag)
T = TypeVar("T")


@one_class
class Database(Upkeep):
    """
    A set of tables, opened by `connect`. All tasks of one event loop can share it; it can't be used in another loop.

    Use it as `async with connect(url) as db`, or call `open` and `close` yourself.

    Every write raises `OutcomeUnknown` if its reply was lost and nothing proves what happened, and `Unavailable` if the
    store could not be reached in time and nothing was written. A successful write gives the entity its new ETag and
    timestamp. A write that failed or was cancelled leaves the entity unchanged.

    Attributes:
        stats: Counters of what was sent and received since the database was opened.
    """

    async def insert(self, entity: Entity | PropertyBag, *, repeat: bool = True, exist_ok: bool = False) -> bool:
        """
        Insert a new entity, which then has its ETag and timestamp.

            await db.insert(Employee(department="Sales", id=7, name="Ken"))

        If the row with its key belongs to an entity that has expired, the new entity replaces it.

        Args:
            entity: An entity or bag.
            repeat: Whether to insert again after a lost reply if the row doesn't exist. Pass False if other programs
                consume rows by deleting them; otherwise a consumed row could reappear.
            exist_ok: Whether to accept that a row with its key exists. That row stays unchanged, whatever it contains.

        Returns:
            Whether it was inserted; always True without `exist_ok`.

        Raises:
            EntityExists: There is a row with its key, and its entity has not expired.
            EncodeError: A value does not fit its field.
            LimitExceeded: The row would exceed a limit of the service; nothing was sent.
            TableNotFound: There is no such table.
        """
        self._connection.boundary.fill(entity)
        change = insert_change(entity, repeat=repeat, exist_ok=exist_ok)
        if exist_ok:
            return await insert_new(self._connection, change)
        await write_change(self._connection, change)
        return True

    async def save(self, entity: Entity | PropertyBag) -> None:
        """
        Write the fields that changed since the entity was read or written, provided its row hasn't changed in the
        meantime.

            employee.age += 1
            await db.save(employee)

        The changed properties are merged into the row. Setting a field to None removes its property; this takes a
        replace, which keeps the properties that the model doesn't know. An entity that was upgraded from an older
        version is replaced in full. If nothing changed, nothing is sent.

        Raises:
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read.
            EntityNotFound: The row was deleted.
            EncodeError: A value does not fit its field, or a key field was changed.
        """
        await write_change(self._connection, save_change(entity))

    async def merge(
        self,
        entity: Entity | PropertyBag,
        only: Sequence[Field[Any] | str] | None = None,
        *,
        if_match: str | None = None,
    ) -> None:
        """
        Merge fields into the row, whether they changed or not. The row's other properties stay as they are.

            await db.merge(employee, only=[Employee.age], if_match="*")

        If you merge some of the fields into a different version of the row than the one that was read, the entity no
        longer has an ETag: call `refresh` before you write it again. For an entity that was upgraded, the row is then
        read first and replaced.

        Args:
            entity: An entity or bag.
            only: The fields to send, such as `[Employee.age]`, or names of a bag's properties; None sends all of them.
                A field that is None can't be merged, because a merge can't remove a property. Use `save` for that.
            if_match: The ETag that the row must have, or "*" for any. Defaults to the ETag that was read.

        Raises:
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so it has no ETag.
            EntityNotFound: There is no such row.
            EncodeError: `if_match` is not an ETag, a value does not fit its field or is None, or a key field was
                changed.
        """
        await write_change(self._connection, merge_change(entity, only, if_match))

    async def replace(
        self, entity: Entity | PropertyBag, *, if_match: str | None = None, drop_extra: bool = False
    ) -> None:
        """
        Write the whole entity in place of the row.

            await db.replace(employee)

        Properties that the model doesn't know are written back as they were read. If they weren't read, because the
        entity replaces any row or another version of it, the row is read first.

        Args:
            entity: An entity or bag.
            if_match: The ETag that the row must have, or "*" for any. Defaults to the ETag that was read.
            drop_extra: Whether to drop the properties that the model doesn't know.

        Raises:
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so it has no ETag.
            EntityNotFound: There is no such row.
            NotLoaded: Only part of the entity was loaded; the error names the missing fields.
            EncodeError: `if_match` is not an ETag, a value does not fit its field, or a key field was changed.
        """
        await write_change(self._connection, replace_change(entity, if_match, drop_extra=drop_extra))

    async def upsert(self, entity: Entity | PropertyBag, mode: Literal["merge", "replace"] = "merge") -> None:
        """
        Insert the entity, or write it over an existing row without reading that first: the last writer wins.

            await db.upsert(employee, "replace")

        The row is read first only if the entity was upgraded from an older version.

        Args:
            entity: An entity or bag.
            mode: "merge" keeps properties of the row that the entity doesn't have. "replace" removes them, except for
                unknown ones that the entity was read with.

        Raises:
            EncodeError: A value does not fit its field; or a merge would have to remove a field that was set to None,
                or the expiry time.
            NotLoaded: Only part of the entity was loaded; the error names the missing fields.
        """
        self._connection.boundary.fill(entity)
        await write_change(self._connection, upsert_change(entity, mode))

    async def delete(
        self,
        target: Entity | PropertyBag | Key[Any] | type[Entity],
        /,
        *,
        if_match: str | None = None,
        missing_ok: bool = False,
        **fields: Any,
    ) -> bool:
        """
        Delete a row.

            await db.delete(employee)
            await db.delete(
                Employee, department="Sales", id=7, if_match="*", missing_ok=True
            )

        Children by a relation with `on_delete="cascade"` are deleted first; after a crash, some children may be gone
        while the entity still exists. If some may be in other partitions, the call returns as soon as the delete is
        sure to happen; a worker deletes the children and then the entity (see `worker`).

        Args:
            target: An entity or bag that was read, a `Key`, or a model with its key fields.
            if_match: The ETag that the row must have, or "*" for any. Defaults to the ETag that was read.
            missing_ok: Whether to accept that there is no such row.
            fields: The key fields.

        Returns:
            Whether there was a row; always True without `missing_ok`.

        Raises:
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so it has no ETag.
            EncodeError: `if_match` is not an ETag.
            EntityNotFound: There is no such row.
            Conflict: Other entities are counted in it.
            LostRace: Others kept inserting children.
        """
        target = await with_class(self._connection, target)
        schema, delete = _find_cascading(target), delete_target
        if schema is not None:
            delete = delete_with_children
        return await delete(self._connection, target, fields, if_match=if_match, missing_ok=missing_ok)

    async def move(self, entity: Entity | PropertyBag, /, **fields: Any) -> None:
        """
        Give an entity a new key, provided its row hasn't changed since it was read.

            await db.move(employee, department="HR")

        Afterwards the entity has the new key fields and the new row's ETag. Unsaved changes are written as well, and so
        are the properties that the model doesn't know.

        Within a partition, one transaction deletes the row and inserts it under the new key. A move to another
        partition takes about a dozen requests, one of which is the step that takes effect; if the program crashes, a
        worker finishes the move (see `worker`).

        Args:
            entity: An entity or bag that was read or written.
            fields: The new values of key fields, such as `id=11`; for a bag, `row_key="..."`.

        Raises:
            EntityExists: There is already a row with the new key.
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so it has no ETag.
            EntityNotFound: The row was deleted.
            NotSupported: The new key is in another partition, and entities of the model can't be moved there.
            NotLoaded: Only part of the entity was loaded; the error names the missing fields.
            TemplateError: A field is not a key field, or its value does not fit.
            EncodeError: The new key equals the old one, or a value does not fit its field.
        """
        await move_entity(self._connection, entity, fields)

    @overload
    async def archive(self, entity: Entity, /, to: type[E], **fields: Any) -> E: ...
    @overload
    async def archive(self, entity: E, /, to: Archive[E]) -> None: ...
    async def archive(self, entity: Any, /, to: Any, **fields: Any) -> Any:
        """
        Move an entity out of its table: to the table of another model, to a blob, or to another database.

            await db.archive(order, to=OldOrder, year=2026)

        Moving to another model takes the same requests as `move` to another partition. For a blob or another database,
        a worker makes the copy later. The row must not have changed since it was read.

        Args:
            entity: An entity that was read or written. Once it's archived, it is no longer stored under its key.
            to: The other model, which must have all of the entity's fields; or a `BlobArchive` or `DatabaseArchive`.
            fields: Values for fields that only the other model has, such as the year of an archive.

        Returns:
            The entity of the other model, or None if a worker makes the copy.

        Raises:
            ModelError: The other model lacks a field of the entity, or has a field that is not given.
            TableOrmError: Whatever `move` raises.
        """
        return await archive(self._connection, entity, to, fields)

    async def refresh(self, entity: Entity | PropertyBag) -> None:
        """
        Read the entity again, in full and in place. Unsaved changes are lost.

            await db.refresh(employee)

        Raises:
            EntityNotFound: The row is gone, or the entity has expired.
            WrongKind: The row is now of another kind.
            DecodeError: The row does not fit the model.
        """
        await refresh_entity(self._connection, entity)

    async def get_or_insert(self, entity: M) -> tuple[M, bool]:
        """
        Read the entity that is stored under this entity's key, or insert this one if there is none.

            account, inserted = await db.get_or_insert(Account(branch="Lund", number=1))

        If another program wins the race to insert, its entity is read and returned.

        Args:
            entity: An entity or bag. It's left unchanged unless it is inserted.

        Returns:
            The stored entity and False, after one request; or the given entity, now with its ETag, and True, after two.

        Raises:
            WrongKind: The row is of another kind.
            UniqueViolation: Another entity has the value of a unique index.
            EncodeError: A value does not fit its field.
        """
        return await get_or_insert(self._connection, entity)

    @overload
    async def modify(
        self,
        target: type[E],
        fn: Callable[[E], E | None],
        /,
        *,
        attempts: int = ATTEMPTS,
        create: E | Callable[[], E] | None = None,
        if_match: str | None = None,
        **fields: Any,
    ) -> E: ...
    @overload
    async def modify(
        self,
        target: Key[M],
        fn: Callable[[M], M | None],
        /,
        *,
        attempts: int = ATTEMPTS,
        create: M | Callable[[], M] | None = None,
        if_match: str | None = None,
    ) -> M: ...
    @overload
    async def modify(
        self,
        target: M,
        fn: Callable[[M], M | None],
        /,
        *,
        attempts: int = ATTEMPTS,
        create: M | Callable[[], M] | None = None,
        if_match: str | None = None,
    ) -> M: ...
    async def modify(
        self,
        target: Any,
        fn: Callable[[Any], Any],
        /,
        *,
        attempts: int = ATTEMPTS,
        create: Any = None,
        if_match: str | None = None,
        **fields: Any,
    ) -> Any:
        """
        Read an entity, apply a function to it, and save what changed; start over if the row changed in the meantime.

            def raise_salary(employee: Employee) -> None:
                employee.salary += 100

            await db.modify(Employee, raise_salary, department="Sales", id=7)

        Concurrent calls for the same row are combined into one read and one write. Each caller gets the entity as its
        own function left it, and only the newest of these can be saved afterwards.

        Args:
            target: A model with its key fields, a `Key`, or an entity or bag, which then receives the result.
            fn: Changes the entity in place, or returns a changed copy. It runs at least once per attempt, so it must
                have no other effects, and it can't await.
            attempts: The maximum number of attempts.
            create: What to insert if there is no such row, after applying `fn` to it: an entity, which is copied, or a
                function that makes one. With None, a missing row raises `EntityNotFound`.
            if_match: The ETag that the row must have, for example from a request header, or "*" for any. With an ETag,
                a lost race is not retried, because the row then has another one.
            fields: The key fields.

        Returns:
            The entity as it was written.

        Raises:
            LostRace: Every attempt lost its race; `entity` is the entity as last read.
            PreconditionFailed: The row's ETag is not `if_match`.
            EntityNotFound: There is no such row.
            EncodeError: The given entity has unsaved changes, a value does not fit its field, or `if_match` is not an
                ETag.
            ModelError: `fn` is asynchronous or returns something that is not such an entity, or both `create` and
                `if_match` were given.
        """
        return await modify_target(
            self._connection, target, fn, fields, attempts=attempts, create=create, if_match=if_match
        )

    async def load(
        self,
        entities: E | Iterable[E],
        relation: Relation[E, Any],
        /,
        *more: Relation[Any, Any],
        cache: CachedEntities[Any] | Sequence[CachedEntities[Any]] = (),
        misfits: MisfitPolicy = "raise",
    ) -> None:
        """
        Load related entities.

            await db.load(teams, Team.employees)
            print(teams[0].employees)  # a tuple

        Entities that lead to the same rows share one read. At most 16 requests run at a time; where it saves requests,
        one range read serves several entities of a partition. Every call reads again.

        Args:
            entities: An entity, or several, that were read before.
            relation: What to load, such as `Team.employees`. It can be narrowed by `Team.employees.where(...)`, or by
                `.limit(5)`, which means five for each team.
            more: What to load next for the entities that were found, as in `db.load(teams, Team.employees,
                Employee.reviews)`.
            cache: One or several caches made by `cached`. Entities of their models that are found by key come from
                there.
            misfits: What happens with a row that can't be loaded, because it does not fit its model, is of another kind
                than the link to it, or is outside of the scope. "raise", the default, raises the error after everything
                else was loaded; the relations of its `parents` stay as they were. "skip" leaves the row out, so that a
                relation to one entity is None. A function does the same, and is called with the error of each row.

        Raises:
            ModelError: An entity is not of the relation's class, or the relation does not fit the models.
            NotLoaded: An entity lacks a field that the relation needs.
            MultipleEntitiesFound: A relation to one entity found several.
            DecodeError: A row can't be loaded; the error names the relation and its `parents`.
        """
        caches = caches_by_model(self._connection, cache)
        await load_relations(self._connection, entities, (relation, *more), caches, misfits)

    def cached(self, model: type[E], /, *, ttl: float, max_entities: int = 10_000) -> CachedEntities[E]:
        """
        Make a cache for entities that rarely change, to be shared by the whole program.

            departments = db.cached(Department, ttl=60)
            sales = await departments.get(name="Sales")

        Args:
            model: The model of the entities.
            ttl: How long to keep an entity, in seconds. Writes through this database take effect at once; writes by
                other programs are seen when the time is up.
            max_entities: How many entities to keep at most. The least recently used ones are dropped first.

        Raises:
            ModelError: `ttl` or `max_entities` is not positive.
        """
        return CachedEntities(self._connection, model, ttl, max_entities)

    def explain_load(
        self, entities: E | Iterable[E], relation: Relation[E, Any], /, *more: Relation[Any, Any]
    ) -> LoadExplanation:
        """
        Show the requests that `load` would send first, and how many there could be at most. Nothing is sent.

            print(db.explain_load(teams, Team.employees))

        Args:
            entities: An entity, or several.
            relation: What would be loaded.
            more: What would be loaded next.

        Raises:
            TableOrmError: Whatever `load` would raise before sending anything.
        """
        return explain_load(self._connection, entities, (relation, *more))

    @overload
    def explain_write(
        self,
        verb: Literal["insert", "save", "merge", "replace", "upsert", "delete"],
        target: Entity | PropertyBag | Key[Any],
        /,
        *,
        only: Sequence[Field[Any] | str] | None = None,
        mode: Literal["merge", "replace"] = "merge",
        if_match: str | None = None,
        drop_extra: bool = False,
    ) -> WriteExplanation: ...
    @overload
    def explain_write(
        self, verb: Literal["move"], target: Entity | PropertyBag, /, **fields: Any
    ) -> WriteExplanation: ...
    def explain_write(self, verb: str, target: Any, /, **arguments: Any) -> WriteExplanation:
        """
        Show what a write would send: each request with its body, and what it costs. Nothing is sent.

            print(db.explain_write("save", employee))

        Args:
            verb: The name of the method: "insert", "save", "merge", "replace", "upsert", "delete" or "move".
            target: The entity, bag or key that you would pass to the method.
            arguments: The method's other arguments: `only`, `mode`, `if_match`, `drop_extra`; for a move, the new key
                fields.

        Raises:
            ModelError: There is no such method, or it does not take these arguments.
            TableOrmError: Whatever the write would raise before sending anything.
        """
        boundary = self._connection.boundary
        if verb == "move" and isinstance(target, Entity) and leaves_partition(target, arguments):
            return with_prefix(explain_relocation(boundary, target, arguments), self.prefix)
        schema = _find_cascading(target) if verb == "delete" else None
        if schema is not None:
            return with_prefix(explain_cascade(boundary, target), self.prefix)
        changes = changes_of_verb(boundary, verb, target, arguments)
        home = None if changes[0].schema is None else changes[0].schema.home
        if isinstance(home, QueriedHome):
            return with_prefix(home.explain(self._connection, changes), self.prefix)
        return with_prefix(explain(boundary, changes), self.prefix)

    def transaction(self, *, repeat: bool = True) -> Transaction:
        """
        Begin an entity group transaction, which is sent when the block ends.

            async with db.transaction() as tx:
                tx.insert(order)
                tx.save(customer)

        Either all of its operations are applied or none is, and nothing is sent if the block raises. All operations
        must be in one partition of one table: at most 100 operations and 4 MiB. Several changes of one row count as one
        operation.

        Args:
            repeat: Whether to send the transaction again after a lost reply. Without it, a lost reply raises
                `OutcomeUnknown` unless a write token proves that the transaction was applied.

        Raises:
            TransactionFailed: An operation failed when the block ended, and nothing was applied; `index` says which
                one.
        """
        return Transaction(self._connection, repeat=repeat)

    async def run_transaction(
        self, fn: Callable[[Transaction], Awaitable[T]], *, attempts: int = ATTEMPTS, repeat: bool = True
    ) -> T:
        """
        Run a function in a transaction, and run it again in a new transaction if a row changed in the meantime.

            async def transfer(tx: Transaction) -> None:
                await tx.modify(Account, withdraw, number=1)
                await tx.modify(Account, deposit, number=2)

            await db.run_transaction(transfer)

        Args:
            fn: `async def fn(tx)`, which reads with `tx.get` and `tx.modify`, and writes. It may run several times.
            attempts: The maximum number of attempts.
            repeat: As in `transaction`.

        Returns:
            What `fn` returned in the attempt that succeeded.

        Raises:
            TransactionFailed: An operation failed for another reason, or every attempt lost its race.
        """
        return await run_transaction(self._connection, fn, attempts=attempts, repeat=repeat)

    def bulk(
        self,
        *,
        concurrency: int = 16,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
        errors: Literal["raise", "report"] = "raise",
    ) -> Bulk:
        """
        Begin writing many entities, across any number of partitions.

            async with db.bulk() as bulk:
                for employee in employees:
                    await bulk.upsert(employee)
            print(bulk.report)

        Writes are grouped by partition into entity group transactions; only each transaction is atomic. A call waits
        while too many writes are queued, so any number of entities takes a bounded amount of memory. If the block
        raises, queued writes are dropped. A failed write doesn't stop the others: when the block ends, `BulkFailed` is
        raised with the report.

        Args:
            concurrency: How many transactions may run at a time, each in another partition. While the store throttles,
                fewer are sent.
            rate: The maximum number of operations per second; None for no limit.
            on_progress: Called with the report so far after each transaction.
            errors: "report" if you want to look up failed writes in `bulk.report` instead of having the block raise.

        Raises:
            ModelError: `concurrency` or `rate` is not positive.
        """
        return Bulk(self._connection, concurrency=concurrency, rate=rate, on_progress=on_progress, errors=errors)

    def scope(self, *models: type[Entity], **fields: Any) -> "Scope":
        """
        Make a view of this database in which some key fields have a fixed value.

            acme = db.scope(tenant="acme")
            await acme.insert(acme.new(Order, number=7))

        The scope fills in these fields in keys, queries and new entities, and rejects any other value.

        Args:
            models: Models whose keys determine which rows of their tables belong to the scope. With them, rows can also
                be read and written without a model, by `select_raw` and as property bags.
            fields: The fields and their values. Every model that is used in the scope must have them in its key.

        Raises:
            ModelError: No field was given, or the keys of a model don't determine which rows belong to the scope.
        """
        return Scope(self, ScopeRules(models, fields))


class Scope(Database):
    """
    A database in which some key fields have a fixed value. Made by `db.scope(tenant="acme")`; it shares the connection.

    Everything works as on the database, but only within the scope; `grant` issues tokens for rows of the scope. Any
    other value of a field raises `AccessDenied`, and so do `drop_table`, `policies`, `audit`, `build_index` and
    `sweep`, which apply to whole tables. A model whose keys don't have the fields raises `ModelError`, and so do rows
    without a model unless `scope` was given a model of their table. The stores themselves (`store`, `queues`, `blobs`)
    are not restricted.
    """

    def __init__(self, parent: Database, rules: ScopeRules) -> None:
        self._connection = parent._connection.within(rules)
        self._connection.reader = self
        self._parent, self._rules, self.stats = parent, rules, parent.stats
        self._kinds, self._grants = parent._kinds, parent._grants

    def __repr__(self) -> str:
        return f"<scope {self._rules}>"

    def new(self, model: type[E], /, **fields: Any) -> E:
        """
        Make a new entity of this scope without inserting it.

            order = acme.new(Order, number=7)

        Raises:
            AccessDenied: A field has another value.
            ModelError: The model doesn't have these key fields.
        """
        made: E = new_entity(schema_of(model), self._rules.fill_key(schema_of(model), fields))
        return made

    def scope(self, *models: type[Entity], **fields: Any) -> "Scope":
        """
        Make a narrower scope within this one.

        Raises:
            AccessDenied: A field already has another value here.
        """
        return Scope(self._parent, self._rules.narrowed(models, fields))

    # It is open while the database is

    async def open(self) -> Self:
        """Raise NotSupported: a scope is open as long as its database is."""
        raise NotSupported("a scope is a view of an open database; open the database, and use the scope as it is")

    async def close(self) -> None:
        """Raise NotSupported: a scope is open as long as its database is."""
        raise NotSupported("a scope is a view of an open database; close the database itself")


def _find_cascading(target: Any) -> Schema | None:
    """Return the model of the entity to delete, if a relation deletes its children with it; None if not."""
    key: Any = target
    model = key.model if isinstance(target, Key) else target
    schema: Schema | None = getattr(model, "__schema__", None)
    return schema if schema is not None and schema.relations and schema.cascades else None
