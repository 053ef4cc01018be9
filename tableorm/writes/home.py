"""
Where the entity of a key is: what writers ask before and after each write, and know no more of.

The row of an entity is under its key, unless the entity is being moved to another partition. A model whose entities may
be elsewhere, or do not count as long as they have a row, has a home that does more.
"""

from collections.abc import Mapping
from typing import Any

from ..connection.connection import Connection
from ..connection.rows import read_live, read_row
from ..models.home import HomeRules
from ..models.key import Key
from ..models.marker_rows import MoveState, is_marker, mark_of
from ..models.schema import Schema
from ..stores import Row, RowAddress
from .move import without_mark
from .plan import Change, PlannedWrite
from .relocation import Commit, Relocation, is_of, is_removable

__all__ = ["Home", "names_of"]


class Home(HomeRules):
    """
    The home of the entities of most models, and of rows that are read as bags.

    Args:
        commit: What sends writes: `tableorm.writes.commit.commit`.
    """

    def __init__(self, commit: Commit) -> None:
        self._moves = Relocation(commit)

    async def write_instead(self, db: Connection, change: Change, *, repeat: bool) -> bool:
        """
        Write an entity that is elsewhere than under its key, or a new one that has to be. Only homes that are declared
        are asked.

        Args:
            db: Where the rows are.
            change: What to write.
            repeat: Whether it may be sent again after a lost reply.

        Returns:
            Whether it was written. Otherwise it is written under its key.

        Raises:
            TableOrmError: What the verb of the change raises.
        """
        del db, change, repeat
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
        schema, name = names_of(at)
        row = await read_row(db, RowAddress.of(at), name=name)
        return row if row is None or not is_marker(row) else await self._read_confirmed(db, at, schema, row)

    async def _read_confirmed(
        self, db: Connection, at: Change | Key[Any], schema: Schema | None, row: Row
    ) -> Row | None:
        """Return what `read` does of a marker row that was read; if a move to it was committed, that is completed."""
        mark = mark_of(row)
        if schema is None or mark is None or mark.state is not MoveState.TENTATIVE or not is_of(schema, row):
            return row
        place, (_, name) = RowAddress.of(at), names_of(at)
        live = await read_live(db, place)
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
            TableOrmError: The write is refused.
        """
        stored = write.origin.stored
        mark = None if stored is None else mark_of(stored.row)
        if mark is None:
            return write
        if mark.state is MoveState.CONFIRMED:
            await self._moves.drop_forward(db, mark, write.change.address)
        # One whose forward is settled clears the mark, so that nobody looks for that again.
        return without_mark(write) if mark.stays else write

    async def after_refusal(self, db: Connection, write: PlannedWrite) -> PlannedWrite | None:
        """
        Return what to send in place of an insert that was refused because there is a row; None if that stays refused.

        Args:
            db: Where the row is.
            write: The insert, of which nothing was applied. It is returned itself if it may succeed now.
        """
        return write if await self._moves.clear_way(db, write.change) else None


def names_of(at: Change | Key[Any]) -> tuple[Schema | None, str]:
    """Return the schema of a change or key, None for that of a bag, and the name of its model."""
    if isinstance(at, Change):
        return at.schema, at.model
    return getattr(at.model, "__schema__", None), at.model.__name__
