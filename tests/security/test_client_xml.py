"""
XML of a server does not become a thousand times as long in the client, and an answer with a blob ends where it says.
"""

import asyncio
import tracemalloc
import zlib
from contextlib import suppress

import pytest

from tableorm import RetryPolicy, TableOrmError, connect
from tests.azure.stub import KEY, Answer, Stub


async def test_entities_of_xml_are_not_expanded() -> None:
    """An answer of some hundred bytes in gzip, 400 KB of references to an entity, does not become 37 MB of text."""
    inner = f"<Queues><Queue><Name>{'&a;' * 130_000}</Name></Queue></Queues><NextMarker/>"
    body = (
        f'<!DOCTYPE q [<!ENTITY a "{"x" * 280}">]><EnumerationResults ServiceEndpoint="">{inner}</EnumerationResults>'
    )
    compress = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = compress.compress(body.encode()) + compress.flush()
    async with Stub() as stub:
        stub.handler = lambda _: Answer(200, {"Content-Type": "application/xml", "Content-Encoding": "gzip"}, packed)
        async with connect(stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1), queues=stub.url) as db:
            tracemalloc.start()
            try:
                with pytest.raises(TableOrmError, match="document type"):
                    await db.queues.list_queues()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert peak < 20_000_000


async def test_a_blob_is_no_longer_than_was_asked_for() -> None:
    """A range of 4 MiB that a server answers with 40 MB is refused, and not collected in memory first."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(BLOB_HEAD)
        with suppress(ConnectionError):
            for _ in range(40):
                writer.write(b"f4240\r\n" + bytes(1_000_000) + b"\r\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/acct"
    async with server, connect(url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1), blobs=url) as db:
        tracemalloc.start()
        try:
            with pytest.raises(TableOrmError, match="longer than the 4194304 bytes"):
                async with db.blobs.get("container", "name") as stream:
                    async for _ in stream.chunks:
                        pass
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 20_000_000


BLOB_HEAD = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Type: application/octet-stream\r\nx-ms-blob-type: BlockBlob\r\n"
    b'ETag: "a"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Range: bytes 0-4194303/4194304\r\n'
    b"Transfer-Encoding: chunked\r\n\r\n"
)
