"""
No error of a client shows the token that it was opened with, whatever the server answers.
"""

import asyncio
import json
import traceback
from collections.abc import Callable

import pytest

from tableorm import Entity, Mapped, RetryPolicy, TableOrmError, connect

SECRET = "SECRETSIGNATURE"
SAS = f"sv=2019-02-02&tn=Tab&se=2099-01-01T00%3A00%3A00Z&sp=raud&spk=a&epk=a&sig={SECRET}%2BABC%3D"


class Thing(Entity, table="Tab", partition_key="{p}", row_key="{r}"):
    p: Mapped[str]
    r: Mapped[str]


def _refusal(head: bytes) -> bytes:
    code = json.dumps({"odata.error": {"code": "AuthenticationFailed", "message": {"value": head.decode()}}}).encode()
    return b"HTTP/1.1 403 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(code), code)


ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "a status that is none": lambda _head: b"HTTP/1.1 abc\r\n\r\n",
    "a header that is none": lambda _head: b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
    "a chunk that is none": lambda _head: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "a refusal that quotes the request": _refusal,
    "a code that quotes the URL": lambda head: (
        b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nx-ms-error-code: " + head.split(b" ")[1] + b"\r\n\r\n"
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("verb", ["get", "insert"])
async def test_no_error_shows_the_token(name: str, verb: str) -> None:
    """An answer that is not HTTP, or that quotes the request, does not put the signature into an error."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWERS[name](await reader.readuntil(b"\r\n\r\n")))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        connect(f"http://127.0.0.1:{port}/acct", sas=SAS, timeout=1, retry=RetryPolicy(attempts=1)) as db,
    ):
        with pytest.raises(TableOrmError) as caught:
            await (db.get(Thing, p="a", r="b") if verb == "get" else db.insert(Thing(p="a", r="b")))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
