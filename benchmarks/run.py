"""
The benchmarks: `python -m benchmarks.run [NAME ...]`. Each figure is a ratio of two things measured in one run.
`audit`, `build_index`, `migrations`, `rekey`, `rekey_memory`, `expiry`, `copy` and `periods` take `--entities N`.

Both sides take turns, several rounds each, and the median of the ratios counts: a machine whose speed drifts does not
decide.
"""

import asyncio
import datetime as dt
import importlib
import random
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import cattrs
import orjson

from benchmarks.azure import bench_azure
from benchmarks.blobs import bench_blobs
from benchmarks.by_hand import GroupCommit, PlainFlight, get, key, row_of, stream
from benchmarks.by_hand import connect as connect_by_hand
from benchmarks.contention import bench_contention
from benchmarks.elements import bench_elements
from benchmarks.encryption import bench_encryption
from benchmarks.expiry import bench_expiry
from benchmarks.feeds import bench_feeds
from benchmarks.indexes import bench_indexes
from benchmarks.log_streams import bench_logs
from benchmarks.logs import bench_spread, bench_tail
from benchmarks.measure import compare, fill, peak_memory, report, timed
from benchmarks.migrations import bench_migrations
from benchmarks.model import Flight, flight
from benchmarks.outbox import bench_outbox
from benchmarks.periods import bench_periods
from benchmarks.queries import bench_alternatives, bench_memory, bench_partitions, bench_planning
from benchmarks.rekey import bench_rekey, bench_rekey_memory
from benchmarks.relations import bench_relations
from benchmarks.series import bench_series
from benchmarks.transfers import bench_copy
from benchmarks.upkeep import bench_audit, bench_build_index, sizes
from benchmarks.writes import bench_bulk, bench_save, bench_wide
from tableorm import Database, connect, to_dict
from tableorm.stores import RowQuery


