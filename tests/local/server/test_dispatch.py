"""
How callers share the server: what each operation counts for, and how many of a kind are done at once.
"""

import asyncio
from collections import Counter
from typing import Any

import aiohttp
import msgspec
import pytest

from tableorm.protocol.codes import Fault
from tableorm.protocol.sas import AccountSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm_local.engine import CALLER, REQUEST_BYTES, Engine, FairSlots, FairTurns
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Limits, dispatch, serve
from tableorm_local.server.operations import table_changes
from tableorm_local.server.operations.table_changes import TableChanges
from tableorm_local.server.wire.addressing import Kind
from tableorm_local.server.wire.calls import Answer
from tests.local.server.client import Api, Wire, head, root_of
from tests.local.server.test_operations import BATCH, MULTIPART, ONE, READS, WRITES

OWNER = f"{DEVELOPMENT_ACCOUNT} 127.0.0.1 owner"
OF_QUERIES = {"QueryEntities"}
OF_ENTITIES = {name for asked in WRITES if (name := asked.operation).endswith("Entity")}


class CountedTurns(FairTurns):
    """Turns that remember for whom they are, and what is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = list[str]()
        self.counted = list[tuple[str, int]]()

    async def work(self, caller: str, size: int = 0) -> None:
        self.taken.append(caller)
        await super().work(caller, size)

    def count(self, caller: str, size: int) -> None:
        self.counted.append((caller, size))
        super().count(caller, size)


async def test_what_each_operation_counts_for_its_caller(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a share of its own, and its bodies; a page counts as it is read, and a write takes a turn afterwards."""
    made = list[CountedTurns]()

    def make() -> FairTurns:
        made.append(CountedTurns())
        return made[-1]

    monkeypatch.setattr(dispatch, "FairTurns", make)
    async with serve(None, port=0) as server:
        (turns,) = made
        api = Api(session, root_of(server))
        for asked in (*WRITES[:-2], *READS, *WRITES[-2:]):
            turns.taken.clear()
            turns.counted.clear()
            reply = await api(asked.verb, asked.path, asked.body, query=asked.query, headers=asked.headers)
            assert reply.status == asked.status
            sent = asked.body if isinstance(asked.body, bytes) else msgspec.json.encode(asked.body)
            size = REQUEST_BYTES + (0 if asked.body is None else len(sent))
            answered = (OWNER, int(reply.headers.get("Content-Length", 0)))
            rest = [] if asked.operation in OF_QUERIES else [answered]
            assert turns.counted == [(OWNER, size), *rest], asked
            assert turns.taken == ["127.0.0.1", *[OWNER] * (1 + (asked.operation in OF_ENTITIES))], asked
        turns.counted.clear()
        assert (await api("OPTIONS", "/Tab", scheme=None)).status == 400
        # Once as what it is, and once as what is refused.
        assert turns.counted == [("127.0.0.1", REQUEST_BYTES)] * 2


async def test_requests_count_for_who_sends_them(session: aiohttp.ClientSession) -> None:
    """Who has as many under way as one caller may have is refused more; another one at that address is not."""
    token = sign_sas(
        AccountSas(sv="2019-02-02", ss="t", srt="c", sp="l", se="2099-01-01"),
        DEVELOPMENT_ACCOUNT,
        decode_key(DEVELOPMENT_KEY),
    )
    async with serve(None, port=0, limits=Limits(requests=4)) as server:
        api = Api(session, root_of(server))
        assert (await api("POST", "/Tables", {"TableName": "Tab"})).status == 201
        waiting = [await Wire.connect(server) for _ in range(2)]
        for each in waiting:
            each.writer.write(head("POST", "/Tab", "Content-Length: 10", "Expect: 100-continue"))
            assert await each.status() == 100
        replies = await api("GET", "/Tables"), await api("GET", "/Tables", query=token, scheme=None)
        for each in waiting:
            await each.close()

    assert [reply.status for reply in replies] == [503, 200]
    assert replies[0].code == "ServerBusy"


