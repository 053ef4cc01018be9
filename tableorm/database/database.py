"""
The database: what an application opens once and shares between its tasks.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeVar, overload

from ..access.scope import ScopeRules
from ..connection.races import ATTEMPTS
from ..errors import NotSupported
from ..expressions import Field
from ..models.entity import Entity, schema_of
from ..models.json_values import new_entity
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..queries.home import QueriedHome
from ..relations.cache import CachedEntities, caches_by_model
from ..relations.delete import delete_with_children
from ..relations.load import LoadExplanation, explain_load, load_relations
from ..relations.relation import Relation
from ..writes.archive import archive
from ..writes.archive_copy import Archive
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.report import BulkReport
from ..writes.commit import delete_target, insert_new, refresh_entity, write_change
from ..writes.explain import WriteExplanation, changes_of_verb, explain, explain_relocation, with_prefix
from ..writes.modify import get_or_insert
from ..writes.modify_together import modify_target
from ..writes.move import leaves_partition
from ..writes.move_entity import move_entity
from ..writes.pending import Attempt
from ..writes.run_transaction import run_transaction
from ..writes.stages.change import insert_change, merge_change, replace_change, save_change, upsert_change
from ..writes.transaction import Transaction
from .upkeep import Upkeep

__all__ = ["Database", "Scope"]

E = TypeVar("E", bound=Entity)
M = TypeVar("M", bound=Entity | PropertyBag)
T = TypeVar("T")


class Database(Upkeep):
    """
    A set of tables, opened by `connect`. The tasks of one event loop can share it; it cannot be used in another loop.

    Use it as `async with connect(url) as db`, or call `open` and `close`.

    Every write raises `OutcomeUnknown` if its reply was lost and nothing proves what happened, and `Unavailable` if the
    store could not be reached in time and nothing was written. An entity that was written has its new ETag and
    timestamp; an entity whose write failed, or was cancelled, is as it was before.

    Attributes:
        stats: What it has sent and received since it was opened.
    """

    async def insert(self, entity: Entity | PropertyBag, *, repeat: bool = True, exist_ok: bool = False) -> bool:
        """
        Insert a new entity; it gets its ETag and timestamp. It takes the place of an entity that has expired.

        Args:
            entity: An entity or bag.
            repeat: Whether to insert again after a lost reply, if there is no such row then. Say False for rows that
                others take away by deleting them, or one that was taken already could come back.
            exist_ok: Whether to accept that there is a row with its key. That row stays as it is, whatever it holds.

        Returns:
            Whether it was inserted; always True without `exist_ok`.

        Raises:
            EntityExists: There is a row with its key, of an entity that has not expired.
            EncodeError: A value does not fit its field.
            LimitExceeded: The row would pass a limit of the service; nothing was sent.
            TableNotFound: There is no such table.
        """
        self._connection.boundary.fill(entity)
        return await insert_new(self._connection, insert_change(entity, repeat=repeat, exist_ok=exist_ok))

    async def save(self, entity: Entity | PropertyBag) -> None:
        """
        Write what changed since the entity was read or written, if its row has not changed since.

        Merges the changed properties. A field that was set to None is removed, by a replace that keeps properties which
        the model does not know. An upgraded entity is replaced in full. Nothing is sent when nothing changed.

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
        Merge fields into the row, whether they changed or not; its other properties stay.

        If some fields are merged into another version of the row than the entity was read from, the entity has no ETag
        afterwards: `refresh` it before its next write. For an upgraded entity the row is then read first, and replaced.

        Args:
            entity: An entity or bag.
            only: The fields to send: `[Employee.age]`, or names of properties of a bag; None for all that it has. A
                field that is None cannot be merged, since a merge cannot remove a property; `save` can.
            if_match: The ETag that the row must have, or "*" for any; the default is the one it was read with.

        Raises:
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so there is no ETag.
            EntityNotFound: There is no such row.
            EncodeError: `if_match` is no ETag, a value does not fit its field, is None, or a key field was changed.
        """
        await write_change(self._connection, merge_change(entity, only, if_match))

    async def replace(
        self, entity: Entity | PropertyBag, *, if_match: str | None = None, drop_extra: bool = False
    ) -> None:
        """
        Write the whole entity in place of the row.

        Properties that the model does not know are written back as they were read. If they were not read, as when an
        entity replaces whatever is there, or another version of the row than it was read from, the row is read first.

        Args:
            entity: An entity or bag.
            if_match: The ETag that the row must have, or "*" for any; the default is the one it was read with.
            drop_extra: Whether to leave out properties that the model does not know.

        Raises:
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so there is no ETag.
            EntityNotFound: There is no such row.
            NotLoaded: The entity was loaded in part; names the missing fields.
            EncodeError: `if_match` is no ETag, a value does not fit its field, or a key field was changed.
        """
        await write_change(self._connection, replace_change(entity, if_match, drop_extra=drop_extra))

    async def upsert(self, entity: Entity | PropertyBag, mode: Literal["merge", "replace"] = "merge") -> None:
        """
        Insert the entity, or write it over the row that is there without reading it: the last writer wins. The row is
        read first only if the entity was upgraded.

        Args:
            entity: An entity or bag.
            mode: "merge" keeps properties of the row that the entity does not have; "replace" removes them, except for
                unknown ones that the entity was read with.

        Raises:
            EncodeError: A value does not fit its field; or a merge would have to remove a field that was set to None,
                or the time at which the entity expires.
            NotLoaded: The entity was loaded in part; names the missing fields.
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
        Delete a row. Children by a relation with `on_delete="cascade"` are deleted first; a crash leaves an entity with
        fewer children.

        Args:
            target: An entity or bag that was read, a `Key`, or a model with its key fields.
            if_match: The ETag that the row must have, or "*" for any; the default is the one it was read with.
            missing_ok: Whether to accept that there is no such row.
            fields: The key fields.

        Returns:
            Whether there was a row; always True without `missing_ok`.

        Raises:
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so there is no ETag.
            EncodeError: `if_match` is no ETag.
            EntityNotFound: There is no such row.
            Conflict: Others are counted in it.
            LostRace: Others inserted children again and again.
        """
        model: Any = target if isinstance(target, type) else getattr(target, "model", type(target))
        schema = getattr(model, "__schema__", None)
        delete = delete_target
        if schema is not None and schema.relations and schema.cascades:
            delete = partial(delete_with_children, self)
        return await delete(self._connection, target, fields, if_match=if_match, missing_ok=missing_ok)

    async def move(self, entity: Entity | PropertyBag, /, **fields: Any) -> None:
        """
        Give an entity another key, if its row has not changed since it was read. Then the entity has the new key
        fields, and the new row's ETag. Changes that were not saved are written, and so are properties that the model
        does not know.

        Within the partition one transaction deletes the row and inserts it under the new key. To another partition it
        takes a dozen requests, of which one moves the entity; a worker ends what a crash has left, see `worker`.

        Args:
            entity: An entity or bag that was read or written.
            fields: The new key fields, such as `id=11`; of a bag `row_key="..."`.

        Raises:
            EntityExists: There is a row with the new key.
            PreconditionFailed: The row has changed.
            NotRead: The entity was never read, so there is no ETag.
            EntityNotFound: The row was deleted.
            NotSupported: The new key is in another partition, and entities of the model cannot be moved there.
            NotLoaded: The entity was loaded in part; names the missing fields.
            TemplateError: A field is not a key field, or does not fit.
            EncodeError: The new key is the old one, or a value does not fit its field.
        """
        await move_entity(self._connection, self._load_row, entity, fields)

    @overload
    async def archive(self, entity: Entity, /, to: type[E], **fields: Any) -> E: ...
    @overload
    async def archive(self, entity: E, /, to: Archive[E]) -> None: ...
    async def archive(self, entity: Any, /, to: Any, **fields: Any) -> Any:
        """
        Move an entity to the table of another model, by the requests of `move` to another partition; or out of the
        database, to a blob or another database, which a worker does afterwards. Its row must be as it was read.

        Args:
            entity: An entity that was read or written. When it is archived, it is stored no more.
            to: The other model, which has all of the entity's fields; or a `BlobArchive` or `DatabaseArchive`.
            fields: Fields that it gets anew, such as the year of an archive; for another model alone.

        Returns:
            The entity of the other model; None if a worker archives it.

        Raises:
            ModelError: The other model lacks a field of the entity, or has one that nobody gives.
            TableOrmError: What `move` raises.
        """
        return await archive(self._connection, self._load_row, entity, to, fields)

    async def refresh(self, entity: Entity | PropertyBag) -> None:
        """
        Read the entity anew, in full, in place. Changes that were not saved are lost.

        Raises:
            EntityNotFound: There is no such row any more, or the entity has expired.
            WrongKind: The row is of another kind now.
            DecodeError: The row does not fit the model.
        """
        await refresh_entity(self._connection, self._load_row, entity)

    async def get_or_insert(self, entity: M) -> tuple[M, bool]:
        """
        Read the entity that is stored under the key of this one; insert this one if there is none. After a lost race
        with another insert, it reads again.

            account, inserted = await db.get_or_insert(Account(branch="Lund", number=1))

        Args:
            entity: An entity or bag, which stays as it is if it is not inserted.

        Returns:
            The stored entity and False, after one request; or the entity given, which now has its ETag, and True, after
            two.

        Raises:
            WrongKind: The row is of another kind.
            UniqueViolation: Another entity has the value of a unique index.
            EncodeError: A value does not fit its field.
        """
        return await get_or_insert(self._connection, self._load_row, entity)

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
        Read an entity, apply a function, and save what changed if the row has not changed meanwhile; otherwise do all
        of it again after a pause. Calls for one row that wait for another one are made together, in one read and one
        write: each gets the entity as its own function has left it, and only the newest of these can be saved.

        Args:
            target: A model, with its key fields; a `Key`; or an entity or bag, which gets the result.
            fn: Takes the entity, and changes it or returns a changed copy. It is called at least once for each
                attempt, so it must do nothing else; it cannot await.
            attempts: How often to try at most.
            create: What to insert if there is no such row, after `fn` was applied to it: a function that makes an
                entity, or an entity, which is copied. None to raise `EntityNotFound`.
            if_match: The ETag that the row must have, as from the header of a request, or "*" for any. With an ETag a
                lost race is not repeated, since the row has another one.
            fields: The key fields.

        Returns:
            The entity as it was written.

        Raises:
            LostRace: Every attempt lost its race; `entity` is the entity as it was read last.
            PreconditionFailed: The row has another ETag than `if_match`.
            EntityNotFound: There is no such row.
            EncodeError: The entity given has changes that were not saved, a value does not fit its field, or `if_match`
                is no ETag.
            ModelError: `fn` is asynchronous, or returns something other than such an entity; or both `create` and
                `if_match` are given.
        """
        return await modify_target(
            self._connection, self._load_row, target, fn, fields, attempts=attempts, create=create, if_match=if_match
        )

    async def load(
        self,
        entities: E | Iterable[E],
        relation: Relation[E, Any],
        /,
        *more: Relation[Any, Any],
        cache: CachedEntities[Any] | Sequence[CachedEntities[Any]] = (),
    ) -> None:
        """
        Load what belongs to entities: `await db.load(teams, Team.employees)`, then `team.employees` is a tuple.

        Entities with equal values are read once. At most 16 requests are sent at the same time; what lies in one
        partition is read by ranges for several of the entities, where that takes fewer requests. Each load reads anew.

        Args:
            entities: An entity, or several, which were read before.
            relation: What to load, such as `Team.employees`, or `Team.employees.where(...)` or `.limit(5)` of it, five
                for each team.
            more: What to load then for what was found: `db.load(teams, Team.employees, Employee.reviews)`.
            cache: What `cached` has made, one or several: entities of its model, found by their keys, come from it.

        Raises:
            ModelError: An entity is not of the relation's class, or the relation does not fit the models.
            NotLoaded: An entity lacks a field by which others belong to it.
            MultipleEntitiesFound: A relation to one entity finds several.
            DecodeError: A row does not fit its model.
        """
        await load_relations(self, entities, (relation, *more), caches_by_model(self._connection, cache))

    def cached(self, model: type[E], /, *, ttl: float, max_entities: int = 10_000) -> CachedEntities[E]:
        """
        Make a cache of entities that change seldom, to be shared: `departments = db.cached(Department, ttl=60)`.

        Args:
            model: Their model.
            ttl: Seconds for which an entity is kept. What this program writes by the same database is read again at
                once, what others write when they are over.
            max_entities: How many are kept, at most; those that were not asked for longest go first.

        Raises:
            ModelError: `ttl` or `max_entities` is not above 0.
        """
        return CachedEntities(self._connection, self, model, ttl, max_entities)

    def explain_load(
        self, entities: E | Iterable[E], relation: Relation[E, Any], /, *more: Relation[Any, Any]
    ) -> LoadExplanation:
        """
        Return what `load` would send first: each request, and how many these can become. Nothing is sent.

        Args:
            entities: An entity, or several.
            relation: What would be loaded.
            more: What would be loaded then.

        Raises:
            TableOrmError: What `load` would raise before anything is sent.
        """
        return explain_load(self._connection, self, entities, (relation, *more))

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
        Return what a write would send: each request, its body, and what it costs. Nothing is sent.

        Args:
            verb: The method of the database: "insert", "save", "merge", "replace", "upsert", "delete" or "move".
            target: The entity, bag or key that the verb would be given.
            arguments: The other arguments of the verb: `only`, `mode`, `if_match`, `drop_extra`; for a move the new key
                fields.

        Raises:
            ModelError: There is no such verb, or it does not take these arguments.
            TableOrmError: What the write would raise before anything is sent.
        """
        boundary = self._connection.boundary
        if verb == "move" and isinstance(target, Entity) and leaves_partition(target, arguments):
            return with_prefix(explain_relocation(boundary, target, arguments), self.prefix)
        changes = changes_of_verb(boundary, verb, target, arguments)
        home = None if changes[0].schema is None else changes[0].schema.home
        if isinstance(home, QueriedHome):
            return with_prefix(home.explain(self._connection, changes), self.prefix)
        return with_prefix(explain(boundary, changes), self.prefix)

    def transaction(self, *, repeat: bool = True) -> Transaction:
        """
        Begin an entity group transaction: `async with db.transaction() as tx: tx.insert(...)`.

        The operations are sent together when the block ends; all are applied, or none is. Nothing is sent if the block
        raises. They are of one table and one partition, at most 100 operations and 4 MiB; several changes of one row
        are one operation.

        Args:
            repeat: Whether to send the transaction again after a lost reply. Otherwise a lost reply raises
                `OutcomeUnknown`, unless a write token proves that the transaction was applied.

        Raises:
            TransactionFailed: When the block ends: an operation failed, nothing was applied; `index` says which.
        """
        return Transaction(self._connection, self._load_row, repeat=repeat, attempt=Attempt())

    async def run_transaction(
        self, fn: Callable[[Transaction], Awaitable[T]], *, attempts: int = ATTEMPTS, repeat: bool = True
    ) -> T:
        """
        Run a function in a transaction, and run it again in a new one if a row has changed meanwhile.

        Args:
            fn: `async def fn(tx)`: reads by `tx.get` and `tx.modify`, and writes. It may be called several times.
            attempts: How often to try at most.
            repeat: What it is for `transaction`.

        Returns:
            The result of `fn` in the attempt that succeeded.

        Raises:
            TransactionFailed: An operation failed for another reason, or all attempts lost their races.
        """
        return await run_transaction(self._connection, self._load_row, fn, attempts=attempts, repeat=repeat)

    def bulk(
        self,
        *,
        concurrency: int = 16,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
        errors: Literal["raise", "report"] = "raise",
    ) -> Bulk:
        """
        Begin many writes over any partitions: `async with db.bulk() as bulk: await bulk.upsert(...)`, then
        `bulk.report`.

        The writes are sent as entity group transactions, by partition; only each transaction is atomic. A call waits
        while too many writes wait to be sent, so any number of entities takes bounded memory. If the block raises,
        writes that were not sent yet are dropped. A write that fails does not stop the others; the end of the block
        raises `BulkFailed`, which has the report.

        Args:
            concurrency: How many transactions may be under way, each of another partition; there are fewer while the
                store refuses because it is asked for too much.
            rate: How many operations may be sent a second; None for any number.
            on_progress: Called with the report so far after each transaction.
            errors: "report" if writes that fail are to be looked up in `bulk.report`, and the block raises nothing.

        Raises:
            ModelError: `concurrency` or `rate` is not above 0.
        """
        return Bulk(self._connection, concurrency=concurrency, rate=rate, on_progress=on_progress, errors=errors)

    def scope(self, *models: type[Entity], **fields: Any) -> "Scope":
        """
        Make a view of this database in which key fields have one value: `mine = db.scope(tenant="acme")`.

        The scope fills these fields in keys, queries and new entities, and refuses other values.

        Args:
            models: Models whose keys tell which rows of their tables are in the scope, so that rows can be read and
                written without a model too, by `select_raw` and as property bags.
            fields: The fields and their values: key fields of every model that is used in the scope.

        Raises:
            ModelError: No field is given, or the keys of a model do not tell which rows are in the scope.
        """
        return Scope(self, ScopeRules(models, fields))


class Scope(Database):
    """
    A database in which some key fields have one value. Made by `db.scope(tenant="acme")`; shares the connection.

    Everything works as on the database, within the scope; `grant` gives tokens for rows of the scope. Another value of
    a field raises `AccessDenied`, and so do `drop_table`, `policies`, `audit`, `build_index` and `sweep`, which concern
    whole tables. Models whose keys do not hold the fields raise `ModelError`, and so do rows without a model unless
    `scope` was given a model of their table. The stores themselves (`store`, `queues`, `blobs`) are not scoped.
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
        Make a new entity of this scope, without inserting it: `mine.new(Order, number=7)`.

        Raises:
            AccessDenied: A field has another value.
            ModelError: The model does not have these key fields.
        """
        made: E = new_entity(schema_of(model), self._rules.fill_key(schema_of(model), fields))
        return made

    def scope(self, *models: type[Entity], **fields: Any) -> "Scope":
        """
        Make a scope within this one, in which these fields have one value too.

        Raises:
            AccessDenied: A field has another value here.
        """
        return Scope(self._parent, self._rules.narrowed(models, fields))

    # It is open while the database is

    async def open(self) -> Self:
        """Refuse: a scope is open while its database is. Raises NotSupported."""
        raise NotSupported("a scope is a view of an open database; open the database, and use the scope as it is")

    async def close(self) -> None:
        """Refuse: a scope is open while its database is. Raises NotSupported."""
        raise NotSupported("a scope is a view of an open database; close the database itself")
