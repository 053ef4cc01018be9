"""
A benchmark of copies: `db.copy_rows` against a loop by hand that reads pages and writes transactions, one at a time.
"""

from functools import partial
from pathlib import Path

from benchmarks.measure import compare, report
from benchmarks.upkeep import sizes
from tableorm import connect
from tableorm.stores import Operation, Row, RowQuery, TableStore, Verb

_TABLE = "Copied"


async def _fill(store: TableStore, count: int) -> None:
    await store.create_table(_TABLE)
    for start in range(0, count, 100):
        keys = {"PartitionKey": f"p{start // 1000:05d}", "text": "x" * 100}
        rows = [{**keys, "RowKey": f"{number:07d}", "n": number} for number in range(start, start + 100)]
        await store.transact(_TABLE, [Operation(Verb.INSERT, row) for row in rows])


async def _by_hand(source: TableStore, target: TableStore) -> None:
    await target.create_table(_TABLE)
    continuation: str | None = None
    while True:
        page = await source.query(_TABLE, RowQuery(), 1000, continuation)
        partitions: dict[str, list[Row]] = {}
        for row in page.rows:
            partitions.setdefault(row["PartitionKey"], []).append(row)
        for rows in partitions.values():
            for start in range(0, len(rows), 100):
                await target.transact(_TABLE, [Operation(Verb.INSERT, row) for row in rows[start : start + 100]])
        continuation = page.continuation
        if continuation is None:
            return


async def bench_copy(folder: Path) -> None:
    """Copy rows of partitions of 1,000 to a table that is not there yet."""
    count = sizes["copy"]
    async with connect(f"local:{folder}/from.tables") as db, connect(f"local:{folder}/to.tables") as target:
        await _fill(db.store, count)

        async def run(*, by_hand: bool) -> None:
            if by_hand:
                await _by_hand(db.store, target.store)
            else:
                assert (await db.copy_rows(target)).written == count
            await target.drop_table(_TABLE)

        ours, theirs, ratio = await compare(partial(run, by_hand=False), partial(run, by_hand=True), 3)
        report(f"copy of {count:,} rows / a loop by hand", ratio, "", f"{ours:.2f} s / {theirs:.2f} s")
