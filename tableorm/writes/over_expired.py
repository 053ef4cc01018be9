"""
Inserts under the key of an entity that has expired: the insert replaces its row, under the ETag of that.

Nobody looks before an insert. If the store refuses it, since there is a row, then that row is read. If its entity has
expired, the write is what an insert and a delete before it would be: what was derived from the old entity becomes what
is derived from the new one. If somebody else was first, the row is read again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec import structs

from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, is_race, pause_of, read_patiently
from ..connection.rows import read_row
from ..connection.tasks import map_together
from ..errors import DecodeError, EntityExists, LostRace, TableOrmError, TransactionFailed
from ..models.expiry import is_expired
from ..models.kinds import KindSet
from ..models.reserved import MANIFEST, WRITE_TOKENS
from ..models.schema import Schema
from ..models.upgrades import stored_version
from ..models.write_tokens import tokens_of, with_token
from ..protocol.codes import Code
from ..stores import Operation, Row, Verb, utc_now
from .patch import Known
from .plan import PlannedWrite, SendOptions
from .stages.change import over_row

__all__ = ["insert_over_expired", "may_replace_expired"]

Send = Callable[[Connection, Sequence[PlannedWrite], SendOptions], Awaitable[None]]
"""Sends writes of one partition, with what is derived from them."""


def may_replace_expired(write: PlannedWrite) -> bool:
    """Return whether a write inserts an entity, and may do so where there is one that has expired."""
    schema = write.change.schema
    if schema is None or schema.expiry is None:
        return False
    return write.operation.verb is Verb.INSERT and write.effect is None and write.change.mark is None


async def insert_over_expired(
    send: Send, db: Connection, writes: Sequence[PlannedWrite], options: SendOptions, error: TableOrmError
) -> None:
    """
    Send writes again that were refused because there are rows where they insert, if the entities of these have expired.

    Args:
        send: Sends them.
        db: Where to.
        writes: The writes, of which nothing was applied.
        options: How they were sent.
        error: Why they were refused.

    Raises:
        TableOrmError: `error`, if it has another reason; or what `send` raises.
    """
    current = list(writes)
    for attempt in range(ATTEMPTS):
        at = _find_refused(writes, error)
        if at is None:
            raise error
        replaces = current[at] is not writes[at]
        cause = error.__cause__ if isinstance(error, TransactionFailed) else error
        exists = isinstance(cause, EntityExists)
        # A move has two writes: its error does not say which of them was too late.
        repeats = not replaces if exists else replaces and is_race(cause) and (options.transaction or len(writes) == 1)
        if not repeats:
            raise error
        if attempt:
            await asyncio.sleep(pause_of(db, attempt))
        first = await _over_expired(db, writes[at], options)
        if exists and first is writes[at]:
            raise error
        current = [first]
        if len(writes) > 1:  # where the entity of one row has expired, those of others may have too
            current = await map_together(lambda write: _over_expired(db, write, options), writes)
        try:
            await send(db, current, options)
        except TableOrmError as again:
            error = again
        else:
            return
    change = writes[0].origin
    raise LostRace(
        f"{change}: others wrote a row whose entity had expired first, {ATTEMPTS} times in a row; nothing was written; "
        "try it again",
        Code.CONDITION_NOT_SATISFIED,
        change.subject,
    )


def _find_refused(writes: Sequence[PlannedWrite], error: TableOrmError) -> int | None:
    """Return the position of the write that an error is about, if it is an insert of an entity that can expire."""
    inserts = [number for number, write in enumerate(writes) if may_replace_expired(write)]
    if isinstance(error, TransactionFailed):
        inserts = [number for number in inserts if writes[number].index == error.index]
    return next(iter(inserts), None)


async def _over_expired(db: Connection, write: PlannedWrite, options: SendOptions) -> PlannedWrite:
    """Return a write that replaces the row which is there, if its entity has expired; otherwise the write itself."""
    change, schema = write.origin, write.change.schema
    if schema is None or not may_replace_expired(write):
        return write

    async def read() -> Row | None:
        return await read_row(db, change.address, name=change.model)

    row = await (read_patiently(db, read, options.throttled) if options.patient else read())
    with suppress(DecodeError):
        kinds = KindSet((schema,), change.table, bags=False)
        if row is not None and is_expired(kinds.load(row.copy()), utc_now()):
            return _replacement(write, schema, row)
    return write


def _replacement(write: PlannedWrite, schema: Schema, row: Row) -> PlannedWrite:
    """Return the write that puts the entity of an insert in the place of a row, and what is derived from it too."""
    etag, tokens = row["odata.etag"], tokens_of(row)
    # Both were made for the insert, and have the manifest that this would have had.
    sent, after = (
        {n: v for n, v in each.items() if n != MANIFEST} for each in (write.operation.row, write.after or {})
    )
    if write.token is not None:
        sent[WRITE_TOKENS] = after[WRITE_TOKENS] = with_token(tokens, write.token)
    stored = Known(schema.unseal(row), proof=etag, upgraded=0 < stored_version(row) < schema.version)
    return structs.replace(
        write,
        operation=Operation(Verb.REPLACE, sent, etag),
        change=over_row(write.change, etag, stored),
        first=None if write.first is None else over_row(write.first, etag, stored),
        after=after,
        weight=None,
        base=tokens[0] if tokens else None,
    )
