"""
What an audit checks of an index: that each entity has its index entry, and that this holds what the entity does.
"""

from collections.abc import Iterable, Mapping

from ...audit.check import WRONG
from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.entries import EntryCheck, entity_problems
from ...models.reserved import COPY_OF, ENTITY_TYPE
from ...stores import Row
from .schema import IndexSchema, contents_of

__all__ = ["IndexCheck"]


class IndexCheck(EntryCheck):
    """
    The check of the entries of an index.

    Args:
        context: The rows of the table.
        index: The index of one model.
    """

    noun = "index entry"

    def __init__(self, context: AuditContext, index: IndexSchema) -> None:
        name = index.entry_name
        # While an index is being built, entities may lack entries that their manifests do not name.
        super().__init__(context, index.primary, name, lenient=index.building and context.only != name)
        self._index = index
        self._alone = context.only is not None
        self._current = index.kind_properties[ENTITY_TYPE]

    def accepts(self, row: Row) -> bool:
        """Return whether it may be an entry: rows of a list, whose RowKeys hold a `~`, may be left under the name."""
        if isinstance(row.get(COPY_OF), str) or "~" not in row["RowKey"]:
            return True
        template = self._index.row
        assert template is not None
        try:
            template.parse(row["RowKey"])
        except ValueError:
            return False
        return True

    def contents(self, row: Row) -> bytes:
        """Return what an entry holds."""
        return contents_of(row)

    def knows_contents(self, row: Row) -> bool:
        """Return whether the entry is of the version of the model."""
        return bool(row[ENTITY_TYPE] == self._current)

    def claims(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """Claim the entry; alone it also claims WRONG for an entity that cannot be read."""
        if self._alone and (snapshot.problem is not None or not snapshot.legible):
            return [(snapshot.row["RowKey"], WRONG)]
        return super().claims(snapshot)

    def compare(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        """Compare the entry; alone it also says why the entity cannot be read."""
        problems = super().compare(snapshot, found)
        return [*entity_problems(snapshot), *problems] if self._alone else problems
