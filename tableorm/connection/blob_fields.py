"""
The bytes of blobs that are fields of entities: how they are sent, read and deleted.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any, TypeVar

import attrs

from ..errors import DecodeError, EncryptionError, EntityNotFound, TableOrmError
from ..models.entity import Entity
from ..models.manifest import UploadEntry
from ..models.property_types import FieldInfo
from ..models.reserved import BLOB_FIELDS
from ..models.schema import Schema
from ..protocol.codes import Code, Fault
from ..shapes.blob import Blob, BlobParts, BlobReader, Sending, add_to_hash, content_of
from ..shapes.sealed_blob import BlobSeal, new_blob_key
from ..stores import BlobStore, RowAddress
from .blobs import NO_BLOB, ask_blobs, make_container, put_blob, require_blobs
from .connection import Connection
from .rows import read_row
from .translate import translate, with_fault

T = TypeVar("T")

BLOB_PARTITION = "partition"
"""The name of the metadata of a blob that have the partition of its row, in base64."""


async def ask_for_blobs(db: Connection, label: str, request: Callable[[BlobStore], Awaitable[T]]) -> T:
    """Send a request about blobs of fields, again after a transient fault. Raises Fault, and as `require_blobs`."""
    await require_blobs(db, f"{label} is a blob")
    return await ask_blobs(db, label, request)


async def send_blob(db: Connection, blob: Blob, address: UploadEntry, label: str, *, encrypted: bool) -> BlobParts:
    """
    Send the bytes of a blob to a new name, and return what its row gets.

    Args:
        db: Where to.
        blob: The blob.
        address: The new name.
        label: The field, for messages.
        encrypted: Whether the field is encrypted.

    Raises:
        EncodeError: They come from a stream, which was sent before.
        TableOrmError: The store refused them, or did not answer: they may be there yet.
    """
    metadata = {BLOB_PARTITION: urlsafe_b64encode(address.partition_key.encode()).decode()}
    content = content_of(blob)
    content.check_unsent(label)
    key = new_blob_key() if encrypted else b""
    sending = Sending(content, label, BlobSeal(key, address.token, label) if encrypted else None)
    data = content.source if isinstance(content.source, bytes) and not encrypted else sending
    try:
        if content.once:
            await make_container(db, label, BLOB_FIELDS)
        await put_blob(db, label, BLOB_FIELDS, address.name, data, if_none_match=True, metadata=metadata)
    except Fault as fault:
        if fault.code != Code.BLOB_EXISTS:  # otherwise an earlier attempt has come: the name is new
            raise translate(fault, f"upload of {label}", "") from None
    if not sending.ended:
        await sending.run_through()
    return BlobParts(address.to_text(), sending.length, sending.sha256, blob.content_type or "", key)


async def delete_blob(db: Connection, address: UploadEntry, label: str) -> None:
    """Delete a blob; nothing happens if it is gone. Raises TableOrmError."""
    try:
        await ask_for_blobs(db, label, lambda store: store.delete(BLOB_FIELDS, address.name))
    except Fault as fault:
        if fault.code not in NO_BLOB:
            raise translate(fault, f"delete of {label}, the blob {address.name!r}", "") from None


@attrs.frozen(eq=False)
class _Reader:
    """
    What reads the blob of an entity.

    Args:
        db: The database.
        info: The field.
        owner: The row of the entity; None if nobody knows its key.
        schema: Its model.
    """

    db: Connection
    info: FieldInfo
    owner: RowAddress | None
    schema: Schema

    @property
    def label(self) -> str:
        """The field, for messages."""
        return f"{self.schema.name}.{self.info.name}"

    async def stream(self, parts: BlobParts, start: int, length: int | None) -> AsyncGenerator[bytes]:
        """See `BlobReader`. Where a blob is gone, the entity has another one, or it was deleted, or it is damaged."""
        refused = ""
        while length != 0 and not (start and start >= parts.length):
            try:
                async with aclosing(self._chunks(parts, start, length)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except Fault as fault:
                if parts.key and fault.code == Code.INVALID_RANGE:
                    error = EncryptionError(f"the blob of {self.label} is shorter than it was sealed")
                    raise with_fault(error, fault) from None
                if fault.code not in NO_BLOB:
                    raise translate(fault, f"read of {self.label}", "") from None
                if parts.address == refused:
                    missing = self._damaged(f"is the blob {parts.address!r}, which is not there")
                    raise with_fault(missing, fault) from None
                refused = parts.address
            else:
                return
            parts = await self._look_again()

    async def _chunks(self, parts: BlobParts, start: int, length: int | None) -> AsyncGenerator[bytes]:
        """Yield the bytes of a range of a blob. Raises Fault if it cannot be opened, and otherwise TableOrmError."""
        address, digest, whole = UploadEntry.of(parts.address), hashlib.sha256(), start == 0 and length is None
        seal = BlobSeal(parts.key, address.token, self.label) if parts.key else None
        place = (start, length) if seal is None else seal.stored_range(start, length, parts.length)
        async with AsyncExitStack() as opened:
            enter = opened.enter_async_context
            stream = await ask_for_blobs(
                self.db, self.label, lambda store: enter(store.get(BLOB_FIELDS, address.name, *place))
            )
            try:
                chunks = stream.chunks
                async for chunk in chunks if seal is None else seal.opened(chunks, start, length, parts.length):
                    if whole and seal is None:
                        await add_to_hash(digest, chunk)
                    yield chunk
            except Fault as fault:
                what = f"read of {self.label}, which may have been replaced meanwhile"
                raise translate(fault, what, "") from None
        if whole and seal is None and digest.hexdigest() != parts.sha256:
            raise self._damaged(f"is the blob {parts.address!r}, whose bytes do not have the hash {parts.sha256}")

    async def _look_again(self) -> BlobParts:
        """Return what the entity has as its blob now. Raises EntityNotFound if it is gone, or has none any more."""
        row = None if self.owner is None else await read_row(self.db, self.owner, name=self.schema.name)
        if row is None or self.info.members[0].property not in (row := self.schema.unseal(row)):
            raise EntityNotFound(
                f"read of {self.label}: the blob is gone, and so is the entity {self.owner}, or it has none any more, "
                "or was moved; read it again",
                Code.RESOURCE_NOT_FOUND,
            )
        try:
            blob: Blob = self.info.read(row)
            parts = content_of(blob).parts
            assert parts is not None
            return parts
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, problem: str) -> DecodeError:
        keys = ("", "") if self.owner is None else (self.owner.partition_key, self.owner.row_key)
        return DecodeError(problem, self.schema.name, keys, self.info.name)


def reader_of(db: Connection, schema: Schema, info: FieldInfo, values: dict[str, Any]) -> BlobReader:
    """Return what reads the blob of an entity with these fields."""
    try:
        owner = RowAddress(schema.table_name(), *schema.make_keys(values))
    except TableOrmError:
        owner = None  # it was loaded in part
    return _Reader(db, info, owner, schema).stream


def bind_blobs(db: Connection, entities: Iterable[object]) -> None:
    """Let the blobs of entities that were read know where to read their bytes."""
    for entity in entities:
        if isinstance(entity, Entity):
            schema = entity.__schema__
            for info in schema.uploads:
                blob = entity.__dict__.get(info.name)
                if isinstance(blob, Blob):
                    content_of(blob).reader = reader_of(db, schema, info, entity.__dict__)
