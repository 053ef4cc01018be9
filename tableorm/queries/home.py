"""
The home of entities that may be elsewhere than under their keys: what readers ask, and who explains writes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..connection.connection import Connection
from ..connection.rows import read_live
from ..models.kinds import KindSet
from ..models.marker_rows import is_marker, row_of_marker
from ..models.state import EntityState, set_state, state_of
from ..stores import Row, RowAddress
from ..writes.explain import WriteExplanation
from ..writes.home import Home
from ..writes.plan import Change
from .select import Select


class QueriedHome(Home):
    """The home of entities that may be elsewhere than under their keys."""

    async def find(
        self, db: Connection, kinds: KindSet, name: str, address: RowAddress, fields: Mapping[str, Any]
    ) -> Row | None:
        """
        Read the row of an entity, wherever it is.

        Args:
            db: Where the row is.
            kinds: The kinds that are asked for, one of which has this home.
            name: The model that is asked for, for messages.
            address: Where the row of the entity's key would be.
            fields: The fields of the key, as far as they were given.

        Returns:
            The row, as it would be under the key; None if there is none.

        Raises:
            NotSupported: It cannot be found as yet.
        """
        raise NotImplementedError

    async def has_all_entries(self, db: Connection) -> bool:
        """Return whether the indexes of the model lead to all entities, so that they can be read."""
        raise NotImplementedError

    async def first(self, query: Select[Any], index: str) -> Any:
        """
        Return the first entity of a query that stands for a look into an index; None if there is none.

        Raises:
            NotSupported: The query would be a scan.
        """
        raise NotImplementedError

    def select(self, db: Connection, kinds: KindSet, models: tuple[Any, ...]) -> Select[Any]:
        """Return the query for entities of these models."""
        raise NotImplementedError

    def explain(self, db: Connection, changes: Sequence[Change]) -> WriteExplanation:
        """Return the requests of one change, or of the two of a move within a partition."""
        raise NotImplementedError


async def load_moved(db: Connection, kinds: KindSet, address: RowAddress, name: str, load: Callable[[Row], Any]) -> Any:
    """
    Read the entity of a row that a move has marked. If the row is tentative, the entity gets no ETag.

    Args:
        db: Where the row is.
        kinds: The kinds that are asked for.
        address: Where the row is.
        name: The model that is asked for, for messages.
        load: Makes the entity of a row; None of one that does not count.

    Returns:
        The entity; None if there is none.

    Raises:
        TableOrmError: The store did not answer, or the row does not fit its model.
    """
    live = await read_live(db, address, name)
    if live is None:
        return None
    tentative = is_marker(live)
    for schema in kinds.schemas:
        own = row_of_marker(schema, live) if tentative else live
        if kinds.schema_of_row(own) is schema:
            entity = load(own)
            if tentative and entity is not None:  # its first write confirms the row, and has then another ETag
                state = state_of(entity)
                known = {n: value for n, value in (state.row or {}).items() if n not in ("odata.etag", "Timestamp")}
                properties = frozenset(schema.by_property)
                set_state(entity, EntityState(stored=known, upgraded=state.upgraded, copied=properties))
            return entity
    return None
