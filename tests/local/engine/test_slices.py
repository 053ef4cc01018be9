"""
Work in slices: however small these are, their sum is the whole, and nothing comes twice.
"""

import random
from collections.abc import AsyncIterator

import pytest

from tableorm.stores import Operation, Row, RowQuery, Verb
from tableorm_local.engine import Engine, blob_contents, blobs, writes


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of few bytes and blobs."""
    monkeypatch.setattr(blob_contents, "CHUNK_BYTES", 4)
    monkeypatch.setattr(blob_contents, "_SLICE_CHUNKS", 2)
    monkeypatch.setattr(blobs, "_LIST_SLICE", 3)


@pytest.fixture
async def container(memory: Engine) -> str:
    await memory.blobs.create_container("container")
    return "container"


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    """The data in pieces of some size, with empty ones in between."""
    for at in range(0, len(data), size):
        yield data[at : at + size]
        yield b""


@pytest.mark.one_of(3)
@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40])
async def test_what_is_put_is_what_is_read(memory: Engine, container: str, length: int) -> None:
    """Whatever the sizes of the blob, of the pieces that it is sent in, and of the range that is read."""
    data = bytes(range(length))
    for size in (1, 2, 3, 4, 5, 8, 9, 50):
        assert (await memory.blobs.put(container, "sent", pieces(data, size))).length == length
        assert await memory.blobs.read(container, "sent") == data
    assert (await memory.blobs.put(container, "whole", data)).length == length
    for offset in range(length):
        for count in (None, *range(1, length - offset + 2)):
            end = None if count is None else offset + count
            assert await memory.blobs.read(container, "whole", offset, count) == data[offset:end]


async def test_what_is_appended_is_what_is_read(memory: Engine, container: str) -> None:
    """Appends of any size make chunks of any size; ranges across them are read whole."""
    drawn, data = random.Random(1), b""
    for _ in range(12):
        more = drawn.randbytes(drawn.randrange(1, 11))
        assert (await memory.blobs.append(container, "log", more, if_position=len(data))).length == len(data) + len(
            more
        )
        data += more
    for offset in range(len(data)):
        for count in (1, 2, 3, 4, 5, 9, 30, None):
            end = None if count is None else offset + count
            assert await memory.blobs.read(container, "log", offset, count) == data[offset:end]


@pytest.mark.parametrize("prefix", ["", "b", "x"])
async def test_pages_of_blobs_together_are_all(memory: Engine, container: str, prefix: str) -> None:
    """Whatever the size of a page: each is full but the last, which has no continuation."""
    names = [*(f"a{number}" for number in range(4)), *(f"b{number}" for number in range(7)), "c"]
    for name in names:
        await memory.blobs.put(container, name, b"")
    wanted = [name for name in names if name.startswith(prefix)]
    for limit in range(1, 14):
        found, token = list[str](), None
        while True:
            page = await memory.blobs.list_blobs(container, prefix, token, limit)
            found += [blob.name for blob in page.blobs]
            token = page.continuation
            if token is None:
                break
            assert len(page.blobs) == limit
            assert len(found) < len(wanted)
        assert found == wanted


async def test_large_merges_in_one_transaction(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that merging makes too large to be kept together are made when they are written, in the same order."""
    monkeypatch.setattr(writes, "_PUTS_AT_ONCE", 3)
    merges, merge = list[Row](), writes.__dict__["_merge_rows"]

    def note(stored: Row, row: Row) -> object:
        merges.append(row)
        return merge(stored, row)

    monkeypatch.setattr(writes, "_merge_rows", note)
    rows: list[Row] = [{"PartitionKey": "p", "RowKey": f"{n:02}", "A": "x" * 100, "N": n} for n in range(20)]
    await memory.transact("Shared", [Operation(Verb.INSERT, row) for row in rows])
    for bound in (0, 300, 301, 1000, 100_000):
        monkeypatch.setattr(writes, "_MERGED_BYTES", bound)
        changes = list[Operation]()
        for number, row in enumerate(rows):
            keys: Row = {"PartitionKey": "p", "RowKey": row["RowKey"]}
            match number % 4:
                case 0:
                    changes.append(Operation(Verb.DELETE, keys, "*"))
                case 1:
                    changes.append(Operation(Verb.INSERT_OR_REPLACE, keys | {"B": bound, "N": number}))
                case _:
                    changes.append(Operation(Verb.MERGE, keys | {"B": bound}, "*"))
        merges.clear()
        etags = await memory.transact("Shared", changes)
        made_again = len(merges) - 10
        assert made_again == {0: 10, 100_000: 0}.get(bound, made_again)
        found = {row["RowKey"]: row for row in (await memory.query("Shared", RowQuery())).rows}

        assert [etag is None for etag in etags] == [number % 4 == 0 for number in range(20)]
        for number, row in enumerate(rows):
            if number % 4 == 0:
                assert row["RowKey"] not in found
                await memory.write("Shared", Operation(Verb.INSERT, row))
                continue
            stored = found[row["RowKey"]]
            assert stored["odata.etag"] == etags[number]
            assert (stored["N"], stored["B"], "A" in stored) == (number, bound, number % 4 != 1)
        assert len(set(etags)) == 16
