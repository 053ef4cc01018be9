"""
What an audit checks of blobs that are fields of entities: that each has its blob, and that no upload is nobody's.
"""

import binascii
import datetime as dt
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from contextlib import aclosing

from ...audit.check import WRONG, Check, Claims, IsCandidate, Phase, claim_if_old
from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.decisions import LONGEST_REQUEST, LONGEST_WRITE
from ...audit.report import Damage
from ...connection.blob_fields import BLOB_PARTITION, ask_for_blobs, delete_blob
from ...connection.blobs import NO_BLOB, list_blobs, metadata_of, require_blobs
from ...connection.rows import delete_as_read, read_row
from ...connection.translate import translate
from ...errors import NotSupported
from ...models.manifest import MARK_LENGTH, UploadEntry
from ...models.marker_rows import BLOB_KIND
from ...models.reserved import BLOB_FIELDS
from ...models.schema import Schema
from ...outbox.uploads import is_held, row_of_blob, settle_upload
from ...protocol.codes import Fault
from ...stores import CLOCK, BlobInfo, Row, RowAddress


class BlobCheck(Check):
    """The check of a field of blobs: of each entity by itself, whose blob has to be there."""

    row_kinds = frozenset({BLOB_KIND})
    row_phases = frozenset({Phase.BEFORE})

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim that the entity must be looked at, if it has a blob."""
        if self.name in {*snapshot.manifest, *snapshot.expected}:
            yield f"\n{snapshot.row['RowKey']}", WRONG

    async def inspect(self, snapshot: EntitySnapshot) -> Iterable[Problem]:
        """Look whether the blob of an entity is there, and whether the manifest names it."""
        noted, due = snapshot.entries(self.name)
        if not snapshot.is_known:
            return ()
        if noted != due:
            return (Problem(Damage.MANIFEST, self.name, None, "its manifest does not name the blob that it has"),)
        if not isinstance(due, UploadEntry):
            return ()
        name, label = due.name, f"{self.schema.name}.{self.name}"
        try:
            await ask_for_blobs(self.context.db, label, lambda store: store.info(BLOB_FIELDS, name))
        except NotSupported:
            return ()  # what a database without blobs has of them cannot be told
        except Fault as fault:
            if fault.code not in NO_BLOB:
                raise translate(fault, f"look at {label}", "") from None
            text = f"it has the blob {name!r}, which is not there"
            return (Problem(Damage.DANGLING, self.name, None, text),)
        return ()

    def row_claims(self, row: Row) -> Claims:
        """Claim that the void row of an upload must be looked at, when no request of its write can arrive any more."""
        return () if is_held(row) else claim_if_old(row, BLOB_KIND, LONGEST_REQUEST)

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Delete the upload of a void row, then the row, if rows are repaired."""
        row = await self.context.read(address)
        if row is None or is_held(row) or not self.context.repair:
            return
        blob = UploadEntry(address.table, address.row_key[3:], address.partition_key)
        await delete_blob(self.context.db, blob, self.schema.name)
        await self.context.send([delete_as_read(row)])


async def audit_uploads(context: AuditContext, schema: Schema, name: str) -> None:
    """
    Look for uploads that are nobody's, of the entities of a table, and delete them if it is repaired.

    Args:
        context: The rows of the table.
        schema: A model of it with a field of blobs.
        name: The field, for findings.
    """
    db, label = context.db, f"{schema.name}.{name}"
    try:
        await require_blobs(db, f"{label} is a blob")
    except NotSupported:
        return
    prefix = f"{schema.table_name()}/"
    async with aclosing(list_blobs(db, label, BLOB_FIELDS, prefix, f"the blobs of {label}")) as found:
        async for info in found:
            age = CLOCK.now() - info.modified
            if age > LONGEST_WRITE:
                await _look_at(context, schema, name, info, age)


async def _look_at(context: AuditContext, schema: Schema, name: str, info: BlobInfo, age: dt.timedelta) -> None:
    address = _address_of(info)
    if address is None:
        return  # another program has put it there
    row = await read_row(context.db, row_of_blob(address), name=BLOB_KIND)
    if row is not None and is_held(row):
        return
    hours = age.total_seconds() / 3600
    text = f"the blob {info.name!r} was uploaded {hours:.0f} hours ago, and no entity has it"
    if context.repair and await settle_upload(context.db, address, f"{schema.name}.{name}"):
        return
    at = RowAddress(address.table, address.partition_key, "")
    context.record(schema, at, Problem(Damage.ORPHAN, name, info.name, text))


def _address_of(info: BlobInfo) -> UploadEntry | None:
    """Return the address of a blob that was uploaded; None if it was not."""
    table, _, name = info.name.partition("/")
    found = metadata_of(info).get(BLOB_PARTITION)
    try:
        if found is None:
            return None
        address = UploadEntry(table, name[MARK_LENGTH:], urlsafe_b64decode(found).decode())
        return address if address.name == info.name else None
    except (binascii.Error, UnicodeDecodeError):
        return None
