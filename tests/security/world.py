"""
What attacks have in common: a file with its owner, and a server of it; clients of a server that is hostile.
"""

import asyncio
import gc
import gzip
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tableorm import Database, Entity, Mapped, RetryPolicy, connect, field
from tableorm.connection.connection import connection_of
from tableorm.outbox.overview import find_pending, ring_again
from tableorm.stores import Operation, Verb
from tableorm_local import serve
from tableorm_local.engine import Engine
from tests.azure.stub import KEY, Answer, Request, Stub
from tests.local.server.client import Api, root_of


@asynccontextmanager
async def serve_file(path: Path) -> AsyncGenerator[tuple[Engine, Api], None]:
    """Open a file with all rights, and serve it to a client that sends what it is told."""
    owner = Engine(path)
    await owner.open()
    try:
        async with serve(path, port=0) as server, aiohttp.ClientSession() as session:
            yield owner, Api(session, root_of(server))
    finally:
        await owner.close()


class Keyed(Entity, abstract=True):
    """The fields of most keys."""

    p: Mapped[str]
    r: Mapped[str]


class Thing(Keyed, table="Tab", partition_key="{p}", row_key="{r}"):
    """What a client asks a hostile server for."""

    note: Mapped[str | None] = field(default=None)


@asynccontextmanager
async def client_of(
    answer: Answer | Callable[[Request], Answer], **options: Any
) -> AsyncGenerator[tuple[Database, Stub]]:
    """Open tables, queues and blobs of a server that gives one answer to all, or what a function returns."""
    async with Stub() as stub:
        stub.handler = answer if callable(answer) else lambda _: answer
        given: dict[str, Any] = {"key": KEY, "timeout": 5, "retry": RetryPolicy(attempts=1), **options}
        async with connect(stub.url, queues=stub.url, blobs=stub.url, **given) as db:
            yield db, stub


@asynccontextmanager
async def client_of_bytes(
    answer: Callable[[bytes], AsyncIterable[bytes]], **credential: str
) -> AsyncGenerator[Database]:
    """Open tables and blobs of a server that sends what a function makes of the head of a request, HTTP or not."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            async for part in answer(await reader.readuntil(b"\r\n\r\n")):
                writer.write(part)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/acct"
    given: dict[str, Any] = {"retry": RetryPolicy(attempts=1), **credential}
    async with server, connect(url, timeout=5, blobs=url, **given) as db:
        yield db


def gzipped(body: bytes) -> bytes:
    """Return a body in gzip, as small as it can be."""
    return gzip.compress(body, 9, mtime=0)


@contextmanager
def memory_below(most: int) -> Generator[None]:
    """See that what is done needs no more memory than so many bytes at any moment."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most


class Turns:
    """Sums up work by turns of the event loop: all of it, and the most in one turn; and counts the turns."""

    def __init__(self) -> None:
        self.count = self.all = self.most = self._now = 0

    def add(self, amount: int = 1) -> None:
        """Say that so much was done in this turn."""
        self.all += amount
        self._now += amount
        self.most = max(self.most, self._now)

    async def _count(self) -> None:
        while True:
            self.count, self._now = self.count + 1, 0
            await asyncio.sleep(0)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Count the turns meanwhile."""
        counting = asyncio.create_task(self._count())
        yield
        counting.cancel()


@contextmanager
def kept_below(most: int) -> Generator[None]:
    """See that what is done leaves less than so many bytes behind."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < most


async def work(db: Database, *kinds: Any, table: str | None = None) -> None:
    """Let a worker do what it is told, each at most once; first of all decision rows of a table, if one is given."""
    if table is not None:
        async for pending in find_pending(connection_of(db), table):
            await ring_again(connection_of(db), pending)
    async with asyncio.timeout(30), db.worker(*kinds, tries=1) as worker:
        await worker.drain()


async def write_row(
    db: Database, table: str, partition: str, row_key: str, verb: Verb = Verb.INSERT, **members: Any
) -> None:
    """Write a row as it stands, as anybody can who may write its key; whatever is there if the verb needs a row."""
    row = {"PartitionKey": partition, "RowKey": row_key, **members}
    etag = "*" if verb in (Verb.MERGE, Verb.REPLACE, Verb.DELETE) else None
    await db.store.write(table, Operation(verb, row, etag))
