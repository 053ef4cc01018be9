"""
Starvation: how much of the server one client, with a narrow token, can take from the others.
"""

import asyncio
import gc
import gzip
import io
import itertools
import json
import ssl
import sys
import threading
import weakref
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from tableorm import Entity, Mapped, connect
from tableorm.protocol import filter_text, filters
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filter_text import parse_filter
from tableorm.protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, compile_filter, constant, matcher
from tableorm.protocol.rights import Owner, Rights, read_token
from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import Scheme, decode_key
from tableorm.stores import Bounds, Operation, Row, RowPage, RowQuery, Verb
from tableorm_local.engine import CALLER, Engine, FairTurns, scan, writes
from tableorm_local.engine.group_commit import GroupCommit
from tableorm_local.engine.write_session import Work
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Limits, Server, serve
from tableorm_local.server.dispatch import caller_of
from tableorm_local.server.front import connection, http, limits
from tableorm_local.server.front.limits import Budget
from tableorm_local.server.operations import tables, transactions
from tableorm_local.server.security.accounts import is_loopback
from tableorm_local.server.wire import bodies, options
from tableorm_local.server.wire.addressing import Place
from tableorm_local.server.wire.calls import Incoming
from tableorm_local.server.wire.options import MAX_COMPARISONS
from tests.local.server.client import Api, Reply, Wire, head, root_of


def alternatives(count: int, comparison: str = "A eq {}") -> str:
    """A filter of so many comparisons."""
    return "$filter=" + " or ".join(comparison.format(number) for number in range(count)).replace(" ", "%20")


@pytest.mark.parametrize("comparison", ["A eq {}", "A", "not (B ne {})", "A eq ' and or '", "A eq 'it''s' and B eq {}"])
@pytest.mark.parametrize("path", ["/Tab()", "/Tables"])
async def test_comparisons_of_a_filter(api: Api, comparison: str, path: str) -> None:
    """A filter has 400 comparisons at most, of tables as well as of entities; what text says is no comparison."""
    comparison = comparison if path == "/Tab()" else "TableName eq 'a{}'"
    most = MAX_COMPARISONS // (2 if " and B" in comparison else 1)

    assert (await api("GET", path, query=alternatives(most, comparison))).status == 200
    refused = await api("GET", path, query=alternatives(most + 1, comparison))
    assert (refused.status, refused.code) == (400, "InvalidInput")
    assert "comparisons, 400 are allowed" in refused.message


async def test_a_filter_that_is_refused_is_not_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparisons and parentheses are counted before the filter is parsed, which takes much longer."""

    def parse(text: str) -> Filter:
        raise AssertionError(text)

    monkeypatch.setattr(options, "parse_in_steps", parse)
    for query in (alternatives(1500), f"$filter={'(' * 900}A{')' * 900}", "$filter=" + "not%20" * 900 + "A"):
        assert (await api("GET", "/Tab()", query=query)).code == "InvalidInput"


async def test_the_mapper_sends_no_more_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter with the most comparisons that the mapper sends has fewer than the server allows."""

    class Item(Entity, table="Items", partition_key="{group}", row_key="{id}"):
        group: Mapped[str]
        id: Mapped[str]
        x: Mapped[str]

    sent = list[Filter | None]()

    async def query(_: Engine, __: str, query: RowQuery, *___: object) -> RowPage:
        sent.append(query.where)
        return RowPage([], None)

    monkeypatch.setattr(Engine, "query", query)
    async with connect("local::memory:") as db:
        for count in range(100, 400, 5):
            values = [chr(32 + n) for n in range(count) if chr(32 + n) != "'"] + [""]
            await db.select(Item).where(Item.group == "g", Item.x.in_(values)).all()
    widest = max(map(count_comparisons, sent))

    assert 100 < widest <= MAX_COMPARISONS


def count_comparisons(node: Filter | None) -> int:
    match node:
        case None:
            return 0
        case Compare():
            return 1
        case Not(term):
            return count_comparisons(term)
        case And(terms) | Or(terms):
            return sum(map(count_comparisons, terms))


class Blocked:
    """Queries that reached the engine, by caller, and stay there until they are let go."""

    def __init__(self) -> None:
        self.there = Counter[str]()
        self.most = list[Callable[[], int]]()
        self.began, self.ended = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def query(self, *given: Any) -> RowPage:
        self.most.append(given[-1])
        self.there[CALLER.get()] += 1
        self.began.release()
        try:
            await self.go.wait()
        finally:
            self.ended.release()
        return RowPage([], None)


def table_token(table: str = "Tab", sp: str = "r", **more: str) -> str:
    """A narrow token."""
    sas = TableSas(sv="2019-02-02", tn=table, sp=sp, se="2099-01-01T00:00:00Z", **more)
    return sign_sas(sas, DEVELOPMENT_ACCOUNT, decode_key(DEVELOPMENT_KEY))


