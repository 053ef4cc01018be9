"""
The schema of an index list: which list an entity is in, and which RowKeys the rows of lists have.

An index list holds, for a value that many entities have, the keys of all of them: the table design guide's "index
entities", second option. Its rows are in the partition of the entities, and are written with them in one entity group
transaction. A list begins as one row, `lastname_Jones~`. Long before that is full it is divided into two, by a bit of
the hash of each key, `lastname_Jones~0` and `lastname_Jones~1`, and so on; the row that was divided stays, empty.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ...errors import ModelError, TemplateError
from ...keys.bounds import Part
from ...keys.formats import Format, make_format
from ...keys.overlap import refuse_meeting
from ...keys.template import Template
from ...models.manifest import ListEntry
from ...models.schema import Schema
from ...protocol.limits import MAX_KEY_UNITS
from .rows import BITS, SEPARATOR

__all__ = ["ListOptions", "ListSchema"]


@attrs.frozen
class ListOptions:
    """
    What an index list is declared with.

    Args:
        name: Name of the declaration.
        where: Takes the entity; only entities for which it is true are listed. None for all.
        divide_at: Bytes of keys at which a row is divided.
    """

    name: str
    where: Callable[[Any], bool] | None
    divide_at: int


class ListSchema:
    """
    An index list of a model.

    Args:
        options: What the list is declared with.
        primary: The schema of the model.
        row: Template of the lists' keys.

    Attributes:
        kind: The kind of its rows.
        key_names: Names of the fields by which a list is looked up.
    """

    def __init__(self, options: ListOptions, primary: Schema, row: Template) -> None:
        self.declared, self.primary, self.row = options, primary, row
        self.name = f"{primary.name}.{options.name}"
        self.kind = f"{primary.kind}#{options.name}"
        self.needed = tuple(name for name in row.fields if primary.fields[name].optional)
        assert primary.partition is not None
        assert primary.row is not None
        self.key_names = frozenset({*primary.partition.fields, *row.fields})
        if primary.kind is None or primary.discriminator not in ("property", "row_key"):
            raise ModelError(
                f"{self.name}: an index needs a kind, and discriminator='property' or 'row_key', which tell rows apart"
            )
        refuse_meeting(self.name, self.rows, f"{primary.name}.row_key", primary.row)
        primary.refuse_maintained(row.fields, self.name, f"row_key {row.text!r} has")

    @property
    def rows(self) -> Template:
        """The template of the RowKeys that its rows have, to tell them from others."""
        parts = self.row.parts
        if parts and parts[-1].field is None:
            parts = (*parts[:-1], Part(parts[-1].literal + SEPARATOR))
        else:
            parts = (*parts, Part(SEPARATOR))
        bits = make_format(str, "")
        assert isinstance(bits, Format)
        return Template(self.row.text, self.row.model, self.row.key, (*parts, Part("", "bits", bits)))

    def address(self, values: Mapping[str, Any]) -> str | None:
        """Return the key of the list that an entity with these fields is in; None for none. Raises TemplateError."""
        if any(values[name] is None for name in self.needed):
            return None
        if not self.primary.satisfies(self.declared.where, values, f"the index list {self.name}"):
            return None
        key = self.row.format(values)
        if len(key) + BITS > MAX_KEY_UNITS // 2 and len(key.encode("utf-16-le")) // 2 + BITS > MAX_KEY_UNITS:
            raise TemplateError(
                f"makes the key {key[:40]!r}... of a list, which has to be {BITS} UTF-16 units shorter than other "
                f"keys, {MAX_KEY_UNITS - BITS}, to be divided; shorten {', '.join(self.row.fields)}",
                self.name,
                "row_key",
                self.row.text,
            )
        return key

    def entry(self, values: Mapping[str, Any]) -> ListEntry | None:
        """Return what the manifest of an entity with these fields says of it. Raises TemplateError."""
        key = self.address(values)
        return None if key is None else ListEntry(key, self.kind)
