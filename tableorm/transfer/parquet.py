"""
Parquet files of rows, by pyarrow. A property is a column of its type; one that has several types has a column for each.

Each column says in its metadata which property it is, and of which type, so that it comes back exactly. Moments are
microseconds; or text, if one of them is finer.
"""

from collections import Counter
from typing import Any, BinaryIO

from ..protocol.edm import (
    ANNOTATION,
    SYSTEM_MEMBERS,
    TICKS_PER_MICROSECOND,
    Edm,
    decode,
    edm_type,
    encode,
    natural_type,
    ticks_from_text,
    type_of,
)
from ..queries.arrow import arrow_type, load_pyarrow
from ..stores import Row
from .formats import KEYS, Source, bad_row, chunks, refuse_export, spooled

_PROPERTY, _TYPE = b"tableorm.property", b"tableorm.type"
_GROUP_ROWS, _GROUP_BYTES = 10_000, 1 << 25
_BATCH = 1_000


def write_parquet(spool: BinaryIO, file: BinaryIO) -> None:
    """Write the rows of a temporary file as Parquet. Raises NotSupported for a row that it cannot hold."""
    pa, parquet = load_pyarrow("Parquet"), load_pyarrow("Parquet", "pyarrow.parquet")
    own: dict[str, None] = dict.fromkeys(KEYS)
    columns: dict[tuple[str, Edm], bool] = {}  # of each property and type, whether it is stored as text
    for _, row, _ in spooled(spool):
        for name, value in row.items():
            if name in SYSTEM_MEMBERS:
                own[name] = None
            elif value is not None and not name.endswith(ANNOTATION):
                try:
                    key, text = (name, type_of(row, name)), _is_text(row, name, value)
                except ValueError as error:
                    raise refuse_export(row, f"{name} has a value that Parquet cannot hold: {error}") from error
                columns[key] = columns.get(key, False) or text
    types = Counter(name for name, _ in columns)
    fields = [pa.field(name, pa.string()) for name in own]
    for (name, kind), text in columns.items():
        title = name if types[name] == 1 else f"{name}@{kind}"
        metadata = {_PROPERTY: name, _TYPE: kind.value}
        fields.append(pa.field(title, pa.string() if text else arrow_type(pa, kind), metadata=metadata))
    schema = pa.schema(fields)
    with parquet.ParquetWriter(file, schema) as writer:
        for group in chunks(spooled(spool), _GROUP_ROWS, _GROUP_BYTES):
            rows = [row for _, row in group]
            values = [[row.get(name) for row in rows] for name in own]
            values += [[_value_of(row, *key, text=text) for row in rows] for key, text in columns.items()]
            arrays = [pa.array(some, field.type) for some, field in zip(values, fields, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _is_text(row: Row, name: str, value: Any) -> bool:
    """Return whether a value can only be stored as text. Raises ValueError if it cannot be stored."""
    kind = type_of(row, name)
    decode(value, row.get(name + ANNOTATION))
    if isinstance(value, str):
        value.encode()  # refuses half of a surrogate pair
    return kind is Edm.GUID or (kind is Edm.DATETIME and ticks_from_text(value) % TICKS_PER_MICROSECOND != 0)


def _value_of(row: Row, name: str, kind: Edm, *, text: bool) -> Any:
    """Return what Arrow takes for a property of a row; None if it is absent, or of another type."""
    value = row.get(name)
    if value is None or type_of(row, name) is not kind:
        return None
    return value if text else decode(value, row.get(name + ANNOTATION))


def parquet_rows(file: BinaryIO, name: str) -> Source:
    """
    Yield the rows of a Parquet file, which another program may have written: then types are those of the values.

    Raises:
        InvalidInput: The file is damaged, or has values that no row has.
    """
    pa, parquet = load_pyarrow("Parquet"), load_pyarrow("Parquet", "pyarrow.parquet")
    number = 0
    try:
        opened = parquet.ParquetFile(file)
        columns = [_read_field(pa, field) for field in opened.schema_arrow]
        for batch in opened.iter_batches(batch_size=_BATCH):
            size = batch.nbytes // max(1, batch.num_rows)
            for values in zip(*(_read_column(pa, column) for column in batch.columns), strict=True):
                number += 1
                row: Row = {}
                for (property_, kind), value in zip(columns, values, strict=True):
                    if value is not None:
                        row |= _read_value(name, number, property_, kind, value, row)
                yield number, row, size
    except pa.ArrowException as error:
        raise bad_row(name, number + 1, f"is not Parquet of rows: {error}", value=name) from None


def _read_field(pa: Any, field: Any) -> tuple[str, Edm | None]:
    """Return the property of a column and its type; no type if that depends on the value."""
    if field.metadata and _TYPE in field.metadata:
        return field.metadata[_PROPERTY].decode(), edm_type(field.metadata[_TYPE].decode())
    return field.name, Edm.INT32 if field.type == pa.int32() else None


def _read_column(pa: Any, column: Any) -> list[Any]:
    whole = column.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) else column
    values: list[Any] = whole.to_pylist()
    return values


def _read_value(name: str, number: int, property_: str, kind: Edm | None, value: Any, row: Row) -> Row:
    """Return a property of a row."""
    if property_ in SYSTEM_MEMBERS:
        return {property_: value} if property_ in KEYS else {}
    if kind is not None and kind in (Edm.GUID, Edm.DATETIME) and isinstance(value, str):
        return {property_: value, property_ + ANNOTATION: kind.value}
    try:
        json, annotation = encode(value, kind or natural_type(value))
    except ValueError as error:
        raise bad_row(name, number, f"does not fit: {error}", row, property_, value) from None
    return {property_: json} if annotation is None else {property_: json, property_ + ANNOTATION: annotation}
