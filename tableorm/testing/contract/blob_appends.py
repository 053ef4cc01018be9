"""
The contract of blobs that are written by appending.
"""

import asyncio
import contextlib
import random

from ...protocol.codes import Code, Fault
from ...protocol.limits import MAX_APPEND_BYTES
from ...stores import BlobStore
from .base import refusal
from .blob_base import LARGE, BlobTests, ranges_of


class AppendContract(BlobTests):
    """Blobs that are written at their end."""

    async def test_appends_add_up(self, store: BlobStore, container: str) -> None:
        """Each append goes to the end; ranges may cross the borders of appends."""
        whole = b""
        for size in (1, 10, 300_000, 2, 1_000_000, 5):
            data = random.Random(size).randbytes(size)
            whole += data
            info = await store.append(container, "log", data)
            assert info == await store.info(container, "log")
            assert info.length == len(whole)

        assert await store.read(container, "log") == whole
        wanted = [(0, 2), (5, 300_000), (300_012, None), (len(whole) - 6, 5)]
        got = await ranges_of(store, container, "log", *wanted)
        assert got == [whole[offset:][:length] for offset, length in wanted]

    async def test_largest_append(self, store: BlobStore, container: str) -> None:
        """4 MiB are appended at once."""
        data = random.Random(1).randbytes(MAX_APPEND_BYTES)
        await store.append(container, "log", data)

        assert await store.read(container, "log") == data

    async def test_every_append_has_another_etag(self, store: BlobStore, container: str) -> None:
        """An ETag stands for one state of the blob."""
        tags = [(await store.append(container, "log", b"x")).etag for _ in range(5)]

        assert len(set(tags)) == 5
        assert (await refusal(store.delete(container, "log", if_match=tags[3]))).code == Code.CONDITION_NOT_MET
        await store.delete(container, "log", if_match=tags[4])

    async def test_not_created_unless_asked(self, store: BlobStore, container: str) -> None:
        """Appending with `create=False` to a blob that does not exist is rejected."""
        assert (await refusal(store.append(container, "log", b"x", create=False))).code == Code.BLOB_NOT_FOUND
        await store.append(container, "log", b"x")
        assert (await store.append(container, "log", b"x", create=False)).length == 2

    async def test_position_must_fit(self, store: BlobStore, container: str) -> None:
        """An append with a position happens only there, so that repeating it adds nothing."""
        await store.append(container, "log", b"abc", if_position=0)
        await store.append(container, "log", b"def", if_position=3)

        for position in (0, 3, 5, 7):
            fault = await refusal(store.append(container, "log", b"def", if_position=position))
            assert fault.code == Code.APPEND_POSITION_NOT_MET
        assert await store.read(container, "log") == b"abcdef"

    async def test_only_appended_blobs_are_appended_to(self, store: BlobStore, container: str) -> None:
        """Appending to a blob that was put is rejected, also where the put replaced an appended blob."""
        await store.put(container, "put", b"x")
        await store.append(container, "log", b"x")
        await store.put(container, "log", b"y")

        for name in ("put", "log"):
            assert (await refusal(store.append(container, name, b"z"))).code == Code.INVALID_BLOB_TYPE
        assert await store.read(container, "log") == b"y"

    async def test_concurrent_appends_are_all_there(self, store: BlobStore, container: str) -> None:
        """Each of many concurrent appends is in one piece, at the position that its answer tells."""
        records = [bytes([number]) * (number + 1) * 1000 for number in range(10)]
        infos = await asyncio.gather(*(store.append(container, "log", record) for record in records))

        whole = await store.read(container, "log")
        assert len(whole) == sum(map(len, records))
        for record, info in zip(records, infos, strict=True):
            assert whole[info.length - len(record) : info.length] == record

    async def test_reader_sees_the_blob_as_it_was(self, store: BlobStore, container: str) -> None:
        """Bytes that are appended while a blob is read are not part of the stream."""
        data = LARGE[:MAX_APPEND_BYTES]
        await store.append(container, "log", data)
        got = b""
        with contextlib.suppress(Fault):
            async with store.get(container, "log") as stream:
                async for chunk in stream.chunks:
                    got += chunk
                    await store.append(container, "log", b"more")

        assert data.startswith(got)
