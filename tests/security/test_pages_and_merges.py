"""
Pages and merges: how much the server holds for one answer, or one transaction, however little a client sends.
"""

from pathlib import Path

import pytest

from tableorm.stores import Operation, RowQuery, Verb
from tableorm_local.engine import Engine
from tests.local.engine.rows import insert_rows, make_rows
from tests.local.server.client import FULL_METADATA, NO_METADATA, Api, Reply
from tests.security.world import memory_below, serve_file

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


async def test_the_rows_of_many_merges_are_not_held_together(memory: Engine) -> None:
    """A transaction of small merges into large rows holds a bounded part of them."""
    large = make_rows("p", 60, **{f"T{number}": "x" * 30_000 for number in range(15)})
    for row in large:
        await memory.write("Shared", Operation(Verb.INSERT, row))
    merges = [
        Operation(Verb.MERGE, {"PartitionKey": "p", "RowKey": f"{number:04d}", "N": number}, "*")
        for number in range(60)
    ]
    with memory_below(12 * MIB):
        await memory.transact("Shared", merges)

    rows = (await memory.query("Shared", RowQuery(select=("N", "T14")))).rows
    assert [row["N"] for row in rows] == list(range(len(rows)))
    assert {row["T14"] for row in rows} == {"x" * 30_000}
