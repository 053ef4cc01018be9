"""
The manifest of a row: which rows exist elsewhere because of it, and what other entities have of it.

It is stored as JSON text in the property `_ix` of an entity, so that a writer never computes an old key from old
values, old templates or old versions: what the manifest names is replaced or deleted, and nothing else. What the stored
fields do not say as well may be forged, and is read first: see `tableorm.writes.maintainer.is_proven`.

It is an object. The names in it are those of declarations, its values are the entries, in one of these forms:

    "email_x"                               IndexEntry: RowKey of the entity's row in an index
    {"each": [["tag_x", "tag_y"]]}          EachEntry: RowKeys of its rows in an index of the elements of a list
    {"at": ["name_x", "byname_x", table]}   PlacedEntry: PartitionKey, RowKey and table of its row in an eventual index
    {"un": ["email_x", "taken", table, token]} ReservedEntry: the same of a unique value, and the token of its claim
    {"list": ["lastname_x", kind]}          ListEntry: the index list that names the entity, and the kind of its rows
    {"in": ["city_x", "people", table, kind]} PlacedListEntry: the same of an index list of another partition
    {"blob": ["city_x", "people", table, kind]} BlobListEntry: the same of an index list in a blob
    {"up": [table, token, partition]}       UploadEntry: the blob that is a field of the entity
    {"add": ["department", {property: 1}]}  AggregateEntry: what the entity adds to properties of another one
    {"sub": [key, property, 1, "acme", "company", table]} SubtotalEntry: the subtotal that the entity adds to, in which
                                            property of which entity of another partition that is counted
    {"from": ["empid_1", name]}             SourceEntry: the entity that it copies, and the name of the entry there
    {"copy": ["acme", "department", table, token]} CopyEntry: the entity of another partition that it copies
    {"held": [table, [properties]]}         HeldEntry: entities of other partitions copy properties of this one
    {"to": ["department", {mine: theirs}]}  HolderEntry: an entity that copies fields of this one, and which
    {"del": [token]}                        DeletedEntry: the entity is being deleted, after its children

The name of a HolderEntry is made of the declaration that it belongs to, and of the holder's RowKey:
`Department.manager:department`. A program can meet entries whose names it does not declare; each class says enough to
undo its entry all the same. A form that no class has is kept as an `UnknownEntry`. A further form is a further subclass
of `ManifestEntry` under `@manifest_form("...")`: its fields, in their order and of their types, are what is stored.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import structs

from ..errors import DecodeError, shown
from ..protocol.limits import MAX_VALUE_BYTES
from ..stores import Row, RowAddress
from .reserved import BLOB_LISTS, MANIFEST, SUBTOTAL_HEAD

MARK_LENGTH = 12
"""How many characters the hash of the partition has in the name of a blob."""


class ManifestEntry(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """
    One entry of a manifest, which is stored as `{form: [fields]}`. Entries are equal if they are stored alike.

    Attributes:
        form: Name of the only member of its JSON object; None for other JSON.
        deferred: Whether it names rows in other partitions, so that it has no effects in a transaction.
        owned: Whether what it names goes with the entity that has it, and moves with it.
        transient: Whether nothing is left of it when the entity is deleted.
    """

    form: ClassVar[str | None] = None
    deferred: ClassVar[bool] = False
    owned: ClassVar[bool] = False
    transient: ClassVar[bool] = False

    @property
    def local_key(self) -> str | None:
        """
        RowKey of the row of its partition that the entry is about, or the key of the list there: the first field, if
        that is one; None if there is no such row, or several.
        """
        name = self.__struct_fields__[0]
        key: str | None = getattr(self, name) if name in ("row_key", "list_key") else None
        return key

    @property
    def entry_keys(self) -> tuple[str, ...]:
        """The RowKeys of the index entries in its partition that it names."""
        return ()

    def to_json(self) -> Any:
        """Return what is stored."""
        return {self.form: [*structs.astuple(self)]}


M = TypeVar("M", bound=type[ManifestEntry])

_FORMS: dict[str, type[ManifestEntry]] = {}


def manifest_form(form: str) -> Callable[[M], M]:
    """
    Declare that a class stands for the entries `{form: ...}`.

    Args:
        form: Name of the member. It is stored, so it must stay the same for ever.

    Raises:
        ValueError: Another class has this form already.
    """

    def declare(entry: M) -> M:
        if form in _FORMS:
            raise ValueError(f"the manifest form {form!r} is that of {_FORMS[form].__name__}; choose another name")
        entry.form = form
        _FORMS[form] = entry
        return entry

    return declare


class IndexEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity has a row in an index.

    Args:
        row_key: RowKey of that row.
    """

    row_key: str

    @property
    def entry_keys(self) -> tuple[str, ...]:
        """The RowKey."""
        return (self.row_key,)

    def to_json(self) -> str:
        """Return the RowKey."""
        return self.row_key


