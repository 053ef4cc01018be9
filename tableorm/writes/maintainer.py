"""
How writes keep derived rows right: what a pattern implements for it.

A pattern has a subclass of `Maintainer`, which says what effects a write of an entity has. For the form of its manifest
entries it has `EntryRules`, which undo an entry, whether this program declares its name or not. The stages of a write,
and bulk, know nothing else of patterns.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from ..connection.connection import Connection
from ..errors import NotSupported, TableOrmError, shown
from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.manifest import ManifestEntry, ReservedEntry
from ..models.property_bag import PropertyBag
from ..models.reserved import MANIFEST, WRITE_TOKENS
from ..models.schema import DerivedSchema, Schema
from ..models.write_tokens import tokens_of, with_token
from ..outbox.reservations import Held
from ..stores import Operation, Row, RowAddress, Verb, row_keys
from .patch import Value
from .plan import Change, Effect, PlannedWrite


class Fill(Value, frozen=True):
    """
    A part of an entity's own row that is made from another row.

    Args:
        row_key: RowKey of the entity.
        source: RowKey of the other row, or where it is in another partition; None if the part goes.
    """

    row_key: str
    source: str | RowAddress | None

    async def fetch(self, db: Connection) -> Row | None:
        """Return the other row, if it is in another partition. Raises TableOrmError."""
        raise NotImplementedError

    def apply_to(self, write: PlannedWrite, source: Row | None) -> PlannedWrite:
        """
        Return the write of the entity with the part.

        Args:
            write: The write.
            source: The other row as it will be; None if there is none.

        Raises:
            TableOrmError: The other row must be there.
        """
        raise NotImplementedError


class Source(Value, frozen=True, kw_only=True):
    """
    A write of an entity, as what is derived from the entity sees it.

    Args:
        write: The write.
        row: The row as it will be.
        partition_key: PartitionKey of the entity.
        row_key: RowKey of the entity.
        values: The fields of the entity as they will be stored.
        changed: Names of the properties that change; empty for an entity that was not there.
        upgraded: Whether the stored row is of an older version.
        fills: Gets the parts of the row that have to be made from other rows.
        claim: The token by which the write claims unique values.
    """

    write: PlannedWrite
    row: Row
    partition_key: str
    row_key: str
    values: Mapping[str, Any]
    changed: set[str]
    upgraded: bool
    fills: list[Fill]
    claim: str


EntryAndEffects = tuple[ManifestEntry | None, list[Effect]]
"""What the manifest says of a declaration after a write, and what the write does to other rows."""


class Maintainer(DerivedSchema):
    """
    A declaration, bound to its model, that the writes of the entities keep right.

    Attributes:
        limited: Whether what it keeps elsewhere can be full, so that it is asked by `check_room` before a write.
    """

    limited = False

    @cached_property
    def _kinds(self) -> KindSet:
        return KindSet.of([self.schema.model])  # which is not declared yet when this is made

    def due_entry(self, source: Source) -> ManifestEntry | None:
        """Return what the manifest of an entity should say of it after a write. Raises what `entry` raises."""
        return self.entry(source.values, source.partition_key, source.row_key)

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """
        Return what the manifest says of it after a write, and what the write does to other rows.

        Args:
            before: What the manifest says of it now, an `entry_type`; None if nothing.
            source: The write.

        Raises:
            TableOrmError: A value does not fit.
        """
        raise NotImplementedError

    def effects_of_delete(self, write: PlannedWrite) -> list[Effect]:
        """Return what a delete of the entity does to other rows, whatever its manifest says; usually nothing."""
        del write
        return []

    def adopts(self, entry: ManifestEntry) -> bool:
        """Return whether it can do the work that an entry of a declaration with another name has left."""
        del entry
        return False

    def proves(self, entry: ManifestEntry, values: Mapping[str, Any], partition_key: str, row_key: str) -> bool:
        """
        Return whether an entity with these fields has this entry: then nobody need read what the entry names.

        Args:
            entry: What its manifest says.
            values: The fields of the entity as they are stored.
            partition_key: PartitionKey of the entity.
            row_key: RowKey of the entity.

        Raises:
            TableOrmError: A value does not fit.
        """
        return self.entry(values, partition_key, row_key) == entry

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """
        Return the right manifest entry of an entity that stays as it is, and the effects that make other rows right.

        A row that `before` names is read before it is replaced or deleted, because the manifest may be wrong. A row
        that it does not name yet is written in any case, whatever is there: an audit that saw it without its entity
        deletes it under the ETag of that moment. By default it is what any write does: other rows follow afterwards.

        Args:
            before: What the manifest says of it, in any form; None if nothing, or if the manifest is damaged.
            source: The write.

        Raises:
            TableOrmError: A value does not fit.
        """
        return self.effects(before, source)

    # What a deferred declaration does before the write is sent

    def refuse_claim(self, claim: ReservedEntry, write: PlannedWrite, held: Held | None) -> TableOrmError:
        """
        Return the error of a write that claims a value which is not free.

        Args:
            claim: What the manifest would say.
            write: The write.
            held: Who holds the value; None for another entity of the same transaction.
        """
        raise NotImplementedError

    async def reserve(
        self,
        db: Connection,
        claim: ReservedEntry,
        entries: Sequence[ManifestEntry],
        write: PlannedWrite,
        givers: Collection[str],
    ) -> None:
        """
        Reserve a value before the write is sent that claims it. If the write never commits, it is released again.

        Args:
            db: Where the rows are.
            claim: What the manifest will say.
            entries: All that the write gives up, and the claim.
            write: The write.
            givers: RowKeys of the entities of its transaction that will not hold the value but by this claim.

        Raises:
            UniqueViolation: Another entity holds the value.
            TableOrmError: It cannot be reserved, or the store did not answer.
        """
        raise NotImplementedError

    # What a deferred declaration does in place of effects, after the write has committed

    def leaves_work(self, before: ManifestEntry | None, after: ManifestEntry | None, source: Source) -> bool:
        """
        Return whether rows in other partitions have to be made right after a write: usually if the entry changes.

        Args:
            before: What the manifest says of it now; None if nothing.
            after: What the manifest will say.
            source: The write.
        """
        del source
        return before != after

    async def check_room(self, db: Connection, entry: ManifestEntry | None) -> None:
        """
        Refuse a write before anything of it is sent, because what it leaves to do could not be done.

        Args:
            db: Where the write is sent.
            entry: What the manifest of the entity says after the write, and did not say before; None if nothing.

        Raises:
            LimitExceeded: There is no room for the entity.
            TableOrmError: The place is out of reach, or the store did not answer.
        """
        raise NotImplementedError

    async def reconcile(
        self, db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], inserted: Row | None = None
    ) -> None:
        """
        Make the rows that entries name what the entity says now. It may be done twice, by several at the same time,
        and when the entity has changed long since.

        Args:
            db: Where the rows are.
            source: The row of the entity.
            entries: What its manifest said of the declaration before and after a write.
            inserted: The row of the entity, if that write has inserted it just now: then its rows are new.

        Raises:
            NotSupported: This program does not know the version of the entity.
            TableOrmError: A row cannot be made right, or the store did not answer.
        """
        raise NotImplementedError


F = TypeVar("F", bound=ManifestEntry)


class EntryRules(Generic[F]):
    """What writes do with manifest entries of one form, whether this program declares their names or not."""

    def undo(self, name: str, entry: F, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """
        Return the effects that take back what an entry says; by default none, as of what is undone after the write.

        Args:
            name: Its name.
            entry: The entry.
            write: The write of its entity.
            checked: Whether the entry may be wrong, so that the other row is read first.

        Raises:
            NotSupported: This program does not know how.
        """
        del name, entry, write, checked
        return []

    def follow(self, name: str, entry: F, source: Source) -> EntryAndEffects:
        """
        Return what becomes of an entry, under a name that the model does not declare, by a write; and the effects.

        By default it is undone: no derived row is better than an old one.
        """
        return None, self.undo(name, entry, source.write, checked=False)

    def leaves_work(self, entry: F, source: Source) -> bool:
        """Return whether a write leaves something to do for an entry in other partitions that stays."""
        del entry, source
        return True

    def refuse_delete(self, name: str, entry: F, change: Change) -> None:
        """
        Refuse to delete an entity with this entry, if others need it.

        Raises:
            Conflict: They do.
        """
        del name, entry, change

    async def remove(self, db: Connection, source: RowAddress, name: str, entries: Sequence[F]) -> None:
        """
        Delete the rows that deferred entries name, under a name that the model of the entity does not declare.

        Args:
            db: Where the rows are.
            source: The row of the entity.
            name: The name.
            entries: The entries.

        Raises:
            NotSupported: The entity has such an entry again: leave it to a program that declares the name.
            TableOrmError: The store refused it, or did not answer.
        """
        raise NotImplementedError


_RULES: dict[type[ManifestEntry], EntryRules[Any]] = {}

R = TypeVar("R", bound=EntryRules[Any])


class PagedRules(EntryRules[F]):
    """The rules of entries that leave so much to do that it is done page by page."""

    async def do_page(self, db: Connection, source: RowAddress, name: str, entry: F, cursor: str | None) -> str | None:
        """
        Do the next page.

        Args:
            db: Where the rows are.
            source: The row of the entity.
            name: The name of the entry.
            entry: The entry.
            cursor: Where to go on; None for the beginning.

        Returns:
            Where the page after it begins; None if all is done.

        Raises:
            NotSupported: This program does not know how: leave it to others.
            TableOrmError: Something of the page is not done, or the store did not answer.
        """
        raise NotImplementedError


def entry_rules(form: type[ManifestEntry]) -> Callable[[type[R]], type[R]]:
    """Declare that a class has the rules for the entries of a form."""

    def declare(rules: type[R]) -> type[R]:
        _RULES[form] = rules()
        return rules

    return declare


def rules_of(name: str, entry: ManifestEntry, change: Change) -> EntryRules[Any]:
    """
    Return the rules for an entry.

    Raises:
        NotSupported: This program does not know its form.
    """
    rules = _RULES.get(type(entry))
    if rules is None:
        known = ":" in name or (change.schema is not None and name in change.schema.derived)  # others note who holds
        remedy = "let `tableorm audit --repair` correct the manifest" if known else f"remove that from {MANIFEST}"
        raise NotSupported(
            f"{change}: the manifest of the row has {shown(entry.to_json())} as {shown(name)}, which this program does "
            f"not know; update the program, or if no newer one has written it, {remedy}"
        )
    return rules


def deferred_rules(name: str, entry: ManifestEntry) -> EntryRules[Any]:
    """
    Return the rules for an entry that a decision row has.

    Raises:
        NotSupported: This program does not know its form, or how to make right what it names.
    """
    rules = _RULES.get(type(entry))
    if rules is None or not entry.deferred:
        raise NotSupported(
            f"a decision row has {shown(entry.to_json())} as {shown(name)}, which this program does not know; leave it "
            "to a newer program, or update this one"
        )
    return rules


def undo_entry(name: str, entry: ManifestEntry, write: PlannedWrite, *, checked: bool = False) -> list[Effect]:
    """
    Return the effects that take back what a manifest entry says. The arguments are those of `EntryRules.undo`.

    Raises:
        NotSupported: This program does not know its form; an entry that may be wrong is left alone then.
    """
    try:
        return rules_of(name, entry, write.change).undo(name, entry, write, checked=checked)
    except NotSupported:
        if checked:
            return []
        raise


def effects_of_delete(write: PlannedWrite) -> list[Effect]:
    """Return what the delete of an entity does to other rows beside what it undoes of its manifest."""
    derived = () if write.change.schema is None else write.change.schema.derived.values()
    return [found for each in derived if isinstance(each, Maintainer) for found in each.effects_of_delete(write)]


def is_proven(entry: ManifestEntry, write: PlannedWrite) -> bool:
    """
    Return whether the stored fields of an entity say what its manifest says.

    Whoever may write the row of an entity may write any manifest into it. An entry that is not proven may name a row of
    others: it is read first, and changed only if it says itself that it is of this entity.

    Args:
        entry: An entry of the manifest.
        write: The write of the entity.
    """
    schema, stored = write.change.schema, write.origin.stored
    alike = () if schema is None else maintainers_of(schema, type(entry))
    values = stored_values(write) if alike else None
    if stored is None or values is None:
        return False
    try:
        return any(each.proves(entry, values, *row_keys(stored.row)) for each in alike)
    except TableOrmError:
        return False


def maintainers_of(schema: Schema, form: type[ManifestEntry]) -> list[Maintainer]:
    """Return the declarations of a model that note entries of a form."""
    return [each for each in schema.derived.values() if isinstance(each, Maintainer) and each.entry_type is form]


def stored_values(write: PlannedWrite) -> Mapping[str, Any] | None:
    """Return the fields of an entity as they are stored; None if they are not all known, or can't be read."""
    schema, stored = write.change.schema, write.origin.stored
    if schema is None or stored is None or not stored.complete:
        return None
    try:
        return cast("Mapping[str, Any]", schema.decode(stored.row.copy()).__dict__)
    except TableOrmError:
        return None


