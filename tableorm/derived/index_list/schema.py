"""
The schema of an index list: which list an entity is in, which RowKeys the rows of lists have, and what writes do.

An index list holds, for a value that many entities have, the keys of all of them: the table design guide's "index
entities", second option. Its rows are in the partition of the entities, and are written with them in one entity group
transaction. A list begins as one row, `lastname_Jones~`. Long before that is full it is divided into two, by a bit of
the hash of each key, `lastname_Jones~0` and `lastname_Jones~1`, and so on; the row that was divided stays, empty.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ...errors import TemplateError
from ...keys.bounds import Part
from ...keys.format import Format
from ...keys.formats import make_format
from ...keys.overlap import refuse_meeting
from ...keys.template import Template
from ...models.derivation import refuse_without_kind
from ...models.index_declaration import IndexDeclaration
from ...models.manifest import ListEntry, ManifestEntry, manifest_of
from ...models.schema import Schema
from ...protocol.limits import MAX_KEY_UNITS
from ...stores import Row
from ...writes.maintainer import Maintainer
from .rows import BITS, SEPARATOR, keys_of, split_address


class ListSchema(Maintainer):
    """
    An index list of a model, kept right by the writes of its entities.

    Args:
        name: Name of the declaration.
        schema: The schema of the model.
        row: Template of the lists' keys.
        where: Takes the entity; only entities for which it is true are listed. None for all.
        divide_at: Bytes of keys at which a row is divided.
        table: Name of the table of its rows; None for that of the model.
        partition: Template of their PartitionKeys; None for that of the model.
        building: Whether it is written and not read yet; None if the store says so.

    Attributes:
        primary: The schema of the model.
        kind: The kind of its rows.
        list_partition: Template of the PartitionKeys of its rows.
        key_names: Names of the fields by which a list is looked up.
    """

    entry_type: ClassVar[type[ManifestEntry]] = ListEntry
    movable = True
    shared_rows = 1

    def __init__(
        self,
        name: str,
        schema: Schema,
        row: Template,
        *,
        where: Callable[[Any], bool] | None,
        divide_at: int,
        table: str | None = None,
        partition: Template | None = None,
        building: bool | None = None,
    ) -> None:
        super().__init__(name, schema)
        self.primary, self.table = schema, table or schema.table
        self.partition = self.list_partition = partition or schema.templates()[0]
        self.row, self._where, self._divide_at = row, where, divide_at
        self.kind = f"{schema.kind}#{name}"
        self.key_names = frozenset({*self.partition.fields, *row.fields})
        self._needed = tuple(sorted(each for each in self.key_names if schema.fields[each].optional))
        refuse_without_kind(self.label, schema)
        self._refuse_own_keys()
        schema.refuse_unseen(row.fields, self.label, f"row_key {row.text!r} has")
        schema.refuse_unseen(self.partition.fields, self.label, f"partition_key {self.partition.text!r} has")
        self.building, own_table = building, schema.table_text()
        lists_table = own_table if self.in_blobs else str(self.table)
        layout = {"kind": self.kind, **self.describe()}
        self.declaration = IndexDeclaration.of(schema.name, name, own_table, lists_table, layout)

    def describe(self) -> dict[str, Any]:
        """Return what was declared, as JSON has it. How rows are divided may differ between programs."""
        return {
            "pattern": "IndexList",
            "table": self.table,
            "partition_key": self.list_partition.text,
            "row_key": self.row.text,
            "where": self._where is not None,
            "consistency": "eventual" if self.deferred else None,
            "blob": self.in_blobs,
        }

    def _refuse_own_keys(self) -> None:
        """Refuse keys of lists that could be those of entities. Raises ModelError."""
        refuse_meeting(self.label, self._row_template(), f"{self.primary.name}.row_key", self.primary.templates()[1])

    def _row_template(self) -> Template:
        parts = self.row.parts
        if parts and parts[-1].field is None:
            parts = (*parts[:-1], Part(parts[-1].literal + SEPARATOR))
        else:
            parts = (*parts, Part(SEPARATOR))
        bits = make_format(str, "")
        assert isinstance(bits, Format)
        return Template(self.row.text, self.row.model, self.row.key, (*parts, Part("", "bits", bits)))

    def row_templates(self) -> Sequence[Template]:
        """Return the template of the RowKeys that the rows of lists have."""
        return (self._row_template(),)

    def has_row(self, partition_key: str, row_key: str) -> bool:
        """Return whether a row of its lists can have these keys: no entity is in the list of any other row."""
        address = split_address(row_key)
        if address is None:
            return False
        partition, _ = self.schema.templates()
        try:
            partition.parse(partition_key)
            self.row.parse(address[0])
        except ValueError:
            return False
        return True

    def address(self, values: Mapping[str, Any]) -> str | None:
        """Return the key of the list that an entity with these fields is in; None for none. Raises TemplateError."""
        if any(values[name] is None for name in self._needed):
            return None
        if not self.schema.satisfies(self._where, values, f"the index list {self.label}"):
            return None
        key = self.row.format(values)
        if len(key) + BITS > MAX_KEY_UNITS // 2 and len(key.encode("utf-16-le")) // 2 + BITS > MAX_KEY_UNITS:
            raise TemplateError(
                f"makes the key {key[:40]!r}... of a list, which has to be {BITS} UTF-16 units shorter than other "
                f"keys, {MAX_KEY_UNITS - BITS}, to be divided; shorten {', '.join(self.row.fields)}",
                self.label,
                "row_key",
                self.row.text,
                fields=self.row.fields,
                limit=MAX_KEY_UNITS - BITS,
            )
        return key

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ManifestEntry | None:
        """Return the list that an entity with these fields is in. Raises TemplateError."""
        key = self.address(values)
        return None if key is None else ListEntry(key, self.kind)

    # Reading

    def members(self, row: Row) -> Iterable[tuple[str, str]]:
        """Return the keys of the entities that a row of a list names. Raises DecodeError."""
        return ((row["PartitionKey"], key) for key in keys_of(row))

    def is_listed(self, primary: Row, partition_key: str, list_key: str) -> bool:
        """Return whether the manifest of an entity says that it is in a list."""
        entry = manifest_of(primary).get(self.name)
        return isinstance(entry, ListEntry) and entry.list_key == list_key