@manifest_form("each")
class EachEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity has a row in an index for each element of a list.

    Args:
        row_keys: RowKeys of these rows, in order.
    """

    row_keys: tuple[str, ...]

    @property
    def entry_keys(self) -> tuple[str, ...]:
        """The RowKeys."""
        return self.row_keys


class _ElsewhereEntry(ManifestEntry, frozen=True, gc=False, eq=False):
    """
    The entity has something in other partitions. Entries are equal if they name one place, whatever `version` was found
    there.
    """

    deferred: ClassVar[bool] = True

    @property
    def _identity(self) -> tuple[Any, ...]:
        """What tells the place from others; the names of tables differ by more than their letter case."""
        entry: Any = self
        return entry.table.lower(), *[getattr(entry, name) for name in self.__struct_fields__ if name != "table"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ElsewhereEntry) and type(other) is type(self) and self._identity == other._identity

    def __ne__(self, other: object) -> bool:  # a struct has one of its own
        return not self == other

    def __hash__(self) -> int:
        return hash(self._identity)


@manifest_form("at")
class PlacedEntry(_ElsewhereEntry, frozen=True, gc=False, eq=False):
    """
    The entity has a row in an index of other partitions.

    Args:
        partition_key: PartitionKey of that row.
        row_key: RowKey of that row.
        table: Name of its table.
    """

    partition_key: str
    row_key: str
    table: str

    @property
    def location(self) -> str:
        """Name of the table."""
        return self.table


@manifest_form("un")
class ReservedEntry(PlacedEntry, frozen=True, gc=False, eq=False):
    """
    The entity has a unique value, which a row of another partition reserves for it.

    Args:
        partition_key: PartitionKey of that row.
        row_key: RowKey of that row.
        table: Name of its table.
        token: The token of the change that claimed the value, which the row has too.
    """

    token: str

    @property
    def place(self) -> PlacedEntry:
        """Where the row is."""
        return PlacedEntry(self.partition_key, self.row_key, self.table)


@manifest_form("list")
class ListEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity is named by an index list.

    Args:
        list_key: The key of the list, with which the RowKeys of its rows begin.
        kind: The kind of its rows.
    """

    list_key: str
    kind: str


@manifest_form("in")
class PlacedListEntry(_ElsewhereEntry, frozen=True, gc=False, eq=False):
    """
    The entity is named by an index list whose rows are in another partition.

    Args:
        partition_key: PartitionKey of the list's rows.
        list_key: The key of the list, with which their RowKeys begin.
        table: Name of their table.
        kind: Their kind.
    """

    partition_key: str
    list_key: str
    table: str
    kind: str

    @property
    def row_key(self) -> str:
        """RowKey of the first row of the list."""
        return f"{self.list_key}~"

    @property
    def location(self) -> str:
        """Name of the table; of a list in a blob a text that no table has for a name."""
        return self.table


@manifest_form("blob")
class BlobListEntry(PlacedListEntry, frozen=True, gc=False, eq=False):
    """
    The entity is named by an index list that lies in a blob, under a name that is made of all of these texts.

    Args:
        partition_key: What the declaration's partition_key makes.
        list_key: The key of the list.
        table: Name of the entities' table.
        kind: That of the list, as its rows would have it.
    """

    @property
    def row_key(self) -> str:
        """The key of the list."""
        return self.list_key

    @property
    def location(self) -> str:
        """What all lists of the declaration have in common."""
        return folder_of_lists(self.table, self.kind)

    @property
    def blob_name(self) -> str:
        """
        Name of the blob: no two lists have the same. Its parts are of letters, digits, `-`, `_`, `~`, and `=XX` for
        each other byte of their UTF-8; an empty one is "=". Names of tables differ in more than the case of letters.
        """
        return "/".join(map(_blob_name_part, (self.table.lower(), self.kind, self.partition_key, self.list_key)))


