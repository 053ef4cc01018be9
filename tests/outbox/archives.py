"""
What the tests of archives share: an entity with much that is derived from it, and a database on a network that fails.
"""

import asyncio
import datetime as dt
import itertools
import json
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self

from tableorm import BlobArchive, Count, Database, DatabaseArchive, Entity, Index, Int32, Mapped, TableOrmError, field
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.decision import Decision
from tableorm.outbox.overview import find_pending
from tableorm.protocol.codes import Fault
from tableorm.stores import CLOCK, Operation, Row, TableStore, Verb
from tableorm.testing import MemoryStore
from tableorm.testing.contract.base import everything
from tableorm.writes.archive import carry_out_archives
from tableorm.writes.archive_copy import kind_of
from tests.faults import QUICK, FaultyBackend, FaultyStore
from tests.rows import merge_row

HOUR = dt.timedelta(hours=1)


_TIMES = (dt.datetime(2025, 5, 4, tzinfo=dt.UTC) + dt.timedelta(seconds=number) for number in itertools.count())


class Customer(Entity, table="ArchiveShop", partition_key="{name}", row_key="customer"):
    name: Mapped[str]
    orders: Mapped[int] = field(default=0, maintained=True)


class Order(Entity, table="ArchiveShop", partition_key="{customer}", row_key="order_{id:03d}"):
    customer: Mapped[str]
    id: Mapped[Int32]
    code: Mapped[str] = field(default="c")
    total: Mapped[float] = field(default=2.0)
    at: Mapped[dt.datetime | None] = field(default=None, on_write=lambda: next(_TIMES))

    by_code = Index(row_key="code_{code}", unique=True)
    everywhere = Index(partition_key="code_{code}", row_key="in_{customer}_{id:03d}", consistency="eventual")
    counted = Count(lambda: Customer.orders, name="{customer}")


EXTRA: Row = {"Old": "9007199254740993", "Old@odata.type": "Edm.Int64", "Small": 7, "Blank": ""}
"""Properties that the model does not know."""


