"""
Benchmarks of re-keys: flights by origin and day become flights by aircraft, against what users write by hand for that.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables.aio import TableClient

from benchmarks.flights import ALL, DayFlight, TailFlight, fill_flights
from benchmarks.measure import report, watched
from benchmarks.processes import Effort, run_member, serving, work
from benchmarks.upkeep import sizes
from tableorm import Database, connect
from tableorm.stores import Operation, Row, RowQuery, Verb
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tableorm_migrations import (
    finalize_move,
    finalize_rekey,
    run_move,
    run_rekey,
    seal_move,
    verify_move,
    verify_rekey,
)
from tableorm_migrations.rekey import phases

_MODULE = "benchmarks.rekey"
_CHUNK = 100


# What each side does, in a process of its own


async def _rekey_online(db: Database) -> str:
    """Move, verify twice and finalize; return how full the transactions were."""
    phases.__dict__["KNOWN_EVERYWHERE"] = 0.0  # no other program runs
    moved = await run_move(db, TailFlight, no_blind_writers=True)
    assert (await verify_move(db, TailFlight)).complete
    assert (await seal_move(db, TailFlight, no_old_programs=True)).complete
    assert (await finalize_move(db, TailFlight)).complete
    operations, transactions = moved.others["operations in these"], moved.others["transactions"]
    return f"{operations / transactions:.1f}"


async def _rekey_offline(db: Database) -> str:
    """Copy, verify twice and delete; return how full the transactions of the copy were."""
    copied = await run_rekey(db, DayFlight, TailFlight, writers_stopped=True)
    assert (await verify_rekey(db, DayFlight, TailFlight)).complete
    assert (await finalize_rekey(db, DayFlight, TailFlight)).complete
    return f"{copied.written / copied.others['transactions']:.1f}"


async def _loop(db: Database) -> str:
    """Do it by hand: write transactions of 100, verify, and delete; everything is kept in memory."""
    store = db.store
    old = [row async for row in _all(db, "DayFlights")]
    new: defaultdict[str, dict[str, Row]] = defaultdict(dict)
    for row in old:
        made = _by_hand(row)
        new[made["PartitionKey"]][made["RowKey"]] = made
    transactions = 0
    for partition in new.values():
        rows = [*partition.values()]
        for start in range(0, len(rows), _CHUNK):
            await store.transact("TailFlights", [Operation(Verb.INSERT, row) for row in rows[start : start + _CHUNK]])
            transactions += 1
    async for row in _all(db, "TailFlights"):
        made = new[row["PartitionKey"]][row["RowKey"]]
        assert all(row[name] == value for name, value in made.items())
    partitions: defaultdict[str, list[Row]] = defaultdict(list)
    for row in old:
        partitions[row["PartitionKey"]].append(row)
    for rows in partitions.values():
        for start in range(0, len(rows), _CHUNK):
            deletes = [Operation(Verb.DELETE, row, row["odata.etag"]) for row in rows[start : start + _CHUNK]]
            await store.transact("DayFlights", deletes)
    return f"{len(old) / transactions:.1f}"


async def _all(db: Database, table: str) -> AsyncGenerator[Row, None]:
    continuation: str | None = None
    while True:
        page = await db.store.query(table, RowQuery(), 1000, continuation)
        for row in page.rows:
            yield row
        continuation = page.continuation
        if continuation is None:
            return


def _by_hand(row: Row) -> Row:
    """Return the newer row of an older one."""
    _, _, day = row["PartitionKey"].partition("_")
    made = {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp", "tail", "_w", "_ix")}
    origin = row["PartitionKey"][:3]
    keys = {"PartitionKey": row.get("tail", "unknown"), "RowKey": f"{day}_{row['RowKey']}"}
    return {**made, **keys, "EntityType": "TailFlight", "origin": origin}


async def _sequential(db: Database) -> str:
    """Do it by hand with the SDK of Azure: insert one after the other, verify, delete one after the other."""
    url = db.url
    credential = AzureNamedKeyCredential(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)
    clients = [TableClient(url, name, credential=credential) for name in ("DayFlights", "TailFlights")]
    old: Any
    new: Any
    async with clients[0] as old, clients[1] as new:
        made: dict[tuple[str, str], dict[str, Any]] = {}
        async for row in old.list_entities():
            flight = _by_hand(dict(row))
            made[flight["PartitionKey"], flight["RowKey"]] = flight
            await new.create_entity(flight)
        async for row in new.list_entities():
            assert made[row["PartitionKey"], row["RowKey"]]["distance"] == row["distance"]
        async for row in old.list_entities():
            await old.delete_entity(row)
    return "1.0"


_ACTS: dict[str, Callable[[Database], Awaitable[str]]] = {
    "online": _rekey_online,
    "offline": _rekey_offline,
    "loop": _loop,
    "sequential": _sequential,
}


async def _take_part(url: str, what: str, said: Path) -> None:
    async def act(db: Database) -> None:
        with watched() as memory:
            fill = await _ACTS[what](db)
        said.write_text(f"{fill} {memory.peak} {memory.sqlite}", encoding="utf-8")  # noqa: ASYNC240 - it takes no time

    await run_member(url, act)


# What is compared


@attrs.frozen
class _Found:
    """What was measured: the effort, operations a transaction, MiB at most without what SQLite had, and that."""

    effort: Effort
    fill: float
    peak: float
    sqlite: float


async def _measure(folder: Path, what: str, count: int, *, server: bool, some_aircraft: bool = False) -> _Found:
    """Do it in a file of its own; return what it took."""
    path, said = folder / f"{what}{count}{server}.tables", folder / "said"
    async with connect(f"local:{path}") as db:
        await fill_flights(db, count, some_aircraft=some_aircraft)
    if server:
        async with serving(path) as url:
            effort = await asyncio.to_thread(work, _MODULE, url, what, said, size=1)
    else:
        effort = await asyncio.to_thread(work, _MODULE, f"local:{path}", what, said, size=1)
    fill, peak, sqlite = map(float, said.read_text(encoding="utf-8").split())
    path.unlink()
    return _Found(effort, fill, peak, sqlite)


async def compare_with_hand(folder: Path, count: int, *, server: bool) -> None:
    """
    Compare re-keys with a script that does it by hand: by the SDK on a server, by transactions in a file.

    The few flights on a server are those of some aircraft, so that partitions are as large as those of all flights.
    """
    by_hand, target = ("sequential", "at least 5.00") if server else ("loop", "at least 0.30")
    theirs = await _measure(folder, by_hand, count, server=server, some_aircraft=server)
    for what in ("online", "offline"):
        ours = await _measure(folder, what, count, server=server, some_aircraft=server)
        where = "on a server, by the SDK one by one" if server else "in a file, by transactions by hand"
        detail = f"{theirs.effort.seconds:.1f} s / {ours.effort.seconds:.1f} s"
        detail += f"; CPU of the client {theirs.effort.busy:.1f} s / {ours.effort.busy:.1f} s"
        detail += f"; {ours.fill} operations a transaction / {theirs.fill}"
        report(f"re-key of {count:,} {where} / {what}", theirs.effort.seconds / ours.effort.seconds, target, detail)


async def compare_memory(folder: Path, few: int, many: int, *, server: bool) -> None:
    """Compare the memory of re-keys of few rows and of many, of the process that moves: its own, without SQLite's."""
    for what in ("online", "offline"):
        small, large = [await _measure(folder, what, count, server=server) for count in (few, many)]
        detail = f"{large.peak:.0f} MiB / {small.peak:.0f} MiB"
        if not server:
            detail += f", and SQLite {large.sqlite:.0f} MiB / {small.sqlite:.0f} MiB"
        where = "on a server" if server else "in a file"
        report(
            f"peak memory of a re-key {what} {where}, {many:,} / {few:,}",
            large.peak / small.peak,
            "at most 1.20",
            detail,
        )


async def bench_rekey(folder: Path) -> None:
    """Re-keys against scripts by hand."""
    count = min(ALL, sizes["rekey"])
    await compare_with_hand(folder, count // 30, server=True)
    await compare_with_hand(folder, count // 5, server=False)


async def bench_rekey_memory(folder: Path) -> None:
    """The memory of re-keys of few rows and of many."""
    count = min(ALL, sizes["rekey"])
    for server in (True, False):
        await compare_memory(folder, count * 10 // 67, count, server=server)


if __name__ == "__main__":
    asyncio.run(_take_part(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
