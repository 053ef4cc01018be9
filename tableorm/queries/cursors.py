"""
Cursors: where a query goes on, as text that can be stored and used by another process.

A cursor holds the key after which to go on, not a position of the store: so it is valid while rows come and go, in the
middle of several requests, and on every backend. A hash binds it to the requests of its query, and it only ever narrows
them: however a client changes it, no row outside of the query is read.
"""

from bisect import bisect_left
from hashlib import blake2b
from zlib import crc32

import msgspec

from ..errors import CursorError
from ..keys.ranges import KeyInterval, KeyPosition
from ..protocol.filters import to_odata
from ..protocol.url_text import from_url_text, to_url_text
from .execution import Position, QueryExecution, UnsentRequest
from .planning.normalize import leaves
from .planning.partition import clip_merged, clip_request, region_of
from .planning.plan import MergedRequests, Point, QueryPlan, Range

MAX_CURSOR = 4096
"""Characters of a cursor at most."""

_VERSION = 1
_TABLE = 64  # characters for the table of a period and a point, which may stand before it
_HASH_BYTES = 12


def write_cursor(plan: QueryPlan, position: Position, limit: int | None) -> str | None:
    """
    Write a position in a query with this limit as text.

    Returns:
        The cursor; None if it would be too long, which only a long continuation makes it.
    """
    keys = [] if position.after is None else [_pack_key(key) for key in position.after]
    body = msgspec.msgpack.encode([keys, position.skip, position.continuation, position.wanted])
    raw = bytes([_VERSION]) + _digest_of(plan, limit) + body
    text = to_url_text(raw + crc32(raw).to_bytes(4, "big"))
    return text if len(text) <= MAX_CURSOR - _TABLE else None


def read_cursor(plan: QueryPlan, cursor: str, limit: int | None) -> Position:
    """
    Read the position that a cursor names.

    Args:
        plan: The plan of the query that goes on.
        cursor: What `write_cursor` gave.
        limit: The limit of the query.

    Raises:
        CursorError: It is damaged, belongs to another query, or names a position outside of this one.
    """
    try:
        raw = from_url_text(cursor)
    except (ValueError, AttributeError):
        raise CursorError(f"{_shorten(cursor)} is not a cursor; pass Page.cursor unchanged") from None
    body, check = raw[:-4], raw[-4:]
    if (
        to_url_text(raw) != cursor
        or len(cursor) > MAX_CURSOR
        or body[:1] != bytes([_VERSION])
        or crc32(body).to_bytes(4, "big") != check
    ):
        raise CursorError(f"{_shorten(cursor)} is not a cursor, or is damaged; pass Page.cursor unchanged")
    if body[1 : 1 + _HASH_BYTES] != _digest_of(plan, limit):
        raise CursorError(
            f"{_shorten(cursor)} belongs to another query: a cursor works only with the conditions, fields and limit "
            f"it was created for, until the keys or indexes of the model change; start again "
            f"without a cursor"
        )
    try:
        keys, skip, continuation, wanted = msgspec.msgpack.decode(
            body[1 + _HASH_BYTES :], type=tuple[list[bytes], int, str | None, int | None]
        )
        after = (_unpack_key(keys[0]), _unpack_key(keys[1])) if keys else None
    except (msgspec.DecodeError, IndexError, ValueError):
        raise CursorError(f"{_shorten(cursor)} is damaged; pass Page.cursor unchanged") from None
    inside = after is None or _holds(plan, after)
    fits = (wanted is None) is (limit is None) and (wanted is None or limit is None or 0 <= wanted <= limit)
    if not inside or not fits or not 0 <= skip <= len(plan.requests) + 2:
        raise CursorError(f"{_shorten(cursor)} points outside the query; start again without a cursor")
    return Position(after, skip, continuation, wanted)