class ArchiveStore(FaultyStore):
    """
    What an archive has, behind a network that fails: the tables of another database, and blobs, which are rows there.

    Attributes:
        before: What others do, once, before the next write is sent.
    """

    before: Callable[[], Awaitable[object]] | None = None

    async def _send(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super()._send(table, operations, transaction=transaction)


class WatchedStore(FaultyStore):
    """
    Tables behind such a network, which note what is archived.

    Attributes:
        archived: The properties of each order that was deleted, in a transaction that notes that it is archived.
        missing: Those of them that the archive did not have at that moment.
        copies: Returns what the archive has.
    """

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.archived = list[Row]()
        self.missing = list[Row]()
        self.copies: Callable[[], Awaitable[list[Row]]] | None = None

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        deleted = [each.row for each in operations if each.verb is Verb.DELETE and each.row["RowKey"] == "order_001"]
        noted = any("Progress" in each.row for each in operations)
        before = await self.store.get(table, "ann", "order_001") if deleted and noted else None
        etags = await super()._arrive(table, operations, transaction=transaction)
        if before is not None and self.copies is not None:
            self.archived.append(content_of(before))
            if self.archived[-1] not in await self.copies():
                self.missing.append(self.archived[-1])
        return etags


class World:
    """
    A database and its archive, each behind a network that fails.

    Attributes:
        tables: The tables.
        there: The tables of the other database, and the blobs.
        to: The archive that orders go to.
    """

    def __init__(self, to: str) -> None:
        self.tables, self.there = WatchedStore(), ArchiveStore(MemoryStore())
        self.tables.copies = self.copies
        self.db = Database(FaultyBackend(self.tables, self.there), retry=QUICK)
        self.other = Database(FaultyBackend(self.there), retry=QUICK)
        cold = DatabaseArchive("cold", Order, self._open_other)
        self.to: BlobArchive[Order] | DatabaseArchive[Order] = (
            BlobArchive("old-orders", Order) if to == "blob" else cold
        )

    async def __aenter__(self) -> Self:
        await self.db.open()
        await self.other.open()
        for db in (self.db, self.other):
            await db.create_tables(Order)
            await outbox_queues(connection_of(db)).create_queue(OUTBOX)
            await db.insert(Customer(name="ann"))
        await self.db.insert(Order(customer="ann", id=1))
        keys = {"PartitionKey": "ann", "RowKey": "order_001"}
        await merge_row(self.db, "ArchiveShop", {**keys, **EXTRA})
        self.order = await self.db.get(Order, customer="ann", id=1)
        self.tables.sent.clear()
        self.there.sent.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.other.close()
        await self.db.close()

    @asynccontextmanager
    async def _open_other(self) -> AsyncGenerator[Database]:
        yield self.other

    async def archive(self) -> None:
        """Archive the order."""
        await self.db.archive(self.order, to=self.to)

    async def work(self, turns: int, requests: int = 1_000_000) -> None:
        """Let two workers work for some turns of the event loop, or until so many requests were sent, and crash."""
        with suppress(InterruptedError):
            async with self.db.worker(Order, self.to, tries=99), self.db.worker(Order, self.to, tries=99):
                for _ in range(turns):
                    await asyncio.sleep(0)
                    if len(self.tables.sent) >= requests:
                        break
                raise InterruptedError

    async def recover(self) -> None:
        """Let everything arrive that is under way, and work until nothing is left to do."""
        for store in (self.tables, self.there):
            store.plan()
            await store.deliver()
        for _ in range(40):
            CLOCK.advance(HOUR)
            await self.work(400)
            async with self.other.worker(Order, tries=99) as other:
                await other.drain()
            if not await self.decisions():
                return
        raise AssertionError(f"something is left to do: {await self.decisions()}")

    async def rows(self, store: TableStore | None = None) -> dict[str, Row]:
        """Return the rows of a table without decision rows: by RowKey, entries elsewhere by PartitionKey too."""
        found = await everything(store or self.tables.store, "ArchiveShop")
        rows = {f"{row['PartitionKey']}/{row['RowKey']}".removeprefix("ann/"): row for row in found}
        return {key: row for key, row in rows.items() if not key.startswith("~o_")}

    async def decisions(self) -> list[Row]:
        """Return the decision rows that are committed."""
        stores = (self.tables.store, self.there.store)
        rows = [row for store in stores for row in await everything(store, "ArchiveShop")]
        return [row for row in rows if row.get("State") == "committed"]

    async def copies(self) -> list[Row]:
        """Return the properties of the orders that the archive has, without those that tell of writes."""
        if isinstance(self.to, BlobArchive):
            rows = list[Row]()
            with suppress(Fault):  # there is no container
                blobs = await everything(self.there.store, "oldorders")
                rows = [json.loads(b64decode(blob["Data"]))["row"] for blob in blobs]
        else:
            rows = [row for key, row in (await self.rows(self.there.store)).items() if key.startswith("order_")]
        return [content_of(row) for row in rows]

    async def check_archived(self, order: Row) -> None:
        """The order is in the archive once, as it was; nothing is left of it in the database."""
        assert await self.copies() == [content_of(order)]
        assert list(await self.rows()) == ["customer"]
        await self.check()

    async def check_kept(self, order: Row | None) -> None:
        """The order is in the database as it is given; the archive has no copy."""
        found = (await self.rows()).get("order_001")
        assert (found and content_of(found)) == (order and content_of(order))
        assert await self.copies() == []
        await self.check()

    async def check(self, *, extra: bool = False) -> None:
        """
        What was deleted to be archived was in the archive at that moment, and is there alone; index entries and counts
        are those of the orders in their database; nothing is left to do.

        Args:
            extra: Whether an eventual index may have entries that no verified query returns, as after several faults.
        """
        assert self.tables.missing == []
        assert sorted(await self.copies(), key=str) == sorted(self.tables.archived, key=str)
        for store in (self.tables.store, self.there.store):
            rows = await self.rows(store)
            orders = [row for key, row in rows.items() if key.startswith("order_")]
            entries = {
                f"code_{order['code']}{end}" for order in orders for end in ("", f"/in_ann_{order['RowKey'][-3:]}")
            }
            found = {key for key in rows if key.startswith("code_")}
            assert rows["customer"]["orders"] == str(len(orders))
            assert entries <= found and {key for key in found - entries if "/" not in key or not extra} == set()
        assert await self.decisions() == []

    async def begun(self) -> Decision:
        """Return the decision that starts to archive the order."""
        (left,) = [each async for each in find_pending(connection_of(self.db), "ArchiveShop")]
        return left.decision

    async def carry_out(self, decision: Decision) -> Decision | None:
        """Archive the order, as a worker does."""
        return await carry_out_archives(connection_of(self.db), "ArchiveShop", {kind_of(self.to): self.to}, decision)

    async def begin(self) -> None:
        """Archive the order; who asks for that gives up after an error."""
        with suppress(TableOrmError, Fault):
            await self.db.archive(self.order, to=self.to)


def content_of(row: Row) -> Row:
    """Return the properties of a row that are of the entity, with their types."""
    return {
        name: (type(value), value)
        for name, value in row.items()
        if not name.startswith(("_", "odata.")) and name != "Timestamp"
    }
