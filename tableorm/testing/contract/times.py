"""
The contract of timestamps, durability and concurrent callers.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ...protocol.codes import Code, Fault
from ...protocol.edm import etag_from_ticks, ticks_from_text
from ...stores import Operation, RowQuery, TableStore, Verb
from .base import StoreContract, everything, in_key_order, insert, keys_of, need, new_name, row

Reopen = Callable[[], Awaitable[TableStore]]
"""A function that closes the store and opens the same data again."""


class TimestampContract(StoreContract):
    """Timestamps and ETags: the ETag is made from the Timestamp, and neither occurs twice."""

    async def test_etag_is_made_of_the_timestamp(self, store: TableStore, table: str) -> None:
        """The ETag is the Timestamp in the form of a weak ETag."""
        (tag,) = await insert(store, table, row())

        stored = await store.get(table, "p", "r")
        assert stored["odata.etag"] == tag == etag_from_ticks(ticks_from_text(stored["Timestamp"]))

    async def test_every_write_is_later(self, store: TableStore, table: str) -> None:
        """Each write of a row, however quick, gets a later Timestamp and so another ETag."""
        seen: list[str] = []
        for number in range(20):
            await store.write(table, Operation(Verb.INSERT_OR_REPLACE, row(N=number)))
            seen.append((await store.get(table, "p", "r"))["Timestamp"])

        ticks = [ticks_from_text(each) for each in seen]
        assert ticks == sorted(set(ticks))

    async def test_concurrent_writes_have_etags_of_their_own(self, store: TableStore, table: str) -> None:
        """Writes of one row at the same time do not share an ETag."""
        calls = (store.write(table, Operation(Verb.INSERT_OR_MERGE, row(N=number))) for number in range(20))
        tags = await asyncio.gather(*calls)

        assert len(set(tags)) == 20
        assert (await store.get(table, "p", "r"))["odata.etag"] in tags


class DurabilityContract(StoreContract):
    """What was acknowledged is there after a restart. A durable backend overrides `reopen` as well."""

    @pytest.fixture
    def reopen(self, store: TableStore) -> Reopen:
        """Closes the store and opens the same data again."""
        need(store, "durable")
        raise NotImplementedError(f"{type(self).__name__} must override the fixture `reopen`")

    async def test_rows_and_tables_stay(self, store: TableStore, reopen: Reopen) -> None:
        """Tables and rows are unchanged after a restart, ETags included."""
        name, gone = new_name(), new_name()
        await store.create_table(name)
        await store.create_table(gone)
        await insert(store, name, row(row_key="1", A=1), row(row_key="2", A="ä😀"))
        await store.transact(name, [Operation(Verb.MERGE, row(row_key="1", B=2), "*")])
        await store.delete_table(gone)
        before = in_key_order(await everything(store, name))

        again = await reopen()
        assert in_key_order(await everything(again, name)) == before
        names = await again.list_tables()
        assert name in names
        assert gone not in names
        await again.delete_table(name)

    async def test_continuation_outlives_a_restart(self, store: TableStore, reopen: Reopen) -> None:
        """A continuation from before a restart is valid after it."""
        name = new_name()
        await store.create_table(name)
        await insert(store, name, *(row(row_key=str(number)) for number in range(6)))
        first = await store.query(name, RowQuery(), limit=3)

        again = await reopen()
        rest = await again.query(name, RowQuery(), continuation=first.continuation)
        assert sorted(keys_of(first.rows + rest.rows)) == [("p", str(number)) for number in range(6)]
        await again.delete_table(name)

    async def test_etags_still_hold_and_do_not_return(self, store: TableStore, reopen: Reopen) -> None:
        """An ETag from before a restart fits the unchanged row, and the next write gets a later Timestamp."""
        name = new_name()
        await store.create_table(name)
        (tag,) = await insert(store, name, row())
        before = (await store.get(name, "p", "r"))["Timestamp"]

        again = await reopen()
        await again.write(name, Operation(Verb.REPLACE, row(), tag))
        after = (await again.get(name, "p", "r"))["Timestamp"]
        assert ticks_from_text(after) > ticks_from_text(before)
        await again.delete_table(name)


class ConcurrencyContract(StoreContract):
    """Many callers at once."""

    async def test_one_insert_wins(self, store: TableStore, table: str) -> None:
        """Exactly one of many inserts of one row succeeds, and its values are stored."""
        calls = (store.write(table, Operation(Verb.INSERT, row(N=number))) for number in range(12))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        (winner,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, str)]
        assert (await store.get(table, "p", "r"))["N"] == winner
        codes = {outcome.code for outcome in outcomes if isinstance(outcome, Fault)}
        assert codes == {Code.ENTITY_EXISTS}

    async def test_no_update_is_lost(self, store: TableStore, table: str) -> None:
        """Tasks that count up under the ETag that they read, and repeat lost races, reach the exact number."""
        await insert(store, table, row(N=0))
        codes: set[str] = set()

        async def count() -> None:
            for _ in range(4):
                while True:
                    stored = await store.get(table, "p", "r")
                    change = Operation(Verb.MERGE, row(N=stored["N"] + 1), stored["odata.etag"])
                    try:
                        await store.write(table, change)
                        break
                    except Fault as fault:
                        codes.add(fault.code)

        await asyncio.gather(*(count() for _ in range(5)))
        assert (await store.get(table, "p", "r"))["N"] == 20
        assert codes <= {Code.CONDITION_NOT_SATISFIED}

    async def test_all_inserts_arrive(self, store: TableStore, table: str) -> None:
        """All rows of many callers are stored, whether they were inserted singly or in transactions."""
        singles = [store.write(table, Operation(Verb.INSERT, row("s", str(number)))) for number in range(40)]
        groups = [
            store.transact(table, [Operation(Verb.INSERT, row(f"t{group}", str(number))) for number in range(10)])
            for group in range(6)
        ]
        await asyncio.gather(*singles, *groups)

        expected = {("s", str(number)) for number in range(40)}
        expected |= {(f"t{group}", str(number)) for group in range(6) for number in range(10)}
        assert set(keys_of(await everything(store, table, limit=33))) == expected

    async def test_transactions_are_seen_whole(self, store: TableStore, table: str) -> None:
        """A transaction that moves an amount between two rows keeps the sum for everyone who reads both at once."""
        await insert(store, table, row(row_key="a", N=50), row(row_key="b", N=50))
        done = False

        async def move() -> None:
            for number in range(10):
                amounts = {"a": 50 - number, "b": 50 + number}
                operations = [Operation(Verb.REPLACE, row(row_key=key, N=n), "*") for key, n in amounts.items()]
                await store.transact(table, operations)

        async def watch() -> list[int]:
            sums: list[int] = []
            while not done:
                page = await store.query(table, RowQuery())
                sums.append(sum(each["N"] for each in page.rows))
                await asyncio.sleep(0)
            return sums

        watcher = asyncio.create_task(watch())
        await move()
        done = True
        assert set(await watcher) <= {100}

    async def test_cancelled_writes_happen_in_full_or_not_at_all(self, store: TableStore, table: str) -> None:
        """Cancelling callers at any point leaves whole transactions, and a store that still works."""
        tasks = [
            asyncio.create_task(
                store.transact(table, [Operation(Verb.INSERT, row(f"{group:02d}", str(number))) for number in range(5)])
            )
            for group in range(18)
        ]
        for group, task in enumerate(tasks):
            if group % 3 == 0:
                await asyncio.sleep(0)
            if group % 2:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await insert(store, table, row("after", "all"))

        found = keys_of(await everything(store, table))
        for group, outcome in enumerate(outcomes):
            count = sum(first == f"{group:02d}" for first, _ in found)
            assert count == 5 if isinstance(outcome, list) else count in (0, 5)
        assert ("after", "all") in found
