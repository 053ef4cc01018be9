"""
Bodies: what the server reads, decompresses and holds of what a client sends, above all of one that it refuses.
"""

import asyncio
import contextlib
import gzip
import json
import zlib
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import MAX_ENTITY_BYTES, MAX_VALUE_BYTES, check_row
from tableorm_local.server import Limits, serve
from tableorm_local.server.wire import bodies, multipart
from tableorm_local.server.wire.addressing import Kind, Place, Resource
from tableorm_local.server.wire.calls import Call
from tableorm_local.server.wire.options import prefers_content
from tests.local.server.client import Api, Clock, Wire, finish, root_of
from tests.security.world import Turns

BOMB = gzip.compress(bytes(3_000_000), mtime=0)
UNSIGNED = "Host: localhost\r\nContent-Type: application/json\r\n"


class Decompressors(Turns):
    """Counts what is decompressed, in bytes."""

    made = 0

    def make(self, *arguments: Any) -> "Counted":
        self.made += 1
        return Counted(self, REAL(*arguments))


class Counted:
    """A decompressor of zlib that tells how much it has decompressed."""

    def __init__(self, counts: Decompressors, real: Any) -> None:
        self._counts, self._real = counts, real

    def decompress(self, data: bytes, most: int = 0) -> bytes:
        part: bytes = self._real.decompress(data, most)
        self._counts.add(len(part))
        return part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


REAL: Any = zlib.decompressobj


