"""
Operations on entities: read one, query, insert, update, merge, upsert, delete.
"""

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import timestamp_of_etag
from tableorm.protocol.filters import Filter
from tableorm.protocol.limits import check_key, key_fault
from tableorm.protocol.rights import authorize, range_of
from tableorm.protocol.sas import Action
from tableorm.stores import Bounds, Operation, Row, RowPage, RowQuery, Verb, access_of, narrowed

from ..wire.addressing import entity_path
from ..wire.answers import answer_created
from ..wire.bodies import encode_entities, encode_entity, make_byte_counter, read_entity
from ..wire.calls import Answer, Call, Level
from ..wire.continuations import entity_continuation, first_entity
from ..wire.options import check_json_body, if_match_of, level_of, read_filter, select_of, top_of
from .request import Request


async def get_entity(request: Request) -> Answer:
    """Answer one entity, found by its keys. One that does not satisfy `$filter` does not exist."""
    level, select = level_of(request), select_of(request)
    keys = _read_path_keys(request)
    wanted, hidden = _add_keys(select, level)
    where = await request.engine.take_turns(read_filter(request)) if "$filter" in request.options else None
    if where is None:
        row = await request.engine.get(request.resource.table, *keys, wanted)
    else:
        row = await _find_entity(request, keys, where, wanted)
    etag: str = row["odata.etag"]
    if timestamp_of_etag(etag) is None:  # of a file that another program has made; it must not end the header
        raise Fault(Code.INTERNAL_ERROR, f"The stored entity is damaged: {etag!r} is not an ETag; restore a backup.")
    body = encode_entity(row, request.resource.table, request.place, level, hidden)
    return Answer(200, headers={"ETag": etag}, body=body, content_type=level.content_type)


async def _find_entity(request: Request, keys: tuple[str, str], where: Filter, wanted: tuple[str, ...] | None) -> Row:
    partition, row = check_key("PartitionKey", keys[0]), check_key("RowKey", keys[1])
    query = RowQuery(Bounds.only(partition), Bounds.only(row), where, wanted)
    found = await request.engine.query(request.resource.table, query, 1)
    if not found.rows:
        raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")
    return found.rows[0]


def _add_keys(select: tuple[str, ...] | None, level: Level) -> tuple[tuple[str, ...] | None, frozenset[str]]:
    """Return the properties to read, and those of them not to send: links are made of the keys."""
    if select is None or level is not Level.FULL:
        return select, frozenset()
    hidden = tuple(name for name in ("PartitionKey", "RowKey") if name not in select)
    return select + hidden, frozenset(hidden)


def _read_path_keys(call: Call) -> tuple[str, str]:
    keys = call.resource.partition_key, call.resource.row_key
    for name, key in (("PartitionKey", keys[0]), ("RowKey", keys[1])):
        # A key that is merely too long gets the same error as in an insert.
        if key_fault(key) is not None and len(key) <= _SHORT:
            raise Fault(
                Code.INVALID_INPUT,
                f"Bad Request - Error in query syntax. {name} {key!r} {key_fault(key)}.",
            )
    return keys


_SHORT = 256  # characters: in UTF-16 never too long


async def query_entities(request: Request) -> Answer:
    """Answer a page of the entities that the client may read."""
    table, keys = request.resource.table, range_of(request.rights)
    level, select, limit = level_of(request), select_of(request), top_of(request)
    where = await request.engine.take_turns(read_filter(request))
    wanted, hidden = _add_keys(select, level)
    query = RowQuery(where=where, select=wanted)
    within = query if keys is None else narrowed(query, keys)
    start, found = first_entity(request.options), RowPage([], None)
    if within is not None and limit:
        more = make_byte_counter(table, request.place, level, wanted)
        found = await request.engine.query(table, within, limit, start, more)
    body = await request.engine.take_turns(encode_entities(found.rows, table, request.place, level, hidden))
    headers = {} if found.continuation is None else entity_continuation(found.continuation)
    return Answer(200, headers=headers, body=body, content_type=level.content_type)


# With `If-Match` the request is an update, without it an upsert.
_VERBS = {
    "PUT": (Verb.REPLACE, Verb.INSERT_OR_REPLACE),
    "PATCH": (Verb.MERGE, Verb.INSERT_OR_MERGE),
    "MERGE": (Verb.MERGE, Verb.INSERT_OR_MERGE),
    "POST": (Verb.INSERT, Verb.INSERT),
    "DELETE": (Verb.DELETE, Verb.DELETE),
}


def _verb_of(call: Call) -> Verb:
    return _VERBS[call.verb]["If-Match" not in call.headers]


def access_of_write(call: Call) -> Action:
    """Return the access that a write needs the right for."""
    return access_of(_verb_of(call))


def read_write(call: Call) -> Operation:
    """
    Read a write from its headers, path and body.

    Raises:
        Fault: One of them is not valid.
    """
    verb = _verb_of(call)
    if verb is Verb.INSERT:
        check_json_body(call)
        level_of(call)  # refused before anything is written
        return Operation(verb, read_entity(call.body))
    if verb is not Verb.DELETE:
        check_json_body(call)
    tag = if_match_of(call)
    keys = _read_path_keys(call)
    if verb is Verb.DELETE:
        if tag is None:
            raise Fault(
                Code.MISSING_HEADER,
                "An HTTP header that's mandatory for this request is not specified: If-Match, an ETag or '*'.",
            )
        return Operation(verb, {"PartitionKey": keys[0], "RowKey": keys[1]}, tag)
    return Operation(verb, read_entity(call.body, keys), tag)


async def write_entity(request: Request) -> Answer:
    """Insert, update, merge, upsert or delete an entity."""
    operation, table = read_write(request), request.resource.table
    # An insert has its keys in the body, so they are known only now.
    authorize(request.rights, access_of(operation.verb), table, keys_of(operation))
    etag = await request.engine.write(table, operation)
    return answer_write(request, operation, etag)


def keys_of(operation: Operation) -> tuple[str, str]:
    """Return PartitionKey and RowKey of a write."""
    return operation.row["PartitionKey"], operation.row["RowKey"]


def answer_write(call: Call, operation: Operation, etag: str | None) -> Answer:
    """Return the answer to a write that is done. `etag` is the ETag of the row, None if that was deleted."""
    if etag is None:
        return Answer(204)
    if operation.verb is not Verb.INSERT:
        return Answer(204, headers={"ETag": etag})
    table, level = call.resource.table, level_of(call)
    row: Row = {"odata.etag": etag, **operation.row, "Timestamp": timestamp_of_etag(etag)}
    return answer_created(
        call,
        entity_path(table, *keys_of(operation)),
        lambda: encode_entity(row, table, call.place, level),
        {"ETag": etag},
    )
