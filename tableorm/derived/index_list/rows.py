"""
Index lists as they are stored: which list an entity is in, which rows a list has, and what writes do to these.

An index list holds, for a value that many entities have, the keys of all of them: the table design guide's "index
entities", second option. Its rows are in the partition of the entities, and are written with them in one entity group
transaction. A list begins as one row, `lastname_Jones~`. Long before that is full it is divided into two, by a bit of
the hash of each key, `lastname_Jones~0` and `lastname_Jones~1`, and so on; the row that was divided stays, empty.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, cast

from msgspec import structs

from ...errors import DecodeError, EntityExists, TemplateError, shown
from ...keys.bounds import Part
from ...keys.format import Format
from ...keys.formats import make_format
from ...keys.overlap import refuse_meeting
from ...keys.template import Template
from ...models.derivation import refuse_without_kind
from ...models.index_declaration import IndexDeclaration
from ...models.manifest import ListEntry, ManifestEntry, manifest_of
from ...models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ...models.schema import Schema
from ...models.write_tokens import tokens_of, with_token
from ...protocol.codes import Code
from ...protocol.edm import ANNOTATION, Edm
from ...protocol.limits import MAX_KEY_UNITS, binary_size
from ...stores import Operation, Row, Verb, row_keys
from ...writes.maintainer import EntryRules, Maintainer, entry_rules, touch_operation
from ...writes.patch import Value
from ...writes.plan import Effect, PlannedWrite

SEPARATOR = "~"

DIVIDED = "Divided"
"""Property of a row whose keys are in two others."""

_CHUNK = 48 * 1024  # bytes of a Binary property, of the 64 KiB that one holds

_PROPERTY = "Keys{:02d}"

BITS = 33  # of the key of a row, that it goes on with behind the list's: "~", and enough bits for all there can be


def bits_of(key: str, count: int) -> str:
    """The first bits of the hash of a RowKey, which say in which row of a list it is: for ever the same."""
    digest = hashlib.sha256(key.encode("utf-8")).digest()
    return f"{int.from_bytes(digest):0256b}"[:count]


def list_row(partition_key: str, row_key: str, kind: str, keys: Iterable[str], *, divided: bool = False) -> Row:
    """
    A row of a list, in canonical form: no store needs to read the keys again to see whether they are base64.

    Args:
        partition_key: Of the entities.
        row_key: Of the row: the list's key, "~", and bits.
        kind: Of the list.
        keys: RowKeys of the entities.
        divided: Whether they are in two other rows.
    """
    row: Row = {"PartitionKey": partition_key, "RowKey": row_key, ENTITY_TYPE: kind}
    # No key holds a control character, so one can end each.
    packed = "\n".join([*sorted(keys), ""]).encode("utf-8")
    for number, start in enumerate(range(0, len(packed), _CHUNK)):
        name = _PROPERTY.format(number)
        row[name], row[name + ANNOTATION] = b64encode(packed[start : start + _CHUNK]).decode(), Edm.BINARY.value
    if divided:
        row[DIVIDED] = True
    return row


def is_divided(row: Row | None) -> bool:
    """Whether the keys of a row of a list are in two others."""
    return row is not None and row.get(DIVIDED) is True


def bytes_of(row: Row | None) -> int:
    """Bytes of the RowKeys in a row of a list, each with the character that ends it."""
    return sum(binary_size(text) for _, text in _chunks(row) if isinstance(text, str))


def _chunks(row: Row | None) -> Iterator[tuple[str, object]]:
    for number in count():
        name = _PROPERTY.format(number)
        if row is None or row.get(name) is None:
            return
        yield name, row[name]


def keys_of(row: Row | None) -> dict[str, None]:
    """
    The RowKeys in a row of a list, in the order in which they are stored, which is theirs.

    Raises:
        DecodeError: It is damaged.
    """
    if row is None:
        return {}
    try:
        packed = b"".join([b64decode(cast("str", text), validate=True) for _, text in _chunks(row)]).decode("utf-8")
    except (ValueError, TypeError) as error:
        raise DecodeError(
            f"is a list of keys that cannot be read: {error}; repair it with `tableorm audit --repair`",
            str(row.get(ENTITY_TYPE)),
            row_keys(row),
        ) from None
    return dict.fromkeys(packed.split("\n")[:-1])


def split_address(row_key: str) -> tuple[str, str] | None:
    """The key of the list that a row is of, and the bits of its own place in it; None if no list has such a row."""
    list_key, separator, bits = row_key.rpartition(SEPARATOR)
    if not separator or len(bits) >= BITS or bits.strip("01"):
        return None
    return list_key, bits


MOST_BYTES = 512 * 1024
"""Bytes of keys in a row of a list that this program does not declare."""


class ListEffect(Effect, Value, frozen=True):
    """
    Entities whose keys come into a row of an index list, or leave it.

    Args:
        list_key: The key of the list.
        bits: Which of its rows, as the RowKey ends.
        origin: The write of one of the entities.
        kind: The kind of the list's rows.
        divide_at: Bytes of keys at which the row is divided first.
        adds: RowKeys that come.
        removes: RowKeys that leave.
    """

    list_key: str
    bits: str
    origin: PlannedWrite
    kind: str
    divide_at: int
    adds: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    reads = True
    replaces = True

    @property
    def row_key(self) -> str:  # type: ignore[override]
        """RowKey of the row."""
        return self.list_key + SEPARATOR + self.bits

    def merge_with(self, other: Effect) -> Effect:
        """Return the effect of both: a key that comes by one and leaves by the other comes."""
        assert isinstance(other, ListEffect)
        adds = self.adds | other.adds
        return structs.replace(other, adds=adds, removes=(self.removes | other.removes) - adds)

    def route(self, stored: Row | None) -> list[Effect]:
        """Return the effects on the two other rows that a divided row stands for."""
        if not is_divided(stored):
            return [self]
        deeper: list[Effect] = []
        for bit in "01":
            bits = self.bits + bit
            adds = frozenset(key for key in self.adds if bits_of(key, len(bits)) == bits)
            removes = frozenset(key for key in self.removes if bits_of(key, len(bits)) == bits)
            if adds or removes:
                deeper.append(structs.replace(self, bits=bits, adds=adds, removes=removes))
        return deeper

    def split_first(self, stored: Row | None, token: str) -> list[Operation]:
        """Return the transaction that divides the row before it is too large."""
        if (
            stored is None
            or stored.get(ENTITY_TYPE) != self.kind
            or bytes_of(stored) + sum(map(_packed, self.adds)) <= self.divide_at
        ):
            return []
        keys = keys_of(stored)
        coming = sum(_packed(key) for key in self.adds if key not in keys)
        if bytes_of(stored) + coming <= self.divide_at or len(keys) < 2:
            return []
        partition_key, tail = stored["PartitionKey"], with_token(tokens_of(stored), token)
        empty = list_row(partition_key, self.row_key, self.kind, (), divided=True)
        operations = [Operation(Verb.REPLACE, {**empty, WRITE_TOKENS: tail}, stored["odata.etag"], canonical=True)]
        for bit in "01":
            bits = self.bits + bit
            row = list_row(
                partition_key, self.row_key + bit, self.kind, (key for key in keys if bits_of(key, len(bits)) == bits)
            )
            operations.append(Operation(Verb.INSERT, {**row, WRITE_TOKENS: token}, canonical=True))
        return operations

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """Return a write of the row with the keys that it has then, under the ETag it was read with."""
        keys = keys_of(stored)
        same = keys.keys() >= self.adds and keys.keys().isdisjoint(self.removes)
        if same and not self.adds:
            return None
        if same and stored is not None:
            # An entity that is inserted is there still: somebody is about to delete what had its key.
            return touch_operation(stored, token)
        for key in self.removes:
            keys.pop(key, None)
        keys.update(dict.fromkeys(self.adds))
        row = list_row(self.origin.operation.row["PartitionKey"], self.row_key, self.kind, keys)
        row[WRITE_TOKENS] = with_token(tokens_of(stored), token)
        if stored is None:
            return Operation(Verb.INSERT, row, canonical=True)
        if stored.get(ENTITY_TYPE) != self.kind:
            raise self._exists(
                f"the index list {self.kind} needs the row {shown(self.row_key)} of this partition, and a row of "
                f"another kind ({shown(stored.get(ENTITY_TYPE))}) has that key; change the list's row_key, or remove "
                "that row"
            )
        return Operation(Verb.REPLACE, row, stored["odata.etag"], canonical=True)

    def apply_to(self, write: PlannedWrite) -> PlannedWrite:
        """Return the user's write, if it deletes the row with entities that leave it; a list is not an entity."""
        if write.after is None and not self.adds:
            return write
        raise self._exists(
            f"the key {shown(self.row_key)} of a list that it is in is that of {write.origin}; begin the row_key of "
            "the list with a distinct literal"
        )

    def _exists(self, problem: str) -> EntityExists:
        change = self.origin.origin
        return EntityExists(f"{change}: {problem}", Code.ENTITY_EXISTS, change.subject, index=self.kind)


def _packed(key: str) -> int:
    """Return the bytes of a key in a list."""
    return len(key.encode("utf-8")) + 1


@entry_rules(ListEntry)
class _ListRules(EntryRules[ListEntry]):
    def undo(self, name: str, entry: ListEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Let the entity leave the list: a row of a list is read in any case."""
        removes = frozenset({write.row_key})
        return [ListEffect(entry.list_key, "", write, entry.kind, MOST_BYTES, removes=removes)]


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
        return None if key is None else self.place(self.list_partition.format(values), key)

    def place(self, partition_key: str, list_key: str) -> ManifestEntry:
        """Return the entry of the entities that are in a list."""
        return ListEntry(list_key, self.kind)

    # Reading

    def members(self, row: Row) -> Iterable[tuple[str, str]]:
        """Return the keys of the entities that a row of a list names. Raises DecodeError."""
        return ((row["PartitionKey"], key) for key in keys_of(row))

    def is_listed(self, primary: Row, partition_key: str, list_key: str) -> bool:
        """Return whether the manifest of an entity says that it is in a list."""
        return manifest_of(primary).get(self.name) == self.place(partition_key, list_key)
