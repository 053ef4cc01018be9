"""
Heads of requests that take long to read take turns by address: who is not authenticated keeps nobody else waiting.
"""

import asyncio
import socket
from pathlib import Path

import pytest

from tableorm_local import serve
from tableorm_local.server.front import http
from tableorm_local.server.wire.options import options_of

LONG = "&$filter=" + "%41" * 20_000  # 60 KB, which take 9 ms to decode
PATH = "/devstoreaccount1/Tab()?sv=2019-02-02&tn=Tab&se=2099-01-01&sp=r&sig=AAAA"


async def test_long_heads_of_one_address_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 long targets come from one address, then a short one from another: some of the long ones are read after it."""
    read = list[str]()

    all_read = asyncio.Event()

    def note(query: str) -> dict[str, str]:
        read.append("long" if len(query) > 10_000 else "short")
        if len(read) == 31:
            all_read.set()
        return options_of(query)

    monkeypatch.setattr(http, "options_of", note)
    async with serve(tmp_path / "data.tables", port=0) as server:
        connections = list[socket.socket]()
        for number in range(31):
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 * 1024)
            made.bind(("127.0.0.2" if number == 30 else "127.0.0.1", 0))
            made.connect(("127.0.0.1", server.port))
            connections.append(made)
        await asyncio.sleep(0.1)  # all are accepted
        for number, each in enumerate(connections):
            target = PATH if number == 30 else PATH + LONG
            each.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await all_read.wait()
        for each in connections:
            each.close()
    assert read.index("short") < 20
