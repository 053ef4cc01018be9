"""
Answers to a query in a transaction are answers to reads, and are counted and refused like those.
"""

import asyncio
import socket
from pathlib import Path

import aiohttp

from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm_local import serve
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tableorm_local.server.front.limits import Limits
from tests.local.server.client import Api, root_of

PART = (
    b"--b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"GET /devstoreaccount1/Tab(PartitionKey='a',RowKey='r') HTTP/1.1\r\nAccept: application/json\r\n\r\n\r\n--b--\r\n"
)


async def test_answers_to_queries_in_transactions_are_shared_fairly(tmp_path: Path) -> None:
    """A token's answers that it does not take use half of the bytes, whether it asks by GET or in a transaction."""
    token = sign_sas(
        TableSas(sv="2019-02-02", tn="Tab", se="2099-01-01", sp="r", spk="a", epk="a"),
        DEVELOPMENT_ACCOUNT,
        decode_key(DEVELOPMENT_KEY),
    )
    head = (
        f"POST /{DEVELOPMENT_ACCOUNT}/$batch?{token} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: multipart/mixed; boundary=b\r\nContent-Length: {len(PART)}\r\n\r\n"
    ).encode()
    async with (
        serve(tmp_path / "data.tables", port=0, limits=Limits(buffered_bytes=8_000_000, stop_seconds=0.5)) as server,
        aiohttp.ClientSession() as session,
    ):
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        # In JSON a control character has six bytes, so the answer has 2.9 MB.
        row = {"PartitionKey": "a", "RowKey": "r"} | {f"B{number}": "\x01" * 32_000 for number in range(15)}
        assert (await api("POST", "/Tab", row, Prefer="return-no-content")).status == 204
        row = {"PartitionKey": "z", "RowKey": "r"}
        assert (await api("POST", "/Tab", row, Prefer="return-no-content")).status == 204
        connections = list[socket.socket]()
        for _ in range(8):
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect(("127.0.0.1", server.port))
            made.sendall((head + PART) * 8)
            connections.append(made)
        await asyncio.sleep(1)
        statuses = [(await api("GET", "/Tab(PartitionKey='z',RowKey='r')")).status for _ in range(3)]
        for made in connections:
            made.close()
    assert statuses == [200] * 3
