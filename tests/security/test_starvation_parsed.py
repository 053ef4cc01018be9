"""
Transactions that were read are several times as large as their bodies, so only some of a caller's are read at a time.
"""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tableorm_local import serve
from tableorm_local.server.operations import transactions
from tests.local.server.client import Api, root_of
from tests.security.test_starvation import table_token


async def test_transactions_of_one_caller_are_not_all_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 transactions of 100 rows each, which come together, few are half read at any time."""
    under_way, most = 0, 0
    read_steps: Callable[..., Generator[None, None, Any]] = vars(transactions)["_read_steps"]

    def count(*args: Any) -> Generator[None, None, Any]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return (yield from read_steps(*args))
        finally:
            under_way -= 1

    monkeypatch.setattr(transactions, "_read_steps", count)
    properties = ",".join(f'"p{number}":"x"' for number in range(200))

    def body(first: int) -> bytes:
        part = "--c\r\nContent-Type: application/http\r\n\r\n"
        part += "POST /devstoreaccount1/Tab HTTP/1.1\r\nPrefer: return-no-content\r\n\r\n"
        rows = [f'{{"PartitionKey":"a","RowKey":"{first}_{number}",{properties}}}\r\n' for number in range(100)]
        inner = "".join(part + row for row in rows)
        return f"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{inner}--c--\r\n--b--\r\n".encode()

    connector = aiohttp.TCPConnector(limit=100)
    async with serve(tmp_path / "data.tables", port=0) as server, aiohttp.ClientSession(connector=connector) as session:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        token, kind = table_token(spk="a", epk="b"), {"Content-Type": "multipart/mixed; boundary=b"}
        replies = await asyncio.gather(
            *(api("POST", "/$batch", body(n), query=token, scheme=None, headers=kind) for n in range(40))
        )
    assert {reply.status for reply in replies} == {202}
    assert most < 10
