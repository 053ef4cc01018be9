"""
What a client computes to speak to the Table service: ours, which delivers entities, against the SDK, which delivers
dictionaries; both talk to the same stub (`benchmarks.azure_stub`), and only this process's CPU time counts.
"""

import asyncio
import contextlib
import statistics
import sys
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.data.tables.aio import TableClient

from benchmarks.model import Flight, flight
from tableorm import Database, connect

KEY = b64encode(b"0" * 64).decode()
_ROUNDS = 7

Run = Callable[[], Awaitable[None]]


@attrs.frozen
class Clients:
    """Ours, the SDK as it comes, and the SDK told not to look at the environment."""

    ours: Database
    stock: Any  # TableClient, whose own types leave much open
    lean: Any


@contextlib.asynccontextmanager
async def clients() -> AsyncGenerator[Clients]:
    """All three, on a stub of their own."""
    command = [sys.executable, "-m", "benchmarks.azure_stub"]
    stub = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert stub.stdout is not None
    try:
        url = f"http://127.0.0.1:{(await stub.stdout.readline()).decode().strip()}/bench"
        credential = AzureNamedKeyCredential("bench", KEY)
        transport: Any = AioHttpTransport(use_env_settings=False)
        async with (
            connect(url, key=KEY) as ours,
            TableClient(url, "Flights", credential=credential) as stock,
            TableClient(url, "Flights", credential=credential, transport=transport) as lean,
        ):
            yield Clients(ours, stock, lean)
    finally:
        stub.terminate()
        await stub.wait()


async def cpu(run: Run) -> float:
    """Seconds of CPU time of one call."""
    start = time.process_time()
    await run()
    return time.process_time() - start


async def ratios(ours: Run, others: list[Run], rounds: int) -> tuple[float, list[tuple[float, float]]]:
    """Median seconds of ours; of each other the median seconds, and the median ratio to ours in the same round."""
    taken = [[await cpu(run) for run in (ours, *others)] for _ in range(rounds + 1)][1:]  # the first warms up
    return statistics.median(each[0] for each in taken), [
        (statistics.median(each[i] for each in taken), statistics.median(each[i] / each[0] for each in taken))
        for i in range(1, len(others) + 1)
    ]


async def bench_azure(folder: Path) -> None:
    """Pages, transactions, point reads and inserts."""
    del folder
    async with clients() as c:
        await _page(c)
        await _transaction(c)
        await _get(c)
        await _insert(c)


async def _page(c: Clients) -> None:
    async def ours() -> None:
        assert len(await c.ours.select(Flight).where(Flight.origin == "JFK").all()) == 1000

    def sdk(client: Any) -> Run:
        async def run() -> None:
            found = [each async for each in client.query_entities("PartitionKey eq 'JFK'", results_per_page=1000)]
            assert len(found) == 1000

        return run

    await _show("page of 1,000", ours, sdk, c, times=1, targets=("at least 10", ""))


async def _transaction(c: Clients) -> None:
    # New ones each time: an entity that was inserted knows what is stored of it.
    entities = iter([[flight("JFK", number) for number in range(100)] for _ in range(_ROUNDS + 1)])
    rows = [_sdk_entity(number) for number in range(100)]

    async def ours() -> None:
        async with c.ours.transaction() as tx:
            for entity in next(entities):
                tx.insert(entity)

    def sdk(client: Any) -> Run:
        async def run() -> None:
            await client.submit_transaction([("create", row) for row in rows])

        return run

    await _show("transaction of 100 inserts", ours, sdk, c, times=1, targets=("at least 10", ""))


async def _get(c: Clients) -> None:
    async def ours() -> None:
        for _ in range(200):
            await c.ours.get(Flight, origin="JFK", number=7)

    def sdk(client: Any) -> Run:
        async def run() -> None:
            for _ in range(200):
                await client.get_entity("JFK", "0000007")

        return run

    await _show("point read", ours, sdk, c, times=200, targets=("at least 2.5", "at least 1.3"))


async def _insert(c: Clients) -> None:
    entities = iter([[flight("JFK", number) for number in range(200)] for _ in range(_ROUNDS + 1)])
    rows = [_sdk_entity(number) for number in range(200)]

    async def ours() -> None:
        for entity in next(entities):
            await c.ours.insert(entity)

    def sdk(client: Any) -> Run:
        async def run() -> None:
            for row in rows:
                await client.create_entity(row)

        return run

    await _show("insert", ours, sdk, c, times=200, targets=("at least 2.5", "at least 1.3"))


def _sdk_entity(number: int) -> dict[str, Any]:
    """A flight as a user of the SDK writes it."""
    entity = flight("JFK", number)
    values = {info.name: getattr(entity, info.name) for info in Flight.__schema__.stored}
    return {"PartitionKey": "JFK", "RowKey": f"{number:07d}", "EntityType": "Flight", **values}


async def _show(
    name: str, ours: Run, sdk: Callable[[Any], Run], c: Clients, times: int, targets: tuple[str, str]
) -> None:
    mine, (stock, lean) = await ratios(ours, [sdk(c.stock), sdk(c.lean)], _ROUNDS)
    for label, (seconds, ratio), target in (("SDK", stock, targets[0]), ("SDK, lean transport", lean, targets[1])):
        detail = f"{seconds / times * 1e6:,.0f} us / {mine / times * 1e6:,.0f} us of CPU"
        print(f"{f'{name}: {label} / ours':<58} {ratio:>6.2f}x  {target:<18} {detail}", flush=True)


if __name__ == "__main__":
    asyncio.run(bench_azure(Path()))
