"""
Framing of HTTP: how much of heads, of trailers and of requests in a row the server keeps before it knows who sends.
"""

import asyncio
import contextlib
from collections import Counter

import aiohttp
import pytest
from aiohttp import StreamReader
from yarl import URL

from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Limits, Server, serve
from tableorm_local.server.dispatch import Service
from tableorm_local.server.wire.calls import Answer, Incoming
from tests.local.server.client import Api, Wire, head, root_of

LINE = b"GET /devstoreaccount1/Tables HTTP/1.1\r\nHost: localhost\r\n"
INSERT = sign_sas(
    TableSas(sv="2019-02-02", tn="Tab", se="2099-01-01T00:00:00Z", sp="a"),
    DEVELOPMENT_ACCOUNT,
    decode_key(DEVELOPMENT_KEY),
)
FIELD = b"X-%d: " + b"x" * 9_000 + b"\r\n"


def fields(count: int) -> bytes:
    """So many headers of 9 KB."""
    return b"".join(FIELD.replace(b"%d", str(number).encode()) for number in range(count))


@pytest.mark.parametrize(
    "sent",
    [
        LINE + fields(8) + b"\r\n",
        LINE + fields(8),
        LINE + b"\r\n" + LINE + fields(8) + b"\r\n",
        LINE + fields(6) + b"\r\n" + LINE + fields(8),
        b"POST /devstoreaccount1/Tables HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + fields(40),
        b"POST /devstoreaccount1/Tables HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n{" + LINE + fields(8),
    ],
    ids=["complete", "unfinished", "second", "second unfinished", "trailers", "after a body"],
)
@pytest.mark.parametrize("step", [1_000_000, 4_000])
async def test_a_head_has_64_kib(server: Server, sent: bytes, step: int) -> None:
    """A head, or what follows a body, of more than 64 KiB ends the connection, whether or not it is complete."""
    wire = await Wire.connect(server)
    try:
        for at in range(0, len(sent), step):
            wire.writer.write(sent[at : at + step])
            await wire.writer.drain()
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    async with asyncio.timeout(5):
        answers = await wire.everything()
    await wire.close()

    assert b"HTTP/1.1 200" not in answers
    assert (
        answers == b"" or b"InvalidUri" in answers or b"AuthenticationFailed" in answers or b"stands between" in answers
    )


async def test_a_large_head_is_good(server: Server, api: Api) -> None:
    """A head of less than 64 KiB is answered, also after another one, and in parts."""
    for step in (1_000_000, 4_000):
        wire = await Wire.connect(server)
        for _ in range(3):
            sent = head("GET", "/Tables", *fields(6).decode().splitlines())
            for at in range(0, len(sent), step):
                wire.writer.write(sent[at : at + step])
                await asyncio.sleep(0)
            assert await wire.status() == 200
            await wire.reader.readuntil(b"}")
        await wire.close()


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("before", [0, 1], ids=["alone", "behind another"])
async def test_a_head_may_have_just_as_many_bytes(before: int, over: int) -> None:
    """A signed request with as many bytes as a head may have is answered; with one more it is not."""
    sent = head("GET", "/Tables", "Connection: close", *fields(2).decode().splitlines())
    async with serve(None, port=0, limits=Limits(head_bytes=len(sent) - over)) as server:
        wire = await Wire.connect(server)
        wire.writer.write(before * head("GET", "/Tables") + sent)
        async with asyncio.timeout(5):
            answers = await wire.everything()
        await wire.close()

    assert over or answers.count(b"HTTP/1.1 200") == before + 1
    assert not over or (answers.count(b"HTTP/1.1 200") <= before and b" 400 " in answers and b"InvalidUri" in answers)


async def count_open(wires: list[Wire]) -> int:
    """How many of the connections the server has not ended."""
    await asyncio.sleep(0.1)
    for wire in wires:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.005):
                await wire.reader.read()  # at its end only once everything is read
    return sum(not wire.reader.at_eof() and wire.reader.exception() is None for wire in wires)


async def test_unfinished_heads_together_are_bounded(session: aiohttp.ClientSession) -> None:
    """Connections that send no more than a part of a head hold a bounded amount together; others are served."""
    async with serve(None, port=0, limits=Limits(waiting_bytes=1_560_000)) as server:
        wires = [await Wire.connect(server) for _ in range(30)]
        for wire in wires:
            wire.writer.write(LINE + fields(3))
        answers = await read_ends(wires, 23)
        assert all(b" 503 " in answer and b"ServerBusy" in answer for answer in answers)
        assert all(b"The server is busy: too much waits to be read. Try again later." in answer for answer in answers)
        assert (await Api(session, root_of(server))("GET", "/Tables")).status == 200
        async with session.get(f"{root_of(server)}/metrics") as metrics:
            counted = (await metrics.text()).splitlines()
        assert 'tableorm_refused_total{what="connection"} 23.0' in counted
        assert 'tableorm_requests_total{operation="Malformed",status="503"} 23.0' in counted
        for wire in wires:
            await wire.close()
        # What they held is given back.
        more = await Wire.connect(server)
        more.writer.write(LINE + fields(6))
        await asyncio.sleep(0.05)
        more.writer.write(b"\r\n")
        assert await more.status() == 403
        await more.close()


