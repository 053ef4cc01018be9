"""
The schema of the entries of an eventual index: rows in other partitions, which follow their entities some time later.

An entry tells the table and both keys of its primary, as JSON text, and the write token of the version that it copies.
It may be old, or be left over: only the primary says whether it is right. So readers fetch the primary of each entry,
and count an entry only if the primary's values yield its keys; without that they read the entries alone, as of an
earlier moment.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from ...errors import ModelError, TemplateError
from ...keys.template import Template
from ...models.manifest import PlacedEntry
from ...models.placement import refuse_own_keys
from ...models.reserved import COPIED_VERSION, COPY_OF
from ...stores import Row, RowAddress, row_keys
from .schema import EntrySchema


class EventualIndexSchema(EntrySchema):
    """The schema of the entries of an index in other partitions, whose primaries readers fetch to check them."""

    exact = False

    @cached_property
    def unverified(self) -> "EventualIndexSchema | None":
        """The schema by which the same entries are read alone; None if they hold nothing but keys."""
        if self.keys_only:
            return None
        partition, row = self.templates()
        return EventualIndexSchema(
            self.entry_name,
            self.primary,
            table=self.table,
            partition=partition,
            row=row,
            unique=self.unique,
            include=self.include,
            where=self.where,
            building=self.building,
            follows=False,
        )

    def _check(self, table: str | None, partition: Template, row: Template) -> None:
        primary, name = self.primary, self.label
        refuse_own_keys(name, primary, table, partition, row)
        held = partition.full_fields | row.full_fields
        missing = [field for field in primary.key_fields if field not in held]
        if missing and not self.unique:
            raise ModelError(
                f"{name}: partition_key {partition.text!r} and row_key {row.text!r} lack {', '.join(missing)}, so that "
                f"two entities could have one entry; add {{{missing[0]}}} to the row_key"
            )

    # Writing

    def place(self, values: Mapping[str, Any]) -> PlacedEntry | None:
        """
        Return where the entry of an entity is; None if it has none.

        Args:
            values: Its fields, in full.

        Raises:
            TemplateError: A value does not fit the templates.
        """
        return PlacedEntry(*self.make_keys(values), self.table_name()) if self.has_entry(values) else None

    def entry_row(self, values: Mapping[str, Any], row: Row, place: PlacedEntry, version: str) -> Row:
        """
        Return the index entry of an entity, as a row.

        Args:
            values: The fields of the entity, in full.
            row: The row of the entity, in full.
            place: Where the entry is.
            version: The newest write token of the entity.
        """
        entry = self._make_entry(values, row, place.partition_key, place.row_key)
        entry[COPY_OF] = RowAddress.of_row(self.primary.table_name(), row).to_json()
        entry[COPIED_VERSION] = version
        return entry

    # Reading

    def owner_keys(self, entry: Row) -> tuple[str, str]:
        """Return the keys of the entity whose entry it is. Raises DecodeError if the entry names none."""
        owner = self.owner_of(entry)
        if owner.table != self.primary.table_name():
            raise self._odd_owner(entry, f"the JSON of the table {self.primary.table_name()!r} and the keys")
        return owner.partition_key, owner.row_key

    def owner_of(self, entry: Row) -> RowAddress:
        """Return where the entity is whose entry it is. Raises DecodeError if the entry names none."""
        try:
            return RowAddress.from_json(entry[COPY_OF])
        except (KeyError, TypeError, msgspec.DecodeError):
            raise self._odd_owner(entry, "the JSON of the table, PartitionKey and RowKey") from None

    @property
    def deciding_fields(self) -> frozenset[str] | None:
        """The fields of its keys; None, which stands for all fields, if a function tells which entities have one."""
        return self.key_names if self.where is None else None

    def leads_to(self, entry: Row, primary: Row, values: Mapping[str, Any]) -> bool:
        """Return whether the primary's values yield the keys of the entry."""
        del primary
        with suppress(TemplateError):  # values that no entry can have
            return self.place(values) == PlacedEntry(*row_keys(entry), self.table_name())
        return False
