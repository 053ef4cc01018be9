"""
Statistics of tables: what is counted in full is exact, and what is estimated says how far it may be off.
"""

from typing import Any

import pytest

from tableorm import AccessDenied, Database, Entity, Index, Mapped, ModelError, TableNotFound
from tableorm.advice import TableCost, measure_table
from tableorm.protocol.limits import entity_size
from tableorm.stores import Operation, RowQuery, Verb
from tests.advice.key_shapes import SHAPES, make_keys
from tests.databases import database_fixture
from tests.rows import insert_row

PAGE = "tableorm.advice.statistics.MAX_PAGE"


class Person(Entity, table="StatPeople", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    email: Mapped[str]
    by_email = Index(row_key="email_{email}", unique=True, include="keys")


db = database_fixture()


async def fill(db: Database, shape: str, count: int) -> dict[str, int]:
    """Write rows without kinds into the table "Rows", and return how many each partition has."""
    await db.create_tables("Rows")
    partitions: dict[str, list[str]] = {}
    for partition, row in sorted({*make_keys(shape, count)}):
        partitions.setdefault(partition, []).append(row)
    for partition, rows in partitions.items():
        for start in range(0, len(rows), 100):
            some = ({"PartitionKey": partition, "RowKey": row, "n": 1} for row in rows[start : start + 100])
            await db.store.transact("Rows", [Operation(Verb.INSERT, row) for row in some])
    return {partition: len(rows) for partition, rows in partitions.items()}


async def test_a_small_table(db: Database) -> None:
    """It is read in full by one request: rows, bytes as the service counts them, kinds, partitions."""
    await db.create_tables(Person)
    for department, count in (("Sales", 6), ("HR", 2)):
        for number in range(count):
            await db.insert(Person(department=department, id=number, email=f"{number}@x"))
    rows = (await db.store.query("StatPeople", RowQuery(), 1000, None)).rows

    with db.observe() as seen:
        found = await measure_table(db, "StatPeople")

    assert len(seen.requests) == found.requests == 1
    assert (found.rows, found.partitions, found.exact) == (16, 2, True)
    assert found.size == sum(map(entity_size, rows))
    assert {kind: each.rows for kind, each in found.kinds.items()} == {"Person": 8, "Person#by_email": 8}
    assert sum(each.size for each in found.kinds.values()) == found.size
    assert list(found.largest.items()) == [("Sales", 12), ("HR", 4)]
    assert found.prefixes == {}
    assert found.scan_requests == 1


@pytest.mark.one_of(3)
@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
async def test_all_rows(db: Database, monkeypatch: pytest.MonkeyPatch, shape: str, parallel: int) -> None:
    """All rows are counted once, by one reader or several; the progress is told."""
    monkeypatch.setattr(PAGE, 50)
    partitions = await fill(db, shape, 400)
    told: list[tuple[int, float]] = []

    found = await measure_table(
        db, "Rows", parallel=parallel, on_progress=lambda rows, share: told.append((rows, share))
    )

    assert (found.rows, found.partitions, found.exact) == (sum(partitions.values()), len(partitions), True)
    largest = sorted(partitions.items(), key=lambda item: (-item[1], item[0]))
    assert list(found.largest.items()) == largest[:10]
    assert found.kinds.keys() == {""}
    assert told[-1][0] == found.rows
    assert 0.0 <= told[-1][1] < 1.0


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_sample(db: Database, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """It has the first rows of some ranges, says that it is one, and extrapolates nothing."""
    monkeypatch.setattr(PAGE, 10)
    partitions = await fill(db, shape, 400)

    found = await measure_table(db, "Rows", sample=5)

    assert not found.exact
    assert found.rows == 10 * min(5, len(partitions)) or found.rows < 50
    assert all(rows <= partitions[key] for key, rows in found.largest.items())
    assert sum(kind.rows for kind in found.kinds.values()) == found.rows
    assert str(found).startswith(f"Rows: sampled {found.rows} rows in {found.partitions} partition")
    cut = [key for key, rows in found.largest.items() if rows < partitions[key]]
    assert set(cut) <= set(found.incomplete) <= found.largest.keys()
    assert all((f"{found.largest[key]}+  " in str(found)) is (key in found.incomplete) for key in cut)


async def test_a_sample_of_keys_that_begin_alike(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are found where the keys are, so that a sample has rows of all of a table."""
    monkeypatch.setattr(PAGE, 2)
    await db.create_tables("Rows")
    for number in range(64):
        for row in range(3):
            key = {"PartitionKey": f"customers_contoso_{number:06d}", "RowKey": str(row)}
            await insert_row(db, "Rows", key)

    found = await measure_table(db, "Rows", sample=8)

    assert (found.rows, found.partitions) == (16, 8)
    assert found.requests < 200


async def test_a_sample_of_everything(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that has all rows is no sample."""
    monkeypatch.setattr(PAGE, 300)
    partitions = await fill(db, "few large partitions", 400)

    found = await measure_table(db, "Rows", sample=100)

    assert (dict(found.largest), found.exact) == (partitions, True)


async def test_prefixes_and_costs(db: Database) -> None:
    """PartitionKeys that begin alike are shown where they have a fifth of the rows together; prices make costs."""
    await db.create_tables("Rows")
    for number in range(10):
        await insert_row(db, "Rows", {"PartitionKey": f"tenant-{number}", "RowKey": "row"})
        await insert_row(db, "Rows", {"PartitionKey": "Sales", "RowKey": f"{number}"})

    found = await measure_table(db, "Rows")

    assert found.prefixes == {"tenant-": 10}
    assert found.cost(gib_price=0.0, request_price=10_000.0) == TableCost(0.0, 1.0)
    assert found.cost(gib_price=float(1 << 30), request_price=0.0) == TableCost(float(found.size), 0.0)


async def test_an_empty_table(db: Database) -> None:
    """It has nothing, and reading it costs one request."""
    await db.create_tables("Rows")
    for sample in (None, 3):
        found = await measure_table(db, "Rows", sample=sample)
        assert (found.rows, found.size, found.partitions, found.exact) == (0, 0, 0, True)
        assert (found.kinds, found.largest, found.prefixes, found.scan_requests) == ({}, {}, {}, 1)
        assert str(found) == "Rows: 0 rows in 0 partitions, 0 B\n  all rows were read by 1 request"


async def test_text(db: Database) -> None:
    """It is made for people; what is in keys is shown without control characters."""
    await db.create_tables("Rows")
    row = {"PartitionKey": "a\u2028b", "RowKey": "1", "EntityType": "x\ny"}
    await insert_row(db, "Rows", row)

    lines = [" ".join(line.split()) for line in str(await measure_table(db, "Rows")).split("\n")]

    assert lines == [
        "Rows: 1 row in 1 partition, 50 B",
        "all rows were read by 1 request",
        "kinds",
        "x\\u000ay 1 100% 50 B",
        "largest partitions",
        "a\\u2028b 1 100%",
    ]


async def test_what_is_refused(db: Database) -> None:
    """A scope, a table that is not there, and numbers that cannot be meant."""
    wrong: Any = "many"
    with pytest.raises(AccessDenied, match="measure_table"):
        await measure_table(db.scope(tenant="a"), "Rows")
    with pytest.raises(TableNotFound, match="Rows"):
        await measure_table(db, "Rows")
    with pytest.raises(ModelError, match=r"measure_table\('Rows', sample=0\) is rejected: give 1 or more"):
        await measure_table(db, "Rows", sample=0)
    with pytest.raises(ModelError, match=r"measure_table\('Rows', parallel='many'\) is rejected: give 1 or more"):
        await measure_table(db, "Rows", parallel=wrong)
