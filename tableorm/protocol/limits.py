"""
The service's limits, each once with its source, and the checks that enforce them.

The mapper runs these checks before a request leaves; the embedded engine runs them on what arrives.
"""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any
from unicodedata import category

from .codes import Code, Fault
from .edm import (
    ANNOTATION,
    INT32_MAX,
    INT32_MIN,
    SYSTEM_MEMBERS,
    Edm,
    OutOfRangeError,
    check_datetime,
    check_text,
    decode,
    utf16_length,
)
from .filters import Filter, check_depth

# 255 including PartitionKey, RowKey and Timestamp.
# Source: "Understanding the Table service data model".
MAX_CUSTOM_PROPERTIES = 252

# It writes the first as "ID", and rows with "Id", "id" and "ETag" fail alike, so letter case does not count.
# Source: "Frequently asked questions about Azure Cosmos DB for Table".
_COSMOS_RESERVED = frozenset({"id", "rid", "etag", "resourceid"})

# 1 KiB, stored as UTF-16. Source: "Understanding the Table service data model", "PartitionKey property".
MAX_KEY_UNITS = 512

# Source: "Understanding the Table service data model", "Property names".
MAX_PROPERTY_NAME = 255

# A String counts as UTF-16. Source: "Understanding the Table service data model", "Property types".
MAX_VALUE_BYTES = 64 * 1024

# Names and values together. Source: "Understanding the Table service data model", "Entities".
MAX_ENTITY_BYTES = 1024 * 1024

# Source: "Performing entity group transactions", "Requirements".
MAX_TRANSACTION_OPERATIONS = 100
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024

# Source: "Query timeout and pagination".
MAX_PAGE = 1000

# Source: "Understanding the Table service data model", "Characters disallowed in key fields".
FORBIDDEN_IN_KEYS = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")

# Most keys are ASCII without those characters, and need only this check.
_PLAIN_KEY = re.compile(r"[ !\"$-.0->@-\[\]-~]{0,512}").fullmatch

_TABLE_NAME = re.compile(r"(?!tables\Z)[a-z][a-z0-9]*", re.ASCII | re.IGNORECASE)
_PLAIN_PROPERTY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch

# A C# identifier, by the Unicode categories of its characters. C# looks at UTF-16 units, and the halves of a surrogate
# pair (Cs) are in neither set. Source: "Understanding the Table service data model", "Property names"; C# language
# specification, "Identifiers".
_FIRST_IN_NAMES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"})
_LATER_IN_NAMES = _FIRST_IN_NAMES | {"Mn", "Mc", "Nd", "Pc", "Cf"}


def check_table_name(name: str) -> None:
    """
    Refuse a table name that the service would refuse.

    Raises:
        Fault: InvalidResourceName or OutOfRangeInput.
    """
    _check_name(name, _TABLE_NAME, "a table name is letters and digits, starts with a letter, and is not 'Tables'")


def key_fault(key: str) -> str | None:
    """Return what is wrong with the text of a PartitionKey or RowKey, or None."""
    if _PLAIN_KEY(key):
        return None
    found = FORBIDDEN_IN_KEYS.search(key)
    if found is not None:
        return f"has the forbidden character U+{ord(found.group()):04X} at position {found.start()}"
    if len(key) > MAX_KEY_UNITS // 2 and utf16_length(key) > MAX_KEY_UNITS:
        return f"has {_length_of(key)}, {MAX_KEY_UNITS} are allowed"
    return check_text(key)


def check_key(name: str, key: object) -> str:
    """
    Refuse a PartitionKey or RowKey (`name` says which) that the service would refuse.

    Raises:
        Fault: OutOfRangeInput; PropertiesNeedValue if it is missing or is not text.
    """
    if type(key) is str and _PLAIN_KEY(key):
        return key  # most keys
    if not isinstance(key, str):
        raise Fault(
            Code.PROPERTIES_NEED_VALUE,
            f"The values are not specified for all properties in the entity: {name} is {key!r}.",
            property=name,
        )
    fault = key_fault(key)
    if fault:
        shown = key if len(key) <= 60 else key[:60] + "..."
        raise Fault(Code.KEY_OUT_OF_RANGE, f"{name} {shown!r} {fault}.", property=name)
    return key


def check_filter(where: Filter) -> None:
    """
    Refuse a filter that nests too deeply to be evaluated or sent.

    Raises:
        Fault: InvalidInput.
    """
    try:
        check_depth(where)
    except ValueError as error:
        raise Fault(Code.INVALID_INPUT, f"{error}.") from None