async def test_page_slots_are_shared_fairly(monkeypatch: pytest.MonkeyPatch, session: aiohttp.ClientSession) -> None:
    """Whoever asks for many pages at once holds half of the slots, so that others get one at once."""
    blocked = Blocked()
    async with serve(None, port=0, limits=Limits(pages=8)) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        monkeypatch.setattr(Engine, "query", blocked.query)

        async def ask(query: str) -> Reply:
            return await api("GET", "/Tab()", query=query, scheme=None if query else Scheme.SHARED_KEY)

        token = table_token(spk="a", epk="b")
        spellings = [token, token.replace("tn=Tab", "tn=TAB"), token + "&x=1", "timeout=60&" + token]
        greedy = [asyncio.create_task(ask(query)) for query in spellings * 5]
        await settle()
        assert list(blocked.there.values()) == [4]
        others = [asyncio.create_task(ask(query)) for query in (table_token(spk="c", epk="d"), "")]
        await settle()
        assert sorted(blocked.there.values()) == [1, 1, 4]
        blocked.go.set()
        replies = await asyncio.gather(*greedy, *others)

    assert [reply.status for reply in replies] == [200] * 22
    assert len(blocked.there) == 3


async def test_half_built_pages_share_bytes(monkeypatch: pytest.MonkeyPatch, session: aiohttp.ClientSession) -> None:
    """The pages that one caller has half built have an equal part each of some bytes, however many they are."""
    blocked = Blocked()
    async with serve(None, port=0, limits=Limits(pages=8)) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        monkeypatch.setattr(Engine, "query", blocked.query)
        token = table_token()
        asked = [asyncio.create_task(api("GET", "/Tab()", query=token, scheme=None))]
        await settle()
        (first,) = blocked.most
        alone = first()
        asked += [asyncio.create_task(api("GET", "/Tab()", query=token, scheme=None)) for _ in range(9)]
        asked += [asyncio.create_task(api("GET", "/Tab()", scheme=Scheme.SHARED_KEY))]
        await settle()
        together = sorted(most() for most in blocked.most)
        blocked.go.set()
        await asyncio.gather(*asked)

    assert alone == 16 * 1024 * 1024
    assert together == [alone // 4] * 4 + [alone]


async def settle() -> None:
    """Wait until what was sent has arrived."""
    for _ in range(50):
        await asyncio.sleep(0.002)


async def test_who_shares_a_part() -> None:
    """Addresses of IPv6 of one network are one caller, of which a client may have any number; others are their own."""
    callers = {address: caller_at(address) for address in ("10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::ffff:2")}

    assert callers["2001:db8::1"] == callers["2001:db8::ffff:2"]
    assert len(set(callers.values())) == 3
    assert caller_at("fe80::1%eth0") == caller_at("fe80::2%eth1")


def test_who_shares_a_part_at_a_server_of_both_versions_of_ip() -> None:
    """A server at `::` shows addresses of IPv4 in a form of IPv6; each of them is a caller, as at `0.0.0.0`."""
    assert caller_at("::ffff:10.0.0.1") == caller_at("10.0.0.1") != caller_at("::ffff:10.0.0.2")
    assert is_loopback("::ffff:127.0.0.1") and not is_loopback("::ffff:10.0.0.1")


def test_who_shares_a_part_by_a_token() -> None:
    """What is signed is one caller: empty parameters that are not signed make no other, and the case of keys does."""
    token = table_token(spk="a", srk="b")
    same = [
        token,
        token.replace("tn=Tab", "tn=TAB"),
        *(f"{token}&{more}" for more in ("epk=", "epk=&erk=", "st=", "si=")),
    ]
    plain = table_token()
    alike = [plain, *(f"{plain}&{more}" for more in ("spk=", "epk=", "epk=&erk=", "spk=&epk=", "spk=&srk=&epk=&erk="))]
    point = table_token(spk="a", epk="a")
    alone = [point, *(f"{point}&{more}" for more in ("srk=", "erk=", "srk=&erk="))]
    others = [table_token(spk="A", srk="b"), table_token(spk="a", srk="B"), table_token(spk="a"), table_token(sp="ra")]
    keys = [decode_key(DEVELOPMENT_KEY)]

    def callers(tokens: list[str]) -> set[str]:
        return {caller_at("10.0.0.1", read_token(each, DEVELOPMENT_ACCOUNT, keys)) for each in tokens}

    assert (len(callers(same)), len(callers(alike)), len(callers(others))) == (1, 1, 4)
    assert len(callers(alone)) == 1
    assert len(callers([*same, *alike, *others])) == 6


def caller_at(address: str, rights: Rights | None = None) -> str:
    place = Place(account="a", secondary=False, path="/", resource_path="/", root="")
    incoming = Incoming(
        id="",
        verb="GET",
        place=place,
        query="",
        options={},
        headers=CIMultiDict(),
        version="",
        scheme="http",
        address=address,
        on_caller=lambda _: None,
        read_body=lambda: asyncio.sleep(0, b""),
    )
    return caller_of(incoming, rights or Owner())


async def test_a_filter_of_tables_is_sliced(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    """A filter of many tables is evaluated in slices of a bounded number of comparisons, and no further than a page."""
    tested = list[int]()
    turns = 0

    async def list_tables(_: Engine, start: str, limit: int) -> list[str]:
        return [name for number in range(2_000) if (name := f"Tab{number:04}").lower() >= start][:limit]

    monkeypatch.setattr(Engine, "list_tables", list_tables)

    def make(where: Filter) -> Callable[[Row], bool]:
        test = matcher(where)

        def count(row: Row) -> bool:
            tested.append(turns)
            return test(row)

        return count

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(tables, "matcher", make)
    counting = asyncio.create_task(count_turns())
    reply = await api("GET", "/Tables", query=alternatives(400, "TableName eq 'Tab{:04}'"))
    assert len(reply.rows) == 400
    assert len(tested) == 2_000
    assert max(Counter(tested).values()) * 400 <= 2_000
    tested.clear()
    assert (
        len((await api("GET", "/Tables", query="$filter=TableName%20ge%20'a'%20or%20TableName%20ge%20'A'&$top=3")).rows)
        == 3
    )
    assert len(tested) <= 1_000
    counting.cancel()


def test_filters_that_are_kept_are_bounded() -> None:
    """A function made for a long filter lives no longer than its use; the same short filter gets the same function."""
    gone = list[weakref.ref[Callable[[Row], bool]]]()
    for number in range(5):
        many = [Compare(f"B{term}", Op.EQ, constant(f"{number}")) for term in range(MAX_COMPARISONS)]
        for tree in (Or(tuple(many)), Not(And(tuple(many))), Compare("B", Op.EQ, constant(f"{number}" + "x" * 30_000))):
            gone.append(weakref.ref(matcher(tree)))
    gc.collect()
    assert [function() for function in gone] == [None] * 15

    short = [Compare("B", Op.EQ, constant("x")) for _ in range(2)]
    assert matcher(short[0]) is matcher(short[1])


async def test_places_for_requests_are_shared_fairly(
    monkeypatch: pytest.MonkeyPatch, session: aiohttp.ClientSession
) -> None:
    """Whoever sends many requests at once holds half of the places; what is beyond is refused, and others are not."""
    blocked = Blocked()
    async with serve(None, port=0, limits=Limits(requests=16, stop_seconds=0.5)) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        monkeypatch.setattr(Engine, "query", blocked.query)
        token = table_token(spk="a", epk="b")
        greedy = [asyncio.create_task(api("GET", "/Tab()", query=token, scheme=None)) for _ in range(30)]
        await settle()
        others = [
            await api("GET", "/Tab(PartitionKey='c',RowKey='r')", query=query, scheme=scheme)
            for query, scheme in ((table_token(spk="c", epk="d"), None), ("", Scheme.SHARED_KEY))
        ]
        blocked.go.set()
        replies = await asyncio.gather(*greedy)

    assert Counter(reply.status for reply in replies) == {200: 8, 503: 22}
    assert {reply.code for reply in replies if reply.status == 503} == {"ServerBusy"}
    assert [reply.status for reply in others] == [404, 404]


async def test_what_nobody_waits_for_is_not_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose client has closed the connection ends at once; it has its entry in the access log."""
    blocked, log = Blocked(), io.BytesIO()
    async with (
        serve(None, port=0, limits=Limits(requests=16, stop_seconds=0.5), access_log=log) as server,
        aiohttp.ClientSession() as session,
    ):
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        monkeypatch.setattr(Engine, "query", blocked.query)
        for _ in range(20):
            wire = await Wire.connect(server)
            wire.writer.write(head("GET", "/Tab()"))
            await blocked.began.acquire()
            await wire.close()
            async with asyncio.timeout(10):
                await blocked.ended.acquire()

    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(entry["operation"], entry["code"]) for entry in entries[1:]] == [("QueryEntities", "ClientGone")] * 20


async def test_bytes_of_bodies_are_shared_fairly(session: aiohttp.ClientSession) -> None:
    """Bodies that a caller does not finish take half of the bytes; another caller's bodies and answers have room."""
    async with serve(None, port=0, limits=Limits(buffered_bytes=8_000_000, stop_seconds=0.5)) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        token, wires = table_token(spk="a", epk="b"), list[Wire]()
        for _ in range(10):
            wire = await Wire.connect(server)
            line = (
                f"POST /{DEVELOPMENT_ACCOUNT}/$batch?{token} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n"
            )
            wire.writer.write(f"{line}Content-Type: multipart/mixed; boundary=b\r\n\r\n".encode() + bytes(1_000_000))
            wires.append(wire)
        await settle()
        row = {"PartitionKey": "p", "RowKey": "r", "B": "x" * 30_000}
        assert (await api("POST", "/Tab", row)).status == 201
        assert len((await api("GET", "/Tab()")).rows) == 1
        refused = [wire for wire in wires if b" 503 " in await seen(wire)]
        for wire in wires:
            await wire.close()

    assert len(refused) >= 6


async def seen(wire: Wire) -> bytes:
    """What has arrived at a client so far."""
    try:
        async with asyncio.timeout(0.01):
            return await wire.reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        return b""


async def test_answers_that_are_not_taken_are_shared_fairly(session: aiohttp.ClientSession) -> None:
    """Answers that a caller does not take use half of the bytes; another caller's answers have room."""
    async with serve(None, port=0, limits=Limits(buffered_bytes=20_000_000, stop_seconds=0.5)) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        for number in range(8):
            row = {"PartitionKey": "a", "RowKey": f"{number}"} | {f"B{n}": "x" * 30_000 for n in range(15)}
            assert (await api("POST", "/Tab", row, Prefer="return-no-content")).status == 204
        wires, target = list[Wire](), f"/{DEVELOPMENT_ACCOUNT}/Tab()?{table_token(spk='a', epk='b')}"
        for _ in range(12):
            wire = await Wire.connect(server)
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
            wire.writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 3)
            wires.append(wire)
        await settle()
        assert [(await api("GET", "/Tab()")).status for _ in range(3)] == [200] * 3
        for wire in wires:
            wire.writer.transport.abort()


async def test_connections_that_do_not_speak_tls_are_bounded(
    monkeypatch: pytest.MonkeyPatch, session: aiohttp.ClientSession, certificate: Path
) -> None:
    """Buffers for TLS are made for half of the places of an address; the connections beyond are closed, and counted."""
    made = list[object]()
    real: Any = SSLProtocol.__init__

    def count(self: SSLProtocol, *arguments: Any, **more: Any) -> None:
        made.append(self)
        real(self, *arguments, **more)

    async with serve(None, port=0, cert=certificate, limits=Limits(handshakes=16)) as server:
        with monkeypatch.context() as patched:
            patched.setattr(SSLProtocol, "__init__", count)
            wires = [await Wire.connect(server) for _ in range(30)]
            await settle()
        assert len(made) == 8
        closed = [wire for wire in wires if wire.reader.at_eof() or wire.reader.exception() is not None]
        assert len(closed) == 22
        for wire in wires:
            await wire.close()
        await settle()
        for _ in range(20):
            async with session.get(f"https://127.0.0.1:{server.port}/healthz", ssl=False) as reply:
                assert (reply.status, await reply.text()) == (200, "ok\n")


async def test_connections_that_speak_tls_are_bounded(session: aiohttp.ClientSession, certificate: Path) -> None:
    """
    Connections that are idle after the handshake keep their places, of which an address has half; they get these back
    when they end.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def connect(port: int) -> asyncio.StreamWriter | None:
        try:
            return (await asyncio.open_connection("127.0.0.1", port, ssl=context))[1]
        except OSError:
            return None

    async with serve(None, port=0, cert=certificate, limits=Limits(tls_connections=8)) as server:
        for _ in range(2):
            writers = [await connect(server.port) for _ in range(20)]
            opened = [writer for writer in writers if writer is not None]
            assert len(opened) == 4
            for writer in opened:
                writer.transport.abort()
            await settle()
        async with session.get(f"https://127.0.0.1:{server.port}/healthz", ssl=False) as reply:
            assert reply.status == 200
        async with session.get(f"https://127.0.0.1:{server.port}/metrics", ssl=False) as reply:
            assert 'tableorm_refused_total{what="connection"} 32' in await reply.text()


async def test_handshakes_that_fail_keep_nothing(certificate: Path) -> None:
    """The buffers of a connection that does not speak TLS are given back at once, not when garbage is collected."""
    async with serve(None, port=0, cert=certificate) as server:
        gc.collect()
        before = sum(isinstance(each, SSLProtocol) for each in gc.get_objects())
        gc.disable()
        try:
            for _ in range(5):
                wire = await Wire.connect(server)
                wire.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await wire.everything()
                await wire.close()
            await settle()
            kept = sum(isinstance(each, SSLProtocol) for each in gc.get_objects())
        finally:
            gc.enable()
    assert kept == before


async def test_handshakes_that_fail_give_back_their_places(session: aiohttp.ClientSession, certificate: Path) -> None:
    """After many connections that do not speak TLS there is a place for one that does."""
    async with serve(None, port=0, cert=certificate, limits=Limits(tls_connections=4)) as server:
        for _ in range(6):
            wire = await Wire.connect(server)
            wire.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await wire.everything()
            await wire.close()
        await settle()
        async with session.get(f"https://127.0.0.1:{server.port}/healthz", ssl=False) as reply:
            assert reply.status == 200


async def test_a_connection_that_never_speaks_tls_is_closed(certificate: Path) -> None:
    """The time for the handshake is bounded, and a server that stops waits for none."""
    async with serve(None, port=0, cert=certificate, limits=Limits(handshake_seconds=0.05)) as server:
        silent = await Wire.connect(server)
        assert await silent.everything() == b""
        await silent.close()
        wrong = await Wire.connect(server)
        wrong.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in await wrong.everything()
        await wrong.close()
    before = asyncio.all_tasks()
    async with serve(None, port=0, cert=certificate) as server:
        wire = await Wire.connect(server)
        await settle()
    assert asyncio.all_tasks() <= before
    assert await wire.everything() == b""
    await wire.close()


async def test_writes_are_those_of_their_sender(
    monkeypatch: pytest.MonkeyPatch, session: aiohttp.ClientSession
) -> None:
    """Writes and transactions reach the queue of writes as those of who sends them, between whom that takes turns."""
    callers = list[str]()
    real = GroupCommit.submit

    def submit(self: GroupCommit, work: Work) -> "asyncio.Future[object]":
        callers.append(CALLER.get())
        return real(self, work)

    async with serve(None, port=0) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        monkeypatch.setattr(GroupCommit, "submit", submit)
        row = "/Tab(PartitionKey='q',RowKey='1')"
        for query in (table_token(sp="au", spk="q", epk="q"), ""):
            scheme = None if query else Scheme.SHARED_KEY
            part = f"Content-Type: application/http\r\n\r\nPUT /{DEVELOPMENT_ACCOUNT}{row} HTTP/1.1\r\n\r\n{{}}\r\n"
            inner = f"Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n{part}--c--\r\n"
            body = f"--b\r\n{inner}--b--\r\n".encode()
            assert (await api("PUT", row, {}, query=query, scheme=scheme)).status == 204
            kind = {"Content-Type": "multipart/mixed; boundary=b"}
            assert (await api("POST", "/$batch", body, query=query, scheme=scheme, headers=kind)).status == 202

    assert [callers.index(caller) for caller in callers] == [0, 0, 2, 2]


class Turns:
    """How many comparisons of filters are read, in all and at most in one turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all = self.most = self._now = 0
        monkeypatch.setattr(filter_text, "Compare", self.compare)

    def compare(self, name: str, op: Op, constant: Constant) -> Compare:
        self.all += 1
        self._now += 1
        self.most = max(self.most, self._now)
        return Compare(name, op, constant)

    async def count_turns(self) -> None:
        while True:
            self._now = 0
            await asyncio.sleep(0)


SHAPES = {
    "or": " or ".join(f"A{n} eq {n}" for n in range(400)),
    "pairs": " or ".join(f"(A{n} eq {n} and B ge '{n}')" for n in range(200)),
    "nots": " and ".join(f"not (A{n} eq '{n}')" for n in range(400)),
    "deep": "".join(f"(A{n} gt {n} {('and', 'or')[n % 2]} " for n in range(60))
    + "(" + " or ".join(f"C{n} eq {n}" for n in range(340)) + ")" + ")" * 60,
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", ["/Tab()", "/Tables"])
async def test_a_long_filter_is_read_in_steps(api: Api, monkeypatch: pytest.MonkeyPatch, path: str, shape: str) -> None:
    """Of the 400 comparisons that a filter may have, 50 are read in one turn of the event loop, and none twice."""
    turns = Turns(monkeypatch)
    counting = asyncio.create_task(turns.count_turns())
    reply = await api("GET", path, query=f"$filter={SHAPES[shape]}".replace(" ", "%20"))
    counting.cancel()

    assert reply.status == (200 if path == "/Tab()" else 400)
    assert (turns.all, turns.most) == (400, 50)


async def test_steps_of_one_caller_take_turns() -> None:
    """Of the work that a caller has at once, one step is done in each turn of the event loop, first ones included."""
    turn, done = 0, Counter[int]()
    engine = Engine(None)

    def work() -> Generator[None, None, str]:
        for _ in range(5):
            done[turn] += 1
            yield
        return "done"

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        counting = group.create_task(count_turns())
        results = await asyncio.gather(*(engine.take_turns(work()) for _ in range(8)))
        counting.cancel()

    assert results == ["done"] * 8
    assert sorted(done.values()) == [1] * (8 * 5)
    assert not vars(engine)["_stepping"]  # nothing is kept of a caller


async def test_work_of_others_waits_for_no_turn_of_a_caller() -> None:
    """Work of one step is done at once if its caller has nothing else to do, also while others take turns."""
    engine, done = Engine(None), list[str]()

    def work(name: str, count: int) -> Generator[None, None, None]:
        for _ in range(count):
            done.append(name)
            yield
        done.append(name)

    async def do(name: str, count: int) -> None:
        CALLER.set(name[0])
        await engine.take_turns(work(name, count))

    async with asyncio.timeout(10):
        await asyncio.gather(do("a1", 2), do("a2", 0), do("b1", 0), do("b2", 0), do("a3", 1))

    assert done == ["a1", "b1", "b2", "a1", "a2", "a3", "a1", "a3"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_filter_is_not_compiled(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """For a long filter no program text is made, which Python would need milliseconds to compile; the rows are same."""
    tree = parse_filter(SHAPES[shape])
    rows: list[Row] = [{f"A{n}": n % 3 and n, f"C{n}": n, "B": str(n % 7)} for n in range(0, 400, 3)]
    rows += [row | {f"A{n}": str(n) for n in range(0, 400, 7)} for row in rows]

    def make(node: Filter) -> Callable[[Row], bool]:
        raise AssertionError(node)

    monkeypatch.setattr(filters, "_make_matcher", make)
    for node in (tree, Not(tree)):
        test, expected = matcher(node), compile_filter(node)
        assert [test(row) for row in rows] == [expected(row) is True for row in rows]


def test_ranges_of_keys_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison of keys is looked at once, however deep it stands."""
    bounds = list[Bounds]()
    real = scan.row_interval

    def count(given: Bounds) -> scan.Interval:
        bounds.append(given)
        return real(given)

    monkeypatch.setattr(scan, "row_interval", count)
    deep = "".join(f"(RowKey gt '{n}' {('and', 'or')[n % 2]} " for n in range(60)) + "A" + ")" * 60
    scan.filter_intervals(parse_filter(deep))

    assert len(bounds) == 60


class Addresses:
    """Lets clients of this machine seem to come from several addresses: a connection has that of when it was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = "10.0.0.1"
        monkeypatch.setattr(connection, "network_of", self.tell)

    def tell(self, _: str) -> str:
        return self.now


async def test_connections_are_shared_fairly(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address has half of the connections at most; the next one gets half of the rest, and all are given back."""
    addresses = Addresses(monkeypatch)
    async with serve(None, port=0, limits=Limits(connections=16)) as server:
        for _ in range(2):
            addresses.now = "10.0.0.1"
            greedy, refused = await open_connections(server, 30)
            assert (len(greedy), len(refused)) == (8, 22)
            assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused)
            addresses.now = "10.0.0.2"
            others, refused = await open_connections(server, 5)
            assert (len(others), len(refused)) == (4, 1)
            for wire in (*greedy, *others):
                await wire.close()
            await settle()


async def open_connections(server: Server, count: int) -> tuple[list[Wire], list[bytes]]:
    """Open connections; return those that are served, and what the others got."""
    wires = [await Wire.connect(server) for _ in range(count)]
    await settle()
    answers = [await seen(wire) for wire in wires]
    served = [wire for wire, answer in zip(wires, answers, strict=True) if not answer]
    for wire in wires:
        if wire not in served:
            await wire.close()
    return served, [answer for answer in answers if answer]


@pytest.mark.parametrize(
    ("descriptors", "most", "handshakes"),
    [
        (None, 10_000, 512),
        (1_000_000, 10_000, 512),
        (4_352, 3_584, 512),
        (1_024, 672, 96),
        (512, 224, 32),
        (256, 112, 16),
    ],
)
def test_descriptors_bound_connections(
    monkeypatch: pytest.MonkeyPatch, descriptors: int | None, most: int, handshakes: int
) -> None:
    """Connections and handshakes together leave some of the files that a process may have open for everything else."""
    monkeypatch.setattr(limits, "_count_descriptors", lambda: descriptors)
    found = limits.fit_descriptors(Limits())

    assert (found.connections, found.handshakes) == (most, handshakes)
    assert descriptors is None or found.connections + found.handshakes <= descriptors - min(256, descriptors // 2)
    assert limits.fit_descriptors(Limits(connections=3, handshakes=2)) == Limits(connections=3, handshakes=2)


@pytest.mark.skipif(sys.platform == "win32", reason="capability: Windows has no such limit")
async def test_more_connections_than_descriptors() -> None:
    """A server that may have few files open refuses connections, as many as come, and has no error in its log."""
    command = f"ulimit -n 128; exec {sys.executable} -m tableorm.cli serve --data :memory: --port 0"
    process = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int((await process.stdout.readline()).rpartition(b":")[2].partition(b"/")[0])
    # An address may have 28 of them.
    wires = [Wire(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(28)]
    answers = list[bytes]()
    for _ in range(17):
        more = [Wire(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(16)]
        answers += [await wire.everything() for wire in more]
        wires += more
    for wire in wires:
        await wire.close()
    process.terminate()
    _, errors = await process.communicate()

    assert all(b" 503 " in answer for answer in answers)
    assert errors == b""


@pytest.mark.parametrize(("amount", "fits"), [(99, True), (100, True), (101, False)])
def test_a_budget_at_its_limit(amount: int, fits: bool) -> None:
    """As much as there is can be taken, and not one more; what is refused takes nothing."""
    budget = Budget(100, "too much")

    assert takes(budget, amount, "a") is fits
    assert budget.used == (amount if fits else 0)
    budget.hold(200, "a")
    assert takes(budget, 0, "a")  # as for an answer without a body
    assert not takes(budget, 1, "b")
    budget.give_back(budget.used, "a")
    assert not budget._held  # pyright: ignore[reportPrivateUsage] # callers that hold nothing are not kept


@pytest.mark.parametrize(("held", "amount", "fits"), [(40, 19, True), (40, 20, True), (40, 21, False), (50, 1, False)])
def test_the_share_of_a_caller_at_its_limit(held: int, amount: int, fits: bool) -> None:
    """A caller gets what is as much, with what it holds, as is free, and not one more; another one still gets some."""
    budget = Budget(100, "too much")
    budget.take(held, "a")

    assert takes(budget, amount, "a") is fits
    assert takes(budget, 100 - budget.used, "b")
    budget.give_back(held, "a")
    assert takes(budget, held, "c")


def takes(budget: Budget, amount: int, caller: str) -> bool:
    try:
        budget.take(amount, caller)
    except Fault as fault:
        assert fault.code == Code.SERVER_BUSY  # noqa: PT017 - not every call raises
        return False
    return True


async def test_slices_of_one_caller_take_turns(monkeypatch: pytest.MonkeyPatch, session: aiohttp.ClientSession) -> None:
    """The slices of filters of tables, of transactions and of pages take turns with other work of their caller."""
    sent = list[str]()
    real = Engine.take_turns

    async def take_turns(self: Engine, steps: Generator[None, None, object]) -> object:
        sent.append(getattr(steps, "__name__", ""))
        return await real(self, steps)

    async with serve(None, port=0) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        monkeypatch.setattr(Engine, "take_turns", take_turns)
        await api("GET", "/Tables", query="$filter=TableName%20eq%20'Tab'")
        part = b"Content-Type: application/http\r\n\r\nPUT /Tab(PartitionKey='p',RowKey='r') HTTP/1.1\r\n\r\n{}\r\n"
        inner = b"Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n" + part + b"--c--\r\n"
        kind = {"Content-Type": "multipart/mixed; boundary=b"}
        assert (await api("POST", "/$batch", b"--b\r\n" + inner + b"--b--\r\n", headers=kind)).status == 202
        await api("GET", "/Tab()")

    of_transaction = ["read", "_read_steps", "_answer_steps"]
    assert sent == ["read_filter", "_pass", *of_transaction, "read_filter", "encode_entities"]


LARGE = {f"A{number}": "x" * 32_000 for number in range(15)}  # a row of 480 KB
QUERY_PART = (
    b"--b\r\nContent-Type: application/http\r\n\r\nGET /Tab(PartitionKey='large',RowKey='r') HTTP/1.1\r\n\r\n--b--\r\n"
)
MULTIPART = {"Content-Type": "multipart/mixed; boundary=b"}
ROW = "/Tab(PartitionKey='large',RowKey='r')"


@pytest.fixture
async def large(server: Server, session: aiohttp.ClientSession) -> AsyncGenerator[Api]:
    """A client with as many connections as it likes, of a server with a large row, and with a small one."""
    api = Api(session, root_of(server))
    await api("POST", "/Tables", {"TableName": "Tab"})
    await api("POST", "/Tab", {"PartitionKey": "large", "RowKey": "r", **LARGE})
    await api("POST", "/Tab", {"PartitionKey": "small", "RowKey": "r", "A0": "x" * 30_000, "A1": "x" * 30_000})
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as many:
        yield Api(many, root_of(server))


class Encoded:
    """Counts what the server writes as JSON: how many bytes, and how many at most in one turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all = self.most = self._now = 0
        self._real = bodies.encode_json
        monkeypatch.setattr(bodies, "encode_json", self.encode)

    def encode(self, value: object) -> bytes:
        text = self._real(value)
        self.all += len(text)
        self._now += len(text)
        self.most = max(self.most, self._now)
        return text

    async def count_turns(self) -> None:
        while True:
            self._now = 0
            await asyncio.sleep(0)


@pytest.mark.parametrize("what", ["row", "head", "transaction", "page", "insert"])
async def test_large_rows_are_read_in_turns(large: Api, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """However many connections ask for a large row with one token, few are answered in one turn of the event loop."""
    encoded = Encoded(monkeypatch)
    counting = asyncio.create_task(encoded.count_turns())

    async def ask(number: int) -> int:
        match what:
            case "row" | "head":
                return (await large("GET" if what == "row" else "HEAD", ROW)).status
            case "transaction":
                return (await large("POST", "/$batch", QUERY_PART, headers=MULTIPART)).status
            case "page":
                return (await large("GET", "/Tab()")).status
            case _:
                row = {"PartitionKey": "large", "RowKey": str(number), **LARGE}
                return (await large("POST", "/Tab", row)).status

    statuses = await asyncio.gather(*map(ask, range(40)))
    counting.cancel()

    assert set(statuses) <= {200, 201, 202}
    assert encoded.all > 40 * 480_000
    assert encoded.most < 4 * 480_000


async def test_small_rows_do_not_wait() -> None:
    """What is worked on in a turn of the event loop is less than 256 KiB, or else the caller's next work waits."""
    turns, done = FairTurns(), list[int]()

    async def work(caller: str, number: int, size: int) -> None:
        await turns.work(caller)
        done.append(number)
        turns.count(caller, size)

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(work("small", number, 1_000))
        for number in range(100, 105):
            group.create_task(work("large", number, 200_000))
        group.create_task(work("other", 105, 1_000_000))
        await asyncio.sleep(0)
        assert done == [*range(102), 105]
    assert done == [*range(102), 105, 102, 103, 104]


async def test_work_that_is_given_up_keeps_no_turn() -> None:
    """A caller whose waiting work is cancelled is not stopped by that, nor is anything kept of it."""
    turns = FairTurns()
    waiting = [asyncio.create_task(turns.work("a", 1_000_000)) for _ in range(4)]
    await asyncio.sleep(0)
    for task in waiting[1:3]:
        task.cancel()
    async with asyncio.timeout(5):
        results = await asyncio.gather(*waiting, return_exceptions=True)
        await turns.work("a")
    assert [type(result) for result in results] == [type(None), *[asyncio.CancelledError] * 2, type(None)]


class SlowGzip:
    """Lets compression in threads wait until it is let go, and notes the sizes of what is compressed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes, self.go = list[int](), threading.Event()
        self._real = gzip.compress
        monkeypatch.setattr(gzip, "compress", self.compress)

    def compress(self, body: bytes, level: int) -> bytes:
        self.go.wait(10)
        self.sizes.append(len(body))
        return self._real(body, level)


@pytest.fixture
def slow_gzip(monkeypatch: pytest.MonkeyPatch) -> Generator[SlowGzip]:
    slow = SlowGzip(monkeypatch)
    yield slow
    slow.go.set()


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
async def test_answers_that_wait_to_be_compressed_are_counted(
    large: Api, slow_gzip: SlowGzip, session: aiohttp.ClientSession, verb: str
) -> None:
    """Of the answers that wait for a thread to compress them, one caller has half of the bytes at most."""
    async with serve(None, port=0, limits=Limits(buffered_bytes=4_000_000), compress_for_all=True) as server:
        api = Api(large.session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        await api("POST", "/Tab", {"PartitionKey": "large", "RowKey": "r", **LARGE}, Prefer="return-no-content")
        asking = [asyncio.create_task(api(verb, ROW, Accept_Encoding="gzip")) for _ in range(20)]
        for first in itertools.islice(asyncio.as_completed(asking), 16):
            await first
        await settle()
        refused = [task for task in asking if task.done()]
        slow_gzip.go.set()
        statuses = Counter([(await task).status for task in asking])

    assert len(refused) == statuses[503] == 16
    assert statuses[200] == 4


async def test_compression_is_shared_fairly(large: Api, slow_gzip: SlowGzip, session: aiohttp.ClientSession) -> None:
    """An answer waits for the compression of a few answers of another caller, however many of these there are."""
    async with serve(None, port=0, compress_for_all=True) as server:
        api = Api(large.session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        for partition, row in (("large", LARGE), ("small", {f"A{n}": "x" * 32_000 for n in range(3)})):
            await api("POST", "/Tab", {"PartitionKey": partition, "RowKey": "r", **row}, Prefer="return-no-content")
        asking = list[asyncio.Task[Reply]]()
        for partition, count in (("large", 30), ("small", 1)):
            query = table_token(spk=partition, epk=partition)
            path = f"/Tab(PartitionKey='{partition}',RowKey='r')"
            asking += [
                asyncio.create_task(api("GET", path, query=query, scheme=None, Accept_Encoding="gzip"))
                for _ in range(count)
            ]
            await settle()
        slow_gzip.go.set()
        await asyncio.gather(*asking)

    assert len(slow_gzip.sizes) == 31
    assert min(slow_gzip.sizes) in slow_gzip.sizes[:6]


async def test_checks_of_transactions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the transactions that a caller sends at once, one is checked further in each turn of the event loop."""
    turn, checked = 0, Counter[int]()
    real = writes.prepare_write

    def prepare(operation: Operation, *, keys_checked: bool) -> writes.Write:
        checked[turn] += 1
        return real(operation, keys_checked=keys_checked)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    engine = Engine(None)
    await engine.open()
    await engine.create_table("Tab")
    monkeypatch.setattr(writes, "prepare_write", prepare)
    monkeypatch.setattr("tableorm_local.engine.engine._SLICE_SECONDS", -1.0)  # each operation is a slice of its own
    counting = asyncio.create_task(count_turns())
    sent = [
        [Operation(Verb.INSERT, {"PartitionKey": str(partition), "RowKey": str(row)}) for row in range(5)]
        for partition in range(8)
    ]
    await asyncio.gather(*(engine.transact("Tab", operations) for operations in sent))
    counting.cancel()
    await engine.close()

    assert checked.total() == 8 * 5
    assert sorted(checked.values()) == [1] * 32 + [8]


async def test_an_answer_that_is_too_much_says_what_may_have_been_done(
    monkeypatch: pytest.MonkeyPatch, session: aiohttp.ClientSession
) -> None:
    """Of a write the client is told that it may have happened; of a read that the server is busy."""
    monkeypatch.setattr(http, "_LITTLE_MORE", 0)
    row = {"PartitionKey": "a", "RowKey": "r", "Text": "x" * 30_000}
    async with serve(None, port=0, limits=Limits(buffered_bytes=30_100)) as server:
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        written = await api("POST", "/Tab", row)
        read = await api("GET", "/Tab(PartitionKey='a',RowKey='r')")
        async with session.get(f"{root_of(server)}/metrics") as metrics:
            assert 'tableorm_refused_total{what="request"} 2.0' in await metrics.text()

    assert (written.status, written.code, read.status, read.code) == (500, "OperationTimedOut", 503, "ServerBusy")
    assert "What was asked may have been done." in written.message


@pytest.mark.parametrize(("seconds", "steps"), [(-1.0, [0, 5, 5]), (1_000.0, [0, 0, 0])])
async def test_a_transaction_is_read_and_answered_in_slices(
    monkeypatch: pytest.MonkeyPatch, api: Api, seconds: float, steps: list[int]
) -> None:
    """Between two parts, as they are read and as they are answered, other callers get a turn if a slice has passed."""
    found = list[int]()

    async def take_turns(_: Engine, work: Generator[None, None, object]) -> object:
        found.append(0)
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value
            found[-1] += 1

    monkeypatch.setattr(Engine, "take_turns", take_turns)
    monkeypatch.setattr(transactions, "_SLICE_SECONDS", seconds)
    part = (
        "--c\r\nContent-Type: application/http\r\n\r\nPUT /Tab(PartitionKey='p',RowKey='{}') HTTP/1.1\r\n\r\n{{}}\r\n"
    )
    text = "".join(map(part.format, range(5)))
    body = f"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{text}--c--\r\n--b--\r\n".encode()
    reply = await api("POST", "/$batch", body, headers={"Content-Type": "multipart/mixed; boundary=b"})

    assert (reply.status, reply.body.count(b"HTTP/1.1 204")) == (202, 5)
    assert found == steps
