"""
Where the entities of a model are, if a declaration says that they may be elsewhere than under their keys.
"""

from ..stores import Row, RowAddress


class HomeRules:
    """
    What a look at rows in memory tells of where entities are. Here they are under their keys, and nowhere else.

    `tableorm.writes.home` has what writers ask a home beside this, and `tableorm.queries.home` what readers ask.
    """

    def is_elsewhere(self, row: Row) -> bool:
        """Return whether the entity that remembers this row was read under another key."""
        del row
        return False

    def etag_now(self, etag: str | None, remembered: Row, row: Row) -> str | None:
        """
        Return the ETag under which a change is sent.

        Args:
            etag: The one that the change was made under.
            remembered: The row as the entity remembers it, which may have been elsewhere.
            row: The row under the entity's key, as it is now.
        """
        del remembered, row
        return etag

    def may_come_from(self, row: Row, place: RowAddress) -> bool:
        """Return whether the entity of a tentative row may have been at an address before."""
        del row, place
        return False

    def check_movable(self) -> None:
        """Refuse to move entities to another partition by other means. Raises NotSupported, which says why."""