async def read_ends(wires: list[Wire], count: int) -> list[bytes]:
    """What the first connections got that the server ends, so many of them."""
    reading = [asyncio.create_task(wire.everything()) for wire in wires]
    ended = list[bytes]()
    async with asyncio.timeout(10):
        for task in asyncio.as_completed(reading):
            ended.append(await task)
            if len(ended) == count:
                break
    await asyncio.sleep(0.05)
    assert sum(task.done() for task in reading) == count
    for task in reading:
        task.cancel()
    return ended


async def test_requests_in_a_row_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait behind another one of their connection hold a bounded amount together."""
    at_work, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def answer(_: Service, __: Incoming, ___: object) -> Answer:
        at_work.release()
        await go_on.wait()
        return Answer(200)

    async with serve(None, port=0, limits=Limits(waiting_bytes=2_000_000)) as server:
        monkeypatch.setattr(Service, "answer", answer)
        wires = [await Wire.connect(server) for _ in range(6)]
        for wire in wires:
            wire.writer.write(LINE + b"\r\n")
        for _ in wires:
            await at_work.acquire()
        for wire in wires:
            wire.writer.write((LINE + fields(5) + b"\r\n") * 2 + LINE + fields(5) + b"Connection: close\r\n\r\n")
        await asyncio.sleep(0.1)
        go_on.set()
        answers = [await wire.everything() for wire in wires]
        for wire in wires:
            await wire.close()

    found = Counter((each.count(b"HTTP/1.1 200"), each.count(b" 503 ")) for each in answers)
    assert found.pop((4, 0)) == 2
    assert {(answered < 4, refused) for answered, refused in found} == {(True, 1)}  # how many, packets decide


async def test_heads_that_idle_connections_keep_are_bounded() -> None:
    """A connection that stays open keeps the head of its last request; beyond what all may keep it is closed."""
    async with serve(None, port=0, limits=Limits(waiting_bytes=2_000_000)) as server:
        for _ in range(2):
            wires = [await Wire.connect(server) for _ in range(20)]
            for wire in wires:
                wire.writer.write(LINE + fields(5) + b"\r\n")
            answers = [await wire.reader.readuntil(b"\r\n\r\n") for wire in wires]
            assert all(b" 403 " in answer for answer in answers)
            stay = await count_open(wires)
            assert 2 <= stay <= 1_000_000 // (2 * 45_000)
            assert sum(b"Connection: close" in answer for answer in answers) == 20 - stay
            for wire in wires:
                await wire.close()
            # What they held is given back.
            await asyncio.sleep(0.05)


async def test_a_small_head_takes_the_place_of_a_large_one() -> None:
    """A connection counts for its last request alone, so that the next one gives back what a large one took."""
    async with serve(None, port=0, limits=Limits(waiting_bytes=700_000)) as server:
        for _ in range(5):
            wire = await Wire.connect(server)
            for sent in (LINE + fields(5) + b"\r\n", LINE + b"\r\n"):
                wire.writer.write(sent)
                answer = await wire.reader.readuntil(b"\r\n\r\n")
                assert b"Connection: close" not in answer
                await wire.reader.readuntil(b"}}}")
            await wire.close()


async def test_headers_count_besides_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head of many short headers counts what it takes in memory, which is many times its bytes."""
    go_on = asyncio.Event()

    async def answer(_: Service, __: Incoming, ___: object) -> Answer:
        await go_on.wait()
        return Answer(200)

    monkeypatch.setattr(Service, "answer", answer)
    async with serve(None, port=0, limits=Limits(waiting_bytes=600_000)) as server:
        wire = await Wire.connect(server)
        short = b"".join(b"%x:\r\n" % number for number in range(98))
        wire.writer.write((LINE + b"\r\n") + (LINE + short + b"\r\n") * 30)
        await asyncio.sleep(0.05)
        go_on.set()
        assert b" 503 " in await wire.everything()
        await wire.close()


async def test_trailers_are_counted() -> None:
    """Trailers count as what heads take, also those that come in one packet with a head, until the connection ends."""
    async with serve(None, port=0, limits=Limits(waiting_bytes=2_000_000)) as server:
        sent = LINE.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n"
        for trailers, ending in ((b"0\r\n", b""), (b"1\r\nx\r\n0\r\n", b""), (b"0\r\n", b"\r\n")):
            wires = [await Wire.connect(server) for _ in range(20)]
            for wire in wires:
                wire.writer.write(sent + trailers + fields(6) + ending)
                await asyncio.sleep(0.01)
            assert await count_open(wires) <= 1_000_000 // (2 * 54_000)
            for wire in wires:
                await wire.close()
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("protocol", [b"foo", b"websocket", b"h2c"])
@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_what_follows_an_upgrade_is_not_read(server: Server, protocol: bytes, body: bytes) -> None:
    """A request to speak another protocol is answered as if it had not asked, and ends the connection."""
    wire = await Wire.connect(server)
    wire.writer.write(LINE + b"Connection: upgrade\r\nUpgrade: " + protocol + b"\r\nContent-Length: %d\r\n" % len(body))
    wire.writer.write(b"\r\n" + body + 2 * (LINE + b"\r\n"))
    async with asyncio.timeout(5):
        answers = await wire.everything()
    await wire.close()

    assert answers.count(b"HTTP/1.1 ") == 1
    assert answers.startswith(b"HTTP/1.1 403 ")
    assert b"\r\nConnection: close\r\n" in answers


