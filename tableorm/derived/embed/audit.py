"""
What an audit checks of embedded copies: the values that an entity holds of another one, and what both say of it.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ...audit.check import WRONG, Check, Claims, FoundRows
from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.decisions import is_under_way
from ...audit.report import Damage
from ...errors import shown
from ...models.kinds import kind_of
from ...models.manifest import CopyEntry, HolderEntry, ManifestEntry, SourceEntry, manifest_of
from ...models.schema import Schema
from ...protocol.edm import ANNOTATION
from ...stores import Row, RowAddress
from ...writes.rows import same_value
from ..placed_check import PlacedCheck, ReadRow
from .schema import EmbedSchema


def _claim_address(source: str, note: str) -> str:
    return f"{source}\n={note}"


def _number_of(holder: str, properties: Mapping[str, str], row: Row, names: Iterable[str]) -> int:
    """
    Return a number made of who holds which properties, and their values.

    Args:
        holder: RowKey of the holder.
        properties: Properties of the holder, by property of the source.
        row: The row that has the values: the source's or the holder's.
        names: The properties in that row.
    """
    values = [(row.get(name), row.get(name + ANNOTATION)) for name in names]
    return hash(msgspec.json.encode([holder, list(properties.items()), values]))


def _source_of(entry: ManifestEntry | None) -> str | None:
    """Return the RowKey of the entity that a holder's entry says copies are of; None if it is not such an entry."""
    return entry.row_key if isinstance(entry, SourceEntry) else None


def _holder_of(entry: ManifestEntry) -> tuple[str, dict[str, str]]:
    """Return the RowKey of the holder, and properties, as a source's entry says; "" if it is not such an entry."""
    return (entry.row_key, dict(sorted(entry.properties.items()))) if isinstance(entry, HolderEntry) else ("", {})


class CopyHolderCheck(Check):
    """
    The check of the copies that entities of a model hold of others.

    Args:
        context: The rows of the table.
        embed: The declaration.
    """

    def __init__(self, context: AuditContext, embed: EmbedSchema) -> None:
        super().__init__(context, embed.schema, embed.name)
        self._embed = embed

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim what the source says and has, if all is right; WRONG where the manifest says another source."""
        if not snapshot.is_current:
            return
        embed, row, row_key = self._embed, snapshot.row, snapshot.row["RowKey"]
        noted, due = snapshot.entries(self.name)
        if noted != due or (due is None and self._has_copies(row)):
            yield row_key, WRONG
        source = _source_of(due)
        if source is not None:
            _, properties = _holder_of(embed.holder_entry(row_key))
            number = _number_of(row_key, properties, row, properties.values())
            yield _claim_address(source, embed.holder_name(row_key)), number

    def addresses(self, snapshot: EntitySnapshot, found: FoundRows) -> set[str]:
        """Return the entities that it refers to, and that its manifest names."""
        if not snapshot.is_current:
            return set()
        return {source for source in map(_source_of, snapshot.entries(self.name)) if source is not None}

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Compare the copies with their source, and what both manifests say."""
        if not snapshot.is_current:
            return
        embed, name, row = self._embed, self.name, snapshot.row
        noted, due = snapshot.entries(name)
        source, noted_source = _source_of(due), _source_of(noted)
        other = None if source is None else found.get(source)
        if source is not None:
            target = embed.target[0]
            if other is None or not embed.is_target(other):
                what = "does not exist" if other is None else f"is of kind {shown(kind_of(other))}"
                text = f"it refers to the {target.name} {shown(source)} of this partition, which {what}"
                yield Problem(Damage.DANGLING, name, source, text)
                return
        sources = [each for each in (source, noted_source) if each is not None]
        first = next((each for each in sources if not self._is_legible(found.get(each))), None)
        if (other is None and self._has_copies(row)) or (other is not None and self._differs(row, other)):
            whose = "though it refers to none" if source is None else f"which are not as {shown(source)} is"
            text = f"it holds copies of fields, {whose}"
            yield Problem(Damage.STALE, name, source, text, first=first)
        if noted != due:
            named = "names none" if noted is None else f"says {shown(noted.to_json())}"
            what = "refers to none" if source is None else f"refers to {shown(source)}"
            text = f"it {what}, and its manifest {named}"
            yield Problem(Damage.MANIFEST, name, source, text, first=first)
        if other is not None and not self._is_noted(row["RowKey"], other):
            text = f"the manifest of the entity {shown(source)} does not say that this one holds copies of it"
            yield Problem(Damage.MANIFEST, name, source, text, first=first)

    def _has_copies(self, row: Row) -> bool:
        return any(name in row for name in self._embed.target[1])

    def _differs(self, row: Row, other: Row) -> bool:
        """Return whether the copies in a row differ from their source, in value or type."""
        copies = self._embed.copies(other)
        return not all(same_value(row.get(name), value) for name, value in copies.items())

    def _is_legible(self, row: Row | None) -> bool:
        snapshot = self.context.snapshot(row)
        return snapshot is None or snapshot.legible

    def _is_noted(self, row_key: str, other: Row) -> bool:
        snapshot = self.context.snapshot(other)
        note = self._embed.holder_name(row_key)
        return snapshot is not None and snapshot.manifest.get(note) == self._embed.holder_entry(row_key)


