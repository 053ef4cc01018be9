"""
What the tests of several processes run in other processes; each acknowledgement is one line on standard output.
"""

import asyncio
import os
import sys

import apsw

from tableorm.errors import TableOrmError
from tableorm.protocol.codes import Fault
from tableorm.stores import Operation, Row, Verb
from tableorm_local.engine import Engine
from tableorm_local.engine.sqlite import connect

TABLE = "Shared"


def row(partition_key: str, row_key: str, **properties: object) -> Row:
    return {"PartitionKey": partition_key, "RowKey": row_key, **properties}


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


async def write_for_ever(path: str, run: str) -> None:
    """Single inserts and transactions of five by several tasks, until killed."""
    engine = Engine(path)
    await engine.open()

    async def singles(task: int) -> None:
        for number in range(1_000_000):
            key = f"{run}-{task}-{number}"
            tag = await engine.write(TABLE, Operation(Verb.INSERT, row("single", key, Body="x" * (number % 3000))))
            say("single", key, tag)

    async def groups(task: int) -> None:
        for number in range(1_000_000):
            partition = f"group-{run}-{task}-{number}"
            inserts = [Operation(Verb.INSERT, row(partition, str(each), Body="y" * 500)) for each in range(5)]
            tags = await engine.transact(TABLE, inserts)
            say("group", partition, tags[-1])

    await asyncio.gather(*(singles(task) for task in range(6)), *(groups(task) for task in range(3)))


async def write_rows(path: str, run: str, count: str) -> None:
    """So many inserts by eight tasks, then the ETags; waits for a line before it starts."""
    engine = Engine(path)
    await engine.open()
    say("ready")
    sys.stdin.readline()
    numbers = iter(range(int(count)))

    async def work() -> None:
        for number in numbers:
            tag = await engine.write(TABLE, Operation(Verb.INSERT, row(run, f"{number:05d}")))
            say("single", number, tag)

    await asyncio.gather(*(work() for _ in range(8)))
    await engine.close()


async def read_only_fault(path: str) -> None:
    """Read a row, then try to write it, as a user whom permissions bind."""
    if os.getuid() == 0:
        os.setuid(65534)
    engine = Engine(path)
    try:
        await engine.open()
    except TableOrmError as error:
        say(type(error).__name__, error)
        return
    say("read", (await engine.get(TABLE, "p", "r"))["A"])
    try:
        await engine.write(TABLE, Operation(Verb.MERGE, row("p", "r", A=2), "*"))
    except Fault as fault:
        say("refused", fault.code, fault.message)
    await engine.close()


def hold(path: str) -> None:
    """Hold SQLite's write lock until a line comes."""
    connection = connect(path, apsw.SQLITE_OPEN_READWRITE)
    connection.execute("BEGIN IMMEDIATE")
    say("held")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    if name == "hold":
        hold(*arguments)
    else:
        asyncio.run(globals()[name](*arguments))