def bad_in_property_name(name: str) -> int | None:
    """Return where the first character stands that no property name has there; None if all are right."""
    if _PLAIN_PROPERTY_NAME(name):
        return None
    for position, char in enumerate(name):
        allowed = _LATER_IN_NAMES if position else _FIRST_IN_NAMES
        if char > "\uffff" or not (category(char) in allowed or char == "_"):
            return position
    return None if name else 0


def check_property_name(name: str) -> None:
    """
    Refuse a property name that the service would refuse.

    Raises:
        Fault: PropertyNameTooLong or PropertyNameInvalid.
    """
    if len(name) > MAX_PROPERTY_NAME:
        raise Fault(
            Code.PROPERTY_NAME_TOO_LONG,
            f"The property name {name[:40]!r}... has {len(name)} characters, {MAX_PROPERTY_NAME} are allowed.",
            property=name,
        )
    position = bad_in_property_name(name)
    if position is not None:
        found = f"U+{ord(name[position]):04X} at position {position}" if name else "no character"
        raise Fault(
            Code.PROPERTY_NAME_INVALID,
            f"The property name {name!r} is invalid: it has {found}; a name is a letter or _, then letters, digits, "
            "combining marks, connectors such as _, and format characters, none of them beyond U+FFFF.",
            property=name,
        )


def check_cosmos_names(row: Iterable[str]) -> None:
    """
    Refuse the members of a row if Cosmos DB reserves the name of one: it may store such a row, and not read the table.

    Raises:
        Fault: PropertyNameInvalid.
    """
    for name in row:
        if name.lower() in _COSMOS_RESERVED:
            raise Fault(
                Code.PROPERTY_NAME_INVALID,
                f"Cosmos DB reserves the property name {name!r}, in any letter case; store the value under another "
                f"name, as a model does with field(name={name + '_'!r}).",
                property=name,
            )


def check_row(row: dict[str, Any], encoded_size: int | None = None, read: dict[str, Any] | None = None) -> None:
    """
    Refuse a row that the service would refuse: keys, property names, count, types, sizes.

    Args:
        row: PartitionKey, RowKey and properties with their annotations, in canonical form.
        encoded_size: The size of the row as JSON in bytes, if it is known; a small row need not be measured.
        read: The row as it was read. What has the same value and type there is not judged, whatever it is.

    Raises:
        Fault: It has the service's code; `property` names the property that is at fault.
    """
    check_key("PartitionKey", row.get("PartitionKey"))
    check_key("RowKey", row.get("RowKey"))
    check_properties(row, encoded_size, read)


def check_properties(row: dict[str, Any], encoded_size: int | None, read: dict[str, Any] | None = None) -> None:
    """Refuse a row as `check_row` does, except for its keys, which the caller has checked."""
    for name, annotation_name in _shape_of(row):
        value = row[name]
        if annotation_name is None and (
            type(value) is str
            or value is True
            or value is False
            or (type(value) is float and isfinite(value))
            or (type(value) is int and INT32_MIN <= value <= INT32_MAX)
        ):
            continue
        if read is not None and _is_as_read(row, read, name):
            continue
        if annotation_name is not None:
            misfit = _find_misfit(value, row[annotation_name])
        else:
            misfit = ValueError(f"{value!r} is not a value that is stored without a type annotation")
        if misfit is not None:
            code = Code.KEY_OUT_OF_RANGE if isinstance(misfit, OutOfRangeError) else Code.INVALID_INPUT
            raise Fault(code, f"{name}: {misfit}.", property=name)
    # No String can be longer than the whole row.
    if encoded_size is None or encoded_size > MAX_VALUE_BYTES // 2:
        check_sizes(row)


def check_sizes(row: dict[str, Any]) -> None:
    """
    Refuse a row that has too many properties, or is too large, or has a value that is, by its names and values alone.

    Raises:
        Fault: As `check_row`.
    """
    for name, annotation_name in _shape_of(row):
        value, annotation = row[name], None if annotation_name is None else row[annotation_name]
        if type(value) is str and annotation in _SIZED:
            excess = excess_of(value, annotation)
            if excess is not None:
                raise Fault(
                    Code.PROPERTY_VALUE_TOO_LARGE,
                    f"The property {name!r} has {excess[0]}, {excess[1]} are allowed.",
                    property=name,
                )
    size = entity_size(row)
    if size > MAX_ENTITY_BYTES:
        raise Fault(Code.ENTITY_TOO_LARGE, f"The entity has {size} bytes, {MAX_ENTITY_BYTES} are allowed.")


_SIZED = (None, Edm.STRING, Edm.BINARY)


