"""
Codec: rows to and from the bodies of requests, the service's JSON at minimalmetadata.

Values that services write in several ways (digits of a DateTime, a Double with a type or without) get one form. A value
that is none of its type, such as a date before 1601 that Azurite has stored, stays as it came, with its annotation.
"""

import json
import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, NoReturn, cast
from uuid import UUID

import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import (
    ANNOTATION,
    INT32_MAX,
    INT32_MIN,
    SPECIAL_DOUBLES,
    BrokenText,
    Edm,
    check_datetime,
    check_text,
    special_text,
    text_from_ticks,
    ticks_from_text,
)
from tableorm.protocol.limits import MAX_VALUE_BYTES, check_properties, check_sizes
from tableorm.stores import Operation, Row, clean_row, encode_row, project

_Members = dict[str, str | int | float | bool | None]


class _Page(msgspec.Struct):
    value: list[_Members]


_page_decoder, _row_decoder = msgspec.json.Decoder(_Page), msgspec.json.Decoder(_Members)

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
# What is raised by JSON that is not of a row, for example if it nests deeply, or by values of another type.
_MISFITS = (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
_DATETIME_LENGTH = len("2024-02-29T12:34:56.7891234Z")
# What each row has, unless other properties are selected.
_OWN = ("odata.etag", "PartitionKey", "RowKey")
# Members that are not the row's own, at some level of metadata.
_METADATA = frozenset({"odata.metadata", "odata.type", "odata.id", "odata.editLink"}) | {
    name + ANNOTATION for name in ("PartitionKey", "RowKey", "Timestamp")
}

_Shape = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]
"""For rows with certain names: the properties with an annotation, and the members that are not the row's own."""

# Rows of a table have few sets of names. The bounds keep odd tables and hostile servers from filling the memory.
_SHAPES: dict[tuple[str, ...], _Shape] = {}
_SHAPES_MAX = 500
_SHAPE_CHARACTERS_MAX = 4 * 1024


def encode_body(operation: Operation) -> bytes:
    """
    Return the body of an insert, replace or merge. Every Double has its type, so that 3.0 stays 3.0 everywhere.

    Args:
        operation: The operation, whose keys are checked.

    Raises:
        Fault: The service would refuse the row, or change a value.
    """
    row, canonical = operation.row, operation.canonical
    clean = row if canonical else clean_row(row, row["PartitionKey"], row["RowKey"])
    doubles = [name for name, value in clean.items() if type(value) is float]
    members = {**clean, **{name + ANNOTATION: "Edm.Double" for name in doubles}} if doubles else clean
    try:
        body = encode_row(members)
    except Fault:
        if not canonical:
            raise
        body = json.dumps(members).encode("ascii")  # a lone surrogate that was read is sent back as an escape
    if not canonical:
        check_properties(clean, len(body))
    elif len(body) > MAX_VALUE_BYTES // 2:  # in a smaller row no value is too large
        check_sizes(clean)
    return body


def in_ascii(body: bytes) -> bytes:
    """
    Return the same JSON in ASCII. Azurite 3.35 decodes a body piece by piece, and damages a character that lies across
    two pieces.
    """
    if body.isascii():
        return body
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], body.decode()).encode("ascii")


def decode_page(body: bytes, select: Sequence[str] | None = None) -> list[Row]:
    """
    Decode the rows of a page.

    Args:
        body: The answer to a query.
        select: The properties that were asked for. A property that a row lacks is None; others are dropped.

    Raises:
        Fault: The body is not a page of rows.
    """
    try:
        rows: list[Row]
        try:
            rows = _page_decoder.decode(body).value
        except msgspec.DecodeError as error:
            rows = _decode_odd_rows(body, error)
        names: tuple[str, ...] = ()
        shape: _Shape = ((), ())
        for row in rows:
            # Mostly the names of the previous row: comparing them takes a third of the time of looking them up.
            if names != (now := tuple(row)):
                names, shape = now, _shape_of(now)
            _normalise(row, shape, whole=select is None)
    except _MISFITS as error:
        raise _unreadable_fault(body, error) from error
    return rows if select is None else [project(row, select) for row in rows]


