"""
What a server answers does not make a client hold, or work on, more than an answer of the service can have.
"""

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tableorm import Database, Entity, Mapped, RetryPolicy, TableOrmError, connect

SAS = "sv=2019-02-02&tn=Tab&se=2099-01-01T00%3A00%3A00Z&sp=raud&spk=a&epk=a&sig=ABC%3D"
# A page has 4 MiB of rows; escapes and annotations may make some of that longer.
FAR_TOO_MUCH = 96 * 1024 * 1024


class Thing(Entity, table="Tab", partition_key="{p}", row_key="{r}"):
    p: Mapped[str]
    r: Mapped[str]


@asynccontextmanager
async def _client_of(answer: bytes) -> AsyncGenerator[Database]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        connect(f"http://127.0.0.1:{port}/acct", sas=SAS, timeout=5, retry=RetryPolicy(attempts=1)) as db,
    ):
        yield db


async def test_a_small_answer_does_not_become_large() -> None:
    """An answer of 100 KB that decompresses to 96 MiB is refused, not decompressed in one piece and believed."""
    compress = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = compress.compress(b'{"value":[') + compress.compress(b" " * FAR_TOO_MUCH) + compress.compress(b"]}")
    body += compress.flush()
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with _client_of(head + body) as db:
        with pytest.raises(TableOrmError):
            await db.select(Thing).where(Thing.p == "a").all()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (b"400 Bad Request", b'{"a":' * 3000),
        (b"200 OK", b'{"a":' + b"[" * 100_000),
        (b"200 OK", json.dumps({"PartitionKey": "a", "RowKey": "b", "g": 5, "g@odata.type": "Edm.Guid"}).encode()),
    ],
    ids=["deep error", "deep row", "guid that is a number"],
)
async def test_a_strange_answer_raises_an_error_of_ours(status: bytes, body: bytes) -> None:
    """JSON that nests deeply or has another type raises TableOrmError: else a write would not be known as in doubt."""
    answer = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )
    async with _client_of(answer) as db:
        with pytest.raises(TableOrmError):
            await db.get(Thing, p="a", r="b")
