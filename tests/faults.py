"""
A network that fails, between the mapper and a real store: requests and replies are lost, late, or delivered twice.

What happens to each write is decided by the test. A request that is late, or delivered a second time, arrives when the
test says so, or before a later write.
"""

import enum
from base64 import b64decode, b64encode
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, cast

from tableorm import Database
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import datetime_from_text
from tableorm.stores import (
    CLOCK,
    BlobInfo,
    BlobPage,
    BlobStore,
    BlobStream,
    Bounds,
    Capabilities,
    Operation,
    RetryPolicy,
    Row,
    RowQuery,
    StoreLayer,
    StoreRequest,
    TableStore,
    Verb,
)
from tableorm.testing import MemoryStore

QUICK = RetryPolicy(deadline=30.0, attempts=8, base=0.0)
"""Repeats at once."""


def no_pause(*_: object) -> float:
    """Return that there is no pause, in place of what says how long one is."""
    return 0.0


class Fate(enum.Enum):
    """What happens to one write."""

    FINE = "arrives, and so does the reply"
    BUSY = "is rejected because the store is asked for too much; nothing happened"
    LOST_REQUEST = "never arrives, and nobody answers"
    LOST_REPLY = "arrives, and nobody hears of it"
    LATE = "nobody answers, and it arrives later"
    TWICE = "arrives, and once more later"


def before_requests(db: Database, act: Callable[[StoreRequest], Awaitable[object]]) -> None:
    """Do something before each request of a database, as others do meanwhile; what it raises is the reply."""

    class Preceded(StoreLayer):
        async def send(self, request: StoreRequest) -> Any:
            await act(request)
            return await super().send(request)

    connection_of(db).wrap_store(Preceded)