def decode_row(body: bytes, select: Sequence[str] | None = None) -> Row:
    """Decode a row, as `decode_page` does."""
    try:
        row: Row
        try:
            row = _row_decoder.decode(body)
        except msgspec.DecodeError as error:
            row = _as_row(json.loads(body.decode()), error)
        _normalise(row, _shape_of(tuple(row)), whole=select is None)
    except _MISFITS as error:
        raise _unreadable_fault(body, error) from error
    return row if select is None else project(row, select)


def _decode_odd_rows(body: bytes, error: msgspec.DecodeError) -> list[Row]:
    """Decode rows that have a value which no property has: a list, an object, half of a surrogate pair, `Infinity`."""
    return [_as_row(row, error) for row in json.loads(body.decode())["value"]]


def _as_row(found: object, error: msgspec.DecodeError) -> Row:
    """Return an object as a row, with infinite numbers as the service spells them. Raises ValueError."""
    row = cast("Row", found) if isinstance(found, dict) else _refuse(error)
    for name, value in list(row.items()):
        if type(value) is str:
            if check_text(value):
                row[name] = BrokenText(value)
        elif type(value) is float and not isfinite(value):
            row[name] = special_text(value)
            row[name + ANNOTATION] = Edm.DOUBLE.value
    return row


def _refuse(error: Exception) -> NoReturn:
    raise error


def _unreadable_fault(body: bytes, error: Exception) -> Fault:
    return Fault(
        Code.INTERNAL_ERROR, f"The answer is not a row of the Table service ({str(error)[:200]}): {body[:80]!r}."
    )


def _normalise(row: Row, shape: _Shape, *, whole: bool) -> None:
    typed, foreign = shape
    for name in _OWN:
        if type(value := row.get(name)) is not str and (whole or name in row) and type(value) is not BrokenText:
            raise ValueError(f"its {name} is {value!r}")
    for name in foreign:
        del row[name]
    stamp = row.get("Timestamp")
    if stamp is not None and len(stamp) != _DATETIME_LENGTH:
        row["Timestamp"] = text_from_ticks(ticks_from_text(stamp))
    for name, annotation in typed:
        kind, value = row[annotation], row[name]
        if kind == "Edm.Int64" or kind == "Edm.Binary" or value is None:  # noqa: PLR1714 - faster than a set
            continue
        if kind == "Edm.DateTime" and type(value) is str and len(value) == _DATETIME_LENGTH and value[27] == "Z":
            continue
        try:
            plain, typed_still = _respell(kind, value)
        except (ValueError, TypeError, OverflowError):
            continue  # it is none of its type, and stays as it came
        row[name] = plain
        if not typed_still:
            del row[annotation]


def _respell(kind: object, value: Any) -> tuple[Any, bool]:
    """
    Return a value in the one form that it has in rows, and whether it has an annotation there.

    Raises:
        ValueError: It is none of that type, or there is no such type. TypeError and OverflowError mean the same.
    """
    if kind == "Edm.DateTime":
        check_datetime(value)  # more digits than seven would be lost
        return text_from_ticks(ticks_from_text(value)), True
    if kind == "Edm.Guid":
        text = str(value).lower()
        if text != value and str(UUID(text)) != text:
            raise ValueError(text)
        return text, True
    if kind == "Edm.Double":
        if value in SPECIAL_DOUBLES:
            return value, True
        number = float(value)
        if type(value) is bool or not isfinite(number) or "_" in str(value):
            raise ValueError(value)
        return number, False
    if (
        (kind == "Edm.String" and type(value) is str)
        or (kind == "Edm.Boolean" and type(value) is bool)
        or (kind == "Edm.Int32" and type(value) is int and INT32_MIN <= value <= INT32_MAX)
    ):
        return value, False
    raise ValueError(kind)


def _shape_of(names: tuple[str, ...]) -> _Shape:
    known = _SHAPES.get(names)
    if known is not None:
        return known
    foreign = tuple(name for name in names if name in _METADATA)
    present = set(names).difference(foreign)
    typed = tuple((name, name + ANNOTATION) for name in names if name + ANNOTATION in present and name in present)
    shape = typed, foreign
    if len(_SHAPES) < _SHAPES_MAX and sum(map(len, names)) <= _SHAPE_CHARACTERS_MAX:
        _SHAPES[names] = shape
    return shape
