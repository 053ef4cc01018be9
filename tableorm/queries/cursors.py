"""
Cursors: where a query goes on, as text that can be stored and used by another process.

A cursor holds the key after which to go on, not a position of the store: so it is valid while rows come and go, in the
middle of several requests, and on every backend. It is bound to the requests of its query by a hash and only ever
narrows them: whatever a client makes of it, no row outside of the query is read.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from hashlib import blake2b
from zlib import crc32

import attrs
import msgspec

from ..errors import CursorError
from ..keys.ranges import KeyInterval, Position
from ..protocol.filters import to_odata
from .planning.normalize import leaves
from .planning.plan import Point, QueryPlan, Range
from .planning.planner import clipped, region_of
from .run import QueryExecution, Source

__all__ = ["MAX_CURSOR", "Place", "digest_of", "read_cursor", "remaining", "write_cursor"]

MAX_CURSOR = 4096
"""Characters of a cursor at most."""

_VERSION = 1
_HASH_BYTES = 12


@attrs.frozen
class Place:
    """
    How far a query got.

    Args:
        after: The last key that was dealt with; None if none was.
        skip: How many of the requests for keys after it are done.
        continuation: Where the next one goes on in the store; None for its start.
        left: How many entities its limit still allows; None without a limit.
    """

    after: Position | None = None
    skip: int = 0
    continuation: str | None = None
    left: int | None = None


def write_cursor(plan: QueryPlan, place: Place, limit: int | None) -> str | None:
    """
    The cursor of a place in a query with this limit; None if it would be too long, which it is for a long continuation
    only.
    """
    keys = [] if place.after is None else [_packed(key) for key in place.after]
    body = msgspec.msgpack.encode([keys, place.skip, place.continuation, place.left])
    raw = bytes([_VERSION]) + digest_of(plan, limit) + body
    text = _as_text(raw + crc32(raw).to_bytes(4, "big"))
    return text if len(text) <= MAX_CURSOR else None


def read_cursor(plan: QueryPlan, cursor: str, limit: int | None) -> Place:
    """
    The place that a cursor names.

    Args:
        plan: Of the query that goes on.
        cursor: What `write_cursor` gave.
        limit: Of the query.

    Raises:
        CursorError: It is damaged, of another query, or of a place outside of this one.
    """
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except (ValueError, AttributeError):
        raise CursorError(f"{_shown(cursor)} is no cursor; pass Page.cursor unchanged") from None
    body, check = raw[:-4], raw[-4:]
    if (
        _as_text(raw) != cursor
        or len(cursor) > MAX_CURSOR
        or body[:1] != bytes([_VERSION])
        or crc32(body).to_bytes(4, "big") != check
    ):
        raise CursorError(f"{_shown(cursor)} is no cursor, or is damaged; pass Page.cursor unchanged")
    if body[1 : 1 + _HASH_BYTES] != digest_of(plan, limit):
        raise CursorError(
            f"{_shown(cursor)} belongs to another query: a cursor goes on with the very conditions, fields and limit "
            "it was made with; begin anew without a cursor"
        )
    try:
        keys, skip, continuation, left = msgspec.msgpack.decode(
            body[1 + _HASH_BYTES :], type=tuple[list[bytes], int, str | None, int | None]
        )
        after = (_unpacked(keys[0]), _unpacked(keys[1])) if keys else None
    except (msgspec.DecodeError, IndexError, ValueError):
        raise CursorError(f"{_shown(cursor)} is damaged; pass Page.cursor unchanged") from None
    inside = after is None or _holds(plan, after)
    fits = (left is None) is (limit is None) and (left is None or limit is None or 0 <= left <= limit)
    if not inside or not fits or not 0 <= skip <= len(plan.requests) + 2:
        raise CursorError(f"{_shown(cursor)} names a place outside of the query; begin anew without a cursor")
    return Place(after, skip, continuation, left)


def remaining(run: QueryExecution, place: Place) -> list[Source]:
    """The requests of a query that are left from a place on."""
    requests = list(run.plan.requests)
    if place.after is not None:
        first = _first_after(run.plan, place.after)
        # Every key of the others is behind it.
        requests[: first + 1] = [part for each in requests[first : first + 1] for part in _rest(each, place.after)]
    run.resumed = place.continuation
    left = requests[place.skip :]
    starts = [place.continuation, *[None] * len(left)]
    return [(run, request, start) for request, start in zip(left, starts, strict=False)]


def _rest(request: Point | Range, after: Position) -> list[Point | Range]:
    return clipped(request, KeyInterval(low=after, low_open=True))


def _first_after(plan: QueryPlan, key: Position) -> int:
    """The first request that has keys after one; requests are in key order."""
    return bisect_left(plan.requests, True, key=lambda request: bool(_rest(request, key)))


def _holds(plan: QueryPlan, key: Position) -> bool:
    first = _first_after(plan, key)
    return any(region_of(request).holds(key) for request in plan.requests[max(first - 1, 0) : first + 1])


def digest_of(plan: QueryPlan, limit: int | None) -> bytes:
    """What the requests of a plan are, in few bytes: another plan may find other rows, another limit more of them."""
    known = plan.digests.get(limit)
    if known is None:
        known = plan.digests[limit] = _digest(plan, limit)
    return known


def _digest(plan: QueryPlan, limit: int | None) -> bytes:
    digest = blake2b(digest_size=_HASH_BYTES)

    def add(*texts: object) -> None:
        digest.update(msgspec.msgpack.encode([str(text) for text in texts]))

    kinds = plan.kinds
    add(kinds.table.lower(), kinds.bags, *(schema.kind for schema in kinds.schemas))
    add(limit, *(plan.select or ("*",)))
    for request in plan.requests:
        if isinstance(request, Point):
            add("point", request.partition_key, request.row_key)
        else:
            found = request.query.filter
            add("range", "" if found is None else to_odata(found))
            for local in request.local:
                add(local.condition)
                # A condition shows the first of many values alone.
                add(*(repr(value) for leaf in leaves(local.condition) for value in getattr(leaf, "values", ())))
    return digest.digest()


def _as_text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _packed(key: str) -> bytes:
    """A key in the shorter of two encodings: of 1 KiB of UTF-16 the other may take half as much again."""
    narrow, wide = key.encode("utf-8"), key.encode("utf-16-le")
    return b"8" + narrow if len(narrow) <= len(wide) else b"w" + wide


def _unpacked(packed: bytes) -> str:
    return packed[1:].decode("utf-8" if packed[:1] == b"8" else "utf-16-le")


def _shown(cursor: object) -> str:
    text = repr(cursor)
    return text if len(text) <= 40 else text[:37] + "..."
