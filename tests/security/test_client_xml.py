"""
XML of a server does not become a thousand times as long in the client, and an answer with a blob ends where it says.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import TableOrmError
from tests.azure.stub import KEY, Answer
from tests.security.world import client_of, client_of_bytes, gzipped, memory_below


async def test_entities_of_xml_are_not_expanded() -> None:
    """An answer of some hundred bytes in gzip, 400 KB of references to an entity, does not become 37 MB of text."""
    inner = f"<Queues><Queue><Name>{'&a;' * 130_000}</Name></Queue></Queues><NextMarker/>"
    body = (
        f'<!DOCTYPE q [<!ENTITY a "{"x" * 280}">]><EnumerationResults ServiceEndpoint="">{inner}</EnumerationResults>'
    )
    headers = {"Content-Type": "application/xml", "Content-Encoding": "gzip"}
    async with client_of(Answer(200, headers, gzipped(body.encode()))) as (db, _):
        with memory_below(20_000_000), pytest.raises(TableOrmError, match="document type"):
            await db.queues.list_queues()


async def test_a_blob_is_no_longer_than_was_asked_for() -> None:
    """A range of 4 MiB that a server answers with 40 MB is refused, and not collected in memory first."""

    async def answer(head: bytes) -> AsyncIterator[bytes]:
        del head
        yield BLOB_HEAD
        for _ in range(40):
            yield b"f4240\r\n" + bytes(1_000_000) + b"\r\n"

    async with client_of_bytes(answer, key=KEY) as db:
        with memory_below(20_000_000), pytest.raises(TableOrmError, match="longer than the 4194304 bytes"):
            async with db.blobs.get("container", "name") as stream:
                async for _ in stream.chunks:
                    pass


BLOB_HEAD = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Type: application/octet-stream\r\nx-ms-blob-type: BlockBlob\r\n"
    b'ETag: "a"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Range: bytes 0-4194303/4194304\r\n'
    b"Transfer-Encoding: chunked\r\n\r\n"
)
