"""
Part of stage 5: blobs that are fields of entities are sent before the transaction that writes their addresses.

A message tells workers of each upload before it begins; it stays hidden as long as this program works on it. If the
transaction is rejected, the uploads are deleted; if nobody knows what became of it, they are left to workers.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import attrs
from msgspec import structs

from ..connection.blob_fields import delete_blob, reader_of, send_blob
from ..connection.blobs import require_blobs
from ..connection.connection import Connection
from ..connection.logger import make_logger
from ..connection.tasks import map_together
from ..errors import EncodeError, EncryptionError, OutcomeUnknown, TableOrmError
from ..models.manifest import UploadEntry
from ..models.property_types import FieldInfo
from ..models.schema import Schema
from ..models.write_tokens import new_token
from ..outbox import shared_bell
from ..outbox.bell import OUTBOX, check_reach, outbox_queues, ring, silence
from ..outbox.uploads import Upload
from ..protocol.codes import Fault
from ..shapes.blob import Blob, BlobParts, content_of, hold, release, sent_blob
from ..shapes.encrypted import NO_KEYS
from ..shapes.sealed_blob import SEALED_KEY_BYTES
from ..stores import Message
from .plan import PlannedWrite, refuse_before_sending

_LOG = make_logger("tableorm.outbox")


def uploads_of(write: PlannedWrite) -> list[tuple[FieldInfo, Blob]]:
    """Return the blobs that have to be sent before a write, with their fields."""
    schema, row = write.change.schema, write.operation.row
    if schema is None or not schema.uploads:
        return []
    found = [(info, sent_blob(row.get(info.members[0].property))) for info in schema.uploads]
    return [(info, blob) for info, blob in found if blob is not None]


@attrs.define(eq=False)
class _Upload:
    """
    A blob that a write needs.

    Args:
        write: The write.
        info: The field.
        blob: The blob.
        address: Where it goes.
    """

    write: PlannedWrite
    info: FieldInfo
    blob: Blob
    address: UploadEntry

    @property
    def message(self) -> Upload:
        """What workers are told."""
        kind, address = _schema_of(self.write).versioned_kind, self.address
        return Upload(kind=kind, table=address.table, partition_key=address.partition_key, token=address.token)

    def address_rows(self) -> int:
        """Add the blob's address and details to the rows of the write; return how many characters that adds."""
        write, waiting = self.write, self.info.members[0].property
        members = _schema_of(write).encode_some({self.info.name: self.blob}, (self.info,))
        rows = write.operation.row, write.after, write.change.shown, write.change.patch.set
        for row in {id(row): row for row in rows if row is not None}.values():
            if waiting in row:
                row.update(members)
        return sum(len(str(value)) for value in members.values())


def _schema_of(write: PlannedWrite) -> Schema:
    schema = write.change.schema
    assert schema is not None
    return schema


@contextmanager
def explained_uploads(writes: Sequence[PlannedWrite], token: str) -> Generator[list[tuple[UploadEntry, bytes]]]:
    """
    Let writes have the addresses that their blobs would get, until the block ends; nothing is sent.

    Args:
        writes: The writes.
        token: What stands for the token of an upload.

    Returns:
        Of each upload the address, and the body of its message.
    """
    uploads: list[_Upload] = []
    for write in writes:
        for info, blob in uploads_of(write):
            own = token if not uploads else f"{token[:-1]}{len(uploads)}"
            address = UploadEntry(write.change.table, own, write.change.partition_key)
            key = bytes(SEALED_KEY_BYTES if info.encrypted else 0)
            hold(blob, BlobParts(address.to_text(), blob.length or 0, "-" * 64, blob.content_type or "", key))
            uploads.append(_Upload(write, info, blob, address))
            uploads[-1].address_rows()
    try:
        yield [(each.address, each.message.to_message()) for each in uploads]
    finally:
        for each in uploads:
            release(each.blob, stored=False)
            each.address_rows()


