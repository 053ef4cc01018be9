"""
Bodies: reads entities from the JSON of clients, and writes them into that of answers, at three levels of metadata.

In between they are `tableorm.stores.Row`, the engine's form: JSON at minimal metadata is the same as what is stored.
"""

import math
import re
from collections.abc import Callable, Generator, Sequence

import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import (
    ANNOTATION,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    SPECIAL_DOUBLES,
    SYSTEM_MEMBERS,
    Edm,
    OutOfRangeError,
    text_from_ticks,
    ticks_from_text,
)
from tableorm.protocol.limits import MAX_ENTITY_BYTES, MAX_VALUE_BYTES, check_key
from tableorm.stores import Row, row_keys

from .addressing import Place, entity_path, table_path
from .calls import Level, invalid_input

Scalar = str | int | float | bool | None

encode_json = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Scalar]).decode

# What is no property, with the members that clients echo. Source: REST, "Payload format".
_IGNORED = SYSTEM_MEMBERS | {"odata.metadata", "odata.type", "odata.id", "odata.editLink"}
# Enough for all properties of an entity, each with its annotation and an annotation of that. A body with more members
# is rejected at once.
_MAX_MEMBERS = 1000
# Enough for an escape of each character of the largest entity, which takes two backslashes or one.
_MAX_BACKSLASHES = MAX_ENTITY_BYTES
# The most characters of a text: more than the base64 of the largest Binary has.
_MAX_TEXT = 2 * MAX_VALUE_BYTES


def read_object(body: bytes) -> dict[str, Scalar]:
    """
    Read a JSON object of plain values.

    Raises:
        Fault: InvalidInput; DuplicatePropertiesSpecified; TooManyProperties, EntityTooLarge.
    """
    if not body:
        raise invalid_input("the request has no body.")
    # Counted before it is decoded, as decoding takes longer.
    strings = _count_strings(body)
    if strings > 2 * _MAX_MEMBERS:
        raise Fault(
            Code.TOO_MANY_PROPERTIES,
            f"The object has {strings} names and texts; at most {2 * _MAX_MEMBERS} are allowed.",
        )
    try:
        members = _decode(body)
    except ValueError as error:
        # The position in the message helps; the rest of it might be long.
        problem = str(error)[:200]
        raise invalid_input(f"the body is not a JSON object of plain values: {problem}.") from None
    # The decoder keeps the last of two members with one name. Then the text has more strings than were decoded.
    if strings != len(members) + sum(type(value) is str for value in members.values()):
        raise Fault(Code.DUPLICATE_PROPERTIES, "A property is specified more than one time; give each name once.")
    return members


def _count_strings(body: bytes) -> int:
    """Return how many strings JSON has, at the speed of a search, whatever is escaped in them."""
    if b"\\" not in body:
        return body.count(b'"') // 2
    backslashes = body.count(b"\\")
    if backslashes > _MAX_BACKSLASHES:
        raise Fault(
            Code.ENTITY_TOO_LARGE,
            f"The object has {backslashes} backslashes; {_MAX_BACKSLASHES} are allowed, enough for an escape of "
            "each character of an entity.",
        )
    body = body.replace(b"\\\\", b"")
    return (body.count(b'"') - body.count(b'\\"')) // 2


def read_entity(body: bytes, keys: tuple[str, str] | None = None) -> Row:
    """
    Read an entity into its canonical form, with annotations only where JSON does not say the type.

    Args:
        body: The JSON.
        keys: PartitionKey and RowKey of the URL, which count; None if the body must have them.

    Raises:
        Fault: InvalidInput, DuplicatePropertiesSpecified; PropertiesNeedValue if a key is missing; OutOfRangeInput;
            TooManyProperties, EntityTooLarge, PropertyValueTooLarge.
    """
    members = read_object(body)
    if len(members) > _MAX_MEMBERS:
        raise Fault(
            Code.TOO_MANY_PROPERTIES, f"The entity has {len(members)} members; at most {_MAX_MEMBERS} are allowed."
        )
    if keys is None:
        keys = _require_key(members, "PartitionKey"), _require_key(members, "RowKey")
    if len(body) > _MAX_TEXT:
        _check_texts(members)
    row: Row = {"PartitionKey": keys[0], "RowKey": keys[1]}
    for name, value in members.items():
        if ANNOTATION in name:
            continue
        if name in _IGNORED or value is None:
            continue
        annotation = members.get(name + ANNOTATION)
        if annotation is not None:
            _put_annotated(row, name, value, annotation)
        elif type(value) is int and not INT32_MIN <= value <= INT32_MAX:
            row[name] = _read_double(name, value)
        else:
            row[name] = value
    _check_annotations(members)
    return row


