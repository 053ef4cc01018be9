"""
Timestamps never go back and never repeat, whatever the clock does.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm.protocol.edm import ticks_from_text
from tableorm.stores import Operation, Row, Verb
from tableorm_local.engine import Engine, write_session


def row(row_key: str) -> Row:
    return {"PartitionKey": "p", "RowKey": row_key}


class Clock:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticks = write_session.now()
        monkeypatch.setattr(write_session, "now", lambda: self.ticks)


async def written(engine: Engine) -> int:
    """The ticks of one more write."""
    await engine.write("Shared", Operation(Verb.INSERT_OR_REPLACE, row("r")))
    return ticks_from_text((await engine.get("Shared", "p", "r"))["Timestamp"])


async def test_now_is_the_time(engine: Engine) -> None:
    """Ticks count from the year 1 as the service's do."""
    text = (await engine.write("Shared", Operation(Verb.INSERT, row("r")))) or ""

    assert abs(write_session.now() - ticks_from_text(text[12:-2].replace("%3A", ":"))) < 3600 * 10_000_000


async def test_clock_that_stands_still(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one tick of the clock writes are one tick apart, in one transaction too."""
    clock = Clock(monkeypatch)
    clock.ticks += 10_000_000

    assert [await written(engine) - clock.ticks for _ in range(3)] == [0, 1, 2]
    tags = await engine.transact("Shared", [Operation(Verb.INSERT, row(str(number))) for number in range(10)])
    assert len(set(tags)) == 10
    assert await written(engine) - clock.ticks == 13


async def test_clock_that_jumps_back(engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the clock has jumped back by a year time goes on by ticks: here, elsewhere, and after a restart."""
    clock = Clock(monkeypatch)
    clock.ticks += 10_000_000
    before = await written(engine)
    clock.ticks -= 365 * 86_400 * 10_000_000

    assert await written(engine) == before + 1
    other = Engine(path)
    await other.open()
    assert await written(other) == before + 2
    assert await written(engine) == before + 3
    await other.close()
    await engine.close()
    await engine.open()
    assert await written(engine) == before + 4


async def test_a_refused_write_leaves_the_order(engine: Engine) -> None:
    """Writes that are refused take nothing from the order of those that happen."""
    first = await written(engine)
    calls = [engine.write("Shared", Operation(Verb.INSERT, row("r"))) for _ in range(5)]
    await asyncio.gather(*calls, return_exceptions=True)

    assert await written(engine) > first