class FaultyStore(StoreLayer):
    """
    A store behind such a network; reads always arrive.

    Args:
        store: The real store.
        fates: Of the writes in order; after the last one all is fine.

    Attributes:
        late: What will arrive later.
        sent: The operations of each request.
        meanwhile: What others do, once, after the next write has met its fate, and before its sender knows.
    """

    def __init__(self, store: TableStore, fates: Iterable[Fate] = ()) -> None:
        super().__init__(store)
        self.store = store
        self.fates: Iterator[Fate] = iter(fates)
        self.late: list[tuple[str, tuple[Operation, ...], bool]] = []
        self.sent: list[tuple[Operation, ...]] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    def plan(self, *fates: Fate) -> None:
        """Decide over the writes to come."""
        self.fates = iter(fates)
        self.sent.clear()

    @property
    def capabilities(self) -> Capabilities:
        """It repeats nothing itself."""
        return Capabilities(durable=False)

    async def send(self, request: StoreRequest) -> Any:
        if not request.operations:
            return await request.sent_to(self.store)
        transaction = request.method == "transact"
        etags = await self._send(request.table, tuple(request.operations), transaction=transaction)
        return etags if transaction else etags[0]

    async def deliver(self) -> None:
        """Let everything arrive that is under way."""
        late, self.late = self.late, []
        for table, operations, transaction in late:
            with suppress(Fault):
                await self._arrive(table, operations, transaction=transaction)

    async def _send(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        # As bytes on a wire: what the sender does to its row afterwards changes nothing.
        operations = tuple(Operation(each.verb, dict(each.row), each.if_match) for each in operations)
        self.sent.append(operations)
        fate = next(self.fates, Fate.FINE)
        try:
            return await self._meet(fate, table, operations, transaction=transaction)
        finally:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                await meanwhile()

    async def _meet(
        self, fate: Fate, table: str, operations: tuple[Operation, ...], *, transaction: bool
    ) -> list[str | None]:
        if fate is Fate.BUSY:
            raise Fault(Code.SERVER_BUSY, "Asked for too much.", retry_after=0.0)
        if fate is Fate.LATE:
            self.late.append((table, operations, transaction))
        if fate in (Fate.LOST_REQUEST, Fate.LATE):
            raise Fault(Code.NO_ANSWER, "Nobody answered.", doubt=True)
        try:
            etags = await self._arrive(table, operations, transaction=transaction)
        finally:
            if fate is Fate.TWICE:
                # Not before the first has arrived, or the sender would get the answer to the second.
                self.late.append((table, operations, transaction))
        if fate is Fate.LOST_REPLY:
            raise Fault(Code.NO_ANSWER, "Nobody answered.", doubt=True)
        return etags

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        if transaction:
            return await self.store.transact(table, operations)
        return [await self.store.write(table, operations[0])]


_FAULTS = {
    Code.TABLE_NOT_FOUND: Code.CONTAINER_NOT_FOUND,
    Code.TABLE_EXISTS: Code.CONTAINER_EXISTS,
    Code.RESOURCE_NOT_FOUND: Code.BLOB_NOT_FOUND,
    Code.ENTITY_EXISTS: Code.BLOB_EXISTS,
    Code.CONDITION_NOT_SATISFIED: Code.CONDITION_NOT_MET,
}


@contextmanager
def _of_blobs() -> Generator[None]:
    try:
        yield
    except Fault as fault:
        raise Fault(_FAULTS.get(Code(fault.code), fault.code), fault.message, doubt=fault.doubt) from fault


class RowBlobs:
    """
    A `BlobStore`, as far as index lists, fields and logs need one, of which each blob is a row of a table: what befalls
    rows on their way befalls blobs.

    Args:
        tables: The tables. A container is the table of its name without hyphens.
    """

    def __init__(self, tables: TableStore) -> None:
        self._tables = tables

    @property
    def capabilities(self) -> Capabilities:
        return self._tables.capabilities

    async def create_container(self, container: str) -> None:
        with _of_blobs():
            await self._tables.create_table(container.replace("-", ""))

    async def put(
        self,
        container: str,
        name: str,
        data: bytes | AsyncIterable[bytes],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> BlobInfo:
        if not isinstance(data, bytes):
            data = b"".join([piece async for piece in data])
        row: Row = {"PartitionKey": "blobs", "RowKey": name.replace("/", "|"), **(metadata or {})}
        row |= {"Data": b64encode(data).decode(), "Data@odata.type": "Edm.Binary"}
        operation = Operation(Verb.INSERT if if_none_match else Verb.REPLACE, row, if_match)
        with _of_blobs():
            etag = await self._tables.write(container.replace("-", ""), operation)
        return _info_of({**row, "odata.etag": str(etag)})

    async def delete(self, container: str, name: str, *, if_match: str | None = None) -> None:
        keys = {"PartitionKey": "blobs", "RowKey": name.replace("/", "|")}
        with _of_blobs():
            await self._tables.write(container.replace("-", ""), Operation(Verb.DELETE, keys, if_match or "*"))

    async def info(self, container: str, name: str) -> BlobInfo:
        async with self.get(container, name) as stream:
            return stream.info

    @asynccontextmanager
    async def get(
        self, container: str, name: str, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[BlobStream]:
        with _of_blobs():
            row = await self._tables.get(container.replace("-", ""), "blobs", name.replace("/", "|"))

        async def chunks() -> AsyncIterator[bytes]:
            yield b64decode(row["Data"])[offset : None if length is None else offset + length]

        yield BlobStream(_info_of(row), chunks())

    async def read(self, container: str, name: str) -> bytes:
        async with self.get(container, name) as stream:
            return b"".join([chunk async for chunk in stream.chunks])

    async def list_blobs(
        self, container: str, prefix: str = "", continuation: str | None = None, limit: int = 1
    ) -> BlobPage:
        with _of_blobs():
            query = RowQuery(Bounds.only("blobs"))
            page = await self._tables.query(container.replace("-", ""), query, limit, continuation)
        blobs = [_info_of(row) for row in page.rows]
        return BlobPage([each for each in blobs if each.name.startswith(prefix)], page.continuation)


_OWN_MEMBERS = {"PartitionKey", "RowKey", "Timestamp", "odata.etag", "Data", "Data@odata.type"}


def _info_of(row: Row) -> BlobInfo:
    return BlobInfo(
        name=row["RowKey"].replace("|", "/"),
        etag=row["odata.etag"],
        length=len(b64decode(row["Data"])),
        metadata={name: row[name] for name in row.keys() - _OWN_MEMBERS},
        modified=CLOCK.now() if "Timestamp" not in row else datetime_from_text(row["Timestamp"]),
    )


class FaultyBackend:
    """
    A backend behind such a network.

    Args:
        store: The real store; one in memory if not given.
        archive: The tables whose rows are the blobs; those of the backend if not given.
    """

    def __init__(self, store: TableStore | None = None, archive: TableStore | None = None) -> None:
        self.tables = FaultyStore(store or MemoryStore())
        self._archive = archive

    @classmethod
    def handles(cls, url: str) -> bool:
        return False

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, object]) -> "FaultyBackend":
        raise NotImplementedError

    @property
    def queues(self) -> None:
        return None

    @property
    def blobs(self) -> BlobStore:
        return cast("BlobStore", RowBlobs(self._archive or self.tables))

    async def open(self) -> None: ...

    async def close(self) -> None: ...
