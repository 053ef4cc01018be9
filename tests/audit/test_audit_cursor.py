"""
Cursors of audits that somebody else has written.
"""

import datetime as dt
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from zlib import compress, crc32

import pytest

from tableorm import Entity, Index, Mapped, connect, field
from tableorm.audit import ranges
from tableorm.audit.ranges import AuditRange, RangeCounts, purpose_of, read_cursor, write_cursor
from tableorm.errors import CursorError
from tableorm.stores import Bounds
from tableorm_migrations import rewrite

PURPOSE = bytes(12)
TABLES = ("x",)


class Ship(Entity, table="CursorShips", version=2, partition_key="{flag}", row_key="ship_{number:03d}"):
    flag: Mapped[str]
    number: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)
    by_flag = Index(row_key="flag_{flag}_{number:03d}")


def test_a_cursor_that_becomes_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small text that would be decompressed to more than any cursor holds is refused, before it is."""
    monkeypatch.setattr(ranges, "_MAX_BYTES", 1000, raising=False)
    for size, large in ((10, False), (2000, True)):
        cursor = write_cursor(PURPOSE, [AuditRange(table="x" * size, partitions=Bounds())], RangeCounts())
        assert cursor is not None
        if large:
            with pytest.raises(CursorError, match="damaged"):
                read_cursor(PURPOSE, cursor, "audit", RangeCounts, TABLES)
        else:
            assert read_cursor(PURPOSE, cursor, "audit", RangeCounts, {"x" * size})[0][0].table == "x" * size


@pytest.mark.parametrize("body", [b"plain", b"", compress(b"{"), compress(b"[[],[]]"), compress(b'[[{"table":1}],{}]')])
def test_a_cursor_of_nonsense(body: bytes) -> None:
    """One that was put together otherwise is refused as damaged, though its check is right."""
    raw = b"\x01" + PURPOSE + body
    cursor = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).decode("ascii")
    with pytest.raises(CursorError, match="damaged"):
        read_cursor(PURPOSE, cursor, "audit", RangeCounts, TABLES)


def test_a_cursor_of_many_levels() -> None:
    """One that nests too deeply is refused as damaged."""
    body = b"[[]," + b"[" * 20_000 + b"]" * 20_000 + b"]"
    raw = b"\x01" + PURPOSE + compress(body)
    cursor = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).decode("ascii")
    with pytest.raises(CursorError, match="damaged"):
        read_cursor(PURPOSE, cursor, "audit", RangeCounts, TABLES)


def test_a_cursor_of_another_version() -> None:
    """A cursor of a program that writes them in another form is refused, although nothing of it is damaged."""
    cursor = write_cursor(PURPOSE, [AuditRange(table="x", partitions=Bounds())], RangeCounts())
    assert cursor is not None
    raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[:-4]
    raw = bytes([raw[0] + 1]) + raw[1:]
    other = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).rstrip(b"=").decode("ascii")

    with pytest.raises(CursorError, match="is not a cursor, or is damaged"):
        read_cursor(PURPOSE, other, "audit", RangeCounts, TABLES)


async def test_a_cursor_of_a_table_without_models() -> None:
    """One that says of another table how far that is read is refused by each call that takes cursors."""
    async with connect("local::memory:") as db:
        await db.create_tables(Ship)
        calls: dict[str, Callable[[str], Awaitable[object]]] = {
            "audit": lambda cursor: db.audit(Ship, cursor=cursor),
            "sweep CursorShips": lambda cursor: db.sweep(Ship, cursor=cursor),
            "rewrite": lambda cursor: rewrite(db, Ship, cursor=cursor),
            "build by_flag": lambda cursor: db.build_index(Ship.by_flag, cursor=cursor),
        }
        for what, call in calls.items():
            found: object = (RangeCounts(), RangeCounts()) if "build" in what else RangeCounts()
            parts = [AuditRange(table="Others", partitions=Bounds())]
            cursor = write_cursor(purpose_of(what, [Ship.__schema__]), parts, found)
            assert cursor is not None
            with pytest.raises(CursorError, match="is of table 'Others', which is none of CursorShips"):
                await call(cursor)
