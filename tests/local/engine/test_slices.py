"""
Work in slices: however small these are, their sum is the whole, and nothing comes twice.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.stores import Operation, Row, RowQuery, Verb
from tableorm_local.engine import Engine, blob_contents, writes
from tests.local.engine.rows import insert_rows, make_rows


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of few bytes."""
    monkeypatch.setattr(blob_contents, "CHUNK_BYTES", 4)
    monkeypatch.setattr(blob_contents, "_SLICE_CHUNKS", 2)


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


@pytest.mark.parametrize(("bound", "again"), [(0, 10), (300, None), (1000, None), (100_000, 0)])
async def test_large_merges_in_one_transaction(
    memory: Engine, monkeypatch: pytest.MonkeyPatch, bound: int, again: int | None
) -> None:
    """Rows that merging makes too large to be kept together are made when they are written, in the same order."""
    merged, merge = list[Row](), writes.__dict__["_merge_rows"]

    def note(stored: Row, row: Row) -> object:
        merged.append(row)
        return merge(stored, row)

    monkeypatch.setattr(writes, "_PUTS_AT_ONCE", 3)
    monkeypatch.setattr(writes, "_MERGED_BYTES", bound)
    monkeypatch.setattr(writes, "_merge_rows", note)
    await insert_rows(memory, make_rows("p", 20, A="x" * 100))
    changes = [
        Operation(Verb.MERGE, row, "*") if number % 2 else Operation(Verb.INSERT_OR_REPLACE, row)
        for number, row in enumerate(make_rows("p", 20, B=bound))
    ]
    etags = await memory.transact("Shared", changes)
    found = (await memory.query("Shared", RowQuery())).rows

    assert again is None or len(merged) == 10 + again
    assert [row["odata.etag"] for row in found] == etags
    assert [(row["B"], "A" in row) for row in found] == [(bound, False), (bound, True)] * 10
    assert len(set(etags)) == 20
