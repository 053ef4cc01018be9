"""
Entity group transactions: up to 100 writes of one partition, all or nothing; or a single query.

What is wrong with the frame, or with who sent it, is answered outright; what is wrong with an operation is answered in
a part, with the operation's number at the start of the message.
"""

import asyncio
import datetime as dt
import time
from collections.abc import Sequence

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import MAX_TRANSACTION_OPERATIONS, check_table_name
from tableorm.protocol.rights import Rights, authorize
from tableorm.protocol.sas import Access

from ...engine import Engine
from ..wire import multipart
from ..wire.addressing import Kind, part_path, resource_of
from ..wire.answers import error_answer
from ..wire.calls import Answer, Call
from ..wire.options import check_options, effective_verb, options_of
from . import entities
from .entities import Write

__all__ = ["run"]

# How long reading the parts may keep the event loop to itself.
_SLICE_SECONDS = 0.002
# Errors of the server are no operation's: the client shall try the whole again.
_OUTRIGHT = frozenset({Code.SERVER_BUSY, Code.INTERNAL_ERROR, Code.REQUEST_BODY_TOO_LARGE})


@attrs.frozen
class _Step:
    """A part that was read: the write that it is, or what is wrong with it."""

    call: Call
    write: Write | Fault


async def run(engine: Engine, call: Call, rights: Rights, request_id: str) -> Answer:
    """
    Do a transaction.

    Raises:
        Fault: What is wrong with all of it.
    """
    parts = multipart.read(call.headers.get("Content-Type", ""), call.body)
    ids = [part.content_id for part in parts.parts]
    if parts.is_query:
        return _answered([await _query(engine, call, rights, parts.parts[0], request_id)], ids, is_query=True)
    if not parts.parts:
        return _answered([], [], is_query=False)
    try:
        answers = await _change(engine, call, rights, parts.parts)
    except Fault as fault:
        if fault.code in _OUTRIGHT:
            raise
        index = fault.index or 0
        answer = error_answer(fault, request_id, dt.datetime.now(dt.UTC), index=index)
        return _answered([answer], [ids[index] if index < len(ids) else None], is_query=False)
    return _answered(answers, ids, is_query=False)


def _answered(answers: list[Answer], ids: list[str | None], *, is_query: bool) -> Answer:
    body, content_type = multipart.write(answers, ids, is_query=is_query)
    return Answer(202, {}, body, content_type, answers[0].reason if answers else "")


async def _query(engine: Engine, outer: Call, rights: Rights, part: multipart.Part, request_id: str) -> Answer:
    try:
        return await entities.get(engine, _query_of(outer, rights, part))
    except Fault as fault:
        if fault.code in _OUTRIGHT:
            raise
        return error_answer(fault, request_id, dt.datetime.now(dt.UTC), index=0)


def _query_of(outer: Call, rights: Rights, part: multipart.Part) -> Call:
    call = _call_of(outer, part)
    if call.resource.kind is not Kind.ENTITY or call.verb != "GET":
        raise Fault(
            Code.INVALID_INPUT, "One of the request inputs is not valid: outside of a change set stands one query."
        )
    check_table_name(call.resource.table)
    authorize(rights, Access.QUERY, call.resource.table, (call.resource.partition_key, call.resource.row_key))
    return call


def _call_of(outer: Call, part: multipart.Part) -> Call:
    url, _, query = part.url.partition("?")
    resource = resource_of(part_path(outer.place, url))
    methods = [value for name, value in part.headers.all if name.lower() == "x-http-method"]
    verb = effective_verb(part.verb, methods)
    call = Call(verb, outer.place, resource, options_of(query), part.headers, part.body)
    check_options(call)
    return call


_WRITES = {
    Kind.ENTITIES: frozenset({"POST"}),
    Kind.ENTITY: frozenset({"PUT", "PATCH", "MERGE", "DELETE"}),
}


async def _change(engine: Engine, outer: Call, rights: Rights, parts: Sequence[multipart.Part]) -> list[Answer]:
    if len(parts) > MAX_TRANSACTION_OPERATIONS:
        raise Fault(
            Code.INVALID_INPUT,
            f"One of the request inputs is not valid: {MAX_TRANSACTION_OPERATIONS} operations are allowed at most.",
            MAX_TRANSACTION_OPERATIONS,
        )
    steps = list[_Step]()
    until = time.perf_counter() + _SLICE_SECONDS
    for index, part in enumerate(parts):
        steps.append(_read(outer, part, index))
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + _SLICE_SECONDS
    table = steps[0].call.resource.table
    _check_together(steps, table)
    writes = [_allowed(step, rights, index) for index, step in enumerate(steps)]
    etags = await engine.transact(table, [write.operation for write in writes])
    return [entities.written(step.call, write, etag) for step, write, etag in zip(steps, writes, etags, strict=True)]


def _read(outer: Call, part: multipart.Part, index: int) -> _Step:
    try:
        call = _write_of(outer, part)
    except Fault as fault:
        # Without a table and an operation there is nothing to tell about the others.
        raise _at(index, fault) from None
    try:
        return _Step(call, entities.read_write(call))
    except Fault as fault:
        return _Step(call, fault)


def _write_of(outer: Call, part: multipart.Part) -> Call:
    call = _call_of(outer, part)
    if call.verb not in _WRITES.get(call.resource.kind, ()):
        raise Fault(
            Code.INVALID_INPUT, f"One of the request inputs is not valid: a transaction has no {call.verb} of that."
        )
    check_table_name(call.resource.table)
    return call


def _check_together(steps: list[_Step], table: str) -> None:
    """One table, one partition, each entity once: before what is wrong with each by itself."""
    partition: str | None = None
    seen = set[str]()
    for index, step in enumerate(steps):
        if step.call.resource.table.lower() != table.lower():
            raise Fault(
                Code.INVALID_INPUT,
                "One of the request inputs is not valid: all operations of a transaction are on one table.",
                index,
            )
        if isinstance(step.write, Fault):
            continue
        partition_key, row_key = step.write.keys
        partition = partition_key if partition is None else partition
        if partition_key != partition:
            raise Fault(
                Code.BATCH_PARTITIONS,
                "All commands in a batch must operate on same entity group. "
                f"PartitionKey {partition_key[:80]!r} differs from {partition[:80]!r}.",
                index,
            )
        if row_key in seen:
            raise Fault(
                Code.DUPLICATE_ROW,
                "The batch request contains multiple changes with same row key. A command with RowKey "
                f"'{row_key[:80]}' is already present in the batch. An entity can appear only once in a batch request.",
                index,
            )
        seen.add(row_key)


def _allowed(step: _Step, rights: Rights, index: int) -> Write:
    try:
        # Also of what cannot be read: who may not write is not told more.
        keys = None if isinstance(step.write, Fault) else step.write.keys
        authorize(rights, entities.access_of_write(step.call), step.call.resource.table, keys)
    except Fault as fault:
        raise _at(index, fault) from None
    if isinstance(step.write, Fault):
        raise _at(index, step.write)
    return step.write


def _at(index: int, fault: Fault) -> Fault:
    return Fault(fault.code, fault.message, index, fault.property)
