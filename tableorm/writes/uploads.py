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
    schema = write.change.schema
    if schema is None or not schema.uploads:
        return []
    found: list[tuple[FieldInfo, Blob]] = []
    for info in schema.uploads:
        blob = sent_blob(write.operation.row.get(info.members[0].property))
        if blob is not None:
            found.append((info, blob))
    return found


def _message(write: PlannedWrite, address: UploadEntry) -> Upload:
    schema = write.change.schema
    assert schema is not None
    kind = str(schema.kind) if schema.version == 1 else f"{schema.kind}:{schema.version}"
    return Upload(kind=kind, table=address.table, partition_key=address.partition_key, token=address.token)


def _address_rows(write: PlannedWrite, info: FieldInfo, blob: Blob) -> int:
    """Put into the rows of a write what is stored of a blob; return how many characters that are."""
    waiting, change = info.members[0].property, write.change
    assert change.schema is not None
    members = change.schema.encode_some({info.name: blob}, (info,))
    rows = write.operation.row, write.after, change.shown, change.patch.set
    for row in {id(row): row for row in rows if row is not None}.values():
        if waiting in row:
            row.update(members)
    return sum(len(str(value)) for value in members.values())


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
    found: list[tuple[UploadEntry, bytes]] = []
    held: list[tuple[PlannedWrite, FieldInfo, Blob]] = []
    for write in writes:
        for info, blob in uploads_of(write):
            own = token if not held else f"{token[:-1]}{len(held)}"
            address = UploadEntry(write.change.table, own, write.change.partition_key)
            found.append((address, _message(write, address).to_message()))
            key = bytes(SEALED_KEY_BYTES if info.encrypted else 0)
            hold(blob, BlobParts(address.to_text(), blob.length or 0, "-" * 64, blob.content_type or "", key))
            held.append((write, info, blob))
            _address_rows(write, info, blob)
    try:
        yield found
    finally:
        for write, info, blob in held:
            release(blob, stored=False)
            _address_rows(write, info, blob)


@attrs.define(eq=False)
class _Sending:
    """
    An upload that goes on, from its message to the end of the write.

    Args:
        db: Where it goes.
        write: The write that needs it.
        info: The field.
        blob: The blob.
        address: Where it goes.
    """

    db: Connection
    write: PlannedWrite
    info: FieldInfo
    blob: Blob
    address: UploadEntry
    message: Message | None = None
    keeping: asyncio.Task[None] | None = None
    sent: bool = False

    @property
    def label(self) -> str:
        """The field, for messages."""
        return f"{self.write.change.model}.{self.info.name}"

    async def begin(self) -> None:
        """Tell workers, then send the blob. Raises TableOrmError."""
        content_of(self.blob).check_unsent(self.label)
        if self.info.encrypted and self.db.encryption is None:
            raise EncryptionError(NO_KEYS, self.write.change.address)
        await check_reach(self.db, f"{self.write.origin}: workers must be notified of the upload of {self.label}")
        await require_blobs(self.db, f"{self.label} is a blob")
        self.message = await ring(self.db, _message(self.write, self.address), delay_seconds=shared_bell.HIDDEN_SECONDS)
        self.keeping = asyncio.create_task(self._keep())
        parts = await send_blob(self.db, self.blob, self.address, self.label, encrypted=self.info.encrypted)
        hold(self.blob, parts)
        self.sent = True

    async def _keep(self) -> None:
        """Hide the message as long as the write goes on. If a worker has it all the same, the commit is rejected."""
        while self.message is not None:
            await asyncio.sleep(max(shared_bell.HIDDEN_SECONDS / 3, 1))
            with suppress(Fault):
                self.message = await outbox_queues(self.db).renew(OUTBOX, self.message, shared_bell.HIDDEN_SECONDS)

    async def end(self, error: BaseException | None) -> None:
        """End it as the write has ended."""
        if self.keeping is not None:
            self.keeping.cancel()
            await asyncio.wait([self.keeping])
        if self.sent:
            release(self.blob, stored=error is None)
        if error is not None:
            _address_rows(self.write, self.info, self.blob)  # what is sent again begins anew
        if error is None:
            schema = self.write.change.schema
            assert schema is not None
            content_of(self.blob).reader = reader_of(self.db, schema, self.info, {**self.write.change.values})
        elif not self.sent or not _is_refusal(error):
            return  # what may have come, or may come yet, is left to workers
        else:
            try:
                await delete_blob(self.db, self.address, self.label)
            except TableOrmError as problem:
                _LOG.warning("the upload %s of %s is left to workers: %s", self.address.name, self.label, problem)
                return
        if self.message is not None:
            await self.db.run_later(silence(self.db, self.message))


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
            sendings.append(_Sending(db, write, info, blob, address))

    async def begin(sending: _Sending) -> TableOrmError | None:
        try:
            await sending.begin()
        except TableOrmError as error:
            return error
        return None

    error: BaseException | None = None
    try:
        failed = await map_together(begin, sendings)
        for sending, refusal in zip(sendings, failed, strict=True):
            if refusal is not None:
                refuse_before_sending(sending.write, refusal)
        added = {id(write): 0 for write in writes}
        for sending in sendings:
            added[id(sending.write)] += _address_rows(sending.write, sending.info, sending.blob)
        yield [
            write if write.weight is None else structs.replace(write, weight=write.weight + added[id(write)])
            for write in writes
        ]
    except BaseException as raised:
        error = raised
        raise
    finally:
        await map_together(lambda each: each.end(error), sendings)
