"""
Timestamps never go back and never repeat, whatever the clock does.
"""

import datetime as dt
from pathlib import Path

from tableorm.protocol.edm import ticks_from_text
from tableorm.stores import Clock, Operation, Verb, utc_now
from tableorm_local.engine import Engine, write_session
from tests.local.engine.conftest import opened
from tests.local.engine.rows import row
from tests.rows import insert_row, put_row


async def written(engine: Engine) -> int:
    """The ticks of one more write."""
    await put_row(engine, "Shared", row("r"))
    return ticks_from_text((await engine.get("Shared", "p", "r"))["Timestamp"])


async def test_now_is_the_time(engine: Engine, tableorm_clock: Clock) -> None:
    """Ticks of 100 ns count from the year 1 as the service's do."""
    now = utc_now() + dt.timedelta(seconds=1)
    tableorm_clock.freeze(now)
    since = now - dt.datetime(1, 1, 1, tzinfo=dt.UTC)

    assert write_session.now() == since // dt.timedelta(microseconds=1) * 10 == await written(engine)
    assert write_session.moment(write_session.now()) == now


async def test_a_time_has_seven_digits_of_a_second(memory: Engine, tableorm_clock: Clock) -> None:
    """In the Timestamp and in the ETag, also where the first ones are zeros."""
    tableorm_clock.freeze(dt.datetime(2040, 1, 2, 3, 4, 5, 6, dt.UTC))
    etag = await insert_row(memory, "Shared", row("r"))
    stored = await memory.get("Shared", "p", "r")

    assert stored["Timestamp"] == "2040-01-02T03:04:05.0000060Z"
    assert stored["odata.etag"] == etag == "W/\"datetime'2040-01-02T03%3A04%3A05.0000060Z'\""


async def test_clock_that_stands_still(engine: Engine, tableorm_clock: Clock) -> None:
    """Within one tick of the clock writes are one tick apart, in one transaction too."""
    tableorm_clock.freeze(utc_now() + dt.timedelta(seconds=1))
    now = write_session.now()

    assert [await written(engine) - now for _ in range(3)] == [0, 1, 2]
    tags = await engine.transact("Shared", [Operation(Verb.INSERT, row(str(number))) for number in range(10)])
    assert len(set(tags)) == 10
    assert await written(engine) - now == 13


async def test_clock_that_jumps_back(engine: Engine, path: Path, tableorm_clock: Clock) -> None:
    """After the clock has jumped back by a year time goes on by ticks: here, elsewhere, and after a restart."""
    tableorm_clock.freeze(utc_now() + dt.timedelta(seconds=1))
    before = await written(engine)
    tableorm_clock.advance(dt.timedelta(days=-365))

    assert await written(engine) == before + 1
    async with opened(path) as other:
        assert await written(other) == before + 2
        assert await written(engine) == before + 3
    await engine.close()
    await engine.open()
    assert await written(engine) == before + 4
