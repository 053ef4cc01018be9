"""
Benchmarks of writing: `bulk`, and a `save` of one property against a `replace` of the row.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

from benchmarks.by_hand import connect as connect_by_hand
from benchmarks.by_hand import key
from benchmarks.measure import compare, report
from benchmarks.model import Flight, flight
from tableorm import Database, Entity, Mapped, Series, connect, field, series

_AIRPORTS = [f"A{number:02d}" for number in range(50)]


def row_by_hand(entity: Flight) -> tuple[bytes, bytes]:
    """Key and JSON of an entity, as the service has it, straight from its attributes."""
    row = {
        "PartitionKey": entity.origin,
        "RowKey": f"{entity.number:07d}",
        "carrier": entity.carrier,
        "destination": entity.destination,
        "tail": entity.tail,
        "scheduled@odata.type": "Edm.DateTime",
        "scheduled": entity.scheduled.isoformat(),
        "departed@odata.type": "Edm.DateTime",
        "departed": entity.departed and entity.departed.isoformat(),
        "delay": entity.delay,
        "distance": entity.distance,
        "seats@odata.type": "Edm.Int64",
        "seats": str(entity.seats),
        "cancelled": entity.cancelled,
    }
    return key(entity.origin, entity.number), orjson.dumps(row)


async def bench_bulk(folder: Path) -> None:
    """Bulk upserts against `executemany`, each 100 rows a durable transaction; entities built beforehand."""
    count, rounds = 20_000, 5
    for name, origins in (("one partition", ["JFK"]), ("50 partitions", _AIRPORTS)):
        # New ones for each round: an entity that was written knows its row.
        batches = [[flight(origins[n % len(origins)], n) for n in range(count)] for _ in range(rounds + 1)]
        ours_batches, theirs_batches = iter(batches), iter(batches)
        async with connect(f"local:{folder}/bulk{len(origins)}.tables") as db:
            await db.create_tables(Flight)
            by_hand = connect_by_hand(folder / f"bulk{len(origins)}.db")

            async def ours(db: Database = db, batches: Iterator[list[Flight]] = ours_batches) -> None:
                async with db.bulk() as bulk:
                    for entity in next(batches):
                        await bulk.upsert(entity, mode="replace")
                assert bulk.report.written == count

            async def theirs(by_hand: Any = by_hand, batches: Iterator[list[Flight]] = theirs_batches) -> None:
                entities = next(batches)
                for start in range(0, count, 100):
                    rows = [row_by_hand(entity) for entity in entities[start : start + 100]]
                    by_hand.execute("BEGIN IMMEDIATE")
                    by_hand.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", rows)
                    by_hand.execute("COMMIT")

            a, b, ratio = await compare(ours, theirs, rounds)
            report(
                f"bulk, {name}: rate / executemany per 100",
                1 / ratio,
                "at least 0.4",
                f"{count / a:,.0f}/s / {count / b:,.0f}/s",
            )
            by_hand.close()


def _wide() -> type[Entity]:
    space: dict[str, Any] = {"__annotations__": {"id": Mapped[str]}, "__module__": __name__}
    for number in range(249):
        space["__annotations__"][f"p{number:03d}"] = Mapped[int]
        space[f"p{number:03d}"] = field(default=number)
    return type("Wide", (Entity,), space, table="Wide", partition_key="w", row_key="{id}")


async def bench_save(folder: Path) -> None:
    """One changed property of an entity of 250: a `save` against a `replace`, in bytes and in time."""
    wide: Any = _wide()
    async with connect(f"local:{folder}/save.tables") as db:
        await db.create_tables(wide)
        one, two = wide(id="one"), wide(id="two")
        await db.insert(one)
        await db.insert(two)
        changed = {"PartitionKey": "w", "RowKey": "one", "p100": "100001", "p100@odata.type": "Edm.Int64"}
        whole = wide.__schema__.encode(one.__dict__, "w", "one")[0]
        sizes = [len(msgspec.json.encode(row)) for row in (changed, whole)]
        report("save of 1 of 250 / replace: bytes", sizes[0] / sizes[1], "", f"{sizes[0]} / {sizes[1]}")

        async def save() -> None:
            for _ in range(500):
                one.p100 += 1
                await db.save(one)

        async def replace() -> None:
            for _ in range(500):
                two.p100 += 1
                await db.replace(two)

        a, b, ratio = await compare(save, replace, 5)
        report("save of 1 of 250 / replace: time", ratio, "", f"{a * 2000:.0f} us / {b * 2000:.0f} us")


class _WideYear(Entity, table="Wide", partition_key="w", row_key="year_{id:04d}", wide=True):
    id: Mapped[int]
    sent: Series[int] = series(1000, name="D{i:03d}", default=0)


class _Fifth(Entity, table="Wide", partition_key="w", row_key="fifth_{id:04d}_{part}", write_token=True):
    id: Mapped[int]
    part: Mapped[int]
    sent: Series[int] = series(200, name="D{i:03d}", default=0)


async def bench_wide(folder: Path) -> None:
    """A wide entity of 1,000 properties against five rows that a program keeps by itself: written and read."""
    async with connect(f"local:{folder}/wide.tables") as db:
        await db.create_tables(_WideYear)
        numbers, slots = iter(range(10_000)), list(range(1000))

        async def insert_wide() -> None:
            for _ in range(20):
                await db.insert(_WideYear(id=next(numbers), sent=slots))

        async def insert_five() -> None:
            for _ in range(20):
                number = next(numbers)
                async with db.transaction() as tx:
                    for part in range(5):
                        tx.insert(_Fifth(id=number, part=part, sent=slots[part * 200 : part * 200 + 200]))

        a, b, ratio = await compare(insert_wide, insert_five, 5)
        report("insert of 1,000 properties / of five rows", ratio, "at most 1.5", f"{a * 50:.2f} ms / {b * 50:.2f} ms")
        await db.insert(_WideYear(id=9999, sent=slots))
        for part in range(5):
            await db.insert(_Fifth(id=9999, part=part, sent=slots[part * 200 : part * 200 + 200]))
        five = db.select(_Fifth).where(_Fifth.id == 9999)

        async def get_wide() -> None:
            for _ in range(50):
                await db.get(_WideYear, id=9999)

        async def get_five() -> None:
            for _ in range(50):
                await five.all()

        a, b, ratio = await compare(get_wide, get_five, 5)
        report("get of 1,000 properties / of five rows", ratio, "at most 1.5", f"{a * 20:.2f} ms / {b * 20:.2f} ms")
