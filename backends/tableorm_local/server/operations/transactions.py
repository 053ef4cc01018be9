"""
Entity group transactions: up to 100 writes of one partition, all or nothing; or a single query.

A fault of the frame, or of the sender's rights, is the answer itself. A fault of one operation is answered in a part,
with the operation's number at the start of the message.
"""

from collections.abc import Generator, Sequence

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import MAX_TRANSACTION_OPERATIONS, check_table_name
from tableorm.protocol.rights import authorize
from tableorm.protocol.sas import Action
from tableorm.stores import Operation, check_transaction, with_index

from ..wire import multipart
from ..wire.addressing import Kind, part_path, resource_of
from ..wire.answers import error_answer
from ..wire.calls import Answer, invalid_input
from ..wire.options import check_options, effective_verb, options_of
from .entities import access_of_write, answer_write, get_entity, keys_of, read_write
from .request import Request

# These are faults of the server, not of an operation: the client is to try the whole transaction again.
_WHOLE_FAULTS = frozenset({Code.SERVER_BUSY, Code.INTERNAL_ERROR, Code.REQUEST_BODY_TOO_LARGE})


@attrs.frozen
class _Step:
    """A part that was read: its write, or what is wrong with it."""

    request: Request
    write: Operation | Fault


async def run_transaction(request: Request) -> Answer:
    """
    Do all writes of a transaction or none, or answer its query.

    Raises:
        Fault: The transaction as a whole is rejected.
    """
    parts = await request.engine.take_turns(multipart.read(request.headers.get("Content-Type", ""), request.body))
    ids = [part.content_id for part in parts.parts]
    if parts.is_query:
        return _pack([await _answer_query(request, parts.parts[0])], ids, is_query=True)
    if not parts.parts:
        return _pack([], [], is_query=False)
    try:
        answers = await _write_all(request, parts.parts)
    except Fault as fault:
        if fault.code in _WHOLE_FAULTS:
            raise
        index = fault.index or 0
        answer = error_answer(fault, request.id, index=index)
        return _pack([answer], [ids[index]], is_query=False)
    return _pack(answers, ids, is_query=False)


def _pack(answers: list[Answer], ids: list[str | None], *, is_query: bool) -> Answer:
    """Return the answer to a transaction, made of the answers to its parts."""
    body, content_type = multipart.write(answers, ids, is_query=is_query)
    reason = answers[0].reason if answers else ""
    return Answer(202, body=body, content_type=content_type, reason=reason)


async def _answer_query(request: Request, part: multipart.Part) -> Answer:
    try:
        return await get_entity(_read_query(request, part))
    except Fault as fault:
        if fault.code in _WHOLE_FAULTS:
            raise
        return error_answer(fault, request.id, index=0)


def _read_query(whole: Request, part: multipart.Part) -> Request:
    request = _read_part(whole, part)
    resource = request.resource
    if resource.kind is not Kind.ENTITY or request.verb != "GET":
        raise invalid_input("outside of a change set only the query of one entity is allowed.")
    check_table_name(resource.table)
    authorize(request.rights, Action.QUERY, resource.table, (resource.partition_key, resource.row_key))
    return request


def _read_part(whole: Request, part: multipart.Part) -> Request:
    url, _, query = part.url.partition("?")
    request = Request(  # attrs.evolve takes four times as long
        verb=effective_verb(part.verb, part.headers),
        place=whole.place,
        resource=resource_of(part_path(whole.place, url)),
        options=options_of(query),
        headers=part.headers,
        body=part.body,
        id=whole.id,
        engine=whole.engine,
        rights=whole.rights,
    )
    check_options(request)
    return request


_WRITE_VERBS = {
    Kind.ENTITIES: frozenset({"POST"}),
    Kind.ENTITY: frozenset({"PUT", "PATCH", "MERGE", "DELETE"}),
}


async def _write_all(request: Request, parts: Sequence[multipart.Part]) -> list[Answer]:
    if len(parts) > MAX_TRANSACTION_OPERATIONS:
        raise invalid_input(f"{MAX_TRANSACTION_OPERATIONS} operations are allowed at most.", MAX_TRANSACTION_OPERATIONS)
    steps = await request.engine.take_turns(_read_steps(request, parts))
    table = steps[0].request.resource.table
    _check_together(steps, table)
    writes = [_require_allowed(step, index) for index, step in enumerate(steps)]
    etags = await request.engine.transact(table, writes)
    return await request.engine.take_turns(_answer_steps(steps, writes, etags))


def _answer_steps(
    steps: Sequence[_Step], writes: Sequence[Operation], etags: Sequence[str | None]
) -> Generator[None, None, list[Answer]]:
    answers = list[Answer]()
    for step, write, etag in zip(steps, writes, etags, strict=True):
        answers.append(answer_write(step.request, write, etag))
        yield
    return answers


def _read_steps(request: Request, parts: Sequence[multipart.Part]) -> Generator[None, None, list[_Step]]:
    steps = list[_Step]()
    for index, part in enumerate(parts):
        steps.append(_read_step(request, part, index))
        yield
    return steps


def _read_step(whole: Request, part: multipart.Part, index: int) -> _Step:
    try:
        request = _read_write_request(whole, part)
    except Fault as fault:
        # Without a table and an operation nothing can be said about the others.
        raise with_index(fault, index) from None
    try:
        return _Step(request, read_write(request))
    except Fault as fault:
        return _Step(request, fault)


def _read_write_request(whole: Request, part: multipart.Part) -> Request:
    request = _read_part(whole, part)
    resource = request.resource
    if resource.kind is Kind.BELOW_TABLE:
        # What looks like a path below a table is a name that no table can have: SDKs tell by the code.
        check_table_name(f"{resource.table}/{resource.rest}")
    if request.verb not in _WRITE_VERBS.get(resource.kind, ()):
        raise invalid_input(f"a transaction cannot have {request.verb} on that resource.")
    check_table_name(resource.table)
    return request


def _check_together(steps: list[_Step], table: str) -> None:
    """Check that all steps are on one table, in one partition and on different entities, before each by itself."""
    for index, step in enumerate(steps):
        if step.request.resource.table.lower() != table.lower():
            raise invalid_input("all operations of a transaction are on one table.", index)
    read = {index: step.write for index, step in enumerate(steps) if isinstance(step.write, Operation)}
    try:
        if read:
            check_transaction(list(read.values()))
    except Fault as fault:
        raise with_index(fault, list(read)[fault.index or 0]) from None


def _require_allowed(step: _Step, index: int) -> Operation:
    try:
        # Rights are checked even if the write cannot be read: a client that may not write is told nothing else.
        keys = None if isinstance(step.write, Fault) else keys_of(step.write)
        authorize(step.request.rights, access_of_write(step.request), step.request.resource.table, keys)
    except Fault as fault:
        raise with_index(fault, index) from None
    if isinstance(step.write, Fault):
        raise with_index(step.write, index)
    return step.write