def _is_as_read(row: dict[str, Any], read: dict[str, Any], name: str) -> bool:
    """Return whether a property has the value and the type that were read; no list or object, which no row holds."""
    value, annotation = row[name], name + ANNOTATION
    plain = isinstance(value, str | int) or (type(value) is float and isfinite(value))
    was = read.get(name)
    return plain and type(was) is type(value) and was == value and read.get(annotation) == row.get(annotation)


# Rows of a table have few sets of names. The bounds keep clients that send many, or long ones, from filling the memory.
_SHAPES: dict[tuple[str, ...], tuple[tuple[str, str | None], ...]] = {}
_SHAPES_MAX = 500
_SHAPE_CHARACTERS_MAX = 4 * 1024


def _shape_of(row: dict[str, Any]) -> tuple[tuple[str, str | None], ...]:
    """Check all names of a row; return each property with the name of its annotation, None if it has none."""
    names = tuple(row)
    known = _SHAPES.get(names)
    if known is not None:
        return known
    present = set(names)
    for name in names:
        if name.endswith(ANNOTATION) and name[: -len(ANNOTATION)] not in present:
            raise Fault(Code.INVALID_INPUT, f"{name} annotates a property that the row does not have.", property=name)
    properties = [name for name in names if name not in SYSTEM_MEMBERS and not name.endswith(ANNOTATION)]
    for name in properties:
        check_property_name(name)
    if len(properties) > MAX_CUSTOM_PROPERTIES:
        raise Fault(
            Code.TOO_MANY_PROPERTIES,
            f"The entity has {len(properties)} properties, {MAX_CUSTOM_PROPERTIES} are allowed.",
        )
    shape = tuple((name, name + ANNOTATION if name + ANNOTATION in present else None) for name in properties)
    if sum(map(len, names)) <= _SHAPE_CHARACTERS_MAX:
        if len(_SHAPES) >= _SHAPES_MAX:
            _SHAPES.clear()
        _SHAPES[names] = shape
    return shape


_NATURAL = re.compile(r"0|[1-9][0-9]{0,17}")  # every number of 18 digits is an Int64


def _find_misfit(value: object, annotation: str) -> ValueError | None:
    """Return what is wrong with a value that has an annotation, or None."""
    # The commonest type comes first, and needs no call.
    if annotation == "Edm.Int64" and type(value) is str and _NATURAL.fullmatch(value):
        return None
    try:
        if annotation == "Edm.DateTime" and type(value) is str:
            check_datetime(value)
        else:
            decode(value, annotation)
    except ValueError as error:
        return error
    return None


def value_size(value: str, annotation: str | None = None) -> int:
    """Return the bytes that the service counts of a String, or of the base64 of a Binary."""
    return binary_size(value) if annotation == Edm.BINARY else 2 * utf16_length(value)