async def test_how_many_transactions_are_done_at_once(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen, of which a caller has half of those that are free; the others wait, and are done afterwards."""
    at_work, go_on = list[str](), asyncio.Event()
    transact = Engine.transact

    async def wait(engine: Engine, table: str, writes: Any) -> Any:
        at_work.append(CALLER.get())
        await go_on.wait()
        return await transact(engine, table, writes)

    monkeypatch.setattr(Engine, "transact", wait)
    made = list[FairSlots]()

    def make(count: int) -> FairSlots:
        made.append(FairSlots(count))
        return made[-1]

    monkeypatch.setattr(dispatch, "FairSlots", make)
    key, waiting = decode_key(DEVELOPMENT_KEY), list[asyncio.Task[Any]]()
    async with serve(None, port=0) as server:
        api = Api(session, root_of(server))
        assert (await api("POST", "/Tables", {"TableName": "Tab"})).status == 201
        for number in range(6):
            token = sign_sas(
                AccountSas(sv="2019-02-02", ss="t", srt="o", sp="wau", se=f"209{number}-01-01"),
                DEVELOPMENT_ACCOUNT,
                key,
            )
            waiting += (
                asyncio.create_task(api("POST", "/$batch", BATCH, query=token, scheme=None, headers=MULTIPART))
                for _ in range(10)
            )
            while len(at_work) + sum(each.waiting for each in made) < len(waiting):  # noqa: ASYNC110 - each ends somewhere
                await asyncio.sleep(0)
        held = Counter(at_work)
        go_on.set()
        replies = await asyncio.gather(*waiting)

    assert sorted(held.values(), reverse=True) == [8, 4, 2, 1, 1]
    assert [reply.status for reply in replies] == [202] * 60
    assert len(at_work) == 60


async def test_tables_are_changed_one_after_the_other(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients ask for it at once: what else is done meanwhile is not held up by all of them."""
    most = at_work = 0
    changes = {"create_table": Engine.create_table, "delete_table": Engine.delete_table}

    def slow(name: str) -> Any:
        async def change(engine: Engine, table: str) -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            at_work -= 1
            await changes[name](engine, table)

        return change

    for name in changes:
        monkeypatch.setattr(Engine, name, slow(name))
    made = await asyncio.gather(*(api("POST", "/Tables", {"TableName": f"Tab{number}"}) for number in range(5)))
    gone = await asyncio.gather(*(api("DELETE", f"/Tables('Tab{number}')") for number in range(5)))

    assert [reply.status for reply in made + gone] == [201] * 5 + [204] * 5
    assert most == 1


async def test_the_pause_after_a_table_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nineteen times as long as it took to read the names again, and none where that is done at once."""
    now, pauses = 100.0, list[float]()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

    async def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(max(seconds, 0.0))
        now += max(seconds, 0.0)

    async def change() -> Answer:
        return Answer(204)

    async def run(seconds: float) -> None:
        async def read_names(_: Engine, start: str = "", limit: int = 0) -> list[str]:
            nonlocal now
            assert (start, limit) == ("", 1)
            now += seconds
            return []

        monkeypatch.setattr(Engine, "list_tables", read_names)
        await changes.run("a", engine, change)

    changes, engine = TableChanges(), Engine(None)
    monkeypatch.setattr(table_changes, "time", Clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for seconds in (0.001, 0.002, 0.5, 0.25, 0.001, 0.0):
        await run(seconds)

    assert pauses == pytest.approx([0, 0, 0, 9.5, 4.75, 0])


@pytest.mark.parametrize(("verb", "path", "status"), [("GET", "/Tab()", 200), ("DELETE", ONE, 204)])
async def test_a_body_that_no_operation_reads(api: Api, verb: str, path: str, status: int) -> None:
    """What reads or deletes passes over a body, so that nothing in it can be wrong."""
    await api("PUT", ONE, {})

    reply = await api(verb, path, b"x", headers={"If-Match": "*", "Content-Encoding": "unknown"})
    assert reply.status == status


def test_a_verb_that_is_long_is_told_in_part() -> None:
    """Its first 20 letters are enough."""
    with pytest.raises(Fault) as caught:
        dispatch._refuse_route(Kind.SERVICE, "V" * 30, "stats")  # pyright: ignore[reportPrivateUsage]
    assert caught.value.message == f"The resource doesn't support the specified HTTP verb: {'V' * 20}."
