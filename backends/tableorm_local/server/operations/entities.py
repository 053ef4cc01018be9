"""
Operations on entities: read one, query, insert, update, merge, upsert, delete.
"""

import attrs

from tableorm.guard import narrowed
from tableorm.operations import access_of
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import timestamp_of_etag
from tableorm.protocol.key_range import KeyRange
from tableorm.protocol.limits import check_key, key_fault
from tableorm.protocol.sas import Access
from tableorm.stores import Operation, Row, RowPage, RowQuery, TableStore, Verb

from ..wire.addressing import entity_path
from ..wire.bodies import read_entity, write_entities, write_entity
from ..wire.calls import Answer, Call, Level
from ..wire.continuations import Continuation
from ..wire.options import check_json_body, filter_of, if_match_of, level_of, prefers_content, select_of, top_of
from .key_bounds import bounds_of

__all__ = ["Write", "access_of_write", "get", "query", "read_write", "write", "written"]


async def get(store: TableStore, call: Call) -> Answer:
    """One entity, by its keys."""
    level, select = level_of(call), select_of(call)
    keys = _keys_of_path(call)
    wanted, hidden = _with_keys(select, level)
    row = await store.get(call.resource.table, *keys, wanted)
    body = write_entity(row, call.resource.table, call.place, level, hidden)
    return Answer(200, {"ETag": row["odata.etag"]}, body, level.content_type)


def _with_keys(select: tuple[str, ...] | None, level: Level) -> tuple[tuple[str, ...] | None, frozenset[str]]:
    """What to read, and what of that not to send: links are made of the keys."""
    if select is None or level is not Level.FULL:
        return select, frozenset()
    hidden = tuple(name for name in ("PartitionKey", "RowKey") if name not in select)
    return select + hidden, frozenset(hidden)


def _keys_of_path(call: Call) -> tuple[str, str]:
    keys = call.resource.partition_key, call.resource.row_key
    for name, key in zip(("PartitionKey", "RowKey"), keys, strict=True):
        # A key that is merely too long is told as in an insert.
        if key_fault(key) is not None and len(key) <= _SHORT:
            raise Fault(
                Code.INVALID_INPUT,
                f"Bad Request - Error in query syntax. {name} {key!r} {key_fault(key)}.",
                property=name,
            )
        check_key(name, key)
    return keys


_SHORT = 256  # characters: in UTF-16 never too long


async def query(store: TableStore, call: Call, keys: KeyRange | None) -> Answer:
    """A page of entities, of those within `keys`."""
    level, select, limit = level_of(call), select_of(call), top_of(call)
    where = filter_of(call)
    wanted, hidden = _with_keys(select, level)
    asked = RowQuery(bounds_of(where, "PartitionKey"), bounds_of(where, "RowKey"), where, wanted)
    within = asked if keys is None else narrowed(asked, keys)
    start = Continuation.of_entities(call.options)
    found = RowPage([], None)
    if within is not None:
        found = await store.query(call.resource.table, within, limit, start)
    body = await write_entities(found.rows, call.resource.table, call.place, level, hidden)
    headers = {} if found.continuation is None else Continuation.entity_headers(found.continuation)
    return Answer(200, headers, body, level.content_type)


@attrs.frozen
class Write:
    """
    A write as it was asked for.

    Args:
        operation: For the store.
        keys: PartitionKey and RowKey.
        content: For an insert, whether to send back what was created; None if the client said nothing.
        level: Of what is sent back.
    """

    operation: Operation
    keys: tuple[str, str]
    content: bool | None = None
    level: Level = Level.MINIMAL


_VERBS = {
    ("PUT", True): Verb.REPLACE,
    ("PUT", False): Verb.INSERT_OR_REPLACE,
    ("PATCH", True): Verb.MERGE,
    ("PATCH", False): Verb.INSERT_OR_MERGE,
    ("MERGE", True): Verb.MERGE,
    ("MERGE", False): Verb.INSERT_OR_MERGE,
}


def _verb_of(call: Call) -> Verb:
    # `If-Match` makes an update of what would otherwise be an upsert.
    match call.verb:
        case "POST":
            return Verb.INSERT
        case "DELETE":
            return Verb.DELETE
        case verb:
            return _VERBS[verb, "If-Match" in call.headers]


def access_of_write(call: Call) -> Access:
    """What a write needs the right for."""
    return access_of(_verb_of(call))


def read_write(call: Call) -> Write:
    """
    Read a write from its headers, path and body.

    Raises:
        Fault: Whatever can be wrong with those.
    """
    verb = _verb_of(call)
    if verb is Verb.INSERT:
        check_json_body(call)
        content, level = prefers_content(call), level_of(call)
        row = read_entity(call.body)
        return Write(Operation(verb, row), (row["PartitionKey"], row["RowKey"]), content, level)
    if verb is not Verb.DELETE:
        check_json_body(call)
    tag = if_match_of(call)
    keys = _keys_of_path(call)
    if verb is Verb.DELETE:
        if tag is None:
            raise Fault(
                Code.MISSING_HEADER,
                "An HTTP header that's mandatory for this request is not specified: If-Match, an ETag or '*'.",
            )
        return Write(Operation(verb, {"PartitionKey": keys[0], "RowKey": keys[1]}, tag), keys)
    return Write(Operation(verb, read_entity(call.body, keys), tag), keys)


async def write(store: TableStore, call: Call, asked: Write) -> Answer:
    """Do a write."""
    return written(call, asked, await store.write(call.resource.table, asked.operation))


def written(call: Call, asked: Write, etag: str | None) -> Answer:
    """The answer to a write that was done, and left the row with this ETag."""
    headers = {} if etag is None else {"ETag": etag}
    if asked.operation.verb is not Verb.INSERT or etag is None:
        return Answer(204, headers)
    url = f"{call.place.root}/{entity_path(call.resource.table, *asked.keys)}"
    headers["Location"] = url
    if asked.content is not None:
        headers["Preference-Applied"] = "return-content" if asked.content else "return-no-content"
    if asked.content is False:
        headers["DataServiceId"] = url
        return Answer(204, headers)
    row: Row = {"odata.etag": etag, **asked.operation.row, "Timestamp": timestamp_of_etag(etag)}
    return Answer(
        201, headers, write_entity(row, call.resource.table, call.place, asked.level), asked.level.content_type
    )
