"""
Looking up index lists: the rows of a list, then the entities that it names.
"""

import heapq
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from itertools import groupby, islice
from typing import Any, TypeVar

from ...connection.blobs import require_blobs
from ...connection.connection import TURN, Connection
from ...connection.index_states import find_unreadable, not_readable
from ...connection.nearby import NearbyRows
from ...connection.rows import is_place, read_row
from ...connection.tasks import work_off
from ...errors import ModelError, TableOrmError, TemplateError
from ...jobs.scan import pages
from ...keys.ranges import KeyRegion, key_order
from ...models.derivation import IndexOf, bound_to, refuse_building
from ...models.entity import Entity
from ...models.reserved import ENTITY_TYPE
from ...protocol.limits import MAX_PAGE
from ...stores import Bounds, Row, RowAddress
from .index_list import BlobListMaintainer, ListOf
from .rows import SEPARATOR, ListSchema, split_address

E = TypeVar("E", bound=Entity)

_AT_ONCE = 2000
"""Keys that are sorted at once, which takes a millisecond or two. More are sorted in parts, which are merged."""

_find_keys = re.compile(r"([^\t]*)\t([^\n]*)\n").finditer


async def look_up(
    db: Connection, load: Callable[[Row], E | None], index: ListOf[E], fields: dict[str, Any], concurrency: int
) -> list[E]:
    """
    Return the entities of an index list, in key order.

    Args:
        db: The database.
        load: Makes a row of the model of the list into an entity; None for one that is not shown.
        index: The index list.
        fields: The fields of the list's key and of the PartitionKey.
        concurrency: Requests at the same time, at most.

    Raises:
        ModelError: It is not an index list of one concrete class, or `concurrency` is not a number from 1.
        TemplateError: A field is missing, unknown, or does not fit.
        DecodeError: A row does not fit its model.
        NotSupported: Entities may be missing in the list.
    """
    given: Any = index
    if not isinstance(given, ListOf):
        if isinstance(given, IndexOf):
            raise ModelError(f"lookup({index!r}) is rejected: it is an index; read it by db.select({index!r})")
        raise ModelError(f"lookup({index!r}) is rejected: give an index list of a model, as Employee.by_last_name")
    if type(concurrency) is not int or concurrency < 1:
        raise ModelError(f"lookup(concurrency={concurrency!r}) is rejected: give a number from 1")
    schemas = bound_to(index, ListSchema)
    if len(schemas) != 1:
        raise ModelError(f"{index} is of an abstract model: look up the list of one of its concrete classes")
    schema = schemas[0]
    fields = db.boundary.fill_key(schema.primary, fields, schema.key_names)
    if fields.keys() != schema.key_names:
        wanted = ", ".join(sorted(schema.key_names))
        raise TemplateError(f"needs {wanted}; given are {', '.join(fields)}", schema.label, "row_key", schema.row.text)
    partition_key, list_key = schema.list_partition.format(fields), schema.row.format(fields)
    if isinstance(schema, BlobListMaintainer):
        await require_blobs(
            db, f"{schema.label} keeps its lists in blobs"
        )  # a token opens none, whatever the store says of the list
    refuse_building(index, schemas)
    declaration = schema.declaration if schema.building is None else None
    if declaration is not None and await find_unreadable(db, (declaration,)):
        raise not_readable(db, declaration)
    if isinstance(schema, BlobListMaintainer):
        parts = schema.members_of(db, partition_key, list_key)
    else:
        parts = _read_members(db, schema, partition_key, list_key)
    table = schema.primary.table_name()
    packed, rest = list[str](), set[tuple[str, str]]()
    async with aclosing(parts) as all_parts:
        async for some in all_parts:
            if db.boundary.narrows:  # a list that scopes share has the keys of others too
                rest.update(key for key in some if db.boundary.holds_row(schema.primary, RowAddress(table, *key)))
            else:
                rest.update(some)
            if len(rest) > _AT_ONCE:
                packed.append(_pack(rest))
                rest.clear()
    runs = [*map(_unpack, packed), sorted(rest, key=key_order)]
    keys = (key for key, _ in groupby(heapq.merge(*runs, key=key_order)))
    nearby = NearbyRows(db, table, name=schema.primary.name, concurrency=concurrency)
    entities: list[E] = []
    known: Mapping[tuple[str, str], Row | None] = {}
    found: dict[tuple[str, str], E] = {}

    async def load_member(key: tuple[str, str]) -> None:
        address = RowAddress(table, *key)
        try:
            row = known[key] if key in known else await read_row(db, address, name=schema.primary.name)
        except TableOrmError:
            if is_place(address):
                raise
            row = None  # who may write a list may name a key that no row can have
        await db.yield_to_loop(concurrency)  # of so many tasks, each of which has its turn
        # It may have left the list since that was read.
        entity = load(row) if row is not None and schema.is_listed(row, partition_key, list_key) else None
        if entity is not None:
            found[key] = entity

    while some := list(islice(keys, MAX_PAGE)):
        ranges = [key for key in some if db.boundary.holds_partition(schema.primary, key[0])]
        known, found = await nearby.read(ranges), {}
        await work_off(load_member, some, min(concurrency, len(some)))
        entities += [found[key] for key in some if key in found]
    return entities


def _pack(members: Iterable[tuple[str, str]]) -> str:
    """Return keys in their order, as a text that takes less memory; none has a tab or the end of a line."""
    return "".join([f"{partition_key}\t{row_key}\n" for partition_key, row_key in sorted(members, key=key_order)])


def _unpack(packed: str) -> Iterator[tuple[str, str]]:
    return ((found[1], found[2]) for found in _find_keys(packed))


async def _read_members(
    db: Connection, schema: ListSchema, partition_key: str, list_key: str
) -> AsyncGenerator[list[tuple[str, str]]]:
    """
    Yield the keys of the entities in all rows of a list, some at a time; other tasks run in between.

    A row that is divided into two while they are read sorts before both, so that no key is missed.
    """
    first = list_key + SEPARATOR
    rows_of_list = KeyRegion(Bounds.only(partition_key), Bounds(first, first + "2", upper_open=True))
    found = pages(db, str(schema.table), None, [rows_of_list], None, f"lookup of {schema.label}")
    async with aclosing(found) as all_pages:
        async for rows in all_pages:
            for row in rows:
                address = split_address(row["RowKey"])
                if row.get(ENTITY_TYPE) != schema.kind or address is None or address[0] != list_key:
                    continue
                members = iter(schema.members(row))
                while some := list(islice(members, TURN)):
                    yield some
                    await db.yield_to_loop(len(some))
