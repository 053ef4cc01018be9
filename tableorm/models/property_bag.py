"""
Property bags: an entity without a model, as the table holds it.
"""
# pyright: reportPrivateUsage=false
# The functions of this module know the inside of a bag, so that programs are not shown it.

import datetime as dt
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, cast

from ..errors import DecodeError, EncodeError, shown
from ..protocol.codes import Fault
from ..protocol.edm import (
    ANNOTATION,
    SYSTEM_MEMBERS,
    Edm,
    Value,
    datetime_from_text,
    decode,
    encode,
    natural_type,
    type_of,
)
from ..protocol.limits import check_key, check_property_name, check_table_name
from ..stores import Row
from .key import Key, Storable, StorableClass
from .reserved import BOUND_TO_KEYS, ENTITY_TYPE, MANIFEST, MOVE, WRITE_TOKENS

_NUMBERS = frozenset({Edm.INT32, Edm.INT64, Edm.DOUBLE})


class PropertyBag(Storable, MutableMapping[str, Any], metaclass=StorableClass):
    """
    The properties of one row by name, each with its EDM type.

        bag = PropertyBag(
            "Directory", "Sales", "emp_000007", {"Name": "Ken", "Age": 41}
        )
        bag["Age"] += 1

    A property keeps its type as long as a new value fits it: an int assigned to an Int32 stays an Int32, and a new int
    becomes an Int64. Assigning None removes the property. Values are read as str, int, float, bool, bytes, UUID or
    aware datetime; a DateTime that you don't change keeps its full 100 ns precision. A value that doesn't match its
    type raises DecodeError.

    Args:
        table: The name of the table.
        partition_key: The PartitionKey, as stored.
        row_key: The RowKey, as stored.
        properties: The initial values. From another bag, the properties are copied as they are stored, with their
            types; if that bag has different keys, the ones in `left_out` aren't copied.

    Attributes:
        left_out: The names of properties that were not copied from a bag with different keys, because they describe
            what is derived from the row under those keys, or how it was written. A warning is issued unless it's only
            `_w`.
    """

    __slots__ = ("_before", "_partial", "_row", "_selected", "left_out", "table")

    def __init__(
        self, table: str, partition_key: str, row_key: str, properties: Mapping[str, Value | None] | None = None
    ) -> None:
        self.table = table
        self._row: Row = {"PartitionKey": partition_key, "RowKey": row_key}
        self._before: Row | None = None
        self._partial = self._selected = False
        self.left_out: tuple[str, ...] = ()
        if isinstance(properties, PropertyBag):
            self._take(properties)
            return
        if properties and not isinstance(cast("object", properties), Mapping):
            kind = type(properties).__name__
            raise self._error(f"is of type {kind}; give a dictionary of values", "properties", properties)
        for name, value in (properties or {}).items():
            self[name] = value

    def copy(self) -> "PropertyBag":
        """Return a copy with the same properties, keys and ETag."""
        copy = bag_of_row(self.table, self._row, partial=self._selected)
        copy._before, copy._partial, copy.left_out = self._before, self._partial, self.left_out
        return copy

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set several properties. From another bag, they keep their types, as when you make a bag of it."""
        if isinstance(other, PropertyBag):
            self._take(other)
            other = ()
        super().update(other, **more)

    def _take(self, other: "PropertyBag") -> None:
        """Take over the properties of another bag as they are stored, but for those that hold under its keys alone."""
        keys, row = (self.partition_key, self.row_key), other._row
        bound = () if keys == (other.partition_key, other.row_key) else BOUND_TO_KEYS
        left_out = tuple(name for name in bound if name in row)
        for name in other:
            if name in left_out:
                continue
            self._check_name(name, row[name])
            self._row.pop(name + ANNOTATION, None)
            self._row.update({member: row[member] for member in (name, name + ANNOTATION) if member in row})
        self.left_out = tuple(dict.fromkeys((*self.left_out, *left_out)))
        if MANIFEST in left_out or MOVE in left_out:
            warnings.warn(
                f"a copy of a PropertyBag of table {other.table!r} under other keys leaves out {', '.join(left_out)}: "
                "rows are derived from the row, such as index entries, and the copy has none; insert the entity, read "
                "by its model, with other key fields instead, or run `tableorm audit --repair` afterwards",
                stacklevel=3,
            )

    def __copy__(self) -> "PropertyBag":
        return self.copy()

    @staticmethod
    def key(table: str, partition_key: str, row_key: str) -> Key["PropertyBag"]:
        """
        Return the key of a row of any kind.

            key = PropertyBag.key("Directory", "Sales", "emp_000007")

        Raises:
            EncodeError: The service would reject the table name or a key.
        """
        try:
            check_table_name(table)
            check_key("PartitionKey", partition_key)
            check_key("RowKey", row_key)
        except Fault as fault:
            raise EncodeError(fault.message, "PropertyBag", "key", (table, partition_key, row_key)) from None
        return Key(PropertyBag, table, partition_key, row_key)

    @property
    def partition_key(self) -> str:
        """The PartitionKey, as stored."""
        return str(self._row["PartitionKey"])

    @property
    def row_key(self) -> str:
        """The RowKey, as stored."""
        return str(self._row["RowKey"])

    @property
    def etag(self) -> str | None:
        """The ETag of the row as it was last read or written; None if it never was."""
        return self._row.get("odata.etag")

    @property
    def timestamp(self) -> dt.datetime | None:
        """When the store last wrote the row; None if it isn't stored yet."""
        text = self._row.get("Timestamp")
        return None if text is None else datetime_from_text(text)

    @property
    def row(self) -> Row:
        """The row itself, in the form that stores use. Changing it changes the bag."""
        return self._row

    def type_of(self, name: str) -> Edm:
        """
        Return the EDM type of a property. Raises KeyError if it doesn't exist, and DecodeError if its type is unknown.

            assert bag.type_of("Count") is Edm.INT32
        """
        if name not in self:
            raise KeyError(name)
        try:
            return type_of(self._row, name)
        except ValueError as error:
            raise self._damaged(name, error) from None

    def set(self, name: str, value: Value, kind: Edm) -> None:
        """
        Set a property with a specific EDM type.

            bag.set("Count", 7, Edm.INT32)

        Raises:
            EncodeError: The name or the value does not fit.
        """
        self._check_name(name, value)
        try:
            json, annotation = encode(value, kind)
        except ValueError as error:
            raise self._error(f"cannot be stored: {error}", name, value) from None
        self._row[name] = json
        if annotation is None:
            self._row.pop(name + ANNOTATION, None)
        else:
            self._row[name + ANNOTATION] = annotation

    def __getitem__(self, name: str) -> Any:
        if not _is_property(name):
            raise KeyError(name)
        try:
            return decode(self._row[name], self._row.get(name + ANNOTATION))
        except (ValueError, TypeError, ArithmeticError) as error:
            raise self._damaged(name, error) from None

    def __setitem__(self, name: str, value: Value | None) -> None:
        if value is None:
            self.pop(name, None)
            return
        try:
            kind = natural_type(value)
        except ValueError as error:
            raise self._error(f"cannot be stored: {error}", name, value) from None
        if name in self:
            stored = self.type_of(name)
            # A number stays the number type that it was; anything else takes the type of the new value.
            if kind is Edm.INT64 and stored in _NUMBERS:
                kind = stored
        self.set(name, value, kind)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        del self._row[name]
        self._row.pop(name + ANNOTATION, None)

    def __iter__(self) -> Iterator[str]:
        return filter(_is_property, self._row)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._row and _is_property(name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PropertyBag):
            return NotImplemented
        return self.table == other.table and _content(self._row) == _content(other._row)

    __hash__ = None  # type: ignore[assignment]  # a bag is mutable

    def __repr__(self) -> str:
        properties = shown_properties(self)
        return f"PropertyBag({self.table!r}, {self.partition_key!r}, {self.row_key!r}, {properties!r})"

    def _check_name(self, name: Any, value: object) -> None:
        if not isinstance(name, str):
            raise self._error(f"cannot be set: a property has a name of type str, not {shown(name)}", str(name), value)
        if not _is_property(name):
            raise self._error("cannot be set: the name belongs to the service", name, value)
        try:
            check_property_name(name)
        except Fault as fault:
            raise self._error(f"cannot be set: {fault.message}", name, value) from None

    def _damaged(self, name: str, error: Exception) -> DecodeError:
        return DecodeError(
            f"has a value that is none of its type ({str(error)[:200]}); `bag.row` has it as it is stored",
            str(self._row.get(ENTITY_TYPE, "PropertyBag")),
            (self.partition_key, self.row_key),
            name,
        )

    def _error(self, problem: str, name: str, value: object) -> EncodeError:
        return EncodeError(
            problem, f"PropertyBag({self.table!r}, {self.partition_key!r}, {self.row_key!r})", name, value
        )