@pytest.fixture
def decompressors(monkeypatch: pytest.MonkeyPatch) -> Decompressors:
    """Counts what the server decompresses; the tests' client decompresses nothing, as it does not ask for it."""
    counts = Decompressors()
    monkeypatch.setattr(zlib, "decompressobj", counts.make)
    return counts


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that the server has taken of bodies, in parts."""
    sizes = list[int]()
    real = aiohttp.StreamReader.feed_data

    def feed(self: aiohttp.StreamReader, data: bytes, *size: int) -> bool:
        sizes.append(len(data))
        return real(self, data, *size)

    monkeypatch.setattr(aiohttp.StreamReader, "feed_data", feed)
    return sizes


def request(line: str, body: bytes, *headers: str) -> bytes:
    """An unsigned request with a compressed body."""
    more = [f"Content-Length: {len(body)}", "Content-Encoding: gzip", *headers, "", ""]
    return f"{line} HTTP/1.1\r\n{UNSIGNED}".encode() + "\r\n".join(more).encode() + body


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("POST /devstoreaccount1/Tab", 403),
        ("POST /nobody/Tab", 404),
        ("GET /healthz", 200),
        ("GET /metrics", 200),
        ("POST /healthz", 404),
        ("PUT /devstoreaccount1/?restype=service&comp=properties&sig=x", 403),
    ],
)
async def test_what_is_not_authorized_is_not_decompressed(decompressors: Decompressors, line: str, status: int) -> None:
    """A compressed body is decompressed for nobody who may not send it, nor for pages that need none."""
    async with serve(None, port=0) as server:
        wire = await Wire.connect(server, request(line, BOMB))
        assert await wire.status() == status
        await wire.close()

    assert decompressors.made == 0


async def test_decompression_is_sliced(decompressors: Decompressors, api: Api) -> None:
    """
    In one turn of the event loop at most 256 KiB come out of compressed bodies of one caller, which has its turns from
    another moment on than they are counted here.
    """
    async with decompressors.watched():
        for kind, body in (("gzip", BOMB), ("deflate", zlib.compress(bytes(3_000_000)))):
            asked = (api("POST", "/Tab", body, Content_Encoding=kind) for _ in range(5))
            for reply in await asyncio.gather(*asked):
                assert (reply.status, reply.code) == (400, "InvalidInput")

    assert decompressors.all == 5 * 6_000_000
    assert 0 < decompressors.most <= 2 * 256 * 1024


async def test_many_lines_in_heads_of_parts(api: Api) -> None:
    """A transaction whose parts have heads of 40,000 lines, all of them empty, is rejected when the first is read."""
    part = b"--c\r\nContent-Type: application/http\r\n\r\nPOST /Tab HTTP/1.1\r\nA: b\r\n" + b"\r" * 40_000
    body = b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n" + 100 * (part + b"X: y\r\n\r\n{}\r\n")
    headers = {"Content-Type": "multipart/mixed; boundary=b", "Content-Encoding": "gzip"}
    reply = await api("POST", "/$batch", gzip.compress(body + b"--c--\r\n--b--\r\n"), headers=headers)

    assert (reply.status, reply.code) == (400, "InvalidInput")


async def test_decompression_is_bounded(decompressors: Decompressors, api: Api) -> None:
    """A body that would be larger than a body may be is decompressed only up to there."""
    reply = await api("POST", "/Tab", gzip.compress(bytes(20_000_000)), Content_Encoding="gzip")

    assert (reply.status, reply.code) == (413, "RequestBodyTooLarge")
    assert decompressors.all <= 4 * 1024 * 1024 + 64 * 1024


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("gzip", BOMB[:-10], "InvalidInput"),
        ("gzip", BOMB + b"more", "InvalidInput"),
        ("gzip", b"no gzip", "InvalidInput"),
        ("deflate", b"\xff", "InvalidInput"),
        ("br", b"{}", "InvalidHeaderValue"),
        ("gzip, gzip", b"{}", "InvalidHeaderValue"),
        ("identity", b'{"PartitionKey":"p","RowKey":"r"}', ""),
        ("GZIP", gzip.compress(b'{"PartitionKey":"p","RowKey":"r"}', mtime=0), ""),
        ("deflate", zlib.compress(b'{"PartitionKey":"p","RowKey":"r"}'), ""),
        ("deflate", zlib.compress(b'{"PartitionKey":"p","RowKey":"r"}', wbits=-15), ""),
    ],
    ids=[f"case{number}" for number in range(10)],
)
async def test_encodings(api: Api, kind: str, body: bytes, code: str) -> None:
    """Bodies are read in gzip and in both forms of deflate; what is malformed, or encoded otherwise, is rejected."""
    reply = await api("POST", "/Tab", body, Content_Encoding=kind)

    assert (reply.status, reply.headers.get("x-ms-error-code", "")) == (400 if code else 201, code)


@pytest.mark.parametrize("framing", ["Content-Length: 50000000", "Transfer-Encoding: chunked"])
async def test_a_refused_body_is_read_up_to_a_bound(fed: list[int], framing: str) -> None:
    """Of a body that is rejected as many bytes are read as a body may have, then the connection ends."""
    async with serve(None, port=0, limits=Limits(body_bytes=200_000)) as server:
        wire = await Wire.connect(
            server, f"POST /devstoreaccount1/Tab HTTP/1.1\r\n{UNSIGNED}{framing}\r\n\r\n".encode()
        )
        assert await wire.status() == 403
        part = bytes(50_000) if "Length" in framing else b"c350\r\n" + bytes(50_000) + b"\r\n"
        with contextlib.suppress(ConnectionError):
            for _ in range(400):
                wire.writer.write(part)
                await wire.writer.drain()
        await wire.everything()
        await wire.close()

    # Beyond the bound there is what one read of the socket brings, and what is read ahead.
    assert 100_000 < sum(fed) <= 200_000 + 512 * 1024


async def test_a_refused_client_reads_its_answer() -> None:
    """Who sends a whole transaction without the right to gets the answer, though nobody wanted the body."""
    async with serve(None, port=0) as server, aiohttp.ClientSession() as session:
        api = Api(session, root_of(server))
        reply = await api("POST", "/$batch", bytes(4_000_000), scheme=None)
        assert (reply.status, reply.code) == (403, "AuthenticationFailed")
        assert (await api("GET", "/Tables")).status == 200


@pytest.mark.parametrize("line", ["GET /healthz", "POST /devstoreaccount1/Tab"])
async def test_a_body_that_comes_late_costs_no_answer(line: str) -> None:
    """What needs no body, or refuses it, is answered also if the body comes after the head."""
    async with serve(None, port=0) as server:
        wire = await Wire.connect(server)
        head_bytes, _, body = request(line, BOMB).partition(b"\r\n\r\n")
        wire.writer.write(head_bytes + b"\r\n\r\n")
        await asyncio.sleep(0.05)
        wire.writer.write(body)
        assert await wire.status() == (200 if "GET" in line else 403)
        wire.writer.write(request("GET /healthz", b""))
        await wire.reader.readuntil(b"ok\n")
        await wire.close()


class Searched(bytes):
    """A body that counts how often it is searched."""

    searches = 0

    def find(self, *what: Any) -> int:
        self.searches += 1
        return super().find(*what)

    def index(self, *what: Any) -> int:
        self.searches += 1
        return super().index(*what)


@pytest.mark.parametrize("line", [b"--bx\n", b"--b", b"x--b\n", b"--b --\n--b -\n"])
def test_lines_like_a_delimiter(line: bytes) -> None:
    """Text that is no delimiter costs no step each: within a line it is passed over, and lines of it have a limit."""
    body = Searched(line * 50_000 + b"--b--")

    with contextlib.suppress(Fault):
        finish(multipart.read("multipart/mixed; boundary=b", body))

    assert body.searches < 1000


def test_a_change_set_whose_delimiter_begins_with_the_outer_one() -> None:
    """The lines of a change set may all begin like the outer delimiter."""
    request = b"--bc\r\nContent-Type: application/http\r\n\r\nDELETE /Tab HTTP/1.1\r\n\r\n\r\n"
    body = b"--b\r\nContent-Type: multipart/mixed; boundary=bc\r\n\r\n" + request * 100 + b"--bc--\r\n--b--\r\n"

    assert len(finish(multipart.read("multipart/mixed; boundary=b", body)).parts) == 100


@pytest.mark.parametrize(
    "members",
    [[f'"a{n}":1' for n in range(5000)], ['"":""'] * 5000, [f'"a{n}\\"\\\\":"\\\\"' for n in range(5000)]],
    ids=["names", "one name", "escapes"],
)
def test_members_are_counted_before_they_are_decoded(members: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of thousands of members is rejected before it is decoded, which takes much longer."""
    monkeypatch.delattr(bodies, "_decode")
    with pytest.raises(Fault) as refused:
        bodies.read_entity(f"{{{','.join(members)}}}".encode(), ("a", "b"))

    assert refused.value.code == Code.TOO_MANY_PROPERTIES