@pytest.mark.parametrize("chunk", [b"1;" + b"x" * 4_000 + b"\r\n \r\n", b"1\r\n \r\n"])
@pytest.mark.parametrize("is_allowed", [True, False])
@pytest.mark.parametrize("step", [1_000_000, 10_000])
async def test_framing_of_chunks_is_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch, chunk: bytes, step: int, *, is_allowed: bool
) -> None:
    """A body whose chunks are mostly sizes and extensions ends the connection, before much of it is parsed."""
    fed, unexpected = list[int](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
    real = StreamReader.feed_data

    def feed(self: StreamReader, data: bytes, *more: int) -> bool:
        fed.append(len(chunk))
        return real(self, data, *more)

    monkeypatch.setattr(StreamReader, "feed_data", feed)
    line = f"POST /{DEVELOPMENT_ACCOUNT}/Tab?{INSERT if is_allowed else ''} HTTP/1.1\r\nHost: localhost\r\n"
    sent = line.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * (1_000_000 // len(chunk))
    wire = await Wire.connect(server)
    with contextlib.suppress(ConnectionError):
        for at in range(0, len(sent), step):
            wire.writer.write(sent[at : at + step])
            await wire.writer.drain()
    async with asyncio.timeout(5):
        answers = await wire.everything()
    await wire.close()

    assert answers.startswith(b"HTTP/1.1 40") or not answers
    assert sum(fed) < 64 * 1024
    assert not unexpected


@pytest.mark.usefixtures("api")
async def test_small_chunks_are_good(server: Server) -> None:
    """A body in chunks of a few bytes, as programs send that make it piece by piece, is read whole."""
    body = b'{"PartitionKey":"p","RowKey":"r","A":"' + b"x" * 30_000 + b'"}'
    chunks = b"".join(b"10\r\n" + body[at : at + 16] + b"\r\n" for at in range(0, len(body) - 16, 16))
    rest = body[len(body) // 16 * 16 - (0 if len(body) % 16 else 16) :]
    wire = await Wire.connect(server)
    line = f"POST /{DEVELOPMENT_ACCOUNT}/Tab?{INSERT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    wire.writer.write(line.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
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
    wire = await Wire.connect(server)
    wire.writer.write(line.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
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


@pytest.mark.parametrize(
    "coding", ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked", "identity,chunked"]
)
@pytest.mark.parametrize("follows", [b"", b"2\r\n{}\r\n0\r\n\r\n" + LINE + b"\r\n"], ids=["alone", "with its body"])
async def test_other_transfer_codings_than_chunks_are_refused(server: Server, coding: str, follows: bytes) -> None:
    """A body that is encoded for its way besides its chunks would be read as if it was not, so it is not read."""
    wire = await Wire.connect(server)
    sent = f"POST /devstoreaccount1/Tables HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {coding}\r\n\r\n"
    wire.writer.write(sent.encode() + follows)
    async with asyncio.timeout(5):
        answers = await wire.everything()
    await wire.close()

    assert answers.count(b"HTTP/1.") == answers.count(b" 400 ") == 1


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("coding", ["chunked", "Chunked", " chunked "])
async def test_chunks_are_read(server: Server, coding: str) -> None:
    """A body in chunks is read, in whatever letter case its coding is named."""
    body = b'{"PartitionKey":"p","RowKey":"r"}'
    line = f"POST /{DEVELOPMENT_ACCOUNT}/Tab?{INSERT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    wire = await Wire.connect(server)
    wire.writer.write(f"{line}Transfer-Encoding:{coding}\r\n\r\n".encode())
    wire.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    async with asyncio.timeout(5):
        assert (await wire.everything()).startswith(b"HTTP/1.1 201 ")
    await wire.close()


@pytest.mark.parametrize("target", ["http://xn--{}/devstoreaccount1/Tables", "https://xn--{}", "xn--{}:443"])
async def test_the_host_of_a_target_is_not_decoded(
    server: Server, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Nobody decodes the host in a target: one of 59,000 characters kept the event loop busy for half a second."""
    decoded = list[str]()

    def decode(url: URL) -> str:
        decoded.append(str(url)[:20])
        return ""

    monkeypatch.setattr(URL, "host", property(decode))
    wire = await Wire.connect(server)
    verb = "CONNECT" if target.startswith("xn") else "GET"
    wire.writer.write(f"{verb} {target.format('b' * 59_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    status = await wire.status()
    await wire.close()

    assert 400 <= status < 500
    assert decoded == []
