"""
The contract of tables: creating, listing and deleting them, and names that ignore case; and the whole contract of a
`TableStore`.
"""

import asyncio

import pytest

from ...protocol.codes import Code
from ...stores import CONDITIONAL, Bounds, Operation, RowQuery, TableStore, Verb
from .base import StoreContract, insert, need, new_name, refusal, row
from .points import ConditionalWriteContract, MergeContract, PointContract, TypesContract
from .queries import FilterContract, PagingContract, QueryContract
from .times import ConcurrencyContract, DurabilityContract, TimestampContract
from .transactions import LimitsContract, TransactionContract


class TableLifecycleContract(StoreContract):
    """Creating, listing and deleting tables."""

    async def test_tables_are_listed_in_order_without_case(self, store: TableStore) -> None:
        """Names are listed as they were spelt, in the order of lower case; 63 characters are allowed."""
        stem = new_name()
        longest = (stem + "d").ljust(63, "x")
        mine = [stem + "b", stem + "A", stem + "C", longest]
        for name in mine:
            await store.create_table(name)

        listed = [name for name in await store.list_tables() if name in mine]
        assert listed == [stem + "A", stem + "b", stem + "C", longest]
        for name in mine:
            await store.delete_table(name)

    async def test_second_table_of_a_name_is_refused(self, store: TableStore, table: str) -> None:
        """Names are unique, whatever the letter case."""
        for name in (table, table.upper(), table.lower()):
            fault = await refusal(store.create_table(name))

            assert fault.code == Code.TABLE_EXISTS

    async def test_names_are_usable_in_any_case(self, store: TableStore, table: str) -> None:
        """A table is found under its name in any letter case, by every operation."""
        need(store, "faithful")
        await insert(store, table.lower(), row(row_key="1"))
        await store.transact(table.upper(), [Operation(Verb.INSERT, row(row_key="2"))])

        assert (await store.get(table.swapcase(), "p", "1"))["RowKey"] == "1"
        assert len((await store.query(table.upper(), RowQuery())).rows) == 2

    @pytest.mark.parametrize(
        ("names", "code"),
        [
            (("", "1abc", "ab-c", "a_bc", "äbc", "Tables", "tables", "a/b", "abc\n"), Code.INVALID_RESOURCE_NAME),
            (("a", "ab", "a" * 64), Code.KEY_OUT_OF_RANGE),
        ],
    )
    async def test_bad_name_is_refused(self, store: TableStore, names: tuple[str, ...], code: Code) -> None:
        """A name is 3 to 63 letters and digits, starts with a letter, and is not `Tables`. Deleting checks it too."""
        need(store, "exact_limits")
        for name in names:
            for call in (store.create_table(name), store.delete_table(name)):
                assert (await refusal(call)).code == code, name

    async def test_absent_table_is_refused(self, store: TableStore) -> None:
        """No operation finds a table that does not exist, or was deleted, in any letter case."""
        gone, never = new_name(), new_name()
        await store.create_table(gone)
        await insert(store, gone, row())
        await store.get(gone, "p", "r")
        await store.delete_table(gone.upper())

        assert gone not in await store.list_tables()
        for name in (gone, never):
            assert (await refusal(store.delete_table(name))).code == Code.RESOURCE_NOT_FOUND
            for call in (
                store.get(name, "p", "r"),
                store.query(name, RowQuery()),
                store.query(name, RowQuery(partition=Bounds("b", "a"))),
                store.transact(name, [Operation(Verb.INSERT, row())]),
                *(store.write(name, Operation(verb, row(), "*" if verb in CONDITIONAL else None)) for verb in Verb),
            ):
                assert (await refusal(call)).code == Code.TABLE_NOT_FOUND

    async def test_new_table_of_an_old_name_is_empty(self, store: TableStore) -> None:
        """A name is free again after the deletion, in any letter case; the rows of before do not come back."""
        name = new_name()
        await store.create_table(name)
        await insert(store, name, row(row_key="old"))
        await store.delete_table(name)
        name = name.upper()
        await store.create_table(name)

        assert (await store.query(name, RowQuery())).rows == []
        await insert(store, name, row(row_key="new"))
        assert (await refusal(store.get(name, "p", "old"))).code == Code.RESOURCE_NOT_FOUND
        await store.delete_table(name)

    async def test_tables_are_separate(self, store: TableStore, table: str) -> None:
        """The same keys in two tables are two rows."""
        other = new_name()
        await store.create_table(other)
        await insert(store, table, row(A="one"))
        await insert(store, other, row(A="two"))

        assert (await store.get(table, "p", "r"))["A"] == "one"
        assert (await store.get(other, "p", "r"))["A"] == "two"
        await store.delete_table(other)

    async def test_one_of_many_creators_wins(self, store: TableStore) -> None:
        """One of several tasks that create the same table at once succeeds, and the others are rejected."""
        name = new_name()
        outcomes = await asyncio.gather(*(store.create_table(name) for _ in range(8)), return_exceptions=True)

        assert sum(outcome is None for outcome in outcomes) == 1
        assert {getattr(outcome, "code", None) for outcome in outcomes} == {None, Code.TABLE_EXISTS}
        await store.delete_table(name)


class TableStoreContract(
    TableLifecycleContract,
    PointContract,
    ConditionalWriteContract,
    MergeContract,
    TypesContract,
    QueryContract,
    FilterContract,
    PagingContract,
    TransactionContract,
    LimitsContract,
    TimestampContract,
    DurabilityContract,
    ConcurrencyContract,
):
    """
    All parts of the contract. Override the fixture `store`, and for a durable backend `reopen`.
    """