def prover_of(
    some: Iterable[Maintainer], entry: ManifestEntry, values: Mapping[str, Any], write: PlannedWrite
) -> Maintainer | None:
    """
    Return the declaration by which these fields of an entity say what its manifest says; None if none does. Where
    several count in one field, this prefers one that would note the same entry.
    """
    stored = write.origin.stored
    assert stored is not None
    keys = row_keys(stored.row)
    try:
        found = [each for each in some if each.proves(entry, values, *keys)]
        return next((each for each in found if each.entry(values, *keys) == entry), found[0] if found else None)
    except TableOrmError:
        return None


def load_known(kinds: KindSet, row: Row, label: str) -> Entity | PropertyBag | None:
    """
    Return the entity of a row, of which a deferred declaration makes other rows right; None if it is of no such kind.

    Args:
        kinds: The kind of the model.
        row: The row of the entity.
        label: The declaration, for messages.

    Raises:
        NotSupported: A newer program has written the entity: leave it to one.
        DecodeError: The entity does not fit the model.
    """
    resolved = kinds.resolve(row)
    if resolved is None:
        return None
    schema, version = resolved
    if version > schema.version:
        raise NotSupported(
            f"{label}: the entity ({row['PartitionKey']!r}, {row['RowKey']!r}) has version {version}, and this program "
            f"knows {schema.version}; leave it to a newer program, or update this one"
        )
    return kinds.load(row.copy())


def touch_operation(stored: Row, token: str, members: Row | None = None) -> Operation:
    """Return a merge of some members, or of nothing, which fails if the row has changed since it was read."""
    tail = {WRITE_TOKENS: with_token(tokens_of(stored), token)}
    keys = {"PartitionKey": stored["PartitionKey"], "RowKey": stored["RowKey"]}
    return Operation(Verb.MERGE, {**keys, **(members or {}), **tail}, stored["odata.etag"])
