"""
Reading while another process prevents it: every call waits and tries again, and no longer than it may.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import apsw
import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, RowQuery, Verb
from tableorm_local.engine import Engine, catalog
from tableorm_local.engine.catalog import Table
from tableorm_local.engine.sqlite import Connection
from tests.local.engine.turns import Turns

ROW = {"PartitionKey": "p", "RowKey": "r"}
# By another spelling of the table, as one that was used is remembered.
CALLS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "get": lambda engine: engine.get("SHARED", "p", "r"),
    "query": lambda engine: engine.query("SHARED", RowQuery()),
    "write": lambda engine: engine.write("SHARED", Operation(Verb.INSERT_OR_REPLACE, ROW)),
    "transact": lambda engine: engine.transact("SHARED", [Operation(Verb.INSERT_OR_REPLACE, ROW)]),
    "has_table": lambda engine: engine.has_table("SHARED"),
    "settings": lambda engine: engine.settings.get("name", "SHARED"),
}


class Errors:
    """Errors that looking up a table raises, one after the other; the last one again and again if `forever`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.raised, self.forever = list[Exception](), 0, False
        find = catalog.find_table

        def find_table(connection: Connection, folded: str) -> Table | None:
            if self.left:
                self.raised += 1
                raise self.left[0] if self.forever else self.left.pop(0)
            return find(connection, folded)

        monkeypatch.setattr(catalog, "find_table", find_table)


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> Errors:
    return Errors(monkeypatch)


@pytest.fixture
async def hurried() -> AsyncIterator[Engine]:
    """An engine in memory that waits for hardly any time."""
    engine = Engine(None, timeout=0.01)
    await engine.open()
    await engine.create_table("Shared")
    yield engine
    await engine.close()


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_waits_until_it_can_read(memory: Engine, errors: Errors, call: str) -> None:
    """A call that finds the file busy tries again until it is not."""
    await memory.write("Shared", Operation(Verb.INSERT, ROW))
    errors.left.extend(apsw.BusyError("busy") for _ in range(5))

    async with asyncio.timeout(4):  # five pauses of a millisecond
        await CALLS[call](memory)
    assert errors.raised == 5


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_waits_no_longer_than_it_may(hurried: Engine, errors: Errors, call: str) -> None:
    """A file that stays busy is told after the time of the engine, which lets other tasks run meanwhile."""
    errors.left.append(apsw.BusyError("busy"))
    errors.forever = True

    turns = Turns()
    async with asyncio.timeout(30):
        with pytest.raises(Fault, match="another process holds the write lock") as caught:
            await CALLS[call](hurried)
    assert await turns.stop() >= 2
    assert caught.value.code == Code.SERVER_BUSY
    assert 2 <= errors.raised <= 15  # each pause is one of the ten milliseconds


@pytest.mark.parametrize("call", CALLS)
async def test_another_error_is_told_at_once(memory: Engine, errors: Errors, call: str) -> None:
    """An error that waiting does not mend is told as what it is, and is not tried again."""
    errors.left.append(apsw.CorruptError("malformed"))
    errors.forever = True

    with pytest.raises(Fault, match=r":memory:: the file is damaged \(malformed\); restore it from a backup") as caught:
        await CALLS[call](memory)
    assert caught.value.code == Code.INTERNAL_ERROR
    assert errors.raised == 1
