"""
Ranges of keys that are worked on one by one, and the cursor that says how far each is.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from enum import Enum
from hashlib import blake2b
from typing import Any, TypeVar
from zlib import compress, crc32, decompressobj, error

import attrs
import msgspec

from ..errors import CursorError, shown
from ..keys.ranges import EVERYTHING, KeyInterval, KeyRegion, divide
from ..models.schema import Schema
from ..protocol.url_text import from_url_text, to_url_text
from ..stores import Bounds, Row

S = TypeVar("S")

_VERSION = 1
_HASH_BYTES = 12
# 64 MiB. More than any cursor holds: a thousand findings, and some positions for each worker.
_MAX_BYTES = 1 << 26
# More than one, so that a worker which is done finds another range: keys are seldom spread evenly.
_RANGES_PER_WORKER = 4


@attrs.frozen(kw_only=True)
class JobRange:
    """
    A range of whole partitions of a table, and how far it is done.

    Args:
        table: Name of the table.
        partitions: Their PartitionKeys.
        partition: The partition up to which all is done; None at the beginning.
        row: The RowKey in that partition up to which all is done; None for all of the partition.
        building: Whether it is of the first phase, which is done everywhere before the second one begins anywhere.
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
        """The keys that are left of it, in key order."""
        whole = KeyRegion(self.partitions)
        if self.partition is None:
            return [whole]
        if self.row is not None:
            return KeyInterval((self.partition, self.row), low_open=True).clip(whole)
        rest = whole.meet(KeyRegion(Bounds(self.partition, None, lower_open=True)))
        return [] if rest is None else [rest]

    def up_to(self, row: Row) -> "JobRange":
        """Return the range, done up to a row."""
        return attrs.evolve(self, partition=row["PartitionKey"], row=row["RowKey"])


@attrs.frozen(eq=False, kw_only=True)
class RangeReport:
    """
    What an audit, a sweep or a transfer has done so far, or in total when it has ended: the base of their reports.

    Args:
        entities: Entities that were read.
        share: How much is done, 0.0 to 1.0, estimated from the keys.
        requests: Requests that were sent, without repetitions.
        seconds: How long it took, earlier parts included if it was resumed.
    """

    entities: int = 0
    share: float = 1.0
    requests: int = 0
    seconds: float = 0.0
    _cursor: Callable[[], str | None] = attrs.field(alias="cursor", repr=False)

    @property
    def cursor(self) -> str | None:
        """Where to resume: give it as `cursor` to the same call, in any process. None at the end."""
        return self._cursor()

    @property
    def rate(self) -> float:
        """Entities per second."""
        return self.entities / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can represent."""
        return plain_values(self)


def plain_values(report: Any) -> dict[str, Any]:
    """Return the public fields of a report as JSON has them; keys may hold half of a surrogate pair, as stored."""
    return attrs.asdict(report, filter=_is_public, value_serializer=_plain_value)


def _is_public(attribute: "attrs.Attribute[Any]", value: object) -> bool:
    del value
    return not attribute.name.startswith("_")


def _plain_value(instance: object, attribute: object, value: Any) -> Any:
    del instance, attribute
    return str(value) if isinstance(value, Enum) else [*value] if isinstance(value, tuple) else value


def ranges_of(table: str, schemas: Sequence[Schema], parallel: int) -> list[JobRange]:
    """
    Return all partitions of a table, divided into ranges for some workers.

    Args:
        table: Its name.
        schemas: The models that it has entities of; their templates say what partitions there can be.
        parallel: How many workers there are.
    """
    parts = parallel * _RANGES_PER_WORKER if parallel > 1 else 1
    bounds = divide(EVERYTHING, [schema.partition for schema in schemas], parts)
    return [JobRange(table=table, partitions=each) for each in bounds]


def purpose_of(what: str, schemas: Sequence[Schema]) -> str:
    """Return what identifies the call that a run or a cursor belongs to: only an equal call can go on from it."""
    digest = blake2b(what.encode(), digest_size=_HASH_BYTES)
    for text in sorted(f"{schema.table}/{schema.kind}/{','.join(sorted(schema.derived))}" for schema in schemas):
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def write_cursor(purpose: bytes, ranges: Sequence[JobRange], state: object) -> str | None:
    """Return the cursor that says how far the ranges are, with what was counted so far; None if all are done."""
    if all(audit_range.done for audit_range in ranges):
        return None
    body = msgspec.json.encode([ranges, state])
    raw = bytes([_VERSION]) + purpose + compress(body, 1)
    return to_url_text(raw + crc32(raw).to_bytes(4))


def read_cursor(
    purpose: bytes, cursor: str, what: str, kind: type[S], tables: Collection[str]
) -> tuple[list[JobRange], S]:
    """
    Return the ranges and the counts that a cursor holds.

    Args:
        purpose: What `purpose_of` gives for the call that goes on.
        cursor: What `write_cursor` gave.
        what: Name of that call, for the message.
        kind: The type of the counts.
        tables: The tables of which the ranges may be.

    Raises:
        CursorError: It is damaged, or belongs to another call.
    """
    raw = b""
    with suppress(ValueError, AttributeError):
        raw = from_url_text(cursor)
    raw, check = raw[:-4], raw[-4:]
    if raw[:1] != bytes([_VERSION]) or crc32(raw).to_bytes(4) != check:
        raise CursorError(
            f"{what}: {shown(cursor, 40)} is not a cursor, or is damaged; pass report.cursor unchanged, or start again"
        )
    if raw[1 : 1 + _HASH_BYTES] != purpose:
        raise CursorError(
            f"{what}: {shown(cursor, 40)} belongs to a call for other models, indexes or tables, or for other "
            "declarations of them; start again without a cursor"
        )
    try:
        body = decompressobj().decompress(raw[1 + _HASH_BYTES :], _MAX_BYTES)  # what is cut off there is no JSON
        ranges, stored = msgspec.json.decode(body, type=tuple[list[JobRange], Any])
        counts = msgspec.convert(stored, kind)
    except (error, msgspec.DecodeError, RecursionError):
        raise CursorError(f"{what}: {shown(cursor, 40)} is damaged; start again without a cursor") from None
    other = next((each.table for each in ranges if each.table not in tables), None)
    if other is not None:
        raise CursorError(
            f"{what}: {shown(cursor, 40)} is of table {shown(other)}, which is none of {', '.join(sorted(tables))}; "
            "start again without a cursor"
        )
    return ranges, counts
