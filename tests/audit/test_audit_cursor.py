"""
Cursors of audits that somebody else has written.
"""

import datetime as dt
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from zlib import compress, crc32

import pytest

from tableorm import CursorError, Entity, Index, Mapped, field
from tableorm.jobs import ranges
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.ranges import JobRange, purpose_of, read_cursor, write_cursor
from tableorm.stores import Bounds, RowAddress
from tests.databases import memory_database

PURPOSE = bytes(12)
TABLES = ("x",)


class Ship(Entity, table="CursorShips", version=2, partition_key="{flag}", row_key="ship_{number:03d}"):
    flag: Mapped[str]
    number: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)
    by_flag = Index(row_key="flag_{flag}_{number:03d}")


class Boat(Entity, table="CursorShips", partition_key="{flag}", row_key="boat_{number:03d}"):
    flag: Mapped[str]
    number: Mapped[int]
    by_number = Index(row_key="number_{number:03d}")


OF_AN_EARLIER_VERSION = (
    "AQABAgMEBQYHCAkKC3gBdZDNCsMgEITfZc5SAr35KiGUpNkWwa7WH1IIefeuNilecpt1dOZb-37FlI2dDT-hH6ONpDA7JugUsmg_"
    "hmSScQzN2drmIEKvsG6hcFh1uDlPcnmPyt4XHy8oVL3bJXxTCG45HqdxstKKDzZ1yrSnNlBgSf7PLVPtPEf6bdMy1fADCkFyG6ZB"
    "oIjLV5CUXAWd3plikqFTiHR3PBd96bbhC8DbdUp70DtB"
)
"""A cursor as it was written first: of two ranges one is done, and three entities were counted."""


def test_a_cursor_of_an_earlier_version() -> None:
    """A cursor that was stored is read by every later version of this package."""
    read = read_cursor(bytes(range(12)), OF_AN_EARLIER_VERSION, "audit", JobCounts, TABLES)

    parts = [
        JobRange(table="x", partitions=Bounds(None, "m", upper_open=True), done=True),
        JobRange(table="x", partitions=Bounds("m", None), partition="n", row="r"),
    ]
    assert read == (parts, JobCounts(entities=3))
    again = write_cursor(bytes(range(12)), *read)
    assert again is not None and "=" not in again
    assert read_cursor(bytes(range(12)), again, "audit", JobCounts, TABLES) == read
    assert write_cursor(bytes(range(12)), parts[:1], JobCounts()) is None


def test_what_a_cursor_belongs_to() -> None:
    """That is the call, the models, and their declarations, in whatever order they are given."""
    ship = Ship.__schema__

    assert purpose_of("audit", [ship]) == "af3c07f8c92232a40f694b82"
    assert purpose_of("audit", [ship, Boat.__schema__]) == purpose_of("audit", [Boat.__schema__, ship])
    assert len({purpose_of(what, some) for what in ("audit", "sweep") for some in ([ship], [], [ship, ship])}) == 6


def test_a_cursor_is_compressed() -> None:
    """Findings resemble each other, so that a cursor with many of them is a tenth of their text."""
    counts = JobCounts()
    for number in range(200):
        counts.fail(RowAddress("x", "partition", f"row{number}"), ValueError("what is wrong with the row"))
    cursor = write_cursor(PURPOSE, [JobRange(table="x", partitions=Bounds())], counts)
    assert cursor is not None
    assert len(cursor) < len(json.dumps([str(each) for each in counts.failures])) / 3


def test_a_cursor_that_becomes_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small text that would be decompressed to more than any cursor holds is rejected, before it is."""
    monkeypatch.setattr(ranges, "_MAX_BYTES", 1000, raising=False)
    for size, large in ((10, False), (2000, True)):
        cursor = write_cursor(PURPOSE, [JobRange(table="x" * size, partitions=Bounds())], JobCounts())
        assert cursor is not None
        if large:
            with pytest.raises(CursorError, match="damaged"):
                read_cursor(PURPOSE, cursor, "audit", JobCounts, TABLES)
        else:
            assert read_cursor(PURPOSE, cursor, "audit", JobCounts, {"x" * size})[0][0].table == "x" * size


NESTED = compress(b"[[]," + b"[" * 20_000 + b"]" * 20_000 + b"]")


@pytest.mark.parametrize(
    "body", [b"plain", b"", compress(b"{"), compress(b"[[],[]]"), compress(b'[[{"table":1}],{}]'), NESTED]
)
def test_a_cursor_of_nonsense(body: bytes) -> None:
    """One that was put together otherwise is rejected as damaged, though its check is right."""
    raw = b"\x01" + PURPOSE + body
    cursor = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).decode("ascii")
    with pytest.raises(CursorError, match="damaged"):
        read_cursor(PURPOSE, cursor, "audit", JobCounts, TABLES)


def test_a_cursor_of_another_version() -> None:
    """A cursor of a program that writes them in another form is rejected, although nothing of it is damaged."""
    cursor = write_cursor(PURPOSE, [JobRange(table="x", partitions=Bounds())], JobCounts())
    assert cursor is not None
    raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[:-4]
    raw = bytes([raw[0] + 1]) + raw[1:]
    other = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).rstrip(b"=").decode("ascii")

    with pytest.raises(CursorError, match="is not a cursor, or is damaged"):
        read_cursor(PURPOSE, other, "audit", JobCounts, TABLES)


async def test_a_cursor_of_a_table_without_models() -> None:
    """One that says of another table how far that is read is rejected by each call that takes cursors."""
    async with memory_database(Ship) as db:
        calls: dict[str, Callable[[str], Awaitable[object]]] = {
            "audit": lambda cursor: db.audit(Ship, cursor=cursor),
            "sweep CursorShips": lambda cursor: db.sweep(Ship, cursor=cursor),
        }
        for what, call in calls.items():
            parts = [JobRange(table="Others", partitions=Bounds())]
            cursor = write_cursor(bytes.fromhex(purpose_of(what, [Ship.__schema__])), parts, JobCounts())
            assert cursor is not None
            with pytest.raises(CursorError, match="is of table 'Others', which is none of CursorShips"):
                await call(cursor)