def _check_texts(members: dict[str, Scalar]) -> None:
    """Refuse a text that no type of property has, as it takes long to read it as one."""
    for name, value in members.items():
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            raise Fault(
                Code.PROPERTY_VALUE_TOO_LARGE,
                f"The property {name[:80]!r} has {len(value)} characters, {_MAX_TEXT} are allowed.",
                property=name[:80],
            )


def _require_key(members: dict[str, Scalar], name: str) -> str:
    value = members.get(name)
    if value is None:
        raise Fault(
            Code.PROPERTIES_NEED_VALUE,
            f"The values are not specified for all properties in the entity. {name} is missing.",
        )
    if not isinstance(value, str) or members.get(name + ANNOTATION, Edm.STRING) != Edm.STRING:
        raise invalid_input(f"{name} is not text.")
    return check_key(name, value)


def _check_annotations(members: dict[str, Scalar]) -> None:
    for name in members:
        # Some clients annotate the annotations that they are sent.
        if name.endswith(ANNOTATION) and name[: -len(ANNOTATION)] not in members:
            raise invalid_input(f"{name[:80]!r} annotates a property that is missing.")
        if ANNOTATION in name and not name.endswith(ANNOTATION):
            raise Fault(Code.PROPERTY_NAME_INVALID, f"The property name {name[:80]!r} is invalid: it has an @.")


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_CANONICAL_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,7})?Z")
_BOOLEANS = {"true": True, "false": False}