@manifest_form("up")
class UploadEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity has a blob, which is no other entity's: where the blob is, and its row, which stays as long as the blob.

    Args:
        table: The table of the entity that it was uploaded for.
        token: The token of the upload.
        partition_key: The partition of the row that stays as long as the blob.
    """

    table: str
    token: str
    partition_key: str

    deferred: ClassVar[bool] = True
    owned: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """
        The name of the blob. It begins with a hash of the partition, so that a forged address in another partition is
        that of no blob.
        """
        mark = hashlib.blake2b(self.partition_key.encode(), digest_size=MARK_LENGTH // 2).hexdigest()
        return f"{self.table}/{mark}{self.token}"

    def to_text(self) -> str:
        """Return what the field of the entity has as the address of the blob."""
        return "/".join(structs.astuple(self))

    @classmethod
    def of(cls, text: str) -> "UploadEntry":
        """Return the address that a field has. Raises ValueError if it is none."""
        parts = text.split("/", 2)
        if len(parts) != 3:
            raise ValueError(f"holds {shown(text)}, which is not the address of a blob")
        return cls(*parts)


def folder_of_lists(table: str, kind: str) -> str:
    """Return where the lists of a kind of the entities of a table are that lie in blobs: no table has such a name."""
    return f"{BLOB_LISTS}/{table}/{kind}"


def _blob_name_part(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E").replace("%", "=") or "="


@manifest_form("add")
class AggregateEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity adds to a count or sum of another one.

    Args:
        row_key: RowKey of the other entity.
        amounts: What it adds, by property of the other entity.
    """

    row_key: str
    amounts: Mapping[str, int]


@manifest_form("sub")
class SubtotalEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity adds to a count or sum of an entity that may be in another partition, by way of a subtotal of its own.

    Args:
        row_key: RowKey of the subtotal.
        field: The property of the other entity.
        amount: What the entity adds.
        partition_key: PartitionKey of the other entity.
        holder_key: RowKey of the other entity.
        table: Name of its table.
    """

    row_key: str
    field: str
    amount: int
    partition_key: str
    holder_key: str
    table: str

    deferred: ClassVar[bool] = True

    @classmethod
    def of(cls, holder: RowAddress, property_: str, amount: int) -> "SubtotalEntry":
        """Return the entry of an entity that adds an amount to a property of another one."""
        row_key = _count_key("", holder, property_)
        return cls(row_key, property_, amount, holder.partition_key, holder.row_key, holder.table)

    @property
    def holder(self) -> RowAddress:
        """Where the other entity is."""
        return RowAddress(self.table, self.partition_key, self.holder_key)

    @property
    def is_sound(self) -> bool:
        """Whether the subtotal has the key that it must have: what a manifest names may be forged."""
        return self.row_key == _count_key("", self.holder, self.field)


def share_address(holder: RowAddress, subtotal: RowAddress) -> RowAddress:
    """Return where it is noted, beside an entity that holds a total, what that has of a subtotal."""
    return holder.beside(_count_key(holder.row_key, subtotal))


def _count_key(*of: str | RowAddress) -> str:
    """Return the RowKey of a row of counts, from what it is about; names of tables differ in more than letter case."""
    texts = [[a.table.lower(), a.partition_key, a.row_key] if isinstance(a, RowAddress) else a for a in of]
    return SUBTOTAL_HEAD + urlsafe_b64encode(hashlib.sha256(msgspec.json.encode(texts)).digest()[:18]).decode()


@manifest_form("from")
class SourceEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity holds copies of fields of another one.

    Args:
        row_key: RowKey of the other entity.
        holder_name: The name of the entry in the other entity's manifest that says so.
    """

    row_key: str
    holder_name: str


