"""
A store in plain dictionaries: the simplest form of the contract, with which random tests compare other stores.

It shares no code with the embedded engine beyond `tableorm.protocol` and the checks that every store makes. It copies
every row on its way in and out, stores nothing on disk, and is not meant to be fast.
"""

import asyncio
from collections.abc import Sequence

from ...protocol.codes import Code, Fault
from ...protocol.edm import ANNOTATION, etag_from_ticks, text_from_ticks, utf16_key
from ...protocol.filters import compile_filter
from ...protocol.limits import check_filter, check_key, check_row, check_table_name
from ...stores import (
    CONDITIONAL,
    MERGES,
    Capabilities,
    Operation,
    Row,
    RowPage,
    RowQuery,
    Verb,
    check_if_match,
    check_page_limit,
    check_transaction,
    check_transaction_size,
    clean_row,
    encode_row,
    project,
    with_index,
)

_Key = tuple[bytes, bytes]
_Rows = dict[_Key, Row]

# 2024-01-01. Only writes advance this clock.
_FIRST_TICK = 638_396_640_000_000_000


class MemoryStore:
    """A `TableStore` for comparison, in which no operation awaits between its checks and its effect."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[str, _Rows]] = {}
        self._tick = _FIRST_TICK

    @property
    def capabilities(self) -> Capabilities:
        """The store can do everything but keep data durably."""
        return Capabilities(durable=False)

    async def create_table(self, table: str) -> None:
        """Create a table. Fault TableAlreadyExists if one has that name in any letter case."""
        check_table_name(table)
        if table.lower() in self._tables:
            raise Fault(Code.TABLE_EXISTS, "The table specified already exists.")
        self._tables[table.lower()] = table, {}

    async def delete_table(self, table: str) -> None:
        """Delete a table and its rows. Fault ResourceNotFound if there is none."""
        check_table_name(table)
        if self._tables.pop(table.lower(), None) is None:
            raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")

    async def list_tables(self) -> list[str]:
        """Names of all tables as created, ordered without regard to case."""
        return [self._tables[folded][0] for folded in sorted(self._tables)]

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """Read one row. Fault ResourceNotFound or TableNotFound."""
        rows = self._rows(table)
        check_key("PartitionKey", partition_key)
        check_key("RowKey", row_key)
        row = rows.get((utf16_key(partition_key), utf16_key(row_key)))
        if row is None:
            raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")
        return _copy(row, select)

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """Read one page of at most `limit` rows."""
        await asyncio.sleep(0)
        check_page_limit(limit)
        after = None if continuation is None else _position(continuation)
        where = query.filter
        if where is not None:
            check_filter(where)
        test = None if where is None else compile_filter(where)
        found: list[Row] = []
        last: _Key | None = None
        for key, row in sorted(self._rows(table).items()):
            if after is not None and key <= after:
                continue
            if test is not None and not test(row):
                continue
            if len(found) == limit and last is not None:
                return RowPage(found, f"{last[0].hex()}.{last[1].hex()}")
            found.append(_copy(row, query.select))
            last = key
        return RowPage(found, None)

    async def write(self, table: str, operation: Operation) -> str | None:
        """Do one operation and return the row's new ETag, None after a delete."""
        rows = self._rows(table)
        return self._apply(rows, operation, _check(operation))

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """Do 1 to 100 operations on different rows of one partition, in order and all or nothing."""
        rows = self._rows(table)
        check_transaction(operations)
        prepared: list[Row] = []
        for index, operation in enumerate(operations):
            try:
                prepared.append(_check(operation))
            except Fault as fault:
                raise with_index(fault, index) from None
        check_transaction_size(sum(len(encode_row(row)) for row in prepared))
        before, tick = dict(rows), self._tick
        results: list[str | None] = []
        try:
            for operation, row in zip(operations, prepared, strict=True):
                results.append(self._apply(rows, operation, row))
        except Fault as fault:
            rows.clear()
            rows.update(before)
            self._tick = tick
            raise with_index(fault, len(results)) from None
        return results

    def _rows(self, table: str) -> _Rows:
        found = self._tables.get(table.lower())
        if found is None:
            raise Fault(Code.TABLE_NOT_FOUND, "The table specified does not exist.")
        return found[1]

    def _apply(self, rows: _Rows, operation: Operation, row: Row) -> str | None:
        key = utf16_key(row["PartitionKey"]), utf16_key(row["RowKey"])
        stored = rows.get(key)
        if operation.verb is Verb.INSERT and stored is not None:
            raise Fault(Code.ENTITY_EXISTS, "The specified entity already exists.")
        if operation.verb in CONDITIONAL:
            if stored is None:
                raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")
            if operation.if_match not in ("*", stored["odata.etag"]):
                raise Fault(Code.CONDITION_NOT_SATISFIED, "The update condition was not satisfied.")
        if operation.verb is Verb.DELETE:
            del rows[key]
            return None
        if stored is not None and operation.verb in MERGES:
            kept = {
                name: value for name, value in stored.items() if name.removesuffix(ANNOTATION) not in row or name in row
            }
            row = {**kept, **row}
            check_row(row)
        self._tick += 1
        etag = etag_from_ticks(self._tick)
        rows[key] = {**row, "odata.etag": etag, "Timestamp": text_from_ticks(self._tick)}
        return etag


def _check(operation: Operation) -> Row:
    """Return a copy of what an operation stores, if it is valid."""
    row = operation.row
    partition_key, row_key = (check_key(name, row.get(name)) for name in ("PartitionKey", "RowKey"))
    check_if_match(operation.verb, operation.if_match)
    if operation.verb is Verb.DELETE:
        return {"PartitionKey": partition_key, "RowKey": row_key}
    row = clean_row(row, partition_key, row_key)  # a copy
    check_row(row, len(encode_row(row)))
    return row


def _copy(row: Row, select: tuple[str, ...] | None) -> Row:
    return dict(row) if select is None else project(row, select)


def _position(continuation: str) -> _Key:
    try:
        partition_key, row_key = continuation.split(".")
        return bytes.fromhex(partition_key), bytes.fromhex(row_key)
    except ValueError:
        raise Fault(Code.INVALID_INPUT, f"The continuation {continuation!r} is malformed.") from None
