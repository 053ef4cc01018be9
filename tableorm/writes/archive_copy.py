"""
Archives outside of the tables of a database, and the copies of entities that are made there.

A copy is made for one archiving of one entity, whose token it has: in the name of the blob, or among the write tokens
of the row. So who makes it again, after a crash or beside another worker, knows it from what others have put there.
Each write of a copy is conditional: it replaces no version of the copy but the one that was found.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

import attrs
import msgspec

from ..connection.blobs import NO_BLOB, ask_blobs, put_blob
from ..connection.connection import Connected, Connection, connection_of
from ..connection.translate import translate
from ..errors import (
    Conflict,
    DecodeError,
    EncodeError,
    EntityExists,
    EntityNotFound,
    ModelError,
    NotSupported,
    PreconditionFailed,
    TableOrmError,
    shown,
)
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.marker_rows import note_follower
from ..models.reserved import BOUND_TO_KEYS, PLACES, WRITE_TOKENS
from ..models.state import set_state, state_of
from ..models.write_tokens import tokens_of, with_token
from ..protocol.codes import Fault
from ..protocol.edm import BrokenText, check_text
from ..protocol.limits import check_blob_name, check_container_name
from ..stores import BlobStore, Row
from .commit import commit, read_current
from .plan import Change, PlannedWrite
from .relocation import entity_of_row
from .stages.change import delete_change, plain_insert, rewrite_change
from .stages.complete import complete
from .stages.encode import encode_surely

E = TypeVar("E", bound=Entity)
T = TypeVar("T")

_FORMAT = 1
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_BOOKKEEPING = (*BOUND_TO_KEYS, PLACES)  # of the row where it was, and not of the entity


class _StoredRow(msgspec.Struct, frozen=True, gc=False):
    """The JSON of a blob."""

    format: int
    table: str
    row: dict[str, str | int | float | bool | None]


@attrs.frozen
class BlobArchive(Generic[E]):
    """
    A container of blobs that `db.archive` moves entities to, each as a JSON blob.

        old_orders = BlobArchive("old-orders", Order)
        await db.archive(order, to=old_orders)

    Args:
        name: The name of the container, which is also stored in messages. The first archived entity creates the
            container.
        model: The model of the entities.

    Raises:
        ModelError: This is not a valid container name, or the entities of the model can't be archived; or the table has
            a model whose rows look like decision rows, as described for `workflow`.
    """

    name: str
    model: type[E]

    def __attrs_post_init__(self) -> None:
        try:
            check_container_name(self.name)
        except Fault as fault:
            raise ModelError(f"BlobArchive({shown(self.name)}) is rejected: {fault.message}") from None
        _check_model(self)
        note_follower(schema_of(self.model), f"the archive {self.name!r}")

    def prefix(self, key: Key[E]) -> str:
        """Return the prefix of the names of an entity's blobs. There is one blob for each time that it was archived."""
        return "/".join([key.table, _segment(key.partition_key), _segment(key.row_key), ""])

    def load(self, content: bytes) -> E:
        """
        Return the entity that a blob contains, with its unknown properties. `db.insert` stores it again.

        Args:
            content: The content of the blob.

        Raises:
            DecodeError: It is not a blob of an archive, or belongs to another model.
            NotSupported: It was written by a newer version.
        """
        name = schema_of(self.model).name
        try:
            stored = msgspec.json.decode(content, type=_StoredRow)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DecodeError(f"of a blob cannot be read: {error}", name, ("", "")) from None
        if stored.format != _FORMAT:
            raise NotSupported(
                f"the blob has the format {stored.format}, and this program knows {_FORMAT}; read it with a newer one"
            )
        entity = KindSet.of([self.model]).load(stored.row)
        if not isinstance(entity, self.model):
            keys = str(stored.row.get("PartitionKey")), str(stored.row.get("RowKey"))
            raise DecodeError(f"of a blob is not of {name}; give the archive its model", name, keys)
        return entity


