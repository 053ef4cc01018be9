"""
Where the entity of a key is: what writers ask before and after each write, and know no more of.

The row of an entity is under its key, unless the entity is being moved to another partition. Where entities expire, an
insert under the key of one that has replaces its row: nobody looks before an insert, but if the store refuses it, the
row is read. Then the write is what an insert and a delete before it would be: what was derived from the old entity
becomes what is derived from the new one. A declared home does more.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import structs

from ..connection.connection import Connection
from ..connection.nearby import read_rows
from ..connection.rows import read_live, read_row
from ..errors import DecodeError, TableOrmError
from ..models.home import HomeRules
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.marker_rows import MoveState, is_marker, mark_of, stays
from ..models.reserved import ENTITY_TYPE, MANIFEST, MOVE, WRITE_TOKENS
from ..models.schema import Schema
from ..models.upgrades import stored_version
from ..models.visibility import is_live
from ..models.write_tokens import tokens_of, with_token
from ..stores import Operation, Row, RowAddress, Verb, utc_now
from .move import without_mark
from .patch import Known
from .plan import Change, PlannedWrite
from .relocation import Commit, Relocation, is_of, is_removable
from .stages.change import over_row


class Home(HomeRules):
    """
    The home of the entities of most models, and of rows that are read as bags.

    Args:
        commit: What sends writes: `tableorm.writes.commit.commit`.
    """

    def __init__(self, commit: Commit) -> None:
        self._moves = Relocation(commit)

    async def write_instead(self, db: Connection, change: Change) -> bool:
        """
        Write an entity that is elsewhere than under its key, or a new one that has to be. Only homes that are declared
        are asked.

        Args:
            db: Where the rows are.
            change: What to write.

        Returns:
            Whether it was written. Otherwise it is written under its key.

        Raises:
            TableOrmError: What the verb of the change raises.
        """
        del db, change
        return False

    async def read(self, db: Connection, at: Change | Key[Any], fields: Mapping[str, Any] | None = None) -> Row | None:
        """
        Read a row that is going to be written. What others have begun with it is ended first.

        Args:
            db: Where the row is.
            at: The change, or the key of the row. A bag gets the row as it is.
            fields: Fields of the entity of a key, which count as far as the stored key does not tell them; None if they
                are not known.

        Returns:
            The row: of the entity, or a marker row that no insert removes. None if there is none, or no entity has it
            yet.
        """
        del fields
        row = await read_row(db, RowAddress.of(at), name=names_of(at)[1])
        return row if row is None or not is_marker(row) else await self._read_confirmed(db, at, row)

    async def _read_confirmed(self, db: Connection, at: Change | Key[Any], row: Row) -> Row | None:
        """Return what `read` does of a marker row that was read; if a move to it was committed, that is completed."""
        place, (schema, name) = RowAddress.of(at), names_of(at)
        mark = None if schema is None else mark_of(row)
        if schema is None or mark is None or mark.state is not MoveState.TENTATIVE or not is_of(schema, row):
            return row
        live = await read_live(db, place, name)
        found = mark_of(live)
        if live is not None and found is not None and found.state is MoveState.TENTATIVE:
            await self._moves.finish(db, found.move, found.other, place, schema)
            live = await read_row(db, place, name=name)
        if live is None or is_marker(live):
            return None if is_removable(schema, mark) else row
        return live

    async def prepare(self, db: Connection, write: PlannedWrite) -> PlannedWrite:
        """
        Do what must be done before a write is sent, and return the write that is sent.

        Args:
            db: Where the row is.
            write: The write, before anything is derived from it.

        Raises:
            TableOrmError: The write is rejected.
        """
        row = write.origin.stored_row
        mark = mark_of(row)
        if row is None or mark is None:
            return write
        if mark.state is MoveState.CONFIRMED:
            await self._moves.drop_forward(db, mark, write.change.address)
        # One whose forward is settled clears the mark, so that nobody looks for that again.
        return without_mark(write) if stays(row) else write

    async def after_refusal(self, db: Connection, write: PlannedWrite) -> PlannedWrite | None:
        """
        Return what to send in place of an insert that was rejected because there is a row; None if that stays rejected.

        Args:
            db: Where the row is.
            write: The insert, of which nothing was applied. It is returned itself if it may succeed now. If the entity
                of the row has expired, a replace of the row is returned.
        """
        change, schema = write.origin, write.change.schema
        if await self._moves.clear_way(db, write.change):
            return write
        if schema is None or not has_remedy(write):
            return None
        row = await read_row(db, change.address, name=change.model)
        with suppress(DecodeError):
            if row is not None and not _is_live_row(schema, change.table, row):
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


def must_prepare(write: PlannedWrite) -> bool:
    """Return whether the home of its entity has to prepare a write."""
    schema, stored = write.change.schema, write.origin.stored
    return (schema is not None and schema.home is not None) or (stored is not None and MOVE in stored.row)


def has_remedy(write: PlannedWrite) -> bool:
    """Return whether a write inserts an entity that may take the place of one that has expired."""
    inserts = write.operation.verb is Verb.INSERT and _expires(write.change.schema)
    return inserts and write.effect is None and write.change.mark is None


def names_of(at: Change | Key[Any]) -> tuple[Schema | None, str]:
    """Return the schema and the name of the model of a change or key; a bag has no schema."""
    if isinstance(at, Change):
        return at.schema, at.model
    return getattr(at.model, "__schema__", None), at.model.__name__


async def find_existing(db: Connection, changes: Iterable[Change]) -> set[str]:
    """
    Return the RowKeys of those inserts with `exist_ok` that would find a row.

    A row of an entity that has expired, or of a move, is none of these: an insert may take its place.

    Nor are rows that cannot be read, as with a token that only allows to add: then the store refuses each insert.

    Args:
        db: Where the rows are.
        changes: Changes of one partition.
    """
    inserts = {change.row_key: change for change in changes if change.exist_ok}
    if not inserts:
        return set()
    first = next(iter(inserts.values()))
    expires = any(_expires(change.schema) for change in inserts.values())
    keys = [(first.partition_key, row_key) for row_key in inserts]
    with suppress(TableOrmError):
        found = await read_rows(db, first.table, keys, None if expires else (ENTITY_TYPE,), name=first.model)
        rows = {row_key: row for (_, row_key), row in found.items() if row is not None and not is_marker(row)}
        return {row_key for row_key, row in rows.items() if _counts(inserts[row_key], row)}
    return set()


def _expires(schema: Schema | None) -> bool:
    return schema is not None and schema.expiry is not None


def _counts(change: Change, row: Row) -> bool:
    """Return whether an insert cannot replace a row; one that does not fit its model stays."""
    schema = change.schema
    return schema is None or schema.expiry is None or _is_live_row(schema, change.table, row)


def _is_live_row(schema: Schema, table: str, row: Row) -> bool:
    """Return whether the entity of a row has not expired. Raises DecodeError if the row does not fit the model."""
    return is_live(KindSet((schema,), table, bags=False).load(row.copy()), utc_now())
