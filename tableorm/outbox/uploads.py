"""
Uploads: blobs that are sent before the transaction that writes their addresses, and the rows that tell of them.

The transaction inserts the row of the blob, as held, beside the entity. It stays as long as the blob: also when the
entity has moved elsewhere it says that the upload is not garbage. Whoever finds no such row inserts it as void: then
the transaction can never commit, and the upload is deleted. A void row stays for a day, like a void decision row.
"""

from collections.abc import Collection, Mapping
from typing import Annotated

import msgspec

from ..connection.blob_fields import delete_blob
from ..connection.connection import Connection
from ..connection.logger import make_logger
from ..connection.rows import MOST_LOOKS, lost_look, read_row, write_as_read
from ..errors import NotSupported
from ..models.manifest import UploadEntry
from ..models.marker_rows import BLOB_HEAD, BLOB_KIND
from ..models.reserved import ENTITY_TYPE
from ..stores import Operation, Row, RowAddress, Verb
from .doorbell import TOKEN, QueueMessage, decode_message
from .worker import Handler, Outcome

_LOG = make_logger("tableorm.worker")

UPLOAD = "upload"
"""The type of messages about uploads."""

_FORMAT = 1
_STATE, _OWNER = "State", "Owner"
_HELD, _VOID = "held", "void"


class Upload(QueueMessage, frozen=True, kw_only=True, tag=UPLOAD):
    """
    An upload that was begun.

    Args:
        kind: The kind of the entity with its version, as stored.
        table: Name of the table of the entity.
        partition_key: PartitionKey of the entity.
        token: The token of the upload.
    """

    kind: str
    table: str
    partition_key: str
    token: Annotated[str, msgspec.Meta(pattern=TOKEN)]
    format: int = _FORMAT


def row_of_blob(address: UploadEntry) -> RowAddress:
    """Return where the row of a blob is."""
    return RowAddress(address.table, address.partition_key, BLOB_HEAD + address.token)


def blob_row(address: UploadEntry, owner: RowAddress | None) -> Row:
    """Return the row of a blob: held for the entity that it was uploaded for, or void for None."""
    row = {**row_of_blob(address).keys, ENTITY_TYPE: BLOB_KIND}
    return row | ({_STATE: _VOID} if owner is None else {_STATE: _HELD, _OWNER: owner.to_json()})


def is_held(row: Row) -> bool:
    """Return whether the row of a blob says that there is the blob."""
    return row.get(ENTITY_TYPE) == BLOB_KIND and row.get(_STATE) == _HELD


def owner_of_blob(row: Row) -> RowAddress | None:
    """Return for which entity a blob was uploaded, as its row says; None if that is damaged."""
    try:
        return RowAddress.from_json(row[_OWNER])
    except (KeyError, TypeError, msgspec.DecodeError):
        return None


async def settle_upload(db: Connection, address: UploadEntry, label: str) -> bool:
    """
    Return whether an upload is the blob of an entity. If its transaction has not committed, it never will, and the
    upload is deleted.

    Raises:
        TableOrmError: The store refused it, or did not answer: ask again.
    """
    at = row_of_blob(address)
    for _ in range(MOST_LOOKS):
        row = await read_row(db, at, name=BLOB_KIND)
        if row is not None:
            if row.get(_STATE) == _VOID:
                await delete_blob(db, address, label)
            return is_held(row)
        await write_as_read(
            db, at.table, [Operation(Verb.INSERT, blob_row(address, None))], name=BLOB_KIND, what="the row of a blob"
        )
    raise lost_look(f"the row of the blob {address.name!r}")


def handle_uploads(db: Connection, tables: Mapping[str, Collection[str]]) -> Handler:
    """
    Return what a worker does for uploads.

    Args:
        db: Where the rows are.
        tables: By kind, with its version, as stored, the tables of the entities that it knows; others are left.
    """

    async def work(body: bytes) -> Outcome:
        upload = decode_message(body, Upload, _FORMAT, "an upload")
        if upload.table not in tables.get(upload.kind, ()):
            raise NotSupported(f"this worker knows no table {upload.table} with entities of kind {upload.kind}")
        address = UploadEntry(upload.table, upload.token, upload.partition_key)
        return Outcome.DONE if await settle_upload(db, address, upload.kind) else Outcome.VOID

    async def give_up(body: bytes, error: str, tries: int) -> None:
        _LOG.error("an upload is left to an audit after %d tries (%s): %s", tries, error, body.decode())

    return Handler(work, give_up)
