"""
Stretches of keys that are gone through one by one, and the cursor that says how far each of them is.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any
from zlib import compress, crc32, decompress, error

import attrs
import msgspec

from ..errors import CursorError, shown
from ..keys.ranges import EVERYTHING, KeyInterval, KeyRegion, divide
from ..models.schema import Schema
from ..stores import Bounds

__all__ = ["AuditRange", "audit_ranges_of", "purpose_of", "read_cursor", "write_cursor"]

_VERSION = 1
_HASH_BYTES = 12
# So that a worker which is done finds another audit_range: keys are seldom spread evenly.
_STRETCHES_PER_WORKER = 4


@attrs.frozen
class AuditRange:
    """
    Whole partitions of a table.

    Args:
        table: Name of the table.
        partitions: Their PartitionKeys.
        partition: The partition up to which all is done; None at the beginning.
        row: The RowKey in that partition up to which all is done; None for all of the partition.
        building: Whether copies are being built here, before they are checked.
        done: Whether all of it is done.
    """

    table: str
    partitions: Bounds
    partition: str | None = None
    row: str | None = None
    building: bool = False
    done: bool = False

    @property
    def left(self) -> list[KeyRegion]:
        """What is left of it, in key order."""
        whole = KeyRegion(self.partitions)
        if self.partition is None:
            return [whole]
        if self.row is not None:
            return KeyInterval((self.partition, self.row), low_open=True).clip(whole)
        rest = whole.meet(KeyRegion(Bounds(self.partition, None, lower_open=True)))
        return [] if rest is None else [rest]


def audit_ranges_of(
    table: str, schemas: Sequence[Schema], parallel: int, *, building: bool = False
) -> list[AuditRange]:
    """
    All partitions of a table, in ranges for so many workers.

    Args:
        table: Its name.
        schemas: The models that it has entities of; their templates say what partitions there can be.
        parallel: How many workers there are.
        building: As of `AuditRange`.
    """
    parts = parallel * _STRETCHES_PER_WORKER if parallel > 1 else 1
    bounds = divide(EVERYTHING, [schema.partition for schema in schemas], parts)
    return [AuditRange(table, each, building=building) for each in bounds]


def purpose_of(what: str, schemas: Sequence[Schema]) -> bytes:
    """What a cursor is of: whoever goes on with it must ask for the same."""
    digest = blake2b(what.encode(), digest_size=_HASH_BYTES)
    for text in sorted(f"{schema.table}/{schema.kind}/{','.join(_declared(schema))}" for schema in schemas):
        digest.update(text.encode() + b"\n")
    return digest.digest()


def _declared(schema: Schema) -> list[str]:
    return sorted(schema.derived)


def write_cursor(purpose: bytes, ranges: Sequence[AuditRange], state: Mapping[str, Any]) -> str | None:
    """
    The cursor of how far the ranges are, with what was found till now; None if all are done.
    """
    if all(audit_range.done for audit_range in ranges):
        return None
    body = msgspec.json.encode([ranges, state])
    raw = bytes([_VERSION]) + purpose + compress(body, 1)
    return urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).rstrip(b"=").decode("ascii")


def read_cursor(purpose: bytes, cursor: str, what: str) -> tuple[list[AuditRange], dict[str, Any]]:
    """
    What a cursor holds.

    Args:
        purpose: What it must be of.
        cursor: What `write_cursor` gave.
        what: That goes on, for the message.

    Raises:
        CursorError: It is damaged, or of something else.
    """
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except (ValueError, AttributeError):
        raise CursorError(f"{what}: {shown(cursor, 40)} is no cursor; pass report.cursor unchanged") from None
    raw, check = raw[:-4], raw[-4:]
    if raw[:1] != bytes([_VERSION]) or crc32(raw).to_bytes(4, "big") != check:
        raise CursorError(
            f"{what}: {shown(cursor, 40)} is no cursor, or is damaged; pass report.cursor unchanged, or begin anew"
        )
    if raw[1 : 1 + _HASH_BYTES] != purpose:
        raise CursorError(
            f"{what}: {shown(cursor, 40)} is of other models or indexes, or of other declarations of them; begin anew "
            "without a cursor"
        )
    try:
        return msgspec.json.decode(decompress(raw[1 + _HASH_BYTES :]), type=tuple[list[AuditRange], dict[str, Any]])
    except (error, msgspec.DecodeError):
        raise CursorError(f"{what}: {shown(cursor, 40)} is damaged; begin anew without a cursor") from None