@manifest_form("copy")
class CopyEntry(_ElsewhereEntry, frozen=True, gc=False, eq=False):
    """
    The entity holds copies of fields of another one, which may be in another partition.

    Args:
        partition_key: PartitionKey of the other entity.
        row_key: RowKey of the other entity.
        table: Name of its table.
        version: Its newest write token when the fields were copied; "" if nothing was.
    """

    partition_key: str
    row_key: str
    table: str
    version: str = ""

    transient: ClassVar[bool] = True

    @property
    def _identity(self) -> tuple[str, ...]:
        return self.partition_key, self.row_key, self.table.lower()


@manifest_form("held")
class HeldEntry(_ElsewhereEntry, frozen=True, gc=False, eq=False):
    """
    Entities that may be in other partitions hold copies of fields of this one.

    Args:
        table: Name of their table.
        properties: The properties of this entity that they copy.
    """

    table: str
    properties: tuple[str, ...]


@manifest_form("to")
class HolderEntry(ManifestEntry, frozen=True, gc=False):
    """
    Another entity holds copies of fields of this one.

    Args:
        row_key: RowKey of the other entity.
        properties: By property of this entity the property of the other one that is its copy.
    """

    row_key: str
    properties: Mapping[str, str]


@manifest_form("del")
class DeletedEntry(ManifestEntry, frozen=True, gc=False):
    """
    The entity is being deleted by workers, after its children in other partitions.

    Args:
        token: What tells this delete from others; the decision row has it too.
    """

    token: str


class UnknownEntry(ManifestEntry, frozen=True, gc=False):
    """
    An entry in a form that this program does not know: damaged, or of a newer program.

    Args:
        value: What is stored.
    """

    value: Any

    def to_json(self) -> Any:
        """Return what is stored."""
        return self.value


def parse_entry(value: Any) -> ManifestEntry:
    """
    Return the entry that is stored as this JSON value.

    Raises:
        TypeError: The value nests deeper than any entry.
    """
    if isinstance(value, str):
        return IndexEntry(value)
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
        form, body = next(iter(cast("dict[str, Any]", value).items()))
        try:
            return msgspec.convert(body, _FORMS[form])
        except (KeyError, msgspec.ValidationError):
            pass  # damaged, or of a newer program
    if _nests(value, _MOST_LEVELS):
        raise TypeError("the entry nests too deeply")
    return UnknownEntry(value)


# No form of entry will ever need more. What nests by the thousand can be read, and not be written again.
_MOST_LEVELS = 20


def _nests(value: Any, levels: int) -> bool:
    """Return whether JSON nests deeper than about so many levels."""
    values: Any = getattr(value, "values", getattr(value, "copy", None))  # of an object, of an array, or of neither
    return values is not None and (levels == 0 or any(_nests(each, levels - 1) for each in values()))


def manifest_of(row: Row | None) -> dict[str, ManifestEntry]:
    """
    Return the entries in the manifest of a row, by name.

    Raises:
        DecodeError: The manifest is damaged.
    """
    text = None if row is None else row.get(MANIFEST)
    if text is None or row is None:
        return {}
    try:
        entries = {name: parse_entry(value) for name, value in _read_members(text).items()}
    except (msgspec.DecodeError, TypeError, RecursionError):
        raise DecodeError(
            f"has {shown(text)} as {MANIFEST}, which is not a manifest of what is derived from it; repair it with "
            "`tableorm audit --repair`",
            str(row.get("EntityType")),
            (str(row.get("PartitionKey")), str(row.get("RowKey"))),
        ) from None
    return entries


def _read_members(text: Any) -> dict[str, Any]:
    """Return the members of a manifest. Raises TypeError if no String is as long: it would become many objects."""
    if len(text) > MAX_VALUE_BYTES // 2:
        raise TypeError("the manifest is too long")
    return _decode(text)


def manifest_text(entries: Mapping[str, ManifestEntry]) -> str:
    """Return the JSON text of a manifest, as it is stored: the same for the same entries."""
    return _encode({name: entry.to_json() for name, entry in entries.items()}).decode()


_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder(order="sorted").encode