# What the mapper knows of a bag beside what programs do


def bag_of_row(table: str, row: Row, *, partial: bool = False) -> PropertyBag:
    """
    Return a bag that holds a copy of a stored row; what a projection found absent is absent.

    Args:
        table: Name of the table.
        row: The row.
        partial: Whether it is a projection, so that the stored row may have more.
    """
    bag = PropertyBag.__new__(PropertyBag)
    bag.table = table
    bag._row = {name: value for name, value in row.items() if value is not None}
    bag._before = bag._row.copy() if "odata.etag" in bag._row else None
    bag._partial = bag._selected = partial
    bag.left_out = ()
    return bag


def shown_properties(bag: PropertyBag) -> Mapping[str, Any]:
    """Return the properties for a text; as they are stored, if one of them cannot be read."""
    try:
        return dict(bag)
    except DecodeError:
        return {name: bag._row[name] for name in bag}


def stored_row_of(bag: PropertyBag) -> Row | None:
    """Return the row as it was read or last written, whatever was set since; None if it was neither."""
    return bag._before


def read_in_part(bag: PropertyBag) -> bool:
    """Return whether the stored row may have properties that were not read."""
    return bag._partial


def is_projection(bag: PropertyBag) -> bool:
    """Return whether a bag is a projection of a row."""
    return bag._selected