@attrs.frozen
class DatabaseArchive(Generic[E]):
    """
    Another database that `db.archive` moves entities to, under the same keys.

        cold_orders = DatabaseArchive(
            "cold", Order, lambda: connect("local:./cold.tables")
        )
        await db.archive(order, to=cold_orders)

    Args:
        name: A name for the other database, which is stored in messages.
        model: The model of the entities, in both databases.
        open: A function that a worker calls for each entity. It returns an async context manager for the other
            database, such as `connect` returns, or one that yields a database that is already open.

    Raises:
        ModelError: The name is rejected, or the entities of the model can't be archived; or the table has a model whose
            rows look like decision rows, as described for `workflow`.
    """

    name: str
    model: type[E]
    open: Callable[[], AbstractAsyncContextManager[Connected]]

    def __attrs_post_init__(self) -> None:
        if not (type(self.name) is str and _NAME.fullmatch(self.name)):
            raise ModelError(
                f"DatabaseArchive({shown(self.name)}) is rejected: a name has up to 63 letters, digits, '_' and '-', a "
                "letter first"
            )
        _check_model(self)
        schema = schema_of(self.model)
        if not schema.write_token:
            raise ModelError(
                f"DatabaseArchive({self.name!r}, {schema.name}) is rejected: a copy of a row without write tokens "
                f"cannot be told from what others have put there; declare class {schema.name}(..., write_token=True)"
            )
        note_follower(schema, f"the archive {self.name!r}")


Archive = BlobArchive[E] | DatabaseArchive[E]
"""Where entities can be archived, outside of the tables of their database."""


def _check_model(archive: Archive[Any]) -> None:
    schema = schema_of(archive.model)
    problem = None
    if schema.abstract:
        problem = "is abstract; declare an archive for each of its concrete classes"
    elif schema.kind is None or callable(schema.discriminator):
        problem = "has rows that do not say of which model they are; give it a kind, told by a property or a key"
    elif schema.keyed is not None and isinstance(archive, BlobArchive):
        problem = "has encrypted fields, and its blobs are read without keys; use a DatabaseArchive"
    elif schema.uploads:
        names = ", ".join(info.name for info in schema.uploads)
        problem = f"has blobs, {names}, which do not leave the database; archive it to a model of another table"
    if problem is not None:
        raise ModelError(
            f"{type(archive).__name__}({archive.name!r}, {schema.name}) is rejected: {schema.name} {problem}"
        )


def kind_of(archive: Archive[Any]) -> str:
    """Return what stands for an archive in place of the kind of an entity, in messages and decision rows."""
    return f"archive {archive.name}:1"


def check_archivable(archive: Archive[E], entity: E, key: Key[E]) -> None:
    """
    Refuse an entity that an archive cannot take.

    Raises:
        ModelError: It is of another model.
        LimitExceeded: No blob can have the name that its keys make.
        EncodeError: No blob can hold a value that another program has stored.
    """
    if type(entity) is not archive.model:
        raise ModelError(
            f"{key} cannot be archived to {archive.name!r}, which is for {archive.model.__name__}; declare an archive "
            f"for {type(entity).__name__}"
        )
    if isinstance(archive, BlobArchive):
        unknown = state_of(entity).unknown(entity.__schema__.known)
        broken = next((name for name, value in unknown.items() if isinstance(value, BrokenText)), None)
        if broken is not None:
            problem = f"{check_text(unknown[broken])}, which no blob can hold; set or delete the property first"
            raise EncodeError(problem, entity.__schema__.name, f"extra[{broken!r}]", unknown[broken])
        try:
            check_blob_name(archive.prefix(key) + "x" * 17)
        except Fault as fault:
            raise translate(fault, f"archive of {key}", "") from None


# Copies


def _segment(key: str) -> str:
    """Return a PartitionKey or RowKey as a part of the name of a blob; none is empty there, or ends with a dot."""
    text = key.replace("%", "%25")
    return f"{text[:-1]}%2E" if text.endswith(".") else text or "%"


