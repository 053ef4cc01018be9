"""
How many operations of a kind are done at once.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import aiohttp
import pytest

from tableorm.protocol.codes import Fault
from tableorm_local.engine import Engine
from tableorm_local.server import Limits, dispatch, serve
from tableorm_local.server.operations import table_changes
from tableorm_local.server.operations.table_changes import TableChanges
from tableorm_local.server.wire.addressing import Kind
from tableorm_local.server.wire.calls import Answer
from tests.local.server.client import Api, Reply, root_of
from tests.local.server.test_operations import BATCH, MULTIPART, ONE


@pytest.mark.parametrize(("method", "most"), [("query", 3), ("transact", 16)])
async def test_how_many_are_done_at_once(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, method: str, most: int
) -> None:
    """As many pages as the limit allows, and 16 transactions; the others wait, and are done afterwards."""
    at_work, go_on, real = 0, asyncio.Event(), getattr(Engine, method)

    async def wait(engine: Engine, *given: Any) -> Any:
        nonlocal at_work
        at_work += 1
        await go_on.wait()
        return await real(engine, *given)

    async with serve(None, port=0, limits=Limits(pages=3)) as server:
        api = Api(session, root_of(server))
        assert (await api("POST", "/Tables", {"TableName": "Tab"})).status == 201
        monkeypatch.setattr(Engine, method, wait)

        def ask() -> Coroutine[Any, Any, Reply]:
            return api("GET", "/Tab()") if method == "query" else api("POST", "/$batch", BATCH, headers=MULTIPART)

        waiting = [asyncio.create_task(ask()) for _ in range(30)]
        async with asyncio.timeout(30):
            while at_work < most:
                assert (await api("GET", ONE)).status == 404  # which waits for none of them
        held = at_work
        go_on.set()
        replies = await asyncio.gather(*waiting)

    assert held == most
    assert {reply.status for reply in replies} == {200 if method == "query" else 202}
    assert at_work == 30


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
    now, pauses = 0.0, list[float]()

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
        await changes.run(engine, change)

    changes, engine = TableChanges(), Engine(None)
    monkeypatch.setattr(table_changes, "time", Clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for seconds in (0.002, 0.001, 0.5, 0.25, 0.001, 0.0):
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
