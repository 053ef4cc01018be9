"""
The manifest of a row: which rows exist elsewhere because of it, and what other entities have of it.

It is stored as JSON text in the property `_ix` of an entity, so that a writer never computes an old key from old
values, old templates or old versions: what the manifest names is replaced or deleted, and nothing else. It is an
object. The names in it are those of declarations, its values are the entries, in one of these forms:

    "email_x"                               IndexEntry: RowKey of the entity's row in an index
    {"list": ["lastname_x", kind]}          ListEntry: the index list that names the entity, and the kind of its rows
    {"add": ["department", {property: 1}]}  AggregateEntry: what the entity adds to properties of another one
    {"from": ["empid_1", name]}             SourceEntry: the entity that it copies, and the name of the entry there
    {"to": ["department", {mine: theirs}]}  HolderEntry: an entity that copies fields of this one, and which

The name of a HolderEntry is made of the declaration that it belongs to, and of the holder's RowKey:
`Department.manager:department`. A program can meet entries whose names it does not declare; each class says enough to
undo its entry all the same. A form that no class has is kept as an `UnknownEntry`. A further form is a further subclass
of `ManifestEntry` under `@manifest_form("...")`.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, cast

import msgspec

from ..errors import DecodeError
from ..stores import Row
from .reserved import MANIFEST

__all__ = [
    "AggregateEntry",
    "HolderEntry",
    "IndexEntry",
    "ListEntry",
    "ManifestEntry",
    "SourceEntry",
    "UnknownEntry",
    "manifest_form",
    "manifest_of",
    "manifest_text",
    "parse_entry",
]


class ManifestEntry(msgspec.Struct, frozen=True, gc=False):
    """
    One entry of a manifest. Entries are equal if they are stored alike.

    Attributes:
        form: Name of the only member of its JSON object; None for other JSON.
    """

    form: ClassVar[str | None] = None

    @property
    def address(self) -> str | None:
        """RowKey of the row that the entry is about, or the key of the list; None if it tells neither."""
        return None

    @classmethod
    def parse(cls, body: Any) -> Self | None:
        """Return the entry with this value of the member `form`; None if it is not one."""
        del body
        return None

    def to_json(self) -> Any:
        """Return what is stored."""
        raise NotImplementedError


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
    def address(self) -> str:
        """RowKey of the row in the index."""
        return self.row_key

    def to_json(self) -> str:
        """Return the RowKey."""
        return self.row_key


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

    @property
    def address(self) -> str:
        """The key of the list."""
        return self.list_key

    @classmethod
    def parse(cls, body: Any) -> Self | None:
        """Return the entry of `[list_key, kind]`."""
        match body:
            case [str(list_key), str(kind)]:
                return cls(list_key, kind)
            case _:
                return None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"list": [self.list_key, self.kind]}


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

    @property
    def address(self) -> str:
        """RowKey of the other entity."""
        return self.row_key

    @classmethod
    def parse(cls, body: Any) -> Self | None:
        """Return the entry of `[row_key, amounts]`."""
        match body:
            case [str(row_key), {**amounts}] if all(type(each) is int for each in amounts.values()):
                return cls(row_key, cast("dict[str, int]", amounts))
            case _:
                return None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"add": [self.row_key, self.amounts]}


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

    @property
    def address(self) -> str:
        """RowKey of the other entity."""
        return self.row_key

    @classmethod
    def parse(cls, body: Any) -> Self | None:
        """Return the entry of `[row_key, holder_name]`."""
        match body:
            case [str(row_key), str(holder_name)]:
                return cls(row_key, holder_name)
            case _:
                return None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"from": [self.row_key, self.holder_name]}


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

    @property
    def address(self) -> str:
        """RowKey of the other entity."""
        return self.row_key

    @classmethod
    def parse(cls, body: Any) -> Self | None:
        """Return the entry of `[row_key, properties]`."""
        match body:
            case [str(row_key), {**properties}] if all(isinstance(each, str) for each in properties.values()):
                return cls(row_key, cast("dict[str, str]", properties))
            case _:
                return None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"to": [self.row_key, self.properties]}


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
    """Return the entry that is stored as this JSON value."""
    if isinstance(value, str):
        return IndexEntry(value)
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
        form, body = next(iter(cast("dict[str, Any]", value).items()))
        known = _FORMS.get(form)
        entry = None if known is None else known.parse(body)
        if entry is not None:
            return entry
    return UnknownEntry(value)


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
        members = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, TypeError):
        raise DecodeError(
            f"has {text!r} as {MANIFEST}, which is not a manifest of what is derived from it; repair it with "
            "`tableorm audit --repair`",
            str(row.get("EntityType")),
            (str(row.get("PartitionKey")), str(row.get("RowKey"))),
        ) from None
    return {name: parse_entry(value) for name, value in members.items()}


def manifest_text(entries: Mapping[str, ManifestEntry]) -> str:
    """Return the JSON text of a manifest, as it is stored: the same for the same entries."""
    members: dict[str, Any] = {}
    for name, entry in entries.items():
        members[name] = entry.to_json()
    return _encode(members).decode()


_encode = msgspec.json.Encoder(order="sorted").encode
