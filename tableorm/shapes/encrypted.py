"""
Encrypted fields: `salary: Mapped[int] = encrypted()`, and the keys that a database is opened with.

The fields of a model that are encrypted make a row stage. It seals rows as `tableorm.shapes.encryption` says. A program
may declare such models without the package cryptography, which is imported when the first key is needed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from msgspec import structs

from ..errors import EncryptionError, ModelError, shown
from ..models.property_types import FieldInfo
from ..models.reserved import METADATA, OPENED, is_reserved_property
from ..models.row_stage import FIELD_STAGES, KeyedStage
from ..models.schema import Schema
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ..stores import Operation, Row, RowAddress, Verb
from .encryption import ContentKey, name_of_key, new_key, open_key, rewrap, seal, sealed_names, unseal
from .key_ring import KEY_BYTES, KeyWrapper, cipher_of

Resolver = Callable[[str, str, str], bool]
"""Says whether a further property of a row is encrypted: PartitionKey, RowKey, name of the property."""

_KEPT = 1000  # content keys
_TOGETHER = 32  # of a page that are unwrapped at the same time: then other tasks get a turn

NO_KEYS = "is encrypted, and the database was opened without keys; use connect(url, encryption=Encryption(keys))"
"""What is wrong with a row that is encrypted, or would be, where there are no keys."""


class Encryption:
    """
    What encrypts the fields that models declare by `encrypted()`: `connect(url, encryption=Encryption(keys))`.

    Args:
        keys: Wrap the content keys of rows: a `KeyRing`, or any object with the methods of `KeyWrapper`.
        resolver: Says which further properties are encrypted, of rows of models with an encrypted field. It is called
            with PartitionKey, RowKey and name of each property, at each write, and not for what keys, indexes or other
            declarations need to see. Queries of these models can have no conditions on fields that it is asked about.

    Raises:
        EncryptionError: The package cryptography is not installed, or `keys` wraps nothing.
    """

    def __init__(self, keys: KeyWrapper, resolver: Resolver | None = None) -> None:
        cipher_of(bytes(KEY_BYTES))
        if not (callable(getattr(keys, "wrap", None)) and callable(getattr(keys, "unwrap", None))):
            raise EncryptionError(f"Encryption({shown(keys)}) is rejected: give a KeyRing, or what can wrap and unwrap")
        self.keys, self.resolver = keys, resolver

    def __repr__(self) -> str:
        return f"<Encryption by a {type(self.keys).__name__}>"


class ContentKeys:
    """
    The content keys of a database, of which the last are kept that were opened.

    Args:
        encryption: What the database was opened with.
    """

    def __init__(self, encryption: Encryption) -> None:
        self._keys, self.resolver = encryption.keys, encryption.resolver
        self._opened: dict[tuple[str, str], ContentKey] = {}  # by the id of the key that wraps it, and the wrapped one

    async def make(self) -> "ContentKey":
        """Return a new content key, for a row that is written as a whole."""
        return await new_key(self._keys)

    async def open(self, metadata: object, address: RowAddress) -> "ContentKey":
        """
        Return the content key of a row.

        Args:
            metadata: What the row has as `METADATA`.
            address: Where the row is.

        Raises:
            EncryptionError: It cannot be opened.
        """
        name = name_of_key(metadata, address)
        key = self._opened.get(name)
        if key is None:
            key = self._opened[name] = await open_key(metadata, address, self._keys)
            while len(self._opened) > _KEPT:
                del self._opened[next(iter(self._opened))]
        return key

    async def rewrap(self, metadata: object, address: RowAddress, current: str) -> str | None:
        """
        Return the metadata of a row with its content key wrapped by the present key, which has the id `current`; None
        if it is. Raises EncryptionError.
        """
        return await rewrap(metadata, address, self._keys, current)

    async def current(self) -> str:
        """Return the id of the key that wraps new content keys."""
        return (await self.make()).key_id


@attrs.define
class _Opened:
    """
    How a row that was read can be unsealed.

    Args:
        address: Where it is.
        select: The properties that were asked for; None for all.
        key: Its content key; None if it has no encrypted property that was asked for, or there is a problem.
        problem: Why it cannot be unsealed; None if it can.
    """

    address: RowAddress
    select: frozenset[str] | None
    key: ContentKey | None = attrs.field(default=None, repr=False)
    problem: str | None = None


class EncryptedStage(KeyedStage):
    """
    The stage of a model with encrypted fields, and of the entries of its covering indexes.

    Args:
        opaque: The properties of encrypted fields.
        plain: Those that may also be stored as they are.
        declared: The properties of all fields.
        seen: The properties that no resolver is asked about; of entries those of their model, which come in later.
    """

    def __init__(
        self,
        opaque: frozenset[str] = frozenset(),
        plain: frozenset[str] = frozenset(),
        declared: frozenset[str] = frozenset(),
        seen: set[str] | None = None,
    ) -> None:
        self.opaque, self._strict, self._declared = opaque, opaque - plain, declared
        self._seen = set[str]() if seen is None else seen

    def bind(self, fields: Mapping[str, FieldInfo]) -> "EncryptedStage":
        """See `RowStage`."""
        encrypted = [info for info in fields.values() if info.encrypted]
        plain = [info for info in encrypted if info.accept_plain]
        return EncryptedStage(_properties(encrypted), _properties(plain), _properties(fields.values()), self._seen)

    def check(self, schema: Schema) -> None:
        """See `RowStage`."""
        if schema.kind is not None and schema.discriminator != "property":
            raise ModelError(
                f"{schema.name} has encrypted fields and discriminator={schema.discriminator!r}, which doesn't show "
                "which rows to decrypt; leave discriminator out"
            )
        if schema.maintained:
            raise ModelError(
                f"{schema.name}.{schema.maintained[0].name} = field(maintained=True) is rejected: others write it, and "
                "the model has encrypted fields; keep it in another model"
            )
        seen = {info.name for info in schema.fields.values() if info.expiry} | schema.key_names
        seen.update(info.name for info in schema.uploads)  # their bytes would stay as they are
        for each in schema.derived.values():
            templates, rows = [*each.row_templates(), each.partition], each.row_schema
            seen.update(name for template in templates if template is not None for name in template.fields)
            if rows is not None and rows.keyed is None:
                seen.update(rows.fields)
        self.note_seen(info for name, info in schema.fields.items() if name in seen)

    def note_seen(self, infos: Iterable[FieldInfo]) -> None:
        """See `KeyedStage`."""
        self._seen.update(each.property for info in infos if not info.encrypted for each in info.members)

    def hides(self, name: str, db: Any = None) -> bool:
        """See `KeyedStage`."""
        resolved = db is not None and db.encryption is not None and db.encryption.resolver is not None
        return name in self.opaque or (resolved and self._is_asked(name))

    # Writing

    def seal(self, operation: Operation) -> Operation:
        """See `RowStage`: what is sent has these sizes, if it is wrapped as usual."""
        stand_in = ContentKey.of(bytes(KEY_BYTES), "?" * 32, bytes(KEY_BYTES))
        row = seal(operation.row, self.opaque, RowAddress.of_row("", operation.row), stand_in)
        return structs.replace(operation, row=row, canonical=False)

    async def seal_with_key(self, db: Any, operation: Operation, origin: RowAddress, stored: Row | None) -> Operation:
        """See `KeyedStage`. A merge that concerns nothing that is sealed is sent as it is."""
        encryption: ContentKeys | None = db.encryption
        row = operation.row
        address = RowAddress.of_row(origin.table, row)
        metadata = None if stored is None else stored.get(OPENED)
        sealed = sealed_names(metadata, origin) if metadata else frozenset[str]()
        names = self._names(row, sealed, encryption, origin)
        key: ContentKey | None = None
        if operation.verb in (Verb.MERGE, Verb.INSERT_OR_MERGE):
            if names.isdisjoint(row) and sealed.isdisjoint(row):
                return operation
            if metadata is None or operation.if_match in (None, "*"):
                raise EncryptionError(
                    "was not read, so that it cannot be merged into; get() it first, or replace it", address
                )
            if metadata and encryption is not None:
                key = await encryption.open(metadata, address)
        if encryption is None:
            raise EncryptionError(NO_KEYS, address)
        old = None if key is None else metadata
        row = seal(row, names, address, key or await encryption.make(), old)
        return structs.replace(operation, row=row, canonical=False)

    def _names(
        self, row: Row, sealed: frozenset[str], encryption: ContentKeys | None, origin: RowAddress
    ) -> frozenset[str]:
        """Return the properties to seal: what was sealed, and the model does not know, stays so."""
        names = self.opaque | (sealed - self._declared)
        resolver = None if encryption is None else encryption.resolver
        if resolver is None:
            return names
        asked = [name for name in row if ANNOTATION not in name and self._is_asked(name)]
        return names.union(name for name in asked if resolver(origin.partition_key, origin.row_key, name))

    def _is_asked(self, name: str) -> bool:
        """Return whether a resolver decides about a property."""
        return not (name in self._seen or name in SYSTEM_MEMBERS or is_reserved_property(name))

    def noted(self, sealed: Row, stored: Row | None) -> str:
        """See `KeyedStage`."""
        return str(sealed.get(METADATA, "" if stored is None else stored.get(OPENED, "")))

    # Reading

    async def prepare(self, db: Any, table: str, rows: Sequence[Row], select: tuple[str, ...] | None) -> None:
        """See `RowStage`: fetches the content keys of those rows that have one, and need it."""
        asked = None if select is None else frozenset(select)
        waiting = defaultdict[str, list[_Opened]](list)
        for row in rows:
            if isinstance(row.get(OPENED), str):
                continue  # it was unsealed
            opened = row[OPENED] = _Opened(RowAddress.of_row(table, row), asked)
            metadata = row.get(METADATA)
            try:
                if metadata is not None and (asked is None or self._needs_key(row, metadata, asked, opened.address)):
                    waiting[str(metadata)].append(opened)
            except EncryptionError as error:
                opened.problem = error.problem
        texts = [*waiting.items()]
        for at in range(0, len(texts), _TOGETHER):
            await asyncio.gather(*(_open(db.encryption, *each) for each in texts[at : at + _TOGETHER]))

    def _needs_key(self, row: Row, metadata: object, asked: frozenset[str], address: RowAddress) -> bool:
        """Return whether something encrypted was asked for."""
        if not asked.isdisjoint(self.opaque):
            return True
        return any(row.get(name) is not None for name in sealed_names(metadata, address) & asked)

    def unseal(self, row: Row) -> Row:
        """See `RowStage`."""
        opened: _Opened | str | None = row.get(OPENED)
        if isinstance(opened, str):
            return row
        if opened is None:
            raise EncryptionError("was read without preparing to decrypt it", RowAddress.of_row("", row))
        address, select, metadata = opened.address, opened.select, row.get(METADATA)
        if opened.problem is not None:
            raise EncryptionError(opened.problem, address)
        strict = self._strict if select is None else self._strict & select
        if opened.key is not None:
            return {**unseal(row, strict, address, opened.key, complete=select is None), OPENED: metadata}
        if metadata is None and strict:
            raise EncryptionError(
                "is not encrypted, or was replaced; rows from before its fields were encrypted are read with "
                "encrypted(accept_plain=True)",
                address,
            )
        return {name: value for name, value in row.items() if name != METADATA} | {OPENED: metadata or ""}

    def is_sealed(self, row: Row) -> bool:
        """See `KeyedStage`."""
        if self._strict == self.opaque:
            return True
        there = {name for name in self.opaque if row.get(name) is not None}
        return bool(row[OPENED]) and there <= sealed_names(row[OPENED], RowAddress.of_row("", row))


async def _open(encryption: ContentKeys | None, metadata: str, rows: Sequence[_Opened]) -> None:
    """Give rows of the same metadata their content key, or say why it cannot be opened."""
    key, problem = None, None
    try:
        key = None if encryption is None else await encryption.open(metadata, rows[0].address)
    except EncryptionError as error:
        problem = error.problem
    for each in rows:
        each.key, each.problem = key, NO_KEYS if encryption is None else problem


def _properties(infos: Iterable[FieldInfo]) -> frozenset[str]:
    return frozenset(member.property for info in infos if info.stored for member in info.members)


def _make_stage(fields: Mapping[str, FieldInfo]) -> EncryptedStage | None:
    return EncryptedStage() if any(info.encrypted for info in fields.values()) else None


FIELD_STAGES.append(_make_stage)
