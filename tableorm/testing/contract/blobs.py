"""
The contract of a `BlobStore`: subclass `BlobStoreContract`, override the fixture `store`, and if durable `reopen`.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ...protocol.codes import Code, Fault
from ...protocol.limits import MAX_APPEND_BYTES, MAX_BLOB_NAME, MAX_METADATA_BYTES
from ...stores import BlobInfo, BlobStore
from .base import need, new_dns_name, refusal
from .blob_appends import AppendContract
from .blob_base import LARGE, NAMES, BlobTests, listed, pieces, ranges_of

ReopenBlobs = Callable[[], Awaitable[BlobStore]]
"""Closes the store and opens the same data again."""


class BlobLifecycleContract(BlobTests):
    """Creating, listing and deleting containers."""

    async def test_containers_are_listed_by_prefix(self, store: BlobStore) -> None:
        """Names that start with the prefix are listed, in order."""
        stem = new_dns_name()
        mine = [f"{stem}-{end}" for end in ("b", "a", "a1", "c")]
        for name in mine:
            await store.create_container(name)

        assert await store.list_containers(stem) == sorted(mine)
        assert await store.list_containers(f"{stem}-a") == [f"{stem}-a", f"{stem}-a1"]
        assert set(mine) <= set(await store.list_containers())
        for name in mine:
            await store.delete_container(name)

    async def test_second_container_of_a_name_is_refused(self, store: BlobStore, container: str) -> None:
        """Names are unique; the blobs of the first stay."""
        await store.put(container, "x", b"kept")

        assert (await refusal(store.create_container(container))).code == Code.CONTAINER_EXISTS
        assert await store.read(container, "x") == b"kept"

    async def test_absent_container_is_refused(self, store: BlobStore) -> None:
        """Every call for a container that does not exist, or was deleted, raises ContainerNotFound."""
        gone, never = new_dns_name(), new_dns_name()
        await store.create_container(gone)
        await store.put(gone, "x", b"x")
        await store.delete_container(gone)

        assert gone not in await store.list_containers()
        for name in (gone, never):
            for call in (
                store.delete_container(name),
                store.put(name, "x", b"x"),
                store.append(name, "x", b"x"),
                store.info(name, "x"),
                store.read(name, "x"),
                store.delete(name, "x"),
                store.list_blobs(name),
            ):
                assert (await refusal(call)).code in (Code.CONTAINER_NOT_FOUND, Code.CONTAINER_BEING_DELETED)


class BlobContract(BlobTests):
    """Blobs that are written in full: conditions, reading, listing, deleting."""

    @pytest.mark.parametrize("data", [b"", b"\0", bytes(range(256)), LARGE], ids=["empty", "zero", "all", "large"])
    async def test_data_comes_back(self, store: BlobStore, container: str, data: bytes) -> None:
        """Any bytes come back as they were put; `put`, `info` and `get` return the same information."""
        info = await store.put(container, "x", data, metadata={"author": "ann", "n": "1"})

        assert await store.read(container, "x") == data
        assert (info.name, info.length, dict(info.metadata)) == ("x", len(data), {"author": "ann", "n": "1"})
        assert info.modified.utcoffset() == dt.timedelta(0)
        assert await store.info(container, "x") == info
        async with store.get(container, "x") as stream:
            assert stream.info == info

    @pytest.mark.parametrize(
        ("data", "size"),
        [(b"", 1), (LARGE, 10_000), (LARGE, 300_000), (LARGE, 10_000_000)],
        ids=lambda each: str(len(each) if isinstance(each, bytes) else each),
    )
    async def test_data_of_an_iterable(self, store: BlobStore, container: str, data: bytes, size: int) -> None:
        """Data given as an iterable is stored in order, whatever the size and number of the pieces, also none."""
        info = await store.put(container, "x", pieces(data, size))

        assert info.length == len(data)
        assert await store.read(container, "x") == data

    async def test_failing_iterable(self, store: BlobStore, container: str) -> None:
        """If the iterable raises an error, the caller gets it, and the blob is unchanged."""
        await store.put(container, "x", b"old")

        async def fail() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"n" * 200_000
            raise KeyError("mine")

        for name in ("x", "y"):
            with pytest.raises(KeyError, match="mine"):
                await store.put(container, name, fail())
        assert [each.name for each in await listed(store, container)] == ["x"]
        assert await store.read(container, "x") == b"old"

    @pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
    async def test_names(self, store: BlobStore, container: str, name: str) -> None:
        """A name comes back as it was given; letter case counts."""
        if "\\" in name:
            need(store, "faithful")
        await store.put(container, name, b"x")

        assert [each.name for each in await listed(store, container)] == [name]
        assert await store.read(container, name) == b"x"
        assert (await store.info(container, name)).name == name

    async def test_put_replaces_all(self, store: BlobStore, container: str) -> None:
        """A second put leaves nothing of the first: data, metadata, ETag."""
        first = await store.put(container, "x", b"long old data", metadata={"a": "1"})
        second = await store.put(container, "x", b"new")

        assert await store.read(container, "x") == b"new"
        assert (second.length, dict(second.metadata)) == (3, {})
        assert second.etag != first.etag
        assert await store.info(container, "x") == second

    async def test_every_write_has_another_etag(self, store: BlobStore, container: str) -> None:
        """No ETag occurs twice, also when the same bytes are put, and after a deletion."""
        tags: list[str] = []
        for _ in range(5):
            tags.append((await store.put(container, "x", b"same")).etag)
            tags.append((await store.put(container, "x", b"same")).etag)
            await store.delete(container, "x")

        assert len(set(tags)) == 10

    @pytest.mark.parametrize("data", [b"new", LARGE], ids=["small", "large"])
    async def test_only_if_absent(self, store: BlobStore, container: str, data: bytes) -> None:
        """With `if_none_match` a blob is made, but never replaced."""
        await store.put(container, "x", data, if_none_match=True)
        fault = await refusal(store.put(container, "x", b"other", if_none_match=True))

        assert fault.code == Code.BLOB_EXISTS
        assert await store.read(container, "x") == data

    async def test_one_of_many_creators_wins(self, store: BlobStore, container: str) -> None:
        """One of several tasks that put with `if_none_match` at once succeeds, and its blob is stored."""
        calls = (
            store.put(container, "x", bytes([number]) * (1 + number * 400_000), if_none_match=True)
            for number in range(6)
        )
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        (winner,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, BlobInfo)]
        assert {outcome.code for outcome in outcomes if isinstance(outcome, Fault)} == {Code.BLOB_EXISTS}
        assert await store.read(container, "x") == bytes([winner]) * (1 + winner * 400_000)

    async def test_only_if_unchanged(self, store: BlobStore, container: str) -> None:
        """With `if_match` a blob is replaced or deleted only if it has that ETag, or any for "*"."""
        first = await store.put(container, "x", b"1")
        second = await store.put(container, "x", b"2", if_match=first.etag)

        for call in (
            store.put(container, "x", b"3", if_match=first.etag),
            store.delete(container, "x", if_match=first.etag),
            store.put(container, "absent", b"3", if_match=first.etag),
        ):
            assert (await refusal(call)).code == Code.CONDITION_NOT_MET
        assert await store.info(container, "x") == second
        third = await store.put(container, "x", b"3", if_match="*")
        await store.delete(container, "x", if_match=third.etag)
        assert await listed(store, container) == []

    async def test_any_blob_is_more_than_none(self, store: BlobStore, container: str) -> None:
        """With `if_match="*"` there must be a blob."""
        need(store, "faithful")

        fault = await refusal(store.put(container, "absent", b"3", if_match="*"))
        assert fault.code == Code.CONDITION_NOT_MET

    async def test_absent_blob_is_refused(self, store: BlobStore, container: str) -> None:
        """Reading or deleting raises BlobNotFound before a blob is put and after it is deleted."""
        info = await store.put(container, "gone", b"x")
        await store.delete(container, "gone")

        for name in ("gone", "never"):
            for call in (
                store.info(container, name),
                store.read(container, name),
                store.delete(container, name),
                store.delete(container, name, if_match=info.etag),
            ):
                assert (await refusal(call)).code == Code.BLOB_NOT_FOUND
            with pytest.raises(Fault) as caught:
                async with store.get(container, name):
                    pass
            assert caught.value.code == Code.BLOB_NOT_FOUND

    async def test_ranges(self, store: BlobStore, container: str) -> None:
        """A range has the bytes from its offset, up to its length or the end."""
        await store.put(container, "x", LARGE)
        size = len(LARGE)
        wanted = [
            (0, 1),
            (1, 2),
            (262_143, 2),
            (262_144, 700_000),
            (999_999, None),
            (size - 1, None),
            (size - 1, 9),
            (0, 10**9),
        ]

        got = await ranges_of(store, container, "x", *wanted)
        assert got == [LARGE[offset:][:length] for offset, length in wanted]

    async def test_range_beyond_the_end(self, store: BlobStore, container: str) -> None:
        """An offset at the end or beyond is rejected, except at the beginning of an empty blob."""
        await store.put(container, "x", b"12345")
        await store.put(container, "empty", b"")

        for name, offset in (("x", 5), ("x", 6), ("empty", 1)):
            assert (await refusal(store.read(container, name, offset))).code == Code.INVALID_RANGE
        assert await ranges_of(store, container, "empty", (0, None), (0, 5)) == [b"", b""]

    async def test_chunks_are_small(self, store: BlobStore, container: str) -> None:
        """A stream returns a large blob in chunks that make up the whole, and may be left early."""
        await store.put(container, "x", LARGE)
        async with store.get(container, "x", 7) as stream:
            chunks = [chunk async for chunk in stream.chunks]
        async with store.get(container, "x") as stream:
            async for chunk in stream.chunks:
                assert LARGE.startswith(chunk)
                break

        assert len(chunks) > 1
        assert b"" not in chunks
        assert b"".join(chunks) == LARGE[7:]

    @pytest.mark.parametrize("end", ["replace", "delete", "both"])
    async def test_reader_never_sees_a_mixture(self, store: BlobStore, container: str, end: str) -> None:
        """A stream of a blob that is replaced or deleted goes on with the old bytes, or ends with a fault."""
        await store.put(container, "x", LARGE)
        got = b""
        with contextlib.suppress(Fault):
            async with store.get(container, "x") as stream:
                async for chunk in stream.chunks:
                    got += chunk
                    if len(got) == len(chunk):
                        if end != "replace":
                            await store.delete(container, "x")
                        if end != "delete":
                            await store.put(container, "x", LARGE[::-1])
                        await asyncio.sleep(0.05)

        assert LARGE.startswith(got)
        assert got

    async def test_new_blob_is_seen_whole(self, store: BlobStore, container: str) -> None:
        """A reader sees one blob in full, or is rejected, while large blobs replace each other."""
        versions = [bytes([number]) * 1_500_000 for number in range(4)]
        await store.put(container, "x", versions[0])
        done = False

        async def watch() -> list[bytes]:
            seen: list[bytes] = []
            while not done:
                with contextlib.suppress(Fault):
                    seen.append(await store.read(container, "x"))
                await asyncio.sleep(0)
            return seen

        watcher = asyncio.create_task(watch())
        for version in versions[1:]:
            await store.put(container, "x", version)
        done = True
        assert set(await watcher) <= set(versions)
        assert await store.read(container, "x") == versions[-1]

    async def test_cancelled_put_happens_in_full_or_not_at_all(self, store: BlobStore, container: str) -> None:
        """Cancelling writers at any point leaves whole blobs, and a store that still works."""
        tasks = [asyncio.create_task(store.put(container, f"{number:02d}", LARGE)) for number in range(6)]
        for number, task in enumerate(tasks):
            await asyncio.sleep(0.003)
            if number % 2:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        found = {each.name: each.length for each in await listed(store, container)}
        assert set(found.values()) <= {len(LARGE)}
        for number, outcome in enumerate(outcomes):
            assert f"{number:02d}" in found or isinstance(outcome, asyncio.CancelledError)
        await store.put(container, "after", b"x")

    async def test_list_in_pages(self, store: BlobStore, container: str) -> None:
        """Blobs are listed by prefix, in the order of names, in pages of any size, with what `info` returns."""
        names = [f"{folder}/{number:03d}" for folder in ("a", "b", "b-c") for number in range(11)]
        infos = await asyncio.gather(
            *(store.put(container, name, name.encode(), metadata={"n": name}) for name in names)
        )

        assert await listed(store, container) == sorted(infos, key=lambda each: each.name)
        for limit in (1, 4, 11, 12):
            assert [each.name for each in await listed(store, container, "b/", limit)] == [
                n for n in names if n[:2] == "b/"
            ]
        assert await listed(store, container, "c") == []

    async def test_list_goes_on_while_blobs_come_and_go(self, store: BlobStore, container: str) -> None:
        """A continuation is valid after the blob at which its page ended is deleted; others are listed once."""
        for number in range(9):
            await store.put(container, str(number), b"x")
        first = await store.list_blobs(container, limit=4)
        for number in (0, 3, 4):
            await store.delete(container, str(number))
        await store.put(container, "1a", b"x")
        rest = await store.list_blobs(container, continuation=first.continuation)

        assert [each.name for each in first.blobs] == ["0", "1", "2", "3"]
        assert [each.name for each in rest.blobs] == ["5", "6", "7", "8"]
        assert rest.continuation is None


class BlobLimitsContract(BlobTests):
    """Each limit of the service, at it and one beyond."""

    @pytest.mark.parametrize("name", ["", "Upper", "a_b-c", "-abc", "abc-", "a--b", "äbc", "abc\n", "$root"])
    async def test_bad_container_name_is_refused(self, store: BlobStore, name: str) -> None:
        """A name is lower case letters, digits and single hyphens between them."""
        need(store, "exact_limits")
        for call in (store.create_container(name), store.put(name, "x", b"x"), store.list_blobs(name)):
            assert (await refusal(call)).code == Code.INVALID_RESOURCE_NAME

    async def test_lengths_of_container_names(self, store: BlobStore) -> None:
        """A name has 3 to 63 characters."""
        need(store, "exact_limits")
        longest = new_dns_name().ljust(63, "x")
        await store.create_container(longest)

        assert await store.list_containers(longest) == [longest]
        for name in ("ab", "a" * 64):
            assert (await refusal(store.create_container(name))).code == Code.KEY_OUT_OF_RANGE
        await store.delete_container(longest)

    @pytest.mark.parametrize(
        ("names", "code"),
        [
            (("a\nb", "\x7f", "a/../b", ".", "a.", "a/", "/a", "a//b", "\ud800"), Code.INVALID_RESOURCE_NAME),
            (("", "x" * (MAX_BLOB_NAME + 1)), Code.KEY_OUT_OF_RANGE),
        ],
        ids=["form", "length"],
    )
    async def test_bad_blob_name_is_refused(
        self, store: BlobStore, container: str, names: tuple[str, ...], code: Code
    ) -> None:
        """
        A name has 1 to 1024 characters, none of them a control character, and no path segment that is empty or ends
        with a dot.
        """
        need(store, "exact_limits")
        for name in names:
            for call in (
                store.put(container, name, b"x"),
                store.append(container, name, b"x"),
                store.read(container, name),
            ):
                assert (await refusal(call)).code == code, name

    async def test_metadata(self, store: BlobStore, container: str) -> None:
        """8 KiB of names and values come back; more, and text that a header cannot carry, is rejected."""
        need(store, "exact_limits")
        largest = {"name": "v" * (MAX_METADATA_BYTES - 6), "b": "w"}
        await store.put(container, "x", b"x", metadata=largest)

        assert dict((await store.info(container, "x")).metadata) == largest
        larger = {**largest, "b": "ww"}
        assert (await refusal(store.put(container, "x", b"x", metadata=larger))).code == Code.METADATA_TOO_LARGE
        for bad in (
            {"a-b": "x"},
            {"1a": "x"},
            {"": "x"},
            {"a": "ä"},
            {"a": "x\ny"},
            {"a": " x"},
            {"a": ""},
            {"a": "1", "A": "2"},
        ):
            assert (await refusal(store.put(container, "x", b"y", metadata=bad))).code == Code.INVALID_METADATA
        assert await store.read(container, "x") == b"x"

    async def test_appends(self, store: BlobStore, container: str) -> None:
        """Appending no bytes, or more than 4 MiB, is rejected."""
        need(store, "exact_limits")

        assert (await refusal(store.append(container, "x", b""))).code == Code.INVALID_INPUT
        fault = await refusal(store.append(container, "x", b"x" * (MAX_APPEND_BYTES + 1)))
        assert fault.code == Code.REQUEST_BODY_TOO_LARGE

    async def test_ranges_and_pages(self, store: BlobStore, container: str) -> None:
        """A range has an offset from 0 and a length from 1; a page 1 to 5000 blobs."""
        await store.put(container, "x", b"x")

        for offset, length in ((-1, None), (0, 0), (0, -1)):
            assert (await refusal(store.read(container, "x", offset, length))).code == Code.INVALID_INPUT
        for limit in (0, 5001):
            assert (await refusal(store.list_blobs(container, limit=limit))).code == Code.PARAMETER_OUT_OF_RANGE


class BlobDurabilityContract(BlobTests):
    """What was acknowledged is there after a restart. A durable backend overrides `reopen` as well."""

    @pytest.fixture
    def reopen(self, store: BlobStore) -> ReopenBlobs:
        """Closes the store and opens the same data again."""
        need(store, "durable")
        raise NotImplementedError(f"{type(self).__name__} must override the fixture `reopen`")

    async def test_blobs_stay(self, store: BlobStore, reopen: ReopenBlobs) -> None:
        """After a restart blobs and ETags are the same, deleted blobs stay deleted, appends and continuations go on."""
        container = new_dns_name()
        await store.create_container(container)
        await store.put(container, "a", LARGE, metadata={"k": "v"})
        await store.append(container, "log", b"one")
        await store.put(container, "gone", b"x")
        await store.delete(container, "gone")
        before = await listed(store, container)
        page = await store.list_blobs(container, limit=1)

        again = await reopen()
        assert await listed(again, container) == before
        assert await again.read(container, "a") == LARGE
        rest = await again.list_blobs(container, continuation=page.continuation)
        assert [each.name for each in rest.blobs] == ["log"]
        assert (await again.append(container, "log", b"two", if_position=3)).etag not in {each.etag for each in before}
        assert await again.read(container, "log") == b"onetwo"
        await again.delete_container(container)


class BlobStoreContract(
    BlobLifecycleContract, BlobContract, AppendContract, BlobLimitsContract, BlobDurabilityContract
):
    """
    All parts of the contract. Override the fixture `store`, and for a durable backend `reopen`.
    """
