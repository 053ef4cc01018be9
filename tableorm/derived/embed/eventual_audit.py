"""
What an audit checks of copies of entities of other partitions: each holder is compared with its source.
"""

from collections.abc import Sequence

from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.report import Damage
from ...errors import shown
from ...models.manifest import CopyEntry, ManifestEntry, manifest_of
from ...outbox.decision import read_decisions
from ...stores import RowAddress
from ...writes.maintainer import Maintainer
from ...writes.rows import same_value
from ..placed_check import PlacedCheck, ReadRow
from .schema import EmbedSchema, copies_of

__all__ = ["EventualCopyCheck"]


class EventualCopyCheck(PlacedCheck):
    """
    The check of the copies that entities of a model hold of others.

    Args:
        context: The rows of the table.
        embed: The declaration.
    """

    def __init__(self, context: AuditContext, embed: EmbedSchema) -> None:
        assert isinstance(embed, Maintainer)
        kind = f"{embed.schema.kind}#{embed.name}"
        super().__init__(context, embed.schema, embed.name, kind, embed.reconcile, lenient=False)
        self._embed = embed

    async def _compare(
        self, snapshot: EntitySnapshot, noted: ManifestEntry | None, due: ManifestEntry | None, read: ReadRow
    ) -> Sequence[Problem]:
        embed, name, row = self._embed, self.name, snapshot.row
        target, properties = embed.target
        found: list[Problem] = []
        if noted != due:
            wanted = "none" if due is None else shown(due.to_json())
            text = f"its manifest says {shown(noted and noted.to_json())} of what it copies, and should say {wanted}"
            found.append(Problem(Damage.MANIFEST, name, None, text))
        if not isinstance(due, CopyEntry):
            return found
        at = RowAddress.of(due)
        source = await read(at)
        if source is None or not embed.is_target(source):
            text = f"it refers to the {target.name} {at}, which does not exist"
            return [*found, Problem(Damage.DANGLING, name, at.row_key, text, rebuilt=False)]
        if embed.stem not in manifest_of(source):
            text = f"the manifest of {at} does not say that others hold copies of it"
            found.append(Problem(Damage.MANIFEST, name, at.row_key, text))
        copies = copies_of({theirs: mine for mine, theirs in properties.items()}, source)
        same = all(same_value(row.get(mine), value) for mine, value in copies.items())
        if not same and not await self._is_under_way(at):
            found.append(Problem(Damage.STALE, name, at.row_key, f"its copies are not as {at} is"))
        return found

    async def _is_under_way(self, source: RowAddress) -> bool:
        if self.context.only is not None:
            return False
        decisions = await read_decisions(self.context.db, source.table, source.partition_key)
        return any(work.row_key == source.row_key for each in decisions for work in each.works)