def _put_annotated(row: Row, name: str, value: str | float | bool, annotation: Scalar) -> None:  # noqa: FBT001 - JSON has booleans
    """Add a property that has an annotation, in canonical form."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match annotation:
        case Edm.STRING if isinstance(value, str):
            row[name] = value
        case Edm.INT64 if is_whole or _matches(_INTEGER, value):
            row[name + ANNOTATION] = Edm.INT64.value
            row[name] = str(_read_whole(name, value, INT64_MIN, INT64_MAX))
        case Edm.INT32 if is_whole or _matches(_INTEGER, value):
            row[name] = _read_whole(name, value, INT32_MIN, INT32_MAX)
        case Edm.DOUBLE if value in SPECIAL_DOUBLES:
            row[name + ANNOTATION] = Edm.DOUBLE.value
            row[name] = value
        case Edm.DOUBLE if is_whole or isinstance(value, float) or _matches(_DECIMAL, value):
            row[name] = _read_double(name, value)
        case Edm.BOOLEAN if isinstance(value, bool):
            row[name] = value
        case Edm.BOOLEAN if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
            row[name] = _BOOLEANS[value.strip().lower()]
        case Edm.DATETIME if isinstance(value, str):
            row[name + ANNOTATION] = Edm.DATETIME.value
            row[name] = _read_time(name, value)
        case Edm.GUID if isinstance(value, str):
            row[name + ANNOTATION] = Edm.GUID.value
            row[name] = value.lower()
        case Edm.BINARY if isinstance(value, str):
            row[name + ANNOTATION] = Edm.BINARY.value
            row[name] = value  # whoever stores it looks whether it is base64
        case _:
            raise _value_fault(name, value, str(annotation))


def _matches(pattern: re.Pattern[str], value: str | float) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value.strip()) is not None


def _value_fault(name: str, value: Scalar, kind: str) -> Fault:
    return invalid_input(f"{name[:80]}: {str(value)[:40]!r} is not an {kind[:40]}.")


def _read_whole(name: str, value: str | float, least: int, most: int) -> int:
    number = int(value)
    if not least <= number <= most:
        raise _value_fault(name, value, "integer of that size")
    return number


def _read_double(name: str, value: str | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _value_fault(name, value, Edm.DOUBLE)
    return number


def _read_time(name: str, value: str) -> str:
    """Return a time as it was sent if that is in UTC, with no more than 7 digits; else in UTC, with 7."""
    try:
        ticks = ticks_from_text(value)
    except OutOfRangeError as error:
        raise Fault(
            Code.KEY_OUT_OF_RANGE, f"One of the request inputs is out of range: {name[:80]}: {error}."
        ) from None
    except ValueError:
        raise _value_fault(name, value, Edm.DATETIME) from None
    return value if _CANONICAL_MOMENT.fullmatch(value) else text_from_ticks(ticks)


# Answers

_STEPS = 20  # in which a page is encoded


def encode_entity(row: Row, table: str, place: Place, level: Level, hidden: frozenset[str] = frozenset()) -> bytes:
    """Encode one entity. `hidden` are properties that were read only for its links."""
    if level is Level.NONE:
        return encode_json(_strip_metadata(row))
    entity = row if level is Level.MINIMAL else _add_metadata(row, table, place, hidden)
    return encode_json({"odata.metadata": f"{place.root}/$metadata#{table}/@Element", **entity})


def encode_entities(
    rows: Sequence[Row], table: str, place: Place, level: Level, hidden: frozenset[str] = frozenset()
) -> Generator[None, None, bytes]:
    """Encode a page of entities, in steps."""
    parts = list[bytes]()
    # The fewer rows a page has, the larger they may be.
    count = len(rows) // _STEPS + 1
    for start in range(0, len(rows), count):
        some = rows[start : start + count]
        if level is not Level.MINIMAL:
            some = [
                _strip_metadata(row) if level is Level.NONE else _add_metadata(row, table, place, hidden)
                for row in some
            ]
        parts.append(encode_json(some)[1:-1])
        yield
    return _encode_list(b",".join(parts), f"{place.root}/$metadata#{table}", level)


def make_byte_counter(
    table: str, place: Place, level: Level, select: Sequence[str] | None
) -> Callable[[Row], int] | None:
    """Return a function that counts the bytes a row adds to an answer besides those stored; None if it adds none."""
    nulls = 0 if select is None else len(encode_json(dict.fromkeys(select)))
    if level is not Level.FULL:
        return None if select is None else lambda _: nulls

    def count(row: Row) -> int:
        links = _make_links(place, table, entity_path(table, *row_keys(row)))
        return nulls + len(encode_json(links))

    return count


def _encode_list(items: bytes, metadata: str, level: Level) -> bytes:
    if level is Level.NONE:
        return b'{"value":[' + items + b"]}"
    return b'{"odata.metadata":' + encode_json(metadata) + b',"value":[' + items + b"]}"


def _strip_metadata(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "odata.etag" and not name.endswith(ANNOTATION)}


def _add_metadata(row: Row, table: str, place: Place, hidden: frozenset[str]) -> Row:
    full = _make_links(place, table, entity_path(table, *row_keys(row)))
    for name, value in row.items():
        if name == "Timestamp":
            full["Timestamp" + ANNOTATION] = Edm.DATETIME.value
        if name not in hidden:
            full[name] = value
    return full


def _make_table(name: str, place: Place, level: Level) -> Row:
    if level is not Level.FULL:
        return {"TableName": name}
    return {**_make_links(place, "Tables", table_path(name)), "TableName": name}


def _make_links(place: Place, kind: str, path: str) -> Row:
    return {"odata.type": f"{place.account}.{kind}", "odata.id": f"{place.root}/{path}", "odata.editLink": path}


def encode_table(name: str, place: Place, level: Level) -> bytes:
    """Encode one table."""
    head: Row = {} if level is Level.NONE else {"odata.metadata": f"{place.root}/$metadata#Tables/@Element"}
    return encode_json(head | _make_table(name, place, level))


def encode_tables(names: Sequence[str], place: Place, level: Level) -> bytes:
    """Encode a page of tables."""
    items = encode_json([_make_table(name, place, level) for name in names])[1:-1]
    return _encode_list(items, f"{place.root}/$metadata#Tables", level)
