"""
Cursors of audits that somebody else has written.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from zlib import compress, crc32

import pytest

from tableorm.audit import ranges
from tableorm.audit.ranges import AuditRange, RangeCounts, read_cursor, write_cursor
from tableorm.errors import CursorError
from tableorm.stores import Bounds

PURPOSE = bytes(12)


def test_a_cursor_that_becomes_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small text that would be decompressed to more than any cursor holds is refused, before it is."""
    monkeypatch.setattr(ranges, "_MAX_BYTES", 1000, raising=False)
    for size, large in ((10, False), (2000, True)):
        cursor = write_cursor(PURPOSE, [AuditRange(table="x" * size, partitions=Bounds())], RangeCounts())
        assert cursor is not None
        if large:
            with pytest.raises(CursorError, match="damaged"):
                read_cursor(PURPOSE, cursor, "audit", RangeCounts)
        else:
            assert read_cursor(PURPOSE, cursor, "audit", RangeCounts)[0][0].table == "x" * size


@pytest.mark.parametrize("body", [b"plain", b"", compress(b"{"), compress(b"[[],[]]"), compress(b'[[{"table":1}],{}]')])
def test_a_cursor_of_nonsense(body: bytes) -> None:
    """One that was put together otherwise is refused as damaged, though its check is right."""
    raw = b"\x01" + PURPOSE + body
    cursor = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).decode("ascii")
    with pytest.raises(CursorError, match="damaged"):
        read_cursor(PURPOSE, cursor, "audit", RangeCounts)


def test_a_cursor_of_many_levels() -> None:
    """One that nests too deeply is refused as damaged."""
    body = b"[[]," + b"[" * 20_000 + b"]" * 20_000 + b"]"
    raw = b"\x01" + PURPOSE + compress(body)
    cursor = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).decode("ascii")
    with pytest.raises(CursorError, match="damaged"):
        read_cursor(PURPOSE, cursor, "audit", RangeCounts)


def test_a_cursor_of_another_version() -> None:
    """A cursor of a program that writes them in another form is refused, although nothing of it is damaged."""
    cursor = write_cursor(PURPOSE, [AuditRange(table="x", partitions=Bounds())], RangeCounts())
    assert cursor is not None
    raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[:-4]
    raw = bytes([raw[0] + 1]) + raw[1:]
    other = urlsafe_b64encode(raw + crc32(raw).to_bytes(4, "big")).rstrip(b"=").decode("ascii")

    with pytest.raises(CursorError, match="is not a cursor, or is damaged"):
        read_cursor(PURPOSE, other, "audit", RangeCounts)
