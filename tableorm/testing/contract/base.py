"""
What every part of the contract uses: the fixtures that a backend overrides, and helpers for rows and faults.
"""

import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

import pytest

from ...protocol.codes import Fault
from ...protocol.edm import ANNOTATION, Edm
from ...stores import BlobStore, Operation, QueueStore, Row, RowQuery, TableStore, Verb, row_keys, unstamped


class StoreContract:
    """
    The base of all parts of the contract. A backend overrides the fixture `store`.
    """

    @pytest.fixture
    def store(self) -> TableStore:
        """An open store. Tests make tables of their own and remove them, so it may be shared and need not be empty."""
        raise NotImplementedError(f"{type(self).__name__} must override the fixture `store`")

    @pytest.fixture
    async def table(self, store: TableStore) -> AsyncIterator[str]:
        """The name of a new, empty table."""
        name = new_name()
        await store.create_table(name)
        yield name
        await store.delete_table(name)


_numbers = itertools.count()


def new_name() -> str:
    """Make a name that no table has."""
    return f"Contract{uuid.uuid4().hex[:16]}n{next(_numbers)}"


def new_dns_name() -> str:
    """Make a name that no queue and no container has."""
    return f"contract-{uuid.uuid4().hex[:16]}-{next(_numbers)}"


def need(store: TableStore | QueueStore | BlobStore, capability: str) -> None:
    """Skip the test, with a reason, if the store does not have this capability."""
    if not getattr(store.capabilities, capability):
        pytest.skip(f"capability: the store does not claim `{capability}`")


def row(partition_key: str = "p", row_key: str = "r", **properties: Any) -> Row:
    """Make a row with properties whose JSON tells their type."""
    return {"PartitionKey": partition_key, "RowKey": row_key, **properties}


def typed(name: str, value: str, kind: Edm) -> Row:
    """Make a property whose type needs an annotation."""
    return {name: value, name + ANNOTATION: kind.value}


async def insert(store: TableStore, table: str, *rows: Row) -> list[str]:
    """Insert rows and return their ETags."""
    tags = [await store.write(table, Operation(Verb.INSERT, each)) for each in rows]
    return [tag for tag in tags if tag is not None]


async def refusal(call: Awaitable[object]) -> Fault:
    """Return the fault that a call must raise."""
    with pytest.raises(Fault) as caught:
        await call
    return caught.value


async def everything(store: TableStore, table: str, query: RowQuery | None = None, limit: int = 1000) -> list[Row]:
    """Read the rows of all pages."""
    rows: list[Row] = []
    continuation: str | None = None
    while True:
        page = await store.query(table, query or RowQuery(), limit, continuation)
        assert len(page.rows) <= limit
        rows += page.rows
        continuation = page.continuation
        if continuation is None:
            return rows


def in_key_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows sorted by their keys, for tests that are not about order."""
    return sorted(rows, key=row_keys)


def keys_of(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return the (PartitionKey, RowKey) of each row."""
    return [(each["PartitionKey"], each["RowKey"]) for each in rows]


def names_of(rows: Iterable[Row]) -> list[str]:
    """Return the RowKeys, sorted, for tests that are not about order."""
    return sorted(each["RowKey"] for each in rows)


def user_part(stored: Row) -> Row:
    """Return a row without what the store adds to it."""
    return unstamped(stored)
