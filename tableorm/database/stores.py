"""
The stores of a database: opened and closed together, observed, and the tables in them.
"""

import itertools
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from ..connection.async_only import async_only
from ..connection.connection import Connected, Connection
from ..connection.index_states import forget_table, load_states, note_declarations
from ..connection.observe import Hook, Observation, Watch
from ..connection.period_tables import coming_tables
from ..connection.queue_and_blob_requests import (
    BLOB_OPERATIONS,
    QUEUE_OPERATIONS,
    CountedBeside,
    TranslatedBeside,
)
from ..errors import EntityNotFound, TableNotFound, TableOrmError, without_own_frames
from ..models.entity import Entity, schema_of
from ..models.kinds import KindSet, refuse_same_kinds
from ..models.schema import concrete
from ..protocol.codes import Code
from ..shapes.encrypted import ContentKeys, Encryption
from ..stores import Backend, BlobStore, QueueStore, RetryPolicy, TableStore


@async_only
class Stores(Connected):
    """
    The part of a database that opens and closes its stores, and makes tables.

    Args:
        backend: The backend that has the tables.
        queues: The backend that has the queues; None if it is the same one.
        blobs: The backend that has the blobs; None if it is the same one.
        retry: How requests are repeated by the mapper, where the store does not repeat them itself.
        watch: Who is told of the requests; nobody if not given.
        encryption: The keys of encrypted fields; None if there are none.
    """

    if not TYPE_CHECKING:
        _in_place_of_await = "write async with connect(url) as db, or db = await connect(url).open()"

    def __init__(
        self,
        backend: Backend,
        *,
        queues: Backend | None = None,
        blobs: Backend | None = None,
        retry: RetryPolicy | None = None,
        watch: Watch | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        keys = None if encryption is None else ContentKeys(encryption)
        self._connection = Connection(backend, queues=queues, blobs=blobs, retry=retry, watch=watch, encryption=keys)
        self._connection.reader = self
        self.stats = self._connection.stats

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """Where the tables are, without secrets, for people to read."""
        return self._connection.url

    @property
    def prefix(self) -> str:
        """The prefix of table names in the store, which the program doesn't see; "" if there is none."""
        return self._connection.prefix

    async def open(self) -> Self:
        """
        Open the database.

            db = await connect("local:./hr.tables").open()

        Raises:
            NotSupported: The file belongs to another program, or was written by a newer version.
            AccessDenied: The file may not be read.
            Unavailable: The store can't be reached.
        """
        try:
            await self._connection.open()
        except TableOrmError as error:
            raise without_own_frames(error) from error.__cause__
        return self

    async def close(self) -> None:
        """
        Finish what is in progress and release all resources. Closing twice does no harm. Afterwards every call except
        `open` is rejected.

        Raises:
            NotSupported: The database was opened in another event loop.
        """
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def store(self) -> TableStore:
        """The tables themselves, below the mapper. Requests made this way are neither counted nor observed."""
        return self._connection.store

    @property
    def queues(self) -> QueueStore:
        """
        The queues. They raise errors of tableorm; `code` has the details.

        Raises:
            NotSupported: There are none; the message names the argument of `connect` that says where they are.
        """
        connection = self._connection
        counted = CountedBeside(connection, connection.queues, QUEUE_OPERATIONS)
        return cast("QueueStore", TranslatedBeside(counted, "queues"))

    @property
    def blobs(self) -> BlobStore:
        """
        The blobs. They raise errors of tableorm; `code` has the details.

        Raises:
            NotSupported: There are none; the message names the argument of `connect` that says where they are.
        """
        connection = self._connection
        counted = CountedBeside(connection, connection.blobs, BLOB_OPERATIONS)
        return cast("BlobStore", TranslatedBeside(counted, "blobs"))

    def observe(self, on_request: Hook | None = None, *, show_values: bool = False) -> Observation:
        """
        Record the requests that a block sends, including those of tasks that it starts.

            with db.observe() as seen:
                await db.save(ken)
            print(seen)  # seen.requests, seen.rows, seen.cost

        Args:
            on_request: A plain function that is called with each finished request.
            show_values: Whether the requests include property values.

        Raises:
            TypeError: `on_request` is not a plain function.
        """
        return self._connection.watch.observe(on_request, show_values=show_values)

    async def ping(self) -> None:
        """
        Send a small request, to check that the store answers.

            await db.ping()  # raises Unavailable if the store is down

        Raises:
            Unavailable: It doesn't answer.
            AccessDenied: It responds, but rejects the credentials.
        """
        self._connection.require_open()
        guarded = self._connection.guarded
        if guarded is None:
            await self.tables()
        else:
            await self._connection.call("ping", "", guarded.ping(), beside="ping")

    # Tables

    async def create_tables(self, *targets: type[Entity] | str) -> None:
        """
        Create the tables of these models, or with these names, unless they exist.

            await db.create_tables(Employee, Department)

        For a model with one table per period, this creates the current one; see `prepare_periods`.

        The indexes and index lists of a new table are recorded as complete. An index of a table that already existed is
        not used until `build_index` has completed it. A table that this database has created since it was opened still
        counts as new for models that have no entities in it.

        Args:
            targets: Models, and names of tables.

        Raises:
            AccessDenied: Not permitted.
            ModelError: A count, a sum or an embedded copy doesn't fit the model that it refers to, or two models of a
                table have the same kind.
            TableOrmError: A name is not a valid table name.
        """
        connection = self._connection
        connection.require_open()
        schemas = [[] if isinstance(t, str) else concrete(schema_of(t)) or [schema_of(t)] for t in targets]
        found = list(dict.fromkeys(itertools.chain.from_iterable(schemas)))
        refuse_same_kinds(found)
        connection.used_models.add(*(schema for schema in found if not schema.abstract))
        names: dict[str, None] = {}
        created: set[str] = set()
        for target, own in zip(targets, schemas, strict=True):
            for schema in own:
                schema.check_relations()
                # The entries of an eventual index may be in a table of their own.
                tables = [each.table or "" for each in schema.derived.values() if not each.in_blobs]
                names |= dict.fromkeys(
                    [schema.table_name(), *tables] if schema.periods is None else coming_tables(schema.periods, 0)
                )
            names |= dict.fromkeys([target] if isinstance(target, str) else ())
        for name in names:
            if await connection.create_table(name):
                created.add(name)
                connection.known_states.created.add(name.lower())
        undecided = {
            each.declaration: KindSet.alone(schema).filter
            for schema in found
            if not schema.abstract
            for each in schema.derived.values()
            if each.declaration is not None and each.building is None
        }
        await note_declarations(connection, undecided, created)

    async def tables(self) -> list[str]:
        """
        Return the names of all tables, in order.

            print(await db.tables())  # ["Directory"]
        """
        return await self._connection.list_tables()

    async def drop_table(self, target: type[Entity] | str, *, missing_ok: bool = False) -> None:
        """
        Delete a table with all of its rows, including those of other models, and what is derived from them. The
        recorded states of its indexes are deleted first.

            await db.drop_table(Employee, missing_ok=True)

        Args:
            target: A model, or the name of a table.
            missing_ok: Whether to accept that there is no such table.

        Raises:
            TableNotFound: There is no such table.
            AccessDenied: In a scope, since the table may have rows outside of the scope.
            ModelError: The target is an abstract model without a table, or neither a model nor a name.
        """
        connection = self._connection
        name = target if isinstance(target, str) else schema_of(target).table_name()
        connection.boundary.check_whole_table(f"drop_table({name!r}, missing_ok={missing_ok!r})")
        states = await load_states(connection, f"deletion of table {name!r} and of the states of its indexes")
        await forget_table(connection, name, states)
        store, _ = connection.sending("delete-table", "")
        try:
            await connection.call(f"deletion of table {name!r}", name, store.delete_table(name))
        except EntityNotFound as error:
            if not missing_ok:
                missing = TableNotFound(f"there is no table {name!r} to delete", Code.TABLE_NOT_FOUND, name)
                missing.fault = error.fault
                raise missing from None