@pytest.mark.parametrize("text", ["", '\\"' * 5000, "\\\\" * 5000, '\\\\\\"' * 3, "\\u0022" * 5, "\\\\u0022"])
def test_quotes_in_text_are_no_members(text: str) -> None:
    """Quotes and backslashes in text count as neither more members nor members of one name."""
    assert len(bodies.read_entity(f'{{"a\\"\\\\":1,"b":"{text}"}}'.encode(), ("a", "b"))) == 4


@pytest.mark.parametrize("escape", ['\\"', "\\\\", "\\\\\\n", "\\u0344"])
def test_escapes_are_counted_before_they_are_decoded(escape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body with more escapes than an entity has characters is rejected at the speed of a search."""
    monkeypatch.delattr(bodies, "_decode")
    count = MAX_ENTITY_BYTES // escape.count("\\") + 1
    with pytest.raises(Fault) as refused:
        bodies.read_entity(f'{{"b":"{escape * count}"}}'.encode(), ("a", "b"))

    assert refused.value.code == Code.ENTITY_TOO_LARGE


@pytest.mark.parametrize("escape", ['\\"', "\\\\", "\\u0344", "\\ud83d\\ude00"])
def test_an_entity_may_be_all_escapes(escape: str) -> None:
    """The largest entity may be written with an escape for each of its characters, as some clients do."""
    units = len(json.loads(f'"{escape}"').encode("utf-16-le")) // 2
    text = escape * (MAX_VALUE_BYTES // 2 // units)
    body = ",".join(f'"p{number}":"{text}"' for number in range(15)).encode()
    row = bodies.read_entity(b"{%b}" % body, ("a", "b"))

    check_row(row | {"odata.etag": "", "Timestamp": ""})


def test_a_text_that_no_property_has_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of more characters than a value has in any type is rejected before it is read as a value of a type."""
    read = list[str]()

    def put(_: object, name: str, *__: object) -> None:
        read.append(name)

    monkeypatch.setattr(bodies, "_put_annotated", put)
    most = 2 * MAX_VALUE_BYTES
    bodies.read_entity(f'{{"p":"{"x" * most}","p@odata.type":"Edm.Guid"}}'.encode(), ("a", "b"))
    for name, kind in (("p", "Edm.Guid"), ("q", "Edm.String"), ("r", "Edm.Unknown")):
        with pytest.raises(Fault) as refused:
            bodies.read_entity(f'{{"{name}":"{"x" * (most + 1)}","{name}@odata.type":"{kind}"}}'.encode(), ("a", "b"))
        assert (refused.value.code, refused.value.property) == (Code.PROPERTY_VALUE_TOO_LARGE, name)
        assert f"'{name}' has {most + 1} characters, {most} are allowed" in refused.value.message

    assert read == ["p"]


def call_of(options: dict[str, str], headers: dict[str, str]) -> Call:
    place = Place(account="a", secondary=False, path="/", resource_path="/", root="")
    return Call(verb="GET", place=place, resource=Resource(Kind.SERVICE), options=options, headers=headers)


def test_a_long_preference_says_nothing() -> None:
    """`Prefer` of thousands of words is not read: that is after the write, when nothing is rejected any more."""
    assert prefers_content(call_of({}, {"Prefer": "return-content," * 4_000})) is None
    assert prefers_content(call_of({}, {"Prefer": "return-content".rjust(1000, ",")})) is True


async def test_parts_with_long_options(api: Api) -> None:
    """A transaction whose parts ask for thousands of media types is rejected at the first of them."""
    line = b"POST /Tab HTTP/1.1\r\nAccept: " + b"," * 15_000
    parts = [b'%s\r\n\r\n{"PartitionKey":"p","RowKey":"%d"}' % (line, number) for number in range(50)]
    reply = await api("POST", "/$batch", gzip.compress(batch_of(parts)), headers=BATCH)

    assert reply.status == 202
    assert b"HTTP/1.1 415 " in reply.body
    assert b"may have 1000 characters" in reply.body


def batch_of(parts: list[bytes]) -> bytes:
    """The body of a transaction of these parts, each a request line with all that follows."""
    kind = b"Content-Type: multipart/mixed; boundary=c\r\n\r\n"
    inner = b"".join(b"--c\r\nContent-Type: application/http\r\n\r\n" + part + b"\r\n" for part in parts)
    return b"--b\r\n" + kind + inner + b"--c--\r\n--b--\r\n"


BATCH = {"Content-Type": "multipart/mixed; boundary=b", "Content-Encoding": "gzip"}


async def test_parts_are_read_in_steps(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a transaction of megabytes, the parts of a slice of time are read in one turn of the event loop."""
    turns, sizes = Turns(), list[int]()
    monkeypatch.setattr("tableorm_local.engine.engine.time", Clock(0.0006))
    real: Any = vars(multipart)["_read_part"]

    def read(part: bytes) -> multipart.Part:
        turns.add(len(part))
        sizes.append(len(part))
        found: multipart.Part = real(part)
        return found

    monkeypatch.setattr(multipart, "_read_part", read)
    sent = gzip.compress(batch_of([b"POST /Tab HTTP/1.1\r\n\r\n" + b" " * 30_000] * 100))
    async with turns.watched():
        reply = await api("POST", "/$batch", sent, headers=BATCH)

    assert (reply.status, len(sizes)) == (202, 100)
    assert turns.most <= 64 * 1024 + 31_000


async def test_the_longest_keys_have_room_in_a_part(api: Api) -> None:
    """The URL of a part has room for keys of the most bytes, percent-encoded, also where each character has nine."""
    key = quote("\u20ac" * 512)
    part = f"PUT {api.root}/devstoreaccount1/Tab(PartitionKey='{key}',RowKey='{key}') HTTP/1.1\r\n\r\n{{}}".encode()
    reply = await api("POST", "/$batch", gzip.compress(batch_of([part])), headers=BATCH)

    assert reply.status == 202
    assert b"HTTP/1.1 204 " in reply.body
