"""
Index lists in blobs: one blob for each list, which follows its entities some time later, as rows elsewhere do.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import cached_property, partial
from typing import Any, ClassVar, cast

from ...audit.context import AuditContext, Problem
from ...audit.report import Damage
from ...connection.blobs import require_blobs
from ...connection.connection import TURN, Connection
from ...connection.tasks import map_together
from ...errors import DecodeError, TemplateError
from ...keys.template import Template
from ...models.manifest import BlobListEntry, ManifestEntry, PlacedListEntry
from ...protocol.limits import MAX_BLOB_NAME
from ...stores import RowAddress
from ...writes.maintainer import entry_rules
from ..placed_check import ReadRow
from .blobs import BlobList, check_room, lists_of, members_of
from .eventual import EventualListMaintainer, PlacedListRules
from .eventual_audit import EventualListCheck
from .following import FollowingList


class BlobListMaintainer(EventualListMaintainer):
    """An index list of a model, of which each list lies in a blob."""

    entry_type: ClassVar[type[ManifestEntry]] = BlobListEntry
    in_blobs = limited = True

    def _refuse_own_keys(self) -> None:
        """Refuse nothing: no blob has the keys of a row."""

    def row_templates(self) -> Sequence[Template]:
        """Return the template of the lists' keys."""
        return (self.row,)

    def place(self, partition_key: str, list_key: str) -> BlobListEntry:
        """Return the entry of the entities that are in a list. Raises TemplateError if its keys are too long."""
        place = BlobListEntry(partition_key, list_key, self.schema.table_name(), self.kind)
        if len(place.blob_name) > MAX_BLOB_NAME:
            raise TemplateError(
                f"makes the list {list_key[:40]!r}..., whose blob would have a name of {len(place.blob_name)} "
                f"characters, and {MAX_BLOB_NAME} are allowed; shorten {', '.join(sorted(self.key_names))}",
                self.label,
                "row_key",
                self.row.text,
                fields=sorted(self.key_names),
            )
        return place

    def members_of(self, db: Connection, partition_key: str, list_key: str) -> AsyncGenerator[list[tuple[str, str]]]:
        """Yield the keys of the entities that a list names, some at a time. Raises what reading it raises."""
        return members_of(db, self.place(partition_key, list_key))

    async def check_room(self, db: Connection, entry: ManifestEntry | None) -> None:
        """Refuse a write that would put an entity into a list that is full, or if there are no blobs."""
        if entry is None:
            await require_blobs(db, f"{self.label} keeps its lists in blobs")
        else:
            await check_room(db, cast("BlobListEntry", entry), self.label)

    def _list_at(self, db: Connection, place: PlacedListEntry) -> FollowingList[Any]:
        return BlobList(db, cast("BlobListEntry", place))

    def checks(self, context: AuditContext) -> Sequence["BlobListCheck"]:
        """Return the check of the lists."""
        lenient = context.is_incomplete(self.declaration, building=self.building)
        return (BlobListCheck(context, self.schema, self.name, self.kind, self.reconcile, lenient=lenient),)

    async def audit_blobs(self, context: AuditContext) -> None:
        """Verify that the entities that lists name are in these."""
        for check in self.checks(context):
            await check.verify_lists()


_MOST_KEPT = 100_000
"""Members of lists that a check keeps, unless one list has more."""


class BlobListCheck(EventualListCheck):
    """
    The check of an index list in blobs: of each entity as of rows, and of each blob once all entities are right.

    It keeps lists that it has read, which may be large, and believes them if they say what is due.

    Args:
        context: The rows of the table.
        schema: The model.
        name: Name of the declaration.
        kind: The kind of the lists.
        reconcile: Makes lists right for an entity.
        lenient: Whether entities may be missing in it whose manifests do not name it.
    """

    looks_first = False  # all entities of a page would ask for their lists, which may be large, at the same time

    @cached_property
    def _kept(self) -> dict[PlacedListEntry, set[tuple[str, str]]]:
        """The members of the lists that were read last."""
        return {}

    def owns(self, kind: str) -> bool:
        """Return False: such lists have no rows."""
        return False

    async def _names(self, source: RowAddress, place: PlacedListEntry, read: ReadRow, *, due: bool) -> bool:
        keys, kept = (source.partition_key, source.row_key), self._kept
        if place not in kept or (keys in kept[place]) is not due:
            members = set[tuple[str, str]]()
            async with aclosing(members_of(self.context.db, cast("BlobListEntry", place))) as parts:
                async for some in parts:
                    members.update(some)
            kept.pop(place, None)
            while kept and sum(map(len, kept.values())) + len(members) > _MOST_KEPT:
                del kept[next(iter(kept))]
            kept[place] = members
        return keys in kept[place]

    async def verify_lists(self) -> None:
        """Verify that the entities that each list names are in it; otherwise take them out, if that is repaired."""
        context = self.context
        async with aclosing(lists_of(context.db, self.schema.table_name(), self.kind)) as places:
            async for place in places:
                context.counts.derived_rows += 1
                try:
                    parts = [some async for some in members_of(context.db, place)]  # all: it may be damaged at its end
                except DecodeError as error:
                    problem = Problem(Damage.FOREIGN, self.name, place.list_key, str(error), rebuilt=False)
                    context.record(self.schema, context.at(place.partition_key, ""), problem)
                    continue
                while parts:
                    some = parts.pop()
                    for start in range(0, len(some), TURN):
                        await map_together(partial(self._verify_member, place), some[start : start + TURN])


@entry_rules(BlobListEntry)
class _BlobListRules(PlacedListRules):
    def _list_at(self, db: Connection, place: PlacedListEntry) -> FollowingList[Any]:
        return BlobList(db, cast("BlobListEntry", place))
