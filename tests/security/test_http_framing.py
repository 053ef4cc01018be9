"""
Framing of HTTP: a request whose end a proxy may see elsewhere is rejected, or ends its connection.
"""

import asyncio

import pytest

from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Server
from tests.local.server.client import Wire

LINE = b"GET /devstoreaccount1/Tables HTTP/1.1\r\nHost: localhost\r\n"
INSERT = sign_sas(
    TableSas(sv="2019-02-02", tn="Tab", se="2099-01-01T00:00:00Z", sp="a"),
    DEVELOPMENT_ACCOUNT,
    decode_key(DEVELOPMENT_KEY),
)


@pytest.mark.parametrize("protocol", [b"foo", b"websocket", b"h2c"])
@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_what_follows_an_upgrade_is_not_read(server: Server, protocol: bytes, body: bytes) -> None:
    """A request to speak another protocol is answered as if it had not asked, and ends the connection."""
    wire = await Wire.connect(
        server, LINE + b"Connection: upgrade\r\nUpgrade: " + protocol + b"\r\nContent-Length: %d\r\n" % len(body)
    )
    wire.writer.write(b"\r\n" + body + 2 * (LINE + b"\r\n"))
    async with asyncio.timeout(5):
        answers = await wire.everything()
    await wire.close()

    assert answers.count(b"HTTP/1.1 ") == 1
    assert answers.startswith(b"HTTP/1.1 403 ")
    assert b"\r\nConnection: close\r\n" in answers


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b" chunked "])
async def test_small_chunks_are_good(server: Server, coding: bytes) -> None:
    """A body in chunks of a few bytes, as programs send that make it piece by piece, is read whole."""
    body = b'{"PartitionKey":"p","RowKey":"r","A":"' + b"x" * 30_000 + b'"}'
    chunks = b"".join(b"10\r\n" + body[at : at + 16] + b"\r\n" for at in range(0, len(body) - 16, 16))
    rest = body[len(body) // 16 * 16 - (0 if len(body) % 16 else 16) :]
    wire = await Wire.connect(server)
    line = f"POST /{DEVELOPMENT_ACCOUNT}/Tab?{INSERT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    wire.writer.write(line.encode() + b"Transfer-Encoding:" + coding + b"\r\n\r\n" + chunks)
    wire.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))
    async with asyncio.timeout(5):
        assert (await wire.everything()).startswith(b"HTTP/1.1 201 ")
    await wire.close()


@pytest.mark.usefixtures("api")
async def test_a_body_in_chunks_may_arrive_faster_than_it_is_read(server: Server) -> None:
    """What of a body in chunks was received at once, and is not parsed yet as nobody has read it, is no framing."""
    body = b'{"PartitionKey":"p","RowKey":"r"' + b"".join(b',"A%d":"%b"' % (n, b"x" * 30_000) for n in range(8)) + b"}"
    parts = [body[at : at + 1_000] for at in range(0, len(body), 1_000)]
    line = f"POST /{DEVELOPMENT_ACCOUNT}/Tab?{INSERT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    wire = await Wire.connect(server, line.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
    await asyncio.sleep(0.02)  # for the server to begin with the body, of which it takes much at once then
    wire.writer.write(b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await wire.everything()).startswith(b"HTTP/1.1 201 ")
    await wire.close()


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize(
    ("line", "answered"), [("HTTP/1.0\r\nConnection: keep-alive", 1), ("HTTP/1.1", 2)], ids=["1.0", "1.1"]
)
async def test_nothing_is_read_behind_chunks_of_a_version_that_has_none(
    server: Server, verb: str, line: str, answered: int
) -> None:
    """A proxy that speaks HTTP/1.0 knows no chunks, and may take them for something else: the connection is closed."""
    wire = await Wire.connect(server)
    sent = f"{verb} /devstoreaccount1/Tables {line}\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.writer.write(sent.encode() + b"2\r\n{}\r\n0\r\n\r\n" + LINE + b"Connection: close\r\n\r\n")
    async with asyncio.timeout(5):
        answers = await wire.everything()
    await wire.close()

    assert answers.count(b"HTTP/1.") == answers.count(b" 403 ") == answered


async def test_other_transfer_codings_than_chunks_are_refused(server: Server) -> None:
    """A body that is encoded for its way besides its chunks would be read as if it was not, so it is not read."""
    codings = ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked", "identity,chunked"]

    async def answers_to(coding: str, follows: bytes) -> tuple[str, bytes, int, int]:
        wire = await Wire.connect(server)
        sent = f"POST /devstoreaccount1/Tables HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {coding}\r\n\r\n"
        wire.writer.write(sent.encode() + follows)
        answers = await wire.everything()
        await wire.close()
        return coding, follows, answers.count(b"HTTP/1."), answers.count(b" 400 ")

    cases = [(coding, follows) for coding in codings for follows in (b"", b"2\r\n{}\r\n0\r\n\r\n" + LINE + b"\r\n")]
    async with asyncio.timeout(10):
        found = await asyncio.gather(*(answers_to(*case) for case in cases))
    assert found == [(*case, 1, 1) for case in cases]
