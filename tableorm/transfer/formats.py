"""
How files have rows: as lines of JSON, which are the rows as the service sends them; or as CSV, in which each property
has a column for its value and one for its type, as Azure Storage Explorer writes them.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from typing import Any, BinaryIO, cast

import msgspec

from ..errors import InputFault, InvalidInput, NotSupported
from ..protocol.edm import ANNOTATION, SPECIAL_DOUBLES, SYSTEM_MEMBERS, Edm, decode, edm_type, type_of
from ..stores import Row

Source = Generator[tuple[int, Row, int], None, None]
"""The rows of a file, each with its number (that of its line, where there are lines) and its approximate bytes."""

KEYS = ("PartitionKey", "RowKey")
"""The properties that each row has."""

_OWN = (*KEYS, "Timestamp", "odata.etag")
_TYPE = "@type"
_PLAIN = (Edm.BOOLEAN, Edm.INT32, Edm.DOUBLE)  # values that are no text in JSON, unless they are NaN or infinite
_decode = msgspec.json.Decoder(dict[str, str | int | float | bool | None]).decode


def bad_row(
    name: str, number: int, problem: str, row: Row | None = None, field: str = "", value: object = None
) -> InvalidInput:
    """Return the error of a row of a file: it names the line, the keys and the property."""
    keys = "" if row is None else f", ({row.get(KEYS[0])!r}, {row.get(KEYS[1])!r})"
    return InvalidInput(f"{name}, line {number}{keys}", [InputFault((field,) if field else (), problem, value)])


def refuse_export(row: Row, problem: str) -> NotSupported:
    """Return the error of a row that the format of a file cannot hold."""
    keys = f"({row['PartitionKey']!r}, {row['RowKey']!r})"
    return NotSupported(f"export of {keys} is rejected: {problem}; export JSON Lines, which hold every row")


def chunks(source: Source, most: int, most_bytes: int) -> Generator[list[tuple[int, Row]], None, None]:
    """Yield the rows of a source with their numbers, some at a time: so many, and about so many bytes, at most."""
    found: list[tuple[int, Row]] = []
    left = most_bytes
    with closing(source):
        for number, row, size in source:
            found.append((number, row))
            left -= size
            if len(found) == most or left <= 0:
                yield found
                found, left = [], most_bytes
    if found:
        yield found


# JSON Lines


def encode_row(row: Row) -> bytes:
    """Return a row as a line of JSON, each type directly before its value, as the service sends it."""
    ordered: Row = {}
    for name, value in row.items():
        kind = row.get(name + ANNOTATION)
        if kind is not None:
            ordered.pop(name + ANNOTATION, None)
            ordered[name + ANNOTATION] = kind
        ordered[name] = value
    try:
        return msgspec.json.encode(ordered) + b"\n"
    except (TypeError, ValueError):  # half of a surrogate pair has no form in UTF-8, but an escape in JSON
        return json.dumps(ordered, separators=(",", ":")).encode("ascii") + b"\n"


def json_lines(file: BinaryIO, name: str) -> Source:
    """Yield the rows of a file of JSON Lines. Raises InvalidInput for a line that is not an object of plain values."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row: Row = _decode(line)
        except msgspec.DecodeError as error:
            odd = _decode_escapes(line)
            if odd is None:
                raise bad_row(name, number, f"is not a row: {error}", value=line[:80]) from None
            row = odd
        yield number, row, len(line)


def _decode_escapes(line: bytes) -> Row | None:
    """Return a row that has half of a surrogate pair as an escape; None if it is not one."""
    try:
        row = cast("Row", json.loads(line))
        return row if all(isinstance(each, str | int | float | None) for each in row.values()) else None
    except (ValueError, AttributeError, RecursionError):
        return None


# CSV


def spooled(spool: BinaryIO) -> Source:
    """Yield the rows of a temporary file, in which they wait as lines of JSON until all columns are known."""
    spool.seek(0)
    return json_lines(spool, "the temporary file")


def write_csv(spool: BinaryIO, file: BinaryIO) -> None:
    """Write the rows of a temporary file as CSV. Raises NotSupported for a row that it cannot hold."""
    columns: dict[str, None] = {}
    for _, row, _ in spooled(spool):
        columns |= dict.fromkeys(name for name in row if not name.endswith(ANNOTATION))
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    write = csv.writer(text).writerow
    own = [name for name in _OWN if name in columns or name in KEYS]
    names = [name for name in columns if name not in _OWN]
    write([*own, *(column for name in names for column in (name, name + _TYPE))])
    for _, row, _ in spooled(spool):
        try:
            write([*map(row.get, own), *(cell for name in names for cell in _to_cells(row, name))])
        except UnicodeEncodeError:
            raise refuse_export(row, "a text has half of a surrogate pair, which CSV cannot hold") from None
    text.detach()


def _to_cells(row: Row, name: str) -> tuple[str, str]:
    """Return the value of a property and its type."""
    value = row.get(name)
    if value is None:
        return "", ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text, str(row.get(name + ANNOTATION) or type_of(row, name).value)


def csv_rows(file: BinaryIO, name: str) -> Source:
    """
    Yield the rows of a CSV file. A column without one of types has texts, of which an empty one is none.

    Raises:
        InvalidInput: A line does not have the columns that the first line names, or a cell does not fit its type.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    lines = csv.reader(text, strict=True)
    try:
        header = next(lines, list[str]())
        (most, count), *_ = Counter(header).most_common(1) or [("", 0)]
        if count > 1:
            raise bad_row(name, 1, "is the name of several columns", value=most)
        for cells in lines:
            if len(cells) != len(header):
                raise bad_row(name, lines.line_num, f"are not {len(header)} cells, one for each column", value=cells)
            row = _read_cells(name, lines.line_num, dict(zip(header, cells, strict=True)))
            yield lines.line_num, row, 2 * sum(map(len, cells))
    except (csv.Error, UnicodeDecodeError) as error:
        raise bad_row(name, lines.line_num or 1, f"is not CSV in UTF-8: {error}", value=name) from None
    finally:
        text.detach()


def _read_cells(name: str, number: int, cells: dict[str, str]) -> Row:
    row: Row = {key: cells[key] for key in KEYS if key in cells}
    for column, text in cells.items():
        kind = cells.get(column + _TYPE, "String" if text else "")
        if column in SYSTEM_MEMBERS or column.endswith(_TYPE) or not (kind or text):
            continue
        try:
            row |= _read_cell(column, text, edm_type(f"Edm.{kind.removeprefix('Edm.')}"))
        except ValueError:
            problem = f"is not of the type {kind!r} that the column {column + _TYPE!r} says"
            raise bad_row(name, number, problem, row, column, text) from None
    return row


def _read_cell(column: str, text: str, kind: Edm) -> Row:
    """Return a property of a row. Raises ValueError if the text is none of the type."""
    if kind is Edm.STRING:
        return {column: text}
    if kind not in _PLAIN or text in SPECIAL_DOUBLES:
        return {column: text, column + ANNOTATION: kind.value}
    value: Any = json.loads(text.lower())
    if kind is Edm.DOUBLE and type(value) is int:
        value = float(value)
    decode(value, kind)
    return {column: value}