def lean(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what only the service's form needs: ETag, time stamp, kind and types."""
    left_out = ("odata.etag", "Timestamp", "EntityType")
    return {name: value for name, value in row.items() if name not in left_out and "@" not in name}


def copy_by_hand(folder: Path, rows: list[dict[str, Any]], name: str = "by_hand.db") -> Path:
    """The same rows in a file of the hand-written kind."""
    path = folder / name
    connection = connect_by_hand(path)
    with connection:
        connection.executemany(
            "INSERT INTO rows VALUES (?, ?)",
            ((key(row["PartitionKey"], int(row["RowKey"])), orjson.dumps(row)) for row in rows),
        )
    connection.close()
    return path


async def all_rows(db: Database) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    continuation: str | None = None
    while True:
        page = await db.store.query("Flights", RowQuery(), 1000, continuation)
        rows += page.rows
        continuation = page.continuation
        if continuation is None:
            return rows


async def bench_get(folder: Path) -> None:
    """A point read to an entity against a hand-written SELECT and orjson to a dictionary."""
    async with connect(f"local:{folder}/get.tables") as db:
        await db.create_tables(Flight)
        await fill(db, "JFK", 10_000)
        by_hand = connect_by_hand(copy_by_hand(folder, await all_rows(db)))
        numbers = random.choices(range(10_000), k=5_000)

        async def ours() -> None:
            for number in numbers:
                await db.get(Flight, origin="JFK", number=number)

        async def theirs() -> None:
            for number in numbers:
                get(by_hand, "JFK", number)

        a, b, ratio = await compare(ours, theirs, 9)
        report("db.get / hand-written SELECT to a dict", ratio, "at most 2.5", f"{a * 200:.1f} us / {b * 200:.1f} us")
        by_hand.close()
        by_hand = connect_by_hand(copy_by_hand(folder, [lean(row) for row in await all_rows(db)], "lean.db"))
        a, b, ratio = await compare(ours, theirs, 9)
        report(
            "  the same, hand-written rows without types and ETag", ratio, "", f"{a * 200:.1f} us / {b * 200:.1f} us"
        )
        by_hand.close()


async def bench_stream(folder: Path) -> None:
    """A partition of 100,000 rows into entities, against hand-written code that makes the same values."""
    count = 100_000
    async with connect(f"local:{folder}/stream.tables") as db:
        await db.create_tables(Flight)
        await fill(db, "JFK", count)
        by_hand = connect_by_hand(copy_by_hand(folder, await all_rows(db)))

        async def ours() -> None:
            seen = 0
            async for _ in db.select(Flight).where(Flight.origin == "JFK"):
                seen += 1
            assert seen == count

        async def theirs() -> None:
            seen = 0
            for _ in stream(by_hand, "JFK"):
                seen += 1
            assert seen == count

        first = await db.select(Flight).where(Flight.origin == "JFK").limit(3).all()
        for entity, plain in zip(first, stream(by_hand, "JFK"), strict=False):
            assert {name: getattr(entity, name) for name in attrs.fields_dict(PlainFlight)} == attrs.asdict(plain)
        a, b, ratio = await compare(ours, theirs, 5)
        report(
            "stream 100k entities / hand-written, same values",
            ratio,
            "at most 1.5",
            f"{a / count * 1e6:.2f} us / {b / count * 1e6:.2f} us an entity",
        )
        by_hand.close()
        by_hand = connect_by_hand(copy_by_hand(folder, [lean(row) for row in await all_rows(db)], "lean.db"))
        a, b, ratio = await compare(ours, theirs, 5)
        detail = f"{a / count * 1e6:.2f} us / {b / count * 1e6:.2f} us an entity"
        report("  the same, hand-written rows without types and ETag", ratio, "", detail)
        by_hand.close()


async def bench_insert(folder: Path) -> None:
    """Durable inserts by 32 tasks against a hand-written group commit."""
    tasks, each = 32, 100
    turn = 0
    async with connect(f"local:{folder}/insert.tables") as db:
        await db.create_tables(Flight)
        group = GroupCommit(folder / "insert_by_hand.db")

        async def run(insert: Callable[[int], Awaitable[None]]) -> None:
            nonlocal turn
            turn += 1
            base = turn * tasks * each

            async def worker(number: int) -> None:
                for i in range(each):
                    await insert(base + number * each + i)

            await asyncio.gather(*(worker(number) for number in range(tasks)))

        async def insert_ours(number: int) -> None:
            await db.insert(flight("JFK", number))

        async def insert_theirs(number: int) -> None:
            await group.insert(key("JFK", number), row_of("JFK", number))

        a, b, ratio = await compare(lambda: run(insert_ours), lambda: run(insert_theirs), 9)
        total = tasks * each
        report(
            "durable inserts by 32 tasks: rate / hand-written",
            1 / ratio,
            "at least 0.6",
            f"{total / a:,.0f}/s / {total / b:,.0f}/s",
        )
        group.close()


async def bench_flat(folder: Path) -> None:
    """Point reads and ranges of 100 must not depend on the size of the table."""
    base: tuple[float, float] | None = None
    for count in (1_000, 100_000, 1_000_000):
        async with connect(f"local:{folder}/flat{count}.tables") as db:
            await db.create_tables(Flight)
            await fill(db, "JFK", count)
            numbers = random.choices(range(count - 100), k=3_000)

            async def points(numbers: list[int] = numbers, db: Database = db) -> None:
                for number in numbers:
                    await db.get(Flight, origin="JFK", number=number)

            async def ranges(numbers: list[int] = numbers, db: Database = db) -> None:
                for number in numbers[:200]:
                    where = (Flight.origin == "JFK", Flight.number.between(number, number + 99))
                    assert len(await db.select(Flight).where(*where).all()) == 100

            await points()
            point = statistics.median([await timed(points) for _ in range(5)]) / 3_000 * 1e6
            await ranges()
            hundred = statistics.median([await timed(ranges) for _ in range(5)]) / 200 * 1e6
            if base is None:
                base = (point, hundred)
            report(f"point read at {count:,} / at 1,000", point / base[0], "flat", f"{point:.1f} us")
            report(f"range of 100 at {count:,} / at 1,000", hundred / base[1], "flat", f"{hundred:.0f} us")


def _read_moment(text: str, kind: object) -> dt.datetime:
    del kind
    return dt.datetime.fromisoformat(text)


async def bench_codec(folder: Path) -> None:
    """Rows to entities and back, against cattrs on the same class and against the SDK's own conversion."""
    del folder
    schema = Flight.__schema__
    entities = [flight("JFK", number) for number in range(1_000)]
    rows = [schema.encode(e.__dict__, *schema.make_keys(e.__dict__))[0] for e in entities]
    wire = [row | {"odata.etag": "W/\"datetime'2024-02-29T12%3A34%3A56.7891234Z'\""} for row in rows]
    converter: Any = cattrs.GenConverter()
    converter.register_structure_hook(dt.datetime, _read_moment)
    converter.register_unstructure_hook(dt.datetime, dt.datetime.isoformat)
    plain = [PlainFlight(**{name: getattr(e, name) for name in attrs.fields_dict(PlainFlight)}) for e in entities]
    unstructured = [converter.unstructure(p) for p in plain]

    async def decode() -> None:
        for row in wire:
            schema.decode(row)

    async def encode() -> None:
        for e in entities:
            schema.encode(e.__dict__, *schema.make_keys(e.__dict__))

    async def cattrs_decode() -> None:
        for row in unstructured:
            converter.structure(row, PlainFlight)

    async def cattrs_encode() -> None:
        for p in plain:
            converter.unstructure(p)

    # The SDK's own conversions are private; what they cost is what its users pay.
    convert_to_entity: Any = importlib.import_module("azure.data.tables._deserialize")._convert_to_entity
    add_entity_properties: Any = importlib.import_module("azure.data.tables._serialize")._add_entity_properties

    async def sdk_decode() -> None:
        for row in wire:
            convert_to_entity(dict(row))

    dictionaries = [to_dict(e) for e in entities]

    async def sdk_encode() -> None:
        for d in dictionaries:
            add_entity_properties({"PartitionKey": d["origin"], "RowKey": str(d["number"])} | d)

    for name, ours, theirs in (
        ("decode / cattrs structure", decode, cattrs_decode),
        ("decode / SDK conversion to a dict", decode, sdk_decode),
        ("encode with keys / cattrs unstructure", encode, cattrs_encode),
        ("encode with keys / SDK conversion", encode, sdk_encode),
    ):
        a, b, ratio = await compare(ours, theirs)
        report(name, ratio, "", f"{a * 1e3:.2f} us / {b * 1e3:.2f} us")


BENCHES = {
    "get": bench_get,
    "stream": bench_stream,
    "insert": bench_insert,
    "flat": bench_flat,
    "codec": bench_codec,
    "bulk": bench_bulk,
    "save": bench_save,
    "wide": bench_wide,
    "indexes": bench_indexes,
    "feeds": bench_feeds,
    "contention": bench_contention,
    "partitions": bench_partitions,
    "alternatives": bench_alternatives,
    "planning": bench_planning,
    "memory": bench_memory,
    "spread": bench_spread,
    "tail": bench_tail,
    "azure": bench_azure,
    "outbox": bench_outbox,
    "audit": bench_audit,
    "build_index": bench_build_index,
    "migrations": bench_migrations,
    "rekey": bench_rekey,
    "rekey_memory": bench_rekey_memory,
    "expiry": bench_expiry,
    "relations": bench_relations,
    "elements": bench_elements,
    "copy": bench_copy,
    "series": bench_series,
    "encryption": bench_encryption,
    "blobs": bench_blobs,
    "logs": bench_logs,
    "periods": bench_periods,
}


def main() -> None:
    arguments = sys.argv[1:]
    if "--entities" in arguments:
        at = arguments.index("--entities")
        sizes.update(dict.fromkeys(sizes, int(arguments[at + 1])))
        del arguments[at : at + 2]
    names = arguments or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="tableorm-bench-") as folder:
            asyncio.run(BENCHES[name](Path(folder)))
    print(f"peak memory {peak_memory():.0f} MiB")


if __name__ == "__main__":
    main()