@attrs.frozen
class _BlobCopy:
    """
    The blob that an entity is archived to.

    Args:
        db: Where it is.
        key: The key of the entity.
        container: Name of the container.
        name: Name of the blob.
    """

    db: Connection
    key: Key[Any]
    container: str
    name: str

    async def find(self) -> str | None:
        """Return the ETag of the copy; None if there is none."""
        try:
            return (await self._ask("blob-info", lambda blobs: blobs.info(self.container, self.name))).etag
        except TableOrmError as error:
            if error.code in NO_BLOB:
                return None
            raise

    async def write(self, row: Row, etag: str | None) -> None:
        """
        Make the copy of a row, which is durable afterwards, and has all that the entity has.

        Args:
            row: The row of the entity.
            etag: The ETag of the copy that is replaced; None to write only where there is nothing.

        Raises:
            EntityExists: There is a copy.
            Conflict: Something else is in its place.
            PreconditionFailed: The copy has another ETag.
            EntityNotFound: There is no copy.
            TableOrmError: The store refused it; or did not answer, and it may have happened.
        """
        row = {name: value for name, value in row.items() if name.partition("@")[0] not in _BOOKKEEPING}
        content = msgspec.json.encode(_StoredRow(_FORMAT, self.key.table, row))
        name, conditions = self.key.model.__name__, {"if_none_match": etag is None, "if_match": etag}
        await self._send("put-blob", put_blob(self.db, name, self.container, self.name, content, **conditions))

    async def remove(self, etag: str) -> None:
        """Delete the copy, unless it has changed since."""
        with suppress(PreconditionFailed, EntityNotFound):
            await self._ask("delete-blob", lambda blobs: blobs.delete(self.container, self.name, if_match=etag))

    async def _ask(self, operation: str, request: Callable[[BlobStore], Awaitable[T]]) -> T:
        return await self._send(operation, ask_blobs(self.db, self.key.model.__name__, request))

    async def _send(self, operation: str, request: Awaitable[T]) -> T:
        what = f"{operation} of {self.name} in {self.container}, for the archive of {self.key}"
        return await self.db.call(what, "", request)


@attrs.frozen
class _RowCopy:
    """
    The entity of another database that an entity is archived to.

    Args:
        db: The other database.
        key: The key, which is the same in both.
        token: The token of the archiving.
    """

    db: Connection
    key: Key[Any]
    token: str

    async def find(self) -> str | None:
        """See `_BlobCopy`."""
        row = await self._read()
        return None if row is None else row["odata.etag"]

    async def write(self, row: Row, etag: str | None) -> None:
        """See `_BlobCopy`."""
        schema = schema_of(self.key.model)
        entity = entity_of_row(schema, row)
        if etag is None:
            change = plain_insert(entity, "archive")
        else:
            _ = entity.extra  # the unknown properties are those of the entity, whatever the copy has
            set_state(entity, state_of(entity).adopt(state_of(entity_of_row(schema, await self._read_again(etag)))))
            change = rewrite_change(entity, "archive")
        try:
            await self._send(change)
        except EntityExists as error:
            if error.index or await self._read() is not None:
                raise
            raise Conflict(
                f"archive of {self.key}: the other database has a row with this key, which is not the copy; move it "
                "or delete it there, then run `tableorm outbox retry`",
                error.code,
            ) from error

    async def remove(self, etag: str) -> None:
        """See `_BlobCopy`."""
        with suppress(PreconditionFailed, EntityNotFound):
            row = await self._read_again(etag)
            entity = entity_of_row(schema_of(self.key.model), row)
            await self._send(complete(delete_change(entity, verb="archive"), row))

    async def _read(self) -> Row | None:
        row = await read_current(self.db, self.key)
        return row if self.token in tokens_of(row) else None

    async def _read_again(self, etag: str) -> Row:
        row = await self._read()
        if row is None or row["odata.etag"] != etag:
            raise PreconditionFailed(f"archive of {self.key}: another client has written the copy")
        return row

    async def _send(self, change: Change) -> None:
        write = encode_surely(change)
        await commit(self.db, (write if write.after is None else self._named(write),))

    def _named(self, write: PlannedWrite) -> PlannedWrite:
        """
        Return a write with the token of the archiving behind its own, which alone proves after a lost reply that it was
        applied: the copy of another worker has the first one too.
        """
        assert write.token is not None
        return write.with_members({WRITE_TOKENS: with_token((self.token,), write.token)})


Copy = _BlobCopy | _RowCopy
"""The copy of an entity that is being archived. It has ETags of its own."""


@asynccontextmanager
async def open_copy(archive: Archive[Any], db: Connection, key: Key[Any], token: str) -> AsyncGenerator[Copy]:
    """
    Open the place where the copy of an entity is made.

    Args:
        archive: The archive.
        db: The database of the entity.
        key: The key of the entity.
        token: The token of the archiving.
    """
    if isinstance(archive, BlobArchive):
        yield _BlobCopy(db, key, archive.name, f"{archive.prefix(key)}{token}.json")
    else:
        async with archive.open() as other:
            yield _RowCopy(connection_of(other), key, token)
