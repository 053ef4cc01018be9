"""
The home of entities that may be elsewhere than under their keys: what readers ask, and who explains writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..connection.connection import Connection
from ..models.kinds import KindSet
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