def cursor_at(run: QueryExecution, position: Position) -> str | None:
    """Return the cursor of a position in a query that runs; None if it would be too long."""
    cursor = write_cursor(run.plan, position, run.limit)
    return None if cursor is None else run.before + cursor


def cursor_behind_misfit(run: QueryExecution) -> str | None:
    """
    Return the cursor behind the row at which a query has ended; None if the query has no cursors, or ended otherwise.
    """
    if run.misfit_at is None or not run.ordered:
        return None
    return cursor_at(run, Position(run.misfit_at, wanted=run.wanted))


def sources_of(run: QueryExecution, *, in_order: bool = True) -> list[UnsentRequest]:
    """
    Return the requests of a query, from where it begins.

    Args:
        run: The query.
        in_order: Whether the order of rows counts, so that those of some partitions may have to be merged.
    """
    requests, position = list(run.plan.requests), run.position
    if in_order and run.plan.merged:
        if position.after is not None:
            requests = [part for each in requests for part in clip_merged(each, position.after)]
        return [UnsentRequest(run, MergedRequests(tuple(requests)), None)]
    if position.after is not None:
        first = _first_after(run.plan, position.after)
        # Every key of the others is behind it.
        requests[: first + 1] = [part for each in requests[first : first + 1] for part in _cut(each, position.after)]
    left = requests[position.skip :]
    starts = [position.continuation, *[None] * len(left)]
    return [UnsentRequest(run, request, start) for request, start in zip(left, starts, strict=False)]


def _cut(request: Point | Range, after: KeyPosition) -> list[Point | Range]:
    """Return what of a request is behind a key."""
    return clip_request(request, KeyInterval(low=after, low_open=True))


def _first_after(plan: QueryPlan, key: KeyPosition) -> int:
    """Return the index of the first request that has keys after one; requests are in key order."""
    return bisect_left(plan.requests, True, key=lambda request: bool(_cut(request, key)))


def _holds(plan: QueryPlan, key: KeyPosition) -> bool:
    if plan.merged:
        return any(region_of(request).holds(key) for request in plan.requests)
    first = _first_after(plan, key)
    return any(region_of(request).holds(key) for request in plan.requests[max(first - 1, 0) : first + 1])


def _digest_of(plan: QueryPlan, limit: int | None) -> bytes:
    """Return a digest of the requests of a plan: another plan may find other rows, another limit more of them."""
    known = plan.digests.get(limit)
    if known is None:
        known = plan.digests[limit] = _make_digest(plan, limit)
    return known


def _make_digest(plan: QueryPlan, limit: int | None) -> bytes:
    digest = blake2b(digest_size=_HASH_BYTES)

    def add(*texts: object) -> None:
        digest.update(msgspec.msgpack.encode([str(text) for text in texts]))

    target = plan.target
    add(target.table.lower(), target.bags, *(schema.kind for schema in target.schemas))
    add(limit, *(plan.select or ("*",)))
    if plan.merged:
        add("merged")
    for request in plan.requests:
        if isinstance(request, Point):
            add("point", request.partition_key, request.row_key)
        else:
            found = request.query.filter
            add("range", "" if found is None else to_odata(found))
            for each in request.client_filters:
                add(each.condition)
                # A condition shows the first of many values alone.
                add(*(repr(value) for leaf in leaves(each.condition) for value in getattr(leaf, "values", ())))
    return digest.digest()


def _pack_key(key: str) -> bytes:
    """Encode a key in the shorter of two ways: the longer one may take half as much again."""
    narrow, wide = key.encode("utf-8", "surrogatepass"), key.encode("utf-16-le", "surrogatepass")
    return b"8" + narrow if len(narrow) <= len(wide) else b"w" + wide


def _unpack_key(packed: bytes) -> str:
    return packed[1:].decode("utf-8" if packed[:1] == b"8" else "utf-16-le", "surrogatepass")


def _shorten(cursor: object) -> str:
    text = repr(cursor)
    return text if len(text) <= 40 else text[:37] + "..."
