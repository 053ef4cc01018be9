"""
What writes do for blobs that are fields of entities.

The transaction that writes the address of an upload inserts the row of the blob, and fails if a worker has made that
void. One that drops a blob says so in its decision row; afterwards the blob is deleted, then its row. The protocol is
in `docs/design/blob-fields.md`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...connection.blob_fields import delete_blob
from ...connection.blobs import require_blobs
from ...connection.connection import Connection
from ...connection.races import Attempts
from ...connection.rows import delete_as_read, read_row, write_as_read
from ...connection.tasks import map_together
from ...errors import EncodeError, ModelError, PreconditionFailed
from ...models.derivation import DERIVATIONS_OF_SHAPES, Derivation
from ...models.manifest import ManifestEntry, UploadEntry, manifest_of
from ...models.marker_rows import BLOB_KIND
from ...models.schema import DerivedSchema, Schema
from ...outbox.uploads import blob_row, is_held, owner_of_blob, row_of_blob
from ...shapes.blob import Blob, BlobShape, content_of, sent_blob
from ...stores import Operation, Row, RowAddress, Verb
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules
from ...writes.patch import Value
from ...writes.plan import Effect, PlannedWrite
from .audit import BlobCheck, audit_uploads


class _BlobDerivation(Derivation):
    """
    What stands for a field of blobs among what is derived from entities.

    Args:
        name: The name of the field.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> DerivedSchema:
        info, label = schema.fields[self.name], f"{schema.name}.{self.name}"
        if info.is_filled() or (info.default is not None and info.default() is not None):
            raise ModelError(f"{label}: a blob has no default but None, which would be sent with every entity")
        if info.accept_plain:
            raise ModelError(
                f"{label} = encrypted(accept_plain=True) is rejected: no rewrite sends the bytes of blobs again, so "
                "they would stay as they are; declare another field, and copy each blob to it"
            )
        if schema.kind is None:
            raise ModelError(f"{label}: a model with blobs needs a kind, by which workers are told of uploads")
        return BlobMaintainer(self.name, schema)


class _BlobRow(Effect, Value, frozen=True):
    """
    The insert of the row of a blob.

    Args:
        row_key: Its RowKey.
        origin: The write of the entity.
        address: The blob.
        label: The field, for messages.
    """

    row_key: str
    origin: PlannedWrite
    address: UploadEntry
    label: str

    def operation(self, stored: Row | None, token: str) -> Operation:
        """Return the insert."""
        return Operation(Verb.INSERT, blob_row(self.address, self.origin.change.address))

    def after_conflict(self, code: str, stored: Row | None) -> Effect:
        """Refuse the write: a worker has given the upload up."""
        raise PreconditionFailed(
            f"{self.origin.origin}: the upload of {self.label} was inactive for so long that a worker "
            "abandoned it; nothing was written: write it again",
            code,
            self.origin.origin.subject,
        )


class BlobMaintainer(AuditedMaintainer):
    """A field of blobs of a model."""

    entry_type: ClassVar[type[ManifestEntry]] = UploadEntry
    deferred = movable = limited = True
    buildable = False
    rows_per_chunk = 1  # the decision row

    # What is declared

    def describe(self) -> dict[str, Any]:
        """Return what was declared, as JSON has it."""
        return {"pattern": "Blob"}

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return how many rows an entity has of the field: one, if it has a blob."""
        return 1 if values is None or values.get(self.name) is not None else 0

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> UploadEntry | None:
        """Return what the manifest says of the entity's blob."""
        blob: Blob | None = values.get(self.name)
        parts = None if blob is None else content_of(blob).parts
        return None if parts is None else UploadEntry.of(parts.address)

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note the blob in the manifest, and insert the row of one that was sent."""
        text = source.row.get(self.schema.fields[self.name].members[0].property)
        if text is None:
            return None, []
        change, entry = source.write.change, UploadEntry.of(text)
        if sent_blob(text) is not None:
            return entry, [_BlobRow(row_of_blob(entry).row_key, source.write, entry, self.label)]
        if entry != before and change.mark is None and change.verb != "move":
            raise EncodeError(
                "is the blob of another entity, or one that this entity had before; db.move() takes it along, and a "
                "copy has a blob of its own: Blob(await entity.field.read())",
                self.schema.name,
                self.name,
                source.values.get(self.name),
                misuse=True,
            )
        return entry, []

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note the blob in the manifest."""
        return self.due_entry(source), []

    def leaves_work(self, before: ManifestEntry | None, after: ManifestEntry | None, source: Source) -> bool:
        """Return whether a blob is dropped."""
        return before is not None and before != after

    async def check_room(self, db: Connection, entry: ManifestEntry | None) -> None:
        """Refuse to drop a blob where blobs are out of reach."""
        await require_blobs(db, f"{self.label} is a blob")

    async def reconcile(
        self, db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], inserted: Row | None = None
    ) -> None:
        """Delete blobs that were dropped."""
        await _delete_dropped(db, source, entries, self.label)

    # What the audit does

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the blobs."""
        return (BlobCheck(context, self.schema, self.name),)

    async def audit_blobs(self, context: AuditContext) -> None:
        """Look for uploads that are nobody's."""
        if self.name == self.schema.uploads[0].name:  # those of a table lie together
            await audit_uploads(context, self.schema, self.name)


DERIVATIONS_OF_SHAPES[BlobShape] = _BlobDerivation


@entry_rules(UploadEntry)
class _UploadRules(EntryRules[UploadEntry]):
    """A blob is deleted after the write that drops it."""

    def follow(self, name: str, entry: UploadEntry, source: Source) -> EntryAndEffects:
        """Keep the entry: an older program writes the entity, and leaves the properties of the field in its row."""
        return entry, []

    async def remove(self, db: Connection, source: RowAddress, name: str, entries: Sequence[UploadEntry]) -> None:
        """Delete blobs that were dropped."""
        await _delete_dropped(db, source, entries, name)


async def _delete_dropped(db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], label: str) -> None:
    """
    Delete blobs that a committed change has dropped, each with its row after it. It may be done twice.

    Whoever may write a decision row or a manifest may name any blob in it. So a blob that was uploaded for another
    entity stays, as long as that entity has it.
    """

    async def drop(entry: ManifestEntry) -> None:
        assert isinstance(entry, UploadEntry)
        async for _ in Attempts(db, races=f"the row of the blob {entry.name!r}: others wrote it first"):
            row = await read_row(db, row_of_blob(entry), name=BLOB_KIND)
            if row is None or not is_held(row) or await _is_of_another(db, source, entry, row):
                return
            await delete_blob(db, entry, label)
            operation = delete_as_read(row)
            if await write_as_read(db, entry.table, [operation], name=BLOB_KIND, what="the row of a blob"):
                return

    await map_together(drop, list(dict.fromkeys(entries)))


async def _is_of_another(db: Connection, source: RowAddress, entry: UploadEntry, row: Row) -> bool:
    """Return whether a blob was uploaded for another entity than a source, which has it still."""
    owner = owner_of_blob(row)
    if owner is None or owner.is_same(source):
        return False
    return entry in manifest_of(await read_row(db, owner)).values()
