"""
Pages and merges: how much the server holds for one answer, or one transaction, however little a client sends.
"""

import tracemalloc
from pathlib import Path

import pytest

from tableorm.protocol.codes import Fault
from tableorm.stores import CONDITIONAL, MERGES, Operation, RowQuery, Verb
from tableorm_local.engine import Engine, writes
from tests.local.engine.rows import insert_rows, make_rows
from tests.local.server.client import FULL_METADATA, NO_METADATA, Api, Reply
from tests.security.world import serve_file

MIB = 1024 * 1024


async def read_pages(api: Api, query: str, level: str) -> list[Reply]:
    """All pages of the table `Tab` at a level of metadata."""
    pages = [await api("GET", "/Tab()", query=query, Accept=level)]
    while "x-ms-continuation-NextPartitionKey" in pages[-1].headers:
        following = "&".join(
            f"{name}={pages[-1].headers[f'x-ms-continuation-{name}']}" for name in ("NextPartitionKey", "NextRowKey")
        )
        pages.append(await api("GET", "/Tab()", query=f"{query}&{following}", Accept=level))
    return pages


@pytest.mark.one_of(3)
@pytest.mark.parametrize("filtered", ["", "&$filter=RowKey%20ge%20'0'"], ids=["all", "within"])
@pytest.mark.parametrize("level", [FULL_METADATA, NO_METADATA, "application/json"])
async def test_properties_that_no_row_has_count_for_the_page(tmp_path: Path, level: str, filtered: str) -> None:
    """A page of rows with hundreds of nulls of long names ends at about 4 MiB; the pages after it have the others."""
    names = ",".join(f"A{number:03d}" + "x" * 249 for number in range(240))
    async with serve_file(tmp_path / "data.tables") as (owner, api):
        await owner.create_table("Tab")
        for partition in "ab":
            await insert_rows(owner, make_rows(partition, 100), "Tab")
        pages = await read_pages(api, f"$select=RowKey,{names}{filtered}", level)

    assert max(len(page.body) for page in pages) < 8 * MIB
    rows = [row for page in pages for row in page.rows]
    assert [row["RowKey"] for row in rows] == [f"{number:04d}" for number in range(100)] * 2
    assert rows[0]["A000" + "x" * 249] is None


async def test_links_count_for_the_page(tmp_path: Path) -> None:
    """The links of full metadata, in which a key takes eighteen times what it was sent as, end a page too."""
    async with serve_file(tmp_path / "data.tables") as (owner, api):
        await owner.create_table("Tab")
        rows = make_rows("€" * 512, 400)
        await insert_rows(owner, [row | {"RowKey": "€" * 508 + row["RowKey"]} for row in rows], "Tab")
        pages = await read_pages(api, "$select=N", FULL_METADATA)

    assert max(len(page.body) for page in pages) < 6 * MIB
    assert sum(len(page.rows) for page in pages) == 400


async def test_the_rows_of_many_merges_are_not_held_together(memory: Engine) -> None:
    """A transaction of small merges into large rows holds a bounded part of them."""
    large = make_rows("p", 60, **{f"T{number}": "x" * 30_000 for number in range(15)})
    for row in large:
        await memory.write("Shared", Operation(Verb.INSERT, row))
    merges = [
        Operation(Verb.MERGE, {"PartitionKey": "p", "RowKey": f"{number:04d}", "N": number}, "*")
        for number in range(60)
    ]
    tracemalloc.start()
    try:
        await memory.transact("Shared", merges)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 12 * MIB
    rows = (await memory.query("Shared", RowQuery(select=("N", "T14")))).rows
    assert [row["N"] for row in rows] == list(range(len(rows)))
    assert {row["T14"] for row in rows} == {"x" * 30_000}


async def test_merged_rows_that_are_not_held_are_the_same(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write of a transaction has its effect, in order, also where no merged row is held; a refusal undoes all."""
    monkeypatch.setattr(writes, "_MERGED_BYTES", 300)
    await insert_rows(memory, make_rows("p", 8, A=1, B="x"))
    verbs = [Verb.MERGE, Verb.DELETE, Verb.REPLACE, Verb.INSERT_OR_MERGE] * 2 + [Verb.INSERT, Verb.INSERT_OR_REPLACE]
    changes = [
        Operation(verb, row, "*" if verb in CONDITIONAL else None)
        for verb, row in zip(verbs, make_rows("p", 10, A=2), strict=True)
    ]
    with pytest.raises(Fault) as caught:
        await memory.transact("Shared", [*changes, Operation(Verb.MERGE, {"PartitionKey": "p", "RowKey": "z"}, "*")])
    assert caught.value.index == 10
    before = (await memory.query("Shared", RowQuery())).rows
    assert [(row["A"], row["B"]) for row in before] == [(1, "x")] * 8

    etags = await memory.transact("Shared", changes)
    assert [etag is None for etag in etags] == [verb is Verb.DELETE for verb in verbs]
    after = (await memory.query("Shared", RowQuery())).rows
    assert [(row["RowKey"], row["A"], row.get("B")) for row in after] == [
        (f"{number:04d}", 2, "x" if verb in MERGES else None)
        for number, verb in enumerate(verbs)
        if verb is not Verb.DELETE
    ]
    assert [row["odata.etag"] for row in after] == [etag for etag in etags if etag is not None]
