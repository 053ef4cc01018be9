"""
Queues in the engine: what the contract and random programs leave open.
"""

import asyncio
import datetime as dt
from pathlib import Path

import attrs
import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Clock
from tableorm_local.engine import Engine
from tableorm_local.engine.queues import Queues
from tests.local.engine.conftest import Child
from tests.local.engine.rows import count_rows
from tests.local.engine.test_processes import hold
from tests.local.engine.turns import Turns


@pytest.fixture
async def queues(engine: Engine) -> Queues:
    """The queues of the engine, with a new one."""
    await engine.queues.create_queue("shared")
    return engine.queues


async def bodies(queues: Queues) -> list[bytes]:
    return [message.body for message in await queues.take("shared", 32)]


async def test_expired_in_the_hands_of_its_holder(queues: Queues, tableorm_clock: Clock) -> None:
    """A message that expires while it is held can be neither renewed nor deleted, and does not come back."""
    tableorm_clock.freeze()
    await queues.put("shared", b"x", ttl_seconds=60)
    (message,) = await queues.take("shared", visibility_seconds=600)
    tableorm_clock.advance(dt.timedelta(seconds=59.9))
    message = await queues.renew("shared", message, 600)
    tableorm_clock.advance(dt.timedelta(seconds=0.1))

    for call in (queues.renew("shared", message, 0), queues.delete("shared", message)):
        with pytest.raises(Fault) as caught:
            await call
        assert caught.value.code == Code.MESSAGE_NOT_FOUND
    tableorm_clock.advance(dt.timedelta(seconds=600))
    assert await bodies(queues) == []


async def test_many_expired_do_not_hide_the_living(engine: Engine, queues: Queues, tableorm_clock: Clock) -> None:
    """
    A take removes all expired messages, and returns those behind them; the length follows. A look passes over 250 at a
    time, and lets others run before it goes on.
    """
    tableorm_clock.freeze()
    await asyncio.gather(*(queues.put("shared", b"old", ttl_seconds=1) for _ in range(498)))
    tableorm_clock.advance(dt.timedelta(seconds=2))
    for new, turns_meanwhile in ([b"new"], 1), ([b"new", b"newer", b"newest"], 2):
        for body in new[-2:]:
            await queues.put("shared", body)
        turns = Turns()
        await asyncio.sleep(0)
        assert [message.body for message in await queues.peek("shared", 32)] == new
        assert await turns.stop() == turns_meanwhile
    assert await queues.length("shared") == 501

    assert await bodies(queues) == [b"new", b"newer", b"newest"]
    assert await queues.length("shared") == 3
    assert await count_rows(engine, "messages") == 3


async def test_time_to_live_beyond_all_time(queues: Queues) -> None:
    """A time to live of any length is good."""
    await queues.put("shared", b"x", ttl_seconds=10**30)

    assert await bodies(queues) == [b"x"]


@pytest.mark.parametrize("number", ["x", "", "0", "-1", "٣x", "9" * 19, "9" * 40])
async def test_odd_message_id(queues: Queues, number: str) -> None:
    """An id that is no number of a message names none, also where it comes with the receipt of one."""
    message = await queues.put("shared", b"x")
    with pytest.raises(Fault) as caught:
        await queues.delete("shared", attrs.evolve(message, id=number))
    assert caught.value.code == Code.MESSAGE_NOT_FOUND
    assert await queues.length("shared") == 1


async def test_who_finds_nothing_lets_others_work(queues: Queues) -> None:
    """Asking an empty queue again and again, without a pause, does not keep the event loop from others."""

    async def ask() -> list[bytes]:
        while not (found := await bodies(queues)):
            pass
        return found

    asked = asyncio.create_task(ask())
    await asyncio.sleep(0)
    await queues.put("shared", b"x")

    assert await asked == [b"x"]


async def test_who_finds_nothing_holds_up_nobody(queues: Queues, path: Path, child: Child) -> None:
    """Taking from an empty queue needs no turn among the writers: it goes on while another process holds the lock."""
    hold(child, path)

    assert await queues.take("shared") == []
    assert await queues.peek("shared") == []


async def test_wrong_type_disturbs_nobody(queues: Queues) -> None:
    """A message that is no bytes is rejected alone; those put at the same time arrive."""
    wrong: bytes = "text"  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    calls = [queues.put("shared", body) for body in (b"a", wrong, b"b")]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(outcomes[1], Fault)
    assert outcomes[1].code == Code.INVALID_INPUT
    assert sorted(await bodies(queues)) == [b"a", b"b"]


async def test_closed_engine_refuses(path: Path) -> None:
    """Queues and blobs of an engine that is not open say so."""
    engine = Engine(path)
    for call in (engine.queues.list_queues(), engine.queues.create_queue("abc"), engine.blobs.create_container("abc")):
        with pytest.raises(Fault, match="is not open"):
            await call
