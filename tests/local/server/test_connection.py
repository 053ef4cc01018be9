"""
What a connection counts for: the memory of its requests, however they are cut into packets.
"""
# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import Mock

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import LineTooLong

from tableorm_local.engine import FairTurns
from tableorm_local.server.front.connection import (
    ConnectionServer,
    TooMuchWaitsError,
    _BoundedParser,
    caller_of,
)
from tableorm_local.server.front.limits import Budget, Limits
from tableorm_local.server.front.metrics import Metrics

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SMALL, NAMED, WITH_BODY = (
    (GET + b"\r\n", b""),
    (GET + b"A: b\r\n\r\n", b""),
    (POST + b"Content-Length: 10\r\n\r\n", b"x" * 10),
)


def cost(size: int, headers: int) -> int:
    """The memory that a head of so many bytes and headers takes: the request, each header, and three copies."""
    return 3_000 + 200 * headers + 3 * size


class Connection:
    """A parser of a connection, and the budget that it takes from."""

    def __init__(self, total: int = 10_000_000, queue: int = 0) -> None:
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)
        protocol.transport = Mock()
        parser = HttpRequestParser(
            protocol,
            loop,
            2**16,
            max_line_size=2**16,
            max_field_size=2**14,
            max_headers=100,
            max_msg_queue_size=queue,
        )
        self.budget = Budget(total, "too much")
        self.parser = _BoundedParser(parser, Limits(), self.budget)
        self.waiting = 0

    def feed(self, data: bytes) -> int:
        """Feed what arrives. Return what is held after it."""
        if data:
            self.waiting += len(self.parser.feed_data(data)[0])
        return self.budget.used

    def answer_all(self) -> int:
        """Answer what waits. Return what is held after it."""
        for _ in range(self.waiting):
            self.parser.end_request()
        self.waiting = 0
        return self.budget.used


