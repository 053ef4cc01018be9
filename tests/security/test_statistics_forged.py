"""
Keys by which who may write some rows, or who answers as a server, would end or hold a measurement of a table.
"""

import asyncio
import json
import random
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tableorm import PropertyBag, RetryPolicy, Unavailable, connect
from tableorm.advice import measure_table
from tableorm.advice.key_tree import KeyTree
from tests.advice.rows_in_memory import RowsInMemory
from tests.azure.stub import ETAG, KEY, Answer, Request, Stub
from tests.security.test_files import craft


async def test_keys_of_which_each_begins_with_the_one_before_are_measured() -> None:
    """A thousand groups within each other are deeper than calls can be nested."""
    keys = [("a" * length, "") for length in range(1, 513)]
    keys += [("a" * 512, "b" * length) for length in range(1, 513)]
    keys += [("b", str(number)) for number in range(20)]
    tree = KeyTree(RowsInMemory(keys).read, random.Random(0), 2)
    while not tree.root.known:
        await tree.descend()
    assert tree.find_error(lambda totals: totals.rows) == 0
    assert tree.sum_up().rows == len({*keys})


@pytest.mark.parametrize("more", ["", "a", "a" * 600])
async def test_rows_that_were_not_asked_for_end_a_measurement(more: str) -> None:
    """A server that answers each request with the same keys, or with longer ones, does not hold the client for ever."""
    answered = 0

    def answer(request: Request) -> Answer:
        nonlocal answered
        answered += 1
        size = int(re.findall(r"top=(\d+)", unquote(request.target))[0])
        found = {"odata.etag": ETAG, "Timestamp": "2024-02-29T12:34:56.7891234Z"}
        partition = "a" + more * (answered > 1)
        rows = [{**found, "PartitionKey": partition, "RowKey": str(number)} for number in range(min(size, 3))]
        on = {"x-ms-continuation-NextPartitionKey": f"z{answered}", "x-ms-continuation-NextRowKey": "r"}
        return Answer(200, {"Content-Type": "application/json", **on}, json.dumps({"value": rows}).encode())

    async with Stub() as stub, asyncio.timeout(5):
        stub.handler = answer
        async with connect(stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1)) as db:
            with pytest.raises(Unavailable, match="which was not asked for"):
                await measure_table(db, "Tab", requests=8)


async def test_a_binary_that_is_none_is_counted(tmp_path: Path) -> None:
    """A row of a crafted file whose Binary is a number ends no measurement."""
    path = tmp_path / "crafted.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables("Tab")
        await db.insert(PropertyBag("Tab", "p", "r", {"Data": b"x"}))
    craft(path, "UPDATE t1 SET body = CAST(json_set(CAST(body AS TEXT), '$.Data', 5) AS BLOB)")
    async with connect(f"local:{path}") as db:
        assert (await measure_table(db, "Tab")).rows == 1
