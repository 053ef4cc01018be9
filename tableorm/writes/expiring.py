"""
The home of entities that can expire: an insert under the key of one that has replaces its row, under the ETag of that.

Nobody looks before an insert. If the store refuses it, since there is a row, then that row is read. If its entity has
expired, the write is what an insert and a delete before it would be: what was derived from the old entity becomes what
is derived from the new one. If somebody else was first, the row is read again.
"""

from contextlib import suppress

from msgspec import structs

from ..connection.connection import Connection
from ..connection.rows import read_row
from ..errors import DecodeError
from ..models.kinds import KindSet
from ..models.reserved import MANIFEST, WRITE_TOKENS
from ..models.schema import Schema
from ..models.upgrades import stored_version
from ..models.visibility import is_live
from ..models.write_tokens import tokens_of, with_token
from ..stores import Operation, Row, Verb, utc_now
from .home import Home
from .patch import Known
from .plan import PlannedWrite
from .stages.change import over_row

__all__ = ["ExpiringHome", "may_replace_expired"]


def may_replace_expired(write: PlannedWrite) -> bool:
    """Return whether a write inserts an entity, and may do so where there is one that has expired."""
    schema = write.change.schema
    if schema is None or schema.visibility is None:
        return False
    return write.operation.verb is Verb.INSERT and write.effect is None and write.change.mark is None


class ExpiringHome(Home):
    """The home of entities that can expire."""

    async def after_refusal(self, db: Connection, write: PlannedWrite) -> PlannedWrite | None:
        """Return what `Home.after_refusal` does; or the replace of the row that is there, if its entity has expired."""
        same = await super().after_refusal(db, write)
        change, schema = write.origin, write.change.schema
        if same is not None or schema is None or not may_replace_expired(write):
            return same
        row = await read_row(db, change.address, name=change.model)
        with suppress(DecodeError):
            kinds = KindSet((schema,), change.table, bags=False)
            if row is not None and not is_live(kinds.load(row.copy()), utc_now()):
                return _replacement(write, schema, row)
        return None


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