class SourceCheck(Check):
    """
    The check of what the manifests of entities say of others that hold copies of them.

    Args:
        context: The rows of the table.
        schema: The model of the entities that the copies are of.
        embed: The declaration.
    """

    def __init__(self, context: AuditContext, schema: Schema, embed: EmbedSchema) -> None:
        super().__init__(context, schema, embed.stem)
        self._declared_name = embed.name

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Take away what the holders claim."""
        for note, holder, properties in self._noted_holders(snapshot):
            number = _number_of(holder, properties, snapshot.row, properties)
            yield _claim_address(snapshot.row["RowKey"], note), -number

    def addresses(self, snapshot: EntitySnapshot, found: FoundRows) -> set[str]:
        """Return the holders."""
        return {holder for _, holder, _ in self._noted_holders(snapshot)}

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Yield the holders that hold nothing; what else may be wrong is verified with the holder."""
        name = self._declared_name
        for note, holder, _ in self._noted_holders(snapshot):
            other = self.context.snapshot(found.get(holder))
            if other is not None and other.problem is not None:
                continue  # nobody knows
            entries = () if other is None else other.entries(name)
            if SourceEntry(snapshot.row["RowKey"], note) not in entries:
                text = f"its manifest says that {shown(holder)} holds copies of it ({name}), which does not"
                yield Problem(Damage.MANIFEST, note, holder, text)

    def _noted_holders(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, dict[str, str]]]:
        """Yield the holders in the manifest: name of the entry, RowKey of the holder, properties."""
        for name, entry in snapshot.manifest.items():
            if name.partition(":")[0] == self.name:
                holder, properties = _holder_of(entry)
                yield name, holder, properties


class EventualCopyCheck(PlacedCheck):
    """
    The check of the copies that entities of a model hold of others.

    Args:
        context: The rows of the table.
        embed: The declaration.
    """

    def __init__(self, context: AuditContext, embed: EmbedSchema) -> None:
        super().__init__(context, embed)
        self._embed = embed

    async def _compare(
        self, snapshot: EntitySnapshot, noted: ManifestEntry | None, due: ManifestEntry | None, read: ReadRow
    ) -> Sequence[Problem]:
        embed, name, row = self._embed, self.name, snapshot.row
        target = embed.target[0]
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
            return [*found, Problem(Damage.DANGLING, name, at.row_key, text)]
        if embed.stem not in manifest_of(source):
            text = f"the manifest of {at} does not say that others hold copies of it"
            found.append(Problem(Damage.MANIFEST, name, at.row_key, text))
        copies = embed.copies(source)
        same = all(same_value(row.get(mine), value) for mine, value in copies.items())
        # While an index is built, what is under way is not left to a worker.
        if not same and (self.context.only is not None or not await is_under_way(self.context, at)):
            found.append(Problem(Damage.STALE, name, at.row_key, f"its copies are not as {at} is"))
        return found