def excess_of(value: str, annotation: str | None = None) -> tuple[str, int] | None:
    """Return how long a String or the base64 of a Binary is, and what is allowed, if it is too long for a property."""
    size = value_size(value, annotation)
    if size <= MAX_VALUE_BYTES:
        return None
    return (f"{size} bytes", MAX_VALUE_BYTES) if annotation == Edm.BINARY else (_length_of(value), MAX_VALUE_BYTES // 2)


def _length_of(text: str) -> str:
    """Describe the length of a text as its writer counts, and as the service does if that is another number."""
    units = utf16_length(text)
    counts = "" if units == len(text) else f", which count as {units} UTF-16 code units"
    return f"{len(text)} characters{counts}"


_FIXED_SIZES = {Edm.DATETIME: 8, Edm.DOUBLE: 8, Edm.INT64: 8, Edm.GUID: 16}


def entity_size(row: dict[str, Any]) -> int:
    """
    Return the bytes that a row takes in the service, by the published estimate.

    Source: "Understanding Azure Storage billing": 4 + 2 x (len PK + len RK) + per property 8 + 2 x len(name) + size.
    """
    size = 4 + 2 * (utf16_length(row["PartitionKey"]) + utf16_length(row["RowKey"]))
    for name, value in row.items():
        if name in SYSTEM_MEMBERS or name.endswith(ANNOTATION):
            continue
        size += 8 + 2 * utf16_length(name)
        annotation = row.get(name + ANNOTATION)
        if annotation == Edm.BINARY and isinstance(value, str):  # a damaged row may have anything
            size += 4 + binary_size(value)
        elif annotation in _FIXED_SIZES:
            size += _FIXED_SIZES[Edm(annotation)]
        elif isinstance(value, str):
            size += 4 + 2 * utf16_length(value)
        elif isinstance(value, bool):
            size += 1
        else:
            size += 8 if isinstance(value, float) else 4
    return size


def binary_size(text: str) -> int:
    """Return the number of bytes that a Binary has, given its base64."""
    return len(text) // 4 * 3 - text.endswith("=") - text.endswith("==")


# Queues and blobs

# 64 KiB as the service counts: bodies are any bytes, and travel as base64.
# Source: Queue service REST, "Put Message".
MAX_MESSAGE_BYTES = 48 * 1024

# The most that one take or peek returns. Source: Queue service REST, "Get Messages".
MAX_MESSAGES = 32

# Source: Queue service REST, "Get Messages", "Put Message", "Update Message".
MAX_VISIBILITY_SECONDS = 7 * 86_400

# Source: "Naming and referencing containers, blobs, and metadata", "Blob names".
MAX_BLOB_NAME = 1024

# Names and values together. Source: "Setting and retrieving properties and metadata for Blob resources".
MAX_METADATA_BYTES = 8 * 1024

# The most that one append adds, in versions of the service before 2022-11-02, which the emulator has too.
# Source: Blob service REST, "Append Block".
MAX_APPEND_BYTES = 4 * 1024 * 1024

# Source: Blob service REST, "Append Block".
MAX_APPENDS = 50_000

# Source: Blob service REST, "List Blobs".
MAX_BLOB_PAGE = 5000

_DNS_NAME = re.compile(r"[a-z0-9](?:-?[a-z0-9])*")
_FORBIDDEN_IN_BLOB_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")
_METADATA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Only such a value comes back from a header unchanged.
_METADATA_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def check_queue_name(name: str) -> None:
    """
    Refuse a queue name that the service would refuse.

    Source: "Naming queues and metadata".

    Raises:
        Fault: InvalidResourceName or OutOfRangeInput.
    """
    _check_dns_name("queue", name)


def check_container_name(name: str) -> None:
    """
    Refuse a container name that the service would refuse, and names with a special meaning there (`$root`).

    Source: "Naming and referencing containers, blobs, and metadata".

    Raises:
        Fault: InvalidResourceName or OutOfRangeInput.
    """
    _check_dns_name("container", name)


def _check_dns_name(kind: str, name: str) -> None:
    _check_name(name, _DNS_NAME, f"a {kind} name is lower case letters, digits and single hyphens between them")


def _check_name(name: object, form: re.Pattern[str], rule: str) -> None:
    if not isinstance(name, str):
        raise Fault(Code.INVALID_RESOURCE_NAME, f"The specified resource name is not text: {str(name)[:80]}; {rule}.")
    if not form.fullmatch(name):
        raise Fault(
            Code.INVALID_RESOURCE_NAME,
            f"The specified resource name contains invalid characters: {name[:80]!r}; {rule}.",
        )
    if not 3 <= len(name) <= 63:
        raise Fault(
            Code.KEY_OUT_OF_RANGE,
            f"The specified resource name length is not within the permissible limits: {name[:80]!r} has {len(name)} "
            "characters, 3 to 63 are allowed.",
        )


def check_message(body: object) -> None:
    """Refuse a message that is too large, or not bytes. Raises Fault MessageTooLarge or InvalidInput."""
    if not isinstance(body, bytes):
        raise Fault(Code.INVALID_INPUT, f"A message must be bytes, not {type(body).__name__}; encode it.")
    if len(body) > MAX_MESSAGE_BYTES:
        raise Fault(
            Code.MESSAGE_TOO_LARGE,
            f"The message has {len(body)} bytes, {MAX_MESSAGE_BYTES} are allowed; put larger data into a row or blob "
            "that the message names.",
        )


def check_message_count(count: int) -> None:
    """
    Refuse a number of messages to take or peek at that is not 1 to `MAX_MESSAGES`.

    Raises:
        Fault: OutOfRangeQueryParameterValue.
    """
    if not 1 <= count <= MAX_MESSAGES:
        raise Fault(
            Code.PARAMETER_OUT_OF_RANGE, f"The number of messages is {count}; 1 to {MAX_MESSAGES} are allowed at once."
        )


def check_message_times(delay_seconds: int, ttl_seconds: int | None) -> None:
    """Refuse a message that is hidden for too long, or longer than it lives. Raises what `check_visibility` does."""
    _check_seconds("delay_seconds", delay_seconds, 0, MAX_VISIBILITY_SECONDS)
    if ttl_seconds is not None:
        _check_seconds("ttl_seconds", ttl_seconds, delay_seconds + 1)


def check_visibility(seconds: int, least: int = 0) -> None:
    """
    Refuse a time to hide a message for that is out of bounds.

    Raises:
        Fault: OutOfRangeQueryParameterValue.
    """
    _check_seconds("visibility_seconds", seconds, least, MAX_VISIBILITY_SECONDS)


def _check_seconds(name: str, seconds: int, least: int, most: int | None = None) -> None:
    if seconds < least or (most is not None and seconds > most):
        bounds = f"{least} or more" if most is None else f"{least} to {most}"
        raise Fault(Code.PARAMETER_OUT_OF_RANGE, f"{name} is {seconds}; {bounds} seconds are allowed.")


def check_blob_name(name: str) -> None:
    """
    Refuse a blob name that the service would refuse, or that a URL does not bring back unchanged.

    Source: "Naming and referencing containers, blobs, and metadata", "Blob names".

    Raises:
        Fault: InvalidResourceName or OutOfRangeInput.
    """
    if not 1 <= utf16_length(name) <= MAX_BLOB_NAME:
        raise Fault(
            Code.KEY_OUT_OF_RANGE,
            f"The blob name {name[:40]!r} has {utf16_length(name)} characters, 1 to {MAX_BLOB_NAME} are allowed.",
        )
    problem = check_text(name)
    found = _FORBIDDEN_IN_BLOB_NAMES.search(name)
    if found is not None:
        problem = f"has the forbidden character U+{ord(found.group()):04X} at position {found.start()}"
    elif any(segment.endswith(".") or not segment for segment in name.split("/")):
        problem = "has an empty path segment, or one that ends with a dot"
    if problem is not None:
        raise Fault(Code.INVALID_RESOURCE_NAME, f"The blob name {name[:80]!r} {problem}.")


def check_blob_range(offset: int, length: int | None) -> None:
    """Refuse a part of a blob that is none. Raises Fault InvalidInput."""
    if offset < 0 or (length is not None and length < 1):
        raise Fault(Code.INVALID_INPUT, f"A range has an offset from 0 and a length from 1, not {offset}, {length}.")


def check_blob_list(limit: int, prefix: str, continuation: str | None) -> None:
    """
    Refuse what no page of a list of blobs is read by.

    Raises:
        Fault: OutOfRangeQueryParameterValue or InvalidInput.
    """
    if not 1 <= limit <= MAX_BLOB_PAGE:
        raise Fault(Code.PARAMETER_OUT_OF_RANGE, f"A page has 1 to {MAX_BLOB_PAGE} blobs, not {limit}.")
    for what, text in (("prefix", prefix), ("continuation", continuation or "")):
        problem = check_text(text)
        if problem is not None:
            raise Fault(Code.INVALID_INPUT, f"The {what} {text[:80]!r} {problem}.")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """
    Refuse metadata that the service would refuse, or that a header does not bring back unchanged.

    Source: "Naming and referencing containers, blobs, and metadata", "Metadata names".

    Raises:
        Fault: InvalidMetadata or MetadataTooLarge.
    """
    if len({name.lower() for name in metadata}) != len(metadata):
        raise Fault(Code.INVALID_METADATA, f"Metadata names ignore case; two of {sorted(metadata)!r} are the same.")
    for name, value in metadata.items():
        if not _METADATA_NAME.fullmatch(name):
            raise Fault(
                Code.INVALID_METADATA,
                f"The metadata name {name[:80]!r} is invalid: ASCII letters, digits and _, not starting with a digit.",
            )
        if not _METADATA_VALUE.fullmatch(value):
            raise Fault(
                Code.INVALID_METADATA,
                f"The metadata value {value[:80]!r} of {name!r} is invalid: printable ASCII, at least one character, "
                "no space at either end; encode other text.",
            )
    size = sum(len(name) + len(value) for name, value in metadata.items())
    if size > MAX_METADATA_BYTES:
        raise Fault(Code.METADATA_TOO_LARGE, f"The metadata has {size} bytes, {MAX_METADATA_BYTES} are allowed.")


def check_append(data: object) -> None:
    """
    Refuse an append that is empty, larger than `MAX_APPEND_BYTES`, or not bytes.

    Raises:
        Fault: InvalidInput or RequestBodyTooLarge.
    """
    if not isinstance(data, bytes) or not data:
        raise Fault(
            Code.INVALID_INPUT,
            f"An append must be bytes, at least one of them, not {type(data).__name__} {str(data)[:20]!r}.",
        )
    if len(data) > MAX_APPEND_BYTES:
        raise Fault(
            Code.REQUEST_BODY_TOO_LARGE,
            f"The append has {len(data)} bytes, {MAX_APPEND_BYTES} are allowed; append it in parts.",
        )
