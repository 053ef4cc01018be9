"""
How many operations of a kind are done at once.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tableorm_local.engine import Engine
from tableorm_local.server import Limits
from tests.local.server.client import Api, Reply, served
from tests.local.server.test_operations import BATCH, MULTIPART, ONE


@pytest.mark.parametrize(("method", "most"), [("query", 3), ("transact", 16)])
async def test_how_many_are_done_at_once(monkeypatch: pytest.MonkeyPatch, method: str, most: int) -> None:
    """As many pages as the limit allows, and 16 transactions; the others wait, and are done afterwards."""
    at_work, go_on, real = 0, asyncio.Event(), getattr(Engine, method)

    async def wait(engine: Engine, *given: Any) -> Any:
        nonlocal at_work
        at_work += 1
        await go_on.wait()
        return await real(engine, *given)

    async with served("Tab", limits=Limits(pages=3)) as api:
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