def note_written(bag: PropertyBag, row: Row | None, *, partial: bool = False) -> None:
    """
    Note what a write made of the row: its ETag and Timestamp, and what later changes are compared with.

    Args:
        bag: The bag.
        row: The row as it is stored now; None if it was deleted.
        partial: Whether the stored row may have more properties.
    """
    if row is None:  # what was derived from the row has gone with it
        for name in (MANIFEST, MOVE):
            bag._row.pop(name, None)
    for name in ("odata.etag", "Timestamp", WRITE_TOKENS):
        bag._row.pop(name, None)
        if row is not None and name in row:
            bag._row[name] = row[name]
    bag._before, bag._partial = row, partial or (bag._selected and row is not None)


def note_read(bag: PropertyBag, row: Row) -> None:
    """Let a bag be what was read."""
    bag._row = {name: value for name, value in row.items() if value is not None}
    bag._before = bag._row.copy()
    bag._partial = bag._selected = False


def restore_bag(bag: PropertyBag, earlier: PropertyBag) -> None:
    """Let a bag be again what an earlier copy of it is."""
    bag._row = earlier._row.copy()
    bag._before, bag._partial, bag._selected = earlier._before, earlier._partial, earlier._selected
    bag.left_out = earlier.left_out


def _is_property(name: str) -> bool:
    return name not in SYSTEM_MEMBERS and not name.endswith(ANNOTATION)


def _content(row: Row) -> Row:
    # The wire form, so that 1 and True, or an Int32 and an Int64, differ; ETag and Timestamp are not content.
    return {name: (type(value), value) for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