@attrs.define(eq=False)
class _Sending(_Upload):
    """
    An upload that goes on, from its message to the end of the write.

    Args:
        db: Where it goes.
    """

    db: Connection
    told: Message | None = None
    keeping: asyncio.Task[None] | None = None
    sent: bool = False

    @property
    def label(self) -> str:
        """The field, for messages."""
        return f"{self.write.change.model}.{self.info.name}"

    async def begin(self) -> TableOrmError | None:
        """Tell workers, then send the blob. Return why that failed."""
        db, label, encrypted = self.db, self.label, self.info.encrypted
        try:
            content_of(self.blob).check_unsent(label)
            if encrypted and db.encryption is None:
                raise EncryptionError(NO_KEYS, self.write.change.address)
            await check_reach(db, f"{self.write.origin}: workers must be notified of the upload of {label}")
            await require_blobs(db, f"{label} is a blob")
            self.told = await ring(db, self.message, delay_seconds=shared_bell.HIDDEN_SECONDS)
            self.keeping = asyncio.create_task(self._keep())
            hold(self.blob, await send_blob(db, self.blob, self.address, label, encrypted=encrypted))
            self.sent = True
        except TableOrmError as error:
            return error
        return None

    async def _keep(self) -> None:
        """Hide the message as long as the write goes on. If a worker has it all the same, the commit is rejected."""
        while self.told is not None:
            await asyncio.sleep(max(shared_bell.HIDDEN_SECONDS / 3, 1))
            with suppress(Fault):
                self.told = await outbox_queues(self.db).renew(OUTBOX, self.told, shared_bell.HIDDEN_SECONDS)

    async def end(self, error: BaseException | None) -> None:
        """End it as the write has ended."""
        if self.keeping is not None:
            self.keeping.cancel()
            await asyncio.wait([self.keeping])
        if self.sent:
            release(self.blob, stored=error is None)
        if error is None:
            values = {**self.write.change.values}
            content_of(self.blob).reader = reader_of(self.db, _schema_of(self.write), self.info, values)
        else:
            self.address_rows()  # what is sent again begins anew
            if not self.sent or not _is_refusal(error):
                return  # what may have come, or may come yet, is left to workers
            try:
                await delete_blob(self.db, self.address, self.label)
            except TableOrmError as problem:
                _LOG.warning("the upload %s of %s is left to workers: %s", self.address.name, self.label, problem)
                return
        if self.told is not None:
            await self.db.run_later(silence(self.db, self.told))


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether an error says that nothing was written, and never will be."""
    while error is not None:
        if not isinstance(error, TableOrmError) or isinstance(error, OutcomeUnknown):
            return False
        error = error.__cause__ if isinstance(error.__cause__, TableOrmError) else None
    return True


@asynccontextmanager
async def uploaded(db: Connection, writes: Sequence[PlannedWrite]) -> AsyncGenerator[list[PlannedWrite]]:
    """
    Send the blobs of writes, and hand out the writes with their addresses; end the uploads as the block ends.

    Args:
        db: Where to.
        writes: The writes of a transaction.

    Raises:
        EncodeError: A blob comes from a stream that was sent before, or two fields have the same one.
        TableOrmError: An upload was rejected, or the store did not answer.
        TransactionFailed: One of these errors, in a transaction.
    """
    sendings: list[_Sending] = []
    for write in writes:
        for info, blob in uploads_of(write):
            change = write.change
            if any(each.blob is blob for each in sendings):
                problem = "is the same Blob as another field has; make one for each"
                twice = EncodeError(problem, change.model, info.name, blob, misuse=True)
                refuse_before_sending(write, twice)
            address = UploadEntry(change.table, new_token(), change.partition_key)
            sendings.append(_Sending(write, info, blob, address, db))
    error: BaseException | None = None
    try:
        failed = await map_together(_Sending.begin, sendings)
        for sending, refusal in zip(sendings, failed, strict=True):
            if refusal is not None:
                refuse_before_sending(sending.write, refusal)
        added = {id(write): 0 for write in writes}
        for sending in sendings:
            added[id(sending.write)] += sending.address_rows()
        yield [
            write if write.weight is None else structs.replace(write, weight=write.weight + added[id(write)])
            for write in writes
        ]
    except BaseException as raised:
        error = raised
        raise
    finally:
        await map_together(lambda each: each.end(error), sendings)
