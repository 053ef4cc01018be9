"""
Entities as Arrow record batches, by pyarrow: a column for each field, of the type that fits its values.
"""

import datetime as dt
import enum
import importlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import msgspec

from ..errors import ModelError, NotSupported
from ..models.json_values import to_json
from ..models.property_types import FieldInfo, PropertyType
from ..models.schema import Schema
from ..protocol.edm import Edm

_ARROW_TYPES = {
    Edm.STRING: "string",
    Edm.BOOLEAN: "bool_",
    Edm.INT32: "int32",
    Edm.INT64: "int64",
    Edm.DOUBLE: "float64",
    Edm.GUID: "string",
    Edm.BINARY: "binary",
}


def load_pyarrow(what: str, module: str = "pyarrow") -> Any:
    """Return a module of pyarrow. Raises NotSupported if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise NotSupported(f"{what} needs pyarrow: install tableorm with its extra 'arrow'") from error


def arrow_type(pa: Any, kind: Edm) -> Any:
    """Return the type of Arrow that holds the values of a type of the service."""
    return pa.timestamp("us", "UTC") if kind is Edm.DATETIME else getattr(pa, _ARROW_TYPES[kind])()


class _Column(NamedTuple):
    """A field as a column: its type in Arrow, and what makes of a value what Arrow takes."""

    type: Any
    convert: Callable[[Any], Any]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _json(value: Any) -> str:
    return msgspec.json.encode(to_json(value)).decode()


def _column_of(pa: Any, info: FieldInfo) -> _Column:
    kind = info.type
    if info.shape is not None and info.shape.apart:
        return _Column(pa.list_(arrow_type(pa, info.members[0].type.edm)), list)
    if kind.annotation is dt.date:
        return _Column(pa.date32(), _plain)
    if isinstance(kind, PropertyType):
        return _Column(arrow_type(pa, kind.edm), kind.encode if kind.edm in (Edm.STRING, Edm.GUID) else _plain)
    if kind.base in (str, bytes):  # a long one
        return _Column(pa.string() if kind.base is str else pa.binary(), _plain)
    return _Column(pa.string(), _json)


def _columns_of(pa: Any, schemas: Sequence[Schema], only: AbstractSet[str] | None, what: str) -> dict[str, _Column]:
    columns: dict[str, _Column] = {}
    for schema in schemas:
        for name, info in schema.fields.items():
            if only is not None and name not in only and name not in schema.key_holders:
                continue
            column = _column_of(pa, info)
            if columns.setdefault(name, column).type != column.type:
                raise ModelError(f"{what} is rejected: the field {name!r} has several types; query one model at a time")
    return columns


async def arrow_batches(
    entities: AsyncIterable[Any], schemas: Sequence[Schema], only: AbstractSet[str] | None, size: int, what: str
) -> AsyncGenerator[Any, None]:
    """
    Yield entities as record batches; one without rows if there are no entities, so that the columns are known.

    Args:
        entities: The entities.
        schemas: Their models.
        only: The fields to give; None for all.
        size: How many entities a batch has at most.
        what: Names the query, for messages.
    """
    pa = load_pyarrow(what)
    columns = _columns_of(pa, schemas, only, what)
    schema = pa.schema([(name, column.type) for name, column in columns.items()])

    def make_batch() -> Any:
        values = [
            pa.array([None if (value := own.get(name)) is None else column.convert(value) for own in rows], column.type)
            for name, column in columns.items()
        ]
        return pa.RecordBatch.from_arrays(values, schema=schema)

    rows: list[Mapping[str, Any]] = []
    empty = True
    async for entity in entities:
        rows.append(entity.__dict__)
        if len(rows) == size:
            yield make_batch()
            rows, empty = [], False
    if rows or empty:
        yield make_batch()