def expected(requests: list[tuple[bytes, bytes]], arrived: int) -> int:
    """What a connection holds when so many bytes have arrived, and nothing is answered."""
    held = 0
    for number, (head, body) in enumerate(requests):
        if arrived < len(head):
            # No header has fewer than four bytes.
            return held + (cost(arrived, min(arrived // 4, 100)) if arrived else 0)
        arrived -= len(head)
        # The body of the first request is read at once; those of the others wait.
        held += cost(len(head), head.count(b": ")) + (min(arrived, len(body)) if number else 0)
        arrived -= min(arrived, len(body))
    return held


def splits(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    return ((data[:at], data[at:]) for at in range(len(data)))


@pytest.mark.parametrize(
    "requests",
    [
        [SMALL],
        [SMALL, NAMED, SMALL],
        [WITH_BODY],
        [WITH_BODY, NAMED],
        [SMALL, WITH_BODY, WITH_BODY, NAMED],
    ],
    ids=["head", "heads", "body", "body and head", "bodies that wait"],
)
async def test_what_requests_hold(requests: list[tuple[bytes, bytes]]) -> None:
    """A whole head counts as such and a part of one by its bytes, wherever packets end; once answered, the last one."""
    data = b"".join(head + body for head, body in requests)
    last = expected(requests[-1:], len(requests[-1][0]))
    for first, second in splits(data):
        connection = Connection()
        assert connection.feed(first) == expected(requests, len(first))
        assert connection.feed(second) == expected(requests, len(data))
        assert connection.parser.received == len(data)
        assert connection.answer_all() == last + (10 if len(requests) > 1 and requests[-1] is WITH_BODY else 0)
        connection.parser.release()
        assert connection.budget.used == 0


async def test_requests_count_that_the_parser_has_kept() -> None:
    """What arrives together is parsed as far as there is room; the rest counts when the parser is asked to go on."""
    connection, one = Connection(queue=4), cost(len(SMALL[0]), 1)
    messages, _, _ = connection.parser.feed_data(SMALL[0] * 8)
    assert len(messages) == 4
    for _ in messages:
        connection.parser.message_consumed()
        connection.parser.end_request()
    messages, _, _ = connection.parser.feed_data(b"")

    assert len(messages) == 4
    assert connection.budget.used == 4 * one


@pytest.mark.parametrize("trailers", [b"", b"T: u\r\nV: wwwwwwwww\r\n"])
async def test_what_trailers_hold(trailers: bytes) -> None:
    """Trailers count like a head; sizes of chunks cannot be told apart from them, and count no more than that."""
    frame = b"3\r\nabc\r\n" * 20 + b"0\r\n" + trailers + b"\r\n"
    alone, most = cost(len(CHUNKED), 2), cost(len(frame), len(frame) // 4)
    for first, second in splits(CHUNKED + frame):
        connection = Connection()
        connection.feed(first)
        held = connection.feed(second)
        assert alone + (3 * len(trailers) if first[len(CHUNKED) :] else 0) <= held <= alone + most + 3 * len(frame)
        for _ in range(3):
            assert connection.answer_all() == held
            connection.parser.message_consumed()
            connection.feed(SMALL[0])
            # What a head can be taken for stays counted, as the next one may be a part of it.
            held = connection.answer_all()
            assert cost(len(SMALL[0]), 1) <= held <= cost(len(SMALL[0]), 1) + most
        connection.parser.release()
        assert connection.budget.used == 0


async def test_requests_in_a_row_hold_no_more_than_one() -> None:
    """A connection that sends one request after the other counts for as much after twenty as after twelve."""
    for first, second in splits(CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"):
        connection, held = Connection(), list[int]()
        for _ in range(20):
            connection.feed(first)
            connection.feed(second)
            held.append(connection.answer_all())
            connection.parser.message_consumed()
        assert held[12:] == [held[12]] * 8


@pytest.mark.parametrize(
    ("peer", "caller"), [(None, ""), (("10.0.0.1", 5), "10.0.0.1"), (("2001:db8::5", 5, 0, 0), "2001:db8::/64")]
)
def test_whom_a_connection_counts_for(peer: tuple[object, ...] | None, caller: str) -> None:
    """The address of the client, of IPv6 its first half; an empty text where the system does not know it any more."""
    transport = Mock()
    transport.get_extra_info = {"peername": peer}.get

    assert caller_of(transport) == caller


async def test_what_goes_wrong_in_a_connection_is_logged_as_the_server_s(caplog: pytest.LogCaptureFixture) -> None:
    """The logger is the one that leaves secrets out."""
    server = ConnectionServer(Mock(), Mock(), Limits(), Metrics(), FairTurns())
    server().log_exception("Unhandled exception", exc_info=ValueError("wrong"))

    assert [record.name for record in caplog.records] == ["tableorm.server"]


async def test_a_request_alone_is_answered_without_room() -> None:
    """Where nothing is left, a head that came alone is passed on, its connection is closed, and nothing counted."""
    connection = Connection(total=100)

    assert connection.feed(SMALL[0]) == 0
    assert connection.waiting == 1
    assert connection.parser.closes


@pytest.mark.parametrize("data", [GET, SMALL[0] * 2, SMALL[0] + GET], ids=["partial", "two", "one and a partial"])
async def test_what_waits_without_room_is_refused(data: bytes) -> None:
    """Where nothing is left, what is not complete or waits for its turn ends the connection; nothing is read on."""
    connection = Connection(total=100)

    with pytest.raises(TooMuchWaitsError) as caught:
        connection.feed(data)
    assert caught.value.code == 503
    assert connection.feed(b"\r\n" + SMALL[0]) == 0
    assert connection.waiting == 0
    assert not connection.parser.closes


@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("end", [b"\r\n", b""], ids=["whole", "unfinished"])
async def test_a_head_that_is_too_long_is_told_as_that(before: bytes, end: bytes) -> None:
    """Nothing is held of it, nothing is read after it, and it is given back only once."""
    connection = Connection()
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 9_000) for number in range(8))
    with pytest.raises(LineTooLong, match=f"more than {64 * 1024} bytes"):
        connection.feed(before + GET + fields + end)

    assert connection.budget.used == 0
    assert (connection.feed(GET + b"\r\n"), connection.waiting) == (0, 0)
    connection.parser.release()
    assert connection.budget.used == 0


@pytest.mark.parametrize(
    ("first", "second"), [(CHUNKED, b"3\r\nabc\r\n0\r\n\r\n"), (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", b""), WITH_BODY]
)
async def test_a_long_head_behind_a_body(first: bytes, second: bytes) -> None:
    """It may have its 64 KiB: only what stands between the bytes of a body is bounded more closely."""
    connection = Connection()
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 9_000) for number in range(3))
    connection.feed(first)
    if second is not WITH_BODY[1]:
        connection.feed(second)
        second = b""
    connection.feed(second + GET + fields)
    connection.feed(b"\r\n")

    assert connection.waiting == 2


async def test_requests_behind_an_answered_one_all_count() -> None:
    """Once the next request comes the answered one is forgotten, and none of those that are not answered."""
    connection, one = Connection(), cost(len(SMALL[0]), 1)
    connection.feed(SMALL[0])
    assert connection.answer_all() == one

    assert [connection.feed(SMALL[0]) for _ in range(3)] == [one, 2 * one, 3 * one]
    connection.parser.end_request()
    assert connection.budget.used == 2 * one


async def test_a_body_counts_with_its_own_request() -> None:
    """What arrives of a body that waits is forgotten with its request, not with the one before it."""
    connection, (before, body) = Connection(), WITH_BODY
    connection.feed(SMALL[0] + before)
    connection.feed(body)
    connection.parser.end_request()

    assert connection.budget.used == cost(len(before), 2) + len(body)


async def test_what_comes_behind_chunks_counts_alike_in_parts() -> None:
    """A part of a head counts by its bytes, however many parts there were, and trailers end with their request."""
    body, whole, parts = b"3\r\nabc\r\n0\r\nT: u\r\n", Connection(), Connection()
    for connection in (whole, parts):
        connection.feed(CHUNKED + body + b"\r\n")
        connection.answer_all()
        connection.parser.message_consumed()
    parts.feed(GET)
    assert parts.feed(b"A: bc\r\n") == whole.feed(GET + b"A: bc\r\n")

    connection = Connection()
    connection.feed(CHUNKED + body)
    held = connection.feed(b"\r\n" + SMALL[0]) - cost(len(CHUNKED), 2)
    assert held in (cost(len(SMALL[0]), 1), cost(len(SMALL[0] + b"T: u\r\n"), 2))  # it may have taken the trailer over


class NotedParser:
    """A parser that notes how many bytes it gets at once, and pauses once it has got so many times some."""

    def __init__(self, bounds: _BoundedParser, pause_after: int) -> None:
        self._real, self._bounds, self._pause_after = bounds._parser, bounds, pause_after
        self.sizes = list[int]()

    def feed_data(self, data: bytes) -> Any:
        self.sizes.append(len(data))
        found = self._real.feed_data(data)
        if len(self.sizes) == self._pause_after:
            self._bounds._paused = True
        return found


LONG_HEAD = GET + b"".join(b"X-%d: %s\r\n" % (number, b"x" * 9_000) for number in range(3)) + b"\r\n"
CHUNKS = b"".join(b"1000\r\n" + bytes(4096) + b"\r\n" for _ in range(9)) + b"0\r\n\r\n"
PIECE = 16 * 1024


@pytest.mark.parametrize(
    ("fed", "pause_after", "sizes"),
    [
        ([LONG_HEAD], 0, [len(LONG_HEAD)]),
        ([CHUNKED + CHUNKS], 0, [PIECE, PIECE, len(CHUNKED + CHUNKS) - 2 * PIECE]),
        ([CHUNKED, CHUNKS], 0, [len(CHUNKED), PIECE, PIECE, len(CHUNKS) - 2 * PIECE]),
        ([CHUNKED, CHUNKS[:PIECE]], 0, [len(CHUNKED), PIECE]),
        ([CHUNKED, CHUNKS, b""], 2, [len(CHUNKED), PIECE, 0, PIECE, len(CHUNKS) - 2 * PIECE]),
        ([CHUNKED, CHUNKS[:-2], CHUNKS[-2:]], 3, [len(CHUNKED), PIECE, PIECE, 0, len(CHUNKS) - 2 * PIECE]),
    ],
    ids=["a head", "head and chunks", "chunks", "a piece", "paused", "paused, and more comes"],
)
async def test_chunks_are_parsed_in_pieces(fed: list[bytes], pause_after: int, sizes: list[int]) -> None:
    """A body in chunks is parsed 16 KiB at a time, and no further while nobody reads it; nothing of it is lost."""
    connection = Connection()
    noted = NotedParser(connection.parser, pause_after)
    connection.parser._parser = cast("Any", noted)
    for data in fed:
        connection.waiting += len(connection.parser.feed_data(data)[0])

    assert noted.sizes == sizes
    assert connection.waiting == 1
    assert connection.parser._body.is_eof() is (fed[-1] != CHUNKS[:PIECE])
